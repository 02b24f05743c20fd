"""AWS on this machine, for ``cdk deploy``: an emulator's control plane, and Headwater's own services behind it."""

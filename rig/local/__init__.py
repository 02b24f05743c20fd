"""The pipeline's parts as processes on this machine, each in its own process group."""

"""What AWS and the laptop share: each definition is rendered once, for the templates and for the local run alike."""

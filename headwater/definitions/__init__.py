"""Each definition is rendered once, for the templates and for the parts on this machine alike."""

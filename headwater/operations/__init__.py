"""A deployed environment as its operators see it: the state of each part, what to do next, and the parts' logs."""

"""The demo: the whole pipeline on this machine, with a report."""

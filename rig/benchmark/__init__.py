"""Measurements on this machine: the pipeline and its parts, and its commits beside those of others."""

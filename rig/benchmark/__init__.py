"""Measurements on this machine: the pipeline, its parts, and its commits beside the commits of other systems."""

"""Measurements on this machine: of the pipeline, its parts, and its commits compared with other systems' commits."""

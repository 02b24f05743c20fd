"""Definitions of resources, which the templates and the local run share."""

"""Checks the prose of this repository: pages, docstrings, doc comments and messages."""

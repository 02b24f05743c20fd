"""Contracts: the one description of a lake table, read by CDK, the writers and ``headwater verify``."""

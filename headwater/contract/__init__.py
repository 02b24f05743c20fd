"""Contracts: each describes one lake table for CDK, the writers and ``headwater verify``."""

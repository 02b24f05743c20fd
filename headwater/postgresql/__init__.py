"""Headwater's operations on a running PostgreSQL: create, prepare, inspect and drop a database, and copy its tables."""

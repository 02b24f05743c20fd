"""The order database on a running PostgreSQL: create it, load it, look at it, drop it."""

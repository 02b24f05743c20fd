"""What Headwater does in a running PostgreSQL: create or prepare a database, look at it, copy its tables, drop it."""

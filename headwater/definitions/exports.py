"""Folders in the lake's bucket for exports and copies of source tables. Jobs may read them; query engines may not."""

EXPORTS = "exports"
"""The folder for DynamoDB's exports. An export may be in any folder below it."""
COPIES = f"{EXPORTS}/_backfill"
"""The folder for copies of PostgreSQL's tables, with a folder for each lake table."""
COPY_DAYS = 7
"""A copy is deleted after this many days at the latest."""

"""Folders of the lake's bucket for exports and copies of sources' tables. Jobs may read them; query engines may not."""

EXPORTS = "exports"
"""The folder of DynamoDB's exports, which may lie in any folder below it."""
COPIES = f"{EXPORTS}/_backfill"
"""The folder of the copies of PostgreSQL's tables, with a folder for each table's name."""
COPY_DAYS = 7
"""The most days that a copy stays."""

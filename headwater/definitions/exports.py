"""Where what a source's table held lies, to be loaded: folders of the lake's bucket, beside the tables, from which jobs
may read; query engines may not."""

EXPORTS = "exports"
"""The exports of DynamoDB's tables, wherever they are below it."""
COPIES = f"{EXPORTS}/_backfill"
"""The copies of PostgreSQL's tables, in a folder of each table's name."""
COPY_DAYS = 7
"""How long one stays at the most."""

"""Named queries of Athena's workgroup: the first questions of an operator.

No query reads the quarantine, because it is not a table. The alarm ``quarantine-<table>`` counts its records, and its
files are below ``_quarantine``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.contract.model import Contract
from headwater.definitions.history_queries import as_of_sql
from headwater.definitions.published_view import published_view_name, qualified


@dataclass(frozen=True)
class NamedQuery:
    """A query that Athena's workgroup shows by name."""

    name: str
    """The name in the workgroup."""
    description: str
    """The description in the workgroup."""
    sql: str
    """The query in Athena's SQL."""


def named_queries(contracts: Sequence[Contract], database: str) -> list[NamedQuery]:
    """Return the queries for the contracts' tables in a Glue database; none if there is no contract."""
    if not contracts:
        return []
    queries = [
        NamedQuery(
            "rows-and-freshness",
            "Rows per table, the time of its newest change in the source, deletes too, and the seconds since.",
            _each(contracts, lambda contract: _freshness(contract, database)),
        ),
        NamedQuery(
            "deleted-rows",
            "Tombstones per table, and the newest change among them: of rows that were deleted, moved to another "
            "partition, or were ended by a TRUNCATE or a reading. The views hide them.",
            _each(contracts, lambda contract: _deleted(contract, database)),
        ),
        NamedQuery(
            "late-rows",
            "Rows per table whose last change was committed or filled over five minutes after it; the longest delay. "
            "Deletes, and rows that were read, do not count.",
            _each(contracts, lambda contract: _late(contract, database)),
        ),
        NamedQuery(
            "fields-without-column",
            "Rows per table with fields that no column of the contract takes, and one row's fields as JSON.",
            _each(contracts, lambda contract: _without_column(contract, database)),
        ),
        NamedQuery(
            "keys-stored-twice",
            "Keys that live in a table more than once. Expected: 0 for each table; report anything else as a fault.",
            _each(contracts, lambda contract: _stored_twice(contract, database)),
        ),
    ]
    return [*queries, *(_yesterday(contract, database) for contract in contracts if contract.history is not None)]


def _published(contract: Contract, database: str) -> str:
    return qualified(database, published_view_name(contract))


def _table(contract: Contract, database: str) -> str:
    """Return the table below the published view, in SQL. It has tombstones, too."""
    return qualified(database, contract.table)


def _yesterday(contract: Contract, database: str) -> NamedQuery:
    return NamedQuery(
        f"{contract.table}-yesterday",
        f"{contract.table} as they were a day ago. EXECUTE {contract.table}_as_of USING … for any instant.",
        as_of_sql(contract, database, "current_timestamp - INTERVAL '1' DAY"),
    )


def _each(contracts: Sequence[Contract], select: Callable[[Contract], str]) -> str:
    return "\nUNION ALL\n".join(map(select, contracts)) + "\nORDER BY table_name"


def _freshness(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(CASE WHEN "_deleted" IS DISTINCT FROM true THEN 1 END) AS row_count,
  max("_source_ts") AS newest_change,
  date_diff('second', max("_source_ts"), CAST(current_timestamp AS timestamp(3))) AS seconds_since
FROM {_table(contract, database)}"""


def _deleted(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(*) AS tombstones,
  max("_source_ts") AS newest_change
FROM {_table(contract, database)}
WHERE "_deleted" = true"""


def _late(contract: Contract, database: str) -> str:
    # Hudi's instants are times as 20240229235959123.
    committed = "date_parse(substr(\"_hoodie_commit_time\", 1, 14), '%Y%m%d%H%i%s')"
    delay = f"date_diff('second', \"_source_ts\", {committed})"
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(CASE WHEN {delay} > 300 THEN 1 END) AS late_rows,
  max({delay}) AS longest_seconds
FROM {_table(contract, database)}
WHERE "_deleted" IS DISTINCT FROM true AND "_op" IN ('c', 'u')"""


def _without_column(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count("_rest") AS row_count,
  max("_rest") AS example
FROM {_published(contract, database)}"""


def _stored_twice(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(*) - count(DISTINCT "_key") AS stored_twice
FROM {_table(contract, database)}
WHERE "_deleted" IS DISTINCT FROM true"""

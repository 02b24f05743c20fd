"""Queries of a change history in Athena's SQL: a row's versions, a table as of an instant, changes between instants.

An instant is the time of a commit in the source. Among changes at the same instant, ``_order`` decides. A late-arriving
change counts from the instant of its commit in the source, and not from its arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.contract.model import BEGUN_LATE, DYNAMODB, EXPIRED, ROW_OPS, Contract, change_history
from headwater.contract.types import Type
from headwater.definitions.glue_table import column_comments
from headwater.definitions.published_view import View, qualified, quoted

_INSTANT = Type("timestamp")
_TEXT = Type("string")
_ROW_OPS = ", ".join(f"'{op}'" for op in ROW_OPS)
_COMMENTS = {
    "valid_from": "When the row became as it is here, in UTC",
    "valid_to": "When it ceased to be, in UTC; null where it still is",
    "_op": "What made the version: c created, u updated, r read",
    "begins": "From when on all changes are known, in UTC; null where no snapshot has ended",
    "complete_until": "Before when all changes that could be read have arrived, in UTC",
}
_BEHIND_ALL = "~"
"""A text that sorts after every order, because orders are digits."""


@dataclass(frozen=True)
class Statement:
    """A prepared statement of Athena's workgroup."""

    name: str
    """The statement's name in the workgroup."""
    description: str
    """The meaning of the result and of the parameters."""
    sql: str
    """The query in Athena's SQL, with ``?`` for each parameter."""


def history_views(contract: Contract, database: str) -> list[View]:
    """Return the views of a table's history in a Glue database; none if the contract has no history."""
    history = change_history(contract)
    if history is None or contract.history is None:
        return []
    own = [(column.name, column.type) for column in contract.columns]
    versions = View(
        f"{contract.table}_versions",
        f"{contract.description} A row for each version, from valid_from until before valid_to.",
        _versions_sql(history, database),
        [*own, ("valid_from", _INSTANT), ("valid_to", _INSTANT), ("_op", _TEXT), ("_order", _TEXT), *_kept(history)],
        column_comments(history) | _COMMENTS,
    )
    span = View(
        span_name(contract),
        f"From which instant on all of {contract.table} is known, and up to which one.",
        _span_sql(history, contract.history.keep_days, database),
        [("begins", _INSTANT), ("complete_until", _INSTANT)],
        _COMMENTS,
    )
    return [versions, span]


def span_name(contract: Contract) -> str:
    """Return the name of the view with the first and the last instant that a table's history covers."""
    return f"{contract.table}_history"


def history_statements(contract: Contract, database: str) -> list[Statement]:
    """Return the prepared statements of a table's history; none if the contract has no history."""
    history = change_history(contract)
    if history is None:
        return []
    return [
        Statement(
            f"{contract.table}_as_of",
            f"{contract.table} as it was at an instant: one parameter, a timestamp in UTC.",
            as_of_sql(contract, database, "?"),
        ),
        Statement(
            f"{contract.table}_changes_between",
            f"Changes of {contract.table} after an instant, up to another one: two parameters, timestamps in UTC.",
            _between_sql(history, contract, database),
        ),
    ]


def as_of_sql(contract: Contract, database: str, instant: str) -> str:
    """Return the query for a table's rows at an instant. ``instant`` is an expression in SQL, or ``?``."""
    columns = ",\n  ".join(quoted(column.name) for column in contract.columns)
    return f"""WITH {_asked(contract, database, instant)}
SELECT
  {columns},
  "valid_from"
FROM {qualified(database, f"{contract.table}_versions")}
CROSS JOIN asked
WHERE "valid_from" <= asked."_instant" AND ("valid_to" IS NULL OR asked."_instant" < "valid_to")"""


def _between_sql(history: Contract, contract: Contract, database: str) -> str:
    columns = ",\n  ".join(
        quoted(name) for name in ["_op", "_deleted", "_order", *(column.name for column in contract.columns)]
    )
    return f"""WITH {_asked(contract, database, "?")},
until AS (SELECT CAST(? AS timestamp(3)) AS "_last")
SELECT
  "_source_ts" AS "changed_at",
  {columns}
FROM {_table(history, database)}
CROSS JOIN asked
CROSS JOIN until
WHERE "_op" IN ({_ROW_OPS}, 't') AND asked."_instant" < "_source_ts" AND "_source_ts" <= until."_last"
ORDER BY "_source_ts", "_order\""""


def _asked(contract: Contract, database: str, instant: str) -> str:
    """Return the part of a query that checks the given instant.

    For an instant before the history's beginning, the part fails: it casts the error's text to a timestamp.
    """
    given = "coalesce(CAST(\"_given\" AS varchar), 'null')"
    begins = "coalesce(CAST(span.\"begins\" AS varchar), 'the end of a first snapshot')"
    refused = (
        f"'{contract.table}: found ' || {given} || ', expected an instant from ' || {begins} || "
        "' on, when its history begins'"
    )
    return f"""asked AS (
  SELECT CASE WHEN span."begins" <= "_given" THEN "_given" ELSE CAST({refused} AS timestamp(3)) END AS "_instant"
  FROM (SELECT CAST({instant} AS timestamp(3)) AS "_given") AS asked_for
  CROSS JOIN {qualified(database, span_name(contract))} AS span
)"""


def _versions_sql(history: Contract, database: str) -> str:
    columns = ",\n  ".join(quoted(column.name) for column in history.columns)
    kept = ",\n  ".join(quoted(name) for name, _ in _kept(history))
    key = ", ".join(quoted(name) for name in history.key)
    table = _table(history, database)
    # A row ends at the next truncate marker ("floor"). The last floor is after all rows, so an inner join is enough.
    return f"""WITH floors AS (
  SELECT "_order" AS "_floor", "_source_ts" AS "_at" FROM {table} WHERE "_op" = 't'
  UNION ALL
  SELECT '{_BEHIND_ALL}', CAST(NULL AS timestamp(3))
),
ends AS (
  SELECT
    lag("_floor", 1, '') OVER (ORDER BY "_floor") AS "_above",
    "_floor",
    min("_at") OVER (ORDER BY "_floor" ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS "_ended_at"
  FROM floors
),
changes AS (
  SELECT
    *,
    min("_source_ts") OVER (
      PARTITION BY {key} ORDER BY "_order" ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS "_changed_at"
  FROM {table}
  WHERE "_op" IN ({_ROW_OPS})
),
versions AS (
  SELECT changes.*, coalesce(least("_changed_at", "_ended_at"), "_changed_at", "_ended_at") AS "_valid_to"
  FROM changes
  INNER JOIN ends ON "_above" <= "_order" AND "_order" < "_floor"
  WHERE "_deleted" IS DISTINCT FROM true
)
SELECT
  {columns},
  "_source_ts" AS "valid_from",
  "_valid_to" AS "valid_to",
  "_op",
  "_order",
  {kept}
FROM versions
WHERE "_valid_to" IS NULL OR "_source_ts" < "_valid_to\""""


def _span_sql(history: Contract, keep_days: int, database: str) -> str:
    table = _table(history, database)
    complete = 'SELECT min("at") AS "at" FROM newest'
    if history.source.database == DYNAMODB:
        # Unlike partitions of a topic, shards end. So a shard that has been silent for a day does not count.
        complete = """SELECT min("at") AS "at"
  FROM (SELECT "at", max("at") OVER () AS "latest" FROM newest) AS dated
  WHERE "at" >= "latest" - INTERVAL '1' DAY"""
    return f"""WITH notes AS (
  SELECT
    max(CASE WHEN "_op" = '{BEGUN_LATE}' THEN "_order" END) AS "late",
    max(CASE WHEN "_op" = '{EXPIRED}' THEN "_source_ts" END) AS "expired"
  FROM {table}
  WHERE "_op" IN ('{BEGUN_LATE}', '{EXPIRED}')
),
first_whole AS (
  SELECT min("_source_ts") AS "at"
  FROM {table}
  CROSS JOIN notes
  WHERE "_op" = 't' AND (notes."late" IS NULL OR notes."late" < "_order")
),
newest AS (
  SELECT max("_source_ts") AS "at"
  FROM {table}
  WHERE "_op" IN ('c', 'u', 'd')
  GROUP BY regexp_extract("_position", '^(.*)/', 1)
),
complete AS (
  {complete}
)
SELECT
  CASE WHEN first_whole."at" IS NOT NULL THEN
    greatest(
      first_whole."at",
      coalesce(notes."expired", first_whole."at"),
      CAST(current_timestamp AS timestamp(3)) - INTERVAL '{keep_days}' DAY
    )
  END AS "begins",
  coalesce(complete."at", first_whole."at") AS "complete_until"
FROM first_whole
CROSS JOIN notes
CROSS JOIN complete"""


def _kept(history: Contract) -> list[tuple[str, Type]]:
    types = dict(history.lake_columns())
    return [(name, types[name]) for name in ("_rest", "_unfit")]


def _table(history: Contract, database: str) -> str:
    return qualified(database, history.table)

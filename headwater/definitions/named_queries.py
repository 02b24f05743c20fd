"""Named queries: what an operator asks the lake first, ready in Athena's workgroup.

The quarantine is no table, so no query reads it: the alarm ``quarantine-<table>`` counts it, and its files lie below
``_quarantine``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.contract.model import Contract
from headwater.definitions.published_view import published_view_name

ORDERS = "orders"
"""The table whose contract describes the orders of the sample database."""


@dataclass(frozen=True)
class NamedQuery:
    """A query in Athena's SQL, with the name and the description under which the workgroup shows it."""

    name: str
    description: str
    sql: str


def named_queries(contracts: Sequence[Contract], database: str) -> list[NamedQuery]:
    """The queries for these tables of a Glue database; none where there is no contract."""
    if not contracts:
        return []
    queries = [
        NamedQuery(
            "rows-and-freshness",
            "Rows per table, the time of the newest change in its source, and the seconds since.",
            _each(contracts, lambda contract: _freshness(contract, database)),
        ),
        NamedQuery(
            "deleted-rows",
            "Tombstones per table, and when the newest of them was deleted in the source. The views hide them.",
            _each(contracts, lambda contract: _deleted(contract, database)),
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
    orders = next((contract for contract in contracts if contract.table == ORDERS), None)
    if orders is not None:
        queries.append(
            NamedQuery(
                "revenue-by-customer",
                "Revenue by customer, the largest first: quantity × unit price × (1 − discount).",
                f"{revenue_sql(orders, database)}\nORDER BY revenue DESC",
            )
        )
    return queries


def revenue_sql(orders: Contract, database: str) -> str:
    """Each customer's revenue: id, name, number of orders, revenue, and the averages of revenue and quantity per item.

    An item's revenue is quantity × unit_price × (1 − discount). Orders without a customer are left out, as in a run's
    report.
    """
    item = "items[position]"
    revenue = f"{item}.quantity * {item}.unit_price * (1 - {item}.discount)"
    # The filter is for empty lists: sequence(1, 0) counts down.
    positions = "filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))"
    return f"""SELECT
  customer.customer_id AS customer_id,
  max(customer.company_name) AS company_name,
  count(DISTINCT order_id) AS orders,
  CAST(sum({revenue}) AS double) AS revenue,
  avg(CAST({revenue} AS double)) AS average_item_revenue,
  avg(CAST({item}.quantity AS double)) AS average_quantity
FROM "{database}"."{published_view_name(orders)}"
CROSS JOIN UNNEST({positions}) AS item (position)
WHERE customer.customer_id IS NOT NULL
GROUP BY customer.customer_id"""


def _each(contracts: Sequence[Contract], select: Callable[[Contract], str]) -> str:
    return "\nUNION ALL\n".join(map(select, contracts)) + "\nORDER BY table_name"


def _freshness(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(*) AS row_count,
  max("_source_ts") AS newest_change,
  date_diff('second', max("_source_ts"), CAST(current_timestamp AS timestamp(3))) AS seconds_since
FROM "{database}"."{published_view_name(contract)}\""""


def _deleted(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(*) AS tombstones,
  max("_source_ts") AS newest_delete
FROM "{database}"."{contract.table}"
WHERE "_deleted" = true"""


def _without_column(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count("_rest") AS row_count,
  max("_rest") AS example
FROM "{database}"."{published_view_name(contract)}\""""


def _stored_twice(contract: Contract, database: str) -> str:
    return f"""SELECT
  '{contract.table}' AS table_name,
  count(*) - count(DISTINCT "_key") AS stored_twice
FROM "{database}"."{contract.table}"
WHERE "_deleted" IS DISTINCT FROM true"""

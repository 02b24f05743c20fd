"""Named queries: what an operator asks the lake first, ready in Athena's workgroup.

The quarantine is no table, so no query reads it: the alarm ``quarantine-<table>`` counts it, and its files lie below
``_quarantine``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.contract.model import Contract
from headwater.definitions.history_queries import as_of_sql
from headwater.definitions.published_view import published_view_name, qualified

ORDERS = "orders"
"""The table whose contract describes the orders of the sample database."""
_ITEM = "items[position]"
_REVENUE = f"{_ITEM}.quantity * {_ITEM}.unit_price * (1 - {_ITEM}.discount)"
# The filter is for empty lists: sequence(1, 0) counts down.
_POSITIONS = "filter(sequence(1, cardinality(items)), position -> position BETWEEN 1 AND cardinality(items))"


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
    orders = next((contract for contract in contracts if contract.table == ORDERS), None)
    if orders is not None:
        queries += [
            NamedQuery(
                "revenue-by-customer",
                "Revenue by customer, the largest first: quantity × unit price × (1 − discount).",
                f"{revenue_sql(_published(orders, database))}\nORDER BY revenue DESC",
            ),
            NamedQuery(
                "order-items",
                "A row for each item of each order, with its revenue: quantity × unit price × (1 − discount).",
                _items(orders, database),
            ),
            NamedQuery(
                "revenue-by-month",
                "Revenue by customer and month of the order, the newest month first.",
                _revenue_by_month(orders, database),
            ),
        ]
    return [*queries, *(_yesterday(contract, database) for contract in contracts if contract.history is not None)]


def _items(orders: Contract, database: str) -> str:
    return f"""SELECT
  order_id,
  order_date,
  customer.customer_id AS customer_id,
  {_ITEM}.product_id AS product_id,
  {_ITEM}.quantity AS quantity,
  {_ITEM}.unit_price AS unit_price,
  {_ITEM}.discount AS discount,
  {_REVENUE} AS revenue
{_of_items(_published(orders, database))}"""


def _published(contract: Contract, database: str) -> str:
    return qualified(database, published_view_name(contract))


def _table(contract: Contract, database: str) -> str:
    """The table below the view, with its tombstones."""
    return qualified(database, contract.table)


def _of_items(orders: str) -> str:
    """FROM what a query has ``_ITEM``, of the table or view that has the orders."""
    return f"""FROM {orders}
CROSS JOIN UNNEST({_POSITIONS}) AS item (position)"""


def _revenue_by_month(orders: Contract, database: str) -> str:
    return f"""SELECT
  date_trunc('month', order_date) AS month,
  customer.customer_id AS customer_id,
  CAST(sum({_REVENUE}) AS double) AS revenue
{_of_items(_published(orders, database))}
WHERE customer.customer_id IS NOT NULL
GROUP BY date_trunc('month', order_date), customer.customer_id
ORDER BY month DESC, revenue DESC"""


def _yesterday(contract: Contract, database: str) -> NamedQuery:
    return NamedQuery(
        f"{contract.table}-yesterday",
        f"{contract.table} as they were a day ago. EXECUTE {contract.table}_as_of USING … for any instant.",
        as_of_sql(contract, database, "current_timestamp - INTERVAL '1' DAY"),
    )


def revenue_sql(orders: str) -> str:
    """Each customer's revenue, of the table or view that has the orders: id, name, number of orders, revenue, and the
    averages of revenue and quantity per item.

    An item's revenue is quantity × unit_price × (1 − discount). Orders without a customer are left out. QuickSight's
    charts and those of a run's report show it.
    """
    return f"""SELECT
  customer.customer_id AS customer_id,
  max(customer.company_name) AS company_name,
  count(DISTINCT order_id) AS orders,
  CAST(sum({_REVENUE}) AS double) AS revenue,
  avg(CAST({_REVENUE} AS double)) AS average_item_revenue,
  avg(CAST({_ITEM}.quantity AS double)) AS average_quantity
{_of_items(orders)}
WHERE customer.customer_id IS NOT NULL
GROUP BY customer.customer_id"""


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

"""The workgroup's named queries are Athena's SQL, and answer what their descriptions say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest
import sqlglot

from headwater.contract.model import Contract, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.history_queries import history_views
from headwater.definitions.named_queries import NamedQuery, named_queries
from headwater.definitions.published_view import athena_type, published_view
from headwater.definitions.saved_queries import read_saved_queries
from headwater.lake_folder import EXAMPLE

DATABASE = "headwater_dev"
ALL = read_contracts(EXAMPLE.contracts)
VIEWS = [view for contract in ALL for view in (published_view(contract, DATABASE), *history_views(contract, DATABASE))]
BY_TABLE = ("rows-and-freshness", "deleted-rows", "late-rows", "fields-without-column", "keys-stored-twice")
SAVED = [query.named(ALL, DATABASE) for query in read_saved_queries(EXAMPLE.queries, ALL)]
QUERIES = {query.name: query for query in [*named_queries(ALL, DATABASE), *SAVED]}


def in_duckdb(sql: str) -> str:
    (text,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    return text


@pytest.fixture
def lake() -> Iterator[duckdb.DuckDBPyConnection]:
    """Empty lake tables of all contracts, with their views."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE SCHEMA {DATABASE}; SET TimeZone = 'UTC'")
        for contract in lake_tables(ALL):
            columns = ", ".join(f'"{name}" {athena_type(type_)}' for name, type_ in contract.lake_columns())
            columns += ', "_hoodie_commit_time" varchar'
            # Athena's own CREATE TABLE is Hive's; its types in queries are Trino's.
            create = f'CREATE TABLE "{DATABASE}"."{contract.table}" ({columns})'
            connection.execute(sqlglot.transpile(create, read="trino", write="duckdb")[0])
        for view in VIEWS:
            connection.execute(f'CREATE VIEW "{DATABASE}"."{view.name}" AS {in_duckdb(view.sql)}')
        yield connection


def answers(lake: duckdb.DuckDBPyConnection, name: str) -> dict[Any, tuple[Any, ...]]:
    """A query's rows by their first column."""
    return {row[0]: row[1:] for row in lake.execute(in_duckdb(QUERIES[name].sql)).fetchall()}


def put(lake: duckdb.DuckDBPyConnection, table: str, **values: str) -> None:
    """Store a row; values are SQL."""
    columns = ", ".join(f'"{name}"' for name in values)
    lake.execute(f'INSERT INTO "{DATABASE}"."{table}" ({columns}) VALUES ({", ".join(values.values())})')


@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_each_is_athenas_sql_and_reads_only(query: NamedQuery) -> None:
    parsed = sqlglot.parse_one(query.sql, read="athena")
    assert isinstance(parsed, sqlglot.exp.Select | sqlglot.exp.Union)
    own = {each.alias for each in parsed.find_all(sqlglot.exp.CTE)}
    known = {contract.table for contract in ALL} | {view.name for view in VIEWS} | own
    assert {table.name for table in parsed.find_all(sqlglot.exp.Table)} <= known


@pytest.mark.parametrize("name", BY_TABLE)
def test_each_table_has_its_line_even_where_it_is_empty(lake: duckdb.DuckDBPyConnection, name: str) -> None:
    assert list(answers(lake, name)) == sorted(contract.table for contract in ALL)


def test_the_rows_that_live_are_counted_and_the_newest_dated(lake: duckdb.DuckDBPyConnection) -> None:
    put(lake, "products", product_id="1", _source_ts="now()::timestamp - INTERVAL 90 SECOND")
    put(lake, "products", product_id="2", _source_ts="now()::timestamp - INTERVAL 1 DAY")
    rows, _, seconds = answers(lake, "rows-and-freshness")["products"]
    assert rows == 2
    assert 89 <= seconds <= 120
    put(lake, "products", product_id="3", _source_ts="now()::timestamp", _deleted="true")
    rows, _, seconds = answers(lake, "rows-and-freshness")["products"]
    assert rows == 2
    assert seconds < 89
    assert answers(lake, "rows-and-freshness")["orders"] == (0, None, None)


def test_tombstones_are_counted(lake: duckdb.DuckDBPyConnection) -> None:
    put(lake, "products", product_id="1")
    put(lake, "products", product_id="2", _deleted="false")
    put(lake, "products", product_id="3", _deleted="true", _source_ts="TIMESTAMP '2026-01-31 00:00:00'")
    tombstones, newest = answers(lake, "deleted-rows")["products"]
    assert (tombstones, str(newest)) == (1, "2026-01-31 00:00:00")


def test_fields_that_no_column_takes_are_shown(lake: duckdb.DuckDBPyConnection) -> None:
    put(lake, "products", product_id="1")
    put(lake, "products", product_id="2", _rest="""'{"colour": "red"}'""")
    assert answers(lake, "fields-without-column")["products"] == (1, '{"colour": "red"}')


def test_a_key_that_lives_twice_is_counted(lake: duckdb.DuckDBPyConnection) -> None:
    put(lake, "products", _key="'1'")
    put(lake, "products", _key="'1'", _deleted="true")
    assert answers(lake, "keys-stored-twice")["products"] == (0,)
    put(lake, "products", _key="'1'", _deleted="false")
    assert answers(lake, "keys-stored-twice")["products"] == (1,)


def test_revenue_is_quantity_times_price_less_discount(lake: duckdb.DuckDBPyConnection) -> None:
    for order, customer, price in ((1, "ALFKI", 14), (2, "BERGS", 100), (3, "ALFKI", 2)):
        put(
            lake,
            "orders",
            order_id=str(order),
            customer=f"{{'customer_id': '{customer}', 'company_name': '{customer} & Co'}}",
            items=f"[{{'quantity': 2, 'unit_price': {price}, 'discount': 0.25}}]",
        )
    rows = answers(lake, "revenue-by-customer")
    assert list(rows) == ["BERGS", "ALFKI"]
    assert rows["ALFKI"] == ("ALFKI & Co", 2, 24.0, 12.0, 2.0)


def test_items_are_rows_and_revenue_is_by_month(lake: duckdb.DuckDBPyConnection) -> None:
    for order, date, prices in ((1, "2026-01-31", (14, 6)), (2, "2026-02-01", (100,)), (3, "2026-02-28", ())):
        ordered = [
            f"{{'product_id': {price}, 'quantity': 2, 'unit_price': {price}, 'discount': 0}}" for price in prices
        ]
        put(
            lake,
            "orders",
            order_id=str(order),
            order_date=f"DATE '{date}'",
            customer="{'customer_id': 'ALFKI'}",
            items=f"[{', '.join(ordered)}]",
        )
    items = lake.execute(in_duckdb(QUERIES["order-items"].sql)).fetchall()
    assert sorted((row[0], row[3], float(row[-1])) for row in items) == [(1, 6, 12.0), (1, 14, 28.0), (2, 100, 200.0)]
    months = lake.execute(in_duckdb(QUERIES["revenue-by-month"].sql)).fetchall()
    assert [(str(month)[:7], revenue) for month, _, revenue in months] == [("2026-02", 200.0), ("2026-01", 40.0)]


def test_rows_that_came_late_are_counted(lake: duckdb.DuckDBPyConnection) -> None:
    committed = "'20260131120000123'"
    for op, at, deleted in (
        ("u", "11:59:58", "false"),
        ("c", "11:00:00", "false"),
        ("r", "10:00:00", "false"),
        ("u", "09:00:00", "true"),
    ):
        values = {"_op": f"'{op}'", "_source_ts": f"TIMESTAMP '2026-01-31 {at}'", "_deleted": deleted}
        put(lake, "products", _hoodie_commit_time=committed, **values)
    assert answers(lake, "late-rows")["products"] == (1, 3600)


def test_a_table_with_a_history_is_shown_as_of_yesterday(lake: duckdb.DuckDBPyConnection) -> None:
    day = "now()::timestamp - INTERVAL {} HOUR"
    put(lake, "customers_changes", _op="'t'", _order="'1'", _source_ts=day.format(60), _position="'t/0/1'")
    for order, (city, hours) in enumerate((("Rome", 50), ("Oslo", 30), ("Bern", 5)), start=2):
        put(
            lake,
            "customers_changes",
            customer_id="'ALFKI'",
            city=f"'{city}'",
            _op="'u'",
            _order=f"'{order}'",
            _source_ts=day.format(hours),
            _position="'t/0/1'",
        )
    (row,) = lake.execute(in_duckdb(QUERIES["customers-yesterday"].sql)).fetchall()
    assert "Oslo" in row


def test_queries_of_any_contracts_know_no_table_by_its_name() -> None:
    others: list[Contract] = [replace(contract, table=f"t_{contract.table}") for contract in ALL]
    renamed = [query.sql for query in named_queries(others, DATABASE)]
    assert renamed
    assert not [sql for sql in renamed if re.search(r"\W(orders|customers|products|accounts)\W", sql)]
    assert named_queries([], DATABASE) == []

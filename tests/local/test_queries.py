"""The workgroup's saved queries say of a lake that a real source has filled what plain SQL says of the source."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.reading import read_contracts
from headwater.definitions.named_queries import named_queries
from headwater.definitions.saved_queries import read_saved_queries
from headwater.lake_folder import EXAMPLE
from rig.local.aws import REGION
from rig.local.pipeline import DATABASE, LAKE, Pipeline
from rig.samples import orders, orders_workload
from rig.samples.loading import load_folder
from rig.samples.paced_workers import WorkloadPlan

CONTRACTS = read_contracts(EXAMPLE.contracts)
OF_THE_EXAMPLE = [query.named(CONTRACTS, "lake") for query in read_saved_queries(EXAMPLE.queries, CONTRACTS)]
SAVED = {query.name: query.sql for query in [*named_queries(CONTRACTS, "lake"), *OF_THE_EXAMPLE]}
REVENUE = "d.quantity * d.unit_price * (1 - d.discount)"
ITEMS = "northwind.orders o JOIN northwind.order_details d USING (order_id)"
CUSTOMERS = "SELECT customer_id, company_name, city FROM northwind.customers ORDER BY 1"
Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("queries")
    orders.generate(0.1, 1, folder / "data")
    with Pipeline(folder, read_contracts(EXAMPLE.contracts)) as pipeline:

        def load(owner: psycopg.Connection) -> None:
            load_folder(owner, folder / "data")

        pipeline.start(lambda text: nullcontext(), load)
        pipeline.drain()
        yield pipeline


@pytest.fixture(scope="module")
def then(pipeline: Pipeline, source: Ask) -> tuple[dt.datetime, list[tuple[Any, ...]]]:
    """An instant, and the customers at it. After it, orders and customers change, are added and deleted, and customers
    gain a column that no contract names."""
    ((instant,),) = source("SELECT clock_timestamp()")
    customers = source(CUSTOMERS)
    with pipeline.application() as application:
        application.execute("INSERT INTO northwind.customers VALUES ('GONE1', 'Gone'), ('GONE2', 'Gone')")
        application.execute("UPDATE northwind.customers SET city = 'Rome' WHERE customer_id < 'B'")
        application.execute("DELETE FROM northwind.customers WHERE company_name = 'Gone'")
    orders_workload.run(pipeline.application, WorkloadPlan(3, 90, workers=2, seed=5))
    with pipeline.postgres.connect(DATABASE) as owner:
        owner.execute("ALTER TABLE northwind.customers ADD COLUMN newsletter boolean")
        # Whichever customers the workload has left.
        last = "SELECT max(customer_id) FROM northwind.customers"
        owner.execute(f"UPDATE northwind.customers SET newsletter = true WHERE customer_id < ({last})".encode())
    pipeline.drain()
    return instant, customers


@pytest.fixture(scope="module")
def source(pipeline: Pipeline) -> Ask:
    """Answers plain SQL of the source."""

    def ask(query: str) -> list[tuple[Any, ...]]:
        with pipeline.postgres.connect(DATABASE) as owner:
            return owner.execute(query.encode()).fetchall()

    return ask


@pytest.fixture
def lake(pipeline: Pipeline, then: object, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Answers Athena's SQL of the lake, by the command."""
    for name, value in pipeline.aws.credentials.items():
        monkeypatch.setenv(name, value)

    def ask(query: str) -> list[tuple[Any, ...]]:
        where = ["--lake", LAKE, "--endpoint", pipeline.aws.s3_endpoint, "--region", REGION]
        arguments = ["sql", query, *where, "--json"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return [tuple(row.values()) for row in json.loads(done.stdout)]

    return ask


def assert_same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Compare rows, which differ in what comes first, and numbers to the fourth digit: the lake's means are doubles."""
    of_lake, of_source = (
        sorted((tuple(_plain(value) for value in row) for row in rows), key=lambda row: [str(value) for value in row])
        for rows in (found, expected)
    )
    assert of_lake == [tuple(_nearly(value) for value in row) for row in of_source]


def _nearly(value: Any) -> Any:
    return pytest.approx(value, rel=0, abs=0.0001) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    try:
        return float(str(value))
    except ValueError:
        return str(value)


def test_items_and_revenues_are_the_sources(lake: Ask, source: Ask) -> None:
    columns = "order_id, order_date, customer_id, product_id, quantity, d.unit_price, discount"
    items = source(f"SELECT {columns}, {REVENUE} FROM {ITEMS}")
    assert len(items) > 100
    assert_same(lake(SAVED["order-items"]), items)
    by_customer = source(
        f"SELECT o.customer_id, c.company_name, count(DISTINCT order_id), sum({REVENUE}), avg({REVENUE}), avg(quantity)"
        f" FROM {ITEMS} JOIN northwind.customers c USING (customer_id) GROUP BY 1, 2"
    )
    assert_same(lake(SAVED["revenue-by-customer"]), by_customer)
    by_month = source(
        f"SELECT date_trunc('month', order_date)::date, customer_id, sum({REVENUE}) FROM {ITEMS}"
        " WHERE customer_id IS NOT NULL GROUP BY 1, 2"
    )
    found = [(str(month)[:10], *others) for month, *others in lake(SAVED["revenue-by-month"])]
    assert_same(found, by_month)


def test_rows_and_deleted_rows_are_counted(lake: Ask, source: Ask) -> None:
    counted = {table: rows for table, rows, *_ in lake(SAVED["rows-and-freshness"])}
    for table in ("customers", "orders", "products"):
        assert [(counted[table],)] == source(f"SELECT count(*) FROM northwind.{table}")
    deleted = {table: tombstones for table, tombstones, _ in lake(SAVED["deleted-rows"])}
    assert deleted["customers"] >= 2
    assert {stored for _, stored in lake(SAVED["keys-stored-twice"])} == {0}
    assert {rows for _, rows, _ in lake(SAVED["late-rows"])} == {0}
    unnamed = {table: rows for table, rows, _ in lake(SAVED["fields-without-column"])}
    ((subscribed,),) = source("SELECT count(*) FROM northwind.customers WHERE newsletter")
    assert subscribed > 0
    assert unnamed == dict.fromkeys(unnamed, 0) | {"customers": subscribed}


def test_the_newest_change_is_the_sources(pipeline: Pipeline, lake: Ask, source: Ask) -> None:
    before = source("SELECT clock_timestamp()")
    with pipeline.application() as application:
        # The others would come to have the column that no contract names.
        application.execute("UPDATE northwind.customers SET city = 'Oslo' WHERE newsletter")
    after = source("SELECT clock_timestamp()")
    pipeline.drain()
    asked = lake(SAVED["rows-and-freshness"])
    newest = {table: dt.datetime.fromisoformat(time) for table, rows, time, _ in asked if rows}
    ((earliest,),), ((latest,),) = before, after
    assert earliest <= newest["customers"].replace(tzinfo=dt.UTC) <= latest
    assert newest["products"].replace(tzinfo=dt.UTC) < earliest


def test_customers_are_as_they_are_now_and_as_they_were_then(
    lake: Ask, source: Ask, then: tuple[dt.datetime, list[tuple[Any, ...]]]
) -> None:
    now, (instant, before) = source(CUSTOMERS), then
    assert now != before
    columns = "customer_id, company_name, city"
    assert sorted(lake(f"SELECT {columns} FROM customers_current")) == now
    asked = lake(f"EXECUTE customers_as_of USING TIMESTAMP '{instant.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}'")
    assert sorted((row[0], row[1], row[5]) for row in asked) == before
    ended = lake("SELECT customer_id, valid_to IS NULL FROM customers_versions WHERE customer_id LIKE 'GONE%'")
    assert sorted(ended) == [("GONE1", False), ("GONE2", False)]


def test_a_history_of_today_does_not_tell_of_yesterday(lake: Ask) -> None:
    with pytest.raises(AssertionError, match="customers: found "):
        lake(SAVED["customers-yesterday"])

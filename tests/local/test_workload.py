"""The workload against a real PostgreSQL."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from headwater.contract.reading import read_contracts
from headwater.definitions import order_database
from headwater.local.postgresql_server import Postgres
from headwater.paths import CONTRACTS
from headwater.samples import orders, orders_workload
from headwater.samples.orders_workload import WorkloadProgress

PASSWORDS = dict.fromkeys(order_database.ROLES, "for a test")


@pytest.fixture(scope="module")
def server(session_folder: Path) -> Iterator[Postgres]:
    """A server of its own, since roles and their passwords belong to a whole server."""
    orders.generate(0.3, 1, session_folder / "workload" / "data")
    with Postgres(session_folder / "workload" / "postgres") as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE northwind")
        with server.connect("northwind") as connection:
            order_database.create(connection, PASSWORDS, read_contracts(CONTRACTS))
            order_database.load(connection, session_folder / "workload" / "data")
        yield server


@pytest.fixture
def app(server: Postgres) -> "partial[psycopg.Connection]":
    return partial(server.connect, "northwind", "headwater_app", PASSWORDS["headwater_app"])


def test_every_kind_of_change_happens_and_leaves_the_outbox_right(
    server: Postgres, app: "partial[psycopg.Connection]"
) -> None:
    reports: list[WorkloadProgress] = []
    summary = orders_workload.run(app, seconds=4, transactions=400, connections=6, seed=7, progress=reports.append)

    assert summary.transactions == 400
    assert set(summary.by_kind) == set(orders_workload.WEIGHTS)
    assert sum(summary.by_kind.values()) == 400 + summary.rolled_back
    assert [report.transactions for report in reports] == sorted(report.transactions for report in reports)
    assert (reports[-1].transactions, reports[-1].wanted) == (400, 400)

    recomputed = (CONTRACTS / "orders.verify.sql").read_text().strip().rstrip(";")
    with server.connect("northwind") as connection:
        wrong = connection.execute(
            f"""SELECT count(*) FROM (SELECT order_id, order_month, payload FROM ({recomputed}\n) AS r) AS r
                FULL JOIN northwind.order_events AS o USING (order_id)
                WHERE (r.order_month, r.payload) IS DISTINCT FROM (o.order_month, o.payload)""".encode()
        ).fetchone()
    assert wrong == (0,)


def test_it_is_spread_over_its_time(app: "partial[psycopg.Connection]") -> None:
    summary = orders_workload.run(app, seconds=2, transactions=20, connections=2, seed=8)
    assert 1.5 < summary.seconds < 10


def test_it_ends_soon_after_it_is_told_to(app: "partial[psycopg.Connection]") -> None:
    stop = threading.Event()
    timer = threading.Timer(1, stop.set)
    timer.start()
    started = time.monotonic()
    summary = orders_workload.run(app, seconds=600, transactions=6000, connections=3, seed=9, stop=stop)
    timer.join()
    assert time.monotonic() - started < 10
    assert 0 < summary.transactions < 6000


def test_an_error_that_is_no_collision_ends_it_and_is_raised(server: Postgres) -> None:
    reader = partial(server.connect, "northwind", "headwater_reader", PASSWORDS["headwater_reader"])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        orders_workload.run(reader, seconds=600, transactions=6000, connections=3, seed=10)


def test_the_plan_is_the_same_for_the_same_seed() -> None:
    assert orders_workload.plan(500, 1, 829) == orders_workload.plan(500, 1, 829)
    assert orders_workload.plan(500, 1, 829) != orders_workload.plan(500, 2, 829)


def test_a_large_database_is_spared_the_changes_that_rewrite_it() -> None:
    small, large = (orders_workload.plan(5_000, 1, orders) for orders in (829, 80_000))
    assert "truncate_orders" in small
    assert "truncate_orders" not in large
    assert large.count("update_supplier") < small.count("update_supplier") / 5

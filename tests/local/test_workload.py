"""The workload against a real PostgreSQL."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from headwater.contract.reading import read_contracts
from headwater.definitions.database_files import read_database_files
from headwater.definitions.source_database import ROLES
from headwater.lake_folder import EXAMPLE
from headwater.postgresql import administration
from rig.local.postgresql_server import PostgresqlServer
from rig.samples import orders, orders_workload, paced_workers
from rig.samples.loading import load_folder
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress

FILES = read_database_files(EXAMPLE.database)
PASSWORDS = dict.fromkeys(ROLES, "for a test")


@pytest.fixture(scope="module")
def server(session_folder: Path) -> Iterator[PostgresqlServer]:
    """A server of its own, since roles and their passwords belong to a whole server."""
    orders.generate(0.3, 1, session_folder / "workload" / "data")
    with PostgresqlServer(session_folder / "workload" / "postgres") as server:
        with server.connect() as connection:
            connection.execute("CREATE DATABASE northwind")
        with server.connect("northwind") as connection:
            administration.create(connection, PASSWORDS, read_contracts(EXAMPLE.contracts), FILES)
            load_folder(connection, session_folder / "workload" / "data")
        yield server


@pytest.fixture
def app(server: PostgresqlServer) -> "partial[psycopg.Connection]":
    return partial(server.connect, "northwind", "headwater_app", PASSWORDS["headwater_app"])


def test_every_kind_of_change_happens_and_leaves_the_outbox_right(
    server: PostgresqlServer, app: "partial[psycopg.Connection]"
) -> None:
    with server.connect("northwind") as owner:
        # Only a customer without orders is deleted, and every one may get an order before.
        for number in range(20):
            owner.execute(
                "INSERT INTO northwind.customers (customer_id, company_name) VALUES (%s, 'x')", (f"X{number}",)
            )
    reports: list[WorkloadProgress] = []
    summary = orders_workload.run(app, WorkloadPlan(seconds=4, changes=400, workers=6, seed=7), reports.append)

    assert summary.transactions == 400
    assert set(summary.by_kind) == set(orders_workload.WEIGHTS)
    assert sum(summary.by_kind.values()) == 400 + summary.rolled_back
    assert [report.changes for report in reports] == sorted(report.changes for report in reports)
    assert (reports[-1].changes, reports[-1].wanted) == (400, 400)

    recomputed = (EXAMPLE.contracts / "orders.verify.sql").read_text().strip().rstrip(";")
    with server.connect("northwind") as connection:
        wrong = connection.execute(
            f"""SELECT count(*) FROM (SELECT order_id, order_month, payload FROM ({recomputed}\n) AS r) AS r
                FULL JOIN northwind.order_events AS o USING (order_id)
                WHERE (r.order_month, r.payload) IS DISTINCT FROM (o.order_month, o.payload)""".encode()
        ).fetchone()
    assert wrong == (0,)


def test_it_is_spread_over_its_time(app: "partial[psycopg.Connection]") -> None:
    summary = orders_workload.run(app, WorkloadPlan(seconds=2, changes=20, workers=2, seed=8))
    assert summary.seconds > 1.5


def test_it_ends_soon_after_it_is_told_to(app: "partial[psycopg.Connection]") -> None:
    stop = threading.Event()
    timer = threading.Timer(1, stop.set)
    timer.start()
    summary = orders_workload.run(app, WorkloadPlan(seconds=600, changes=6000, workers=3, seed=9), stop=stop)
    timer.join()
    assert 0 < summary.transactions < 6000


def test_a_table_that_somebody_holds_on_to_is_left_as_it_is(
    server: PostgresqlServer, app: "partial[psycopg.Connection]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced_workers, "ATTEMPTS", 2)
    monkeypatch.setattr(orders_workload, "choose_kinds", lambda *plan: ["truncate_territories"] * 2)
    with server.connect("northwind") as holding, holding.transaction():
        holding.execute("SELECT count(*) FROM northwind.employee_territories")
        summary = orders_workload.run(app, WorkloadPlan(seconds=1, changes=2, workers=1, seed=3))
    assert (summary.by_kind, summary.retries) == ({"insert_order": 2}, 2)


def test_an_error_that_is_no_collision_ends_it_and_is_raised(server: PostgresqlServer) -> None:
    reader = partial(server.connect, "northwind", "headwater_reader", PASSWORDS["headwater_reader"])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        orders_workload.run(reader, WorkloadPlan(seconds=600, changes=6000, workers=3, seed=10))


def test_the_kinds_are_the_same_for_the_same_seed() -> None:
    assert orders_workload.choose_kinds(500, 1, 829) == orders_workload.choose_kinds(500, 1, 829)
    assert orders_workload.choose_kinds(500, 1, 829) != orders_workload.choose_kinds(500, 2, 829)


def test_a_large_database_is_spared_the_changes_that_rewrite_it() -> None:
    small, large = (orders_workload.choose_kinds(5_000, 1, orders) for orders in (829, 80_000))
    assert "truncate_orders" in small
    assert "truncate_orders" not in large
    assert large.count("update_supplier") < small.count("update_supplier") / 5

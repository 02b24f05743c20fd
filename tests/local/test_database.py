"""The order database on a real PostgreSQL: after every change its outbox equals the base tables."""

import contextlib
import json
import os
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner, Result

from headwater import cli
from headwater.commands import sources
from headwater.contract.model import DEFAULT, DROP, HMAC, POSTGRESQL, Contract, Mask, of_database
from headwater.contract.reading import parse_contract, read_contracts
from headwater.definitions import source_checks, source_database
from headwater.definitions.database_files import SqlFile, read_database_files
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.operations import database as operations_database
from headwater.postgresql import absence, administration
from headwater.waiting import PATIENCE_SECONDS, wait_until
from rig.local.postgresql_server import PostgresqlServer
from rig.samples import orders
from rig.samples.loading import load_folder
from tests.lake_folders import lake_folder

FILES = read_database_files(EXAMPLE.database)
PASSWORDS = {role: f"secret ' \\ é of {role}" for role in source_database.ROLES}
VISITS = parse_contract(
    "{table: visits, description: x, source: {database: postgresql, table: northwind.visits}, key: [id, place],"
    " partition_by: [], buckets: 1, columns: [{name: id, type: int, source_type: integer},"
    " {name: place, type: string, source_type: text}]}",
    "visits.yaml",
)
ABOUT = (
    "{{table: visits, description: x, source: {{database: postgresql, table: northwind.visits}}, key: {key},"
    " partition_by: [], buckets: 1, columns: [{{name: id, type: int, source_type: integer}},"
    " {{name: place, type: string, source_type: text}}, {{name: who, type: string, from: about.who}}]}}"
)
VISITS_ABOUT = parse_contract(ABOUT.format(key="[id]"), "visits.yaml")
VISITS_ABOUT_PLACE = parse_contract(ABOUT.format(key="[id, place]"), "visits.yaml")
VISITS_BY_ID = "CREATE TABLE northwind.visits (id integer, place text, PRIMARY KEY (id, place)) PARTITION BY LIST (id)"
ORDERS_VERIFY = (EXAMPLE.contracts / "orders.verify.sql").read_text()
RETRIED = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
# PostgreSQL may also refuse a transaction and roll it back: a row that it refers to is gone, or its key is taken.
REFUSED = (psycopg.errors.ForeignKeyViolation, psycopg.errors.UniqueViolation)

# Six orders of two customers, two employees with territories and one without, two shippers and none, three products. It
# is loaded hundreds of times: a TRUNCATE would take twice as long, because it makes new files.
SMALL = """
DELETE FROM northwind.order_details;
DELETE FROM northwind.orders;
DELETE FROM northwind.customers;
DELETE FROM northwind.shippers;
DELETE FROM northwind.products;
DELETE FROM northwind.suppliers;
DELETE FROM northwind.categories;
DELETE FROM northwind.employee_territories;
DELETE FROM northwind.employees;
DELETE FROM northwind.territories;
DELETE FROM northwind.region;
INSERT INTO northwind.region VALUES (1, 'East'), (2, 'West');
INSERT INTO northwind.territories VALUES ('T1', 'Town', 1), ('T2', 'Tarn', 2), ('T3', 'Tor', 2);
INSERT INTO northwind.employees (employee_id, last_name, first_name, reports_to)
    VALUES (1, 'Abel', 'Ada', NULL), (2, 'Brandt', 'Björn', 1), (3, 'Castro', 'Carla', 1);
INSERT INTO northwind.employee_territories VALUES (1, 'T1'), (1, 'T3'), (2, 'T2');
INSERT INTO northwind.categories (category_id, category_name) VALUES (1, 'Drinks'), (2, 'Sauces');
INSERT INTO northwind.suppliers (supplier_id, company_name) VALUES (1, 'One'), (2, 'Two'), (3, 'Three');
INSERT INTO northwind.products (product_id, product_name, supplier_id, category_id, unit_price)
    VALUES (1, 'Tea', 1, 1, 10), (2, 'Oil', 2, 2, 20), (3, 'Salt', 1, 2, 30), (4, 'Loose', NULL, NULL, 1);
INSERT INTO northwind.customers (customer_id, company_name) VALUES ('AAAAA', 'A'), ('BBBBB', 'B'), ('CCCCC', 'C');
INSERT INTO northwind.shippers VALUES (1, 'Swift'), (2, 'Comet');
INSERT INTO northwind.orders (order_id, customer_id, employee_id, order_date, ship_via, freight) VALUES
    (1, 'AAAAA', 1, '2024-01-05', 1, 1), (2, 'AAAAA', 2, '2024-01-06', 2, 2), (3, 'BBBBB', 1, '2024-02-07', 1, 3),
    (4, 'BBBBB', 3, NULL, NULL, 4), (5, NULL, NULL, '2024-03-01', 1, 5), (6, 'AAAAA', 1, '2024-03-02', 2, 6);
INSERT INTO northwind.order_details VALUES
    (1, 1, 10, 1, 0), (1, 2, 20, 2, 0.05), (2, 1, 10, 3, 0), (3, 2, 20, 4, 0), (3, 3, 30, 5, 0.1), (4, 4, 1, 6, 0),
    (5, 1, 10, 7, 0);
"""

# Everything that an application may do, on the rows of SMALL. Each name says what happens.
CHANGES_OF_ORDERS = {
    "an item is added": "INSERT INTO northwind.order_details VALUES (1, 3, 30, 1, 0)",
    "another item is added": "INSERT INTO northwind.order_details VALUES (1, 4, 1, 1, 0)",
    "an item is changed": (
        "UPDATE northwind.order_details SET quantity = quantity + 1 WHERE (order_id, product_id) = (1, 1)"
    ),
    "an item is deleted": "DELETE FROM northwind.order_details WHERE (order_id, product_id) = (1, 2)",
    "an item becomes another product": (
        "UPDATE northwind.order_details SET product_id = 3 WHERE (order_id, product_id) = (1, 2)"
    ),
    "an item moves to another order": (
        "UPDATE northwind.order_details SET order_id = 6 WHERE (order_id, product_id) = (1, 2)"
    ),
    "an order is added": (
        "INSERT INTO northwind.orders (order_id, customer_id, employee_id, order_date, ship_via)"
        " VALUES (9, 'AAAAA', 1, '2024-04-01', 1); INSERT INTO northwind.order_details VALUES (9, 1, 10, 1, 0)"
    ),
    "an order is changed": "UPDATE northwind.orders SET freight = freight + 1 WHERE order_id = 1",
    "an order moves to another month": "UPDATE northwind.orders SET order_date = '2024-05-01' WHERE order_id = 1",
    "an order gets other parents": (
        "UPDATE northwind.orders SET customer_id = 'BBBBB', employee_id = 2, ship_via = 2 WHERE order_id = 1"
    ),
    "an order loses its parents": (
        "UPDATE northwind.orders SET customer_id = NULL, employee_id = NULL, ship_via = NULL WHERE order_id = 1"
    ),
    "an order gets another key": "UPDATE northwind.orders SET order_id = 101 WHERE order_id = 1",
    "two orders exchange their keys": (
        "UPDATE northwind.orders SET order_id = 100 WHERE order_id = 1;"
        " UPDATE northwind.orders SET order_id = 1 WHERE order_id = 2;"
        " UPDATE northwind.orders SET order_id = 2 WHERE order_id = 100"
    ),
    "an order is deleted": "DELETE FROM northwind.orders WHERE order_id = 1",
    "an order is replaced": (
        "DELETE FROM northwind.orders WHERE order_id = 1;"
        " INSERT INTO northwind.orders (order_id, customer_id) VALUES (1, 'BBBBB')"
    ),
}
CHANGES_OF_PARENTS = {
    "a customer is changed": "UPDATE northwind.customers SET fax = '1' WHERE customer_id = 'AAAAA'",
    "all customers are changed": "UPDATE northwind.customers SET fax = '2'",
    "a customer gets another key": "UPDATE northwind.customers SET customer_id = 'DDDDD' WHERE customer_id = 'AAAAA'",
    "an employee is changed": "UPDATE northwind.employees SET title = 'Boss' WHERE employee_id = 1",
    "another employee is changed": "UPDATE northwind.employees SET title = 'Boss' WHERE employee_id = 2",
    "an employee gets another key": "UPDATE northwind.employees SET employee_id = 11 WHERE employee_id = 1",
    "a shipper is changed": "UPDATE northwind.shippers SET phone = '1'",
    "a shipper gets another key": "UPDATE northwind.shippers SET shipper_id = 11 WHERE shipper_id = 1",
    "a product is changed": "UPDATE northwind.products SET unit_price = unit_price + 1 WHERE product_id = 1",
    "another product is changed": "UPDATE northwind.products SET product_name = 'Sea salt' WHERE product_id = 3",
    "a product gets other parents": (
        "UPDATE northwind.products SET supplier_id = 3, category_id = 2 WHERE product_id = 1"
    ),
    "a product loses its parents": (
        "UPDATE northwind.products SET supplier_id = NULL, category_id = NULL WHERE product_id = 3"
    ),
    "a product gets another key": "UPDATE northwind.products SET product_id = 11 WHERE product_id = 1",
    "a supplier is changed": "UPDATE northwind.suppliers SET phone = '1' WHERE supplier_id = 1",
    "another supplier is changed": "UPDATE northwind.suppliers SET phone = '1' WHERE supplier_id = 3",
    "a supplier gets another key": "UPDATE northwind.suppliers SET supplier_id = 11 WHERE supplier_id = 1",
    "a category is changed": "UPDATE northwind.categories SET description = 'x' WHERE category_id = 2",
    "a category gets another key": "UPDATE northwind.categories SET category_id = 11 WHERE category_id = 2",
    "a territory is changed": "UPDATE northwind.territories SET territory_description = 'x' WHERE territory_id = 'T1'",
    "another territory is changed": (
        "UPDATE northwind.territories SET territory_description = 'x' WHERE territory_id = 'T2'"
    ),
    "a territory gets another region": "UPDATE northwind.territories SET region_id = 2 WHERE territory_id = 'T1'",
    "a territory gets another key": "UPDATE northwind.territories SET territory_id = 'T9' WHERE territory_id = 'T1'",
    "a territory is deleted": "DELETE FROM northwind.territories WHERE territory_id = 'T1'",
    "a region is changed": "UPDATE northwind.region SET region_description = 'x' WHERE region_id = 2",
    "a region gets another key": "UPDATE northwind.region SET region_id = 11 WHERE region_id = 1",
    "an employee gets a territory": "INSERT INTO northwind.employee_territories VALUES (1, 'T2')",
    "an employee loses a territory": (
        "DELETE FROM northwind.employee_territories WHERE (employee_id, territory_id) = (1, 'T1')"
    ),
    "a territory goes to another employee": (
        "UPDATE northwind.employee_territories SET employee_id = 2 WHERE (employee_id, territory_id) = (1, 'T1')"
    ),
    "all items are truncated": "TRUNCATE northwind.order_details",
    "all memberships are truncated": "TRUNCATE northwind.employee_territories",
}
TRUNCATES_OF_ORDERS = {
    "all orders are truncated": "TRUNCATE northwind.orders CASCADE",
    "all customers are truncated": "TRUNCATE northwind.customers CASCADE",
    "orders are truncated and one is added": (
        "UPDATE northwind.orders SET freight = 0; TRUNCATE northwind.orders, northwind.order_details;"
        " INSERT INTO northwind.orders (order_id) VALUES (1)"
    ),
}
CHANGES = {**CHANGES_OF_ORDERS, **CHANGES_OF_PARENTS, **TRUNCATES_OF_ORDERS}
# The changes by which an order comes to show a row that it did not show before.
NEW_REFERENCES = (
    "an item is added",
    "an item becomes another product",
    "an order is added",
    "an order gets other parents",
    "an order gets another key",
    "an order is replaced",
    "a product gets other parents",
    "a territory gets another region",
    "an employee gets a territory",
)
WRONG_ORDERS = f"""
SELECT coalesce(array_agg(coalesce(expected.order_id, stored.order_id)), '{{}}')
FROM ({ORDERS_VERIFY}) AS expected FULL JOIN northwind.order_events AS stored USING (order_id)
WHERE (expected.order_month, expected.payload) IS DISTINCT FROM (stored.order_month, stored.payload)
"""


def wrong_orders(connection: psycopg.Connection) -> list[int]:
    """The orders whose outbox row differs from the base tables."""
    row = connection.execute(WRONG_ORDERS.encode()).fetchone()
    assert row is not None
    return list(row[0])


def leftovers(connection: psycopg.Connection) -> int:
    """Rows of the outbox's work tables, which live within one transaction only."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM outbox.noted) + (SELECT count(*) FROM outbox.open_transactions)"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path_factory.mktemp("postgres")) as running:
        with running.connect() as connection:
            connection.execute("CREATE DATABASE template_northwind")
        with running.connect("template_northwind") as connection:
            administration.create(connection, PASSWORDS, read_contracts(EXAMPLE.contracts), FILES)
            connection.execute(SMALL.encode())
        yield running


_numbers = count(1)
Connect = Callable[..., psycopg.Connection]


@pytest.fixture
def connect(server: PostgresqlServer) -> Iterator[Connect]:
    """Open connections to a database of the test's own, which holds SMALL."""
    name = f"northwind_{next(_numbers)}"
    with server.connect() as maintenance:
        maintenance.execute(f"CREATE DATABASE {name} TEMPLATE template_northwind".encode())
    opened: list[psycopg.Connection] = []

    def open_one(user: str | None = None) -> psycopg.Connection:
        connection = server.connect(name, user, PASSWORDS[user] if user else None)
        if user is None:
            connection.execute("SET deadlock_timeout = '20ms'")
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()
    with server.connect() as maintenance:
        maintenance.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def northwind_db(connect: Connect) -> psycopg.Connection:
    return connect()


# One transaction ------------------------------------------------------------------------------------------------------


# No order shows the third supplier until a product gets it.
@pytest.mark.parametrize("change", [change for change in CHANGES if change != "another supplier is changed"])
def test_the_outbox_follows(northwind_db: psycopg.Connection, change: str) -> None:
    before = northwind_db.execute("SELECT order_id, payload FROM northwind.order_events ORDER BY 1").fetchall()
    with northwind_db.transaction():
        northwind_db.execute(CHANGES[change].encode())
    after = northwind_db.execute("SELECT order_id, payload FROM northwind.order_events ORDER BY 1").fetchall()
    assert after != before
    assert wrong_orders(northwind_db) == []
    assert leftovers(northwind_db) == 0


def _count_events(connection: psycopg.Connection) -> None:
    connection.execute(
        """CREATE TABLE public.event (order_id integer, what text);
        CREATE FUNCTION public.count_event() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.event VALUES (coalesce(NEW.order_id, OLD.order_id), TG_OP);
            RETURN NULL;
        END $$;
        CREATE TRIGGER count_event AFTER INSERT OR UPDATE OR DELETE ON northwind.order_events
        FOR EACH ROW EXECUTE FUNCTION public.count_event()"""
    )


def _events(connection: psycopg.Connection) -> list[tuple[int, str]]:
    return [
        (int(row[0]), str(row[1]))
        for row in connection.execute("DELETE FROM public.event RETURNING order_id, what").fetchall()
    ]


def test_a_transaction_makes_one_event_per_order(northwind_db: psycopg.Connection) -> None:
    _count_events(northwind_db)
    with northwind_db.transaction():
        northwind_db.execute("INSERT INTO northwind.orders (order_id, customer_id) VALUES (7, 'CCCCC')")
        for product in (1, 2, 3):
            northwind_db.execute("INSERT INTO northwind.order_details VALUES (7, %s, 1, 1, 0)", (product,))
        northwind_db.execute("UPDATE northwind.customers SET city = 'X' WHERE customer_id = 'CCCCC'")
        northwind_db.execute("UPDATE northwind.orders SET freight = 7 WHERE order_id = 7")
        assert _events(northwind_db) == []
    assert _events(northwind_db) == [(7, "INSERT")]


def test_an_order_deleted_and_added_again_is_one_update(northwind_db: psycopg.Connection) -> None:
    _count_events(northwind_db)
    with northwind_db.transaction():
        northwind_db.execute(CHANGES["an order is replaced"].encode())
    assert _events(northwind_db) == [(1, "UPDATE")]


def test_an_order_added_and_deleted_makes_no_event(northwind_db: psycopg.Connection) -> None:
    _count_events(northwind_db)
    with northwind_db.transaction():
        northwind_db.execute(CHANGES["an order is added"].encode())
        northwind_db.execute("DELETE FROM northwind.orders WHERE order_id = 9")
    assert _events(northwind_db) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE northwind.orders SET freight = freight",
        "UPDATE northwind.customers SET city = city",
        "UPDATE northwind.employees SET notes = 'x', photo = 'x'",
        "UPDATE northwind.categories SET picture = 'x'",
        "UPDATE northwind.order_details SET unit_price = unit_price + 1;"
        " UPDATE northwind.order_details SET unit_price = unit_price - 1",
        "INSERT INTO northwind.customers (customer_id, company_name) VALUES ('ZZZZZ', 'Z')",
    ],
)
def test_what_shows_in_no_order_makes_no_event(northwind_db: psycopg.Connection, change: str) -> None:
    _count_events(northwind_db)
    with northwind_db.transaction():
        northwind_db.execute(change.encode())
    assert _events(northwind_db) == []


def test_rolled_back_changes_leave_no_trace(northwind_db: psycopg.Connection) -> None:
    _count_events(northwind_db)
    with northwind_db.transaction():
        northwind_db.execute("UPDATE northwind.orders SET freight = 50 WHERE order_id = 1")
        with northwind_db.transaction(force_rollback=True):
            northwind_db.execute("UPDATE northwind.orders SET freight = 60 WHERE order_id IN (1, 2)")
            northwind_db.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert _events(northwind_db) == [(1, "UPDATE")]
    assert wrong_orders(northwind_db) == []


def test_constraints_made_immediate_write_at_each_statement(northwind_db: psycopg.Connection) -> None:
    with northwind_db.transaction():
        northwind_db.execute("UPDATE northwind.orders SET freight = 50 WHERE order_id = 1")
        northwind_db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert wrong_orders(northwind_db) == []
        northwind_db.execute("UPDATE northwind.orders SET freight = 60 WHERE order_id IN (1, 2)")
        assert wrong_orders(northwind_db) == []


# Concurrent transactions ---------------------------------------------------------------------------------------------


def _race(connect: Connect, pairs: int) -> tuple[int, int]:
    """Add two items to one order from each of two connections, committing together. Returns how many orders are left
    wrong, and how many commits were refused as a second event of their order."""
    connections = [connect(), connect()]
    gate = threading.Barrier(2)
    with connections[0].transaction():
        connections[0].execute(
            "INSERT INTO northwind.orders (order_id) SELECT generate_series(1001, %s)", (1000 + pairs,)
        )
    products = [(1, 2), (3, 4)]
    refused = []

    def work(at: int) -> None:
        for order in range(1001, 1001 + pairs):
            try:
                add(at, order)
            except psycopg.errors.UniqueViolation:
                refused.append(order)

    def add(at: int, order: int) -> None:
        with connections[at].transaction():
            for product in products[at]:
                connections[at].execute(
                    "INSERT INTO northwind.order_details VALUES (%s, %s, 1, 1, 0)", (order, product)
                )
            gate.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, at) for at in range(2)]:
            future.result()
    return len(wrong_orders(connections[0])), len(refused)


def test_a_deferred_trigger_alone_loses_concurrent_items(connect: Connect) -> None:
    connect().execute("CREATE OR REPLACE FUNCTION outbox.take_locks() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$")
    # On busy cores, sixty pairs of transactions may all commit one after the other.
    wrong, _ = _race(connect, 600)
    assert wrong > 0


def test_locking_first_keeps_concurrent_items(connect: Connect) -> None:
    assert _race(connect, 60) == (0, 0)


class Session:
    """A connection whose statements run in a thread, so that one that waits for a lock can be left waiting."""

    def __init__(self, connection: psycopg.Connection, observer: psycopg.Connection) -> None:
        self._connection = connection
        self._observer = observer
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None
        self.error: psycopg.Error | None = None

    def _execute(self, statement: str) -> None:
        if self.error is None:
            try:
                self._connection.execute(statement.encode())
            except psycopg.Error as error:
                self.error = error
                self._connection.rollback()

    def run(self, statement: str) -> None:
        """Start a statement once those before it have ended; return when it has ended or waits for a lock."""
        self._running = self._pool.submit(self._execute, statement)
        pid = self._connection.info.backend_pid
        running = self._running

        def is_over() -> bool:
            row = self._observer.execute("SELECT cardinality(pg_blocking_pids(%s))", (pid,)).fetchone()
            return running.done() or (row is not None and row[0] > 0)

        wait_until(f"{statement} to end, or to wait for a lock", is_over, poll=0.0005)

    def finish(self) -> None:
        self._pool.shutdown(wait=True)


def _overlap(
    connections: list[psycopg.Connection], observer: psycopg.Connection, changes: list[str], first_commits_first: bool
) -> list[psycopg.Error]:
    """Run two changes in transactions that overlap; returns the errors that ended one of them."""
    sessions = [Session(connection, observer) for connection in connections]
    for session in sessions:
        session.run("BEGIN")
        # Above READ COMMITTED this is the moment that the transaction sees.
        session.run("SELECT 1")
    for session, change in zip(sessions, changes, strict=True):
        session.run(CHANGES[change])
    for session in sessions if first_commits_first else reversed(sessions):
        session.run("COMMIT")
    for session in sessions:
        session.finish()
    return [session.error for session in sessions if session.error is not None]


def _overlap_with_all(connect: Connect, first: str, level: str) -> None:
    observer = connect()
    connections = [connect(), connect()]
    for connection in connections:
        connection.execute(f"SET default_transaction_isolation = '{level}'".encode())
    expected = (*RETRIED, *REFUSED, psycopg.errors.FeatureNotSupported)
    wrong = []
    for second in CHANGES:
        for first_commits_first in (True, False):
            observer.execute(SMALL.encode())
            errors = _overlap(connections, observer, [first, second], first_commits_first)
            assert all(isinstance(error, expected) for error in errors), (second, errors)
            if level == "read committed":
                assert len(errors) < 2, (second, errors)
            if wrong_orders(observer):
                wrong.append((second, first_commits_first))
            assert leftovers(observer) == 0
    assert wrong == []


@pytest.mark.parametrize("first", NEW_REFERENCES)
def test_two_transactions_that_overlap_leave_every_order_right(connect: Connect, first: str) -> None:
    _overlap_with_all(connect, first, "read committed")


@pytest.mark.parametrize("first", ["an order is added", "an order gets other parents", "an item is added"])
def test_at_a_higher_isolation_level_a_transaction_is_right_or_fails(connect: Connect, first: str) -> None:
    _overlap_with_all(connect, first, "repeatable read")


@pytest.mark.parametrize("late", CHANGES_OF_ORDERS)
def test_a_transaction_with_an_old_view_is_right_or_fails(connect: Connect, late: str) -> None:
    observer, old, current = connect(), connect(), connect()
    old.execute("SET default_transaction_isolation = 'repeatable read'")
    wrong = []
    for early in CHANGES:
        observer.execute(SMALL.encode())
        with contextlib.suppress(*RETRIED, *REFUSED), old.transaction():
            old.execute("SELECT 1")
            with current.transaction():
                current.execute(CHANGES[early].encode())
            old.execute(CHANGES[late].encode())
        if wrong_orders(observer):
            wrong.append(early)
    assert wrong == []


# TRUNCATE shows an empty table to a transaction whose view is older, and what fills it again shows nothing.
REFILLS = {
    "the items": "CREATE TEMPORARY TABLE kept ON COMMIT DROP AS TABLE northwind.order_details;"
    "TRUNCATE northwind.order_details; INSERT INTO northwind.order_details TABLE kept",
    "the orders": "CREATE TEMPORARY TABLE kept ON COMMIT DROP AS TABLE northwind.orders;"
    "CREATE TEMPORARY TABLE items ON COMMIT DROP AS TABLE northwind.order_details;"
    "TRUNCATE northwind.orders, northwind.order_details;"
    "INSERT INTO northwind.orders TABLE kept; INSERT INTO northwind.order_details TABLE items",
    "the memberships": "CREATE TEMPORARY TABLE kept ON COMMIT DROP AS TABLE northwind.employee_territories;"
    "TRUNCATE northwind.employee_territories; INSERT INTO northwind.employee_territories TABLE kept",
}


@pytest.mark.parametrize("refill", REFILLS)
@pytest.mark.parametrize("late", ["an item is added", "an order gets other parents", "an order is added"])
def test_a_view_older_than_a_refilled_table_is_right_or_fails(connect: Connect, late: str, refill: str) -> None:
    observer, old, current = connect(), connect(), connect()
    observer.execute(SMALL.encode())
    old.execute("SET default_transaction_isolation = 'repeatable read'")
    with contextlib.suppress(*RETRIED, *REFUSED), old.transaction():
        old.execute("SELECT 1")
        with current.transaction():
            current.execute(REFILLS[refill].encode())
        old.execute(CHANGES[late].encode())
    assert wrong_orders(observer) == []
    # With a view that is newer than the refill nothing fails.
    observer.execute(SMALL.encode())
    with old.transaction():
        old.execute(CHANGES[late].encode())
    assert wrong_orders(observer) == []


def test_at_a_higher_isolation_level_a_change_of_a_parent_is_refused(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute("SET default_transaction_isolation = 'serializable'")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"northwind\.customers needs .* READ COMMITTED"):
        northwind_db.execute("UPDATE northwind.customers SET city = 'X'")


def test_many_transactions_at_once_leave_every_order_right(connect: Connect) -> None:
    observer = connect()
    changes = [*CHANGES_OF_ORDERS.values(), *CHANGES_OF_PARENTS.values()]
    stop = time.monotonic() + 6

    def work(seed: int) -> int:
        chosen = random.Random(seed)
        connection = connect()
        committed = 0
        while time.monotonic() < stop:
            try:
                with connection.transaction():
                    for _ in range(chosen.choice((1, 1, 2, 3))):
                        # Any order and product, instead of always the first.
                        connection.execute(_elsewhere(chosen, chosen.choice(changes)).encode())
                        if chosen.random() < 0.1:
                            time.sleep(0.02)
                committed += 1
            except (*RETRIED, *REFUSED):
                continue
        return committed

    with ThreadPoolExecutor(6) as pool:
        committed = sum(pool.map(work, range(6)))
    assert wrong_orders(observer) == []
    assert leftovers(observer) == 0
    assert committed > 200


def _elsewhere(chosen: random.Random, change: str) -> str:
    if "TRUNCATE" in change and chosen.random() < 0.9:
        return "SELECT 1"
    order, product = chosen.randint(1, 6), chosen.randint(1, 4)
    return (
        change.replace("order_id = 1", f"order_id = {order}")
        .replace("= (1, 1)", f"= ({order}, {product})")
        .replace("VALUES (1, 3,", f"VALUES ({order}, {product},")
    )


# A transaction stands still between its locks and its writing, and between its writing and its commit, for as many
# seconds as it has set.
PAUSES = """
CREATE FUNCTION public.pause(setting text) RETURNS void LANGUAGE sql AS $$
SELECT pg_sleep(coalesce(nullif(current_setting(setting, true), ''), '0')::float) $$;
CREATE FUNCTION public.pause_after_writing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM public.pause('pause.after_writing'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER pause AFTER INSERT OR UPDATE OR DELETE ON northwind.order_events
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.pause_after_writing();
ALTER FUNCTION outbox.take_locks() RENAME TO take_locks_at_once;
CREATE FUNCTION outbox.take_locks() RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM outbox.take_locks_at_once(); PERFORM public.pause('pause.after_locks'); END $$;
"""


def test_who_waited_for_an_order_that_was_replaced_does_not_overwrite_a_later_change(connect: Connect) -> None:
    observer = connect()
    observer.execute(PAUSES.encode())
    replaces, changes_a_product, updates = (Session(connect(), observer) for _ in range(3))
    replaces.run("BEGIN")
    replaces.run("DELETE FROM northwind.orders WHERE order_id = 1; INSERT INTO northwind.orders (order_id) VALUES (1)")
    changes_a_product.run("BEGIN; SET LOCAL pause.after_locks = '0.4'")
    changes_a_product.run(CHANGES["a product is changed"])
    changes_a_product.run("COMMIT")  # It waits for the transaction that replaces order 1.
    replaces.run("COMMIT")
    replaces.finish()
    updates.run("BEGIN; SET LOCAL pause.after_writing = '0.8'")
    updates.run("UPDATE northwind.orders SET freight = 77 WHERE order_id = 1")
    updates.run("COMMIT")
    for session in (changes_a_product, updates):
        session.finish()
    assert [session.error for session in (replaces, changes_a_product, updates)] == [None, None, None]
    assert wrong_orders(observer) == []


# What transactions do to one order, some of it more often. An order that is replaced refers to nothing: a parent that
# it newly refers to would be locked, and hold the other transactions off.
OVERLAPPING = {
    "DELETE FROM northwind.orders WHERE order_id = 1; INSERT INTO northwind.orders (order_id) VALUES (1)": 4,
    "INSERT INTO northwind.orders (order_id) VALUES (1) ON CONFLICT DO NOTHING;"
    " INSERT INTO northwind.order_details VALUES (1, 1, 1, 1, 0) ON CONFLICT DO NOTHING": 5,
    "UPDATE northwind.orders SET freight = coalesce(freight, 0) + 1 WHERE order_id = 1": 6,
    "UPDATE northwind.products SET unit_price = unit_price + 1 WHERE product_id = 1": 4,
    "DELETE FROM northwind.orders WHERE order_id = 1": 1,
}


def _transaction(connection: psycopg.Connection, chosen: random.Random) -> bool:
    """Run a transaction; returns whether it was committed."""
    try:
        with connection.transaction():
            for pause in ("pause.after_locks", "pause.after_writing"):
                connection.execute(f"SET LOCAL {pause} = {chosen.choice((0, 0.005, 0.02))}".encode())
            for _ in range(chosen.choice((1, 1, 1, 2))):
                connection.execute(chosen.choices(list(OVERLAPPING), list(OVERLAPPING.values()))[0].encode())
                time.sleep(chosen.choice((0, 0, 0.01)))
    except (*RETRIED, *REFUSED):
        return False
    return True


def test_overlapping_transactions_with_pauses_leave_every_order_right(connect: Connect) -> None:
    observer = connect()
    observer.execute(PAUSES.encode())
    connections = [connect() for _ in range(5)]
    seed = int(os.environ.get("HEADWATER_SEED", random.SystemRandom().randrange(1 << 32)))
    # pytest shows it when the test fails.
    sys.stdout.write(f"seed {seed}: HEADWATER_SEED={seed} chooses the same transactions\n")
    stop = time.monotonic() + float(os.environ.get("HEADWATER_OUTBOX_SECONDS", "10"))

    def work(at: int) -> int:
        chosen = random.Random(seed + at)
        committed = 0
        while time.monotonic() < stop:
            committed += _transaction(connections[at], chosen)
        return committed

    with ThreadPoolExecutor(len(connections)) as pool:
        working = [pool.submit(work, at) for at in range(len(connections))]
        looks = wrong = 0
        # Whatever is committed is right at every moment; the next change of an order would hide a wrong one.
        while not all(future.done() for future in working):
            looks += 1
            wrong += wrong_orders(observer) != []
        committed = sum(future.result() for future in working)
    assert wrong == 0, f"seed {seed}: {wrong} of {looks} looks saw a wrong order"
    assert leftovers(observer) == 0
    assert committed > 100


# Loading, rights, publication -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    orders.generate(0.1, 1, folder)
    return folder


def test_a_load_fills_all_tables_and_the_outbox(northwind_db: psycopg.Connection, generated: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}
    counts = load_folder(
        northwind_db, generated, lambda table, done, total: seen.update({table: (done, total)}), replace=True
    )
    assert counts["orders"] == counts["order_events"] == 83
    rows = administration.status(northwind_db).rows
    assert {table: rows[f"northwind.{table}"] for table in counts} == counts
    assert seen == {table: (rows, rows) for table, rows in counts.items()}
    assert wrong_orders(northwind_db) == []
    assert leftovers(northwind_db) == 0


def test_a_load_refuses_tables_that_hold_rows(northwind_db: psycopg.Connection, generated: Path) -> None:
    with pytest.raises(UserError, match="--replace"):
        load_folder(northwind_db, generated)
    assert administration.status(northwind_db).rows["northwind.orders"] == 6


def test_a_load_rounds_to_the_columns_scale(northwind_db: psycopg.Connection, generated: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(generated, tmp_path / "data")
    (folder / "order_details.csv").write_text(
        "order_id,product_id,unit_price,quantity,discount\n10001,1,9.80000019,1,0.0500000007\n"
    )
    load_folder(northwind_db, folder, replace=True)
    row = northwind_db.execute("SELECT unit_price::text, discount::text FROM northwind.order_details").fetchone()
    assert row == ("9.8000", "0.0500")


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ("orders", "order_id,colour\n1,red\n", r"orders\.csv: header: found colour, expected .*order_id"),
        ("orders", "", r"orders\.csv: header: found none"),
        ("orders", "order_id,freight\n1,2\n2,dear\n", r"orders\.csv: .*\"dear\".*line 3"),
        ("orders", "order_id,customer_id\n1,NOONE\n", r"orders\.csv: .*orders_customer_id_fkey"),
        ("shippers", "shipper_id,company_name\n1,\xe9\n", r"shippers\.csv: .*UTF-8"),
    ],
)
def test_a_load_names_what_does_not_fit(
    northwind_db: psycopg.Connection, generated: Path, tmp_path: Path, table: str, text: str, message: str
) -> None:
    folder = shutil.copytree(generated, tmp_path / "data")
    (folder / f"{table}.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        load_folder(northwind_db, folder, replace=True)
    assert administration.status(northwind_db).rows["northwind.orders"] == 6


def test_a_load_names_missing_files(northwind_db: psycopg.Connection, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"region\.csv"):
        load_folder(northwind_db, tmp_path)


def test_a_repair_writes_the_outbox_rows_that_differ(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute("UPDATE northwind.order_events SET payload = '{}' WHERE order_id = 1")
    northwind_db.execute("DELETE FROM northwind.order_events WHERE order_id = 2")
    northwind_db.execute("INSERT INTO northwind.order_events VALUES (999, 'unknown', '{}')")
    assert sorted(wrong_orders(northwind_db)) == [1, 2, 999]
    assert northwind_db.execute("SELECT outbox.repair(2, 2)").fetchone() == (1,)
    assert sorted(wrong_orders(northwind_db)) == [1, 999]
    assert northwind_db.execute("SELECT outbox.repair(-10, 1000), outbox.repair(1, 6)").fetchone() == (2, 0)
    assert wrong_orders(northwind_db) == []


def test_the_files_run_once_more_in_a_database_of_the_release_before(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute("DROP TABLE capture.database_files CASCADE")
    northwind_db.execute("UPDATE northwind.order_events SET payload = '{}' WHERE order_id = 1")
    assert _told(northwind_db) == [f"Running database/{file.name}, from line {_line(file)} on" for file in FILES]
    assert wrong_orders(northwind_db) == []
    content = administration.status(northwind_db)
    assert content.rows["northwind.orders"] == 6
    assert list(content.files) == [file.name for file in FILES]
    assert {state.partition(" ")[0] for state in content.files.values()} == {"ran"}
    # From now on they do not.
    northwind_db.execute("UPDATE northwind.order_events SET payload = '{}' WHERE order_id = 1")
    assert _told(northwind_db) == []
    assert wrong_orders(northwind_db) == [1]


def _told(connection: psycopg.Connection) -> list[str]:
    """The output of another ``create``."""
    told: list[str] = []
    administration.create(connection, PASSWORDS, read_contracts(EXAMPLE.contracts), FILES, tell=told.append)
    return told


def _line(file: SqlFile) -> int:
    return file.statements[0].line


def test_what_the_contracts_name_is_published(northwind_db: psycopg.Connection) -> None:
    contracts = of_database(read_contracts(EXAMPLE.contracts), POSTGRESQL)
    tables = {described.source.table for described in contracts} | {"capture.heartbeat", "capture.signal"}
    content = administration.status(northwind_db)
    assert set(content.published or ()) == tables
    assert content.missing_roles == []
    assert content.slot is None
    others = northwind_db.execute(
        "SELECT oid::regclass::text, relreplident::text FROM pg_class"
        " WHERE oid = ANY(%s::text[]::regclass[]) AND relreplident <> 'f'",
        (list(tables),),
    ).fetchall()
    assert others == [(f"northwind.{orders.OUTBOX}", "d")]
    publishes = northwind_db.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication"
        " WHERE pubname = 'headwater'"
    ).fetchone()
    assert publishes == (True, True, True, True, True)


def test_partitions_are_published_in_full_also_where_the_publication_is_older(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute(VISITS_BY_ID)
    northwind_db.execute(
        "CREATE TABLE northwind.visits_1 PARTITION OF northwind.visits FOR VALUES IN (1) PARTITION BY LIST (place)"
    )
    northwind_db.execute("CREATE TABLE northwind.visits_1_rome PARTITION OF northwind.visits_1 FOR VALUES IN ('Rome')")
    northwind_db.execute("ALTER PUBLICATION headwater SET (publish_via_partition_root = false)")
    administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    northwind_db.execute("CREATE TABLE northwind.visits_1_oslo (LIKE northwind.visits)")
    northwind_db.execute(
        "ALTER TABLE northwind.visits_1 ATTACH PARTITION northwind.visits_1_oslo FOR VALUES IN ('Oslo')"
    )
    northwind_db.execute("CREATE TABLE northwind.elsewhere (id integer)")
    published = northwind_db.execute(
        "SELECT tablename::text FROM pg_publication_tables WHERE schemaname = 'northwind'"
    ).fetchall()
    assert published == [("visits",)]
    identities = northwind_db.execute(
        "SELECT relname::text, relreplident::text FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND (relname LIKE 'visits%' OR relname = 'elsewhere') ORDER BY 1"
    ).fetchall()
    full = ("visits", "visits_1", "visits_1_oslo", "visits_1_rome")
    assert identities == [("elsewhere", "d"), *((table, "f") for table in full)]


def test_each_new_partition_is_altered_once_also_where_many_come_in_one_transaction(
    northwind_db: psycopg.Connection,
) -> None:
    """The event trigger alters tables, and so fires itself."""
    northwind_db.execute(VISITS_BY_ID)
    administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    northwind_db.execute("CREATE TABLE northwind.altered (name text)")
    northwind_db.execute(
        "CREATE FUNCTION northwind.note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO"
        " northwind.altered SELECT object_identity FROM pg_event_trigger_ddl_commands(); END $$"
    )
    northwind_db.execute(
        "CREATE EVENT TRIGGER note ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION northwind.note()"
    )
    expected = []
    with northwind_db.transaction():
        for id_ in (1, 2):
            branch = f"northwind.visits_{id_}"
            northwind_db.execute(f"CREATE TABLE {branch} (LIKE northwind.visits) PARTITION BY LIST (place)".encode())
            leaves = [f"{branch}_{place}" for place in ("oslo", "rome", "riga")]
            for leaf in leaves:
                values = f"FOR VALUES IN ('{leaf}')"
                northwind_db.execute(f"CREATE TABLE {leaf} PARTITION OF {branch} {values}".encode())
            northwind_db.execute(
                f"ALTER TABLE northwind.visits ATTACH PARTITION {branch} FOR VALUES IN ({id_})".encode()
            )
            expected += ["northwind.visits", branch, *leaves]
    altered = [row[0] for row in northwind_db.execute("SELECT name FROM northwind.altered").fetchall()]
    assert sorted(altered) == sorted(expected)
    lacking = (
        "SELECT relname FROM pg_class WHERE relname LIKE 'visits%' AND relreplident <> 'f' AND relkind IN ('r', 'p')"
    )
    assert northwind_db.execute(lacking).fetchall() == []


IDENTITIES = """SELECT relname::text, relreplident::text FROM pg_class
WHERE relname IN ('order_events', 'products', 'shippers', 'visits', 'visits_1') ORDER BY 1"""


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT", "NOTHING"])
def test_a_published_table_without_partitions_keeps_its_identity(
    northwind_db: psycopg.Connection, identity: str
) -> None:
    for table in ("order_events", "products", "shippers"):
        northwind_db.execute(f"ALTER TABLE northwind.{table} REPLICA IDENTITY {identity}".encode())
    identities = northwind_db.execute(IDENTITIES.encode()).fetchall()
    # Shippers are not published.
    assert identities == [("order_events", "d"), ("products", "f"), ("shippers", identity[0].lower())]


def test_a_table_and_its_partitions_get_the_identity_of_the_contract_of_the_time(
    northwind_db: psycopg.Connection,
) -> None:
    northwind_db.execute(VISITS_BY_ID)
    northwind_db.execute("CREATE TABLE northwind.visits_1 PARTITION OF northwind.visits FOR VALUES IN (1)")
    by_key = replace(VISITS, source=replace(VISITS.source, replica_identity=DEFAULT))
    for contract, identity in ((VISITS, "f"), (by_key, "d"), (by_key, "d"), (VISITS, "f")):
        administration.create(northwind_db, PASSWORDS, [contract], FILES)
        northwind_db.execute("ALTER TABLE northwind.visits_1 REPLICA IDENTITY NOTHING")
        identities = northwind_db.execute(IDENTITIES.encode()).fetchall()
        assert identities[-2:] == [("visits", identity), ("visits_1", identity)]


def test_the_outbox_of_a_release_whose_primary_key_had_no_month_gets_it(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute("ALTER EVENT TRIGGER headwater_new_partitions DISABLE")
    northwind_db.execute(
        "ALTER TABLE northwind.order_events REPLICA IDENTITY FULL, DROP CONSTRAINT order_events_pkey,"
        " DROP CONSTRAINT order_events_order_id_key, ADD PRIMARY KEY (order_id)"
    )
    northwind_db.execute("ALTER EVENT TRIGGER headwater_new_partitions ENABLE")
    northwind_db.execute("DROP TABLE capture.database_files CASCADE")
    for _ in range(2):
        administration.create(northwind_db, PASSWORDS, read_contracts(EXAMPLE.contracts), FILES)
    assert northwind_db.execute(IDENTITIES.encode()).fetchall()[0] == ("order_events", "d")
    keys = northwind_db.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = 'northwind.order_events'::regclass AND contype IN ('p', 'u') ORDER BY contype"
    ).fetchall()
    assert keys == [("PRIMARY KEY (order_id, order_month)",), ("UNIQUE (order_id)",)]
    northwind_db.execute("UPDATE northwind.orders SET order_date = '1999-01-01' WHERE order_id = 1")
    moved = northwind_db.execute("SELECT order_month FROM northwind.order_events WHERE order_id = 1").fetchall()
    assert moved == [("1999-01",)]


@pytest.mark.parametrize(
    ("statement", "becomes"),
    [
        ("DROP TABLE northwind.products CASCADE", "be dropped"),
        ("DROP SCHEMA northwind CASCADE", "be dropped"),
        ("ALTER TABLE northwind.products RENAME TO products_before", "be called northwind.products_before"),
        ("ALTER TABLE northwind.products SET SCHEMA outbox", "be called outbox.products"),
        ("ALTER SCHEMA northwind RENAME TO southwind", "be called southwind."),
    ],
)
def test_a_published_table_is_neither_dropped_nor_renamed_by_accident(
    northwind_db: psycopg.Connection, statement: str, becomes: str
) -> None:
    captured = r"The table northwind\.\w+ is captured into the lake and would " + re.escape(becomes)
    with pytest.raises(psycopg.errors.ObjectInUse, match=captured) as refused:
        northwind_db.execute(statement.encode())
    assert (refused.value.diag.message_hint or "").startswith("If you mean it: ALTER PUBLICATION headwater DROP TABLE ")


def test_a_table_that_left_the_publication_on_purpose_can_be_replaced_and_published_again(
    northwind_db: psycopg.Connection,
) -> None:
    northwind_db.execute("CREATE TABLE northwind.unpublished (id integer)")
    northwind_db.execute("ALTER TABLE northwind.unpublished RENAME TO elsewhere")
    northwind_db.execute("DROP TABLE northwind.elsewhere")
    northwind_db.execute(VISITS_BY_ID)
    administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    northwind_db.execute("CREATE TABLE northwind.visits_1 PARTITION OF northwind.visits FOR VALUES IN (1)")
    northwind_db.execute("ALTER TABLE northwind.visits_1 RENAME TO visits_one")
    northwind_db.execute("DROP TABLE northwind.visits_one")
    with northwind_db.transaction():
        northwind_db.execute("ALTER PUBLICATION headwater DROP TABLE northwind.visits")
        northwind_db.execute("ALTER TABLE northwind.visits RENAME TO visits_before")
        northwind_db.execute(VISITS_BY_ID)
        northwind_db.execute("DROP TABLE northwind.visits_before")
    administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    with pytest.raises(psycopg.errors.ObjectInUse):
        northwind_db.execute("DROP TABLE northwind.visits")
    northwind_db.execute("DROP PUBLICATION headwater")
    northwind_db.execute("DROP TABLE northwind.visits")


def test_a_contract_that_names_a_generated_column_is_refused(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute(
        "CREATE TABLE northwind.visits (id integer PRIMARY KEY,"
        " place text GENERATED ALWAYS AS ('place ' || id::text) STORED)"
    )
    with pytest.raises(UserError, match=r"northwind\.visits\.place: found a generated column, expected .*; remove"):
        administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    northwind_db.execute("ALTER TABLE northwind.visits ALTER COLUMN place DROP EXPRESSION")
    northwind_db.execute("ALTER TABLE northwind.visits ADD COLUMN unnamed integer GENERATED ALWAYS AS (id + 1) STORED")
    administration.create(northwind_db, PASSWORDS, [VISITS], FILES)


def test_a_row_that_a_user_may_not_see_is_not_taken_for_absent(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute(
        "CREATE TABLE northwind.visits (id integer PRIMARY KEY); INSERT INTO northwind.visits VALUES (1);"
        "ALTER TABLE northwind.visits ENABLE ROW LEVEL SECURITY; CREATE ROLE sees_nothing;"
        "GRANT USAGE ON SCHEMA northwind TO sees_nothing; GRANT SELECT ON northwind.visits TO sees_nothing"
    )
    try:
        northwind_db.execute("SET ROLE sees_nothing")
        assert northwind_db.execute("SELECT FROM northwind.visits").fetchall() == []
        with pytest.raises(
            UserError, match=r"the search for the row in northwind\.visits failed: .*row-level security"
        ):
            absence.absent_until(northwind_db, "northwind.visits", {"id": ("integer", "1")})
        northwind_db.execute("RESET ROLE")
        assert absence.absent_until(northwind_db, "northwind.visits", {"id": ("integer", "1")}) is None
    finally:
        northwind_db.execute("RESET ROLE; DROP OWNED BY sees_nothing; DROP ROLE sees_nothing")


@pytest.mark.parametrize(
    ("made", "mended", "problem"),
    [
        ("", "CREATE UNIQUE INDEX ON northwind.visits (place)", "no unique index"),
        (
            "ALTER TABLE northwind.visits ADD PRIMARY KEY (id) DEFERRABLE",
            "ALTER TABLE northwind.visits DROP CONSTRAINT visits_pkey, ADD PRIMARY KEY (place, id)",
            "no unique index",
        ),
        (
            "CREATE UNIQUE INDEX visits_index ON northwind.visits (id) WHERE id > 0",
            "ALTER TABLE northwind.visits ADD UNIQUE (id) INCLUDE (other)",
            "no unique index",
        ),
        (
            "ALTER TABLE northwind.visits ADD UNIQUE (id, other)",
            "CREATE UNIQUE INDEX ON northwind.visits (id)",
            "no uni",
        ),
        (
            "CREATE UNIQUE INDEX ON northwind.visits (lower(place))",
            "ALTER TABLE northwind.visits ADD UNIQUE (id)",
            "no u",
        ),
        (
            "ALTER TABLE northwind.visits ADD UNIQUE (id); CREATE TABLE northwind.calls () INHERITS (northwind.visits)",
            "ALTER TABLE northwind.calls NO INHERIT northwind.visits",
            r"tables that inherit from it \(northwind\.calls\)",
        ),
        (
            "ALTER TABLE northwind.visits ADD UNIQUE (id), ENABLE ROW LEVEL SECURITY",
            f"ALTER ROLE {source_database.CDC_ROLE} BYPASSRLS",
            "row level security",
        ),
    ],
)
def test_a_source_table_that_cannot_be_captured_as_its_contract_says_is_refused(
    northwind_db: psycopg.Connection, made: str, mended: str, problem: str
) -> None:
    northwind_db.execute("CREATE TABLE northwind.visits (id integer, place text, other integer)")
    northwind_db.execute(made.encode())
    with pytest.raises(UserError, match=rf"northwind\.visits: found {problem}.*, expected .*; "):
        administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    northwind_db.execute(mended.encode())
    try:
        administration.create(northwind_db, PASSWORDS, [VISITS], FILES)
    finally:
        northwind_db.execute(f"ALTER ROLE {source_database.CDC_ROLE} NOBYPASSRLS".encode())


@pytest.mark.parametrize(
    ("named", "lake", "others", "same"),
    [
        ("timestamp", "timestamp", ["timestamp(3)", "timestamptz", "date"], ["timestamp", "timestamp(6)"]),
        ("timestamp(3) without time zone", "timestamp", ["timestamp", "timestamp(2)"], ["timestamp(3)"]),
        ("timestamp(6) with time zone", "timestamp", ["timestamptz(0)", "timestamp"], ["timestamptz"]),
        ("date", "date", ["timestamp", "text"], ["date", "northwind.day"]),
        ("time", "string", ["timetz", "interval"], ["time", "time(3)"]),
        ("interval", "string", ["time"], ["interval", "interval day to second(2)"]),
        ("numeric(10,2)", "decimal(10,2)", ["numeric", "numeric(10,3)"], ["numeric(10,2)", "northwind.price"]),
        ("decimal(10)", "decimal(10,0)", ["numeric(10,2)", "bigint"], ["numeric(10)"]),
        ("numeric", "string", ["text", "double precision"], ["numeric"]),
        ("numeric(10,2)[]", "array<decimal(10,2)>", ["numeric(10,2)", "numeric[]"], ["numeric(10,2)[]"]),
        ("int4", "int", ["bigint", "smallint"], ["integer", "serial"]),
        ("varchar(40)", "string", ["text", "character(40)"], ["varchar(40)", "varchar(60)", "varchar"]),
        ("char(5)", "string", ["text"], ["character(5)", "bpchar"]),
        ("inet", "string", ["cidr", "text"], ["inet"]),
        ("jsonb[]", "array<string>", ["json[]", "jsonb"], ["jsonb[]"]),
        ("enum", "string", ["text"], ["northwind.mood"]),
        ("text", "string", ["northwind.mood", "uuid"], ["text"]),
    ],
)
def test_a_column_of_another_type_than_its_contract_says_is_refused(
    northwind_db: psycopg.Connection, named: str, lake: str, others: list[str], same: list[str]
) -> None:
    visits = parse_contract(
        "{table: visits, description: x, source: {database: postgresql, table: northwind.visits}, key: [id],"
        " partition_by: [], buckets: 1, columns: [{name: id, type: int, source_type: integer},"
        f" {{name: at, type: '{lake}', source_type: '{named}'}}]}}",
        "visits.yaml",
    )
    northwind_db.execute("CREATE DOMAIN northwind.day AS date; CREATE DOMAIN northwind.cost AS numeric(10,2)")
    northwind_db.execute("CREATE DOMAIN northwind.price AS northwind.cost; CREATE TYPE northwind.mood AS ENUM ('well')")
    check = next(text for text in source_database.publication_statements([visits]) if "Source tables do not" in text)
    for type_ in (*others, *same):
        northwind_db.execute("DROP TABLE IF EXISTS northwind.visits")
        northwind_db.execute(f"CREATE TABLE northwind.visits (id integer PRIMARY KEY, at {type_})".encode())
        if type_ in same:
            northwind_db.execute(check.encode())
        else:
            with pytest.raises(
                psycopg.errors.FeatureNotSupported, match=r"visits\.at: found the type .*, expected .*;"
            ):
                northwind_db.execute(check.encode())


# What is done to a database that fits, and what the check then finds: place, level, and the beginning of what it found.
SPOILED = {
    "type": ("ALTER TABLE northwind.visits ALTER place TYPE uuid USING NULL", "northwind.visits.place", "unfit", "the"),
    "key": ("DROP TABLE northwind.visits", "northwind.visits", "unfit", "no such table"),
    "view": (
        "DROP TABLE northwind.visits; CREATE VIEW northwind.visits AS SELECT 1 AS id, 'x' AS place",
        "northwind.visits",
        "unfit",
        "a view",
    ),
    "unlogged": (
        "ALTER PUBLICATION headwater DROP TABLE northwind.visits; ALTER TABLE northwind.visits SET UNLOGGED",
        "northwind.visits",
        "unfit",
        "an unlogged",
    ),
    "key column": ("ALTER TABLE northwind.visits DROP id", "northwind.visits.id", "unfit", "no such column"),
    "json": ("ALTER TABLE northwind.visits DROP about, ADD about integer", "northwind.visits.about", "unfit", "the"),
    "column": ("ALTER TABLE northwind.visits DROP place", "northwind.visits.place", "warning", "no such column"),
    "null": (
        "ALTER TABLE northwind.visits DROP CONSTRAINT visits_pkey, ADD UNIQUE (id), ALTER id DROP NOT NULL",
        "northwind.visits.id",
        "warning",
        "a column that may be NULL",
    ),
    "identity": (
        "ALTER EVENT TRIGGER headwater_new_partitions DISABLE; ALTER TABLE northwind.visits REPLICA IDENTITY DEFAULT",
        "northwind.visits",
        "unprepared",
        "REPLICA IDENTITY DEFAULT",
    ),
    "options": ("ALTER PUBLICATION headwater SET (publish = 'insert')", "headwater", "unprepared", "publish = insert,"),
    "publication": ("DROP PUBLICATION headwater", "headwater", "unprepared", "no such publication"),
    "unpublished": (
        "ALTER PUBLICATION headwater DROP TABLE northwind.visits",
        "northwind.visits",
        "unprepared",
        "a table outside the publication",
    ),
    "filter": (
        "ALTER PUBLICATION headwater DROP TABLE northwind.visits; "
        "ALTER PUBLICATION headwater ADD TABLE northwind.visits (id, place) WHERE (id > 0)",
        "northwind.visits",
        "unprepared",
        "a row filter and a column list",
    ),
    "foreign": (
        "ALTER PUBLICATION headwater ADD TABLE northwind.region",
        "northwind.region",
        "warning",
        "a table in the publication",
    ),
    "rights": (
        "REVOKE ALL ON northwind.visits, capture.signal FROM headwater_cdc",
        "capture.signal",
        "unprepared",
        "no DELETE and no INSERT and no SELECT for headwater_cdc",
    ),
    "usage": ("REVOKE USAGE ON SCHEMA northwind FROM headwater_cdc", "northwind", "unprepared", "no USAGE"),
    "role": ("ALTER ROLE headwater_cdc NOREPLICATION", "headwater_cdc", "unprepared", "a role that may not replicate"),
    "unnamed": ("ALTER TABLE northwind.visits ADD secret text", "northwind.visits.secret", "note", "a column of type"),
    "unnamed table": ("CREATE TABLE northwind.calls ()", "northwind.calls", "note", "a table without a contract"),
}


@pytest.fixture
def visited_db(northwind_db: psycopg.Connection) -> psycopg.Connection:
    """A database whose only contract is VISITS_ABOUT, and fits."""
    northwind_db.execute("CREATE TABLE northwind.visits (id integer PRIMARY KEY, place text, about jsonb)")
    administration.create(northwind_db, PASSWORDS, [VISITS_ABOUT], FILES)
    return northwind_db


def _findings(connection: psycopg.Connection, contract: Contract = VISITS_ABOUT) -> list[source_checks.Finding]:
    found = source_checks.findings(
        [contract], source_database.CDC_ROLE, lambda query: connection.execute(query.encode()).fetchall()
    )
    northwind = {f"northwind.{table}" for table in (*orders.TABLES, orders.OUTBOX)}
    return [finding for finding in found if finding.level != "note" or finding.place not in northwind]


def test_the_check_names_what_does_not_fit_and_where(visited_db: psycopg.Connection) -> None:
    assert _findings(visited_db) == []
    for spoiled, (statements, place, level, found) in SPOILED.items():
        with visited_db.transaction(force_rollback=True):
            # Also a table that went where nothing refused it.
            visited_db.execute(
                "ALTER EVENT TRIGGER headwater_drop DISABLE; ALTER EVENT TRIGGER headwater_rename DISABLE"
            )
            visited_db.execute(statements.encode())
            findings = _findings(visited_db)
        named = [(finding.place, finding.level) for finding in findings if finding.found.startswith(found)]
        assert (place, level) in named, (spoiled, findings)
    assert _findings(visited_db) == []


def test_the_check_finds_a_slot_of_another_database_and_takes_one_of_its_own(visited_db: psycopg.Connection) -> None:
    info = visited_db.info
    for database, expected in (
        ("postgres", ["a replication slot headwater of the database postgres"]),
        (info.dbname, []),
    ):
        with psycopg.connect(info.dsn, password=info.password, dbname=database, autocommit=True) as other:
            other.execute("SELECT pg_create_logical_replication_slot('headwater', 'pgoutput')")
            try:
                assert [finding.found for finding in _findings(visited_db)] == expected
            finally:
                other.execute("SELECT pg_drop_replication_slot('headwater')")


def test_the_check_finds_a_primary_key_that_cannot_stand_for_the_row_before(visited_db: psycopg.Connection) -> None:
    by_key = replace(VISITS_ABOUT, source=replace(VISITS_ABOUT.source, replica_identity=DEFAULT))
    (unset,) = _findings(visited_db, by_key)
    assert (unset.level, unset.found, unset.expected) == (
        "unprepared",
        "REPLICA IDENTITY FULL",
        "DEFAULT, also of each partition (as its owner, ALTER TABLE … REPLICA IDENTITY DEFAULT)",
    )
    (unkeyed,) = [
        finding
        for finding in _findings(visited_db, replace(by_key, partition_by=("place",)))
        if finding.level == source_checks.UNFIT
    ]
    assert unkeyed.found == "a primary key without place"
    # What an index only holds along with its key is not in the row before.
    visited_db.execute("ALTER TABLE northwind.visits DROP CONSTRAINT visits_pkey, ADD UNIQUE (id)")
    visited_db.execute("ALTER TABLE northwind.visits ADD PRIMARY KEY (place) INCLUDE (id)")
    unkeyed, _ = _findings(visited_db, by_key)
    assert (unkeyed.level, unkeyed.found) == ("unfit", "a primary key without id")


def test_the_check_finds_what_cannot_be_left_out(visited_db: psycopg.Connection) -> None:
    closed = replace(VISITS_ABOUT, exclude=(("pin",),), unnamed="drop")
    (missing,) = _findings(visited_db, closed)
    assert (missing.place, missing.level) == ("northwind.visits.pin", "warning")
    visited_db.execute("ALTER TABLE northwind.visits ADD pin integer, ADD more text")
    assert _findings(visited_db, closed) == []
    visited_db.execute(
        "ALTER TABLE northwind.visits DROP CONSTRAINT visits_pkey, ADD UNIQUE (id), ADD PRIMARY KEY (pin)"
    )
    visited_db.execute("ALTER TABLE northwind.visits ALTER id SET NOT NULL")
    (in_key,) = _findings(visited_db, closed)
    assert (in_key.level, in_key.found) == ("unfit", "a column of the primary key")


def test_the_check_finds_what_cannot_be_masked(visited_db: psycopg.Connection) -> None:
    masks = (Mask(("pin",), HMAC), Mask(("age",), None))
    hidden = replace(VISITS_ABOUT, masks=masks)
    missing = _findings(visited_db, hidden)
    assert {(found.place, found.level) for found in missing} == {
        ("northwind.visits.age", "warning"),
        ("northwind.visits.pin", "warning"),
    }
    visited_db.execute("CREATE DOMAIN northwind.digits AS text")
    visited_db.execute("ALTER TABLE northwind.visits ADD pin northwind.digits, ADD age integer")
    assert _findings(visited_db, hidden) == []
    (no_text,) = _findings(visited_db, replace(hidden, masks=(*masks[:1], Mask(("age",), HMAC))))
    assert (no_text.place, no_text.level) == ("northwind.visits.age", "unfit")
    assert no_text.found == "integer masked by hmac"
    visited_db.execute(
        "ALTER TABLE northwind.visits DROP CONSTRAINT visits_pkey, ADD UNIQUE (id), ADD PRIMARY KEY (pin)"
    )
    visited_db.execute("ALTER TABLE northwind.visits ALTER id SET NOT NULL")
    (in_key,) = _findings(visited_db, hidden)
    assert (in_key.level, in_key.found) == ("unfit", "a column of the primary key")


def test_the_check_finds_columns_that_debezium_cannot_send(visited_db: psycopg.Connection) -> None:
    visited_db.execute("CREATE TYPE northwind.pair AS (a integer, b text)")
    visited_db.execute("CREATE DOMAIN northwind.handle AS refcursor")
    visited_db.execute(
        "ALTER TABLE northwind.visits ADD opened northwind.handle, ADD couple northwind.pair, ADD plain interval"
    )
    found = _findings(visited_db)
    assert {each.place.rpartition(".")[2] for each in found if each.level == "unfit"} == {"opened"}
    assert {each.place.rpartition(".")[2] for each in found if each.level == "note"} == {"opened", "couple", "plain"}
    assert _findings(visited_db, replace(VISITS_ABOUT, exclude=(*VISITS_ABOUT.exclude, ("opened",))))[0].level == "note"
    visited_db.execute("ALTER TABLE northwind.visits DROP opened")
    assert _findings(visited_db, replace(VISITS_ABOUT, unnamed=DROP)) == []
    visited_db.execute("""ALTER TABLE northwind.visits ADD "Plain" text""")
    visited_db.execute('ALTER TABLE northwind.visits ADD """plain""" text')
    (same,) = [each for each in _findings(visited_db) if each.level == "unfit"]
    assert same.found == 'columns that Debezium takes for one: plain, "Plain", """plain"""'


def test_a_partition_without_its_full_identity_is_found_and_fails_the_deployment(
    northwind_db: psycopg.Connection,
) -> None:
    northwind_db.execute(VISITS_BY_ID)
    northwind_db.execute("ALTER TABLE northwind.visits ADD about jsonb")
    northwind_db.execute("CREATE TABLE northwind.visits_1 PARTITION OF northwind.visits FOR VALUES IN (1)")
    administration.create(northwind_db, PASSWORDS, [VISITS_ABOUT_PLACE], FILES)
    last = source_database.publication_statements([VISITS_ABOUT_PLACE])[-1]
    northwind_db.execute(last.encode())
    northwind_db.execute("ALTER EVENT TRIGGER headwater_new_partitions DISABLE")
    northwind_db.execute("ALTER TABLE northwind.visits_1 REPLICA IDENTITY NOTHING")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"visits_1: found REPLICA IDENTITY NOTHING"):
        northwind_db.execute(last.encode())


def test_the_command_checks_a_real_database_and_ends_with_1_where_it_does_not_fit(
    visited_db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "visits.yaml").write_text(ABOUT.format(key="[id]"))
    info = visited_db.info
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", PASSWORDS[source_database.READER_ROLE])
    arguments = [
        "contract",
        "check",
        "--live",
        "--folder",
        str(lake_folder(tmp_path / "lake", tmp_path).root),
        "--port",
        str(info.port),
    ]
    arguments += ["--host", info.host, "--database", info.dbname]

    def run(*more: str) -> Result:
        return CliRunner().invoke(cli.app, [*arguments, *more], catch_exceptions=False)

    assert "valid contracts: 1, problems: 0, warnings: 0" in run().stdout
    visited_db.execute("ALTER TABLE northwind.visits ALTER place TYPE uuid USING NULL")
    result = run("--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["fits"], document["invalid"]) == (False, [])
    assert document["findings"][0] == {
        "contract": "visits",
        "place": "northwind.visits.place",
        "level": "unfit",
        "found": "the type uuid",
        "expected": "text, as the contract's source_type says",
        "action": "correct the contract, or the column",
    }


def test_a_contract_without_its_table_is_refused(northwind_db: psycopg.Connection) -> None:
    described = parse_contract(
        "{table: x, description: x, source: {database: postgresql, table: northwind.nowhere}, key: [a],"
        " partition_by: [], buckets: 1, columns: [{name: a, type: int, source_type: integer}]}",
        "x.yaml",
    )
    with pytest.raises(UserError, match=r"northwind\.nowhere"):
        administration.create(northwind_db, PASSWORDS, [described], FILES)


def test_contract_types_are_the_databases(northwind_db: psycopg.Connection) -> None:
    for described in of_database(read_contracts(EXAMPLE.contracts), POSTGRESQL):
        rows = northwind_db.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (described.source.table,),
        )
        actual = {str(name): str(type_name) for name, type_name in rows}
        named = {column.path[0]: column.source_type for column in described.columns}
        assert set(named) == set(actual), described.table
        for name, source_type in named.items():
            assert source_type in (None, actual[name]), (described.table, name)
        primary = northwind_db.execute(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)"
            " WHERE indrelid = %s::regclass AND indisprimary ORDER BY array_position(indkey, attnum)",
            (described.source.table,),
        )
        sources = {column.name: column.path[0] for column in described.columns}
        beside = described.partition_by if described.source.replica_identity == DEFAULT else ()
        assert [sources[name] for name in (*described.key, *beside)] == [name for (name,) in primary], described.table


def test_the_application_changes_base_tables_and_the_outbox_follows(connect: Connect) -> None:
    app, observer = connect(source_database.APP_ROLE), connect()
    for change in CHANGES.values():
        observer.execute(SMALL.encode())
        with app.transaction():
            app.execute(change.encode())
        assert wrong_orders(observer) == []


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        (source_database.APP_ROLE, "SELECT FROM northwind.order_events"),
        (source_database.APP_ROLE, "DELETE FROM northwind.order_events"),
        (source_database.APP_ROLE, "INSERT INTO outbox.noted (kind, key) VALUES ('order', '1')"),
        (source_database.APP_ROLE, "SELECT FROM capture.signal"),
        (source_database.APP_ROLE, "CREATE TABLE northwind.mine (a integer)"),
        (source_database.READER_ROLE, "UPDATE northwind.orders SET freight = 0"),
        (source_database.READER_ROLE, "TRUNCATE northwind.order_events"),
        (source_database.READER_ROLE, "SELECT outbox.take_locks()"),
        (source_database.CDC_ROLE, "SELECT FROM northwind.orders"),
        (source_database.CDC_ROLE, "UPDATE northwind.order_events SET order_month = 'x'"),
        (source_database.CDC_ROLE, "UPDATE capture.signal SET data = 'x'"),
        (source_database.CDC_ROLE, "CREATE PUBLICATION mine FOR TABLE northwind.order_events"),
    ],
)
def test_a_role_may_not(connect: Connect, role: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect(role).execute(statement.encode())


def test_roles_may_do_their_work(connect: Connect) -> None:
    reader = connect(source_database.READER_ROLE)
    assert wrong_orders(reader) == []
    for table in (*orders.TABLES, "order_events"):
        reader.execute(f"SELECT FROM northwind.{table}".encode())
    cdc = connect(source_database.CDC_ROLE)
    for statement in (
        "SELECT FROM northwind.order_events",
        "SELECT FROM northwind.customers",
        "SELECT FROM northwind.products",
        "UPDATE capture.heartbeat SET beat_at = clock_timestamp() WHERE id = 1",
        "INSERT INTO capture.signal VALUES ('window', 'snapshot-window-open', NULL)",
        "DELETE FROM capture.signal WHERE id = 'window'",
        "SELECT pg_create_logical_replication_slot('headwater_rights', 'pgoutput')",
        "SELECT pg_drop_replication_slot('headwater_rights')",
    ):
        cdc.execute(statement.encode())


def test_dropping_takes_all_but_the_database_and_creating_brings_it_back(tmp_path: Path) -> None:
    # A server of its own: roles belong to the server, and the other databases of the shared one need them.
    contracts = read_contracts(EXAMPLE.contracts)
    with PostgresqlServer(tmp_path) as own, own.connect() as connection:
        with pytest.raises(UserError, match="headwater db create"):
            administration.status(connection)
        for _ in range(2):
            administration.create(connection, PASSWORDS, contracts, FILES)
            connection.execute(SMALL.encode())
            connection.execute("SELECT pg_create_logical_replication_slot('headwater', 'pgoutput')")
            slot = administration.status(connection).slot
            assert slot is not None
            assert not slot.active
            administration.drop(connection)
            with pytest.raises(UserError, match="found no database that `headwater db create` or a deployment made"):
                administration.drop(connection)
            remains = connection.execute(
                """SELECT nspname::text FROM pg_namespace WHERE nspname IN ('northwind', 'outbox', 'capture')
                UNION ALL SELECT rolname FROM pg_roles WHERE rolname LIKE 'headwater%'
                UNION ALL SELECT pubname FROM pg_publication
                UNION ALL SELECT slot_name FROM pg_replication_slots"""
            ).fetchall()
            assert remains == []


def test_a_drop_is_refused_while_another_database_needs_the_roles(northwind_db: psycopg.Connection) -> None:
    northwind_db.execute("SELECT pg_create_logical_replication_slot('headwater', 'pgoutput')")
    try:
        with pytest.raises(UserError, match="other database"):
            administration.drop(northwind_db)
        content = administration.status(northwind_db)
    finally:
        northwind_db.execute("SELECT pg_drop_replication_slot('headwater')")
    assert content.rows["northwind.orders"] == 6
    assert content.slot is not None


def test_the_reader_sees_whether_a_source_has_rows(connect: Connect) -> None:
    owner = connect()
    reader = connect(source_database.READER_ROLE)
    found: dict[str, bool | str] = {}
    for name in (
        "northwind.filled",
        "northwind.empty",
        'northwind.Hid\'s "rows"',
        "northwind.parted",
        "northwind.gone",
    ):
        schema, _, table = name.partition(".")
        source = sql.Identifier(schema, table)
        if table == "parted":
            owner.execute(sql.SQL("CREATE TABLE {} (id integer) PARTITION BY LIST (id)").format(source))
            owner.execute("CREATE TABLE northwind.part PARTITION OF northwind.parted DEFAULT")
        elif table != "gone":
            owner.execute(sql.SQL("CREATE TABLE {} (id integer)").format(source))
        if table not in ("empty", "gone"):
            owner.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(source))
        if table.startswith("Hid"):
            owner.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(source))
        contract = replace(VISITS, source=replace(VISITS.source, table=name))
        try:
            found[table] = operations_database.is_empty(partial(sources.first_value, reader), contract)
        except UserError as error:
            found[table] = str(error)
    said = [str(found.pop(table)) for table in ("gone", 'Hid\'s "rows"')]
    assert ["does not exist" in said[0], "row security may hide rows" in said[1]] == [True, True]
    assert found == {"filled": False, "empty": True, "parted": False}

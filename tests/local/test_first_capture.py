"""What keeps a database of one's own from being captured at first, and whether the advice of the commands mends it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.definitions import open_transactions
from headwater.errors import UserError
from headwater.waiting import wait_until
from rig.local.own_database import slot_awaited
from rig.local.postgresql_server import PostgresqlServer
from tests.lake_folders import lake_folder

PASSWORD = "of the tests"
CONTRACT = """
table: orders
description: A table of the tests.
source: {database: postgresql, table: public.orders}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
"""
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    settings = {"max_prepared_transactions": "3"}
    with PostgresqlServer(tmp_path_factory.mktemp("first"), settings) as running:
        yield running


@pytest.fixture
def shop(server: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with server.connect() as admin:
        for (slot,) in admin.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            admin.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        admin.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        admin.execute("DROP ROLE IF EXISTS headwater_cdc")
        admin.execute("CREATE DATABASE shop")
    with server.connect("shop") as owner:
        owner.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        yield owner


@pytest.fixture
def command(server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``headwater`` as the superuser, with one contract."""
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", server.password)
    monkeypatch.setenv("HEADWATER_CDC_PASSWORD", PASSWORD)
    monkeypatch.setenv("COLUMNS", "1000")
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "orders.yaml").write_text(CONTRACT)
    folder = lake_folder(tmp_path / "lake", tmp_path / "contracts").root

    def run(*words: str) -> Result:
        at = ["--host", server.host, "--port", str(server.port), "--database", "shop", "--folder", str(folder)]
        user = [] if "replicate" in words else ["--user", server.superuser]
        return CliRunner().invoke(app, [*words, *at, *user], catch_exceptions=False)

    return run


@pytest.fixture
def prepared(server: PostgresqlServer, shop: psycopg.Connection) -> Iterator[str]:
    """A transaction that another database's application has prepared, and that nobody ends."""
    with server.connect("postgres") as other:
        other.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'it''s left'")
        yield "it's left"
        if other.execute("SELECT FROM pg_prepared_xacts").fetchall():
            other.execute("ROLLBACK PREPARED 'it''s left'")


def mended(server: PostgresqlServer, said: str) -> None:
    """Follow the advice about a prepared transaction."""
    advice = re.search(r"(ROLLBACK PREPARED '.*') in the database (\w+) ends it", said)
    assert advice is not None, said
    with server.connect(advice.group(2)) as other:
        other.execute(advice.group(1).encode())
        assert other.execute("SELECT FROM pg_prepared_xacts").fetchall() == []


def test_the_advice_about_row_security_leads_to_capture(shop: psycopg.Connection, command: Command) -> None:
    shop.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    told = command("contract", "check", "--live").stdout
    advice = re.search(r"unfit: (CREATE ROLE headwater_cdc LOGIN BYPASSRLS) ", told)
    assert advice is not None, told
    with pytest.raises(UserError, match="row level security, expected none that") as raised:
        command("db", "capture")
    assert advice.group(1) in str(raised.value)
    assert shop.execute("SELECT FROM pg_roles WHERE rolname = 'headwater_cdc'").fetchall() == []
    shop.execute(advice.group(1).encode())
    assert "row level security" not in command("contract", "check", "--live").stdout
    assert command("db", "capture").exit_code == 0
    assert "problems: 0" in command("contract", "check", "--live").stdout
    shop.execute("ALTER ROLE headwater_cdc NOBYPASSRLS")
    assert (
        "unfit: ALTER ROLE headwater_cdc BYPASSRLS as a superuser, or" in command("contract", "check", "--live").stdout
    )


def test_capture_and_check_name_a_prepared_transaction(
    server: PostgresqlServer, shop: psycopg.Connection, command: Command, prepared: str
) -> None:
    for told in (command("contract", "check", "--live").stdout, command("db", "capture").output):
        assert "the prepared transaction 'it''s left' of the database postgres (by postgres, 00:00:0" in told
        assert "in the database postgres ends it (as postgres or a superuser)" in told
    mended(server, told)
    assert "prepared transaction" not in command("db", "capture").output


def test_replicate_refuses_a_left_prepared_transaction(
    server: PostgresqlServer, command: Command, prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("db", "capture").exit_code == 0
    monkeypatch.setattr(open_transactions, "FIND", open_transactions.FIND.replace("'1 minute'", "'0'"))
    with pytest.raises(UserError, match="before whose end PostgreSQL makes no replication slot") as raised:
        command("replicate")
    mended(server, str(raised.value))


def test_who_waits_for_the_slot_is_told_of_open_transactions(
    server: PostgresqlServer, shop: psycopg.Connection, command: Command, prepared: str
) -> None:
    command("db", "capture")
    told: list[str] = []

    def connector() -> psycopg.Connection:
        return server.connect("shop", "headwater_cdc", PASSWORD)

    def make_slot() -> None:
        with connector() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot('headwater', 'pgoutput')")

    with server.connect("shop") as writer, slot_awaited(connector, told.append):
        writer.execute("SET application_name = 'loader'; BEGIN; INSERT INTO orders VALUES (1)")
        making = threading.Thread(target=make_slot)
        making.start()
        wait_until("both transactions to be named", lambda: len(told) == 2, poll=0.2)
        assert "the prepared transaction 'it''s left'" in told[0]
        pid = writer.info.backend_pid
        assert f"a transaction of pid {pid} in the database shop (postgres, loader)" in told[1]
        assert f"SELECT pg_terminate_backend({pid})" in told[1]
        mended(server, told[0])
        writer.execute("COMMIT")
        making.join()
    assert len(told) == 2
    assert shop.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == [("headwater",)]
    assert open_transactions.open_transactions(lambda query: shop.execute(query.encode()).fetchall()) == []


def test_capture_names_a_transaction_that_is_open_for_long(
    server: PostgresqlServer, shop: psycopg.Connection, command: Command
) -> None:
    with server.connect("shop") as writer:
        writer.execute("SET application_name = 'loader'; BEGIN; SELECT pg_current_xact_id()")
        assert "a transaction of pid" not in command("db", "capture").output
        wait_until(
            "it to be open for long",
            lambda: bool(open_transactions.open_transactions(lambda query: shop.execute(query.encode()).fetchall())),
        )
        told = command("db", "capture").output
        assert re.search(r"a transaction of pid \d+ in .* shop \(postgres, loader, idle in transaction, open for", told)
        writer.execute("ROLLBACK")
    assert "a transaction of pid" not in command("db", "capture").output

"""An application goes on, and never waits, while its database is captured and released, on the oldest and the newest
PostgreSQL. It connects as a role that owns the tables and is no superuser."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.errors import UserError
from headwater.postgresql import administration
from rig.local.postgresql_server import PostgresqlServer
from tests.lake_folders import lake_folder

APPLICATION = "clinic_app"
# What an application would notice.
IMPATIENT = "SET lock_timeout = '200ms'"
CONTRACT = """
table: {table}
description: x
source: {{database: postgresql, table: public.{table}, replica_identity: {identity}}}
key: [id]
partition_by: []
buckets: 1
columns: [{{name: id, type: {type}, source_type: {source}}}]
"""
# A row of each partition, and one of the default partition.
ROWS = ("INSERT INTO {t} (id) VALUES (1), (2), (99)", "UPDATE {t} SET name = 'b'", "DELETE FROM {t} WHERE id = 2")
PARTITIONS = (
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES IN (1)",
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES IN (2) PARTITION BY LIST (id)",
    "CREATE TABLE {t}_2_2 PARTITION OF {t}_2 FOR VALUES IN (2)",
    "CREATE TABLE {t}_rest PARTITION OF {t} DEFAULT",
)
NEW_PARTITIONS = (
    "CREATE TABLE {t}_5 PARTITION OF {t} FOR VALUES IN (5)",
    "CREATE TABLE {t}_6 (LIKE {t} INCLUDING ALL)",
    "ALTER TABLE {t} ATTACH PARTITION {t}_6 FOR VALUES IN (6)",
    "INSERT INTO {t} (id) VALUES (5), (6)",
    "UPDATE {t} SET name = 'c' WHERE id > 4",
    "DELETE FROM {t} WHERE id = 6",
    "ALTER TABLE {t} DETACH PARTITION {t}_5",
    "DROP TABLE {t}_5",
    "TRUNCATE {t}_6",
)


@dataclass(frozen=True)
class Kind:
    """A kind of table: how it is made, and what its application does; ``{t}`` is the table."""

    made: tuple[str, ...]
    more: tuple[str, ...] = ()
    rows: tuple[str, ...] = ROWS
    identity: str = "full"
    type: tuple[str, str] = ("int", "integer")
    since: int = 15

    def contract(self, table: str) -> str:
        return CONTRACT.format(table=table, identity=self.identity, type=self.type[0], source=self.type[1])


KINDS = {
    "keyed": Kind(("CREATE TABLE {t} (id integer PRIMARY KEY, name text)",)),
    "keyed_by_default": Kind(("CREATE TABLE {t} (id integer PRIMARY KEY, name text)",), identity="default"),
    "uniquely_indexed": Kind(("CREATE TABLE {t} (id integer NOT NULL UNIQUE, name text)",)),
    "without_identity": Kind(
        ("CREATE TABLE {t} (id integer NOT NULL UNIQUE, name text)", "ALTER TABLE {t} REPLICA IDENTITY NOTHING")
    ),
    "partitioned": Kind(
        ("CREATE TABLE {t} (id integer PRIMARY KEY, name text) PARTITION BY LIST (id)", *PARTITIONS), NEW_PARTITIONS
    ),
    "partitioned_without_key": Kind(
        ("CREATE TABLE {t} (id integer NOT NULL UNIQUE, name text) PARTITION BY LIST (id)", *PARTITIONS), NEW_PARTITIONS
    ),
    "stored": Kind(
        ("CREATE TABLE {t} (id integer PRIMARY KEY, name text, twice integer GENERATED ALWAYS AS (id * 2) STORED)",),
        identity="default",
    ),
    "virtual": Kind(
        ("CREATE TABLE {t} (id integer PRIMARY KEY, name text, twice integer GENERATED ALWAYS AS (id * 2) VIRTUAL)",),
        ("ALTER TABLE {t} ADD COLUMN thrice integer GENERATED ALWAYS AS (id * 3)", "UPDATE {t} SET name = 'd'"),
        identity="default",
        since=18,
    ),
    "numbered": Kind(
        ("CREATE TABLE {t} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",),
        rows=("INSERT INTO {t} (name) VALUES ('a'), ('b')", "UPDATE {t} SET name = 'b'", "DELETE FROM {t}"),
        type=("bigint", "bigint"),
    ),
    "typed": Kind(
        (
            "CREATE DOMAIN {t}_year AS integer CHECK (VALUE > 1900)",
            "CREATE TYPE {t}_grade AS ENUM ('a', 'b')",
            "CREATE TABLE {t} (id integer PRIMARY KEY, name text, year {t}_year, grade {t}_grade, words text[])",
        ),
        (
            "ALTER TYPE {t}_grade ADD VALUE 'c'",
            "INSERT INTO {t} VALUES (7, 'x', 1999, 'c', '{{a,NULL}}')",
            "UPDATE {t} SET words = words || ARRAY['b'], year = 2000, grade = 'a'",
        ),
    ),
    "toasted": Kind(
        ("CREATE TABLE {t} (id integer PRIMARY KEY, name text, essay text)",),
        (
            "ALTER TABLE {t} ALTER essay SET STORAGE EXTERNAL",
            "INSERT INTO {t} VALUES (8, 'x', repeat('long ', 9000))",
            "UPDATE {t} SET name = 'y' WHERE id = 8",
            "DELETE FROM {t} WHERE id = 8",
        ),
    ),
}
DDL = (
    "ALTER TABLE {t} ADD COLUMN added integer DEFAULT 3",
    "UPDATE {t} SET name = 'e', added = 4",
    "ALTER TABLE {t} ALTER added TYPE bigint",
    "ALTER TABLE {t} DROP COLUMN added",
    "CREATE INDEX {t}_by_name ON {t} (name)",
    "UPDATE {t} SET name = 'f'",
    "TRUNCATE {t}",
)
UNCAPTURED = (
    "CREATE TABLE scratch (id integer)",
    "ALTER TABLE scratch RENAME TO scratch_before",
    "UPDATE scratch_before SET id = 1",
    "DROP TABLE scratch_before",
)
# Each locks tables of the application for itself, so at its end all locks of its transaction are there.
WATCH_LOCKS = """
CREATE TABLE seen (tag text, tables text[]);
CREATE FUNCTION note_locks() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen SELECT tg_tag, array_agg(DISTINCT relation::regclass::text)
    FROM pg_locks JOIN pg_class AS c ON c.oid = relation AND relnamespace = 'public'::regnamespace
    WHERE pid = pg_backend_pid() AND granted AND relkind IN ('r', 'p') AND relname <> 'seen'
    AND relowner = 'clinic_app'::regrole AND mode <> 'AccessShareLock'
    HAVING count(*) > 0;
END
$$;
CREATE EVENT TRIGGER note_locks ON ddl_command_end EXECUTE FUNCTION note_locks();
"""


HELD = """SELECT relname::text FROM pg_locks JOIN pg_class AS c ON c.oid = relation
WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace ORDER BY 1"""


class Clinic:
    """A database of an application's own, and the commands of whoever captures it."""

    def __init__(self, server: PostgresqlServer, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.name = name
        with server.connect() as connection:
            self.version = connection.info.server_version // 10_000
        self._contracts = folder
        monkeypatch.setenv("HEADWATER_DB_PASSWORD", server.password)
        monkeypatch.setenv("HEADWATER_CDC_PASSWORD", "of the connector")

    def owner(self) -> psycopg.Connection:
        return self.server.connect(self.name)

    def application(self) -> psycopg.Connection:
        connection = self.server.connect(self.name, APPLICATION, "app")
        connection.execute(IMPATIENT)
        return connection

    def make(self, kinds: dict[str, Kind]) -> None:
        with self.application() as application:
            for table, kind in kinds.items():
                run(application, kind.made, table)
                (self._contracts / f"{table}.yaml").write_text(kind.contract(table))

    def command(self, verb: str, *more: str) -> str:
        arguments = ["db", verb, "--host", self.server.host, "--port", str(self.server.port), "--database", self.name]
        if verb == "capture":
            arguments += ["--folder", str(lake_folder(self._contracts / "lake", self._contracts).root)]
        return CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False).output

    def identities(self) -> dict[str, str]:
        with self.owner() as owner:
            rows = owner.execute(
                "SELECT relname::text, relreplident::text FROM pg_class WHERE relkind IN ('r', 'p')"
                " AND relnamespace = 'public'::regnamespace AND relowner = 'clinic_app'::regrole"
            )
            return dict(sorted(rows.fetchall()))


@pytest.fixture
def clinic(versioned_postgres: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clinic]:
    with versioned_postgres.connect() as admin:
        admin.execute(f"CREATE ROLE {APPLICATION} LOGIN PASSWORD 'app'".encode())
        admin.execute("CREATE DATABASE clinic")
        clinic = Clinic(versioned_postgres, "clinic", tmp_path, monkeypatch)
        with clinic.owner() as owner:
            owner.execute(f"GRANT CREATE ON SCHEMA public TO {APPLICATION}".encode())
        yield clinic
        admin.execute("DROP DATABASE clinic WITH (FORCE)")
        for role in (APPLICATION, "headwater_cdc"):
            admin.execute(f"DROP ROLE IF EXISTS {role}".encode())


def run(application: psycopg.Connection, statements: tuple[str, ...], table: str) -> None:
    for statement in statements:
        application.execute(statement.format(t=table).encode())


def kinds_of(clinic: Clinic) -> dict[str, Kind]:
    return {table: kind for table, kind in KINDS.items() if kind.since <= clinic.version}


def test_an_application_works_on_every_kind_of_captured_table(clinic: Clinic) -> None:
    kinds = kinds_of(clinic)
    clinic.make(kinds)
    before = clinic.identities()
    assert "is ready to be captured" in clinic.command("capture")
    assert {clinic.identities()[table] for table in kinds} == {"f", "d"}
    with closing(clinic.application()) as application:
        for table, kind in kinds.items():
            run(application, (*kind.rows, *kind.more, *DDL), table)
        run(application, UNCAPTURED, "")
    assert "is ready to be captured" in clinic.command("capture")
    assert clinic.command("release", "--restore-identities") == "clinic is captured no more\n"
    # Partitions that came meanwhile have the identity that they would have had.
    assert clinic.identities() == before | {table: "d" for table in clinic.identities() if table.endswith("_6")}
    with closing(clinic.application()) as application:
        for table, kind in kinds.items():
            run(application, kind.rows, table)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("CREATE TABLE {t} (id integer, name text)", "no unique index"),
        ("CREATE UNLOGGED TABLE {t} (id integer PRIMARY KEY, name text)", "an unlogged or temporary table"),
        ("CREATE TABLE {t} (id integer PRIMARY KEY DEFERRABLE, name text)", "no unique index"),
        ("CREATE VIEW {t} AS SELECT 1 AS id", "a view"),
    ],
)
def test_a_table_that_cannot_be_captured_changes_nothing(clinic: Clinic, made: str, found: str) -> None:
    clinic.make({"keyed": KINDS["keyed"], "refused": Kind((made,))})
    with pytest.raises(UserError, match=rf"public\.refused: found {found}"):
        clinic.command("capture")
    assert clinic.identities()["keyed"] == "d"
    with clinic.owner() as owner:
        assert owner.execute("SELECT to_regnamespace('capture')").fetchone() == (None,)
        assert owner.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)


@contextmanager
def querying(clinic: Clinic, tables: list[str]) -> Iterator[list[Exception]]:
    """An application reads and writes these tables until the end, and what fails of it, such as a wait for a lock."""
    failed: list[Exception] = []
    turns, ended = count(), threading.Event()
    started = threading.Event()

    def query() -> None:
        with closing(clinic.application()) as application:
            while not ended.is_set():
                for table in tables:
                    try:
                        application.execute(f"SELECT count(*) FROM {table}".encode())
                        application.execute(f"INSERT INTO {table} (id) VALUES ({100 + next(turns)})".encode())
                        application.execute(f"DELETE FROM {table}".encode())
                    except psycopg.Error as error:
                        failed.append(error)
                started.set()

    thread = threading.Thread(target=query)
    thread.start()
    started.wait()
    try:
        yield failed
    finally:
        ended.set()
        thread.join()


def test_a_query_that_stays_open_holds_up_its_own_table_alone(clinic: Clinic) -> None:
    kinds = {table: KINDS[table] for table in ("keyed", "uniquely_indexed", "partitioned", "partitioned_without_key")}
    clinic.make(kinds)
    before = clinic.identities()
    free = ["keyed", "uniquely_indexed", "partitioned_without_key"]
    verbs = (("capture",), ("release", "--restore-identities"))
    expected = {"capture": dict.fromkeys(before, "f"), "release": before}
    named = re.compile(
        rf"public\.(\S+): pid \d+ \({APPLICATION} in reports, idle in transaction since .*\): SELECT .* partitioned_2$",
        re.MULTILINE,
    )
    with closing(clinic.application()) as reports, querying(clinic, free) as failed:
        reports.execute("SET application_name = 'reports'")
        for verb, *more in verbs:
            reports.execute("BEGIN")
            reports.execute("SELECT count(*) FROM partitioned_2")
            held = [str(table) for (table,) in reports.execute(HELD).fetchall()]
            reports.execute("SELECT count(*) FROM partitioned_2")
            with pytest.raises(UserError, match="run the same command again") as left:
                clinic.command(verb, *more, "--patience", "0")
            assert sorted(named.findall(str(left.value))) == held
            assert [
                table for table, identity in clinic.identities().items() if identity != expected[verb][table]
            ] == held
            reports.execute("COMMIT")
            clinic.command(verb, *more)
            assert clinic.identities() == expected[verb]
    assert failed == []


def test_a_query_of_a_table_waits_briefly_while_its_lock_is_wanted(clinic: Clinic) -> None:
    clinic.make({"keyed": KINDS["keyed"]})
    with closing(clinic.application()) as reports, querying(clinic, ["keyed"]) as failed:
        reports.execute("BEGIN; SELECT count(*) FROM keyed")
        with pytest.raises(UserError, match=r"public\.keyed: pid"):
            clinic.command("capture", "--patience", "1")
    assert failed == []


def test_a_prepared_transaction_is_named(clinic: Clinic) -> None:
    clinic.make({"keyed": KINDS["keyed"]})
    with closing(clinic.application()) as application:
        for statement in ("BEGIN", "SELECT count(*) FROM keyed", "PREPARE TRANSACTION 'forgotten'"):
            application.execute(statement.encode())
        with pytest.raises(
            UserError, match=rf"public\.keyed: the prepared transaction 'forgotten' of {APPLICATION} since"
        ):
            clinic.command("capture", "--patience", "0")
        application.execute("ROLLBACK PREPARED 'forgotten'")


def test_tables_are_locked_one_at_a_time(clinic: Clinic) -> None:
    kinds = kinds_of(clinic)
    clinic.make(kinds)
    with clinic.owner() as owner:
        owner.execute(WATCH_LOCKS)
        clinic.command("capture")
        clinic.command("capture")
        clinic.command("release", "--restore-identities")
        seen = owner.execute("SELECT tag, tables FROM seen").fetchall()
        owner.execute("DROP EVENT TRIGGER note_locks")
    assert {tag for tag, _ in seen} == {"ALTER TABLE", "ALTER PUBLICATION", "GRANT"}
    assert [tables for _, tables in seen if len(tables) != 1] == []
    # A second run has nothing to lock.
    altered = [tables[0] for tag, tables in seen if tag == "ALTER TABLE"]
    assert {altered.count(table) for table in altered} == {2}


class KilledError(BaseException):
    """The command was killed."""


class Mortal:
    """A connection that is killed before a statement."""

    def __init__(self, connection: psycopg.Connection, lives: int) -> None:
        self._connection = connection
        self._lives = lives

    def execute(self, *arguments: Any) -> Any:
        self._lives -= 1
        if self._lives < 0:
            self._connection.close()
            raise KilledError
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_wherever_a_command_is_killed_the_application_goes_on(clinic: Clinic) -> None:
    kinds = {table: KINDS[table] for table in ("uniquely_indexed", "partitioned_without_key", "without_identity")}
    clinic.make(kinds)
    before = clinic.identities()
    contracts: list[Contract] = [parse_contract(kind.contract(table), "x.yaml") for table, kind in kinds.items()]

    def lives_through(lives: int, *, release: bool) -> bool:
        """Whether a command ends before it is killed. Either way the application goes on."""
        mortal: Any = Mortal(clinic.owner(), lives)
        ended = False
        with closing(mortal), suppress(KilledError):
            if release:
                administration.release(mortal, restore_identities=True)
            else:
                administration.prepare(mortal, "x", contracts)
            ended = True
        with closing(clinic.application()) as application:
            for table, kind in kinds.items():
                run(application, (*kind.rows, "DELETE FROM {t}"), table)
        return ended

    for lives in count(1):
        lives_through(lives, release=False)
        assert lives_through(1000, release=False)
        assert set(clinic.identities().values()) == {"f"}
        if lives_through(lives, release=True):
            break
    assert clinic.identities() == before
    assert lives > 15

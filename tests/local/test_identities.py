"""Capture and replica identities: the application's statements go on working, on the oldest and the newest PostgreSQL.
They work with every kind of table, and with tables that the application alters later."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import sources
from headwater.contract.reading import read_contracts
from headwater.definitions.source_database import capture_statements
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.operations import database
from headwater.operations.deployed import Deployed
from rig.local.postgresql_server import PostgresqlServer
from tests.lake_folders import lake_folder

PASSWORD = "of the tests"
_numbers = count(1)


class Clinic:
    """A database of one's own, whose tables in the schema ``app`` belong to the application, which is no superuser."""

    def __init__(self, server: PostgresqlServer, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.name, self.folder = server, name, folder
        self.owner = server.connect(name)
        self.owner.execute(f"CREATE SCHEMA app AUTHORIZATION {name}".encode())
        self.application = server.connect(name, name, PASSWORD)
        self.heard: list[str] = []
        self.application.add_notice_handler(lambda notice: self.heard.append(notice.message_primary or ""))
        monkeypatch.setenv("HEADWATER_CDC_PASSWORD", PASSWORD)
        monkeypatch.setenv("COLUMNS", "1000")
        self._monkeypatch = monkeypatch
        self.log_in(server.superuser, server.password)

    @property
    def is_strict(self) -> bool:
        """Whether this PostgreSQL refuses changes of a table whose identity has a generated column."""
        return self.owner.info.server_version >= 180_000

    def log_in(self, user: str, password: str) -> None:
        """Have the commands connect as this user."""
        self._user = user
        self._monkeypatch.setenv("HEADWATER_DB_PASSWORD", password)

    def run(self, *command: str) -> Result:
        at = ["--host", self.server.host, "--port", str(self.server.port), "--database", self.name]
        arguments = [*command, *at, "--user", self._user]
        if "release" not in command:
            arguments += ["--folder", str(lake_folder(self.folder.with_name("lake"), self.folder).root)]
        return CliRunner().invoke(app, arguments)

    def infer(self, *tables: str) -> Result:
        return self.run(
            "contract", "infer", "--schema", "app", *(part for table in tables for part in ("--table", table))
        )

    def found(self) -> list[tuple[str, str, str]]:
        """Place, level and found of what the check says, but for what capture would prepare, and notes."""
        findings = json.loads(self.run("contract", "check", "--live", "--json").stdout)["findings"]
        told = [(finding["place"], finding["level"], finding["found"]) for finding in findings]
        return [each for each in told if each[1] in ("unfit", "warning")]

    def does(self, statements: str) -> None:
        """Have the application run statements, each in a transaction of its own."""
        for statement in statements.split(";"):
            self.application.execute(statement.encode())

    def changes(self, table: str, *rows: int) -> None:
        """Have the application insert, update and delete rows."""
        for row in rows or (1,):
            self.does(f"INSERT INTO app.{table} (id, a) VALUES ({row}, 'x')")
            assert self.application.execute(f"UPDATE app.{table} SET a = 'y' WHERE id = {row}".encode()).rowcount == 1
            assert self.application.execute(f"DELETE FROM app.{table} WHERE id = {row}".encode()).rowcount == 1

    def identities(self) -> dict[str, str]:
        return dict(
            self.owner.execute(
                "SELECT relname::text, relreplident::text FROM pg_class"
                " WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'p')"
            ).fetchall()
        )

    def published(self) -> set[str]:
        query = "SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'headwater' AND schemaname = 'app'"
        return {table for (table,) in self.owner.execute(query.encode()).fetchall()}


@pytest.fixture
def clinic(versioned_postgres: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clinic]:
    name = f"clinic_{next(_numbers)}"
    with versioned_postgres.connect() as maintenance:
        maintenance.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'".encode())
        maintenance.execute(f"CREATE DATABASE {name} OWNER {name}".encode())
        made = Clinic(versioned_postgres, name, tmp_path / "contracts", monkeypatch)
        yield made
        made.log_in(versioned_postgres.superuser, versioned_postgres.password)
        made.run("db", "release")
        made.owner.close()
        made.application.close()
        maintenance.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        for role in (name, "headwater_cdc"):
            maintenance.execute(f"DROP ROLE IF EXISTS {role}".encode())


def kinds(clinic: Clinic) -> list[str]:
    return ["STORED", "VIRTUAL"] if clinic.is_strict else ["STORED"]


def test_generated_columns_get_an_identity_that_changes_pass(clinic: Clinic) -> None:
    tables = []
    for kind in kinds(clinic):
        tables.append(f"visits_{kind.lower()}")
        clinic.does(
            f"CREATE TABLE app.{tables[-1]} (id integer PRIMARY KEY, a text, g text GENERATED ALWAYS AS (a) {kind})"
        )
    clinic.infer()
    wanted = "d" if clinic.is_strict else "f"
    assert clinic.found() == []
    assert clinic.run("db", "capture").exit_code == 0
    assert clinic.identities() == dict.fromkeys(tables, wanted)
    for table in tables:
        clinic.changes(table)


def test_full_beside_a_generated_column_is_refused_before_anything(clinic: Clinic) -> None:
    for kind in kinds(clinic):
        table = f"visits_{kind.lower()}"
        clinic.does(f"CREATE TABLE app.{table} (id integer PRIMARY KEY, a text) PARTITION BY LIST (id)")
        clinic.does(f"CREATE TABLE app.{table}_1 PARTITION OF app.{table} FOR VALUES IN (1)")
        clinic.infer(table)
        clinic.does(f"ALTER TABLE app.{table} ADD g integer GENERATED ALWAYS AS (id + 1) {kind}")
        before = clinic.identities()
        result = clinic.run("db", "capture")
        if clinic.is_strict:
            assert [(place, level) for place, level, _ in clinic.found()] == [(f"app.{table}", "unfit")]
            assert "write replica_identity: default under source in the contract" in str(result.exception)
            assert (clinic.identities(), clinic.published()) == (before, set())
        else:
            assert (clinic.found(), result.exit_code) == ([], 0)
        clinic.changes(table)
        (clinic.folder / f"{table}.yaml").unlink()


def test_generated_columns_without_a_usable_key_get_no_contract(clinic: Clinic) -> None:
    clinic.does("CREATE TABLE app.unkeyed (id integer NOT NULL UNIQUE, a text, g text GENERATED ALWAYS AS (a) STORED)")
    clinic.does(
        "CREATE TABLE app.late (id integer PRIMARY KEY DEFERRABLE, a text); CREATE UNIQUE INDEX ON app.late (id)"
    )
    result = clinic.infer()
    assert ("it has generated columns and no primary key" in result.stdout) == clinic.is_strict
    # With DEFAULT such a primary key is none.
    path = clinic.folder / "late.yaml"
    path.write_text(path.read_text().replace("table: app.late", "table: app.late, replica_identity: default"))
    assert ("app.late", "unfit", "a primary key without id") in clinic.found()
    assert "not DEFERRABLE" in str(clinic.run("db", "capture").exception)
    clinic.changes("late")


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "UNIQUE (id)"])
def test_new_partitions_take_changes_and_log_rows_whole(clinic: Clinic, key: str) -> None:
    clinic.does(f"CREATE TABLE app.visits (id integer NOT NULL, a text, {key}) PARTITION BY LIST (id)")
    clinic.infer()
    assert clinic.run("db", "capture").exit_code == 0
    clinic.does(
        "CREATE TABLE app.created PARTITION OF app.visits FOR VALUES IN (1);"
        "CREATE TABLE app.attached (LIKE app.visits INCLUDING ALL);"
        "ALTER TABLE app.visits ATTACH PARTITION app.attached FOR VALUES IN (2);"
        "CREATE TABLE app.branch (LIKE app.visits INCLUDING ALL) PARTITION BY LIST (id);"
        "CREATE TABLE app.leaf PARTITION OF app.branch FOR VALUES IN (3);"
        "ALTER TABLE app.visits ATTACH PARTITION app.branch FOR VALUES IN (3, 4);"
        "CREATE TABLE app.later_leaf PARTITION OF app.branch FOR VALUES IN (4);"
        "CREATE TABLE app.detached PARTITION OF app.visits FOR VALUES IN (5);"
        "ALTER TABLE app.visits DETACH PARTITION app.detached CONCURRENTLY;"
        "CREATE TABLE app.other PARTITION OF app.visits DEFAULT;"
        "ALTER TABLE app.created REPLICA IDENTITY NOTHING;"
        "CREATE TEMP TABLE scratch (id integer);"
        "ALTER TABLE scratch ADD a text"
    )
    assert set(clinic.identities().values()) == {"f"}
    clinic.changes("visits", 1, 2, 3, 4, 5)
    clinic.changes("detached", 5)
    assert clinic.heard == []
    assert clinic.run("db", "release").exit_code == 0
    assert clinic.owner.execute("SELECT FROM pg_event_trigger").fetchall() == []
    clinic.does("CREATE TABLE app.after PARTITION OF app.visits FOR VALUES IN (6)")


def test_a_member_of_the_owner_adds_partitions_that_take_changes(clinic: Clinic) -> None:
    """Of whose tables the owner of the trigger's functions may alter none."""
    clinic.does("CREATE TABLE app.visits (id integer NOT NULL UNIQUE, a text) PARTITION BY LIST (id)")
    clinic.infer()
    clinic.run("db", "capture")
    clinic.owner.execute(
        f"CREATE ROLE migrator LOGIN PASSWORD '{PASSWORD}' IN ROLE {clinic.name};"
        "ALTER FUNCTION capture.identify_new_partitions() OWNER TO headwater_cdc".encode()
    )
    try:
        with clinic.server.connect(clinic.name, "migrator", PASSWORD) as migrator:
            migrator.execute("CREATE TABLE app.visits_1 PARTITION OF app.visits FOR VALUES IN (1)")
            migrator.execute("INSERT INTO app.visits VALUES (1, 'x')")
            assert migrator.execute("UPDATE app.visits SET a = 'y'").rowcount == 1
        assert clinic.identities()["visits_1"] == "f"
    finally:
        clinic.owner.execute("DROP OWNED BY migrator; DROP ROLE migrator")


def test_an_application_that_alters_captured_tables_goes_on(clinic: Clinic) -> None:
    clinic.does(
        "CREATE TABLE app.keyed (id integer PRIMARY KEY, a text);"
        "CREATE TABLE app.unkeyed (id integer NOT NULL UNIQUE, a text);"
        "CREATE TABLE app.parts (id integer NOT NULL UNIQUE, a text) PARTITION BY LIST (id);"
        "CREATE TABLE app.parts_1 PARTITION OF app.parts FOR VALUES IN (1);"
        "CREATE TABLE app.short (id integer PRIMARY KEY, a text)"
    )
    clinic.infer()
    path = clinic.folder / "short.yaml"
    path.write_text(path.read_text().replace("table: app.short", "table: app.short, replica_identity: default"))
    assert clinic.run("db", "capture").exit_code == 0
    clinic.does("ALTER TABLE app.short DROP CONSTRAINT short_pkey")
    clinic.changes("short")
    assert clinic.identities()["short"] == "f"
    clinic.does("ALTER TABLE app.short ADD PRIMARY KEY (id)")
    assert clinic.identities()["short"] == "d"
    assert [text.partition(", because")[0] for text in clinic.heard] == [
        "The captured table app.short got REPLICA IDENTITY FULL"
    ]
    for kind in kinds(clinic):
        clinic.heard.clear()
        for table in ("keyed", "unkeyed", "parts"):
            clinic.does(f"ALTER TABLE app.{table} ADD g integer GENERATED ALWAYS AS (id + 1) {kind}")
            clinic.changes(table)
        if clinic.is_strict:
            # Without a primary key no identity serves: the application goes on, and capture of the table ends.
            assert clinic.identities()["keyed"] == "d"
            assert clinic.published() == {"keyed", "short"}
            assert [text.partition(", because")[0].partition(": it has")[0] for text in clinic.heard] == [
                "The captured table app.keyed got REPLICA IDENTITY DEFAULT",
                "The table app.unkeyed is captured no more",
                "The table app.parts is captured no more",
            ]
        else:
            assert (clinic.heard, clinic.published()) == ([], {"keyed", "parts", "short", "unkeyed"})
        for table in ("keyed", "unkeyed", "parts"):
            clinic.does(f"ALTER TABLE app.{table} DROP g")
            clinic.changes(table)
        assert clinic.identities()["keyed"] == "f"
        assert clinic.run("db", "capture").exit_code == 0
        assert clinic.published() == {"keyed", "parts", "short", "unkeyed"}


def test_columns_that_differ_in_capitals_end_the_capture_of_their_table(clinic: Clinic) -> None:
    clinic.does("CREATE TABLE app.keyed (id integer PRIMARY KEY, a text)")
    clinic.does("CREATE TABLE app.other (id integer PRIMARY KEY, a text)")
    clinic.infer()
    assert clinic.run("db", "capture").exit_code == 0
    clinic.does('ALTER TABLE app.keyed ADD "A" text')
    clinic.changes("keyed")
    assert clinic.published() == {"other"}
    assert "The table app.keyed is captured no more" in clinic.heard[0]
    refused = clinic.run("db", "capture")
    assert refused.exit_code != 0
    assert 'columns that Debezium takes for one: a, "A"' in str(refused.exception)
    clinic.does('ALTER TABLE app.keyed DROP "A"')
    assert clinic.run("db", "capture").exit_code == 0
    assert clinic.published() == {"keyed", "other"}


def test_an_applications_statement_locks_nothing_more(clinic: Clinic) -> None:
    clinic.does("CREATE TABLE app.visits (id integer NOT NULL UNIQUE, a text) PARTITION BY LIST (id)")
    clinic.does("CREATE TABLE app.before PARTITION OF app.visits FOR VALUES IN (1)")
    clinic.infer()
    clinic.run("db", "capture")
    # One that the trigger would set right, and that another session reads.
    clinic.owner.execute("ALTER EVENT TRIGGER headwater_new_partitions DISABLE")
    clinic.owner.execute("ALTER TABLE app.before REPLICA IDENTITY NOTHING")
    clinic.owner.execute("ALTER EVENT TRIGGER headwater_new_partitions ENABLE")
    clinic.does("SET lock_timeout = '100ms'")
    with clinic.server.connect(clinic.name) as reader, reader.transaction(), clinic.application.transaction():
        reader.execute("SELECT FROM app.before")
        clinic.application.execute("CREATE TABLE app.now PARTITION OF app.visits FOR VALUES IN (2)")
        clinic.application.execute("CREATE TABLE app.unrelated (id integer)")
        held = clinic.owner.execute(
            "SELECT DISTINCT relation::regclass::text FROM pg_locks WHERE pid = %s AND mode <> 'AccessShareLock'"
            " AND relation IN ("
            "SELECT oid FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'p'))",
            (clinic.application.info.backend_pid,),
        ).fetchall()
        # Which the statement itself has locked.
        assert held == [("app.visits",)]
        # What the trigger has read, nothing that capture makes waits for.
        clinic.owner.execute("SET lock_timeout = '100ms'")
        for statement in capture_statements():
            clinic.owner.execute(statement.encode())
    assert (clinic.identities()["now"], clinic.heard) == ("f", [])


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "UNIQUE (id)"])
def test_who_may_create_no_event_trigger_is_told_of_partitions(clinic: Clinic, key: str) -> None:
    with clinic.server.connect() as maintenance:
        # As on RDS, where that role gives the right to replicate.
        maintenance.execute(
            f"CREATE ROLE rds_replication REPLICATION; GRANT rds_replication TO {clinic.name} WITH ADMIN OPTION;"
            f"ALTER ROLE {clinic.name} CREATEROLE".encode()
        )
        try:
            clinic.does(f"CREATE TABLE app.visits (id integer NOT NULL, a text, {key}) PARTITION BY LIST (id)")
            clinic.infer()
            clinic.log_in(clinic.name, PASSWORD)
            found = [(place, level) for place, level, _ in clinic.found()]
            result = clinic.run("db", "capture")
            if "UNIQUE" in key:
                assert found[0] == ("app.visits", "unfit")
                assert "ALTER TABLE … REPLICA IDENTITY FULL" in str(result.exception)
                assert (clinic.identities(), clinic.published()) == ({"visits": "d"}, set())
            else:
                assert ("app.visits", "warning") in found
                assert result.exit_code == 0, result
                assert "warning: app.visits: found a partitioned table, and no event trigger" in result.stdout
                assert clinic.identities() == {"visits": "f"}
                clinic.does("CREATE TABLE app.visits_1 PARTITION OF app.visits FOR VALUES IN (1)")
                clinic.changes("visits")
            clinic.run("db", "release")
        finally:
            clinic.owner.execute("DROP OWNED BY rds_replication")
            maintenance.execute("DROP ROLE rds_replication")


def test_replica_identity_using_index_is_refused(clinic: Clinic) -> None:
    clinic.does("CREATE TABLE app.visits (id integer NOT NULL UNIQUE, a text)")
    clinic.does("CREATE TABLE app.parts (id integer PRIMARY KEY, a text) PARTITION BY LIST (id)")
    clinic.does("CREATE TABLE app.parts_1 PARTITION OF app.parts FOR VALUES IN (1)")
    clinic.infer()
    clinic.does("ALTER TABLE app.visits REPLICA IDENTITY USING INDEX visits_id_key")
    clinic.does("ALTER TABLE app.parts_1 REPLICA IDENTITY USING INDEX parts_1_pkey")
    before = clinic.identities()
    assert clinic.found() == [
        ("app.parts_1", "unfit", "REPLICA IDENTITY USING INDEX parts_1_pkey"),
        ("app.visits", "unfit", "REPLICA IDENTITY USING INDEX visits_id_key"),
    ]
    refusal = str(clinic.run("db", "capture").exception)
    assert re.search(
        r"app\.visits: found REPLICA IDENTITY USING INDEX .*ALTER TABLE app\.visits REPLICA IDENT", refusal
    )
    assert clinic.identities() == before
    for path in clinic.folder.iterdir():
        path.unlink()
    result = clinic.infer()
    assert result.exit_code == 1
    assert result.stdout.count("REPLICA IDENTITY USING INDEX") == 2
    assert list(clinic.folder.iterdir()) == []


def test_a_filter_of_another_publication_keeps_the_identity(clinic: Clinic) -> None:
    clinic.does("CREATE TABLE app.visits (id integer PRIMARY KEY, a text)")
    clinic.infer()
    path = clinic.folder / "visits.yaml"
    path.write_text(path.read_text().replace("table: app.visits", "table: app.visits, replica_identity: default"))
    clinic.does("ALTER TABLE app.visits REPLICA IDENTITY FULL")
    clinic.owner.execute("CREATE PUBLICATION others FOR TABLE app.visits WHERE (a <> 'z')")
    try:
        assert "a row filter in the publication others" in str(clinic.run("db", "capture").exception)
        clinic.changes("visits")
    finally:
        clinic.owner.execute("DROP PUBLICATION others")


def test_status_names_tables_that_are_gone_and_wrong_identities(clinic: Clinic) -> None:
    for table in ("dropped", "moved", "renamed", "visits"):
        clinic.does(f"CREATE TABLE app.{table} (id integer PRIMARY KEY, a text) PARTITION BY LIST (id)")
        clinic.does(f"CREATE TABLE app.{table}_1 PARTITION OF app.{table} FOR VALUES IN (1)")
    clinic.infer()
    clinic.run("db", "capture")
    deployed = Deployed(read_environment("dev", EXAMPLE.config), read_contracts(clinic.folder), lambda _: None)

    def found() -> list[tuple[str, str]]:
        told = database.observe(deployed, partial(sources.first_value, clinic.owner)).problems
        return [(problem.runbook, problem.found) for problem in told if problem.runbook != "lost-slot"]

    assert found() == []
    clinic.does("DROP TABLE app.dropped; ALTER TABLE app.renamed RENAME TO other; CREATE SCHEMA elsewhere")
    clinic.does("ALTER TABLE app.moved SET SCHEMA elsewhere")
    clinic.owner.execute("ALTER EVENT TRIGGER headwater_new_partitions DISABLE")
    clinic.does("ALTER TABLE app.visits_1 REPLICA IDENTITY NOTHING")
    gone, misidentified = found()
    others = "no contract names app.other, elsewhere.moved, which the publication has"
    assert gone == ("gone-table", f"dropped or renamed: app.dropped, app.moved, app.renamed; {others}")
    assert misidentified[0] == "quarantine"
    assert misidentified[1].startswith("1 tables or partitions lack the replica identity of their contract")
    assert misidentified[1].endswith(": app.visits_1")


def test_a_log_without_a_limit_is_reported_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresqlServer(tmp_path / "postgres", {"max_slot_wal_keep_size": "-1"}) as server:
        with server.connect() as maintenance:
            maintenance.execute("CREATE DATABASE clinic")
            maintenance.execute(f"CREATE ROLE clinic LOGIN PASSWORD '{PASSWORD}'".encode())
        clinic = Clinic(server, "clinic", tmp_path / "contracts", monkeypatch)
        clinic.does("CREATE TABLE app.visits (id integer PRIMARY KEY, a text)")
        clinic.infer()
        ((place, level, found),) = clinic.found()
        assert (place, level) == ("server", "warning")
        said = r"max_slot_wal_keep_size = -1 \({}slots hold back \d+ .* of it, max_wal_size = 1GB\)"
        assert re.fullmatch(said.format(r"the log has \d+ MB, "), found)
        assert "ALTER SYSTEM SET max_slot_wal_keep_size = '…GB'" in clinic.run("db", "capture").stdout
        clinic.log_in("clinic", PASSWORD)
        ((_, _, found),) = clinic.found()
        assert re.fullmatch(said.format(""), found)
        clinic.owner.close()
        clinic.application.close()

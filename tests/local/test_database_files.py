"""The SQL files of a lake folder on a real PostgreSQL, by ``headwater db create`` and by the deployment's custom
resource."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from typer.testing import CliRunner

from custom_resources import database_bootstrap
from custom_resources.data_api import Database
from custom_resources.lifecycle import Event, Outcome, ResourceFailed
from headwater.cli import app
from headwater.definitions import database_files, source_database
from headwater.definitions.source_database import ROLES
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from rig.local.postgresql_server import PostgresqlServer
from tests.data_api import CLUSTER, OWNER_SECRET, data_api

DATABASE = "shop"
OWNER = "headwater_owner"
BEGAN = 1_000_000.0
PEOPLE = """table: people
description: People
source: {database: postgresql, table: public.people}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
  - {name: name, type: string, source_type: text}
"""
TABLES = "CREATE TABLE people (id integer PRIMARY KEY, name text);\nCREATE TABLE log (at serial, what text);\n"
LOGGED = "INSERT INTO log (what) VALUES ('{}');\n"


class Run(Protocol):
    """Brings the database up to date with a lake folder. Returns the refusal, or ""."""

    def __call__(self, folder: LakeFolder) -> str: ...


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path_factory.mktemp("database_files")) as running:
        yield running


@pytest.fixture
def server(postgres: PostgresqlServer) -> PostgresqlServer:
    """A server like RDS's, with an empty database."""
    return emptied(postgres)


def emptied(postgres: PostgresqlServer) -> PostgresqlServer:
    """The server with an empty database."""
    with postgres.connect() as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)".encode())
        for role in (*ROLES, OWNER, "rds_replication"):
            admin.execute(f"DROP ROLE IF EXISTS {role}".encode())
        admin.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD 'owner'".encode())
        admin.execute(f"CREATE ROLE rds_replication; GRANT rds_replication TO {OWNER} WITH ADMIN OPTION".encode())
        admin.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}".encode())
    return postgres


@pytest.fixture
def folder(tmp_path: Path) -> LakeFolder:
    """A lake folder with a contract of a table ``people``."""
    folder = LakeFolder.make(tmp_path / "lake", "shop")
    (folder.contracts / "people.yaml").write_text(PEOPLE)
    return folder


def write(folder: LakeFolder, **files: str) -> None:
    """Write SQL files: ``_1_tables="…"`` is ``1_tables.sql``."""
    folder.database.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder.database / f"{name.removeprefix('_')}.sql").write_text(text)


def owner(server: PostgresqlServer) -> psycopg.Connection:
    return server.connect(DATABASE, OWNER, "owner")


def command(server: PostgresqlServer, *arguments: str) -> tuple[int, str]:
    """Run ``headwater db`` as the owner; the status and all that it says."""
    where = ["--host", server.host, "--port", str(server.port), "--user", OWNER, "--database", DATABASE]
    passwords = {f"{role.upper()}_PASSWORD": f"of {role}" for role in ROLES} | {"HEADWATER_DB_PASSWORD": "owner"}
    done = CliRunner().invoke(app, ["db", *arguments, *where], env=passwords)
    return done.exit_code, done.output + str(done.exception or "")


def by_command(server: PostgresqlServer, folder: LakeFolder) -> str:
    """Run the files by ``headwater db create``."""
    status, said = command(server, "create", "--folder", str(folder.root))
    return said if status else ""


def by_custom_resource(server: PostgresqlServer, folder: LakeFolder) -> str:
    """Run the files by the deployment's custom resource."""
    try:
        assert step(server, folder) == {"IsComplete": True, "Data": {}}
    except (ResourceFailed, UserError) as error:
        return str(error)
    return ""


RUNS = {"db create": by_command, "custom resource": by_custom_resource}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, server: PostgresqlServer) -> Run:
    """Both ways to run the files."""
    return partial(RUNS[request.param], server)


def step(server: PostgresqlServer, folder: LakeFolder) -> Outcome:
    """A step of the custom resource of the database's content."""
    properties: dict[str, Any] = {
        "ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": DATABASE, "Statements": "s3://b/k",
        "RoleSecrets": {role: role for role in ROLES},
    }  # fmt: skip
    event: Event = {
        "RequestType": "Update",
        "PhysicalResourceId": "headwater-test",
        "ResourceProperties": properties,
        "Data": {"Began": str(BEGAN)},
    }
    document = {
        "statements": source_database.created_statements(),
        **database_files.document(database_files.read_database_files(folder.database)),
    }

    def secret(role: str) -> dict[str, Any]:
        return {"username": role, "password": f"of {role}"}

    client = data_api(lambda: owner(server))
    return database_bootstrap.content_step(
        event, Database(client, properties), lambda address: document, secret, BEGAN + 200
    )


def logged(server: PostgresqlServer) -> list[str]:
    with owner(server) as connection:
        return [str(what) for (what,) in connection.execute("SELECT what FROM log ORDER BY at").fetchall()]


def test_files_run_once_in_the_order_of_their_numbers(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    write(folder, _10_last=LOGGED.format("ten"), _2_next=LOGGED.format("two"), _1_tables=TABLES)
    for _ in range(2):
        assert run(folder) == ""
        assert logged(server) == ["two", "ten"]
    write(folder, _11_more=LOGGED.format("eleven"))
    assert run(folder) == ""
    assert logged(server) == ["two", "ten", "eleven"]


def test_a_file_that_fails_goes_on_at_its_statement(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    write(folder, _1_tables=TABLES)
    assert run(folder) == ""
    start = f"-- Two and a half.\n{LOGGED.format('a')}{LOGGED.format('b')}"
    write(folder, _2_more=start + "INSERT INTO lag VALUES (1);\n" + LOGGED.format("c"), _3_later=LOGGED.format("d"))
    for _ in range(2):
        refused = run(folder)
        assert re.search(r'database/2_more\.sql, line 4: .*relation "lag" does not exist', refused), refused
        assert logged(server) == ["a", "b"]
    # What has run stays as it is; what follows may change.
    write(folder, _2_more=start + LOGGED.format("c"))
    assert run(folder) == ""
    assert logged(server) == ["a", "b", "c", "d"]


def test_what_failed_may_be_left_out(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    write(folder, _1_tables=TABLES + LOGGED.format("a") + "SELECT 1 / 0;")
    assert "line 4: " in run(folder)
    write(folder, _1_tables=TABLES + LOGGED.format("a"))
    assert run(folder) == ""
    write(folder, _1_tables=TABLES + LOGGED.format("a") + LOGGED.format("b"))
    assert "database/1_tables.sql: found 4 statements, expected 3, as many as have run" in run(folder)
    assert logged(server) == ["a"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_file_whose_statements_ran_is_refused_changed(
    server: PostgresqlServer, folder: LakeFolder, run: Run, finished: bool
) -> None:
    end = "" if finished else "SELECT 1 / 0;\n"
    write(folder, _1_tables=TABLES, _2_more=LOGGED.format("a") + end)
    assert bool(run(folder)) is not finished
    write(folder, _2_more=LOGGED.format("A") + end, _3_later=LOGGED.format("d"))
    refused = run(folder)
    found = r"database/2_more\.sql: found the checksum [0-9a-f]{12} of its first 1 statements, expected [0-9a-f]{12}"
    assert re.search(found, refused), refused
    advice = "another file of a number above 2" if finished else "change only those behind them"
    assert advice in refused
    assert logged(server) == ["a"]
    # Comments between statements do not run.
    write(folder, _2_more="-- Again.\n" + LOGGED.format("a") + "-- The end.\n")
    assert run(folder) == ""
    assert logged(server) == ["a", "d"]


@pytest.mark.parametrize("name", ["_1_before", "_2_renamed"])
def test_a_new_file_before_one_that_ran_is_refused(
    server: PostgresqlServer, folder: LakeFolder, run: Run, name: str
) -> None:
    write(folder, _0_tables=TABLES, _2_more=LOGGED.format("a"))
    assert run(folder) == ""
    if name == "_2_renamed":
        (folder.database / "2_more.sql").unlink()
    write(folder, **{name: LOGGED.format("b")})
    found = f"database/{name[1:]}.sql: found a new file where 2_more.sql has run, expected a number above 2"
    assert found in run(folder)
    assert logged(server) == ["a"]


def test_a_file_that_ran_is_refused_under_another_name(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    write(folder, _1_tables=TABLES, _2_more=LOGGED.format("a"))
    assert run(folder) == ""
    moved = (folder.database / "2_more.sql").rename(folder.database / "9_more.sql")
    found = "database/9_more.sql: found the statements of 2_more.sql, which have run, expected that file under its name"
    assert found in run(folder)
    assert logged(server) == ["a"]
    # Beside the file that ran, the same statements are meant to run again.
    write(folder, _2_more=moved.read_text())
    assert run(folder) == ""
    assert logged(server) == ["a", "a"]


def test_the_files_of_before_a_failed_deploy_are_taken(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    write(folder, _1_tables=TABLES)
    assert run(folder) == ""
    write(folder, _2_more=LOGGED.format("a"), _3_half=LOGGED.format("b") + "SELECT 1 / 0;")
    assert run(folder) != ""
    for name in ("2_more", "3_half"):
        (folder.database / f"{name}.sql").unlink()
    assert run(folder) == ""
    # Others may follow when the rest of the file is decided.
    write(folder, _4_later=LOGGED.format("d"))
    found = "database/3_half.sql: found no such file, expected it before 4_later.sql: its first 1 statements have run"
    assert found in run(folder)
    write(folder, _3_half=LOGGED.format("b"))
    assert run(folder) == ""
    assert logged(server) == ["a", "b", "d"]


def test_a_set_holds_until_the_end_of_its_file(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    dumped = """
        SET statement_timeout = 0;
        SET lock_timeout = 0;
        SET client_encoding = 'UTF8';
        SELECT pg_catalog.set_config('search_path', 'own', false);
        SET check_function_bodies = false;
        CREATE FUNCTION size() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM kept';
        CREATE TABLE kept (id integer);
    """
    write(folder, _1_tables=TABLES + "CREATE SCHEMA own;", _2_dumped=dumped, _3_more="INSERT INTO own.kept VALUES (1);")
    write(folder, _4_end=LOGGED.format("end"))
    assert run(folder) == ""
    with owner(server) as connection:
        connection.execute("SET search_path = own")
        assert connection.execute("SELECT own.size()").fetchone() == (1,)
    assert logged(server) == ["end"]


TEXTS = [
    '{"a":true,"b":null}',
    "a \\ and E'\\\\n",
    "$$ and $statement$ and $headwater$",
    "100 % and %s and %(file)s",
    "ä € 𝄞",
]


def test_a_statement_reaches_the_server_as_it_is(server: PostgresqlServer, folder: LakeFolder, run: Run) -> None:
    texts = [text.replace("'", "''") for text in TEXTS]
    write(folder, _1_tables=TABLES + "".join(LOGGED.format(text) for text in texts))
    assert run(folder) == ""
    assert logged(server) == TEXTS


def test_the_terminals_encoding_changes_no_statement(
    server: PostgresqlServer, folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, _1_tables=TABLES + LOGGED.format("ä € 𝄞"))
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert command(server, "create", "--folder", str(folder.root))[0] == 0
    monkeypatch.delenv("PGCLIENTENCODING")
    assert logged(server) == ["ä € 𝄞"]


def test_the_roles_are_there_for_the_files_and_the_reader_reads(
    server: PostgresqlServer, folder: LakeFolder, run: Run
) -> None:
    more = "CREATE SCHEMA own;\nCREATE TABLE own.kept (id integer);\nGRANT INSERT ON log TO headwater_app;\n"
    write(folder, _1_tables=TABLES + more)
    assert run(folder) == ""
    with server.connect(DATABASE, "headwater_app", "of headwater_app") as application:
        application.execute("INSERT INTO log VALUES (1, 'by the application')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute("SELECT FROM people")
    with server.connect(DATABASE, "headwater_reader", "of headwater_reader") as reader:
        for table in ("people", "log", "own.kept", "capture.heartbeat", "capture.database_files"):
            reader.execute(f"SELECT FROM {table}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("CALL capture.run_statement('1_x.sql', 1, 1, '', '{}', 'SELECT 1')")


def test_without_files_the_database_has_only_what_capture_needs(server: PostgresqlServer, folder: LakeFolder) -> None:
    assert step(server, folder)["IsComplete"]
    with owner(server) as connection:
        schemas = connection.execute(
            "SELECT DISTINCT nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        ).fetchall()
    assert schemas == [("capture",)]


def test_files_make_the_tables_that_contracts_then_describe(server: PostgresqlServer, folder: LakeFolder) -> None:
    (folder.contracts / "people.yaml").unlink()
    write(folder, _1_tables=TABLES)
    status, said = command(server, "create", "--folder", str(folder.root))
    assert status == 0, said
    # As the command says; "--schema SCHEMA" names the schema.
    (told,) = re.findall("`headwater (contract infer --schema )SCHEMA (.*)`", said)
    words = [*told[0].split(), "public", *told[1].split(), "--folder", str(folder.root)]
    # The log has no key, so that it gets no contract.
    assert CliRunner().invoke(app, words, env={"HEADWATER_DB_PASSWORD": "owner"}).exit_code == 1
    assert [path.name for path in folder.contracts.iterdir()] == ["people.yaml"]
    status, said = command(server, "create", "--folder", str(folder.root))
    assert (status, "published: public.people," in said, "contract infer" in said) == (0, True, False)


def test_a_long_run_takes_several_steps(
    server: PostgresqlServer, folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_bootstrap, "_STEP_SECONDS", -1.0)
    write(folder, _1_tables=TABLES + LOGGED.format("a"))
    assert [step(server, folder)["IsComplete"] for _ in range(3)] == [False, False, True]
    assert logged(server) == ["a"]


def test_a_statement_that_another_run_has_run_does_not_run_again(server: PostgresqlServer, folder: LakeFolder) -> None:
    write(folder, _1_tables=TABLES, _2_more=LOGGED.format("a") + LOGGED.format("b"))
    assert step(server, folder)["IsComplete"]
    calls = database_files.read_database_files(folder.database)[1].calls()
    api = Database(
        data_api(lambda: owner(server)), {"ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": DATABASE}
    )
    for call in calls:
        api.execute(call.sql, call.parameters)
    assert logged(server) == ["a", "b"]


def test_the_command_shows_which_files_ran(server: PostgresqlServer, folder: LakeFolder) -> None:
    write(folder, _1_tables=TABLES, _2_more=LOGGED.format("a") + "SELECT 1 / 0;")
    status, said = command(server, "create", "--folder", str(folder.root))
    assert status != 0
    assert "Running database/1_tables.sql, from line 1 on" in said
    assert "1 of 2 statements of the file have run; the next run goes on here" in said
    status, said = command(server, "status")
    assert status == 0
    assert re.search(r"file +1_tables\.sql ran on 20", said)
    assert re.search(r"file +2_more\.sql not done: 1 statements have run", said)
    assert re.search(r"public\.people +0 rows", said)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("CREATE TABLE mine (id integer)", "table public.mine"),
        ("CREATE VIEW mine AS SELECT 1 AS id", "view public.mine"),
        ("CREATE SEQUENCE mine", "sequence public.mine"),
        ("CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "function public.mine()"),
        ("CREATE TYPE mine AS ENUM ('a')", "type public.mine"),
        (
            "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far;"
            "CREATE FOREIGN TABLE mine (id integer) SERVER far",
            "foreign table public.mine",
        ),
        ("CREATE SCHEMA capture CREATE TABLE mine (id integer)", "table capture.mine"),
    ],
    ids=["table", "view", "sequence", "function", "type", "foreign-table", "capture"],
)
def test_a_database_of_ones_own_is_neither_created_nor_dropped(
    server: PostgresqlServer, folder: LakeFolder, content: str, found: str
) -> None:
    with server.connect(DATABASE) as connection:
        connection.execute(content.encode())
        before = connection.execute("SELECT oid FROM pg_class UNION ALL SELECT oid FROM pg_proc").fetchall()
    status, said = command(server, "create", "--folder", str(folder.root))
    assert status != 0
    assert f"found the {found}, expected an empty database" in said
    status, said = command(server, "drop", "--yes")
    assert status != 0
    assert f"{DATABASE}: found no database that `headwater db create` or a deployment made" in said
    with server.connect(DATABASE) as connection:
        after = connection.execute("SELECT oid FROM pg_class UNION ALL SELECT oid FROM pg_proc").fetchall()
    assert after == before


def test_a_create_that_ended_early_goes_on(server: PostgresqlServer, folder: LakeFolder) -> None:
    write(folder, _1_tables=TABLES)
    with owner(server) as connection:
        for statement in source_database.capture_statements():
            connection.execute(statement.encode())
    status, said = command(server, "create", "--folder", str(folder.root))
    assert status == 0, said
    assert logged(server) == []


def test_a_drop_takes_what_the_files_made(server: PostgresqlServer, folder: LakeFolder) -> None:
    write(folder, _1_tables=TABLES + 'CREATE SCHEMA "Own";\nCREATE TABLE "Own".kept (id integer);\n')
    for _ in range(2):
        assert command(server, "create", "--folder", str(folder.root))[0] == 0
        status, said = command(server, "drop", "--yes")
        assert status == 0, said
        with owner(server) as connection:
            left = connection.execute(
                "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_' UNION ALL"
                " SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
            ).fetchall()
        assert left == [("information_schema",), ("public",)]


CHILD = "CREATE TABLE child (id integer REFERENCES people DEFERRABLE INITIALLY DEFERRED);\n"
TAKEN = {
    "dollar quotes": (
        "CREATE FUNCTION two() RETURNS text LANGUAGE sql AS $a$ SELECT '; $$ -- ' /* ; */ $a$;\n"
        "INSERT INTO log (what) SELECT two();\n"
    ),
    "comments": "/* a; /* b; */ -- c */ INSERT INTO log (what) VALUES /* ; */ ('--') -- ;\n; -- end",
    "atomic": (
        "CREATE FUNCTION one() RETURNS integer BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END;\n"
        "INSERT INTO log (what) SELECT one();\n"
    ),
    "a block": "DO $$ BEGIN FOR i IN 1..2 LOOP INSERT INTO log (what) VALUES (i); END LOOP; END $$;\n",
    "rows that nobody reads": "SELECT set_config('a.b', 'c', false), 1;\nSELECT * FROM log;\n",
}
REFUSED = {
    "a block that commits": ("", "DO $$ BEGIN COMMIT; END $$;\n", "line 2: .*invalid transaction termination"),
    "a failure": (LOGGED.format("b"), "SELECT 1 / 0;\n", "line 3: .*division by zero"),
    "a failure behind a SET": ("", f"SET search_path = none;\n{LOGGED}", 'line 3: .*relation "log" does not'),
    "a deferred failure": (CHILD, "INSERT INTO child VALUES (1);\n", "line 3: .*violates foreign key constraint"),
    "an index beside others": ("", "CREATE INDEX CONCURRENTLY ON log (at);\n", "line 2: found CREATE INDEX CONC"),
    "a hidden index": ("", "DO $$ BEGIN EXECUTE 'CREATE INDEX CONCURRENTLY ON log (at)'; END $$;\n", "line 2: .*CONC"),
    "rows of psql": ("", "COPY log FROM STDIN;\n1\ta\n\\.\n", "line 2: found a COPY whose rows psql sends"),
    "a psql meta-command": ("", "\\i other.sql\n", r"line 2: found \\i other\.sql, a psql meta-command"),
    "a character NUL": ("", "INSERT INTO log (what) VALUES ('\0');\n", "line 2: found the character NUL"),
    **{
        f"the SQLSTATE {state}": (
            "",
            f"DO $$ BEGIN RAISE 'raised' USING ERRCODE = '{state}'; END $$;\n",
            "line 2: .*raised",
        )
        for state in ("40001", "42501", "42P01", "55000", "55006", "57014")
    },
}


def test_both_ways_to_run_files_end_alike(postgres: PostgresqlServer, folder: LakeFolder) -> None:
    ends = []
    for run in RUNS.values():
        server = emptied(postgres)
        shutil.rmtree(folder.database, ignore_errors=True)
        write(folder, _1_tables=TABLES)
        for number, (name, text) in enumerate(TAKEN.items(), start=2):
            write(folder, **{f"_{number}_nasty": LOGGED.format(name) + text})
        assert run(server, folder) == ""
        for number, (name, (begins, text, refusal)) in enumerate(REFUSED.items(), start=100):
            write(folder, **{f"_{number}_nasty": LOGGED.format(name) + begins + text})
            said = run(server, folder)
            assert re.search(refusal, said, re.DOTALL), (name, said)
            # Without the refused statement, the file goes on behind those that ran.
            write(folder, **{f"_{number}_nasty": LOGGED.format(name) + begins + "SELECT 1;\n"})
            assert run(server, folder) == ""
        with owner(server) as connection:
            records = (
                "SELECT name, statements_done, checksum, finished_at IS NULL FROM capture.database_files ORDER BY 1"
            )
            ends.append((connection.execute(records).fetchall(), logged(server)))
    assert ends[0] == ends[1]
    assert {*TAKEN, *REFUSED} <= set(ends[0][1])

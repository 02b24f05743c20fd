"""What ``headwater verify`` does if one table or one source cannot be read: it compares all others, and says why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands import lakes, sources
from headwater.commands.postgresql import connected
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.verify import Lake, paced_reader, read_lake
from rig.local.aws import REGION, AwsApi
from rig.local.postgresql_server import PostgresqlServer
from rig.local.processes import free_port

DATABASE = "uncompared"
ROLE = "uncompared_reader"
WHOLE = ["first", "next"]


class Done(NamedTuple):
    """How the command has ended."""

    status: int
    output: str
    error: str

    def compared(self) -> dict[str, dict[str, Any]]:
        """The compared tables of ``--json``, by name."""
        return {table["name"]: table for table in json.loads(self.output)["tables"]}


class Command:
    """``headwater verify`` in a lake folder, as a role of its own, over a lake of a local folder."""

    def __init__(self, server: PostgresqlServer, folder: LakeFolder, lake: Path) -> None:
        self.folder = folder
        self.lake = lake
        self.database_url = f"postgresql://{ROLE}@{server.host}:{server.port}/{DATABASE}"

    def describe(self, table: str, more: Mapping[str, tuple[str, str]] | None = None, **fields: Any) -> None:
        """Write the contract of a table whose key is ``id``, and which has ``more`` columns."""
        named = {"id": ("int", "integer"), **(more or {})}
        document = {
            "table": table,
            "description": "For a test.",
            "source": {"database": "postgresql", "table": f"public.{table}"},
            "key": ["id"],
            "partition_by": [],
            "buckets": 1,
            "columns": [{"name": name, "type": of, "source_type": at} for name, (of, at) in named.items()],
            **fields,
        }
        (self.folder.contracts / f"{table}.yaml").write_text(yaml.safe_dump(document))

    def run(self, *options: str) -> Done:
        """Run the command, and return its end as a shell sees it."""
        given = ["--folder", str(self.folder.root), "--lake", str(self.lake), "--database-url", self.database_url]
        done = CliRunner().invoke(app, ["verify", *given, *options])
        if isinstance(done.exception, UserError):
            return Done(2, done.stdout, str(done.exception))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Done(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def database(postgres: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with postgres.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{postgres.password}'")
    with postgres.connect(DATABASE) as connection:
        yield connection


@pytest.fixture
def command(
    postgres: PostgresqlServer, database: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Tables ``first`` and ``next`` have a row that the lake lacks; a table of the test comes between them."""
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", postgres.password)
    database.execute("DROP SCHEMA public CASCADE")
    database.execute("CREATE SCHEMA public")
    database.execute(f"GRANT USAGE ON SCHEMA public TO {ROLE}")
    database.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {ROLE}")
    command = Command(postgres, LakeFolder.make(tmp_path / "described", "test"), tmp_path / "lake")
    for table in WHOLE:
        database.execute(f"CREATE TABLE {table} AS SELECT 1 AS id".encode())
        command.describe(table)
    return command


def assert_others_are_compared(command: Command, reason: str, *more: str) -> None:
    """Run the command: it compares ``first`` and ``next``, and nothing else, for the reason given."""
    done = command.run()
    assert (done.status, done.output.count("id = 1: missing")) == (2, 2), done
    for part in (reason, *more):
        assert part in done.error
    found = command.run("--json")
    assert found.status == 2
    assert {name: table["missing"] for name, table in found.compared().items()} == dict.fromkeys(WHOLE, 1)
    assert reason in json.loads(found.output)["not_compared"]["middle"]


def test_a_renamed_column_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE TABLE middle (id integer, freight numeric, note text)")
    database.execute("ALTER TABLE middle RENAME freight TO carriage")
    command.describe("middle", {"freight": ("decimal(9,2)", "numeric(9,2)"), "note": ("string", "text")})
    reason = "contracts/middle.yaml: columns: freight: found no column freight in public.middle"
    assert_others_are_compared(command, reason, "carriage", "from:")


def test_a_table_that_is_gone_costs_one_table(command: Command) -> None:
    command.describe("middle")
    reason = f"contracts/middle.yaml: source.table: found no table public.middle in the database {DATABASE}"
    assert_others_are_compared(command, reason, "docs/runbooks/gone-table.md")


def test_a_missing_right_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE TABLE middle (id integer)")
    database.execute(f"REVOKE ALL ON middle FROM {ROLE}")
    command.describe("middle")
    grant = f"GRANT SELECT ON public.middle TO {ROLE}"
    assert_others_are_compared(command, "permission denied for table middle", grant)


def test_a_value_that_cannot_be_read_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE VIEW middle AS SELECT id, 1 / (id - 1) AS share FROM first")
    command.describe("middle", {"share": ("int", "integer")})
    assert_others_are_compared(command, "reading public.middle failed: division by zero (22012)")


def test_a_lost_connection_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE VIEW middle AS SELECT id, pg_terminate_backend(pg_backend_pid()) AS gone FROM first")
    command.describe("middle", {"gone": ("boolean", "boolean")})
    assert_others_are_compared(command, "reading public.middle failed: terminating connection", "run the command again")


def test_a_server_that_is_gone_is_not_tried_for_each_table(
    database: psycopg.Connection, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE VIEW middle AS SELECT id, pg_terminate_backend(pg_backend_pid()) AS gone FROM first")
    command.describe("middle", {"gone": ("boolean", "boolean")})
    command.describe("other")
    tries = 0

    def once(*login: Any, **where: Any) -> psycopg.Connection:
        nonlocal tries
        tries += 1
        if tries > 1:
            raise UserError("the server is gone")
        return connected(*login, **where)

    monkeypatch.setattr(sources, "connected", once)
    done = command.run()
    assert (done.status, tries) == (2, 2)
    assert "the server is gone" in done.error


def test_a_locked_table_costs_one_table(
    postgres: PostgresqlServer, database: psycopg.Connection, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE middle (id integer)")
    command.describe("middle")
    monkeypatch.setitem(paced_reader.SESSION, "lock_timeout", "100ms")
    with postgres.connect(DATABASE) as other, other.transaction():
        other.execute("LOCK TABLE middle IN ACCESS EXCLUSIVE MODE")
        assert_others_are_compared(command, "middle failed: canceling statement due to lock timeout", "pg_locks")


def test_an_unknown_type_costs_one_table(command: Command) -> None:
    command.describe("middle", {"moods": ("array<string>", "mood[]")})
    assert_others_are_compared(command, "middle.yaml: columns[1].type: found array<string> from mood[]")


def test_a_file_that_is_no_yaml_costs_one_table(command: Command) -> None:
    (command.folder.contracts / "middle.yaml").write_text("table: [")
    assert_others_are_compared(command, "middle.yaml")


def test_text_in_place_of_json_is_a_difference(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE TABLE middle AS SELECT 1 AS id, 'no document' AS data")
    columns = [
        {"name": "id", "type": "int", "source_type": "integer"},
        {"name": "size", "type": "int", "from": "data.size"},
    ]
    command.describe("middle", columns=columns)
    done = command.run("--json")
    assert (done.status, done.compared()["middle"]["missing"]) == (1, 1)


def test_an_unreadable_lake_table_costs_no_read_of_its_source(command: Command) -> None:
    # A read of the source would find that the table is gone.
    command.describe("middle")
    (command.lake / "middle" / ".hoodie").mkdir(parents=True)
    (command.lake / "middle" / ".hoodie" / "hoodie.properties").write_text("nonsense")
    assert_others_are_compared(command, "middle cannot be read as a Hudi table")


def test_a_crash_while_a_lake_table_is_read_costs_one_table(
    database: psycopg.Connection, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
        if uri.endswith("/middle"):
            raise ZeroDivisionError("secret")
        return read_lake(uri, storage)

    database.execute("CREATE TABLE middle (id integer)")
    command.describe("middle")
    monkeypatch.setattr(lakes, "lake_at", lambda *_: Lake(command.lake.as_uri(), {}, read))
    assert_others_are_compared(command, "middle: the comparison failed with ZeroDivisionError")
    assert "secret" not in command.run().error


def test_a_key_found_twice_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE TABLE middle AS SELECT 7 AS id UNION ALL SELECT 7")
    command.describe("middle")
    assert_others_are_compared(command, "the source has id = 7 twice")


def test_a_query_file_that_is_gone_costs_one_table(command: Command) -> None:
    command.describe("middle", verify_with="gone.sql")
    assert_others_are_compared(command, "gone.sql cannot be read")


def test_a_missing_mask_key_costs_one_table(database: psycopg.Connection, command: Command) -> None:
    database.execute("CREATE TABLE middle (id integer, email text)")
    command.describe("middle", {"email": ("string", "text")}, mask={"email": "hmac"})
    assert_others_are_compared(command, "found hmac masks and no key")


class TestSources:
    @pytest.fixture
    def items(self, aws_api: AwsApi, command: Command, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A DynamoDB table ``items`` with one item that the lake lacks, and the options that find it."""
        for name, value in aws_api.credentials.items():
            monkeypatch.setenv(name, value)
        source = {"database": "dynamodb", "table": "uncompared-items"}
        columns = [{"name": "id", "type": "string", "source_type": "S"}]
        command.describe("items", source=source, columns=columns)
        client = aws_api.client("dynamodb")
        if "uncompared-items" not in client.list_tables()["TableNames"]:
            client.create_table(
                TableName="uncompared-items",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            )
            client.put_item(TableName="uncompared-items", Item={"id": {"S": "a"}})
        return ["--dynamodb-endpoint", aws_api.endpoint, "--region", REGION]

    def test_without_postgresql_dynamodbs_tables_are_compared(self, command: Command, items: list[str]) -> None:
        command.database_url = f"postgresql://{ROLE}@127.0.0.1:{free_port()}/{DATABASE}"
        done = command.run("--json", *items)
        assert done.status == 2
        assert {name: table["missing"] for name, table in done.compared().items()} == {"items": 1}
        assert sorted(json.loads(done.output)["not_compared"]) == WHOLE
        assert "Cannot connect to the database" in done.error

    def test_without_dynamodb_postgresqls_tables_are_compared(self, command: Command, items: list[str]) -> None:
        items[1] = f"http://127.0.0.1:{free_port()}"
        done = command.run("--json", *items)
        assert done.status == 2
        assert {name: table["missing"] for name, table in done.compared().items()} == dict.fromkeys(WHOLE, 1)
        assert "Could not connect to the endpoint URL" in json.loads(done.output)["not_compared"]["items"]

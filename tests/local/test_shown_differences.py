"""The rows that differ, as ``headwater verify`` shows them: by key and column, with both values and the next step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import lakes
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.verify import MAX_EXAMPLES
from rig.local.postgresql_server import PostgresqlServer
from tests.hudi_folder import write_table

DATABASE = "shown"
KEY = b"a key of masks, of 32 bytes or more"
SECRETS = ("ann@example.com", "555-0199", "hunter2")


class Command:
    """``headwater verify`` of a lake in a local folder."""

    def __init__(self, server: PostgresqlServer, source: psycopg.Connection, folder: LakeFolder, lake: Path) -> None:
        self.source = source
        self.folder = folder
        self.lake = lake
        self._url = f"postgresql://{server.superuser}@{server.host}:{server.port}/{DATABASE}"

    def add(self, table: str, rows: str, lake: dict[str, list[Any]], **fields: Any) -> None:
        """Make a table of the ``rows`` of a query, its contract, and its table in the lake."""
        self.source.execute(f"CREATE TABLE {table} AS {rows}".encode())
        others = [{"name": name, "type": "string", "source_type": "text"} for name in lake if name != "id"]
        document = {
            "table": table,
            "description": "For a test.",
            "source": {"database": "postgresql", "table": f"public.{table}"},
            "key": ["id"],
            "partition_by": [],
            "buckets": 1,
            "columns": [{"name": "id", "type": "int", "source_type": "integer"}, *others],
            **fields,
        }
        (self.folder.contracts / f"{table}.yaml").write_text(yaml.safe_dump(document))
        ids = {"id": pa.array(lake["id"], pa.int32())}
        texts = {name: pa.array(values, pa.string()) for name, values in lake.items() if name != "id"}
        write_table(self.lake / table, pa.table({**ids, **texts}))

    def run(self, *options: str) -> Result:
        """Run the command."""
        places = ["--folder", str(self.folder.root), "--lake", str(self.lake), "--database-url", self._url]
        return CliRunner().invoke(app, ["verify", *places, *options])


@pytest.fixture(scope="module")
def source(postgres: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with postgres.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    with postgres.connect(DATABASE) as connection:
        yield connection


@pytest.fixture
def command(
    postgres: PostgresqlServer, source: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", postgres.password)
    monkeypatch.setattr(lakes.NamedLake, "mask_key", KEY)
    source.execute("DROP SCHEMA public CASCADE")
    source.execute("CREATE SCHEMA public")
    return Command(postgres, source, LakeFolder.make(tmp_path / "described", "test"), tmp_path / "lake")


def test_rows_that_differ_are_shown_with_both_values(command: Command) -> None:
    command.add(
        "orders",
        "SELECT id, 'a' || id AS note FROM generate_series(1, 3) AS id",
        {"id": [1, 2, 4], "note": ["a1", "stale", "a4"]},
    )
    done = command.run()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[lines.index("orders id = 2: different") + 1] == "  note: source a2 | lake stale"
    assert {"orders id = 3: missing", "orders id = 4: extra"} < set(lines)
    steps = {line.split(": ")[1]: line for line in lines if line.startswith("orders: ")}
    assert "`headwater verify --table orders --repair`" in steps["missing rows (1)"]
    assert "`headwater resync orders`" in steps["extra rows (1)"]
    assert "docs/runbooks/differs.md" in steps["different rows (1)"]


def test_json_carries_the_rows_and_the_next_steps(command: Command) -> None:
    command.add("orders", "SELECT 1 AS id, 'new' AS note", {"id": [1], "note": ["old"]})
    (table,) = json.loads(command.run("--json").stdout)["tables"]
    assert table["examples"] == [{"kind": "different", "key": {"id": "1"}, "columns": {"note": ["new", "old"]}}]
    assert list(table["next_steps"]) == ["different"]


def test_ten_rows_are_shown_and_some_of_each_kind(command: Command) -> None:
    command.add(
        "orders",
        "SELECT id, 'new' AS note FROM generate_series(1, 50) AS id",
        {"id": list(range(20, 81)), "note": ["old"] * 61},
    )
    (table,) = json.loads(command.run("--json").stdout)["tables"]
    assert (table["missing"], table["extra"], table["different"]) == (19, 30, 31)
    kinds = [example["kind"] for example in table["examples"]]
    assert len(kinds) == MAX_EXAMPLES == 10
    assert {kind: kinds.count(kind) for kind in kinds} == {"extra": 4, "missing": 3, "different": 3}


def test_a_long_value_is_cut_beside_its_difference(command: Command) -> None:
    command.add(
        "orders", "SELECT 1 AS id, repeat('x', 5000) || 'new' AS note", {"id": [1], "note": ["x" * 5000 + "old"]}
    )
    done = command.run()
    assert "source …xxxxxxxxxxxxxxxxxxxxnew | lake …xxxxxxxxxxxxxxxxxxxxold\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 300


def test_a_value_cannot_steer_the_terminal(command: Command) -> None:
    command.add("orders", "SELECT 1 AS id, E'\\x1b[2J[red]' AS note", {"id": [1], "note": ["b"]})
    assert "  note: source ?[2J[red] | lake b\n" in command.run().stdout


def test_a_masked_value_is_never_shown(command: Command) -> None:
    # The lake's rows are from before the contract masked the columns.
    command.add(
        "people",
        f"SELECT 1 AS id, '{SECRETS[0]}' AS email, '{SECRETS[1]}' AS phone, 'a' AS note",
        {"id": [1], "email": [SECRETS[0]], "phone": [SECRETS[1]], "note": ["b"]},
        mask={"email": "hmac", "phone": None},
    )
    shown = command.run()
    assert "  note: source a | lake b" in shown.stdout
    assert "| lake (hidden)" in shown.stdout
    assert "  phone: source null | lake (hidden)" in shown.stdout
    for done in (shown, command.run("--json")):
        assert done.exit_code == 1
        assert not any(secret in done.output for secret in SECRETS)


class TestOneTable:
    @pytest.fixture(autouse=True)
    def tables(self, command: Command) -> None:
        for table in ("apples", "bears", "cats"):
            command.add(table, "SELECT 1 AS id", {"id": [1]})

    def test_the_named_tables_are_compared(self, command: Command) -> None:
        found = json.loads(command.run("--json", "--table", "cats", "--table", "apples").stdout)
        assert [table["name"] for table in found["tables"]] == ["cats", "apples"]

    def test_another_tables_trouble_is_no_reason_to_fail(self, command: Command) -> None:
        (command.folder.contracts / "bears.yaml").write_text("table: [")
        assert command.run("--table", "cats").exit_code == 0
        assert isinstance(command.run("--table", "bears").exception, UserError)

    def test_a_name_without_a_contract_is_refused(self, command: Command) -> None:
        refused = command.run("--table", "dogs").exception
        assert isinstance(refused, UserError)
        assert "--table: found 'dogs', expected one of apples, bears, cats" in str(refused)

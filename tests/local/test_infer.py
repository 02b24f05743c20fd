"""``headwater contract infer`` on a real PostgreSQL: what a schema may hold that nobody made for Headwater."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.contract.model import Contract
from headwater.contract.reading import read_contract
from headwater.errors import UserError
from rig.local.postgresql_server import PostgresqlServer
from tests.lake_folders import lake_folder

Infer = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path_factory.mktemp("infer")) as running:
        yield running


@pytest.fixture
def shop(server: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with server.connect() as admin:
        admin.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        admin.execute("CREATE DATABASE shop")
    with server.connect("shop") as owner:
        yield owner


@pytest.fixture
def infer(server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Infer:
    """Infers contracts into the folder ``contracts`` of the test's folder."""
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", server.password)
    monkeypatch.setenv("COLUMNS", "1000")
    (tmp_path / "contracts").mkdir()
    folder = lake_folder(tmp_path / "lake", tmp_path / "contracts").root

    def run(*more: str, schema: str = "public", database: str = "shop") -> Result:
        at = ["--host", server.host, "--port", str(server.port), "--user", server.superuser, "--database", database]
        arguments = ["contract", "infer", "--schema", schema, "--folder", str(folder), *at, *more]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    return run


def inferred(folder: Path, name: str) -> Contract:
    return read_contract(folder / "contracts" / f"{name}.yaml")


def test_addresses_ranges_and_arrays_get_columns(shop: psycopg.Connection, infer: Infer, tmp_path: Path) -> None:
    shop.execute(
        "CREATE DOMAIN host AS inet; CREATE TABLE visits (id integer PRIMARY KEY, client inet, net cidr, card macaddr,"
        " long_card macaddr8, via host, during tstzrange, documents jsonb[], notes json[], moments timestamptz[])"
    )
    assert infer().exit_code == 0
    assert {column.name: column.type.ddl() for column in inferred(tmp_path, "visits").columns} == {
        "id": "int",
        **dict.fromkeys(("client", "net", "card", "long_card", "via", "during"), "string"),
        **dict.fromkeys(("documents", "notes", "moments"), "array<string>"),
    }
    assert "no column" not in (tmp_path / "contracts" / "visits.yaml").read_text()


def test_columns_that_differ_in_capitals_refuse_their_table(
    shop: psycopg.Connection, infer: Infer, tmp_path: Path
) -> None:
    shop.execute('CREATE TABLE people (id integer PRIMARY KEY, name text, "Name" text, "NAME" text)')
    shop.execute("CREATE TABLE others (id integer PRIMARY KEY)")
    told = infer()
    assert told.exit_code == 1
    assert "its columns name, Name, NAME differ only in capitals" in told.stdout
    assert "rename all of them but one" in told.stdout
    assert [path.stem for path in (tmp_path / "contracts").iterdir()] == ["others"]


def test_tables_of_one_name_get_lake_names_of_their_own(shop: psycopg.Connection, infer: Infer, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE orders (id integer PRIMARY KEY); CREATE TABLE items (id integer PRIMARY KEY)")
    shop.execute("CREATE SCHEMA archive; CREATE TABLE archive.orders (id integer PRIMARY KEY)")
    assert infer(schema="archive").exit_code == 0
    assert infer().exit_code == 0
    assert {path.stem for path in (tmp_path / "contracts").iterdir()} == {"archive_orders", "items", "public_orders"}
    assert inferred(tmp_path, "archive_orders").source.table == "archive.orders"
    assert "# guessed: with its schema, because there is archive.orders too" in (
        (tmp_path / "contracts" / "public_orders.yaml").read_text()
    )


def test_a_table_with_a_contract_of_another_name_is_left_out(
    shop: psycopg.Connection, infer: Infer, tmp_path: Path
) -> None:
    shop.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
    assert infer().exit_code == 0
    shop.execute("CREATE SCHEMA archive; CREATE TABLE archive.orders (id integer PRIMARY KEY)")
    with pytest.raises(UserError, match=r"orders\.yaml: found a contract of public\.orders, expected none but public_"):
        infer("--replace")
    assert [path.stem for path in (tmp_path / "contracts").iterdir()] == ["orders"]


def test_replace_leaves_the_contract_of_another_table(shop: psycopg.Connection, infer: Infer, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE archive_orders (id integer PRIMARY KEY)")
    assert infer().exit_code == 0
    shop.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
    shop.execute("CREATE SCHEMA archive; CREATE TABLE archive.orders (id integer PRIMARY KEY)")
    with pytest.raises(UserError, match=r"archive_orders\.yaml: found a contract of public\.archive_orders"):
        infer("--replace", schema="archive")
    assert inferred(tmp_path, "archive_orders").source.table == "public.archive_orders"


def test_a_tables_size_is_known_before_analyze(shop: psycopg.Connection, infer: Infer, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE plain (id bigint PRIMARY KEY, note text) WITH (autovacuum_enabled = false)")
    shop.execute("CREATE TABLE parts (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id)")
    for part, (low, high) in {"parts_low": (0, 20_000), "parts_high": (20_000, 40_000)}.items():
        values = f"FROM ({low}) TO ({high}) WITH (autovacuum_enabled = false)"
        shop.execute(f"CREATE TABLE {part} PARTITION OF parts FOR VALUES {values}".encode())
    rows = "SELECT n, 'a note of thirty characters ' || n FROM generate_series(0, 39999) AS n"
    for table in ("plain", "parts"):
        shop.execute(f"INSERT INTO {table} {rows}".encode())
    assert infer().exit_code == 0
    for table in ("plain", "parts"):
        text = (tmp_path / "contracts" / f"{table}.yaml").read_text()
        assert re.search(r"# guessed: for about 4\d,000 rows, by \d\.\d MiB that ANALYZE has not counted;", text)
    shop.execute("ANALYZE")
    assert infer("--replace").exit_code == 0
    for table in ("plain", "parts"):
        assert "for 40,000 rows;" in (tmp_path / "contracts" / f"{table}.yaml").read_text()


def test_a_database_of_sql_ascii_is_read_as_utf_8(server: PostgresqlServer, infer: Infer, tmp_path: Path) -> None:
    with server.connect() as admin:
        admin.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with server.connect("plain") as owner:
        owner.execute("SET client_encoding = 'UTF8'")
        owner.execute("CREATE TABLE people (id integer PRIMARY KEY, größe text)")
        owner.execute("COMMENT ON TABLE people IS 'Größen'")
    url = f"host={server.host} port={server.port} dbname=plain user={server.superuser} client_encoding=SQL_ASCII"
    assert infer("--database-url", url).exit_code == 0
    assert inferred(tmp_path, "people").description == "Größen"
    with server.connect("plain") as owner:
        owner.pgconn.exec_(b"COMMENT ON TABLE people IS 'Gr\xf6\xdfen'")
    with pytest.raises(UserError, match="a name or a comment here is not UTF-8") as raised:
        infer("--replace", database="plain")
    assert "ENCODING 'UTF8'" in str(raised.value)

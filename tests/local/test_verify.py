"""The comparison against a real PostgreSQL and a real S3 API."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import Contract
from headwater.contract.reading import from_document
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.verify import (
    Lake,
    PostgresqlSource,
    RowsRead,
    Source,
    TableComparison,
    read_lake,
    s3_options,
    verify_tables,
)
from rig.local.aws import REGION, AwsApi
from rig.local.postgresql_server import PostgresqlServer

DATABASE = "verify"
NAN = float("nan")
TEXTS = pa.list_(pa.string())


@pytest.fixture(scope="module")
def source(postgres: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with postgres.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    with postgres.connect(DATABASE) as connection:
        # A server may have these settings; the comparison must not depend on them.
        connection.execute(f"ALTER DATABASE {DATABASE} SET timezone = 'Asia/Kathmandu'")
        connection.execute(f"ALTER DATABASE {DATABASE} SET datestyle = 'SQL, DMY'")
        connection.execute(f"ALTER DATABASE {DATABASE} SET intervalstyle = 'postgres_verbose'")
        connection.execute(f"ALTER DATABASE {DATABASE} SET extra_float_digits = -3")
        connection.execute(f"ALTER DATABASE {DATABASE} SET bytea_output = 'escape'")
    with postgres.connect(DATABASE) as connection:
        yield connection


# Lake type, PostgreSQL type, a PostgreSQL literal, and the lake's value with its Arrow type.
VALUES: list[tuple[str, str, str, object, pa.DataType]] = [
    ("int", "smallint", "'-32768'", -32768, pa.int32()),
    ("bigint", "bigint", "'9223372036854775807'", 2**63 - 1, pa.int64()),
    ("decimal(12,4)", "numeric(12,4)", "'1.5'", Decimal("1.5"), pa.decimal128(12, 4)),
    ("string", "numeric", "'1.50'", "1.50", pa.string()),
    ("string", "numeric", "'NaN'", "NaN", pa.string()),
    ("float", "real", "'3.4028235e38'", 3.4028234663852886e38, pa.float32()),
    ("double", "double precision", "'0.1'", 0.1, pa.float64()),
    ("double", "double precision", "'-0'", -0.0, pa.float64()),
    ("double", "double precision", "'NaN'", NAN, pa.float64()),
    ("double", "double precision", "'5e-324'", 5e-324, pa.float64()),
    ("boolean", "boolean", "'yes'", True, pa.bool_()),
    ("string", "character(4)", "'ab'", "ab  ", pa.string()),
    ("string", "text", "E'a\\tb\\n\\\\ ''\" \\u00e9'", "a\tb\n\\ '\" é", pa.string()),
    ("string", "uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", pa.string()),
    ("binary", "bytea", "'\\x00ff5c'", b"\x00\xff\\", pa.binary()),
    ("date", "date", "'2024-02-29'", 19782, pa.int32()),
    ("string", "date", "'2024-02-29'", "2024-02-29", pa.string()),
    ("timestamp", "timestamp without time zone", "'2024-02-29 12:00:00.5'", 1709208000500000, pa.int64()),
    ("timestamp", "timestamp with time zone", "'2024-02-29 12:00:00.5+02'", 1709200800500000, pa.int64()),
    ("string", "timestamp with time zone", "'2024-02-29 12:00+02'", "2024-02-29T10:00:00.000000Z", pa.string()),
    ("string", "time without time zone", "'12:00:00.25'", "12:00:00.25", pa.string()),
    ("string", "interval", "'1 year -2 months 3 days 04:05:06.7'", "P0Y10M3DT4H5M6.7S", pa.string()),
    ("string", "jsonb", """'{"b":1.50,"a":[null]}'""", '{"a": [null], "b": 1.50}', pa.string()),
    ("string", "int4range", "'[1,3]'", "[1,4)", pa.string()),
    ("array<int>", "integer[]", "'{1,NULL,3}'", [1, None, 3], pa.list_(pa.int32())),
    ("array<decimal(6,2)>", "numeric(6,2)[]", "'{1.5,-2}'", [Decimal("1.5"), -2], pa.list_(pa.decimal128(6, 2))),
    ("array<double>", "double precision[]", "'{NaN,-0,Infinity}'", [NAN, -0.0, float("inf")], pa.list_(pa.float64())),
    ("array<string>", "text[]", """'{"a,b",NULL,"NULL","\\"q\\""}'""", ["a,b", None, "NULL", '"q"'], TEXTS),
]  # fmt: skip
_VIEWED = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC")}


def document_of(table: str, *columns: tuple[str, str, str], **fields: str) -> dict[str, object]:
    return {
        "table": table,
        "description": "For a test.",
        "source": {"database": "postgresql", "table": f"public.{table}"},
        "key": ["id"],
        "partition_by": [],
        "buckets": 1,
        "columns": [
            {"name": "id", "type": "int", "source_type": "integer"},
            *({"name": name, "type": type_, "source_type": source} for name, type_, source in columns),
        ],
        **fields,
    }


def contract_of(table: str, *columns: tuple[str, str, str], **fields: str) -> Contract:
    return from_document(document_of(table, *columns, **fields), f"{table}.yaml")


def compared(
    source: psycopg.Connection, contract: Contract, lake: pa.Table, query: str = "", report: RowsRead | None = None
) -> TableComparison:
    def read(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
        assert (uri, storage) == (f"file:///lake/{contract.table}", {"an": "option"})
        return list(lake.to_batches())

    sources = database(source, {contract.table: query} if query else {})
    (table,) = verify_tables([contract], sources, Lake("file:///lake/", {"an": "option"}, read), report)
    return table


def database(source: psycopg.Connection, queries: Mapping[str, str] | None = None) -> dict[str, Source]:
    return {"postgresql": PostgresqlSource(source, queries or {})}


def test_every_type_is_read_exactly_whatever_the_server_is_set_to(source: psycopg.Connection) -> None:
    columns = [(f"c{at}", *types[:2]) for at, types in enumerate(VALUES)]
    fields = ", ".join(f"{name} {type_}" for name, _, type_ in columns)
    literals = ", ".join(f"{literal}::{type_}" for _, type_, literal, _, _ in VALUES)
    source.execute(f"CREATE TABLE every_type (id integer PRIMARY KEY, {fields})".encode())
    source.execute(f"INSERT INTO every_type VALUES (1, {literals})".encode())
    source.execute("INSERT INTO every_type VALUES (2)")
    arrays = {
        f"c{at}": pa.array([value, None], arrow).view(_VIEWED.get(type_, arrow))
        for at, (type_, _, _, value, arrow) in enumerate(VALUES)
    }
    lake = pa.table({"id": pa.array([1, 2], pa.int32()), **arrays})

    table = compared(source, contract_of("every_type", *columns), lake)

    assert table.equal, table.examples
    assert table.source_rows == table.lake_rows == 2


def test_all_tables_are_read_as_of_one_moment(postgres: PostgresqlServer, source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE first (id integer PRIMARY KEY)")
    source.execute("CREATE TABLE second (id integer PRIMARY KEY)")

    def read(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
        with postgres.connect(DATABASE) as meanwhile:
            meanwhile.execute("INSERT INTO second VALUES (1) ON CONFLICT DO NOTHING")
        return []

    contracts = [contract_of("first"), contract_of("second")]
    tables = verify_tables(contracts, database(source), Lake("file:///lake", {}, read))
    assert [table.source_rows for table in tables] == [0, 0]


def test_a_query_takes_the_place_of_the_table(source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE derived (id integer PRIMARY KEY)")
    contract = contract_of("derived", verify_with="derived.sql")
    lake = pa.table({"id": pa.array([7, 8], pa.int32())})
    query = "WITH numbers AS (SELECT 7 AS id UNION SELECT 8)\nSELECT id FROM numbers WHERE '%s{}' <> '' -- all of them"
    assert compared(source, contract, lake, query).equal


def test_a_query_may_end_in_a_semicolon(source: psycopg.Connection) -> None:
    lake = pa.table({"id": pa.array([7], pa.int32())})
    contract = contract_of("derived", verify_with="derived.sql")
    assert compared(source, contract, lake, "SELECT 7 AS id;\n").equal


def test_nothing_is_written_to_the_source(source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE kept (id integer PRIMARY KEY)")
    contract = contract_of("kept", verify_with="kept.sql")
    source.execute("CREATE FUNCTION sneak() RETURNS integer LANGUAGE sql AS 'INSERT INTO kept VALUES (1) RETURNING id'")
    with pytest.raises(UserError, match="cannot execute INSERT in a read-only transaction"):
        compared(source, contract, pa.table({"id": pa.array([], pa.int32())}), "SELECT sneak() AS id")
    assert source.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_a_column_that_the_source_lacks_is_an_error_that_says_so(source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE narrow (id integer PRIMARY KEY)")
    with pytest.raises(UserError, match="columns: wide: found no column wide in public"):
        compared(source, contract_of("narrow", ("wide", "int", "integer")), pa.table({"id": [1]}))


def test_progress_counts_both_sides(source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE counted (id integer PRIMARY KEY)")
    source.execute("INSERT INTO counted SELECT generate_series(1, 20000)")
    calls: list[tuple[str, str, int]] = []
    lake = pa.table({"id": pa.array(range(1, 20001), pa.int32())})
    compared(source, contract_of("counted"), lake, report=lambda *call: calls.append(call))
    assert calls[0][:2] == ("counted", "source")
    assert ("counted", "source", 20000) in calls
    assert calls[-1] == ("counted", "lake", 20000)


@pytest.mark.usefixtures("source")
def test_a_connection_inside_a_transaction_is_refused(postgres: PostgresqlServer) -> None:
    with (
        postgres.connect(DATABASE) as connection,
        connection.transaction(),
        pytest.raises(ValueError, match="outside a transaction"),
    ):
        verify_tables([contract_of("unread")], database(connection), Lake("file:///lake", {}))


class TestS3:
    def options(self, aws_api: AwsApi) -> dict[str, str]:
        return s3_options(REGION, aws_api.s3_endpoint, *aws_api.credentials.values())

    def test_a_table_that_was_never_written_has_no_rows(self, aws_api: AwsApi) -> None:
        aws_api.client("s3").create_bucket(
            Bucket="lake-without-tables", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        assert list(read_lake("s3://lake-without-tables/lake/orders", self.options(aws_api))) == []

    def test_a_bucket_that_is_not_there_is_an_error(self, aws_api: AwsApi) -> None:
        with pytest.raises(UserError, match="s3://no-such-lake/orders cannot be read"):
            list(read_lake("s3://no-such-lake/orders", self.options(aws_api)))


class TestCommand:
    @pytest.fixture
    def arguments(self, postgres: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setenv("HEADWATER_DB_PASSWORD", postgres.password)
        folder = LakeFolder.make(tmp_path / "described", "test")
        (folder.contracts / "watched.yaml").write_text(yaml.safe_dump(document_of("watched")))
        url = f"postgresql://{postgres.superuser}@{postgres.host}:{postgres.port}/{DATABASE}"
        return [
            "verify",
            *("--folder", str(folder.root)),
            *("--lake", str(tmp_path / "lake")),
            *("--database-url", url),
        ]

    def test_the_status_is_one_while_something_differs_and_zero_once_nothing_does(
        self, source: psycopg.Connection, arguments: list[str]
    ) -> None:
        source.execute("CREATE TABLE watched (id integer PRIMARY KEY)")
        source.execute("INSERT INTO watched VALUES (41)")
        differs = CliRunner().invoke(app, arguments)
        assert differs.exit_code == 1
        assert "watched id = 41: missing" in differs.stdout

        source.execute("TRUNCATE watched")
        equal = CliRunner().invoke(app, [*arguments, "--json"])
        assert equal.exit_code == 0
        assert json.loads(equal.stdout)["tables"][0]["source_rows"] == 0

    def test_a_password_in_the_url_is_refused(self, arguments: list[str]) -> None:
        arguments[-1] = arguments[-1].replace("@", ":secret@")
        refused = CliRunner().invoke(app, arguments)
        assert isinstance(refused.exception, UserError)
        assert "HEADWATER_DB_PASSWORD" in str(refused.exception)
        assert "secret" not in str(refused.exception)


class TestDynamoDbCommand:
    @pytest.fixture
    def arguments(self, aws_api: AwsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        for name, value in aws_api.credentials.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HEADWATER_DB_PASSWORD", raising=False)
        document = {
            "table": "things",
            "description": "For a test.",
            "source": {"database": "dynamodb", "table": "shop-things"},
            "key": ["id", "number"],
            "partition_by": [],
            "buckets": 1,
            "columns": [
                {"name": "id", "type": "string", "source_type": "S"},
                {"name": "number", "type": "decimal(38,9)", "source_type": "N"},
            ],
        }
        folder = LakeFolder.make(tmp_path / "described", "test")
        (folder.contracts / "things.yaml").write_text(yaml.safe_dump(document))
        return [
            "verify",
            *("--folder", str(folder.root)),
            *("--lake", str(tmp_path / "lake")),
            *("--dynamodb-endpoint", aws_api.endpoint),
            *("--region", REGION),
        ]

    def test_a_table_is_scanned_where_the_options_say_and_no_other_database_is_asked_for(
        self, aws_api: AwsApi, arguments: list[str]
    ) -> None:
        client = aws_api.client("dynamodb")
        client.create_table(
            TableName="shop-things-dev",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "id", "AttributeType": "S"},
                {"AttributeName": "number", "AttributeType": "N"},
            ],
            KeySchema=[
                {"AttributeName": "id", "KeyType": "HASH"},
                {"AttributeName": "number", "KeyType": "RANGE"},
            ],
        )
        key = {"id": {"S": "a"}, "number": {"N": "1.5"}}
        client.put_item(TableName="shop-things-dev", Item={**key, "more": {"SS": ["x"]}})
        renamed = [*arguments, "--dynamodb-table", "things=shop-things-dev"]
        differs = CliRunner().invoke(app, renamed)
        assert differs.exit_code == 1, differs.output
        assert "things id = a, number = 1.500000000: missing" in differs.stdout

        client.delete_item(TableName="shop-things-dev", Key=key)
        equal = CliRunner().invoke(app, [*renamed, "--json"])
        assert equal.exit_code == 0, equal.output
        assert json.loads(equal.stdout)["tables"][0]["source_rows"] == 0

    def test_a_table_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(
        self, arguments: list[str]
    ) -> None:
        refused = CliRunner().invoke(app, arguments)
        assert isinstance(refused.exception, UserError)
        assert "things: reading the DynamoDB table shop-things failed" in str(refused.exception)
        assert "--dynamodb-table" in str(refused.exception)


def test_a_table_whose_differences_come_early_leaves_the_next_one_readable(source: psycopg.Connection) -> None:
    source.execute("CREATE TABLE long_one AS SELECT generate_series(1, 50000) AS id")
    source.execute("CREATE TABLE next_one AS SELECT 1 AS id")
    reader = PostgresqlSource(source, {})
    with reader.reading():
        rows = reader.table(contract_of("long_one")).rows()
        next(rows)
        # As after the last example that is wanted.
        rows.close()  # type: ignore[attr-defined]
        assert len(list(reader.table(contract_of("next_one")).rows())) == 1


class TestSettings:
    """Settings of a database, which a role may have as well."""

    @pytest.fixture
    def settings(self, postgres: PostgresqlServer, source: psycopg.Connection) -> Iterator[dict[str, str]]:
        """Settings that the test makes before it connects."""
        made: dict[str, str] = {}
        yield made
        for name in made:
            source.execute(f"ALTER DATABASE {DATABASE} RESET {name}".encode())

    def connect(
        self, postgres: PostgresqlServer, source: psycopg.Connection, settings: Mapping[str, str]
    ) -> psycopg.Connection:
        for name, value in settings.items():
            source.execute(f"ALTER DATABASE {DATABASE} SET {name} = {value}".encode())
        return postgres.connect(DATABASE)

    def test_no_time_limit_ends_a_comparison(
        self, postgres: PostgresqlServer, source: psycopg.Connection, settings: dict[str, str]
    ) -> None:
        settings |= dict.fromkeys(
            ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"), "'200ms'"
        )

        def read(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
            time.sleep(1)
            return list(pa.table({"id": pa.array([1], pa.int32())}).to_batches())

        names = ("slow_one", "slow_two")
        queries = dict.fromkeys(names, "SELECT 1 AS id FROM pg_sleep(1)")
        contracts = [contract_of(name, verify_with="slow.sql") for name in names]
        with self.connect(postgres, source, settings) as connection:
            tables = verify_tables(contracts, database(connection, queries), Lake("file:///lake", {}, read))
        assert all(table.equal for table in tables)

    def test_functions_of_the_users_take_no_part(
        self, postgres: PostgresqlServer, source: psycopg.Connection, settings: dict[str, str]
    ) -> None:
        source.execute("CREATE SCHEMA odd")
        source.execute("CREATE FUNCTION odd.to_json(integer[]) RETURNS json LANGUAGE sql AS $$SELECT '[]'::json$$")
        source.execute("CREATE TABLE listed AS SELECT 1 AS id, '{1,2}'::integer[] AS numbers")
        settings["search_path"] = "odd, pg_catalog"
        lake = pa.table({"id": pa.array([1], pa.int32()), "numbers": pa.array([[1, 2]], pa.list_(pa.int32()))})
        with self.connect(postgres, source, settings) as connection:
            table = compared(connection, contract_of("listed", ("numbers", "array<int>", "integer[]")), lake)
        assert table.equal, table.examples

    def test_a_database_that_is_read_only_is_compared(
        self, postgres: PostgresqlServer, source: psycopg.Connection, settings: dict[str, str]
    ) -> None:
        source.execute("CREATE TABLE kept_whole AS SELECT 1 AS id")
        settings |= {"default_transaction_read_only": "on", "default_transaction_isolation": "'serializable'"}
        with self.connect(postgres, source, settings) as connection:
            assert compared(connection, contract_of("kept_whole"), pa.table({"id": pa.array([1], pa.int32())})).equal

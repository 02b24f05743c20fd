import duckdb
import pytest
import sqlglot

from headwater.contract.model import DYNAMODB, Contract
from headwater.contract.reading import parse_contract, read_contracts
from headwater.contract.types import parse_type
from headwater.definitions.published_view import athena_type, published_columns, published_view_sql
from headwater.lake_folder import EXAMPLE

CONTRACT_TEXT = """
table: things
description: Things
source: {database: postgresql, table: northwind.things}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: int, source_type: integer}
  - {name: order, type: string, source_type: text}
"""


@pytest.fixture
def things() -> Contract:
    return parse_contract(CONTRACT_TEXT, "things.yaml")


def test_the_view_hides_tombstones_and_nothing_else(things: Contract) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA lake")
    columns = ", ".join(f'"{name}" {athena_type(type_)}' for name, type_ in things.lake_columns())
    connection.execute(sqlglot.transpile(f"CREATE TABLE lake.things ({columns})", read="trino", write="duckdb")[0])
    connection.execute("""INSERT INTO lake.things (id, "order", _deleted) VALUES
        (1, 'kept', false), (2, null, true), (3, 'no mark', null)""")
    sql = sqlglot.transpile(published_view_sql(things, "lake"), read="athena", write="duckdb")[0]
    rows = connection.execute(f'SELECT id, "order" FROM ({sql}) ORDER BY id').fetchall()
    assert rows == [(1, "kept"), (3, "no mark")]


def test_the_view_has_the_contracts_columns_the_source_time_the_rest_and_what_does_not_fit(things: Contract) -> None:
    assert [name for name, _ in published_columns(things)] == ["id", "order", "_source_ts", "_rest", "_unfit"]


def test_the_view_leaves_out_who_deleted_a_row() -> None:
    accounts = next(contract for contract in read_contracts(EXAMPLE.contracts) if contract.source.database == DYNAMODB)
    assert "_deleted_by" in dict(accounts.lake_columns())
    assert "_deleted_by" not in dict(published_columns(accounts))


@pytest.mark.parametrize("contract", read_contracts(EXAMPLE.contracts), ids=lambda contract: contract.table)
def test_the_projects_views_parse_as_athenas_sql(contract: Contract) -> None:
    parsed = sqlglot.parse_one(published_view_sql(contract, "headwater_dev"), read="athena")
    assert isinstance(parsed, sqlglot.exp.Select)
    assert parsed.named_selects == [name for name, _ in published_columns(contract)]


@pytest.mark.parametrize(
    ("ddl", "athena"),
    [
        ("int", "integer"),
        ("bigint", "bigint"),
        ("string", "varchar"),
        ("float", "real"),
        ("decimal(12,4)", "decimal(12,4)"),
        ("timestamp", "timestamp(3)"),
        ("array<struct<a:int,b:string>>", 'array(row("a" integer, "b" varchar))'),
    ],
)
def test_lake_types_in_athenas_words(ddl: str, athena: str) -> None:
    assert athena_type(parse_type(ddl)) == athena

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import contract as contracts
from headwater.contract import SourceType, check_conversion, parse_type
from headwater.errors import UserError

GOOD = """
table: orders
description: Orders.
source: {database: postgresql, table: shop.orders}
key: [id]
partition_by: [month]
buckets: 4
columns:
  - {name: id, type: int, source_type: integer}
  - {name: month, type: string, source_type: text}
  - {name: items, type: "array<struct<product_id:int,price:decimal(12,4)>>", from: payload.items}
"""


def test_a_contract_survives_the_way_to_the_cluster() -> None:
    loaded = contracts.loads(GOOD, "orders.yaml")
    assert contracts.loads(loaded.to_json(), "orders.json") == loaded


def test_the_lake_has_the_contracts_columns_and_headwaters_own() -> None:
    names = [name for name, _ in contracts.loads(GOOD, "orders.yaml").lake_columns()]
    own = ["_key", "_op", "_order", "_source_ts", "_position", "_deleted", "_rest"]
    assert names == ["id", "month", "items", *own]


@pytest.mark.parametrize(
    ("found", "replacement", "complaint"),
    [
        ("buckets: 4", "buckets: many", "orders.yaml: buckets: found 'many', expected a number"),
        ("buckets: 4", "bucket: 4", "unknown field 'bucket', expected one of table"),
        ("key: [id]", "key: [nr]", "key: found ['nr'], expected different names out of: id, month, items"),
        ("key: [id]", "key: [items]", "key: items is array, expected int"),
        ("key: [id]", "key: []", "key: found [], expected at least one column"),
        ("postgresql", "oracle", "source: database: found 'oracle', expected postgresql"),
        ("shop.orders", "orders", "source: table: found 'orders', expected schema.table"),
        ("type: int, source_type: integer", "type: int, source_type: bigint", "bigint needs bigint or string"),
        ("type: int, source_type: integer", "type: int", "source_type: found None, expected a text"),
        ("array<struct<product_id:int", "array<struct<product_id:number", "unknown type 'number'"),
        ("decimal(12,4)>>", "decimal(12,4)>", "ends too early"),
        ("decimal(12,4)", "timestamp", "expected string in its place"),
        ("decimal(12,4)", "decimal(39,4)", "outside decimal(1..38"),
        ("partition_by: [month]", "partition_by: [id, month]", "expected no column or one"),
        ("name: month", "name: id", "'id' appears twice"),
        ("table: orders", "table: Orders", "lower-case"),
        ("{name: id,", "{name: id, nullable: true,", "columns[0]: unknown field 'nullable'"),
    ],
)
def test_a_wrong_contract_is_refused_with_file_field_found_and_expected(
    found: str, replacement: str, complaint: str
) -> None:
    assert found in GOOD
    with pytest.raises(UserError) as refused:
        contracts.loads(GOOD.replace(found, replacement, 1), "orders.yaml")
    assert complaint in str(refused.value)
    assert "orders.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("smallint", "int"),
        ("bigint", "bigint"),
        ("numeric(12,4)", "decimal(12,4)"),
        ("numeric(12,4)", "decimal(20,6)"),
        ("numeric", "string"),
        ("real", "float"),
        ("double precision", "double"),
        ("character varying(40)", "string"),
        ("character(5)", "string"),
        ("timestamp(3) with time zone", "timestamp"),
        ("timestamptz", "string"),
        ("time without time zone", "string"),
        ("uuid", "string"),
        ("jsonb", "struct<a:int>"),
        ("bytea", "binary"),
        ("integer[]", "array<int>"),
        ("numeric(10,2)[]", "array<decimal(10,2)>"),
        ("tstzrange", "string"),
        ("enum", "string"),
    ],
)
def test_conversions_that_keep_every_value_are_allowed(source: str, target: str) -> None:
    assert check_conversion(source, parse_type(target)) is None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("bigint", "int"),
        ("numeric", "decimal(38,10)"),
        ("numeric(12,4)", "decimal(12,2)"),
        ("numeric(12,4)", "decimal(10,4)"),
        ("numeric(12,4)", "double"),
        ("double precision", "float"),
        ("real", "decimal(10,2)"),
        ("time without time zone", "timestamp"),
        ("interval", "bigint"),
        ("bytea", "string"),
        ("integer[]", "int"),
        ("time with time zone", "string"),
        ("time[]", "array<string>"),
        ("money", "decimal(12,2)"),
        ("point", "string"),
        ("hstore", "string"),
        ("text", "int"),
    ],
)
def test_conversions_that_could_change_a_value_are_refused(source: str, target: str) -> None:
    assert check_conversion(source, parse_type(target)) is not None


def test_source_types_are_read_as_postgresql_prints_them() -> None:
    assert SourceType.parse("numeric(10, 2)[]") == SourceType("numeric", 10, 2, True)
    assert SourceType.parse("timestamp(3) with time zone").base == "timestamp with time zone"
    assert SourceType.parse("varchar(9)").base == "character varying"


def test_two_contracts_of_one_source_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(GOOD)
    (tmp_path / "copies.yaml").write_text(GOOD.replace("table: orders", "table: copies", 1))
    with pytest.raises(UserError, match="described by two contracts"):
        contracts.load_all(tmp_path)

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from headwater.contract.conversions import check_conversion, check_dynamodb_conversion
from headwater.contract.model import DYNAMODB, POSTGRESQL, catalog_names, from_json, lake_tables, of_database
from headwater.contract.reading import parse_contract, read_contracts
from headwater.contract.types import SourceType, Type, parse_type
from headwater.definitions.history_queries import history_views
from headwater.definitions.published_view import published_view_name
from headwater.errors import UserError
from headwater.lake.decoding.debezium_decoder import PostgresDecoder
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from headwater.lake_folder import EXAMPLE
from headwater.paths import REFERENCE

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

KEY_VALUE = """
table: people
description: People.
source: {database: dynamodb, table: shop-People.v2}
key: [id, nr]
partition_by: [month]
buckets: 4
columns:
  - {name: id, type: binary, source_type: B}
  - {name: nr, type: "decimal(38,0)", source_type: N, from: custNr}
  - {name: month, type: string, source_type: S, from: since, transform: month}
  - {name: since, type: date, source_type: S}
  - {name: city, type: string, source_type: S, from: address.city}
  - {name: nick, type: string, source_type: S, from: [nick.name]}
  - {name: street, type: string, source_type: S, from: [address, "street.1"]}
"""


PARTED = """
table: visits
description: Partitioned by a part of a time.
source: {database: postgresql, table: shop.visits}
key: [id]
partition_by: [day]
buckets: 4
columns:
  - {name: id, type: int, source_type: integer}
  - {name: day, type: string, source_type: bigint, from: at, transform: day(milliseconds)}
  - {name: month, type: string, source_type: date, from: since, transform: month}
  - {name: hour, type: string, source_type: timestamptz, from: seen, transform: hour}
  - {name: part, type: int, source_type: integer, from: id, transform: bucket(16)}
"""


@pytest.mark.parametrize("text", [GOOD, KEY_VALUE, PARTED, (EXAMPLE.contracts / "accounts.yaml").read_text()])
def test_a_contract_survives_the_way_to_the_cluster(text: str) -> None:
    loaded = parse_contract(text, "orders.yaml")
    assert parse_contract(loaded.to_json(), "orders.json") == loaded


def test_a_path_is_text_with_dots_or_a_list_of_names_that_hold_them() -> None:
    people = parse_contract(KEY_VALUE, "people.yaml")
    paths = {column.name: column.path for column in people.columns}
    assert paths["nr"] == ("custNr",)
    assert paths["city"] == ("address", "city")
    assert paths["nick"] == ("nick.name",)
    assert paths["street"] == ("address", "street.1")
    assert [str(column.transform) for column in people.columns].count("month") == 1


def test_a_table_of_dynamodb_has_a_column_that_says_who_deleted() -> None:
    names = [name for name, _ in parse_contract(KEY_VALUE, "people.yaml").lake_columns()]
    assert names[-4:] == ["_deleted", "_deleted_by", "_rest", "_unfit"]


def test_what_does_not_fit_is_kept_unless_the_contract_says_otherwise() -> None:
    default = parse_contract(GOOD, "orders.yaml")
    strict = parse_contract(GOOD + "\non_unfit: quarantine\n", "orders.yaml")
    assert (default.on_unfit, strict.on_unfit) == ("keep", "quarantine")
    assert from_json(strict.to_json(), "orders.json") == strict
    shipped_before = json.loads(default.to_json())
    del shipped_before["on_unfit"]
    assert from_json(json.dumps(shipped_before), "orders.json") == default
    with pytest.raises(UserError, match=r"orders\.yaml: on_unfit: found 'drop', expected keep or quarantine"):
        parse_contract(GOOD + "\non_unfit: drop\n", "orders.yaml")


def test_contracts_are_told_apart_by_their_database() -> None:
    both = [parse_contract(KEY_VALUE, "people.yaml"), parse_contract(GOOD, "orders.yaml")]
    assert [contract.table for contract in of_database(both, POSTGRESQL)] == ["orders"]
    assert [contract.table for contract in of_database(both, DYNAMODB)] == ["people"]


def test_the_lake_has_the_contracts_columns_and_headwaters_own() -> None:
    names = [name for name, _ in parse_contract(GOOD, "orders.yaml").lake_columns()]
    own = ["_key", "_op", "_order", "_source_ts", "_position", "_deleted", "_rest", "_unfit"]
    assert names == ["id", "month", "items", *own]


@pytest.mark.parametrize(
    ("written", "replacement", "complaint"),
    [
        ("buckets: 4", "buckets: many", "orders.yaml: buckets: found 'many', expected a whole number, 1 to 10000"),
        (
            "buckets: 4",
            "bucket: 4",
            "orders.yaml: bucket: found an unknown field, expected buckets or another of table, ",
        ),
        ("key: [id]", "key: [nr]", "key: found ['nr'], expected different names out of: id, month, items"),
        ("key: [id]", "key: [items]", "key: items is array, expected int"),
        ("key: [id]", "key: []", "key: found [], expected a list of at least one column"),
        ("postgresql", "oracle", "source.database: found 'oracle', expected dynamodb or postgresql"),
        (
            "source_type: text",
            "source_type: text, transform: month",
            "columns[1].type: found string from text by month, but month needs date, timestamp with time zone, ",
        ),
        (
            "source_type: text",
            "source_type: bigint, transform: day",
            "timestamp without time zone, or a unit as in day(seconds)",
        ),
        ("source_type: text", "source_type: text, transform: day(seconds)", "day(seconds) needs integer, bigint"),
        ("source_type: text", "source_type: date, transform: hour", "hour needs timestamp with time zone, "),
        ("source_type: text", "source_type: N, transform: bucket(4)", "bucket(4) needs smallint, "),
        ("source_type: text", "source_type: 'date[]', transform: day", "day needs date, "),
        ("source_type: text", "source_type: text, transform: bucket(8)", "bucket(8) makes int, not string"),
        (
            "source_type: text",
            "source_type: text, transform: bucket(0)",
            "transform: found 'bucket(0)', expected month",
        ),
        ("from: payload.items", "from: payload.items, transform: day", "transform: found 'day', expected none beside"),
        ("from: payload.items", "from: [payload, items]", "from: found ['payload', 'items'], expected a text"),
        ("shop.orders", "orders", "source.table: found 'orders', expected schema.table"),
        ("type: int, source_type: integer", "type: int, source_type: bigint", "bigint needs bigint or string"),
        (
            "type: int, source_type: integer",
            "type: int",
            "columns[0].source_type: found nothing, expected a text: PostgreSQL's type of the column id",
        ),
        (
            "array<struct<product_id:int",
            "array<struct<product_id:number",
            "found the type 'number', expected one of int, bigint, float,",
        ),
        ("decimal(12,4)>>", "decimal(12,4)>", "ends too early"),
        ("decimal(12,4)", "timestamp", "expected string in its place"),
        ("decimal(12,4)", "decimal(39,4)", "outside decimal(1..38"),
        ("partition_by: [month]", "partition_by: [id, month]", "expected a list of no column or one"),
        ("name: month", "name: id", "'id' appears twice"),
        ("table: orders", "table: Orders", "lower-case"),
        ("shop.orders", "shop.orders, kind: table", "source.kind: found an unknown field, expected database, table"),
        ("description: Orders.", "description: ' '", "description: found ' ', expected a text that is not empty"),
        ("description: Orders.", "", "description: found nothing, expected a text that is not empty"),
        ("description: Orders.", f"description: {'ü' * 760}", "description: found 1520 bytes, expected at most 1500"),
        ("{name: id,", "{name: id, description: ' ',", "columns[0].description: found ' ', expected one line of at"),
        ("{name: id,", '{name: id, description: "a\\nb",', "columns[0].description: found"),
        ("{name: id,", f"{{name: id, description: {'ü' * 128},", "columns[0].description: found 256 bytes, expected"),
        ("buckets: 4", "buckets: 0", "buckets: found 0, expected 1 to 10000"),
        ("buckets: 4", "buckets: true", "buckets: found True, expected a whole number, 1 to 10000"),
        ("{name: id,", "{name: id, nullable: true,", "columns[0].nullable: found an unknown field"),
    ],
)
def test_a_wrong_contract_is_refused_with_file_field_found_and_expected(
    written: str, replacement: str, complaint: str
) -> None:
    assert written in GOOD
    with pytest.raises(UserError) as refused:
        parse_contract(GOOD.replace(written, replacement, 1), "orders.yaml")
    assert complaint in str(refused.value)
    assert "orders.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("written", "replacement", "complaint"),
    [
        ("shop-People.v2", "no table", "source.table: found 'no table', expected a DynamoDB table's name"),
        ("shop-People.v2", "ab", "source.table: found 'ab'"),
        ("buckets: 4", "buckets: 4\nverify_with: a.sql", "verify_with: found an unknown field, expected table"),
        ("source_type: N, ", "", "columns[1].source_type: found nothing, expected B, BOOL, BS, L, M"),
        ("source_type: S, from: address.city", "from: address.city", "columns[4].source_type: found nothing"),
        (
            "source_type: B",
            "source_type: bytea",
            "columns[0].source_type: found 'bytea', expected B, BOOL, BS, L, M, N, NS, S or SS",
        ),
        ('"decimal(38,0)"', "double", "columns[1].type: found double from N, but N needs decimal or int"),
        ("type: date", "type: double", "S needs string or date or timestamp"),
        ("from: custNr", "from: nr.nr", "key: nr comes from inside a map, expected an attribute of the source"),
        ("type: binary, source_type: B", "type: string, source_type: M", "key: id has source_type M, expected S, N, B"),
        ("type: binary, source_type: B", "type: boolean, source_type: BOOL", "key: id is boolean, expected int"),
        ("key: [id, nr]", "key: [id, month]", "key: month has a transform, expected a column without a transform"),
        ("partition_by: [month]", "partition_by: [nr]", "partition_by: nr is decimal, expected int, bigint"),
        ("transform: month", "transform: year", "transform: found 'year', expected month"),
        ("type: date, source_type: S", "type: date, source_type: S, transform: month", "month makes string, not date"),
        ("type: date, source_type: S", "type: int, source_type: B, transform: bucket(2)", "bucket(2) needs S, N"),
        ("type: date, source_type: S", "type: string, source_type: N, transform: day", "needs S, or a unit as in day("),
        ("from: address.city", "from: address..city", "from: found 'address..city', expected an attribute"),
        ("from: [nick.name]", "from: []", "from: found [], expected an attribute"),
        ("from: [nick.name]", "from: [nick, 1]", "columns[5].from[1]: found 1, expected a name"),
        ("from: [nick.name]", "from: {}", "from: found {}, expected an attribute"),
    ],
)
def test_a_wrong_contract_of_dynamodb_is_refused(written: str, replacement: str, complaint: str) -> None:
    assert written in KEY_VALUE
    with pytest.raises(UserError) as refused:
        parse_contract(KEY_VALUE.replace(written, replacement, 1), "people.yaml")
    assert complaint in str(refused.value)
    assert "people.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("S", ["string", "date", "timestamp"]),
        ("N", ["decimal(38,10)", "int", "bigint", "string"]),
        ("B", ["binary"]),
        ("BOOL", ["boolean"]),
        ("M", ["struct<a:int,b:struct<c:array<string>>>", "string"]),
        ("L", ["array<struct<a:decimal(3,2)>>", "array<date>", "string"]),
        ("SS", ["array<string>"]),
        ("NS", ["array<decimal(38,0)>", "array<bigint>", "array<int>", "array<string>"]),
        ("BS", ["array<binary>"]),
    ],
)
def test_dynamodbs_types_have_exact_counterparts(source: str, targets: list[str]) -> None:
    assert [check_dynamodb_conversion(source, parse_type(target)) for target in targets] == [None] * len(targets)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("S", "binary"),
        ("S", "int"),
        ("N", "float"),
        ("N", "double"),
        ("N", "date"),
        ("B", "string"),
        ("BOOL", "string"),
        ("BOOL", "int"),
        ("M", "array<string>"),
        ("M", "struct<a:struct<b:double>>"),
        ("L", "array<float>"),
        ("L", "struct<a:int>"),
        ("SS", "string"),
        ("SS", "array<int>"),
        ("NS", "array<double>"),
        ("NS", "array<binary>"),
        ("BS", "array<string>"),
        ("NULL", "string"),
        ("s", "string"),
    ],
)
def test_conversions_from_dynamodb_that_could_change_a_value_are_refused(source: str, target: str) -> None:
    assert check_dynamodb_conversion(source, parse_type(target)) is not None


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
        ("inet", "string"),
        ("jsonb[]", "array<string>"),
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
        ("jsonb[]", "array<struct<a:int>>"),
        ("inet", "binary"),
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
    copy = GOOD.replace("table: orders", "table: copies", 1)
    for other in (copy, copy.replace("source: {", "source: {replica_identity: default, ")):
        (tmp_path / "copies.yaml").write_text(other)
        with pytest.raises(UserError, match="described by two contracts"):
            read_contracts(tmp_path)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("integer", "int"),
        ("smallint", "int"),
        ("varchar(40)", "string"),
        ("character varying(40)", "string"),
        ("text", "string"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("numeric(12)", "decimal(12,0)"),
        ("numeric", "string, or decimal(p,s)"),
        ("double precision", "double"),
        ("timestamptz", "timestamp"),
        ("timestamp(3) with time zone", "timestamp"),
        ("jsonb", "string"),
        ("bytea", "binary"),
        ("integer[]", "array<int>"),
        ("array<struct<a:numeric(3,2)>>", "decimal(3,2)"),
    ],
)
def test_a_type_of_postgresql_is_refused_with_what_to_write_for_it(written: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"found the type '.*', expected {re.escape(expected)}$"):
        parse_type(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("bigserial", "found bigint from bigserial, but a column made as bigserial has the type bigint: write source_"),
        ("serial", "write source_type: integer"),
        ("order_status", "'order_status' is not a type that contracts know: write source_type: enum if it is an enum"),
        ("shop.order_status", "write source_type: enum if it is an enum's name"),
        ("money", "PostgreSQL type 'money' is not supported"),
        ("string", "PostgreSQL has no type 'string': write source_type: text"),
        ("'numeric(12,)'", "PostgreSQL type 'numeric(12,)' is not supported"),
    ],
)
def test_a_source_type_that_postgresql_does_not_have_is_refused_with_what_to_write(written: str, expected: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_contract(GOOD.replace("int, source_type: integer", f"bigint, source_type: {written}"), "orders.yaml")
    assert expected in str(refused.value)
    assert "orders.yaml: columns[0].type: found bigint from" in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "source", "written"),
    [
        ("decimal(12,4)", "N", "decimal(12,4)"),
        ("decimal(12, 4)", "N", "decimal(12,4)"),
        ("struct<a:int,b:string>", "M", "struct<a:int,b:string>"),
        ("array<struct<a:decimal(12,4),b:int>>", "L", "array<struct<a:decimal(12,4),b:int>>"),
    ],
)
def test_a_type_with_a_comma_and_without_quotes_is_refused_with_how_to_write_it(
    type_: str, source: str, written: str
) -> None:
    text = KEY_VALUE + f"  - {{name: fee, type: {type_}, source_type: {source}}}\n"
    with pytest.raises(UserError) as refused:
        parse_contract(text, "people.yaml")
    expected = f'people.yaml: line 16: fee.type: found {written} without quotes, expected type: "{written}"'
    assert str(refused.value).startswith(expected)
    assert parse_contract(text.replace(type_, f'"{type_}"'), "people.yaml").column("fee").type.ddl() == written


def test_a_type_and_its_source_type_without_quotes_are_no_field_that_is_written_twice() -> None:
    text = GOOD.replace("{name: id, ", "{name: fee, type: decimal(12,4), source_type: numeric(12,4)}\n  - {name: id, ")
    with pytest.raises(UserError, match=r"fee\.type: found decimal\(12,4\) without quotes"):
        parse_contract(text, "orders.yaml")


@pytest.mark.parametrize("type_", ["struct<City:string>", "array<struct<a:int,City:string>>"])
def test_capitals_in_a_structs_field_are_refused_with_the_way_to_read_them(type_: str) -> None:
    with pytest.raises(ValueError, match=r"found the field 'City' in .*, expected lower-case letters") as refused:
        parse_type(type_)
    assert "because Athena and Glue know no capitals" in str(refused.value)
    assert "`from: address.City`" in str(refused.value)


def test_keywords_of_types_may_be_written_in_capitals() -> None:
    assert parse_type("ARRAY<Struct<a:DECIMAL(12,4),b:STRING>>").ddl() == "array<struct<a:decimal(12,4),b:string>>"


def test_a_column_reads_an_attribute_with_capitals_by_its_path() -> None:
    contract = parse_contract(KEY_VALUE.replace("address.city", "address.City"), "people.yaml")
    image = {"id": {"B": "AA=="}, "custNr": {"N": "1"}, "address": {"M": {"City": {"S": "Köln"}}}}
    change = {"ApproximateCreationDateTime": 1, "ApproximateCreationDateTimePrecision": "MICROSECOND"}
    change |= {"Keys": {name: image[name] for name in ("id", "custNr")}, "NewImage": image}
    record = {"eventID": "b6a1c1e8-13fb-4d5c-9c3b-0d8e9f1a2b3c", "eventName": "INSERT", "dynamodb": change}
    record["tableName"] = contract.source.table
    (row,) = DynamoDecoder(contract).decode(json.dumps(record), "1", "s/0/5").rows
    names = [name for name, _ in contract.lake_columns()]
    assert row[names.index("city")] == "Köln"


def test_a_column_reads_a_json_field_with_capitals_by_its_path() -> None:
    contract = parse_contract(GOOD.replace("payload.items", "payload.Items"), "orders.yaml")
    after = {"id": 1, "month": "2024-01", "payload": '{"Items":[{"product_id":7,"price":1.5}]}'}
    source = {"schema": "shop", "table": "orders", "lsn": 7, "ts_us": 1, "snapshot": "false"}
    envelope = json.dumps({"op": "c", "before": None, "after": after, "source": source}).encode()
    (row,) = PostgresDecoder(contract).decode(envelope, "t/0/5").rows
    names = [name for name, _ in contract.lake_columns()]
    assert row[names.index("items")] == [(7, Decimal("1.5"))]


def test_a_file_that_ends_with_yml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(GOOD)
    (tmp_path / "suppliers.yml").write_text(GOOD)
    with pytest.raises(UserError, match=r"suppliers\.yml: found the ending \.yml, expected \.yaml"):
        read_contracts(tmp_path)


def test_the_page_of_contracts_shows_a_contract_and_the_errors_that_it_may_meet() -> None:
    page = (REFERENCE / "contracts.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    assert parse_contract(example, "products.yaml").table == "products"
    errors = [line for line in page.splitlines() if line.startswith("contracts/products.yaml: ")]
    changes = (("type: int, source", "type: integer, source"), ('type: "decimal(12,4)"', "type: decimal(12,4)"))
    for error, (written, wrong) in zip(errors, changes, strict=True):
        with pytest.raises(UserError) as refused:
            parse_contract(example.replace(written, wrong, 1), "contracts/products.yaml")
        assert str(refused.value).startswith(error.removesuffix(" …"))


def test_a_history_takes_names_of_its_own(tmp_path: Path) -> None:
    def write(table: str, source: str, *lines: str, column: str = "id") -> None:
        text = (
            f"table: {table}\ndescription: x\nsource: {{database: postgresql, table: shop.{source}}}\n"
            f"key: [{column}]\npartition_by: []\nbuckets: 1\n" + "".join(f"{line}\n" for line in lines)
        )
        columns = f"columns:\n  - {{name: {column}, type: int, source_type: integer}}\n"
        (tmp_path / f"{table}.yaml").write_text(text + columns)

    write("orders", "orders", "history: {keep_days: 3}")
    (orders,) = read_contracts(tmp_path)
    assert from_json(orders.to_json(), "orders.json") == orders
    (_, history) = lake_tables([orders])
    assert history.lake_columns() == [*orders.lake_columns(), ("change_day", Type("string"))]
    assert history.partitions == ("change_day",)
    for end in ("changes", "versions", "history", "current"):
        write(f"orders_{end}", f"orders_{end}")
        with pytest.raises(UserError, match=f"orders_{end} is described by two contracts"):
            read_contracts(tmp_path)
        (tmp_path / f"orders_{end}.yaml").unlink()
    views = [view.name for view in history_views(orders, "lake")]
    assert catalog_names(orders) == ["orders", published_view_name(orders), history.table, *views]
    write("orders", "orders", "history: {keep_days: 3}", column="valid_to")
    with pytest.raises(UserError, match="found valid_to, which a table's history adds itself"):
        read_contracts(tmp_path)
    write("orders", "orders", "history: {keep_days: 0}")
    with pytest.raises(UserError, match=r"history\.keep_days"):
        read_contracts(tmp_path)


@pytest.mark.parametrize("table", ["order_items", "o_rders", "orders_versions"])
def test_names_that_differ_in_underscores_alone_are_refused(table: str, tmp_path: Path) -> None:
    text = (EXAMPLE.contracts / "customers.yaml").read_text()
    for name in (table, table.replace("_", "")):
        changed = text.replace("table: customers\n", f"table: {name}\n")
        (tmp_path / f"{name}.yaml").write_text(changed.replace("northwind.customers", f"northwind.{name}"))
    with pytest.raises(
        UserError, match=rf"named {table}\w* and {table.replace('_', '')}\w*, expected names that differ"
    ):
        read_contracts(tmp_path)

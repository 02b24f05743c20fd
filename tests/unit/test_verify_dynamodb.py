"""Comparing DynamoDB's items with their lake table: items as boto3's client gives them, lake rows made by hand."""

import base64
import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.stub import Stubber
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import Contract
from headwater.contract.reading import from_document, read_contract
from headwater.contract.types import Type
from headwater.errors import UserError
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from headwater.lake_folder import EXAMPLE
from headwater.verify import DynamoDbSource, Lake, TableComparison, compare, verify_tables
from headwater.verify.bunches import Pace
from headwater.verify.dynamodb_source import DynamoDbTable
from headwater.verify.forms import Row
from rig.samples.items import generate

UTC = dt.UTC
TEXTS = pa.list_(pa.string())
NUMBERS = pa.list_(pa.decimal128(20, 6))
Item = dict[str, Any]


def contract_of(*columns: dict[str, Any], **fields: Any) -> Contract:
    document = {
        "table": "things",
        "description": "For tests.",
        "source": {"database": "dynamodb", "table": "shop-things"},
        "key": ["id"],
        "partition_by": [],
        "buckets": 1,
        "columns": [{"name": "id", "type": "string", "source_type": "S"}, *columns],
        **fields,
    }
    return from_document(document, "things.yaml")


def one_column(type_: str, source_type: str, **fields: Any) -> Contract:
    return contract_of({"name": "value", "type": type_, "source_type": source_type, **fields})


class Given(DynamoDbTable):
    """A table whose items are given, not scanned."""

    def __init__(self, contract: Contract, items: Iterable[Item]) -> None:
        super().__init__(contract, None, "given")
        self._items = list(items)

    def rows(self) -> Iterator[Row]:
        return map(self.row, self._items)


def compared(contract: Contract, items: Iterable[Item], lake: Mapping[str, Any]) -> TableComparison:
    return compare(Given(contract, items), pa.table(dict(lake)).to_batches())


def counts_of(table: TableComparison) -> tuple[int, int, int, int, int]:
    return table.source_rows, table.lake_rows, table.missing, table.extra, table.different


def value_compared(contract: Contract, value: Any, lake: pa.Array) -> TableComparison:
    """Compare one item with one lake row. ``value`` is the item's attribute of that name, None if it is absent."""
    item = {"id": {"S": "a"}, **({} if value is None else {"value": value})}
    return compared(contract, [item], {"id": ["a"], "value": lake, "_rest": pa.array([None], pa.string())})


STREET = pa.struct([("street", pa.string()), ("floor", pa.int32()), ("built", pa.date32())])
DEVICE = pa.struct([("kind", pa.string()), ("price", pa.decimal128(10, 2)), ("key", pa.binary()), ("on", pa.bool_())])
DEVICES = {
    "L": [
        {"M": {"kind": {"S": "phone"}, "price": {"N": "1.5"}, "key": {"B": b"\x00"}, "on": {"BOOL": False}}},
        {"M": {"kind": {"S": ""}}},
    ]
}
PHONES = [
    {"kind": "phone", "price": Decimal("1.50"), "key": b"\x00", "on": False},
    {"kind": "", "price": None, "key": None, "on": None},
]
DIGITS = "1234567890123456789012345678.9012345678"
DOCUMENT = {"M": {"n": {"N": "1E+2"}, "l": {"L": [{"NULL": True}, {"BOOL": True}]}, "b": {"B": b"\xff"}}}
DOCUMENT_JSON = '{"M": {"b": {"B": "/w=="}, "l": {"L": [{"NULL": true}, {"BOOL": true}]}, "n": {"N": "100"}}}'
EQUAL: list[tuple[str, str, Any, pa.Array]] = [
    ("string", "S", {"S": "späß\n"}, pa.array(["späß\n"])),
    ("string", "S", {"S": ""}, pa.array([""])),
    ("string", "S", None, pa.array([None], pa.string())),
    ("date", "S", {"S": "1996-07-04"}, pa.array([dt.date(1996, 7, 4)])),
    ("timestamp", "S", {"S": "2024-02-29T12:00:00.5+02:00"}, pa.array([1709200800500], pa.timestamp("ms", "UTC"))),
    ("timestamp", "S", {"S": "2024-02-29T10:00:00Z"}, pa.array([1709200800000], pa.timestamp("ms", "UTC"))),
    ("decimal(38,10)", "N", {"N": DIGITS}, pa.array([Decimal(DIGITS)], pa.decimal128(38, 10))),
    ("decimal(12,4)", "N", {"N": "-1.5"}, pa.array([Decimal("-1.5000")], pa.decimal128(12, 4))),
    ("decimal(12,4)", "N", {"N": "0"}, pa.array([Decimal("0.0000")], pa.decimal128(12, 4))),
    ("int", "N", {"N": "-7"}, pa.array([-7], pa.int32())),
    ("bigint", "N", {"N": "9223372036854775807"}, pa.array([2**63 - 1])),
    ("bigint", "N", {"N": "1E+3"}, pa.array([1000])),
    ("string", "N", {"N": "1.5"}, pa.array(["1.50"])),
    ("string", "N", {"N": "1E-130"}, pa.array(["0." + "0" * 129 + "1"])),
    ("binary", "B", {"B": b"\x00\xff"}, pa.array([b"\x00\xff"])),
    ("binary", "B", {"B": b""}, pa.array([b""])),
    ("boolean", "BOOL", {"BOOL": False}, pa.array([False])),
    ("struct<street:string,floor:int,built:date>", "M",
     {"M": {"street": {"S": "Elm"}, "built": {"S": "1990-01-01"}}},
     pa.array([{"street": "Elm", "floor": None, "built": dt.date(1990, 1, 1)}], STREET)),
    ("struct<street:string,floor:int,built:date>", "M", {"M": {}},
     pa.array([{"street": None, "floor": None, "built": None}], STREET)),
    ("string", "M", DOCUMENT, pa.array([DOCUMENT_JSON])),
    ("string", "L", {"L": [{"S": "a"}, {"N": "1"}]}, pa.array(['{"L":[{"S":"a"},{"N":"1.0"}]}'])),
    ("array<string>", "L", {"L": [{"S": "b"}, {"NULL": True}, {"S": "a"}]}, pa.array([["b", None, "a"]])),
    ("array<struct<kind:string,price:decimal(10,2),key:binary,on:boolean>>", "L",
     DEVICES, pa.array([PHONES], pa.list_(DEVICE))),
    ("array<array<bigint>>", "L", {"L": [{"L": [{"N": "1"}]}, {"L": []}]}, pa.array([[[1], []]])),
    ("array<string>", "SS", {"SS": ["b", "", "a"]}, pa.array([["", "a", "b"]])),
    ("array<decimal(20,6)>", "NS", {"NS": ["10", "-1.5", "9"]}, pa.array([[9, 10, Decimal("-1.5")]], NUMBERS)),
    ("array<bigint>", "NS", {"NS": ["10", "9"]}, pa.array([[10, 9]])),
    ("array<string>", "NS", {"NS": ["10", "9.5"]}, pa.array([["9.50", "1E+1"]])),
    ("array<binary>", "BS", {"BS": [b"b", b"a"]}, pa.array([[b"a", b"b"]])),
]  # fmt: skip
DIFFERENT: list[tuple[str, str, Any, pa.Array]] = [
    ("string", "S", {"S": "a"}, pa.array(["b"])),
    ("string", "S", {"S": ""}, pa.array([None], pa.string())),
    ("string", "S", None, pa.array([""])),
    ("date", "S", {"S": "1996-07-04"}, pa.array([dt.date(1996, 7, 5)])),
    ("timestamp", "S", {"S": "2024-02-29T12:00:00+02:00"}, pa.array([dt.datetime(2024, 2, 29, 12, tzinfo=UTC)])),
    ("decimal(38,10)", "N", {"N": DIGITS}, pa.array([Decimal(DIGITS[:-1] + "9")], pa.decimal128(38, 10))),
    ("decimal(12,4)", "N", {"N": "1.5"}, pa.array([1.5])),
    ("int", "N", {"S": "5"}, pa.array([5], pa.int32())),
    ("int", "N", {"N": "1.5"}, pa.array([1], pa.int32())),
    ("string", "N", {"S": "1"}, pa.array(["1"])),
    ("string", "N", {"N": "12"}, pa.array(["1"])),
    ("string", "S", {"N": "1"}, pa.array(["1"])),
    ("binary", "B", {"B": b"\x00\xff"}, pa.array([b"\x00\xfe"])),
    ("boolean", "BOOL", {"BOOL": True}, pa.array([1])),
    ("struct<street:string,floor:int,built:date>", "M", {"M": {}}, pa.array([None], STREET)),
    ("struct<street:string,floor:int,built:date>", "M", {"M": {"floor": {"S": "1"}}},
     pa.array([{"street": None, "floor": 1, "built": None}], STREET)),
    ("string", "M", DOCUMENT, pa.array([DOCUMENT_JSON.replace('"N"', '"S"')])),
    ("string", "M", DOCUMENT, pa.array([DOCUMENT_JSON.replace("100", "101")])),
    ("string", "M", DOCUMENT, pa.array(["{}"])),
    ("string", "L", {"L": [{"S": "a"}, {"S": "b"}]}, pa.array(['{"L":[{"S":"b"},{"S":"a"}]}'])),
    ("array<string>", "L", {"L": [{"S": "b"}, {"S": "a"}]}, pa.array([["a", "b"]])),
    ("array<string>", "SS", {"SS": ["a", "b"]}, pa.array([["a"]])),
    ("array<string>", "SS", {"SS": ["a"]}, pa.array([["a", "a"]])),
    ("array<string>", "SS", {"NS": ["1"]}, pa.array([["1"]])),
    ("array<decimal(20,6)>", "NS", {"NS": ["1"]}, pa.array([[Decimal("1.000001")]], NUMBERS)),
    ("array<string>", "SS", {"SS": ["a"]}, pa.array([None], TEXTS)),
    ("array<binary>", "BS", {"BS": [b"a"]}, pa.array([[b"a\x00"]])),
]  # fmt: skip


class TestValues:
    @pytest.mark.parametrize(("type_", "source_type", "value", "lake"), EQUAL)
    def test_the_same_value_is_equal_however_each_side_writes_it(
        self, type_: str, source_type: str, value: Any, lake: pa.Array
    ) -> None:
        table = value_compared(one_column(type_, source_type), value, lake)
        assert table.equal, table.examples

    @pytest.mark.parametrize(("type_", "source_type", "value", "lake"), DIFFERENT)
    def test_another_value_is_different(self, type_: str, source_type: str, value: Any, lake: pa.Array) -> None:
        assert counts_of(value_compared(one_column(type_, source_type), value, lake)) == (1, 1, 0, 0, 1)

    @settings(deadline=None)
    @given(st.decimals(-(10**9), 10**9, places=6), st.integers(-7, 12))
    def test_one_digit_that_changed_is_found_wherever_it_stands(self, number: Decimal, at: int) -> None:
        contract = one_column("decimal(38,9)", "N")
        value = {"N": format(number, "f")}
        lake = pa.array([number, number + Decimal(1).scaleb(at)], pa.decimal128(38, 9))
        assert value_compared(contract, value, lake.slice(0, 1)).equal
        assert value_compared(contract, value, lake.slice(1, 1)).different == 1

    def test_a_difference_is_shown_as_the_values_are_written(self) -> None:
        columns = [
            {"name": "tags", "type": "array<string>", "source_type": "SS"},
            {"name": "document", "type": "string", "source_type": "M"},
        ]
        item = {"id": {"S": "a"}, "tags": {"SS": ["x", "y"]}, "document": {"M": {"é": {"N": "1"}}}, "more": {"S": "m"}}
        lake = {"id": ["a"], "tags": [["x"]], "document": ["nonsense"], "_rest": ['{"more":{"N":"1"}}']}
        (example,) = compared(contract_of(*columns), [item], lake).examples
        assert example.columns == {
            "tags": ("[x, y]", "[x]"),
            "document": ('{"M": {"é": {"N": "1"}}}', "not of its type 'nonsense'"),
            "_rest": ('{"more": {"S": "m"}}', '{"more": {"N": "1"}}'),
        }


MONTHS = contract_of(
    {"name": "since", "type": "date", "source_type": "S", "from": "registrationDate"},
    {"name": "month", "type": "string", "source_type": "S", "from": "registrationDate", "transform": "month"},
)


class TestColumns:
    @pytest.mark.parametrize(
        ("attributes", "since", "month", "rest"),
        [
            ({"registrationDate": {"S": "2024-02-29"}}, dt.date(2024, 2, 29), "2024-02", None),
            ({}, None, "unknown", None),
            ({"registrationDate": {"NULL": True}}, None, "unknown", '{"registrationDate":{"NULL":true}}'),
        ],
    )
    def test_a_month_comes_from_a_date_or_is_unknown(
        self, attributes: Item, since: dt.date | None, month: str, rest: str | None
    ) -> None:
        def lake(month: str) -> dict[str, Any]:
            days, left = pa.array([since], pa.date32()), pa.array([rest], pa.string())
            return {"id": ["a"], "since": days, "month": [month], "_rest": left}

        item = {"id": {"S": "a"}, **attributes}
        assert compared(MONTHS, [item], lake(month)).equal
        assert compared(MONTHS, [item], lake("2024-03")).different == 1

    @pytest.mark.parametrize(
        ("transform", "value", "part"),
        [
            ("day", {"S": "2024-02-29T23:30:00-05:00"}, "2024-02-29"),
            ("hour", {"S": "2024-02-29T23:30:00-05:00"}, "2024-02-29-23"),
            ("month", {"S": "2024-02-29 Thursday\n"}, "2024-02"),
            ("day", {"S": "2024-02-29T1"}, "2024-02-29"),
            ("hour", {"S": "2024-02-29 10 BC"}, "2024-02-29-10"),
            ("hour(seconds)", {"N": "1709251199"}, "2024-02-29-23"),
            ("bucket(16)", {"S": "a"}, 3),
            ("bucket(16)", {"N": "12.50"}, 9),
        ],
    )
    def test_a_part_of_a_value_is_equal_to_that_of_the_source(
        self, transform: str, value: dict[str, str], part: str | int
    ) -> None:
        (source_type,) = value
        contract = one_column("int" if transform[0] == "b" else "string", source_type, transform=transform)
        item = {"id": {"S": "a"}, "value": value}
        assert compared(contract, [item], {"id": ["a"], "value": [part]}).equal
        other = f"{part}0" if isinstance(part, str) else part + 1
        assert compared(contract, [item], {"id": ["a"], "value": [other]}).different == 1

    def test_a_path_leads_into_maps_by_names_that_may_hold_dots(self) -> None:
        contract = one_column("string", "S", **{"from": ["a.b", "c.d"]})
        item = {"id": {"S": "a"}, "a.b": {"M": {"c.d": {"S": "deep"}}}}
        assert compared(contract, [item], {"id": ["a"], "value": ["deep"]}).equal
        assert compared(contract, [item], {"id": ["a"], "value": ["other"]}).different == 1

    def test_a_path_into_what_is_no_map_has_no_value_that_the_lake_could_have(self) -> None:
        contract = one_column("string", "S", **{"from": "a.b"})
        lake = {"id": ["a"], "value": pa.array([None], pa.string())}
        assert compared(contract, [{"id": {"S": "a"}, "a": {"S": "text"}}], lake).different == 1

    @pytest.mark.parametrize(
        ("type_", "source_type", "keys", "lake"),
        [
            ("string", "S", [{"S": "a"}, {"S": ""}], pa.array(["", "a"])),
            ("decimal(38,9)", "N", [{"N": "1.5"}, {"N": "-2"}], pa.array([-2, Decimal("1.5")], pa.decimal128(38, 9))),
            ("bigint", "N", [{"N": "1"}, {"N": "10"}], pa.array([10, 1])),
            ("string", "N", [{"N": "1"}, {"N": "10"}], pa.array(["10", "1"])),
            ("binary", "B", [{"B": b"a"}, {"B": b"\xff"}], pa.array([b"\xff", b"a"])),
        ],
    )  # fmt: skip
    def test_a_key_may_be_of_every_type_that_dynamodb_has_for_one(
        self, type_: str, source_type: str, keys: list[Any], lake: pa.Array
    ) -> None:
        key = {"name": "sort", "type": type_, "source_type": source_type}
        contract = contract_of(key, key=["id", "sort"])
        items = [{"id": {"S": "a"}, "sort": value} for value in keys]
        assert counts_of(compared(contract, items, {"id": ["a", "a"], "sort": lake})) == (2, 2, 0, 0, 0)
        assert counts_of(compared(contract, items, {"id": ["a"], "sort": lake.slice(0, 1)})) == (2, 1, 1, 0, 0)


REST = contract_of(
    {"name": "locale", "type": "string", "source_type": "S", "from": "settings.locale"},
    {"name": "address", "type": "struct<city:string>", "source_type": "M"},
    {"name": "devices", "type": "array<struct<kind:string>>", "source_type": "L"},
    {"name": "preferences", "type": "string", "source_type": "M"},
)
ITEM: Item = {
    "id": {"S": "a"},
    "settings": {"M": {"locale": {"S": "de"}, "theme": {"S": "dark"}}},
    "address": {"M": {"city": {"NULL": True}, "zip.code": {"S": "10115"}}},
    "devices": {"L": [{"M": {"kind": {"S": "tv"}, "inch": {"N": "55.50"}}}, {"NULL": True}]},
    "preferences": {"M": {"any": {"S": "thing"}}},
    "nick.name": {"S": ""},
    'a"b': {"BOOL": False},
    '"q"': {"N": "1E+2"},
    "settings.locale": {"S": "looks like a path"},
    "tags": {"SS": ["x", "y"]},
    "keys": {"BS": [b"\x00", b"\xff"]},
    "limits": {"NS": ["1", "2.50"]},
    "nothing": {"NULL": True},
    "tree": {"M": {"l": {"L": [{"B": b"\xff"}, {"M": {}}]}}},
}
KEPT: dict[str, Any] = {
    "settings.theme": {"S": "dark"},
    "address.city": {"NULL": True},
    'address."zip.code"': {"S": "10115"},
    "devices.0.inch": {"N": "55.5"},
    "devices.1": {"NULL": True},
    "nick.name": {"S": ""},
    'a"b': {"BOOL": False},
    json.dumps('"q"'): {"N": "100"},
    '"settings.locale"': {"S": "looks like a path"},
    "tags": {"SS": ["y", "x"]},
    "keys": {"BS": ["/w==", "AA=="]},
    "limits": {"NS": ["2.5", "1"]},
    "nothing": {"NULL": True},
    "tree": {"M": {"l": {"L": [{"B": "/w=="}, {"M": {}}]}}},
}
DEVICE_KINDS = pa.list_(pa.struct([("kind", pa.string())]))


def rest_compared(item: Item, rest: str | None) -> TableComparison:
    lake = {
        "id": ["a"],
        "locale": ["de"],
        "address": pa.array([{"city": None}], pa.struct([("city", pa.string())])),
        "devices": pa.array([[{"kind": "tv"}, None]], DEVICE_KINDS),
        "preferences": ['{"M":{"any":{"S":"thing"}}}'],
        "_rest": pa.array([rest], pa.string()),
    }
    return compared(REST, [item], lake)


class TestRest:
    def test_what_no_column_names_is_there_with_its_type(self) -> None:
        table = rest_compared(ITEM, json.dumps(KEPT))
        assert table.equal, table.examples

    @pytest.mark.parametrize("name", sorted(KEPT))
    def test_whatever_is_lost_is_found(self, name: str) -> None:
        kept = {path: value for path, value in KEPT.items() if path != name}
        (example,) = rest_compared(ITEM, json.dumps(kept)).examples
        assert list(example.columns) == ["_rest"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("nick.name", {"S": "x"}),
            ("nick.name", {"NULL": True}),
            ('a"b', {"S": "false"}),
            (json.dumps('"q"'), {"N": "101"}),
            (json.dumps('"q"'), {"S": "100"}),
            (json.dumps('"q"'), {"N": 100}),
            ("tags", {"SS": ["x"]}),
            ("tags", {"SS": ["x", "y", "y"]}),
            ("tags", {"L": [{"S": "x"}, {"S": "y"}]}),
            ("keys", {"BS": ["/w==", "AQ=="]}),
            ("keys", {"SS": ["/w==", "AA=="]}),
            ("limits", {"NS": ["2.51", "1"]}),
            ("nothing", None),
            ("tree", {"M": {"l": {"L": [{"M": {}}, {"B": "/w=="}]}}}),
            ("tree", {"M": {"l": {"L": [{"B": "/w=="}, {"M": {}}]}, "m": {"NULL": True}}}),
            ("more", {"S": "never in the item"}),
        ],
    )
    def test_whatever_is_changed_is_found(self, name: str, value: Any) -> None:
        assert rest_compared(ITEM, json.dumps({**KEPT, name: value})).different == 1

    def test_a_path_is_not_a_name_that_looks_like_it(self) -> None:
        kept = {name: value for name, value in KEPT.items() if name != '"settings.locale"'}
        assert rest_compared(ITEM, json.dumps({**kept, "settings.locale": KEPT['"settings.locale"']})).different == 1

    @pytest.mark.parametrize("rest", [None, "", "nonsense", "[]"])
    def test_what_is_no_rest_is_different(self, rest: str | None) -> None:
        assert rest_compared(ITEM, rest).different == 1

    def test_a_name_that_stands_there_twice_is_different(self) -> None:
        twice = json.dumps(KEPT)[:-1] + ',"tags":{"SS":["x","y"]}}'
        assert rest_compared(ITEM, twice).different == 1

    def test_null_and_absent_differ(self) -> None:
        contract = one_column("int", "N")
        lake = {"id": ["a"], "value": pa.array([None], pa.int32())}
        null = {"_rest": ['{"value":{"NULL":true}}']}
        assert compared(contract, [{"id": {"S": "a"}}], lake).equal
        assert compared(contract, [{"id": {"S": "a"}}], {**lake, **null}).different == 1
        assert compared(contract, [{"id": {"S": "a"}, "value": {"NULL": True}}], lake).different == 1
        assert compared(contract, [{"id": {"S": "a"}, "value": {"NULL": True}}], {**lake, **null}).equal

    @pytest.mark.parametrize("inner", [{}, {"b": {"M": {}}}])
    def test_an_empty_map_around_a_path_and_an_absent_one_differ(self, inner: Item) -> None:
        contract = one_column("string", "S", **{"from": "a.b.c"})
        lake = {"id": ["a"], "value": pa.array([None], pa.string())}
        kept = {"_rest": [json.dumps({"a.b" if inner else "a": {"M": {}}})]}
        item = {"id": {"S": "a"}, "a": {"M": inner}}
        assert compared(contract, [{"id": {"S": "a"}}], lake).equal
        assert compared(contract, [item], lake).different == 1
        assert compared(contract, [item], {**lake, **kept}).equal

    def test_what_any_column_names_is_not_there(self) -> None:
        contract = contract_of(
            {"name": "address", "type": "struct<street:string>", "source_type": "M"},
            {"name": "city", "type": "string", "source_type": "S", "from": "address.city"},
        )
        item = {"id": {"S": "a"}, "address": {"M": {"street": {"S": "Elm"}, "city": {"S": "Ulm"}}}}
        lake = {"id": ["a"], "address": [{"street": "Elm"}], "city": ["Ulm"]}
        assert compared(contract, [item], lake).equal
        assert compared(contract, [item], {**lake, "_rest": ['{"address.city":{"S":"Ulm"}}']}).different == 1


PLAIN = contract_of()


def dynamodb() -> Any:
    return boto3.client("dynamodb", region_name="eu-central-1", aws_access_key_id="-", aws_secret_access_key="-")


def things(*ids: str, **attributes: Any) -> list[Item]:
    return [{"id": {"S": id_}, **attributes} for id_ in ids]


class TestScan:
    def test_all_pages_are_read_consistently_and_compared_by_key(self) -> None:
        client = dynamodb()
        expected = {"TableName": "shop-things", "ConsistentRead": True}
        with Stubber(client) as stub:
            page = {"Items": things("a", "b"), "LastEvaluatedKey": {"id": {"S": "b"}}}
            stub.add_response("scan", page, expected)
            stub.add_response("scan", {"Items": things("c")}, {**expected, "ExclusiveStartKey": {"id": {"S": "b"}}})
            lake = pa.table({"id": ["b", "c", "d", "c"], "_deleted": [False, None, False, False]})
            table = compare(DynamoDbSource(client).table(PLAIN), lake.to_batches())
            stub.assert_no_pending_responses()
        assert counts_of(table) == (3, 4, 1, 2, 0)
        assert [(example.kind, example.key["id"]) for example in table.examples] == [
            ("extra", "d"),
            ("extra", "c"),
            ("missing", "a"),
        ]

    def test_an_expired_item_counts_until_dynamodb_deletes_it(self) -> None:
        contract = one_column("bigint", "N")
        item = {"id": {"S": "a"}, "value": {"N": "1"}}  # an expiry in 1970
        assert counts_of(compared(contract, [item], {"id": ["a"], "value": [1]})) == (1, 1, 0, 0, 0)
        assert counts_of(compared(contract, [item], {"id": ["a"], "value": [1], "_deleted": [True]})) == (1, 0, 1, 0, 0)

    def test_a_key_that_leaves_out_the_sort_key_is_an_error(self) -> None:
        with pytest.raises(UserError, match=r"things: the source has id = a twice, expected once"):
            compared(PLAIN, things("a", "a"), {"id": ["a"]})

    def test_a_table_may_be_called_otherwise_than_in_the_contract(self) -> None:
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_response("scan", {"Items": []}, {"TableName": "shop-things-dev", "ConsistentRead": True})
            assert list(DynamoDbSource(client, {"things": "shop-things-dev"}).table(PLAIN).rows()) == []

    def test_a_table_that_cannot_be_read_is_an_error_that_says_which(self) -> None:
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_client_error("scan", "ResourceNotFoundException", "Requested resource not found")
            with pytest.raises(UserError, match=r"things: reading the DynamoDB table shop-things failed: .*not found"):
                list(DynamoDbSource(client).table(PLAIN).rows())


def units(count: float) -> dict[str, Any]:
    return {"TableName": "shop-things", "CapacityUnits": count}


KEY_SCHEMA = {"Table": {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}}


class TestBunches:
    """Chunks of the table ``shop-things``, at ten read units a second and a pace whose clock stands still."""

    def table(self, client: Any, contract: Contract = PLAIN) -> DynamoDbTable:
        return DynamoDbTable(contract, client, "shop-things", read_units=10, pace=Pace(lambda: 0.0))

    def test_each_page_is_a_bunch_and_is_rested_for_before_it_is_given(self) -> None:
        client = dynamodb()
        request = {"TableName": "shop-things", "ConsistentRead": True, "Limit": 2, "ReturnConsumedCapacity": "TOTAL"}
        with Stubber(client) as stub:
            stub.add_response("describe_table", KEY_SCHEMA)
            page = {"Items": things("a", "b"), "LastEvaluatedKey": {"id": {"S": "b"}}, "ConsumedCapacity": units(30)}
            stub.add_response("scan", page, {**request, "ExclusiveStartKey": {"id": {"S": "0"}}})
            page = {"Items": [], "LastEvaluatedKey": {"id": {"S": "d"}}, "ConsumedCapacity": units(20)}
            stub.add_response("scan", page, {**request, "ExclusiveStartKey": {"id": {"S": "b"}}})
            # As an API may answer that does not know what it consumes.
            stub.add_response("scan", {"Items": things("e")}, {**request, "ExclusiveStartKey": {"id": {"S": "d"}}})
            table = self.table(client)
            told = [([key for (key,) in bunch], table.pace.wait) for bunch in table.bunches(2, {"id": {"S": "0"}})]
        assert told == [(["a", "b"], 3.0), ([], 5.0), (["e"], 30.6)]

    def test_keys_that_are_left_out_are_asked_for_again_with_rests_that_grow(self) -> None:
        client = dynamodb()
        ids = [f"{number:03}" for number in range(150)]

        def asked(*ids: str) -> dict[str, Any]:
            request = {"shop-things": {"Keys": things(*ids), "ConsistentRead": True}}
            return {"RequestItems": request, "ReturnConsumedCapacity": "TOTAL"}

        def answer(found: list[str], left: list[str], consumed: float) -> dict[str, Any]:
            unprocessed = {"shop-things": {"Keys": things(*left)}} if left else {}
            return {
                "Responses": {"shop-things": things(*found)},
                "UnprocessedKeys": unprocessed,
                "ConsumedCapacity": [units(consumed)],
            }

        with Stubber(client) as stub:
            stub.add_response("batch_get_item", answer(ids[:50], ids[50:100], 50), asked(*ids[:100]))
            stub.add_response("batch_get_item", answer([], ids[50:], 0), asked(*ids[50:]))
            stub.add_response("batch_get_item", answer([], ids[50:], 0), asked(*ids[50:]))
            # The others are not there.
            stub.add_response("batch_get_item", answer(ids[50:60], [], 95), asked(*ids[50:]))
            table = self.table(client)
            told = [(len(bunch), table.pace.wait) for bunch in table.rows_at(things(*ids))]
            assert list(table.rows_at([])) == []
            stub.assert_no_pending_responses()
        assert told == [(50, 6.0), (0, 7.0), (0, 9.0), (10, 18.5)]

    def test_a_table_that_gives_nothing_for_a_minute_is_throttled(self) -> None:
        client = dynamodb()
        nothing = {"Responses": {}, "UnprocessedKeys": {"shop-things": {"Keys": things("a")}}}
        with Stubber(client) as stub:
            for _ in range(7):
                stub.add_response("batch_get_item", {**nothing, "ConsumedCapacity": [units(0)]})
            table = self.table(client)
            bunches = table.rows_at(things("a"))
            assert [next(bunches) for _ in range(6)] == [{}] * 6
            assert 60 <= table.pace.wait <= 65
            with pytest.raises(UserError, match=r"the DynamoDB table shop-things is throttled: .*--read-units"):
                next(bunches)

    @pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ThrottlingException"])
    def test_a_throttled_scan_says_so(self, code: str) -> None:
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_response("describe_table", KEY_SCHEMA)
            stub.add_client_error("scan", code, "The level of configured provisioned throughput …")
            with pytest.raises(UserError, match=rf"things: the DynamoDB table shop-things is throttled: {code}"):
                next(self.table(client).bunches(5))

    def test_what_dynamodb_says_of_a_value_is_not_repeated(self) -> None:
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_client_error("batch_get_item", "ValidationException", "cannot be converted: swordfish")
            with pytest.raises(UserError, match=r"BatchGetItem is refused \(ValidationException\)") as raised:
                next(self.table(client).rows_at(things("a")))
            assert "swordfish" not in str(raised.value)
        with pytest.raises(UserError, match=r"ParamValidationError") as raised:
            next(self.table(client).rows_at([{"id": {"S": 271828}}]))
        assert "271828" not in str(raised.value)

    def test_a_key_that_a_page_has_twice_is_told_without_its_value(self) -> None:
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_response("describe_table", KEY_SCHEMA)
            stub.add_response("scan", {"Items": things("secret", "secret"), "ConsumedCapacity": units(1)})
            with pytest.raises(UserError, match=r"things: the source has a key twice, expected once") as raised:
                next(self.table(client).bunches(5))
        assert "secret" not in str(raised.value)

    def test_each_table_has_one_pace_for_all_who_read_it(self) -> None:
        paces: dict[str, Pace] = {}
        first, again = (DynamoDbSource(None, paces=paces).table(PLAIN) for _ in range(2))
        other = DynamoDbSource(None, {"things": "another"}, paces=paces).table(PLAIN)
        assert first.pace is again.pace is paces["shop-things"]
        assert other.pace is paces["another"] is not first.pace

    @pytest.mark.parametrize(
        ("type_", "source_type", "form", "asked"),
        [
            ("string", "S", "a", {"S": "a"}),
            ("string", "S", "x" * 2048, {"S": "x" * 2048}),
            ("string", "S", "é" * 1025, None),
            ("string", "S", "", None),
            ("date", "S", 19782, {"S": "2024-02-29"}),
            ("int", "N", -7, {"N": "-7"}),
            ("decimal(38,9)", "N", 1_500_000_000, {"N": "1.500000000"}),
            ("string", "N", "1" + "0" * 125, {"N": "1" + "0" * 125}),
            ("string", "N", "1" + "0" * 126, None),
            ("string", "N", "1" * 39, None),
            ("string", "N", ("not of its type", "'x'"), None),
            ("binary", "B", "00ff", {"B": b"\x00\xff"}),
            ("binary", "B", "", None),
        ],
    )
    def test_what_the_lake_alone_has_is_asked_for_where_an_item_can_have_that_key(
        self, type_: str, source_type: str, form: Any, asked: dict[str, Any] | None
    ) -> None:
        columns = [{"name": "id", "type": type_, "source_type": source_type}]
        client = dynamodb()
        with Stubber(client) as stub:
            stub.add_response("describe_table", KEY_SCHEMA)
            found = self.table(client, contract_of(columns=columns)).asked_of((form,))
        assert found == (None if asked is None else {"id": asked})

    def test_a_sort_key_has_a_length_of_its_own(self) -> None:
        client = dynamodb()
        columns = [{"name": name, "type": "string", "source_type": "S"} for name in ("b", "id")]
        contract = contract_of(columns=columns, key=["b", "id"])
        schema = [*KEY_SCHEMA["Table"]["KeySchema"], {"AttributeName": "b", "KeyType": "RANGE"}]
        with Stubber(client) as stub:
            stub.add_response("describe_table", {"Table": {"KeySchema": schema}})
            table = self.table(client, contract)
            assert table.asked_of(("y" * 1024, "x" * 2048)) == {"id": {"S": "x" * 2048}, "b": {"S": "y" * 1024}}
            assert table.asked_of(("y" * 1025, "x")) is None


class TestVerify:
    def test_tables_come_in_the_order_of_their_contracts(self) -> None:
        contracts = [contract_of(table=name) for name in ("zebras", "apes")]
        read: list[str] = []

        def read_table(uri: str, storage: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
            read.append(uri)
            return list(pa.table({"id": ["a"]}).to_batches())

        client = dynamodb()
        with Stubber(client) as stub:
            for _ in contracts:
                stub.add_response("scan", {"Items": things("a")})
            sources = {"dynamodb": DynamoDbSource(client)}
            tables = verify_tables(contracts, sources, Lake("s3://lake/tables/", {}, read_table))
        assert [(table.name, table.equal) for table in tables] == [("zebras", True), ("apes", True)]
        assert read == ["s3://lake/tables/zebras", "s3://lake/tables/apes"]


class TestCommand:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                ["other=name"],
                "found 'other=name', expected CONTRACT=TABLE, each contract at most once, out of: accounts",
            ),
            (["accounts"], "found 'accounts', expected CONTRACT=TABLE"),
            (
                ["accounts=a-1", "accounts=a-2"],
                "found 'accounts=a-2', expected CONTRACT=TABLE, each contract at most once",
            ),
            (["orders=o"], "out of: accounts"),
        ],
    )
    def test_a_table_for_a_contract_that_has_none_is_refused(self, options: list[str], message: str) -> None:
        arguments = [
            "verify",
            "--lake",
            "/nowhere",
            *(part for option in options for part in ("--dynamodb-table", option)),
        ]
        refused = CliRunner().invoke(app, arguments)
        assert isinstance(refused.exception, UserError)
        assert message in str(refused.exception)

    def test_an_endpoint_that_is_no_address_is_refused(self) -> None:
        arguments = ["verify", "--lake", "/nowhere", "--dynamodb-endpoint", "localhost:8000"]
        refused = CliRunner().invoke(app, arguments)
        assert isinstance(refused.exception, UserError)
        assert "--dynamodb-endpoint" in str(refused.exception)
        assert "http://127.0.0.1:8000" in str(refused.exception)


def arrow_type(type_: Type) -> pa.DataType:
    """How Spark stores a lake type."""
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    if type_.element is not None:
        return pa.list_(arrow_type(type_.element))
    if type_.kind == "struct":
        return pa.struct([(name, arrow_type(field)) for name, field in type_.fields])
    return {
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[type_.kind]


def arrow_value(value: Any, type_: Type) -> Any:
    """A decoded value as pyarrow takes it: a struct as a dict."""
    if value is None:
        return None
    if type_.element is not None:
        return [arrow_value(member, type_.element) for member in value]
    if type_.kind == "struct":
        pairs = zip(type_.fields, value, strict=True)
        return {name: arrow_value(inner, field) for (name, field), inner in pairs}
    return value


def exported(value: Any) -> Any:
    """The answers of boto3's client in DynamoDB's JSON, with bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: exported(inner) for name, inner in value.items()}
    return [exported(member) for member in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def contract() -> Contract:
    return read_contract(EXAMPLE.contracts / "accounts.yaml")


@pytest.fixture(scope="module")
def items(contract: Contract) -> list[Item]:
    return list(generate(contract, 200, 1))


@pytest.fixture(scope="module")
def lake(contract: Contract, items: list[Item]) -> pa.Table:
    """The items as the decoder stores them."""
    return decoded(contract, items)


def decoded(contract: Contract, items: list[Item]) -> pa.Table:
    """Items as the decoder stores them."""
    decoder = DynamoDecoder(contract)
    rows = [row for item in items for row in decoder.item(json.dumps({"Item": exported(item)}), 1, "a test").rows]
    columns = zip(contract.lake_columns(), zip(*rows, strict=True), strict=True)
    return pa.table(
        {
            name: pa.array([arrow_value(value, type_) for value in values], arrow_type(type_))
            for (name, type_), values in columns
        }
    )


VALUES = st.sampled_from(
    [{"S": "x"}, {"S": ""}, {"N": "1"}, {"N": "1E+40"}, {"NULL": True}, {"M": {}}, {"M": {"x": {"S": "y"}}}, {"L": []}]
)
NAMED = st.sampled_from(["city", "zip", "geo", "lat", "lon", "x", "a.b"])
MAPS = st.recursive(
    VALUES,
    lambda inner: (
        st.fixed_dictionaries({"M": st.dictionaries(NAMED, inner, max_size=4)})
        | st.fixed_dictionaries({"L": st.lists(inner, max_size=2)})
    ),
    max_leaves=6,
)
SHARING = [
    ("place", "struct<city:string,geo:struct<lat:int>>", "M", ["a"]),
    ("town", "struct<city:string,lon:int>", "M", ["a"]),
    ("zip", "string", "S", ["a", "zip"]),
    ("lon", "int", "N", ["a", "geo", "lon"]),
    ("points", "array<struct<lat:int>>", "L", ["l"]),
    ("list", "array<struct<lon:int>>", "L", ["l"]),
    ("number", "int", "N", ["n"]),
    ("deep", "string", "S", ["p", "city", "x"]),
]


class TestDecodedItems:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.dictionaries(st.sampled_from("alnpfx"), MAPS, max_size=5), min_size=1, max_size=5))
    def test_whatever_shares_a_map_and_does_not_fit_decoder_and_verify_agree(self, documents: list[Item]) -> None:
        columns = [
            {"name": name, "type": type_, "source_type": source_type, "from": path}
            for name, type_, source_type, path in SHARING
        ]
        contract = contract_of(*columns)
        items = [{"id": {"S": str(number)}, **document} for number, document in enumerate(documents)]
        lake = decoded(contract, items)
        table = compared(contract, items, dict(zip(lake.column_names, lake.columns, strict=True)))
        assert (table.missing, table.extra, table.different) == (0, 0, 0), table.examples
        assert table.unfit == sum(len(names or ()) for names in lake.column("_unfit").to_pylist())

    def test_what_the_decoder_makes_of_items_equals_them(
        self, contract: Contract, items: list[Item], lake: pa.Table
    ) -> None:
        table = compared(contract, items, dict(zip(lake.column_names, lake.columns, strict=True)))
        assert counts_of(table) == (200, 200, 0, 0, 0), table.examples

    def test_whichever_column_changes_is_found(self, contract: Contract, items: list[Item], lake: pa.Table) -> None:
        names = [column.name for column in contract.columns if column.name not in contract.key]
        for name in [*names, "_rest"]:
            at = next(at for at, value in enumerate(lake.column(name).to_pylist()) if value is not None)
            values = lake.column(name).to_pylist()
            values[at] = None
            changed = dict(zip(lake.column_names, lake.columns, strict=True))
            changed[name] = pa.array(values, lake.schema.field(name).type)
            (example,) = compared(contract, items, changed).examples
            assert list(example.columns) == [name]

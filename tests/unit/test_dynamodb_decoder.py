from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.contract.model import QUARANTINE, UNKNOWN, Contract
from headwater.contract.reading import from_document, parse_contract
from headwater.lake.decoding import dynamodb_values
from headwater.lake.decoding.changes import BadRecord, Decoded, columns_tagged, order_version
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records, floor_of_export, kept_decoder

ACCOUNTS = parse_contract(
    """
table: people
description: A column of each type.
source: {database: dynamodb, table: shop-people}
key: [id, cust_name]
partition_by: [month]
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: cust_name, type: string, source_type: S, from: custName}
  - {name: since, type: date, source_type: S}
  - {name: month, type: string, source_type: S, from: since, transform: month}
  - {name: seen, type: timestamp, source_type: S}
  - {name: balance, type: "decimal(38,9)", source_type: N}
  - {name: digits, type: string, source_type: N}
  - {name: points, type: int, source_type: N}
  - {name: expires_at, type: bigint, source_type: N}
  - {name: photo, type: binary, source_type: B}
  - {name: active, type: boolean, source_type: BOOL}
  - {name: address, type: "struct<city:string,floor:int,geo:struct<lat:decimal(9,6)>>", source_type: M}
  - {name: devices, type: "array<struct<kind:string,since:date>>", source_type: L}
  - {name: phones, type: array<string>, source_type: L}
  - {name: tags, type: array<string>, source_type: SS}
  - {name: limits, type: "array<decimal(20,6)>", source_type: NS}
  - {name: blobs, type: array<binary>, source_type: BS}
  - {name: settings, type: string, source_type: M}
  - {name: history, type: string, source_type: L}
  - {name: locale, type: string, source_type: S, from: profile.ui.locale}
  - {name: nick, type: string, source_type: S, from: [nick.name]}
""",
    "people.yaml",
)
STRICT = replace(ACCOUNTS, on_unfit=QUARANTINE)
NAMES = [name for name, _ in ACCOUNTS.lake_columns()]
KEYS: dict[str, Any] = {"id": {"S": "7"}, "custName": {"S": "Grace"}}
ITEM: dict[str, Any] = {**KEYS, "since": {"S": "2024-02-29"}}
MICROS = 1_700_000_000_123_456
SEQUENCE = "49590338271490256608559692538361571095921575989136588898"
Item = Mapping[str, Any]


def record(
    event: str = "MODIFY",
    new: Item | None = ITEM,
    old: Item | None = ITEM,
    keys: Item = KEYS,
    micros: int = MICROS,
    **fields: Any,
) -> dict[str, Any]:
    """A record in the order in which DynamoDB writes it."""
    images = {"NewImage": new, "OldImage": old}
    return {
        "awsRegion": "eu-west-1",
        "eventID": "b6a1c1e8-13fb-4d5c-9c3b-0d8e9f1a2b3c",
        "eventName": event,
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": "shop-people",
        "dynamodb": {
            "ApproximateCreationDateTime": micros,
            "Keys": keys,
            **{name: image for name, image in images.items() if image is not None},
            "SizeBytes": 98,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
        },
        "eventSource": "aws:dynamodb",
        **fields,
    }


def insert(new: Item, **fields: Any) -> dict[str, Any]:
    return record("INSERT", new, None, {name: value for name, value in new.items() if name in KEYS}, **fields)


def remove(old: Item = ITEM, **fields: Any) -> dict[str, Any]:
    return record("REMOVE", None, old, **fields)


def compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def decode(document: Any, contract: Contract = ACCOUNTS, sequence: str | None = SEQUENCE) -> Decoded:
    return DynamoDecoder(contract).decode(compact(document).encode(), sequence, "s/0/5")


def only(decoded: Decoded, contract: Contract = ACCOUNTS) -> dict[str, Any]:
    (row,) = decoded.rows
    return named(row, contract)


def named(row: tuple[Any, ...], contract: Contract = ACCOUNTS) -> dict[str, Any]:
    return dict(zip([name for name, _ in contract.lake_columns()], row, strict=True))


def value_of(column: str, value: Any, attribute: str | None = None) -> Any:
    return only(decode(insert({**ITEM, attribute or column: value})))[column]


def rest_of(attributes: Item) -> Any:
    rest = only(decode(insert({**ITEM, **attributes})))["_rest"]
    return None if rest is None else json.loads(rest)


def one_key(type_: str, source_type: str) -> Contract:
    document = {
        "table": "keyed",
        "description": "One key.",
        "source": {"database": "dynamodb", "table": "shop-people"},
        "key": ["k"],
        "partition_by": [],
        "buckets": 1,
        "columns": [{"name": "k", "type": type_, "source_type": source_type}],
    }
    return from_document(document, "keyed.yaml")


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("cust_name", {"S": 'a "b" \\ c\n{"S":"'}, 'a "b" \\ c\n{"S":"'),
        ("since", {"S": "0001-01-01"}, dt.date(1, 1, 1)),
        ("seen", {"S": "2024-01-01T00:30:00Z"}, dt.datetime(2024, 1, 1, 0, 30, tzinfo=dt.UTC)),
        ("seen", {"S": "2024-01-01T00:30:00.123456Z"}, dt.datetime(2024, 1, 1, 0, 30, 0, 123456, dt.UTC)),
        ("seen", {"S": "2024-01-01 00:30:00.5+02:00"}, dt.datetime(2023, 12, 31, 22, 30, 0, 500000, dt.UTC)),
        ("balance", {"N": "9" * 29 + ".123456789"}, Decimal("9" * 29 + ".123456789")),
        ("balance", {"N": "-0.000000001"}, Decimal("-0.000000001")),
        ("balance", {"N": "1.5E+2"}, Decimal("150")),
        ("balance", {"N": "1.50000000000"}, Decimal("1.5")),
        ("points", {"N": "-2147483648"}, -(2**31)),
        ("points", {"N": "1E+2"}, 100),
        ("points", {"N": "7.0"}, 7),
        ("expires_at", {"N": "9223372036854775807"}, 2**63 - 1),
        ("photo", {"B": "AP/+"}, b"\x00\xff\xfe"),
        ("photo", {"B": ""}, b""),
        ("active", {"BOOL": False}, False),
        ("phones", {"L": [{"S": ""}, {"NULL": True}, {"S": "1"}]}, ["", None, "1"]),
        ("phones", {"L": []}, []),
        ("tags", {"SS": ["b", "", "a"]}, ["b", "", "a"]),
        ("tags", {"SS": []}, []),
        ("limits", {"NS": ["1", "2.5E-1"]}, [Decimal("1"), Decimal("0.25")]),
        ("blobs", {"BS": ["AA==", ""]}, [b"\x00", b""]),
        ("address", {"M": {}}, (None, None, None)),
        (
            "address",
            {"M": {"city": {"S": "Köln"}, "floor": {"N": "3"}, "geo": {"M": {"lat": {"N": "50.9"}}}}},
            ("Köln", 3, (Decimal("50.9"),)),
        ),
        (
            "devices",
            {"L": [{"M": {"kind": {"S": "phone"}, "since": {"S": "2024-01-02"}}}, {"M": {}}]},
            [("phone", dt.date(2024, 1, 2)), (None, None)],
        ),
        ("settings", {"M": {"a.b": {"N": "1.50"}, "x": {"SS": ["1"]}}}, '{"M":{"a.b":{"N":"1.50"},"x":{"SS":["1"]}}}'),
        ("history", {"L": [{"NULL": True}, {"B": "AA=="}]}, '{"L":[{"NULL":true},{"B":"AA=="}]}'),
    ],
)  # fmt: skip
def test_every_type_arrives_exactly(column: str, value: Any, expected: Any) -> None:
    attribute = {"cust_name": "custName"}.get(column, column)
    arrived = value_of(column, value, attribute)
    assert arrived == expected
    assert type(arrived) is type(expected)


@pytest.mark.parametrize(
    "number",
    [
        "1E-130",
        "9.9999999999999999999999999999999999999E+125",
        "-9.9999999999999999999999999999999999999E+125",
        "0.00000000000000000000000000000000000001",
        "12345678901234567890123456789012345678",
        "0",
    ],
)
def test_a_number_keeps_all_its_digits_as_text_and_in_the_rest(number: str) -> None:
    assert value_of("digits", {"N": number}) == number
    assert rest_of({"free": {"N": number}, "many": {"NS": [number]}}) == {
        "free": {"N": number},
        "many": {"NS": [number]},
    }


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("since", {"S": "2024-02-30"}, "a date from 0001"),
        ("since", {"S": "2024-W01-1"}, "a date from 0001"),
        ("since", {"N": "5"}, 'found {"N": "5"}, expected type S'),
        ("since", {"S": 5}, "a date from 0001"),
        ("seen", {"S": "2024-01-01T00:00:00.1234567Z"}, "at most microseconds"),
        ("seen", {"S": "2024-02-30T00:00:00Z"}, "a timestamp from 0001"),
        ("balance", {"N": "0.1234567891"}, "fits decimal"),
        ("balance", {"N": "1E+29"}, "fits decimal"),
        ("balance", {"N": "NaN"}, "a number"),
        ("balance", {"N": "1_000"}, "a number"),
        ("balance", {"N": " 1"}, "a number"),
        ("balance", {"N": "1E+9999999999"}, "a number"),
        ("balance", {"N": 1.5}, "expected type N"),
        ("balance", {"S": "1.5"}, 'found {"S": "1.5"}, expected type N'),
        ("digits", {"N": "٣"}, "a number"),
        ("points", {"N": "2147483648"}, "32 bits"),
        ("points", {"N": "1.5"}, "an integer"),
        ("expires_at", {"N": "9223372036854775808"}, "64 bits"),
        ("photo", {"B": "?"}, "base64"),
        ("active", {"BOOL": "true"}, "true or false"),
        ("active", {"BOOL": True, "S": "x"}, "expected type BOOL"),
        ("active", True, "expected type BOOL"),
        ("active", {"NULL": False}, "expected type BOOL"),
        ("address", {"M": {"city": {"N": "5"}}}, "expected type S"),
        ("address", {"M": ["a"]}, "a map"),
        ("devices", {"L": {"a": "b"}}, "a list"),
        ("devices", {"L": [{"S": "x"}]}, "expected type M"),
        ("tags", {"SS": ["a", 5]}, "expected type SS"),
        ("tags", {"SS": "a"}, "a list"),
        ("tags", {"L": [{"S": "a"}]}, "expected type SS"),
        ("limits", {"NS": ["1", "x"]}, "a number"),
        ("settings", {"L": []}, "expected type M"),
        ("history", {"S": "x"}, "expected type L"),
    ],
)
def test_a_value_of_another_type_or_without_an_exact_counterpart_costs_itself_or_its_record(
    column: str, value: Any, reason: str
) -> None:
    with pytest.raises(BadRecord) as bad:
        decode(insert({**ITEM, column: value}), STRICT)
    assert reason in str(bad.value)
    assert column in str(bad.value)
    kept, sound = only(decode(insert({**ITEM, column: value}))), only(decode(insert(ITEM)))
    unfit = ["month", "since"] if column == "since" else [column]
    assert (kept["_unfit"], kept["_rest"]) == (unfit, compact({column: value}))
    assert kept[column] is None
    assert kept["month"] == (UNKNOWN if column == "since" else "2024-02")
    assert {name for name in NAMES if kept[name] != sound[name]} <= {*unfit, "_rest", "_unfit"}


def test_what_does_not_fit_inside_a_map_is_kept_by_its_path_without_its_parts_again() -> None:
    address = {"M": {"city": {"N": "5"}, "zip": {"S": "1"}}}
    profile = {"M": {"ui": {"M": {"locale": {"N": "1"}, "theme": {"S": "dark"}}}}}
    row = only(decode(insert({**ITEM, "address": address, "profile": profile})))
    assert (row["address"], row["locale"], row["_unfit"]) == (None, None, ["address", "locale"])
    assert json.loads(row["_rest"]) == {
        "address": address,
        "profile.ui.locale": {"N": "1"},
        "profile.ui.theme": {"S": "dark"},
    }


def test_a_path_through_something_else_than_a_map_does_not_fit() -> None:
    row = only(decode(insert({**ITEM, "profile": {"S": "none"}})))
    assert (row["locale"], row["_unfit"], row["_rest"]) == (None, ["locale"], '{"profile":{"S":"none"}}')
    with pytest.raises(BadRecord, match=r"locale: found .*expected type M"):
        decode(insert({**ITEM, "profile": {"S": "none"}}), STRICT)


SHARED = from_document(
    {
        "table": "shared",
        "description": "Columns that share a map.",
        "source": {"database": "dynamodb", "table": "shop-people"},
        "key": ["k"],
        "partition_by": [],
        "buckets": 1,
        "columns": [
            {"name": "k", "type": "string", "source_type": "S"},
            {"name": "place", "type": "struct<city:string,geo:struct<lat:int>>", "source_type": "M", "from": "a"},
            {"name": "street", "type": "struct<street:string>", "source_type": "M", "from": "a"},
            {"name": "zip", "type": "string", "source_type": "S", "from": "a.zip"},
            {"name": "lon", "type": "int", "source_type": "N", "from": "a.geo.lon"},
        ],
    },
    "shared.yaml",
)
TAKEN = {
    "city": {"S": "Köln"}, "street": {"S": "Ring"}, "zip": {"S": "1"},
    "geo": {"M": {"lat": {"N": "1"}, "lon": {"N": "2"}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("address", "unfit", "rest"),
    [
        (TAKEN, None, None),
        ({**TAKEN, "x": {"S": "y"}, "zip": {"NULL": True}}, None, {"a.x": {"S": "y"}, "a.zip": {"NULL": True}}),
        ({"geo": {"M": {"alt": {"N": "3"}, "lon": {"N": "2"}}}}, None, {"a.geo.alt": {"N": "3"}}),
        ({"x": {"S": "y"}, "zip": {"N": "1"}}, ["zip"], {"a.x": {"S": "y"}, "a.zip": {"N": "1"}}),
        ({"x": {"S": "y"}, "street": {"N": "1"}}, ["street"], {"a": {"M": {"x": {"S": "y"}, "street": {"N": "1"}}}}),
    ],
)
def test_what_one_of_several_columns_of_a_map_takes_is_not_left_over(address: Item, unfit: Any, rest: Any) -> None:
    item = {"k": {"S": "1"}, "a": {"M": address}}
    row = only(decode(record("INSERT", item, None, {"k": item["k"]}), SHARED), SHARED)
    assert (row["_unfit"], row["_rest"] and json.loads(row["_rest"])) == (unfit, rest)


def test_a_value_in_a_map_is_found_by_its_path() -> None:
    profile = {"M": {"ui": {"M": {"locale": {"S": "de_DE"}, "theme": {"S": "dark"}}}, "age": {"N": "30"}}}
    row = only(decode(insert({**ITEM, "profile": profile})))
    assert row["locale"] == "de_DE"
    assert json.loads(row["_rest"]) == {"profile.ui.theme": {"S": "dark"}, "profile.age": {"N": "30"}}


def test_an_attribute_whose_name_holds_a_dot_is_not_a_path() -> None:
    row = only(decode(insert({**ITEM, "nick.name": {"S": "Amazing"}, "nick": {"M": {"name": {"S": "no"}}}})))
    assert row["nick"] == "Amazing"
    assert json.loads(row["_rest"]) == {"nick": {"M": {"name": {"S": "no"}}}}


# --- What no column names, and null -----------------------------------------------------------------------------------


def test_what_no_column_names_is_kept_with_its_types() -> None:
    free = {
        "free.form": {"S": ""},
        'said "hello"': {"M": {"a.b": {"N": "1E-130"}, 'c"d': {"NULL": True}, "größe": {"BOOL": False}, "": {"L": []}}},
        "città {": {"SS": []},
        "back\\slash": {"BS": ["AA=="]},
        "NewImage": {"M": {"OldImage": {"S": '","NewImage":{'}}},
        "nested": {"L": [{"L": [{"M": {"x": {"NS": ["1", "-2.50"]}}}]}]},
    }
    assert rest_of(free) == free
    assert rest_of({}) is None


def test_parts_that_no_type_names_are_kept_by_their_path() -> None:
    address = {"city": {"S": "Köln"}, "zip.code": {"N": "50667"}, "geo": {"M": {"lat": {"N": "1"}, "lon": {"N": "2"}}}}
    devices = [{"M": {"kind": {"S": "a"}}}, {"M": {"color": {"S": "red"}}}]
    assert rest_of({"address": {"M": address}, "devices": {"L": devices}}) == {
        'address."zip.code"': {"N": "50667"},
        "address.geo.lon": {"N": "2"},
        "devices.1.color": {"S": "red"},
    }


def test_no_attribute_can_be_taken_for_a_part_of_another() -> None:
    rest = rest_of(
        {
            "address": {"M": {"zip": {"N": "1"}, "a.b": {"N": "2"}}},
            "address.zip": {"N": "3"},
            'address."a.b"': {"N": "4"},
            '"address.zip"': {"N": "5"},
            "addresses.zip": {"N": "6"},
        }
    )
    assert sorted(int(value["N"]) for value in rest.values()) == [1, 2, 3, 4, 5, 6]
    assert rest["address.zip"] == {"N": "1"}
    assert rest["addresses.zip"] == {"N": "6"}


@pytest.mark.parametrize("column", ["seen", "balance", "photo", "active", "tags", "phones", "settings", "nick"])
def test_null_and_absent_differ(column: str) -> None:
    attribute = {"nick": "nick.name"}.get(column, column)
    absent = only(decode(insert(ITEM)))
    null = only(decode(insert({**ITEM, attribute: {"NULL": True}})))
    assert (absent[column], absent["_rest"]) == (None, None)
    assert null[column] is None
    assert list(json.loads(null["_rest"]).values()) == [{"NULL": True}]


def test_null_inside_a_map_and_on_the_way_of_a_path_is_kept_too() -> None:
    null = {"NULL": True}
    rest = rest_of({"address": {"M": {"city": null}}, "profile": {"M": {"ui": null}}, "devices": {"L": [null]}})
    assert rest == {"address.city": null, "profile.ui": null, "devices.0": null}


def test_an_empty_map_on_the_way_of_a_path_is_kept() -> None:
    empty: Item = {"M": {}}
    assert rest_of({"profile": empty}) == {"profile": empty}
    assert rest_of({"profile": {"M": {"ui": empty}}}) == {"profile.ui": empty}
    assert rest_of({"profile": {"M": {"ui": {"M": {"locale": {"S": "en"}}}}}}) is None


def test_attributes_may_be_in_one_item_and_not_in_another() -> None:
    decoder = DynamoDecoder(ACCOUNTS)
    first = decoder.decode(compact(insert({**ITEM, "points": {"N": "1"}})), "1", "p")
    second = decoder.decode(compact(insert({**ITEM, "active": {"BOOL": True}})), "2", "p")
    assert (only(first)["points"], only(first)["active"]) == (1, None)
    assert (only(second)["points"], only(second)["active"]) == (None, True)


# --- Keys and partitions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "source_type", "value", "key"),
    [
        ("string", "S", {"S": 'a,"b'}, '["a,\\"b"]'),
        ("int", "N", {"N": "7"}, "[7]"),
        ("decimal(38,0)", "N", {"N": "1234567890" * 3 + "12345678"}, f'["{"1234567890" * 3}12345678"]'),
        ("decimal(38,10)", "N", {"N": "1.50"}, '["1.5"]'),
        ("string", "N", {"N": "1E+2"}, '["100"]'),
        ("string", "N", {"N": "1E-130"}, f'["0.{"1":0>130}"]'),
        ("binary", "B", {"B": "AP/+"}, '["AP/+"]'),
        ("date", "S", {"S": "2024-02-29"}, '["2024-02-29"]'),
    ],
)  # fmt: skip
def test_keys_of_every_type_have_one_text(type_: str, source_type: str, value: Any, key: str) -> None:
    contract = one_key(type_, source_type)
    item = {"k": value}
    written = only(decode(record("INSERT", item, None, item), contract), contract)
    deleted = only(decode(record("REMOVE", None, item, item), contract), contract)
    assert written["_key"] == deleted["_key"] == key
    assert deleted["k"] == written["k"]


def test_one_number_is_one_key_however_it_is_spelled() -> None:
    for type_ in ("decimal(20,5)", "string"):
        contract = one_key(type_, "N")
        spelled = ["100", "1E+2", "100.000", "+1.0e2", "0100"]
        items = [{"k": {"N": number}} for number in spelled]
        assert (
            len({only(decode(record("INSERT", item, None, item), contract), contract)["_key"] for item in items}) == 1
        )


def test_an_item_without_its_key_is_bad() -> None:
    with pytest.raises(BadRecord, match="key: found null in id, cust_name"):
        decode(insert({"id": {"S": "7"}, "since": {"S": "2024-01-01"}}))
    with pytest.raises(BadRecord, match="key: found null"):
        decode(record("REMOVE", None, ITEM, {"id": {"S": "7"}}))


@pytest.mark.parametrize(
    ("since", "month"),
    [
        ({"S": "2024-02-29"}, "2024-02"),
        (None, "unknown"),
        ({"NULL": True}, "unknown"),
    ],
)
def test_the_month_of_a_date_is_the_partition_and_its_absence_is_one_too(since: Any, month: str) -> None:
    item = {**KEYS, "since": since} if since else KEYS
    assert only(decode(insert(item)))["month"] == month
    assert only(decode(remove(item)))["month"] == month


WRONG_DATES = [{"S": text} for text in ("", "2024", "2024-03", "2024-13-01", "03/01/2024", "2024-03-01x")]


@pytest.mark.parametrize(
    ("transform", "fitting", "wrong"),
    [
        ("month", {"2024-03": {"S": "2024-03-01T00:30:00+02:00"}}, WRONG_DATES),
        ("day", {"2024-03-01": {"S": "2024-03-01T00:30:00+02:00"}, "2024-02-29": {"S": "2024-02-29"}}, WRONG_DATES),
        (
            "hour",
            {"2024-03-01-00": {"S": "2024-03-01T00:30:00+02:00"}, "2024-02-29-23": {"S": "2024-02-29 23"}},
            [
                *WRONG_DATES,
                {"S": "2024-02-29"},
                {"S": "2024-02-29x10"},
                {"S": "2024-02-29T24:00"},
                {"S": "2024-02-29T1"},
            ],
        ),
        ("day(seconds)", {"2024-02-29": {"N": "1709251199"}, "1969-12-31": {"N": "-1"}}, [{"N": "1.5"}, {"N": "1e30"}]),
        ("hour(milliseconds)", {"2024-02-29-23": {"N": "1709251199999"}}, [{"N": "253402300800000"}, {"S": "1"}]),
        ("bucket(16)", {3: {"S": "a"}, None: {"NULL": True}}, [{"N": "1"}]),
        ("bucket(16)", {9: {"N": "12.50"}}, [{"S": "1"}]),
    ],
)
def test_a_transform_makes_the_partition(
    transform: str, fitting: dict[str | int | None, Item], wrong: list[Item]
) -> None:
    is_bucket = transform.startswith("bucket")
    (source_type,) = next(iter(fitting.values()))
    part = {"name": "part", "type": "int" if is_bucket else "string", "source_type": source_type}
    contract = from_document(
        {
            **json.loads(one_key("string", "S").to_json()),
            "partition_by": ["part"],
            "columns": [
                {"name": "k", "type": "string", "source_type": "S"},
                {**part, "from": "at", "transform": transform},
            ],
        },
        "keyed.yaml",
    )
    absent = None if is_bucket else UNKNOWN
    expected = [*fitting.items(), *((absent, value) for value in wrong)]
    for found, value in expected:
        item = {"k": {"S": "a"}, "at": value}
        assert places(decode(record("INSERT", item, None, item), contract).rows, contract) == [('["a"]', found, False)]
        assert places(decode(record("REMOVE", None, item, item), contract).rows, contract) == [('["a"]', found, True)]


# --- Changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event", "op"), [("INSERT", "c"), ("MODIFY", "u")])
def test_an_insert_and_a_modify_are_rows(event: str, op: str) -> None:
    row = only(decode(record(event)))
    assert (row["_op"], row["_deleted"], row["_deleted_by"], row["_position"]) == (op, False, None, "s/0/5")
    assert row["_key"] == '["7","Grace"]'
    assert row["_source_ts"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)


def test_a_remove_is_a_tombstone_of_key_and_partition() -> None:
    row = only(decode(remove({**ITEM, "points": {"N": "1"}, "free": {"S": "x"}})))
    assert (row["_op"], row["_deleted"], row["_deleted_by"]) == ("d", True, "client")
    assert {name for name in NAMES if row[name] is not None} == {
        "id", "cust_name", "month", "_key", "_op", "_order", "_source_ts", "_position", "_deleted", "_deleted_by",
    }  # fmt: skip


def test_a_delete_by_time_to_live_is_told_apart() -> None:
    service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    assert only(decode(remove(userIdentity=service)))["_deleted_by"] == "ttl"
    for identity in ({**service, "principalId": "someone"}, {**service, "type": "User"}, {}, "Service"):
        assert only(decode(remove(userIdentity=identity)))["_deleted_by"] == "client"


def test_an_item_that_leaves_its_partition_leaves_a_tombstone_there() -> None:
    rows = decode(record(new={**ITEM, "since": {"S": "2024-03-01"}})).rows
    live, buried = (named(row) for row in rows)
    assert (live["month"], live["_deleted"], live["_deleted_by"]) == ("2024-03", False, None)
    assert (buried["month"], buried["_deleted"], buried["_deleted_by"]) == ("2024-02", True, None)
    assert live["_key"] == buried["_key"]
    assert live["_order"] == buried["_order"]
    assert buried["since"] is None


@pytest.mark.parametrize(
    ("old", "new"), [({}, {"since": {"S": "2024-01-01"}}), ({"since": {"S": "2024-01-01"}}, {"since": {"NULL": True}})]
)
def test_an_item_that_gets_or_loses_its_month_moves(old: Item, new: Item) -> None:
    rows = [named(row) for row in decode(record(new={**KEYS, **new}, old={**KEYS, **old})).rows]
    assert {(row["month"], row["_deleted"]) for row in rows} in (
        {("2024-01", False), ("unknown", True)},
        {("unknown", False), ("2024-01", True)},
    )


def places(rows: Iterable[tuple[Any, ...]], contract: Contract = ACCOUNTS) -> list[tuple[Any, ...]]:
    """Key, partition and whether it is a tombstone, of each row."""
    (partition,) = contract.partition_by
    return [(row["_key"], row[partition], row["_deleted"]) for row in (named(row, contract) for row in rows)]


def test_an_item_whose_month_does_not_fit_stands_where_one_without_it_does() -> None:
    key = '["7","Grace"]'
    for since in ({"S": "garbage"}, {"N": "1"}, {"S": ""}):
        garbage = {**KEYS, "since": since}
        assert places(decode(insert(garbage)).rows) == [(key, UNKNOWN, False)]
        assert places(decode(remove(garbage)).rows) == [(key, UNKNOWN, True)]
        assert places(decode(record(old=garbage)).rows) == [(key, "2024-02", False), (key, UNKNOWN, True)]
        assert places(decode(record(new=garbage)).rows) == [(key, UNKNOWN, False), (key, "2024-02", True)]


def test_a_row_from_before_what_is_purged_takes_its_record_along() -> None:
    def records() -> Iterator[tuple[str | bytes | None, str | None, str]]:
        return iter([(compact(record("INSERT", old=None)), SEQUENCE, "p")])

    (row,) = decode_records(records(), DynamoDecoder(ACCOUNTS))
    order = row[NAMES.index("_order")]
    assert row[-3:] == (None, None, None)
    assert list(decode_records(records(), DynamoDecoder(ACCOUNTS), order)) == [row]
    (late,) = decode_records(records(), DynamoDecoder(ACCOUNTS), order + "0")
    assert late[:-1] == row[:-1]
    assert list(kept_decoder(ACCOUNTS, ACCOUNTS.source.table, None, 1)(json.loads(late[-1]), "any")) == [row]


@pytest.mark.parametrize("new", [{**ITEM, "points": {"S": "1"}}, {**ITEM, "since": {"S": "x"}}, None])
def test_a_modification_that_is_refused_buries_what_stood_before_it(new: Any) -> None:
    change = record(new=new)
    with pytest.raises(BadRecord) as bad:
        decode(change, STRICT)
    assert places(bad.value.buried) == [('["7","Grace"]', "2024-02", True)]
    buried, kept = decode_records(iter([(compact(change), SEQUENCE, "p")]), DynamoDecoder(STRICT))
    assert (buried[NAMES.index("_deleted")], buried[-2]) == (True, None)
    assert kept[-2] == str(bad.value)
    assert named(bad.value.buried[0])["_order"] == order_of(record())


PLACED = from_document(
    {
        **json.loads(one_key("string", "S").to_json()),
        "partition_by": ["town"],
        "columns": [
            {"name": "k", "type": "string", "source_type": "S"},
            {"name": "town", "type": "string", "source_type": "S"},
        ],
    },
    "placed.yaml",
)


@pytest.mark.parametrize(
    ("town", "unfit"),
    [
        ({"S": ""}, ["town"]),
        ({"S": "a" * 201}, ["town"]),
        ({"S": "ü" * 101}, ["town"]),
        ({"S": "a\nb"}, ["town"]),
        ({"S": "__HIVE_DEFAULT_PARTITION__"}, ["town"]),
        ({"N": "1"}, ["town"]),
        ({"NULL": True}, None),
        (None, None),
    ],
)
def test_an_item_whose_partition_does_not_fit_is_written_moved_and_deleted(town: Any, unfit: Any) -> None:
    keys = {"k": {"S": "a"}}
    unplaced, sound = {**keys, **({"town": town} if town else {})}, {**keys, "town": {"S": "Bonn"}}

    def rows_of(event: str, new: Any, old: Any) -> tuple[tuple[Any, ...], ...]:
        return decode(record(event, new, old, keys), PLACED).rows

    written = rows_of("MODIFY", unplaced, sound)
    assert places(written, PLACED) == [('["a"]', None, False), ('["a"]', "Bonn", True)]
    row = named(written[0], PLACED)
    assert (row["_unfit"], row["_rest"]) == (unfit, compact({"town": town}) if town else None)
    assert places(rows_of("MODIFY", sound, unplaced), PLACED) == [('["a"]', "Bonn", False), ('["a"]', None, True)]
    assert places(rows_of("REMOVE", None, unplaced), PLACED) == [('["a"]', None, True)]


@pytest.mark.parametrize("event", ["INSERT", "MODIFY", "REMOVE"])
@pytest.mark.parametrize("town", ["a" * 201, "a\nb", "__HIVE_DEFAULT_PARTITION__"])
def test_a_key_that_no_store_takes_as_partition_is_refused(event: str, town: str) -> None:
    contract = replace(PLACED, key=("k", "town"))
    item = {"k": {"S": "a"}, "town": {"S": town}}
    images = {"INSERT": (item, None), "MODIFY": (item, item), "REMOVE": (None, item)}[event]
    with pytest.raises(BadRecord, match=r"town: found .* as partition"):
        decode(record(event, *images, item), contract)


@pytest.mark.parametrize("key", ["a" * 201, "a\nb", "__HIVE_DEFAULT_PARTITION__"])
def test_a_key_that_is_no_partition_may_be_what_no_partition_can(key: str) -> None:
    keys = {"k": {"S": key}}
    item = {**keys, "town": {"S": "Bonn"}}
    record_key = json.dumps([key], ensure_ascii=False)
    assert places(decode(record("INSERT", item, None, keys), PLACED).rows, PLACED) == [(record_key, "Bonn", False)]
    assert places(decode(record("REMOVE", None, item, keys), PLACED).rows, PLACED) == [(record_key, "Bonn", True)]


def test_names_that_need_escapes_can_be_keys() -> None:
    document = {
        "table": "keyed",
        "description": "Two columns of one attribute, and names that JSON escapes.",
        "source": {"database": "dynamodb", "table": "shop-people"},
        "key": ["quoted", "whole"],
        "partition_by": ["part"],
        "buckets": 1,
        "columns": [
            {"name": "quoted", "type": "string", "source_type": "S", "from": ['a"b']},
            {"name": "whole", "type": "string", "source_type": "S"},
            {"name": "part", "type": "string", "source_type": "S", "from": "whole"},
        ],
    }
    contract = from_document(document, "keyed.yaml")
    item = {'a"b': {"S": "1"}, "whole": {"S": "2"}}
    deleted = only(decode(record("REMOVE", None, item, item), contract), contract)
    assert (deleted["_key"], deleted["part"]) == ('["1","2"]', "2")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"L": [{"N": "1"}, {"N": "2"}]}, {"L": []}], [[1, 2], []]),
        ([{"L": [{"N": "1"}, {"NULL": True}]}], [[1, None]]),
        ([{"NULL": True}, {"L": [{"N": "1"}]}], [None, [1]]),
    ],
)
def test_lists_of_lists_arrive_with_their_nulls(rows: list[Any], expected: Any) -> None:
    contract = parse_contract(
        """
        table: grids
        description: A list of lists.
        source: {database: dynamodb, table: shop-people}
        key: [k]
        partition_by: []
        buckets: 1
        columns:
          - {name: k, type: string, source_type: S}
          - {name: rows, type: array<array<int>>, source_type: L}
        """,
        "grids.yaml",
    )
    item = {"k": {"S": "a"}, "rows": {"L": rows}}
    assert only(decode(record("INSERT", item, None, {"k": item["k"]}), contract), contract)["rows"] == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [("settings", {"M": 5}), ("settings", {"M": None}), ("history", {"L": "x"}), ("points", {"NULL": 1})],
)
def test_what_is_not_of_its_types_form_does_not_fit(column: str, value: Any) -> None:
    with pytest.raises(BadRecord, match=f"{column}: found"):
        decode(insert({**ITEM, column: value}), STRICT)
    assert only(decode(insert({**ITEM, column: value})))["_unfit"] == [column]


def test_a_value_as_deep_as_dynamodb_allows_is_taken() -> None:
    deep: Any = {"N": "1"}
    for level in range(32):
        deep = {"L": [deep]} if level % 2 else {"M": {"a": deep}}
    settings = {"M": {"a": deep["L"][0]}}
    row = only(decode(insert({**ITEM, "settings": settings, "free": deep})))
    assert (json.loads(row["settings"]), row["_unfit"]) == (settings, None)
    assert json.loads(row["_rest"]) == {"free": deep}


def test_an_item_that_stays_in_its_month_is_one_row() -> None:
    assert len(decode(record(new={**ITEM, "since": {"S": "2024-02-01"}})).rows) == 1


def test_without_partitions_the_old_image_is_not_needed() -> None:
    contract = one_key("string", "S")
    item = {"k": {"S": "a"}}
    assert len(decode(record("MODIFY", item, None, item), contract).rows) == 1
    assert len(decode(record("REMOVE", None, None, item), contract).rows) == 1


@pytest.mark.parametrize("event", ["MODIFY", "REMOVE"])
def test_a_partitioned_tables_change_without_its_old_image_is_bad(event: str) -> None:
    with pytest.raises(BadRecord, match="without OldImage"):
        decode(record(event, old=None))


def test_an_exported_item_is_a_row_of_the_minute_before_the_export() -> None:
    item = {**ITEM, "points": {"N": "1"}, "free.form": {"S": ""}, "settings": {"M": {"a": {"N": "1"}}}}
    exported = only(DynamoDecoder(ACCOUNTS).item(compact({"Item": item}), 2**57, "e/0/0"))
    before, changed, after = (
        only(decode(insert(item, micros=2**57 - seconds * 10**6), sequence="0")) for seconds in (61, 60, 59)
    )
    assert (exported["_op"], exported["_deleted"], exported["_position"]) == ("r", False, "e/0/0")
    floor = floor_of_export(1, 2**57)
    assert before["_order"] < floor < exported["_order"] < changed["_order"] < after["_order"]
    assert len({len(order) for order in (floor, exported["_order"], changed["_order"])}) == 1
    ignored = ("_op", "_order", "_source_ts", "_position")
    assert {name: exported[name] for name in NAMES if name not in ignored} == {
        name: changed[name] for name in NAMES if name not in ignored
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (compact({"Item": {**ITEM, "custName": {"N": "1"}}}), "cust_name: found"),
        (compact(ITEM), "missing required field `Item`"),
        (compact({"Item": []}), "got `array` - at `$.Item`"),
        ("{", "truncated"),
        (b'{"Item":{"\xff":{}}}', "UnicodeDecodeError"),
    ],
)
def test_a_line_that_is_no_exported_item_is_bad(line: str | bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=re.escape(reason)):
        DynamoDecoder(ACCOUNTS).item(line, MICROS, "e/0/0")


# --- Order ------------------------------------------------------------------------------------------------------------


def order_of(document: Any, sequence: str | None = SEQUENCE, epoch: int = 1) -> str:
    rows = DynamoDecoder(ACCOUNTS, epoch).decode(compact(document), sequence, "p").rows
    return str(named(rows[0])["_order"])


def test_another_layout_of_the_order_needs_another_version() -> None:
    """Whoever changes the digits raises the version, so that no table mixes both."""
    assert order_version(ACCOUNTS) == 2
    assert order_of(record(micros=1_000), "7", epoch=3) == f"0003{1_000:020d}1{7:056d}"


def test_orders_compare_epoch_then_time_then_sequence_number() -> None:
    orders = [
        order_of(record(micros=5), "9"),
        order_of(record(micros=5), "10"),
        order_of(record(micros=6), "1"),
        order_of(record(micros=10**15), "0"),
        order_of(record(micros=1), "0", epoch=2),
    ]
    assert orders == sorted(orders)
    assert {len(order) for order in orders} == {81}
    assert all(order.isdigit() for order in orders)


def test_milliseconds_and_microseconds_of_one_moment_are_one_time() -> None:
    fine, coarse, untold = (
        record(micros=1_700_000_000_123_000),
        record(micros=1_700_000_000_123),
        record(micros=1_700_000_000_123),
    )
    coarse["dynamodb"]["ApproximateCreationDateTimePrecision"] = "MILLISECOND"
    del untold["dynamodb"]["ApproximateCreationDateTimePrecision"]
    assert order_of(fine) == order_of(coarse) == order_of(untold)
    assert only(decode(coarse))["_source_ts"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123000, dt.UTC)


def test_a_repeated_change_has_its_place_among_later_ones_whatever_its_sequence_number() -> None:
    assert order_of(record(micros=5), "999") < order_of(record(micros=6), "1")


def test_without_a_sequence_number_a_tie_is_broken_alike_for_each_repetition() -> None:
    first, second = record(), record(eventID="another")
    assert order_of(first, None) == order_of(record(new={**ITEM, "x": {"S": "y"}}), None)
    assert order_of(first, None) != order_of(second, None)
    assert order_of(first, None)[:25] == order_of(second, None)[:25] == order_of(first)[:25]
    for missing in (None, "", 5):
        with pytest.raises(BadRecord, match="eventID"):
            order_of(record(eventID=missing), None)


@pytest.mark.parametrize("sequence", ["", "x", "-1", "1" * 57, "١"])
def test_a_sequence_number_that_is_none_is_refused(sequence: str) -> None:
    with pytest.raises(BadRecord, match="sequence number"):
        order_of(record(), sequence)


def test_an_epoch_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch: found 10000"):
        DynamoDecoder(ACCOUNTS, 10000)


# --- Defects of the script that ordered by the key, forgot deletes and the sort key, and knew one type ----------------


def test_changes_are_ordered_by_time_and_not_by_the_key() -> None:
    low, high = {**KEYS, "id": {"S": "1"}}, {**KEYS, "id": {"S": "9"}}
    older = order_of(record(new={**ITEM, **high}, keys=high, micros=1), "1")
    newer = order_of(record(new={**ITEM, **low}, keys=low, micros=2), "2")
    assert older < newer
    same = [order_of(record(new={**ITEM, "points": {"N": str(n)}}, micros=n), str(n)) for n in (1, 2)]
    assert same[0] < same[1]


def test_a_delete_is_not_ignored() -> None:
    assert only(decode(remove()))["_deleted"] is True


def test_the_sort_key_is_part_of_the_record_key() -> None:
    keys = set()
    for name in ("Ada", "Grace"):
        item = {**ITEM, "custName": {"S": name}}
        keys.add(only(decode(insert(item)))["_key"])
        keys.add(only(decode(record("REMOVE", None, item, {"id": item["id"], "custName": item["custName"]})))["_key"])
    assert keys == {'["7","Ada"]', '["7","Grace"]'}


def test_not_only_one_type_is_known() -> None:
    item = {
        **ITEM,
        "points": {"N": "1"}, "active": {"BOOL": True}, "photo": {"B": "AA=="}, "tags": {"SS": ["a"]},
        "limits": {"NS": ["1"]}, "blobs": {"BS": ["AA=="]}, "phones": {"L": [{"S": "1"}]},
        "address": {"M": {"city": {"S": "x"}}}, "nick.name": {"NULL": True},
    }  # fmt: skip
    row = only(decode(insert(item)))
    assert [row[name] for name in ("points", "active", "photo", "tags", "limits", "blobs", "phones", "address")] == [
        1, True, b"\x00", ["a"], [Decimal(1)], [b"\x00"], ["1"], ("x", None, None),
    ]  # fmt: skip
    assert json.loads(row["_rest"]) == {'"nick.name"': {"NULL": True}}


# --- Malformed records ------------------------------------------------------------------------------------------------


def without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    changed = json.loads(json.dumps(document))
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return dict(changed)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "Expected `object`, got `array`"),
        ({}, "missing required field `dynamodb`"),
        (record(dynamodb=[]), "Expected `object`, got `array` - at `$.dynamodb`"),
        (record(tableName="other"), "tableName: found 'other', expected 'shop-people'"),
        (without(record(), "tableName"), "tableName: found None"),
        (record("UPSERT"), "eventName: found 'UPSERT', expected INSERT, MODIFY, REMOVE"),
        (record(eventName=["INSERT"]), "TypeError"),
        (record(new=None), "MODIFY without NewImage"),
        (record("INSERT", None, None), "INSERT without NewImage"),
        (without(remove(), "dynamodb", "Keys"), "key: found null"),
        (without(record(), "dynamodb", "ApproximateCreationDateTime"), "ApproximateCreationDateTime: found None"),
        (record(micros="1"), "ApproximateCreationDateTime: found '1'"),  # type: ignore[arg-type]
        (record(micros=-1), "ApproximateCreationDateTime: found -1"),
        (record(micros=10**18), "OverflowError"),
        (record(new={**ITEM, "points": None, "id": 5}), "id: found 5"),
        (remove(keys={**KEYS, "id": {"N": "1"}}), "id: found"),
        (record(new=[]), "got `array` - at `$.dynamodb.NewImage`"),  # type: ignore[arg-type]
        (record(old="x"), "got `str` - at `$.dynamodb.OldImage`"),  # type: ignore[arg-type]
        (remove(keys="x"), "got `str` - at `$.dynamodb.Keys`"),
    ],
)
def test_a_record_that_is_no_change_of_the_table_is_bad(document: Any, reason: str) -> None:
    with pytest.raises(BadRecord) as bad:
        decode(document)
    assert reason in str(bad.value)


def test_an_unknown_precision_is_bad() -> None:
    document = record()
    document["dynamodb"]["ApproximateCreationDateTimePrecision"] = "SECOND"
    with pytest.raises(BadRecord, match="'SECOND', expected MILLISECOND or MICROSECOND"):
        decode(document)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"\xff\xfe",
        b"null",
        compact(record()).encode()[:-1],
        compact(record()).encode() + b"\0x",
        compact(record()).replace('"SizeBytes":98', '"SizeBytes":NaN').encode(),
        compact(insert({**ITEM, "x": {"S": "HALF"}})).replace("HALF", "\\ud800").encode(),
        b'{"dynamodb":' + b"[" * 100_000,
    ],
)
def test_what_is_not_json_in_unicode_is_bad(data: bytes) -> None:
    with pytest.raises(BadRecord):
        DynamoDecoder(ACCOUNTS).decode(data, SEQUENCE, "p")


def test_another_name_of_the_table_can_be_given() -> None:
    decoder = DynamoDecoder(ACCOUNTS, table="dev-people")
    assert decoder.decode(compact(record(tableName="dev-people")), "1", "p").rows
    with pytest.raises(BadRecord, match="'shop-people', expected 'dev-people'"):
        decoder.decode(compact(record()), "1", "p")


def test_bad_records_are_kept_whole_beside_the_good_ones() -> None:
    good = compact(record(new={**ITEM, "since": {"S": "2024-03-01"}}))
    records: Iterator[tuple[str | bytes, str | None, str]] = iter(
        [(good.encode(), "1", "p/1"), ("?\ud800", None, "p/2"), (b"\xff", "3", "p/3"), (b"[]", "4", "p/4")]
    )
    rows = list(decode_records(records, DynamoDecoder(ACCOUNTS)))
    assert {len(row) for row in rows} == {len(columns_tagged(ACCOUNTS))}
    assert [row[-2] is None for row in rows] == [True, True, False, False, False]
    assert [json.loads(row[-1]) for row in rows[2:]] == [
        {"data": "?\ud800", "sequence": None, "position": "p/2"},
        {"data_base64": base64.b64encode(b"\xff").decode(), "sequence": "3", "position": "p/3"},
        {"data": "[]", "sequence": "4", "position": "p/4"},
    ]
    rows[2][-1].encode("utf-8")


# --- Properties -------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", "{", '},"', '":{"S":"', "a.b", "NewImage", "OldImage", "address", "\0", "/", "é", "𝄞"]
)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(str)
BASE64 = st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode())
SCALARS = (
    st.fixed_dictionaries({"S": TEXTS})
    | st.fixed_dictionaries({"N": NUMBERS})
    | st.fixed_dictionaries({"B": BASE64})
    | st.fixed_dictionaries({"BOOL": st.booleans()})
    | st.just({"NULL": True})
    | st.fixed_dictionaries({"SS": st.lists(TEXTS, max_size=3)})
    | st.fixed_dictionaries({"NS": st.lists(NUMBERS, max_size=3)})
    | st.fixed_dictionaries({"BS": st.lists(BASE64, max_size=3)})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.fixed_dictionaries({"M": st.dictionaries(TEXTS, inner, max_size=4)})
        | st.fixed_dictionaries({"L": st.lists(inner, max_size=4)})
    ),
    max_leaves=8,
)
# Attributes that columns name, with what fits them and what does not, and others.
ITEMS = st.builds(
    lambda named, free: {**KEYS, **free, **named},
    st.fixed_dictionaries(
        {},
        optional={
            "since": st.sampled_from([{"S": "2024-01-31"}, {"S": "2024-02-01"}, {"NULL": True}, {"S": "x"}]),
            "points": st.sampled_from([{"N": "1"}, {"N": "1E+1"}, {"S": "1"}]),
            "nick.name": SCALARS,
            "address": VALUES
            | st.fixed_dictionaries({"M": st.dictionaries(st.just("zip") | TEXTS, VALUES, max_size=2)}),
            "settings": st.fixed_dictionaries({"M": st.dictionaries(TEXTS, VALUES, max_size=2)}),
            "profile": st.fixed_dictionaries({"M": st.dictionaries(st.just("ui") | TEXTS, VALUES, max_size=2)}),
        },
    ),
    st.dictionaries(TEXTS | st.sampled_from(["address.zip", '"address.zip"', "profile.ui"]), VALUES, max_size=4),
)
FREE = one_key("string", "S")
FAST = DynamoDecoder(ACCOUNTS)
# Its fast way refuses every attribute, so it takes the full way always.
with mock.patch.object(dynamodb_values, "_decoder", return_value=mock.Mock(side_effect=msgspec.ValidationError)):
    FULL = DynamoDecoder(ACCOUNTS)


DOCUMENTS = [NAMES.index(name) for name in ("settings", "history", "_rest")]


def outcome(decoder: DynamoDecoder, data: str) -> Any:
    """The rows, with the JSON in them parsed; or the fact that there are none."""
    try:
        rows = decoder.decode(data, "1", "p").rows
    except BadRecord:
        return None
    return [[value and json.loads(value) if at in DOCUMENTS else value for at, value in enumerate(row)] for row in rows]


@settings(deadline=None)
@given(st.dictionaries(TEXTS.filter(lambda name: name != "k"), VALUES, max_size=5))
def test_types_in_the_rest_go_round_exactly(free: Item) -> None:
    item = {"k": {"S": "key"}, **free}
    row = only(decode(record("INSERT", item, None, {"k": item["k"]}), FREE), FREE)
    rest = json.loads(row["_rest"]) if row["_rest"] else {}
    plain = {name: value for name, value in free.items() if not name.startswith('"')}
    assert {name: value for name, value in rest.items() if not name.startswith('"')} == plain
    assert sorted(map(compact, rest.values())) == sorted(map(compact, free.values()))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["INSERT", "MODIFY", "REMOVE"]), ITEMS, ITEMS, st.randoms(use_true_random=False), st.booleans())
def test_a_record_means_the_same_however_it_is_written(
    event: str, new: Item, old: Item, rng: Any, escape: bool
) -> None:
    document = record(event, None if event == "REMOVE" else new, None if event == "INSERT" else old)
    members = list(document["dynamodb"].items())
    rng.shuffle(members)
    shuffled = {"dynamodb": dict(members), **{name: value for name, value in document.items() if name != "dynamodb"}}
    expected = outcome(FULL, compact(document))
    for text in (
        compact(document),
        json.dumps(document, ensure_ascii=escape),
        json.dumps(shuffled, indent=rng.choice([None, 1]), ensure_ascii=escape),
    ):
        assert outcome(FAST, text) == outcome(FULL, text) == expected


@settings(max_examples=60, deadline=None)
@given(ITEMS, ITEMS, st.data())
def test_a_damaged_record_is_bad_or_means_what_its_json_says(new: Item, old: Item, data: Any) -> None:
    text = compact(record("MODIFY", new, old))
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "}", '"', ",", "{", "\\", "]", "\0", "0", "x"])) + text[at + 1 :]
    )
    assert outcome(FAST, damaged) == outcome(FULL, damaged)
    try:
        json.loads(damaged)
    except ValueError:
        assert outcome(FAST, damaged) is None

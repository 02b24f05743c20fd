"""A row of an old contract, filled from its ``_rest``, is the row that the new contract gives at once."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.lake.decoding import debezium_decoder, dynamodb_decoder
from headwater.lake.decoding.changes import Decoded
from headwater.lake.decoding.debezium_decoder import PostgresDecoder
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder
from headwater.lake.decoding.rest_values import Filler, RestForm, RowRest

RELATIONAL = """
table: things
description: A table of the tests.
source: {{database: postgresql, table: shop.things}}
key: [id]
partition_by: [month]
buckets: 1
columns:
  - {{name: id, type: int, source_type: integer}}
  - {{name: month, type: string, source_type: text}}
{columns}
"""
KEY_VALUE = """
table: things
description: A table of the tests.
source: {{database: dynamodb, table: things}}
key: [id]
partition_by: [month]
buckets: 1
columns:
  - {{name: id, type: string, source_type: S}}
  - {{name: month, type: string, source_type: S, from: at, transform: month}}
{columns}
"""


def contract(text: str, columns: list[str]) -> Contract:
    lines = "\n".join(f"  - {{{column}}}" for column in columns)
    return parse_contract(text.format(columns=lines), "things.yaml")


def row(contract_: Contract, decoded: Decoded) -> dict[str, Any]:
    (values,) = decoded.rows
    return dict(zip([name for name, _ in contract_.lake_columns()], values, strict=True))


def filled(old: dict[str, Any], new: Contract, form: RestForm) -> dict[str, Any]:
    """The old row in the new contract's columns, filled as often as it changes, which is once."""
    names = [name for name, _ in new.lake_columns()]
    result = {name: old.get(name) for name in names}
    for tries in range(3):
        absent = [column.name for column in new.columns if result[column.name] is None]
        rest: str | None = result["_rest"]
        assert rest is not None or tries
        if rest is None:
            break
        got = Filler(new, form).fill(RowRest(rest, result["_unfit"] or [], str(result["_op"]), absent))
        if got is None:
            break
        assert tries == 0, "a filled row changes again"
        result |= {**got.values, "_rest": got.rest, "_unfit": got.unfit}
    return result


def same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    def plain(values: dict[str, Any]) -> dict[str, Any]:
        rest = values["_rest"]
        return {**values, "_rest": None if rest is None else json.loads(rest, parse_float=str, parse_int=str)}

    assert plain(got) == plain(wanted)


IMAGE = {
    "id": 1,
    "month": "2024-01",
    "price": "12.30",
    "ratio": 0.1,
    "day": 19782,
    "born": -200000,
    "raw": "AP8=",
    "tags": ["a", None],
    "nothing": None,
    "payload": '{"a": {"b": 1.10, "c": [1, 2.50], "d": null}, "e": "text", "f": {"g": 12345678901234567890.5}}',
    "broken": "{",
    "huge": "123456789012.50",
}
PRICE = 'name: price, type: "decimal(12,2)", source_type: "numeric(12,2)"'
HUGE = PRICE.replace("price", "huge")
B = 'name: b, type: "decimal(12,2)", from: payload.a.b'
C = 'name: c, type: "array<decimal(12,2)>", from: payload.a.c'
A = 'name: a, type: "struct<b:decimal(12,2)>", from: payload.a'
G = 'name: g, type: "decimal(38,9)", from: payload.f.g'
E = "name: e, type: string, from: payload.e"
WRONG = "name: e, type: int, from: payload.e"


@pytest.mark.parametrize("op", ["c", "r"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [PRICE], id="a column"),
        pytest.param([PRICE], [PRICE, "name: ratio, type: double, source_type: double precision"], id="a float"),
        pytest.param([], ["name: day, type: date, source_type: date"], id="a date"),
        pytest.param([], ["name: born, type: date, source_type: date"], id="a date that a snapshot shifts"),
        pytest.param([], ["name: tags, type: array<string>, source_type: 'text[]'"], id="an array"),
        pytest.param([], [PRICE.replace("12,2", "3,2")], id="a column that it does not fit"),
        pytest.param([HUGE], [HUGE.replace("12,2", "14,2")], id="a wider type"),
        pytest.param([], [B], id="a path into a column that none took"),
        pytest.param([], [A, G], id="two paths into it"),
        pytest.param([B], [B, C], id="a sibling of a path"),
        pytest.param([E], [E, B, G], id="paths beside one"),
        pytest.param([WRONG], [E], id="another type of a path"),
        pytest.param([WRONG, B], [E, B, G], id="another type of a path, beside others"),
        pytest.param([], ["name: broken, type: string, from: broken.x"], id="a path into what is no JSON"),
    ],
)
def test_a_row_of_postgresql_is_filled_as_the_new_contract_decodes_it(
    before: list[str], after: list[str], op: str
) -> None:
    old, new = contract(RELATIONAL, before), contract(RELATIONAL, after)
    source = {"schema": "shop", "table": "things", "lsn": 5, "ts_us": 1, "snapshot": "true" if op == "r" else "false"}
    event = json.dumps({"op": op, "after": IMAGE, "source": source}).encode()
    stored = row(old, PostgresDecoder(old).decode(event, "t/0/1"))
    wanted = row(new, PostgresDecoder(new).decode(event, "t/0/1"))
    same(filled(stored, new, debezium_decoder.rest_form(new)), wanted)


ITEM = {
    "id": {"S": "a"},
    "at": {"S": "2024-01-31"},
    "price": {"N": "12.30"},
    "long": {"N": "123456789012.5"},
    "nothing": {"NULL": True},
    "tags": {"SS": ["a", "b"]},
    "map": {"M": {"b": {"N": "1.10"}, "c": {"L": [{"N": "1"}, {"S": "x"}]}, "d": {"M": {"e": {"S": "Köln"}}}}},
    "numbers": {"NS": ["1.50", "2"]},
    "bytes": {"B": base64.b64encode(b"\x00\xff").decode()},
}
N = 'name: price, type: "decimal(12,2)", source_type: N'
LONG = 'name: long, type: "decimal(12,2)", source_type: N'
MAP_B = 'name: b, type: "decimal(12,2)", source_type: N, from: map.b'
MAP_E = "name: e, type: string, source_type: S, from: map.d.e"
MAP_D = "name: d, type: 'struct<e:string>', source_type: M, from: map.d"
MAP_E_WRONG = "name: e, type: 'decimal(12,2)', source_type: N, from: map.d.e"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [N], id="an attribute"),
        pytest.param([N], [N, "name: tags, type: array<string>, source_type: SS"], id="a set"),
        pytest.param([], ["name: numbers, type: 'array<decimal(20,6)>', source_type: NS"], id="a set of numbers"),
        pytest.param([], ["name: bytes, type: binary, source_type: B"], id="bytes"),
        pytest.param([], ["name: nothing, type: string, source_type: S"], id="a null"),
        pytest.param([], ["name: price, type: string, source_type: S"], id="an attribute of another type"),
        pytest.param([LONG], [LONG.replace("12,2", "14,2")], id="a wider type"),
        pytest.param([], [MAP_B], id="a path into an attribute that none took"),
        pytest.param([], [MAP_B, MAP_D], id="two paths into it"),
        pytest.param([MAP_B], [MAP_B, MAP_E], id="a path beside one"),
        pytest.param([MAP_B], [MAP_B, MAP_D], id="a map beside a path"),
        pytest.param([MAP_E_WRONG], [MAP_E], id="another type of a path"),
        pytest.param([], ["name: map, type: string, source_type: M"], id="a map as JSON"),
    ],
)
def test_a_row_of_dynamodb_is_filled_as_the_new_contract_decodes_it(before: list[str], after: list[str]) -> None:
    old, new = contract(KEY_VALUE, before), contract(KEY_VALUE, after)
    line = json.dumps({"Item": ITEM}, ensure_ascii=False)
    stored = row(old, DynamoDecoder(old).item(line, 10**15, "e/f/0"))
    wanted = row(new, DynamoDecoder(new).item(line, 10**15, "e/f/0"))
    same(filled(stored, new, dynamodb_decoder.rest_form(new)), wanted)


@pytest.mark.parametrize(
    ("text", "form", "rest", "column"),
    [
        (RELATIONAL, debezium_decoder.rest_form, '{"nothing":null}', "name: nothing, type: string, source_type: text"),
        (RELATIONAL, debezium_decoder.rest_form, '{"other":1}', "name: nothing, type: string, source_type: text"),
        (RELATIONAL, debezium_decoder.rest_form, '{"payload.a":1}', "name: b, type: bigint, from: payload.b"),
        (
            KEY_VALUE,
            dynamodb_decoder.rest_form,
            '{"nothing":{"NULL":true}}',
            "name: nothing, type: string, source_type: S",
        ),
        (KEY_VALUE, dynamodb_decoder.rest_form, '{"map.b":{"S":"x"}}', "name: map, type: string, source_type: M"),
    ],
)
def test_a_row_whose_rest_has_nothing_for_a_column_stays_as_it_is(text: str, form: Any, rest: str, column: str) -> None:
    new = contract(text, [column])
    (name,) = (added.name for added in new.columns[2:])
    assert Filler(new, form(new)).fill(RowRest(rest, [], "u", [name])) is None


def test_key_and_partition_are_not_filled() -> None:
    """They decide where the row stands."""
    new = contract(RELATIONAL, [PRICE])
    row_rest = RowRest('{"month":"2024-01","price":"1.50"}', ["month"], "u", ["month", "price"])
    got = Filler(new, debezium_decoder.rest_form(new)).fill(row_rest)
    assert got is not None
    assert set(got.values) == {"price"}
    assert (got.rest, got.unfit) == ('{"month":"2024-01"}', ["month"])

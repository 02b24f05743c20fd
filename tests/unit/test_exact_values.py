"""Numbers inside JSON: exactly or not at all."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from headwater.contract.types import parse_type
from headwater.lake.decoding.exact_values import DEFECTS, Unfit, dump_json, json_converter, parse_json


def convert(type_: str, text: str) -> tuple[Any, dict[str, Any]]:
    """The value that a column of the type takes from a JSON text, and what it leaves over."""
    rest: dict[str, Any] = {}
    return json_converter(parse_type(type_))(parse_json(text), ("doc",), rest), rest


SHAPES = [
    pytest.param("double", "{}", lambda value: value, id="alone"),
    pytest.param("array<double>", "[null, {}]", lambda value: value[1], id="in an array"),
    pytest.param("struct<x:double,note:string>", '{{"x": {}}}', lambda value: value[0], id="in an object"),
    pytest.param("array<struct<x:array<double>>>", '[{{"x": [{}]}}]', lambda value: value[0][0][0], id="deep inside"),
]


@pytest.mark.parametrize(("type_", "around", "inside"), SHAPES)
@pytest.mark.parametrize(
    "number", ["0", "-0.0", "5", "0.1", "12.50", "-1.5e-7", "1e22", "9007199254740992", "1.7976931348623157e308"]
)
def test_a_json_number_that_a_double_holds_exactly_is_taken(type_: str, around: str, inside: Any, number: str) -> None:
    value = inside(convert(type_, around.format(number))[0])
    assert type(value) is float
    assert value == float(number)


@pytest.mark.parametrize(("type_", "around", "inside"), SHAPES)
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("0.1000000000000000055511151231257827", "a double holds exactly"),
        ("9007199254740993", "a double holds exactly"),
        ("9007199254740993.0", "a double holds exactly"),
        ("123456789012.345678", "a double holds exactly"),
        ("1e-400", "a double holds exactly"),
        ("1e400", "a double holds exactly"),
        ("1" + "0" * 400, "too large"),
        ("true", "a number"),
        ('"1.5"', "a number"),
        ("Infinity", "a number"),
        ("NaN", "a number"),
    ],
)
def test_a_json_number_that_a_double_would_round_is_refused(
    type_: str, around: str, inside: Any, number: str, reason: str
) -> None:
    with pytest.raises(DEFECTS, match=reason):
        convert(type_, around.format(number))


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("decimal(38,20)", "0.10000000000000000001", Decimal("0.10000000000000000001")),
        ("array<decimal(38,2)>", "[123456789012345678901234.50]", [Decimal("123456789012345678901234.50")]),
        ("struct<a:decimal(20,19)>", '{"a": 1.1000000000000000001}', (Decimal("1.1000000000000000001"),)),
        ("bigint", "9223372036854775807", 2**63 - 1),
    ],
)
def test_decimals_and_integers_of_json_keep_every_digit(type_: str, text: str, value: Any) -> None:
    assert convert(type_, text)[0] == value


@pytest.mark.parametrize(
    "text",
    ["0.10", "1.10000000000000000000000001", "100000000000000000000000000000001", "1E+5", "0.1900", "-12.5"],
)
def test_what_is_left_over_keeps_the_digits_of_its_numbers(text: str) -> None:
    rest = convert("struct<a:string>", f'{{"a": null, "more": [{text}, {{"b": {text}}}]}}')[1]
    assert dump_json(rest) == f'{{"doc.more":[{text},{{"b":{text}}}]}}'
    # It is JSON again, of the same numbers.
    assert json.loads(dump_json(rest), parse_float=Decimal)["doc.more"][0] == Decimal(text)


@pytest.mark.parametrize("number", ["1.0", "1e3", "1.5"])
def test_a_number_with_a_point_is_no_integer(number: str) -> None:
    with pytest.raises(DEFECTS, match="an integer of 32 bits"):
        convert("int", number)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_document_is_taken_apart_down_to_a_hundred_levels(opening: str, closing: str) -> None:
    levels = 100 // len(closing)
    deepest = opening * levels + "1" + closing * levels
    assert dump_json(parse_json(deepest)) == deepest
    for more in (1, 300, 2_000, 100_000):
        with pytest.raises(Unfit, match="at most 100 levels"):
            parse_json(opening * (levels + more) + "1" + closing * (levels + more))
    flat = json.dumps(["[{" * 200, *[{"a": []}] * 200], separators=(",", ":"))
    assert dump_json(parse_json(flat)) == flat


def test_an_integer_of_any_length_keeps_its_digits_and_costs_only_its_column() -> None:
    digits = "1" + "0" * 20_000
    document = f'{{"a":{digits},"b":-{digits},"c":[1,1.50]}}'
    assert dump_json(parse_json(document)) == document
    assert convert("struct<c:array<decimal(3,2)>>", document)[0] == ([Decimal(1), Decimal("1.50")],)
    for type_ in ("int", "bigint", "double", "decimal(38,0)", "string"):
        with pytest.raises(DEFECTS):
            convert(f"struct<a:{type_}>", document)
    with pytest.raises(Unfit, match="expected JSON"):
        parse_json(f"[{digits}")

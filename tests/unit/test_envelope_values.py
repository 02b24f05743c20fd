"""Columns as Debezium's envelope writes them: each type's values exactly, or a refusal that names the expected
value."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
from decimal import Decimal
from typing import Any

import pytest

from headwater.contract.model import Column
from headwater.contract.types import parse_type
from headwater.lake.decoding.exact_values import (
    Unfit,
    column_converter,
    dotted,
    dump_json,
    parse_json,
    reason_of,
    scalar_converter,
    unfit,
)

UTC = dt.UTC


def converted(type_: str, source_type: str, value: Any, *, snapshot: bool = False) -> Any:
    """The column's value for a value of the source's type."""
    return column_converter(Column("c", parse_type(type_), source_type, ("c",)), snapshot)(value)


def refused(type_: str, source_type: str, value: Any, *, snapshot: bool = False) -> str:
    """The reason for which a column refuses a value."""
    with pytest.raises(Unfit) as caught:
        converted(type_, source_type, value, snapshot=snapshot)
    return str(caught.value)


FEB_29 = dt.datetime(2024, 2, 29, 12, 30, 45, 500_000, UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
TIMESTAMPS = "a timestamp from 0001-01-01 to 9999-12-31 of at most microseconds"
DAYS = "the days from 1970-01-01 to a date from 0001-01-01 to 9999-12-31"
MOMENTS = "the time from 1970-01-01 to a timestamp from 0001-01-01 to 9999-12-31"
SINGLE = struct.unpack("f", struct.pack("f", 0.1))[0]


@pytest.mark.parametrize(
    ("type_", "source_type", "value", "expected"),
    [
        ("int", "integer", -(2**31), -(2**31)),
        ("int", "integer", 2**31 - 1, 2**31 - 1),
        ("bigint", "bigint", -(2**63), -(2**63)),
        ("bigint", "bigint", 2**63 - 1, 2**63 - 1),
        ("double", "double precision", 0.1, 0.1),
        ("double", "double precision", 7, 7.0),
        ("double", "double precision", "Infinity", float("inf")),
        ("double", "double precision", "-Infinity", float("-inf")),
        ("float", "real", 0.1, SINGLE),
        ("float", "real", "Infinity", float("inf")),
        ("boolean", "boolean", True, True),
        ("boolean", "boolean", False, False),
        ("string", "text", "Zoë", "Zoë"),
        ("string", "smallint", 32767, "32767"),
        ("string", "integer", -5, "-5"),
        ("string", "bigint", 2**63 - 1, "9223372036854775807"),
        ("string", "numeric", "1E+5", "100000"),
        ("string", "numeric", "-1.50", "-1.50"),
        ("string", "numeric", "1E-7", "0.0000001"),
        ("string", "numeric", "NAN", "NaN"),
        ("string", "numeric", "NaN", "NaN"),
        ("string", "numeric", "POSITIVE_INFINITY", "Infinity"),
        ("string", "numeric", "NEGATIVE_INFINITY", "-Infinity"),
        ("decimal(12,2)", "numeric(12,2)", "-1.50", Decimal("-1.50")),
        ("decimal(12,2)", "numeric(12,2)", "1.5", Decimal("1.50")),
        ("binary", "bytea", "00ff", b"\x00\xff"),
        ("string", "time without time zone", 0, "00:00:00"),
        ("string", "time without time zone", 86_400_000_000, "24:00:00"),
        ("string", "time without time zone", 86_399_999_999, "23:59:59.999999"),
        ("string", "time without time zone", 3_723_100_000, "01:02:03.1"),
        ("timestamp", "timestamp with time zone", "2024-02-29T12:30:45.5Z", FEB_29),
        ("string", "timestamp with time zone", "2024-02-29T12:30:45.5Z", "2024-02-29T12:30:45.5Z"),
        ("string", "timestamp with time zone", "infinity", "infinity"),
        ("string", "timestamp with time zone", "-infinity", "-infinity"),
        ("date", "date", 0, dt.date(1970, 1, 1)),
        ("date", "date", -719_162, dt.date(1, 1, 1)),
        ("date", "date", 2_932_896, dt.date(9999, 12, 31)),
        ("string", "date", 19_782, "2024-02-29"),
        ("timestamp", "timestamp without time zone", 1_500_000, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp", "timestamp(6) without time zone", 1_500_000, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp", "timestamp(4) without time zone", 1_500_000, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp", "timestamp(3) without time zone", 1_500, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp", "timestamp(0) without time zone", 2_000, dt.datetime(1970, 1, 1, 0, 0, 2, 0, UTC)),
        ("timestamp", "timestamp without time zone", 253_402_300_799_999_999, LAST),
        ("timestamp", "timestamp without time zone", -62_135_596_800_000_000, dt.datetime(1, 1, 1, tzinfo=UTC)),
        ("string", "timestamp without time zone", 1_500_000, "1970-01-01 00:00:01.5"),
        ("string", "timestamp without time zone", 10_000_000, "1970-01-01 00:00:10"),
        ("array<int>", "integer[]", [1, None, 3], [1, None, 3]),
        ("array<string>", "text[]", [], []),
        ("array<date>", "date[]", [0], [dt.date(1970, 1, 1)]),
    ],
)  # fmt: skip
def test_a_value_is_taken_exactly(type_: str, source_type: str, value: Any, expected: Any) -> None:
    taken = converted(type_, source_type, value)
    assert taken == expected
    assert type(taken) is type(expected)


def test_the_sign_of_zero_and_what_is_no_number_are_kept() -> None:
    assert str(converted("double", "double precision", "NaN")) == "nan"
    assert str(converted("float", "real", "NaN")) == "nan"
    assert str(converted("double", "double precision", -0.0)) == "-0.0"


@pytest.mark.parametrize(
    ("type_", "source_type", "value", "expected"),
    [
        ("int", "integer", 2**31, "an integer of 32 bits"),
        ("int", "integer", -(2**31) - 1, "an integer of 32 bits"),
        ("bigint", "bigint", 2**63, "an integer of 64 bits"),
        ("int", "integer", True, "an integer of 32 bits"),
        ("double", "double precision", "1.5", "a floating-point number"),
        ("double", "double precision", "nan", "a floating-point number"),
        ("double", "double precision", True, "a floating-point number"),
        ("float", "real", 1e39, "a single-precision number"),
        ("boolean", "boolean", 1, "true or false"),
        ("boolean", "boolean", "t", "true or false"),
        ("string", "text", 5, "a text"),
        ("string", "integer", "5", "an integer"),
        ("string", "integer", True, "an integer"),
        ("string", "numeric", "five", "a numeric"),
        ("string", "numeric", 5, "a text"),
        ("decimal(4,2)", "numeric(4,2)", "100.00", "a number that fits decimal(4,2) exactly"),
        ("decimal(4,2)", "numeric(4,2)", "1.005", "a number that fits decimal(4,2) exactly"),
        ("decimal(4,2)", "numeric(4,2)", "NaN", "a number that fits decimal(4,2) exactly"),
        ("decimal(4,2)", "numeric(4,2)", 1.5, "a number that fits decimal(4,2) exactly"),
        ("binary", "bytea", "0g", "bytes in hexadecimal"),
        ("binary", "bytea", 5, "bytes in hexadecimal"),
        ("string", "time without time zone", -1, "the microseconds of a day"),
        ("string", "time without time zone", 86_400_000_001, "the microseconds of a day"),
        ("string", "time without time zone", "12:00", "the microseconds of a day"),
        ("string", "timestamp with time zone", "soon", TIMESTAMPS),
        ("timestamp", "timestamp with time zone", "infinity", TIMESTAMPS),
        ("date", "date", -719_163, DAYS),
        ("date", "date", 2_932_897, DAYS),
        ("date", "date", "2024-02-29", DAYS),
        ("string", "date", 2_147_483_647, DAYS),
        ("timestamp", "timestamp without time zone", 253_402_300_800_000_000, MOMENTS),
        ("timestamp", "timestamp without time zone", -62_135_596_800_000_001, MOMENTS),
        ("timestamp", "timestamp(3) without time zone", 253_402_300_800_000, MOMENTS),
        ("timestamp", "timestamp without time zone", "soon", MOMENTS),
        ("array<int>", "integer[]", "1", "an array"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_with_what_was_found(
    type_: str, source_type: str, value: Any, expected: str
) -> None:
    assert refused(type_, source_type, value) == f"found {json.dumps(value)}, expected {expected}"


# Dates that came through the JDBC driver may have been shifted to the Julian calendar.
SHIFTED = dt.date(1582, 10, 26)


@pytest.mark.parametrize(
    ("type_", "source_type", "last_shifted", "first_right"),
    [
        ("date", "date", -141_417, -141_416),
        ("timestamp", "timestamp without time zone", -141_416 * 86_400_000_000 - 1, -141_416 * 86_400_000_000),
        ("timestamp", "timestamp(3) without time zone", -141_416 * 86_400_000 - 1, -141_416 * 86_400_000),
        ("timestamp", "timestamp with time zone", "1582-10-25T23:59:59Z", "1582-10-26T00:00:00Z"),
        ("string", "timestamp with time zone", "1582-10-25T23:59:59Z", "1582-10-26T00:00:00Z"),
    ],
)
def test_a_date_that_a_snapshot_may_have_shifted_is_refused_there_and_taken_from_a_change(
    type_: str, source_type: str, last_shifted: Any, first_right: Any
) -> None:
    assert "from 1582-10-26 to 9999-12-31" in refused(type_, source_type, last_shifted, snapshot=True)
    assert converted(type_, source_type, last_shifted) is not None
    taken = converted(type_, source_type, first_right, snapshot=True)
    assert str(taken).startswith(str(SHIFTED))


def test_dates_of_arrays_come_through_the_driver_in_changes_too() -> None:
    assert "from 1582-10-26" in refused("array<date>", "date[]", [-141_417])
    assert converted("array<date>", "date[]", [-141_416]) == [SHIFTED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T23:59:59Z", dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("2024-02-29T23:59:59.123Z", dt.datetime(2024, 2, 29, 23, 59, 59, 123_000, UTC)),
        ("2024-02-29T23:59:59.123456Z", dt.datetime(2024, 2, 29, 23, 59, 59, 123_456, UTC)),
        ("2024-02-29 23:59", dt.datetime(2024, 2, 29, 23, 59, tzinfo=UTC)),
        ("2024-02-29T23:59:59.1234560Z", dt.datetime(2024, 2, 29, 23, 59, 59, 123_456, UTC)),
        ("2024-02-29T23:59:59,5", dt.datetime(2024, 2, 29, 23, 59, 59, 500_000, UTC)),
        ("2024-02-29T23:59:59+02", dt.datetime(2024, 2, 29, 21, 59, 59, tzinfo=UTC)),
        ("2024-02-29T23:59:59-0230", dt.datetime(2024, 3, 1, 2, 29, 59, tzinfo=UTC)),
        ("2024-02-29T23:59:59+02:30", dt.datetime(2024, 2, 29, 21, 29, 59, tzinfo=UTC)),
    ],
)
def test_timestamps_are_read_in_each_of_their_forms(text: str, expected: dt.datetime) -> None:
    assert converted("timestamp", "timestamp with time zone", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30T00:00:00Z",
        "2023-02-29T00:00:00.5Z",
        "2024-02-29T24:00:00Z",
        "2024-02-29T23:59:59.1234567Z",
        "0001-01-01T00:00:00+01",
        "10000-01-01T00:00:00Z",
        "2024-02-29",
        "2024-02-29T23:59:59Z\n",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    reason = refused("timestamp", "timestamp with time zone", text)
    assert reason == f"found {dump_json(text)}, expected {TIMESTAMPS}"


@pytest.mark.parametrize("text", ["2024-2-29", "20240229", "2024-W09-4", "2024-02-30", "2024-02-29 ", "2024-02.29"])
def test_what_is_no_date_within_json_is_refused(text: str) -> None:
    with pytest.raises(Unfit, match=re.escape(f'found "{text}", expected a date from 0001-01-01 to 9999-12-31')):
        scalar_converter(parse_type("date"))(text)


def test_a_long_value_is_shown_up_to_eighty_characters() -> None:
    assert str(unfit("x" * 78, "less")) == f'found "{"x" * 78}", expected less'
    assert str(unfit("x" * 79, "less")) == f'found "{"x" * 76}..., expected less'


def test_a_reason_names_the_kind_of_an_error_that_is_no_refusal() -> None:
    assert reason_of(Unfit("found 5, expected less")) == "found 5, expected less"
    assert reason_of(KeyError("op")) == "KeyError: 'op'"


def test_what_is_no_json_is_refused_with_the_text() -> None:
    with pytest.raises(Unfit, match=re.escape('found "{", expected JSON')):
        parse_json("{")
    with pytest.raises(Unfit, match=r'^found "\[\[\[.*\.\.\., expected JSON of at most 100 levels$'):
        parse_json("[" * 101 + "]" * 101)


def test_half_a_surrogate_pair_is_no_text_and_is_written_as_it_came() -> None:
    half, whole = parse_json('["\\ud83d", "\\ud83d\\ude00"]')
    assert not isinstance(half, str)
    assert whole == "😀"
    assert dump_json([half, whole]) == '["\\ud83d","😀"]'
    assert dump_json("\ud83d") == '"\\ud83d"'


def test_only_names_with_dots_or_quotes_are_quoted_in_a_path() -> None:
    assert dotted(["a", "b.c", 'd"e', "f"]) == r'a."b.c"."d\"e".f'

"""The common part of both decoders: a row's location, its record key, and the handling of a record without a row."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from headwater.contract.model import History, change_history
from headwater.contract.reading import parse_contract
from headwater.lake.decoding.changes import (
    ROW_TAGS,
    BadRecord,
    Decoded,
    Identity,
    columns_tagged,
    epoch_digits,
    partition_defect,
    plain_digits,
    record_key,
    without_row,
)

CONTRACT = parse_contract(
    """
table: things
description: Key and partition share no column, and stand in another order than in the columns.
source: {database: postgresql, table: shop.things}
key: [second, first]
partition_by: [month]
buckets: 1
columns:
  - {name: month, type: string, source_type: text}
  - {name: note, type: string, source_type: text}
  - {name: first, type: int, source_type: integer}
  - {name: second, type: string, source_type: text}
""",
    "things.yaml",
)
ROW = ["2024-01", "n", 1, "b"]


def test_an_identity_knows_the_places_of_key_and_partition() -> None:
    identity = Identity(CONTRACT)
    assert (identity.key_at, identity.partition_at, identity.kept_at) == ([3, 2], [0], [0, 2, 3])


def test_a_record_key_is_of_the_keys_columns_in_their_order() -> None:
    assert Identity(CONTRACT).record_key(ROW) == '["b",1]'


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (["a:b", 1], '["a:b",1]'),
        (["a:b,c:d"], '["a:b,c:d"]'),
        (["urn:x:y"], '["urn:x:y"]'),
        (["a:b,_key:c:d"], '["a:b,_key:c:d"]'),
        (["x,_key:a:b"], r'["x,_key\u003aa\u003ab"]'),
        (["urn:x:y", 1], r'["urn\u003ax\u003ay",1]'),
        (["a", "09:00:00"], r'["a","09\u003a00\u003a00"]'),
        (["a:b,c:d:e"], r'["a\u003ab,c\u003ad\u003ae"]'),
        ([r"\u003a:b:c", 1], r'["\\u003a\u003ab\u003ac",1]'),
    ],
)
def test_a_key_in_which_hudi_would_look_for_parts_for_good_has_no_colons(values: list[Any], key: str) -> None:
    assert record_key(values) == key
    assert json.loads(key) == values


def test_a_change_of_a_row_whose_key_has_colons_has_none() -> None:
    history = change_history(replace(CONTRACT, key=("second",), history=History(1)))
    assert history is not None
    at = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    own = ("c", "0001", at, "t/0/1", False, None, None)
    row = Identity(history).row(["2024-01", "n", 1, "urn:x:y"], own)
    assert row[4] == r'["urn\u003ax\u003ay","0001"]'


@pytest.mark.parametrize("at", [2, 3])
def test_a_row_without_a_part_of_its_key_is_bad(at: int) -> None:
    row: list[Any] = [*ROW]
    row[at] = None
    with pytest.raises(BadRecord, match=r"^key: found null in second, first, expected values$"):
        Identity(CONTRACT).record_key(row)


@pytest.mark.parametrize(
    ("at", "value", "moved"), [(0, "2024-02", True), (0, None, True), (1, "m", False), (2, 2, True), (3, "c", True)]
)
def test_a_row_has_moved_where_key_or_partition_differ(at: int, value: Any, moved: bool) -> None:
    new: list[Any] = [*ROW]
    new[at] = value
    assert Identity(CONTRACT).moved(ROW, new) is moved
    assert Identity(CONTRACT).moved(new, ROW) is moved


def test_a_row_that_changes_nothing_has_not_moved() -> None:
    assert Identity(CONTRACT).moved(ROW, [*ROW]) is False


def test_epochs_have_four_digits_so_that_texts_compare_as_numbers() -> None:
    assert [epoch_digits(epoch) for epoch in (0, 1, 12, 9999)] == ["0000", "0001", "0012", "9999"]
    for epoch in (-1, 10_000):
        with pytest.raises(ValueError, match=f"^epoch: found {epoch}, expected 0 to 9999$"):
            epoch_digits(epoch)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([1, "a"], '[1,"a"]'),
        (["1", "a"], '["1","a"]'),
        (['a","b', "é"], '["a\\",\\"b","é"]'),
        ([Decimal("1.50"), Decimal("-0.00"), Decimal("1E+3"), Decimal("100")], '["1.5","0","1000","100"]'),
        ([b"\x00\xff"], '["AP8="]'),
        ([dt.date(2024, 2, 29)], '["2024-02-29"]'),
        ([], "[]"),
    ],
)
def test_a_record_key_is_a_json_array(values: list[Any], key: str) -> None:
    assert record_key(values) == key
    assert len(json.loads(key)) == len(values)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0", "0"),
        ("0E-10", "0"),
        ("-0", "0"),
        ("10", "10"),
        ("1E+2", "100"),
        ("1.10", "1.1"),
        ("2.00", "2"),
        ("100.0", "100"),
        ("-0.050", "-0.05"),
        ("1234567890123456789012345678901234567890.10", "1234567890123456789012345678901234567890.1"),
    ],
)
def test_one_number_has_one_text_with_all_its_digits(number: str, text: str) -> None:
    assert plain_digits(Decimal(number)) == text


def test_a_batch_has_a_rows_columns_and_those_of_a_record_without_a_row() -> None:
    columns = columns_tagged(CONTRACT)
    lake = [name for name, _ in CONTRACT.lake_columns()]
    assert [name for name, _ in columns] == [*lake, "_left_out", "_floor", "_reason", "_raw"]
    assert columns[:4] == [("month", "string"), ("note", "string"), ("first", "int"), ("second", "string")]
    assert columns[-3:] == [("_floor", "string"), ("_reason", "string"), ("_raw", "string")]
    assert len((*ROW, *ROW_TAGS)) == len(ROW) + 4
    assert ROW_TAGS == (None, None, None, None)


def test_a_record_without_a_row_has_its_floor_its_reason_and_what_is_kept_of_it() -> None:
    assert without_row(2) == (None,) * 6
    assert without_row(2, "floor", "reason", "raw") == (None, None, None, "floor", "reason", "raw")
    assert without_row(1, reason="reason", raw="raw") == (None, None, None, "reason", "raw")


def test_a_bad_record_tells_why_and_what_it_still_does_to_other_rows() -> None:
    bad = BadRecord("reason")
    assert (str(bad), bad.floor, bad.buried) == ("reason", None, ())
    buried = (("row",),)
    ends = BadRecord("reason", "floor", buried)
    assert (str(ends), ends.floor, ends.buried) == ("reason", "floor", buried)
    assert Decoded() == ((), None, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "found '' as partition, expected a value"),
        ("__HIVE_DEFAULT_PARTITION__", "expected a value: this text stands for null"),
        ("a\x00b", "control character"),
        ("a\x1f", "control character"),
        ("\x7f", "control character"),
        ("\n", "control character"),
        ("a" * 201, "at most 200 bytes"),
        ("ü" * 101, "at most 200 bytes"),
        ("\U0001f600" * 51, "at most 200 bytes"),
    ],
)
def test_a_text_that_no_store_takes_as_partition_is_refused(value: str, reason: str) -> None:
    assert reason in str(partition_defect(value))


@pytest.mark.parametrize(
    "value",
    [None, 0, -5, dt.date(2024, 1, 1), " ", "a/b=c%", "__hive_default_partition__", "a" * 200, "ü" * 100, "\x80"],
)
def test_other_values_can_be_partitions(value: Any) -> None:
    assert partition_defect(value) is None

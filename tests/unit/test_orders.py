"""The texts by which changes are ordered. They are stored with every row, so they stay as they are."""

from __future__ import annotations

import hashlib
import json

import pytest

from headwater.lake.decoding import dynamodb_decoder
from headwater.lake.decoding.changes import BadRecord
from headwater.lake.decoding.debezium_decoder import _commit_before, floor_below, order

MINUTE = 60 * 10**6


def test_a_change_of_postgresql_has_its_order_in_46_digits() -> None:
    assert order(2, 30, 4, snapshot=False) == "0002" + "1" + f"{30:020d}" + f"{4:020d}" + "1"
    assert order(2, 30, 4, snapshot=True) == "0002" + "0" + f"{30:020d}" + f"{4:020d}" + "1"


def test_a_floor_is_one_below_the_rows_that_came_with_it() -> None:
    row = order(1, 5, 7, snapshot=True)
    assert floor_below(row) == row[:45] + "0"


@pytest.mark.parametrize(("sequence", "lsn"), [(None, 9), ('[null,"9"]', 9), ('["7","9"]', 7), ('["0","9"]', 0)])
def test_the_commit_before_a_change_is_the_first_lsn_of_its_sequence(sequence: str | None, lsn: int) -> None:
    assert _commit_before(sequence, 9) == lsn


@pytest.mark.parametrize(
    ("sequence", "reason"),
    [
        ('["7"]', "source.sequence: found '[\"7\"]', expected two LSNs"),
        ('{"a": 1, "b": 2}', 'source.sequence: found \'{"a": 1, "b": 2}\', expected two LSNs'),
        ('["x","9"]', "source.sequence: found 'x', expected an LSN in digits, or null"),
    ],
)
def test_a_sequence_of_another_form_says_what_was_found(sequence: str, reason: str) -> None:
    with pytest.raises(BadRecord) as bad:
        _commit_before(sequence, 9)
    assert str(bad.value) == reason
    assert json.loads(sequence)


def test_the_floor_of_an_export_is_the_last_place_of_the_microsecond_before_its_items() -> None:
    assert dynamodb_decoder._place(MINUTE + 5) == 5
    assert dynamodb_decoder._place(3) == 1
    assert dynamodb_decoder.floor_of_export(2, MINUTE + 5) == "0002" + f"{4:020d}" + "1" + "9" * 56
    assert dynamodb_decoder._order("0002", 5, 0, "7") == "0002" + f"{5:020d}" + "0" + "7"


def test_a_change_may_be_of_the_first_microsecond() -> None:
    assert dynamodb_decoder._micros(0, "MICROSECOND") == 0
    with pytest.raises(BadRecord, match="found -1, expected a number"):
        dynamodb_decoder._micros(-1, "MICROSECOND")


def test_an_events_digits_are_those_of_its_digest() -> None:
    digest = int(hashlib.sha256(b"event").hexdigest(), 16)
    assert dynamodb_decoder._event_digits("event") == str(digest)[-56:]

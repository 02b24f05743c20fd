"""The stored record of an endless comparison of a table, the problems in it, and its metrics in CloudWatch."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.lake.base import metrics
from headwater.lake.base.command_lines import CommandLines
from headwater.operations import watched
from headwater.operations.watched import Watched
from tests.unit.conftest import BUCKET

NOW = 1_800_000_000.0
HOUR = 3600.0
# A comparison that runs and has been through all rows a minute ago.
WELL = Watched("orders", NOW, round_at=NOW - 60, source_rows=1000, lake_rows=1000, every=600, started_at=NOW - 5 * HOUR)
_folders = itertools.count()


@pytest.fixture
def lake() -> str:
    return f"s3://{BUCKET}/watched/{next(_folders)}"


def found(known: Watched, now: float = NOW) -> list[str]:
    problems = watched.problems(known, now, CommandLines("dev"))
    assert {problem.runbook for problem in problems} <= {"differs"}
    assert all(problem.next for problem in problems)
    return [problem.found for problem in problems]


def place(lake: str) -> dict[str, str]:
    return {"Bucket": BUCKET, "Key": f"{lake.removeprefix(f's3://{BUCKET}/')}/_verify/orders.json"}


# What is wrong


def test_a_comparison_that_runs_and_finds_nothing_is_well() -> None:
    assert found(WELL) == []


def test_rows_that_differ_are_counted_by_kind_and_so_they_are_after_the_comparison_has_ended() -> None:
    for known in (WELL, replace(WELL, ended=True, at=NOW - 99 * HOUR)):
        (text,) = found(replace(known, missing=1, extra=2))
        assert "1 missing, 2 too many" in text


@pytest.mark.parametrize(
    ("other", "now", "said"),
    [
        ({}, NOW + 900, None),
        ({}, NOW + 901, "has said nothing for 901 s"),
        ({"behind_seconds": 900.0}, NOW, None),
        ({"behind_seconds": 901.0}, NOW, "the lake does not have what its source had 901 s ago"),
        # A round that is an hour old where one comes every ten minutes; and three intervals where they are long.
        ({"round_at": NOW - HOUR}, NOW, None),
        ({"round_at": NOW - HOUR - 1}, NOW, "no round over all rows has ended in the last 3,601 s"),
        ({"round_at": NOW - 3 * HOUR, "every": HOUR}, NOW, None),
        ({"round_at": NOW - 3 * HOUR - 1, "every": HOUR}, NOW, "in the last 10,801 s"),
        # So it is before the first round, and after a start, of which the hour before is not held against it.
        ({"round_at": None, "started_at": NOW - HOUR}, NOW, None),
        ({"round_at": None, "started_at": NOW - HOUR - 1}, NOW, "no round over all rows has ended"),
        ({"round_at": NOW - 9 * HOUR, "started_at": NOW - 60}, NOW, None),
        ({"unsettled": 11}, NOW, "11 of 1,000 rows could not be checked"),
        ({"unsettled": 10}, NOW, None),
        # One per cent of them, or ten where that is more: a few rows that are always being changed are no problem.
        ({"unsettled": 100, "source_rows": 10_000}, NOW, None),
        ({"unsettled": 101, "source_rows": 10_000}, NOW, "101 of 10,000 rows"),
        ({"unsettled": 10, "source_rows": 10}, NOW, None),
        ({"error": "PostgreSQL does not answer"}, NOW, "the comparison fails: PostgreSQL does not answer"),
    ],
)
def test_a_comparison_that_does_not_learn_more_is_told_and_one_that_was_ended_on_purpose_is_not(
    other: dict[str, Any], now: float, said: str | None
) -> None:
    known = replace(WELL, **other)
    texts = found(known, now)
    assert [said is not None and said in text for text in texts] == ([] if said is None else [True])
    assert found(replace(known, ended=True), now) == []


def test_of_a_comparison_that_is_silent_only_that_and_its_last_error_are_told() -> None:
    silent = replace(WELL, behind_seconds=5000.0, unsettled=500, error="no memory")
    texts = found(silent, NOW + 9 * HOUR)
    assert [text.partition(":")[0] for text in texts] == [
        "the comparison has said nothing for 32,400 s, so rows may differ without notice",
        "the comparison fails",
    ]


def test_what_an_earlier_release_kept_says_of_its_rounds_no_more_than_it_knows() -> None:
    assert found(Watched("orders", NOW)) == []


# What is kept


def test_what_is_kept_is_read_again_as_it_was(s3: Any, lake: str) -> None:
    assert watched.read(s3, lake, "orders") is None
    known = replace(WELL, missing=1, since=NOW - 5, unsettled=3, behind_seconds=70.0, error="é", error_since=NOW - 2)
    watched.write(s3, lake, known)
    assert watched.read(s3, lake, "orders") == known


def test_what_an_older_or_newer_release_has_kept_is_read_as_far_as_it_is_known(s3: Any, lake: str) -> None:
    document = {"table": "orders", "at": 5, "extra": 2, "of_a_newer_release": [1]}
    s3.put_object(**place(lake), Body=json.dumps(document).encode())
    assert watched.read(s3, lake, "orders") == Watched("orders", 5.0, extra=2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"table": "\xff", "at": 1}',
        b'{"table": "orders"}',
        b'{"table": "orders", "at": "now"}',
        b'{"table": "orders", "at": 1, "missing": null}',
        b'{"table": "orders", "at": NaN}',
    ],
)
def test_what_is_no_such_document_is_named_as_a_problem(s3: Any, lake: str, body: bytes) -> None:
    s3.put_object(**place(lake), Body=body)
    with pytest.raises(UserError, match=f"{lake}/_verify/orders.json: found .*, expected "):
        watched.read(s3, lake, "orders")
    facts, (problem,) = watched.observe(s3, lake, "orders", NOW, CommandLines("dev"))
    assert problem.runbook == "differs"
    assert f"{lake}/_verify/orders.json" in problem.found
    assert "\n" not in problem.found
    assert set(facts.values()) == {None}


def test_an_error_is_kept_and_read_as_a_line_of_bounded_length_that_steers_no_terminal(s3: Any, lake: str) -> None:
    steering = "first\nsecond\x1b[2J\x9b31m\u202ethird\t" + "x" * 1000
    expected = f"first second [2J 31m third {'x' * 473}"
    assert len(expected) == 500
    watched.write(s3, lake, replace(WELL, error=steering))
    kept = s3.get_object(**place(lake))["Body"].read().decode()
    assert json.loads(kept)["error"] == expected
    # So it is where somebody else has written it.
    s3.put_object(**place(lake), Body=json.dumps({**asdict(WELL), "error": steering}).encode())
    known = watched.read(s3, lake, "orders")
    assert known is not None
    assert known.error == expected


def test_a_table_is_the_one_that_was_asked_for_whatever_its_document_says(s3: Any, lake: str) -> None:
    s3.put_object(**place(lake), Body=b'{"table": "\\u001b[2J", "at": 1}')
    known = watched.read(s3, lake, "orders")
    assert known is not None
    assert known.table == "orders"


# What a start leaves as it was known

FORMER = replace(
    WELL, at=NOW - 300, missing=5, since=NOW - 4000, unsettled=7, every=900.0, started_at=NOW - 9 * HOUR, ended=True
)
STARTED = Watched("orders", NOW, every=600.0, started_at=NOW - 10)


def test_before_its_first_round_a_comparison_knows_what_the_one_before_it_knew() -> None:
    now = watched.carried(FORMER, STARTED)
    assert now == replace(FORMER, at=NOW, ended=False, started_at=NOW - 10, is_former=True)
    assert found(now) == ["rows of orders differ from their source: 5 missing"]
    # Again and again, as what is kept is kept anew.
    assert watched.carried(now, replace(STARTED, at=NOW + 60)) == replace(now, at=NOW + 60)


def test_what_it_has_found_itself_before_its_first_round_is_known_beside_it() -> None:
    now = watched.carried(FORMER, replace(STARTED, missing=2, different=3, since=NOW - 1, unsettled=9))
    assert (now.missing, now.different, now.since, now.unsettled) == (5, 3, NOW - 4000, 9)
    assert not now.is_former
    now = watched.carried(replace(FORMER, missing=0, since=None), replace(STARTED, extra=1, since=NOW - 1))
    assert (now.counts(), now.since) == ("1 too many", NOW - 1)


def test_once_it_has_been_through_all_rows_only_what_it_knows_counts() -> None:
    known = replace(STARTED, round_at=NOW - 1, source_rows=4, lake_rows=4)
    assert watched.carried(FORMER, known) == known
    assert watched.carried(None, STARTED) == STARTED
    unknown = Watched("orders", NOW - 9 * HOUR, ended=True)
    assert watched.carried(unknown, STARTED) == STARTED


def test_its_own_state_is_kept_and_not_that_of_the_one_before_it() -> None:
    former = replace(FORMER, error="it was so", error_since=NOW - 99, behind_seconds=5000.0)
    now = watched.carried(former, replace(STARTED, ended=True))
    assert (now.error, now.error_since, now.behind_seconds, now.ended) == ("", None, 0.0, True)


def test_a_comparison_that_ends_again_and_again_before_it_is_through_is_told() -> None:
    """A start that follows no end on purpose does not begin its hour anew."""
    crashed = replace(STARTED, at=NOW, started_at=NOW - 10)
    for minutes in range(10, 80, 10):
        at = NOW + 60 * minutes
        crashed = watched.carried(crashed, replace(STARTED, at=at, started_at=at - 10))
    (text,) = found(crashed, crashed.at)
    assert "no round over all rows" in text


def test_a_round_of_former_times_is_old_from_when_it_is_started_anew_on_purpose() -> None:
    former = replace(FORMER, missing=0, round_at=NOW - 99 * HOUR)
    assert found(watched.carried(former, STARTED)) == []
    (text,) = found(watched.carried(replace(former, ended=False), STARTED))
    assert "no round over all rows" in text


def test_rounds_that_took_long_may_take_as_long_after_a_start() -> None:
    assert watched.carried(replace(FORMER, every=5000.0), STARTED).every == 5000.0
    assert watched.carried(replace(FORMER, every=5.0), STARTED).every == 600.0


# What is sent


class Sent:
    """Takes the place of CloudWatch, and keeps the metrics of each request."""

    def __init__(self) -> None:
        self.requests: list[dict[str, float]] = []

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:  # noqa: N803 (boto3's)
        assert Namespace == metrics.NAMESPACE
        for datum in MetricData:
            assert datum["Dimensions"] == [
                {"Name": "Database", "Value": "headwater_dev"},
                {"Name": "Table", "Value": "orders"},
            ]
        self.requests.append({datum["MetricName"]: datum["Value"] for datum in MetricData})


def sent(known: Watched) -> dict[str, float]:
    cloudwatch = Sent()
    watched.measure(cloudwatch, "headwater_dev", known)
    return cloudwatch.requests[0] if cloudwatch.requests else {}


def test_both_figures_are_sent_of_what_is_known() -> None:
    assert sent(WELL) == {"Differences": 0.0, "ComparisonHindrances": 0.0}
    assert sent(replace(WELL, missing=1, extra=2)) == {"Differences": 3.0, "ComparisonHindrances": 0.0}
    assert sent(replace(WELL, ended=True, extra=2)) == {"Differences": 2.0, "ComparisonHindrances": 0.0}


def test_nothing_is_sent_of_what_is_not_known_but_that_it_is_hindered() -> None:
    begun = replace(WELL, round_at=None, started_at=NOW - 60)
    assert sent(begun) == {}
    assert sent(replace(begun, behind_seconds=901.0)) == {"ComparisonHindrances": 1.0}
    # Nobody waits for it any more.
    assert sent(replace(begun, behind_seconds=901.0, ended=True)) == {"ComparisonHindrances": 0.0}
    # What differs is known before all rows are.
    assert sent(replace(begun, missing=1)) == {"Differences": 1.0, "ComparisonHindrances": 0.0}


def test_what_a_former_comparison_found_is_sent_anew_only_where_this_one_ends_without_knowing_more() -> None:
    """A comparison that is through within the minute would else have its table ring on."""
    now = watched.carried(FORMER, STARTED)
    assert sent(now) == {}
    assert sent(replace(now, behind_seconds=901.0)) == {"ComparisonHindrances": 1.0}
    assert sent(replace(now, ended=True)) == {"Differences": 5.0, "ComparisonHindrances": 0.0}
    found_more = watched.carried(FORMER, replace(STARTED, extra=1))
    assert sent(found_more) == {"Differences": 6.0, "ComparisonHindrances": 0.0}
    assert sent(watched.carried(FORMER, replace(STARTED, round_at=NOW)))["Differences"] == 0.0


@pytest.mark.parametrize(
    ("other", "hindrances"),
    [
        ({"behind_seconds": 900.0}, 0),
        ({"behind_seconds": 901.0}, 1),
        ({"round_at": NOW - HOUR - 1}, 1),
        # An error passes, or lasts.
        ({"error": "gone"}, 0),
        ({"error": "gone", "error_since": NOW - 900}, 0),
        ({"error": "gone", "error_since": NOW - 901}, 1),
        ({"error": "gone", "error_since": NOW - 901, "round_at": NOW - HOUR - 1, "behind_seconds": 901.0}, 3),
        # Nobody has to be woken for these.
        ({"unsettled": 900}, 0),
    ],
)
def test_what_keeps_it_from_learning_more_for_long_is_counted(other: dict[str, Any], hindrances: int) -> None:
    assert sent(replace(WELL, **other))["ComparisonHindrances"] == hindrances
    assert sent(replace(WELL, ended=True, **other))["ComparisonHindrances"] == 0


# What status has of it


def test_the_facts_of_a_table_that_nobody_has_compared_are_not_known_and_no_problem(s3: Any, lake: str) -> None:
    facts, problems = watched.observe(s3, lake, "orders", NOW, CommandLines("dev"))
    assert (set(facts.values()), problems) == ({None}, [])


def test_the_facts_of_a_table_say_what_is_known_and_how_old_it_is(s3: Any, lake: str) -> None:
    watched.write(s3, lake, replace(WELL, missing=2, since=NOW - 5, unsettled=3, ended=True))
    facts, (problem,) = watched.observe(s3, lake, "orders", NOW, CommandLines("dev"))
    assert "2 missing" in problem.found
    assert facts == {
        "compared_at": NOW - 60,
        "rows_compared": 1000,
        "rows_that_differ": 2,
        "rows_differ_since": NOW - 5,
        "rows_not_told": 3,
        "comparison_said_at": NOW,
        "comparison_ended": True,
        "comparison_started_at": NOW - 5 * HOUR,
        "comparison_every_seconds": 600.0,
        "comparison_behind_seconds": 0.0,
        "comparison_error": "",
    }
    watched.write(s3, lake, Watched("orders", NOW))
    facts, _ = watched.observe(s3, lake, "orders", NOW, CommandLines("dev"))
    assert (facts["compared_at"], facts["rows_that_differ"]) == (None, None)
    watched.write(s3, lake, Watched("orders", NOW, missing=1))
    facts, _ = watched.observe(s3, lake, "orders", NOW, CommandLines("dev"))
    assert (facts["compared_at"], facts["rows_that_differ"]) == (None, 1)

"""What people hear of tables that fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.lake.base.announcements import EventBridgeReport
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.job.failures import Failures, passes
from headwater.lake.sources.landing import LandingGap


class Events:
    """EventBridge: takes entries, or refuses them."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.refusal: str | None = None

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's name
        if self.refusal is not None:
            return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "X", "ErrorMessage": self.refusal}]}
        self.entries += Entries
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        return [(entry["DetailType"], json.loads(entry["Detail"])) for entry in self.entries]


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def report(events: Events) -> EventBridgeReport:
    return EventBridgeReport(events, "headwater_dev")


def failed(attempt: int, *, may_pass: bool, rest: float | None = 2.0, message: str = "S3 refused") -> dict[str, Any]:
    return {
        "event": "failed",
        "table": "orders",
        "error": "ClientError",
        "message": message,
        "passes": may_pass,
        "attempt": attempt,
        "again_in_seconds": rest,
    }


def test_what_somebody_must_mend_is_told_at_once_and_once(events: Events, report: EventBridgeReport) -> None:
    report(failed(1, may_pass=False, message="orders: offset 5 is missing. Do this."))
    report(failed(2, may_pass=False))
    ((kind, detail),) = events.told()
    assert kind == "Table Failing"
    assert detail == {
        "table": "orders",
        "error": "ClientError",
        "message": "orders: offset 5 is missing. Do this.",
        "next_step": "The other tables go on; this one tries again. Do what the message says.",
    }
    assert events.entries[0]["Source"] == "headwater_dev.writer"


def test_what_may_pass_is_told_the_third_time(events: Events, report: EventBridgeReport) -> None:
    for attempt in (1, 2):
        report(failed(attempt, may_pass=True))
    assert events.told() == []
    report(failed(3, may_pass=True))
    ((_, detail),) = events.told()
    assert "search the writer's log" in detail["next_step"]


def test_a_failure_that_ends_the_job_is_told_at_once(events: Events, report: EventBridgeReport) -> None:
    report(failed(1, may_pass=True, rest=None))
    ((_, detail),) = events.told()
    assert detail["next_step"].startswith("The job has ended and is started anew. If it")


def test_upkeep_that_fails_three_times_in_a_row_is_told_once(events: Events, report: EventBridgeReport) -> None:
    for attempt in (1, 2, 3, 4):
        report(
            {
                "event": "upkeep failed",
                "table": "orders",
                "chore": "landing objects",
                "error": "ClientError",
                "message": "AccessDenied",
                "attempt": attempt,
            }
        )
    ((kind, detail),) = events.told()
    assert kind == "Upkeep Failing"
    assert (detail["table"], detail["error"], detail["message"]) == (
        "orders",
        "ClientError",
        "landing objects: AccessDenied",
    )
    assert detail["next_step"].startswith("Changes are still written.")


def test_that_a_table_works_again_is_told_if_its_failure_was(events: Events, report: EventBridgeReport) -> None:
    report({"event": "recovered", "table": "orders"})
    report(failed(1, may_pass=False))
    report({"event": "recovered", "table": "products"})
    report({"event": "recovered", "table": "orders"})
    report(failed(1, may_pass=False))
    assert [kind for kind, _ in events.told()] == ["Table Failing", "Table Recovered", "Table Failing"]
    assert events.told()[1][1] == {"table": "orders"}


def test_that_a_table_begins_late_is_told_with_what_to_do(events: Events, report: EventBridgeReport) -> None:
    event = {"event": "begins late", "table": "orders_changes", "main_table": "orders", "partition": "t.orders/1"}
    report({**event, "first_offset": 40})
    ((kind, detail),) = events.told()
    assert kind == "Table Incomplete"
    assert "t.orders/1 begin with offset 40" in detail["message"]
    assert "Read the source's rows again: headwater resync orders --env dev. If" in detail["next_step"]


def test_a_long_message_is_cut(events: Events, report: EventBridgeReport) -> None:
    report(failed(1, may_pass=False, message="x" * 300_000))
    assert len(events.entries[0]["Detail"]) < 5000


def test_a_message_becomes_one_line_without_quotes(events: Events, report: EventBridgeReport) -> None:
    report(failed(1, may_pass=False, message='found "a\\b",\n  expected "c"'))
    assert events.told()[0][1]["message"] == "found 'a/b', expected 'c'"


def test_a_refused_event_is_said_and_stops_nothing(
    events: Events, report: EventBridgeReport, capsys: pytest.CaptureFixture[str]
) -> None:
    events.refusal = "no right"
    report(failed(1, may_pass=False))
    assert capsys.readouterr().err == (
        "Table Failing: orders: EventBridge refused this event, so nobody was notified: no right\n"
    )
    EventBridgeReport(None, "headwater_dev")(failed(1, may_pass=False))
    assert "AttributeError" in capsys.readouterr().err
    report({"event": "idle", "table": "orders"})


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (OSError("S3 refused"), True),
        (LeaseLost("held by another"), True),
        (RuntimeError("Job aborted"), True),
        (TooManyBadRecords("20 of 21"), False),
        (LandingGap("offset 5"), False),
        (UserError("columns"), False),
        (ValueError("epoch"), False),
    ],
)
def test_errors_that_name_what_to_mend_do_not_pass(error: Exception, may_pass: bool) -> None:
    assert passes(error) is may_pass


def test_all_tables_fail_for_good_if_none_works_and_none_may_pass() -> None:
    failures = Failures(["orders", "products"])
    assert [failures.note("orders", ValueError("epoch")), failures.all_for_good()] == [1, False]
    assert [failures.note("products", OSError("S3")), failures.all_for_good()] == [1, False]
    assert [failures.note("products", OSError("S3")), failures.all_for_good()] == [2, False]
    assert [failures.note("products", OSError("S3")), failures.all_for_good()] == [3, True]
    assert [failures.forget("products"), failures.forget("products"), failures.all_for_good()] == [True, False, False]
    with pytest.raises(ValueError, match="epoch"):
        failures.raise_first()
    failures.forget("orders")
    failures.raise_first()

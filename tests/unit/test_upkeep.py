"""What a writer does from time to time, by a clock of the tests."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headwater.lake.job.upkeep import Chore, Upkeep, a_tenth_of

REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteObjects")


class Work:
    """A chore of so many parts; ``error`` is what its parts raise."""

    def __init__(self, parts: int, error: Exception | None = None) -> None:
        self.done = 0
        self.error = error
        self._parts = parts

    def do_next(self) -> bool:
        if self.error is not None:
            raise self.error
        self.done += 1
        return self.done % self._parts != 0


class Table:
    """The upkeep of a table with these chores, at ``now`` in seconds."""

    def __init__(self, *chores: Chore) -> None:
        self.now = 1000.0
        self.events: list[dict[str, Any]] = []
        self._chores = chores
        self._failures: Counter[tuple[str, str]] = Counter()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin anew, as a table does that has failed."""
        self._upkeep = Upkeep("orders", self.events.append, self._chores, self._failures, lambda: self.now)

    def after(self, seconds: float) -> list[bool]:
        """The result of each poll until there is no more to do."""
        self.now += seconds
        looks = [self._upkeep.do_next()]
        while looks[-1]:
            looks.append(self._upkeep.do_next())
        return looks


def test_a_chore_is_done_part_by_part_ten_minutes_after_the_start_and_when_it_is_due() -> None:
    work = Work(3)
    table = Table(Chore("work", 3600.0, work.do_next))
    assert table.after(599) == [False]
    assert table.after(1) == [True, True, False]
    assert table.after(3599) == [False]
    assert work.done == 3
    assert table.after(1) == [True, True, False]
    assert work.done == 6


def test_the_chore_that_has_waited_longest_comes_first() -> None:
    order: list[str] = []

    def note(name: str) -> bool:
        order.append(name)
        return False

    table = Table(Chore("b", 9.0, lambda: note("b")), Chore("a", 5.0, lambda: note("a")))
    table.after(10)
    table.after(0)
    assert order == ["a", "b"]


def test_a_refused_deletion_is_reported_and_tried_again_but_a_failed_commit_is_the_tables() -> None:
    work = Work(1, REFUSED)
    table = Table(Chore("landing objects", 60.0, work.do_next))
    assert table.after(60) == [False]
    (event,) = table.events
    assert {name: event[name] for name in ("event", "table", "chore")} == {
        "event": "upkeep failed",
        "table": "orders",
        "chore": "landing objects",
    }
    assert "AccessDenied" in event["message"]
    work.error = None
    table.after(60)
    assert work.done == 1
    other = Table(Chore("replaced files", 60.0, Work(1, ZeroDivisionError("none")).do_next))
    assert other.after(60) == [False]
    assert [event["message"] for event in other.events] == ["none"]
    with pytest.raises(ClientError):
        Table(Chore("tombstones", 60.0, Work(1, REFUSED).do_next, commits=True)).after(60)
    with pytest.raises(ZeroDivisionError):
        Table(Chore("tombstones", 60.0, Work(1, ZeroDivisionError()).do_next, commits=True)).after(60)


def test_failures_in_a_row_are_counted_though_the_table_begins_anew() -> None:
    work = Work(1, REFUSED)
    table = Table(Chore("tombstones", 60.0, work.do_next, commits=True))
    for _ in range(2):
        with pytest.raises(ClientError):
            table.after(60)
        table.begin_anew()
    assert [event["attempt"] for event in table.events] == [1, 2]
    assert {event["error"] for event in table.events} == {"ClientError"}
    work.error = None
    table.after(60)
    work.error = REFUSED
    with pytest.raises(ClientError):
        table.after(60)
    assert [event["attempt"] for event in table.events] == [1, 2, 1]


def test_what_is_due_after_days_is_looked_at_daily_at_least() -> None:
    assert a_tenth_of(dt.timedelta(days=90)) == 86400
    assert a_tenth_of(dt.timedelta(hours=10)) == 3600

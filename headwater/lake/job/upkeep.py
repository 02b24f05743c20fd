"""The maintenance of a table: tasks that its writer does at intervals, between the commits of changes."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.lake.base.metrics import Report

DAY = 86400.0
_SOON = 600.0


@dataclass(frozen=True)
class Chore:
    """A maintenance task."""

    name: str
    """The task's name in events."""
    every: float
    """The task is due each time this many seconds have passed."""
    do_next: Callable[[], bool]
    """Does a part of the task. Returns whether there are more parts."""
    commits: bool = False
    """Whether the task commits to the table. If so, its error makes the table fail. Otherwise the task is tried again
    when it is due again."""


class Upkeep:
    """Does the maintenance tasks of a table when they are due.

    After a start, a task is due after its interval or after ten minutes, whichever is shorter. So a job that keeps
    failing does not spend its time on maintenance.

    - ``failures``: how often in a row each task has failed. It is passed on, because a table that fails gets a new
      ``Upkeep``.
    - ``clock``: returns the seconds since an arbitrary moment.
    """

    def __init__(
        self,
        table: str,
        report: Report,
        chores: Sequence[Chore],
        failures: Counter[tuple[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._report = report
        self._failures = failures
        self._clock = clock
        self._due = {chore: clock() + min(chore.every, _SOON) for chore in chores}

    def do_next(self) -> bool:
        """Do the next part of the task that has been due for longest. Returns whether the task has more parts."""
        now = self._clock()
        due = [chore for chore in self._due if self._due[chore] <= now]
        if not due:
            return False
        chore = min(due, key=self._due.__getitem__)
        has_more = self._do(chore)
        if not has_more:
            self._due[chore] = now + chore.every
        return has_more

    def _do(self, chore: Chore) -> bool:
        failing = (self._table, chore.name)
        try:
            has_more = chore.do_next()
        except Exception as error:
            self._failures[failing] += 1
            self._report(
                {
                    "event": "upkeep failed",
                    "table": self._table,
                    "chore": chore.name,
                    "error": type(error).__name__,
                    "message": str(error),
                    "attempt": self._failures[failing],
                }
            )
            if chore.commits:
                raise
            return False
        del self._failures[failing]
        return has_more


def a_tenth_of(age: dt.timedelta) -> float:
    """The interval in seconds of a task that deletes objects of that age: a tenth of the age, at most a day.

    So objects stay at most a tenth, or a day, longer than that age.
    """
    return min(age.total_seconds() / 10, DAY)


def expiry(name: str, age: dt.timedelta, delete: Callable[[dt.datetime], int]) -> Chore:
    """The task of deleting objects of that age. ``delete`` deletes the objects from before a moment."""

    def do_next() -> bool:
        delete(dt.datetime.now(dt.UTC) - age)
        return False

    return Chore(name, a_tenth_of(age), do_next)

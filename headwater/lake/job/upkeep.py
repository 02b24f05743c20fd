"""What a table's writer does from time to time without being asked, between the commits of its source's changes."""

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
    """Something to do every so many seconds. ``do_next`` does a part of it and says whether there are more parts.
    ``commits`` where it changes the table: its error is the table's then, too. After the error of another one the chore
    is tried again when it is due again."""

    name: str
    every: float
    do_next: Callable[[], bool]
    commits: bool = False


class Upkeep:
    """Does the chores of a table when they are due, the first time ten minutes after its start at the latest, so that a
    job which keeps failing does not spend its time on them. ``failures`` has how often in a row a chore of a table has
    failed, and outlives the upkeep, since a table that fails gets another. ``clock`` gives seconds from any moment."""

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
        """Do the next part of the chore that has been due for longest, and say whether it has more."""
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
    """How often, in seconds, a chore is due that ends what is that old: it may stay a tenth longer, a day at most."""
    return min(age.total_seconds() / 10, DAY)


def expiry(name: str, age: dt.timedelta, delete: Callable[[dt.datetime], int]) -> Chore:
    """The chore of deleting the objects that are so old: ``delete`` takes the moment before which they ended."""

    def do_next() -> bool:
        delete(dt.datetime.now(dt.UTC) - age)
        return False

    return Chore(name, a_tenth_of(age), do_next)

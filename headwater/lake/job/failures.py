"""Tables of a job that fail: which they are, and whether that may pass."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headwater.errors import UserError
from headwater.lake.base.announcements import TRIES
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.sources.kinesis import ShardGone
from headwater.lake.sources.landing import LandingGap
from headwater.lake.table.hudi_table import ProgressMissing

LASTING = (UserError, LandingGap, ProgressMissing, ShardGone, TooManyBadRecords, ValueError)
"""The errors that name what somebody has to mend."""


def passes(error: BaseException) -> bool:
    """Whether a failure may pass by itself, such as a request that S3 refused. The others say in their message what
    somebody has to mend."""
    return not isinstance(error, LASTING)


class Failures:
    """The tables of a job that fail at present. Threads of all tables share it."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = set(tables)
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, BaseException]] = {}

    def note(self, table: str, error: BaseException) -> int:
        """Note a failure, and say how many the table has had in a row."""
        with self._lock:
            attempt = self._failed.get(table, (0, error))[0] + 1
            self._failed[table] = (attempt, error)
            return attempt

    def forget(self, table: str) -> bool:
        """Forget the failures of a table, because it works, and say whether there were any."""
        with self._lock:
            return self._failed.pop(table, None) is not None

    def all_for_good(self) -> bool:
        """Whether every table of the job fails, and none in a way that may pass, or it has not passed."""
        with self._lock:
            return self._failed.keys() == self._tables and all(
                attempt >= TRIES or not passes(error) for attempt, error in self._failed.values()
            )

    def raise_first(self) -> None:
        """Raise the last error of the table that has failed for longest, if any fails."""
        for _, error in self._failed.values():
            raise error

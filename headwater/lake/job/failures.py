"""The failing tables of a job, and the decision which errors may pass by themselves."""

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
"""The errors that last. Their messages say what an operator must do."""


def passes(error: BaseException) -> bool:
    """Whether a failure may pass by itself, such as a request that S3 refused.

    The messages of all other failures say what an operator must do.
    """
    return not isinstance(error, LASTING)


class Failures:
    """The tables of a job that fail now. The threads of all tables share this object."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = set(tables)
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, BaseException]] = {}

    def note(self, table: str, error: BaseException) -> int:
        """Record a failure. Returns how many failures in a row the table has had."""
        with self._lock:
            attempt = self._failed.get(table, (0, error))[0] + 1
            self._failed[table] = (attempt, error)
            return attempt

    def forget(self, table: str) -> bool:
        """Drop the failures of a table that works again. Returns whether there were any."""
        with self._lock:
            return self._failed.pop(table, None) is not None

    def all_for_good(self) -> bool:
        """Whether every table fails, each with an error that lasts or that has come ``TRIES`` times in a row."""
        with self._lock:
            return self._failed.keys() == self._tables and all(
                attempt >= TRIES or not passes(error) for attempt, error in self._failed.values()
            )

    def raise_first(self) -> None:
        """Raise the last error of the table that has failed for longest, if any fails."""
        for _, error in self._failed.values():
            raise error

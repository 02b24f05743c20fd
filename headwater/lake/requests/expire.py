"""Deletes the former values of a table at once, on request. Otherwise they stay for a set time.

1. From a history, the writer removes the changes that a later change of their row has replaced, whatever their age.
2. It compacts the log files, and deletes all replaced files.
3. It deletes the landing objects that all tables of the topic have read, but not each partition's newest.
4. In versioned buckets, it deletes the former versions of all these objects, and of the quarantine.

The rows themselves stay. Each step may be repeated. This is one of the kinds of ``requested_work``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.lake.requests.expired_history import ExpiredHistory
from headwater.lake.requests.forget import AHEAD, Clearing

if TYPE_CHECKING:
    from headwater.lake.requests.protocol import Status
    from headwater.lake.sources.landing import Landing
    from headwater.lake.table.writer import TableWriter


def work(
    writer: TableWriter,
    landing: Landing | None,
    delete_landed: Callable[[dt.datetime], int],
    name: str,
    details: Mapping[str, Any],
) -> TableToExpire:
    """The work of a request to delete the former values of a table.

    - ``writer``: the writer of the table.
    - ``landing``: the landing objects of its topic. None if there are none, or if another table's writer deletes them.
    - ``delete_landed``: deletes read landing objects from before a moment, and returns their number.
    """
    return TableToExpire(writer, landing, delete_landed)


class TableToExpire(Clearing):
    """A table whose former values are deleted step by step."""

    def __init__(
        self, writer: TableWriter, landing: Landing | None, delete_landed: Callable[[dt.datetime], int]
    ) -> None:
        steps = [self._compact, self._clear_versions]
        if writer.contract.is_history:
            steps.insert(0, self._end_history)
        if landing is not None:
            steps.insert(-1, self._clear_landing)
        super().__init__(writer, landing, steps)
        self._delete_landed = delete_landed
        self._deleted = {"files": 0, "landing_objects": 0, "landing_left": 0, "versions": 0}

    def status(self) -> Status:
        """The progress. ``records`` counts the deleted files, landing objects and versions."""
        deleted = sum(count for name, count in self._deleted.items() if name != "landing_left")
        return self._status(deleted, **self._deleted)

    def _end_history(self) -> None:
        ExpiredHistory(self._writer, dt.timedelta(0), None).do_next()

    def _compact(self) -> None:
        def sweep() -> None:
            self._deleted["files"] += self._delete_replaced()

        self._writer.compact(sweep)

    def _clear_landing(self) -> None:
        self._deleted["landing_objects"] += self._delete_landed(dt.datetime.now(dt.UTC) + AHEAD)
        self._deleted["landing_left"] = 0 if self._landing is None else len(self._landing.all())

    def _clear_versions(self) -> None:
        self._deleted["versions"] += self._delete_versions()

"""Purges the tombstones of rows that were deleted long ago.

A tombstone prevents older changes that arrive later from bringing its row back. So a tombstone stays for a set time
after its commit. The commit that removes it keeps its ``_order`` in the progress (``purged``). A change with a lower
order is written if the table still has a row or a tombstone at the change's location. Otherwise the row may have been
deleted since, so the change goes to the quarantine (``late_changes``).

Each commit purges one partition. This is one of the tasks of ``upkeep``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.lake.table.writer import TableWriter


class Purge:
    """Purges tombstones in the table of ``writer`` that were committed at least ``keep`` ago."""

    def __init__(self, writer: TableWriter, keep: dt.timedelta) -> None:
        self._writer = writer
        self._keep = keep
        self._before = dt.datetime.max
        self._partitions: list[dict[str, Any]] = []

    def do_next(self) -> bool:
        """Purge the tombstones of the next partition. Returns whether there are more partitions.

        If no partition is left from the last call, this method first finds the partitions with tombstones.
        """
        if not self._partitions:
            self._before = dt.datetime.now(dt.UTC) - self._keep
            self._partitions = self._with_tombstones()
        if self._partitions:
            self._writer.purge(self._before, self._partitions.pop())
        return bool(self._partitions)

    def _with_tombstones(self) -> list[dict[str, Any]]:
        names = self._writer.contract.partitions
        if not self._writer.has_rows:
            return []
        found = self._writer.table.tombstones(self._before).select(*names).distinct()
        return [row.asDict() for row in found.collect()] if names else [{}]

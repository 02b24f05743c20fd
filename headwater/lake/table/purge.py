"""Purging the tombstones of rows that were deleted long ago.

A tombstone keeps older changes that arrive later from bringing its row back, so it stays for a stated time after it was
committed. The commit that removes it keeps its ``_order`` in the progress (``purged``). A change from below that order
is taken where the table still has a row or a tombstone in its place; elsewhere nobody can tell whether its row was
deleted since, and it is put into quarantine (``late_changes``).

One of the table's partitions is a commit. It is one of the chores of ``upkeep``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.lake.table.writer import TableWriter


class Purge:
    """Purges the tombstones of the table of ``writer`` that were committed ``keep`` ago or earlier."""

    def __init__(self, writer: TableWriter, keep: dt.timedelta) -> None:
        self._writer = writer
        self._keep = keep
        self._before = dt.datetime.max
        self._partitions: list[dict[str, Any]] = []

    def do_next(self) -> bool:
        """Purge a partition's, the first time the partitions are looked for; say whether there are more."""
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

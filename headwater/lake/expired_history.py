"""Bounding the age of a change history: what is known of a row at an instant that is older than the history is kept for
is its last change before that. What came before it goes, so that the history of each instant since stays whole.

A delete stays for as long as tombstones do: an older change of its row that arrives later must not look like the last.
It is one of the chores of ``upkeep``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.contract.model import Contract
    from headwater.lake.writer import TableWriter


class ExpiredHistory:
    """Removes what has expired from the history of ``writer``. ``keep`` is how long every change stays, ``tombstones``
    how long a delete does that was the last change, None for good."""

    def __init__(self, writer: TableWriter, keep: dt.timedelta, tombstones: dt.timedelta | None) -> None:
        self._writer = writer
        self._keep = keep
        self._tombstones = tombstones

    def do_next(self) -> bool:
        """Remove what has expired, by one commit."""
        now = dt.datetime.now(dt.UTC)
        deletes = None if self._tombstones is None else now - max(self._tombstones, self._keep)
        contract = self._writer.contract
        if self._writer.has_rows:
            self._writer.remove(lambda: expired(self._writer.read(), contract, now - self._keep, deletes))
        return False


def expired(changes: DataFrame, contract: Contract, before: dt.datetime, deletes: dt.datetime | None) -> DataFrame:
    """Of a history's changes those which nobody needs to know the table at ``before`` and since: what a later change of
    the same row, or a later floor, had replaced by then. A delete that was the last one goes where it is older than
    ``deletes``; the newest floor stays, which tells that the history is whole."""
    old = changes.where(F.col("_source_ts") <= F.lit(before))
    floor = old.where("_op = 't'").agg(F.max("_order").alias("_floor"))
    newest_first = Window.partitionBy(*contract.key).orderBy(F.col("_order").desc())
    ranked = old.crossJoin(floor).withColumn("_rank", F.row_number().over(newest_first))
    gone = (F.col("_rank") > 1) | F.coalesce(F.col("_order") < F.col("_floor"), F.lit(False))
    if deletes is not None:
        gone |= F.col("_deleted") & (F.col("_op") != "t") & (F.col("_source_ts") <= F.lit(deletes))
    return ranked.where(gone).select(*contract.place)

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

from headwater.contract.model import ROW_OPS
from headwater.lake.decoding.changes import ROW_TAGS, expired_row
from headwater.lake.decoding.decoded_frame import few_rows_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.contract.model import Contract
    from headwater.lake.table.writer import TableWriter


class ExpiredHistory:
    """Removes what has expired from the history of ``writer``. ``keep`` is how long every change stays, ``tombstones``
    how long a delete does that was the last change, None for good."""

    def __init__(self, writer: TableWriter, keep: dt.timedelta, tombstones: dt.timedelta | None) -> None:
        self._writer = writer
        self._keep = keep
        self._tombstones = tombstones

    def do_next(self) -> bool:
        """Remove what has expired, and note before that from when on the history is whole, by a commit each."""
        if not self._writer.has_rows:
            return False
        now = dt.datetime.now(dt.UTC)
        before = now - self._keep
        deletes = None if self._tombstones is None else now - max(self._tombstones, self._keep)
        writer, contract = self._writer, self._writer.contract

        def note() -> None:
            # First: what goes must not be asked for any more.
            writer.rewrite(few_rows_frame(writer.spark, contract, [expired_row(contract, before) + ROW_TAGS]))

        writer.remove(lambda: expired(writer.read(), contract, before, deletes), note)
        return False


def expired(changes: DataFrame, contract: Contract, before: dt.datetime, deletes: dt.datetime | None) -> DataFrame:
    """The places of those of a history's changes which nobody needs to know the table at ``before`` and since: what a
    later change of the same row, or a later floor, had replaced by then. A delete that was the last one by then goes
    where it is older than ``deletes``, and no earlier change stays that would come to life: one may have a later time
    than its delete. ``_order`` is that of such a delete, and null otherwise. The newest floor stays, which tells that
    the history is whole, and so do the notes."""
    of_row = Window.partitionBy(*contract.key).orderBy("_order")
    is_old = F.col("_source_ts") <= F.lit(before)
    columns = [*contract.place, *contract.key, "_op", "_order", "_source_ts", "_deleted"]
    old_order = F.when(is_old & F.col("_op").isin(*ROW_OPS), F.col("_order"))
    later = F.max(old_order).over(of_row.rowsBetween(1, Window.unboundedFollowing))
    stays = F.max(F.when(~is_old, True)).over(of_row.rowsBetween(Window.unboundedPreceding, -1))
    of_rows = changes.select(*dict.fromkeys(columns)).where(F.col("_op").isin(*ROW_OPS))
    marked = of_rows.withColumn("_replaced", later.isNotNull()).withColumn("_stays", stays).where(is_old)
    newest_floor = changes.where("_op = 't'").where(is_old).agg(F.max("_order").alias("_floor"))
    floors = changes.where("_op = 't'").where(is_old).crossJoin(newest_floor)
    replaced = F.col("_replaced") | F.coalesce(F.col("_order") < F.col("_floor"), F.lit(False))
    forgotten = F.lit(False)
    if deletes is not None:
        forgotten = F.col("_deleted") & F.col("_stays").isNull() & (F.col("_source_ts") <= F.lit(deletes)) & ~replaced
    last_order = F.when(forgotten, F.col("_order")).alias("_order")
    rows = marked.crossJoin(newest_floor).where(replaced | forgotten).select(*contract.place, last_order)
    old_floors = floors.where(F.col("_order") < F.col("_floor"))
    return rows.unionByName(old_floors.select(*contract.place, F.lit(None).cast("string").alias("_order")))

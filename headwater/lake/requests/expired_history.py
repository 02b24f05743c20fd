"""Limits the age of a change history. At the limit, each row keeps its last change, and loses the older ones.

So the history still gives the table's state at each instant since the limit. A delete stays for as long as tombstones
do. Otherwise an older change of its row that arrives later would look like the last one. This is one of the tasks of
``upkeep``.
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
    """Removes expired changes from a history.

    - ``writer``: the writer of the history.
    - ``keep``: how long every change stays.
    - ``tombstones``: how long a delete stays that was its row's last change; None if it stays forever.
    """

    def __init__(self, writer: TableWriter, keep: dt.timedelta, tombstones: dt.timedelta | None) -> None:
        self._writer = writer
        self._keep = keep
        self._tombstones = tombstones

    def do_next(self) -> bool:
        """Record the time since when the history is complete, then remove the expired changes, each by a commit.

        Returns False, because there are no further parts.
        """
        if not self._writer.has_rows:
            return False
        now = dt.datetime.now(dt.UTC)
        before = now - self._keep
        deletes = None if self._tombstones is None else now - max(self._tombstones, self._keep)
        writer, contract = self._writer, self._writer.contract

        def note() -> None:
            # Record the time first, so that no query relies on changes that are about to be removed.
            writer.rewrite(few_rows_frame(writer.spark, contract, [expired_row(contract, before) + ROW_TAGS]))

        writer.remove(lambda: expired(writer.read(), contract, before, deletes), note)
        return False


def expired(changes: DataFrame, contract: Contract, before: dt.datetime, deletes: dt.datetime | None) -> DataFrame:
    """The locations of a history's changes that no query for the table at ``before`` or later needs.

    - Changes that a later change of their row, or a later truncate marker, had replaced by then.
    - Deletes that were their row's last change by then, if they are older than ``deletes``. A delete stays if an
      earlier change of its row stays, because that change would count again. Such a change may have a later time.

    ``_order`` is the order of such a delete, and null for other changes. The newest truncate marker stays, because it
    shows that the history is complete. The rows that record where the history begins stay too.
    """
    # Per row: the next old change by order (it replaces this one), and whether a younger change has a lower order.
    of_row = Window.partitionBy(*contract.key).orderBy("_order")
    is_old = F.col("_source_ts") <= F.lit(before)
    columns = [*contract.place, *contract.key, "_op", "_order", "_source_ts", "_deleted"]
    old_order = F.when(is_old & F.col("_op").isin(*ROW_OPS), F.col("_order"))
    later = F.max(old_order).over(of_row.rowsBetween(1, Window.unboundedFollowing))
    stays = F.max(F.when(~is_old, True)).over(of_row.rowsBetween(Window.unboundedPreceding, -1))
    of_rows = changes.select(*dict.fromkeys(columns)).where(F.col("_op").isin(*ROW_OPS))
    marked = of_rows.withColumn("_replaced", later.isNotNull()).withColumn("_stays", stays).where(is_old)
    # Changes that a later change or a truncate marker has replaced, and deletes that are no longer needed.
    newest_floor = changes.where("_op = 't'").where(is_old).agg(F.max("_order").alias("_floor"))
    floors = changes.where("_op = 't'").where(is_old).crossJoin(newest_floor)
    replaced = F.col("_replaced") | F.coalesce(F.col("_order") < F.col("_floor"), F.lit(False))
    forgotten = F.lit(False)
    if deletes is not None:
        forgotten = F.col("_deleted") & F.col("_stays").isNull() & (F.col("_source_ts") <= F.lit(deletes)) & ~replaced
    last_order = F.when(forgotten, F.col("_order")).alias("_order")
    rows = marked.crossJoin(newest_floor).where(replaced | forgotten).select(*contract.place, last_order)
    # All truncate markers but the newest expire too.
    old_floors = floors.where(F.col("_order") < F.col("_floor"))
    return rows.unionByName(old_floors.select(*contract.place, F.lit(None).cast("string").alias("_order")))

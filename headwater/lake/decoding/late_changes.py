"""The change of a key that counts, however late it arrives: the latest by ``_order``, if above the truncate marker.

These functions decide within a batch. Across batches Hudi compares ``_order`` in the same way, because ``table`` makes
it the ordering field. So a late delete removes no newer row, and a late update does not bring a deleted row back. If
the tombstone that would show the delete is purged, a late update is a bad record.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.lake.decoding.changes import columns_tagged


def buried(rows: DataFrame, contract: Contract, floor: str) -> DataFrame:
    """Turn rows older than the truncate marker into tombstones at the marker.

    A TRUNCATE or a snapshot's end has deleted these rows.
    """
    if not floor:
        return rows
    below = F.col("_order") < floor
    at_floor = _at_floor(contract, floor)

    def column(name: str) -> Column:
        return F.when(below, at_floor[name]).otherwise(F.col(name)).alias(name)

    return rows.select([column(name) for name, _ in contract.lake_columns()])


def ended(table: DataFrame, contract: Contract, floor: str) -> DataFrame:
    """Tombstones for the rows of a table that its new truncate marker deletes. Only the needed columns are read."""
    at_floor = _at_floor(contract, floor)
    older = table.filter((F.col("_order") < floor) & ~F.col("_deleted"))
    return older.select([at_floor[name].cast(type_.ddl()).alias(name) for name, type_ in contract.lake_columns()])


def kept_by_floor(contract: Contract) -> set[str]:
    """The columns that keep their values when a truncate marker deletes a row. ``SmallUpserts`` does the same."""
    return {*contract.key, *contract.partitions, "_key", "_op", "_source_ts", "_position"}


def _at_floor(contract: Contract, floor: str) -> dict[str, Column]:
    """The columns of a row that the truncate marker has deleted."""
    kept = kept_by_floor(contract)
    columns = {name: F.col(name) if name in kept else F.lit(None) for name, _ in contract.lake_columns()}
    return {**columns, "_order": F.lit(floor), "_deleted": F.lit(True)}


def latest(rows: DataFrame, contract: Contract) -> DataFrame:
    """The latest change of each partition and key, by one aggregate.

    A row wins over the tombstone of a truncate marker of the same record: the marker's order is just below the row's.
    """
    names = [name for name, _ in contract.lake_columns()]
    grouped = rows.groupBy(*contract.place).agg(F.max_by(F.struct(*names), F.col("_order")).alias("latest"))
    return grouped.select("latest.*")


def is_late(purged: str) -> Column:
    """Whether a tagged row, live or a tombstone, is older than a purged tombstone."""
    return F.col("_order").isNotNull() & (F.col("_order") < purged)


def without_forgotten(batch: DataFrame, table: DataFrame, contract: Contract, purged: str, floor: str) -> DataFrame:
    """A batch without the late rows that a purged tombstone may have deleted.

    A late row is older than ``purged``. It stays if ``table`` has its location, or if the batch has a row there that is
    not late. Otherwise, if it and the newest row there are live and above the truncate marker, it becomes a bad record.
    All other late rows are dropped, also tombstones. If a tombstone stayed, a late row that comes after it would stay
    too, although that row may be deleted.

    In a history each change has a location of its own. So in a history, all changes of a row count as one location.
    """
    late = is_late(purged)
    is_ended = F.col("_deleted") | (F.col("_order") < floor)
    place = contract.key if contract.is_history else contract.place
    # Mark the late rows of those locations whose newest row in this batch is late too.
    here = Window.partitionBy(*place)
    ends = F.max_by(F.struct(late.alias("late"), is_ended.alias("ended")), F.col("_order")).over(here)
    marked = batch.withColumn("_ends", ends).withColumn("_late", late & F.col("_ends.late"))
    # They stay if the table has their location. Otherwise the newest late row decides: they are bad records or dropped.
    there = table.select([F.col(name).alias(f"_there{name}") for name in place])
    same = [F.col(name).eqNullSafe(F.col(f"_there{name}")) for name in place]
    settled = marked.where("_late").join(there, same, "left_semi").select(*batch.columns)
    questioned = marked.where(F.expr("_late AND NOT _ends.ended") & ~is_ended).join(there, same, "left_anti")
    reason = F.concat(
        F.lit("_order: found "),
        F.col("_order"),
        F.lit(
            f", expected {purged} or later: older tombstones are purged, so the row may have been deleted since. Read "
            "it again (headwater resync), and drop this record (headwater quarantine drop)."
        ),
    )
    kept = {"_reason": reason, "_raw": F.col("_raw")}
    bad = questioned.select(
        [kept.get(name, F.lit(None)).cast(type_).alias(name) for name, type_ in columns_tagged(contract)]
    )
    return marked.where("NOT _late").select(*batch.columns).unionByName(settled).unionByName(bad)

"""Which change of a key counts, however late it arrives: the latest by ``_order``, and none from below the floor.

Within a batch these functions decide. Across batches Hudi compares ``_order`` in the same way, because ``table``
makes it the ordering field. So a late delete removes nothing newer, and a late update revives nothing; where the
tombstone that would tell is purged, the update is bad.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.lake.decoding.changes import columns_tagged


def buried(rows: DataFrame, contract: Contract, floor: str) -> DataFrame:
    """Turn rows older than the floor into tombstones at the floor: a TRUNCATE or a completed snapshot ended them."""
    if not floor:
        return rows
    below = F.col("_order") < floor
    at_floor = _at_floor(contract, floor)

    def column(name: str) -> Column:
        return F.when(below, at_floor[name]).otherwise(F.col(name)).alias(name)

    return rows.select([column(name) for name, _ in contract.lake_columns()])


def ended(table: DataFrame, contract: Contract, floor: str) -> DataFrame:
    """The tombstones at the floor of a table's rows that it ends. Of the table only their columns are read."""
    at_floor = _at_floor(contract, floor)
    older = table.filter((F.col("_order") < floor) & ~F.col("_deleted"))
    return older.select([at_floor[name].cast(type_.ddl()).alias(name) for name, type_ in contract.lake_columns()])


def kept_by_floor(contract: Contract) -> set[str]:
    """The columns whose values a row keeps that a floor has ended. ``SmallUpserts`` does so too."""
    return {*contract.key, *contract.partitions, "_key", "_op", "_source_ts", "_position"}


def _at_floor(contract: Contract, floor: str) -> dict[str, Column]:
    """The columns of a row that the floor has ended."""
    kept = kept_by_floor(contract)
    columns = {name: F.col(name) if name in kept else F.lit(None) for name, _ in contract.lake_columns()}
    return {**columns, "_order": F.lit(floor), "_deleted": F.lit(True)}


def latest(rows: DataFrame, contract: Contract) -> DataFrame:
    """The latest change of each partition and key, by one aggregate. A row wins over the tombstone of a floor that was
    taken with it: the floor's order is just below the row's."""
    names = [name for name, _ in contract.lake_columns()]
    grouped = rows.groupBy(*contract.place).agg(F.max_by(F.struct(*names), F.col("_order")).alias("latest"))
    return grouped.select("latest.*")


def is_late(purged: str) -> Column:
    """Whether a tagged row, alive or not, is from before a tombstone that is purged."""
    return F.col("_order").isNotNull() & (F.col("_order") < purged)


def without_forgotten(batch: DataFrame, table: DataFrame, contract: Contract, purged: str, floor: str) -> DataFrame:
    """A batch in the columns of ``columns_tagged``, without the late rows of places of which ``table`` knows nothing,
    and the batch nothing later. Those that live, above the floor, are bad. A tombstone there, also the floor's, would
    say nothing that is not so, but would let pass what comes after it and was deleted since. In a history, where each
    change has a place of its own, all of a row count as one place."""
    late = is_late(purged)
    is_ended = F.col("_deleted") | (F.col("_order") < floor)
    place = contract.key if contract.is_history else contract.place
    here = Window.partitionBy(*place)
    ends = F.max_by(F.struct(late.alias("late"), is_ended.alias("ended")), F.col("_order")).over(here)
    marked = batch.withColumn("_ends", ends).withColumn("_late", late & F.col("_ends.late"))
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

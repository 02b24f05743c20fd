"""Which change of a key counts, however late it arrives: the latest by ``_order``, and none from below the floor.

Within a batch these two functions decide. Across batches Hudi compares ``_order`` in the same way, because ``table``
makes it the ordering field. So a late delete removes nothing newer, and a late update revives nothing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.contract.model import Contract


def buried(rows: DataFrame, contract: Contract, floor: str) -> DataFrame:
    """Turn rows older than the floor into tombstones at the floor: a TRUNCATE or a completed snapshot ended them."""
    if not floor:
        return rows
    below = F.col("_order") < floor
    kept = {*contract.key, *contract.partition_by, "_key", "_op", "_source_ts", "_position"}

    def column(name: str) -> Column:
        if name == "_order":
            return F.when(below, F.lit(floor)).otherwise(F.col(name)).alias(name)
        if name == "_deleted":
            return (F.col(name) | below).alias(name)
        return F.col(name) if name in kept else F.when(~below, F.col(name)).alias(name)

    return rows.select([column(name) for name, _ in contract.lake_columns()])


def latest(rows: DataFrame, contract: Contract) -> DataFrame:
    """The latest change of each partition and key, by one aggregate. A row wins over the tombstone of a floor that was
    taken with it: the floor's order is just below the row's."""
    names = [name for name, _ in contract.lake_columns()]
    keys = [*contract.partition_by, "_key"]
    grouped = rows.groupBy(*keys).agg(F.max_by(F.struct(*names), F.col("_order")).alias("latest"))
    return grouped.select("latest.*")

"""From decoded changes to commits: one table's writer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from headwater.contract.model import Contract
from headwater.lake import quarantine
from headwater.lake.catalog import Catalog
from headwater.lake.lease import Lease
from headwater.lake.table import Commit, HudiTable, Progress, layout

Report = Callable[[dict[str, Any]], None]
"""Receives one event (a JSON document) at a time."""
Advance = Callable[[Progress], Progress]
"""From the progress of the last commit to that of the next."""


@dataclass(frozen=True)
class WriterSettings:
    """What a writer is told from outside. ``quarantine`` is an ``s3://`` address; bytes are compressed, per partition
    of a topic; ``max_bad_share`` is a share from 0 to 1."""

    quarantine: str
    epoch: int = 1
    batch_bytes: int = 128 * 1024 * 1024
    max_bad_share: float = 0.01
    parallelism: int = 2


class TableWriter:
    """Commits decoded changes to one Hudi table. The caller holds the table's lease. Several sources may commit from
    threads of their own: one waits for the other."""

    def __init__(
        self,
        contract: Contract,
        table: HudiTable,
        lease: Lease,
        catalog: Catalog,
        s3: Any,
        settings: WriterSettings,
        report: Report,
    ) -> None:
        self._contract = contract
        self._table = table
        self._lease = lease
        self._catalog = catalog
        self._s3 = s3
        self._settings = settings
        self._report = report
        self._committing = threading.Lock()
        self.progress = self._resume()

    def _resume(self) -> Progress:
        """Take up the last commit's progress, and register its partitions: a crash may have come between the two."""
        last = self._table.last_commit()
        self._has_rows = last is not None
        if last is None:
            return Progress(epoch=self._settings.epoch, layout=layout(self._contract))
        if last.progress.epoch > self._settings.epoch:
            raise ValueError(
                f"{self._contract.table}: epoch: found {self._settings.epoch}, expected at least "
                f"{last.progress.epoch}, which the table was written with. An epoch is never lowered."
            )
        if last.progress.layout != layout(self._contract):
            raise ValueError(
                f"{self._contract.table}: key, partition_by, buckets: found {layout(self._contract)}, expected "
                f"{last.progress.layout}, which the table was written with. To change them, describe a new table."
            )
        self._catalog.register(self._contract.table, last.partitions)
        # Its own event may have been lost in a crash.
        self._report(
            {
                "event": "resumed",
                "table": self._contract.table,
                "instant": last.instant,
                "cursor": last.progress.cursor,
            }
        )
        return replace(last.progress, epoch=self._settings.epoch)

    def commit(self, batch: DataFrame, name: str, advance: Advance) -> None:
        """Commit a batch in the columns of ``columns_tagged`` together with the progress that ``advance`` makes of the
        last one. ``name`` tells the batch's quarantine object from others': a repeated batch has the same one. Raises
        TooManyBadRecords, LeaseLost, and what Spark raises; the table and the progress are then as before."""
        with self._committing:
            started = time.time()
            batch = batch.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                self._commit(batch, name, advance, started)
            finally:
                batch.unpersist()

    def _commit(self, batch: DataFrame, name: str, advance: Advance, started: float) -> None:
        is_row, is_bad = F.col("_order").isNotNull(), F.col("_reason").isNotNull()
        (counted,) = batch.agg(
            F.count(F.when(is_row, 1)).alias("rows"),
            F.count(F.when(is_bad, 1)).alias("bad"),
            F.max("_floor").alias("floor"),
            F.min("_source_ts").cast("double").alias("oldest"),
        ).collect()
        if counted["bad"]:
            self._put_aside(batch.filter(is_bad), name, counted["rows"], counted["bad"])
        floor = max(self.progress.floor, counted["floor"] or "")
        progress = replace(advance(self.progress), floor=floor)
        names = [name for name, _ in self._contract.lake_columns()]
        rows = batch.filter(is_row).select(names)
        if floor > self.progress.floor and self._has_rows:
            alive = (F.col("_order") < floor) & ~F.col("_deleted")
            rows = rows.unionByName(self._table.read().filter(alive))
        rows = latest(buried(rows, self._contract, floor), self._contract)
        self._lease.check()
        write = self._table.upsert if self._has_rows else self._table.insert
        commit = write(rows, progress)
        self.progress = progress
        self._has_rows = True
        self._done(commit, counted["rows"], counted["oldest"], started)

    def _put_aside(self, bad: DataFrame, name: str, rows: int, count: int) -> None:
        """Quarantine the records that could not be decoded. Raises TooManyBadRecords."""
        share = (count, rows + count, self._settings.max_bad_share)
        refused = quarantine.exceeds(*share)
        shown = bad.select("_reason", "_raw")
        sample = shown.limit(quarantine.SAMPLE) if refused else shown
        records = [(row["_reason"], row["_raw"]) for row in sample.collect()]
        table = self._contract.table
        stored = quarantine.store(
            self._s3, self._settings.quarantine, table, name + ("-refused" if refused else ""), records
        )
        if refused:
            raise quarantine.refusal(table, *share, sample=stored)
        self._report({"event": "quarantine", "table": table, "records": count, "object": stored})

    def _done(self, commit: Commit, changes: int, oldest: float | None, started: float) -> None:
        completed = time.time()
        registered = self._catalog.register(self._contract.table, commit.partitions)
        self._report(
            {
                "event": "commit",
                "table": self._contract.table,
                "instant": commit.instant,
                "completed_at": completed,
                "oldest_source_at": oldest,
                "changes": changes,
                "cursor": commit.progress.cursor,
                "partitions": registered,
                "seconds": round(completed - started, 3),
            }
        )


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
    """The latest change of each partition and key, by one aggregate. A row beats a floor's tombstone of one order."""
    names = [name for name, _ in contract.lake_columns()]
    keys = [*contract.partition_by, "_key"]
    grouped = rows.groupBy(*keys).agg(F.max_by(F.struct(*names), F.col("_order")).alias("latest"))
    return grouped.select("latest.*")

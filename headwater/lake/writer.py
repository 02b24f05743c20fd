"""From landing objects to commits: one table's loop."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from headwater.contract import Contract
from headwater.lake import quarantine
from headwater.lake.catalog import Catalog
from headwater.lake.changes import columns_tagged
from headwater.lake.landing import Landing, LandingObject, advance, read_lines
from headwater.lake.lease import Lease
from headwater.lake.postgresql import PostgresDecoder, decode_lines
from headwater.lake.table import Commit, HudiTable, Progress, layout

Report = Callable[[dict[str, Any]], None]
"""Receives one event (a JSON document) at a time."""


@dataclass(frozen=True)
class WriterSettings:
    """What a writer is told from outside. ``quarantine`` is an ``s3://`` address; bytes are compressed, per partition
    of a topic; ``max_bad_share`` is a share from 0 to 1."""

    quarantine: str
    epoch: int = 1
    batch_bytes: int = 32 * 1024 * 1024
    max_bad_share: float = 0.01
    parallelism: int = 2


class TableWriter:
    """Keeps one Hudi table in step with its landing objects. The caller holds the table's lease."""

    def __init__(
        self,
        spark: SparkSession,
        contract: Contract,
        landing: Landing,
        table: HudiTable,
        lease: Lease,
        catalog: Catalog,
        s3: Any,
        settings: WriterSettings,
        report: Report,
    ) -> None:
        self._spark = spark
        self._contract = contract
        self._landing = landing
        self._table = table
        self._lease = lease
        self._catalog = catalog
        self._s3 = s3
        self._settings = settings
        self._report = report
        self._progress = self._resume()

    def _resume(self) -> Progress:
        """Take up the last commit's progress, and register its partitions: a crash may have come between the two."""
        last = self._table.last_commit()
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

    def step(self) -> bool:
        """Commit what has landed since the last commit, and say whether there was anything."""
        objects = self._landing.after(self._progress.cursor, self._settings.batch_bytes)
        if not objects:
            return False
        started = time.time()
        batch = self._decode(objects).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._commit(batch, objects, started)
        finally:
            batch.unpersist()
        return True

    def _decode(self, objects: list[LandingObject]) -> DataFrame:
        contract, epoch = self._contract, self._settings.epoch
        slices = min(len(objects), self._settings.parallelism)

        def decode(part: Any) -> Any:
            return decode_lines(read_lines(part), PostgresDecoder(contract, epoch), base64.b64decode)

        schema = ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))
        rows = self._spark.sparkContext.parallelize(objects, slices).mapPartitions(decode)
        return self._spark.createDataFrame(rows, schema, verifySchema=False)

    def _commit(self, batch: DataFrame, objects: list[LandingObject], started: float) -> None:
        is_row, is_bad = F.col("_order").isNotNull(), F.col("_reason").isNotNull()
        counts = (F.count(F.when(is_row, 1)), F.count(F.when(is_bad, 1)), F.max("_floor"))
        (counted,) = batch.agg(*(count.alias(name) for name, count in zip(("rows", "bad", "floor"), counts))).collect()
        table = self._contract.table
        if counted["bad"]:
            share = (counted["bad"], counted["rows"] + counted["bad"], self._settings.max_bad_share)
            refused = quarantine.exceeds(*share)
            bad = batch.filter(is_bad).select("_reason", "_raw")
            sample = bad.limit(quarantine.SAMPLE) if refused else bad
            records = [(row["_reason"], row["_raw"]) for row in sample.collect()]
            name = f"{objects[0].source.replace('/', '-')}-{objects[0].first:020d}" + ("-refused" if refused else "")
            stored = quarantine.store(self._s3, self._settings.quarantine, table, name, records)
            if refused:
                raise quarantine.refusal(table, *share, sample=stored)
            self._report({"event": "quarantine", "table": table, "records": counted["bad"], "object": stored})
        floor = max(self._progress.floor, counted["floor"] or "")
        progress = replace(self._progress, cursor=advance(self._progress.cursor, objects), floor=floor)
        names = [name for name, _ in self._contract.lake_columns()]
        rows = batch.filter(is_row).select(names)
        if floor > self._progress.floor and self._progress.cursor:
            alive = (F.col("_order") < floor) & ~F.col("_deleted")
            rows = rows.unionByName(self._table.read().filter(alive))
        rows = latest(buried(rows, self._contract, floor), self._contract)
        self._lease.check()
        commit = self._table.upsert(rows, progress)
        self._progress = progress
        self._done(commit, counted["rows"], started)

    def _done(self, commit: Commit, changes: int, started: float) -> None:
        completed = time.time()
        registered = self._catalog.register(self._contract.table, commit.partitions)
        self._report(
            {
                "event": "commit",
                "table": self._contract.table,
                "instant": commit.instant,
                "completed_at": completed,
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


def run(
    writers: list[TableWriter],
    spark: SparkSession,
    tables: list[str],
    once: bool,
    idle_seconds: float,
    stop: threading.Event,
) -> None:
    """Run every writer in a thread of its own until all is drained (``once``) or ``stop`` is set. The first error
    stops them all after their current commit, and is raised."""
    errors: list[BaseException] = []

    def loop(writer: TableWriter, table: str) -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", table)
        try:
            while not stop.is_set():
                if not writer.step():
                    if once:
                        return
                    stop.wait(idle_seconds)
        except BaseException as error:  # whatever it is, the caller must see it and the others must stop
            errors.append(error)
            stop.set()

    threads = [
        threading.Thread(target=loop, args=(writer, table), name=f"writer {table}")
        for writer, table in zip(writers, tables)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def print_event(event: dict[str, Any]) -> None:
    """Report an event as a line of JSON on standard output, which is the step's log."""
    sys.stdout.write(json.dumps({"at": round(time.time(), 3), **event}) + "\n")
    sys.stdout.flush()

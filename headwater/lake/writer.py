"""The writer of a table: from decoded changes to commits."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from headwater.contract.evolution import layout
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract
from headwater.lake import quarantine
from headwater.lake.catalog import Catalog
from headwater.lake.changes import order_version
from headwater.lake.late_changes import buried, is_late, latest, without_forgotten
from headwater.lake.lease import Lease
from headwater.lake.metrics import Report
from headwater.lake.progress import Progress
from headwater.lake.quarantine import BadEntry, Quarantine, TooManyBadRecords
from headwater.lake.table import Commit, HudiTable, is_in

Advance = Callable[[Progress], Progress]
"""From the progress of the last commit to that of the next."""
_Review = Callable[[DataFrame, Row], None]
"""Looks at a batch and its counts before it is committed, and does with its bad records what there is to do."""
_FEW_ROWS = 100_000
"""Up to so many rows, what Hudi's own upsert spends on each file group outweighs the rows."""
_IS_ROW, _IS_BAD = "_order IS NOT NULL", "_reason IS NOT NULL"
_NEXT_STEP = {
    DYNAMODB: "Raise glue.epoch in the environment's file, deploy, and load an export (headwater backfill).",
    POSTGRESQL: "Use the release that wrote it, or describe a new table.",
}


@dataclass(frozen=True)
class WriterSettings:
    """A writer's settings. ``quarantine`` is an ``s3://`` address; ``epoch`` is that of records that do not say theirs,
    None for that of the table's last commit; ``batch_bytes`` counts compressed bytes, per partition of a topic;
    ``max_bad_share`` of a batch's records may be quarantined and ``max_unfit_share`` of its rows, without tombstones,
    may lack a value that does not fit, shares from 0 to 1; ``parallelism`` is a number of tasks; ``mask_key`` is the
    key of DynamoDB's masks."""

    quarantine: str
    epoch: int | None = None
    batch_bytes: int = 128 * 1024 * 1024
    max_bad_share: float = 0.01
    max_unfit_share: float = 1.0
    parallelism: int = 2
    mask_key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class WriterServices:
    """What the writers of a job share: an S3 client, the catalog, and what receives their events."""

    s3: Any
    catalog: Catalog
    report: Report


class TableWriter:
    """Commits decoded changes to one Hudi table. The caller holds the table's lease. Several sources may commit from
    threads of their own: each waits until the others' commits are done."""

    def __init__(self, table: HudiTable, lease: Lease, services: WriterServices, settings: WriterSettings) -> None:
        self.services = services
        self.settings = settings
        self._table = table
        self._lease = lease
        self._committing = threading.Lock()
        self._progress = self._resume()

    @property
    def table(self) -> HudiTable:
        """The table that it writes."""
        return self._table

    @property
    def contract(self) -> Contract:
        """The table's contract."""
        return self._table.contract

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this table and of the batches for it."""
        return self._table.spark

    @property
    def progress(self) -> Progress:
        """The progress of the last commit, and what is noted for the next one."""
        return self._progress

    def note_streaming_start(self) -> None:
        """Note that streaming begins now, unless an earlier moment is known. The next commit keeps it."""
        with self._committing:
            self._progress = self._progress.with_streaming_start()

    def _resume(self) -> Progress:
        """The progress to go on from, the last commit's. Its partitions are registered again, as a crash may have come
        between the commit and its registration."""
        last = self._table.last_commit()
        self._has_rows = last is not None
        if last is None:
            first = Progress(layout=layout(self.contract))
            return self._begun(first, self.settings.epoch or first.epoch)
        epoch = last.progress.epoch if self.settings.epoch is None else self.settings.epoch
        if last.progress.epoch > epoch:
            raise ValueError(
                f"{self.contract.table}: epoch: found {epoch}, expected at least "
                f"{last.progress.epoch}, which the table was written with. An epoch is never lowered."
            )
        if last.progress.layout != layout(self.contract):
            raise ValueError(
                f"{self.contract.table}: key, partition_by, buckets: found {layout(self.contract)}, expected "
                f"{last.progress.layout}, which the table was written with. To change them, describe a new table."
            )
        progress = last.progress
        if progress.epoch < epoch:
            progress = self._begun(progress, epoch)
        if progress.order_version != order_version(self.contract):
            raise ValueError(
                f"{self.contract.table}: layout of _order: found version {progress.order_version}, which the table was "
                f"written with, expected {order_version(self.contract)}. The two do not compare within epoch "
                f"{progress.epoch}. {_NEXT_STEP[self.contract.source.database]}"
            )
        self.services.catalog.register(self.contract.table, last.partitions)
        # The commit's own event may have been lost in a crash.
        self.services.report(
            {
                "event": "resumed",
                "table": self.contract.table,
                "instant": last.instant,
                "cursor": last.progress.cursor,
            }
        )
        self._lease.check()
        self._table.evolve(last.progress)
        return progress

    def _begun(self, before: Progress, epoch: int) -> Progress:
        """The progress at the beginning of an epoch. A stream is then read anew, because shards of the cursor may be
        gone from it; a landing bucket still has what comes next."""
        is_stream = self.contract.source.database == DYNAMODB
        return before.in_epoch(epoch, order_version(self.contract), from_beginning=is_stream)

    def commit(self, batch: DataFrame, name: str, advance: Advance) -> None:
        """Commit a batch in the columns of ``columns_tagged`` together with the progress that ``advance`` makes of the
        last one. A batch without rows that brings no progress makes no commit. The name of the batch's quarantine
        object begins with ``name``. Raises TooManyBadRecords, LeaseLost, and what Spark raises; the table and the
        progress are then as before."""

        def review(batch: DataFrame, counted: Row) -> None:
            self._check_unfit(batch, counted["live_rows"], counted["unfit_rows"])
            if counted["bad"]:
                self._put_aside(batch.filter(_IS_BAD), name, counted["records"], counted["bad"])

        self._persisted(batch, review, advance)

    def replay(self, batch: DataFrame) -> list[tuple[str, str]]:
        """Commit a batch of quarantined records as ``commit`` does, whatever share of it is bad, and return
        ``_reason`` and ``_raw`` of its bad ones, which are not quarantined. The progress stays as it is."""
        bad: list[tuple[str, str]] = []

        def review(batch: DataFrame, counted: Row) -> None:
            if counted["bad"]:
                shown = batch.filter(_IS_BAD).select("_reason", "_raw")
                bad.extend((row["_reason"], row["_raw"]) for row in shown.collect())

        self._persisted(batch, review, lambda last: last, timed=False)
        return bad

    @property
    def has_rows(self) -> bool:
        """Whether the table has a commit."""
        return self._has_rows

    def read(self) -> DataFrame:
        """The table's newest state, tombstones included, in the columns of the contract's ``lake_columns``."""
        return self._table.read()

    def rewrite(self, batch: DataFrame) -> int:
        """Commit rows of the table in another form, and return their number; the progress stays as it is."""
        counted = self._persisted(batch, lambda batch, counted: None, lambda last: last, timed=False, arrived=False)
        return int(counted["rows"])

    def purge(self, before: dt.datetime, partition: Mapping[str, Any]) -> None:
        """Remove a partition's tombstones that were committed before that moment, and keep the latest order among them
        in the progress, which stays as it is otherwise."""
        with self._committing:
            started = time.time()
            # Read when nobody else commits: the place of a tombstone may have a row again.
            places = self._table.tombstones(before).where(is_in(partition)).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                (found,) = places.agg(F.count("*").alias("rows"), F.max("_order").alias("latest")).collect()
                if not found["rows"]:
                    return
                # Before the commit: whatever becomes of it, no later one may forget this order.
                self._progress = replace(self.progress, purged=max(self.progress.purged, found["latest"]))
                self._lease.check()
                commit = self._table.delete(places, self._progress)
                self._done(commit, started, found["rows"])
            finally:
                places.unpersist()

    def _persisted(
        self, batch: DataFrame, review: _Review, advance: Advance, *, timed: bool = True, arrived: bool = True
    ) -> Row:
        """Commit a batch that is read once, and return its counts. ``timed`` where the age of its changes tells how
        fresh the table is; ``arrived`` where its rows come from elsewhere than from the table."""
        with self._committing, ExitStack() as held:
            started = time.time()

            def hold(batch: DataFrame) -> Row:
                held.callback(batch.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
                return self._counted(batch)

            counted = hold(batch)
            if arrived and counted["late"]:
                batch = self._without_forgotten(batch, counted)
                counted = hold(batch)
            review(batch, counted)
            commit = self._commit(batch, counted, advance)
            if commit is not None:
                oldest = counted["oldest"] if timed else None
                self._done(commit, started, counted["rows"], counted["unfit_values"] or 0, oldest)
            return counted

    def _without_forgotten(self, batch: DataFrame, counted: Row) -> DataFrame:
        """The batch without the late rows of which nothing is known any more: they are bad."""
        if counted["late_untold"]:
            raise RuntimeError(
                f"{self.contract.table}: tombstones were purged while a batch was on its way: it is read again"
            )
        purged, floor = self.progress.purged, self.progress.floor
        return without_forgotten(batch, self._table.read(), self.contract, purged, floor)

    def _counted(self, batch: DataFrame) -> Row:
        is_row, is_bad = F.expr(_IS_ROW), F.expr(_IS_BAD)
        is_live = is_row & ~F.col("_deleted")
        late = is_late(self.progress.purged, self.progress.floor)
        (counted,) = batch.agg(
            F.count(F.when(is_row, 1)).alias("rows"),
            F.count(F.when(is_live, 1)).alias("live_rows"),
            # Each gives a row that lives, or is a delete, or is bad. Other tombstones lie where a row or a bad one was.
            F.count(F.when(is_live | (is_row & (F.col("_op") == "d")) | is_bad, 1)).alias("records"),
            F.count(F.when(is_bad, 1)).alias("bad"),
            F.count("_unfit").alias("unfit_rows"),
            F.sum(F.when(F.col("_unfit").isNotNull(), F.size("_unfit"))).alias("unfit_values"),
            F.max("_floor").alias("floor"),
            F.min("_source_ts").cast("double").alias("oldest"),
            F.count(F.when(late, 1)).alias("late"),
            F.count(F.when(late & ~F.col("_deleted") & F.col("_raw").isNull(), 1)).alias("late_untold"),
        ).collect()
        return counted

    def _commit(self, batch: DataFrame, counted: Row, advance: Advance) -> Commit | None:
        """Commit a batch's rows and its progress; None where there is nothing to commit."""
        floor = max(self.progress.floor, counted["floor"] or "")
        progress = replace(advance(self.progress), floor=floor)
        if not counted["rows"] and replace(progress, since=self.progress.since) == self.progress:
            # Nothing is applied and nothing is read on: a commit would only make files, and the table before its time.
            self._progress = progress
            return None
        names = [name for name, _ in self.contract.lake_columns()]
        rows = batch.filter(_IS_ROW).select(names)
        if floor > self.progress.floor and self._has_rows:
            alive = (F.col("_order") < floor) & ~F.col("_deleted")
            rows = rows.unionByName(self._table.read().filter(alive))
        rows = buried(rows, self.contract, floor)
        self._lease.check()
        is_few = self._has_rows and counted["rows"] <= _FEW_ROWS
        commit = self._table.upsert_few(rows, progress) if is_few else None
        if commit is None:
            write = self._table.upsert if self._has_rows else self._table.insert
            commit = write(latest(rows, self.contract), progress)
        self._progress = progress
        self._has_rows = True
        return commit

    def _check_unfit(self, batch: DataFrame, rows: int, count: int) -> None:
        """Raise TooManyBadRecords where so many rows lack a value that the contract must be wrong."""
        most = self.settings.max_unfit_share
        if not quarantine.exceeds(count, rows, most):
            return
        columns = sorted(row[0] for row in batch.select(F.explode("_unfit")).distinct().collect())
        raise TooManyBadRecords(
            f"{self.contract.table}: {count} of {rows} rows have values that do not fit their columns "
            f"({', '.join(columns)}), at most {most:.1%} are accepted. Nothing of this batch was committed. Correct "
            "the columns' types in the contract, or raise lake.max_unfit_share, and start again."
        )

    def _put_aside(self, bad: DataFrame, name: str, records: int, count: int) -> None:
        """Quarantine those of a batch's records that could not be decoded. Raises TooManyBadRecords."""
        share = (count, records, self.settings.max_bad_share)
        refused = quarantine.exceeds(*share)
        shown = bad.select("_reason", "_raw")
        sample = shown.limit(quarantine.SAMPLE) if refused else shown
        read_in = {"epoch": self.progress.epoch, "order_version": order_version(self.contract)}
        entries = [BadEntry(row["_reason"], json.loads(row["_raw"]), **read_in) for row in sample.collect()]
        table = self.contract.table
        aside = Quarantine(self.services.s3, self.settings.quarantine, table)
        stored = aside.address(aside.store(name, entries, refused=refused))
        if refused:
            raise quarantine.refusal(table, *share, sample=stored)
        self.services.report({"event": "quarantine", "table": table, "records": count, "object": stored})

    def _done(self, commit: Commit, started: float, changes: int, unfit: int = 0, oldest: float | None = None) -> None:
        completed = time.time()
        registered = self.services.catalog.register(self.contract.table, commit.partitions)
        self.services.report(
            {
                "event": "commit",
                "table": self.contract.table,
                "instant": commit.instant,
                "completed_at": completed,
                "oldest_source_at": oldest,
                "changes": changes,
                "unfit": unfit,
                "cursor": commit.progress.cursor,
                "partitions": registered,
                "seconds": round(completed - started, 3),
            }
        )

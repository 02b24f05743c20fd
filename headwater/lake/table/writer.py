"""The writer of a table, which commits decoded changes."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from headwater.contract.evolution import is_layout, layout
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract
from headwater.errors import UserError
from headwater.lake.base import quarantine
from headwater.lake.base.lease import Lease
from headwater.lake.base.metrics import Report
from headwater.lake.base.progress import Progress
from headwater.lake.base.quarantine import BadEntry, Quarantine, TooManyBadRecords
from headwater.lake.decoding.batches import IS_LEFT, IS_ROW, Batch, Counts, HeldBatch, SpreadBatch
from headwater.lake.decoding.changes import epoch_digits, order_version
from headwater.lake.decoding.late_changes import buried, ended, latest, without_forgotten
from headwater.lake.sources.decoding_ahead import DecodingAhead
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.erasure import landing_objects
from headwater.lake.table.erasure.keys import ErasedKeys, ErasedKeysMissing, ErasedStore, row_key
from headwater.lake.table.erasure.landing_objects import Searched
from headwater.lake.table.erasure.records import LandedLines, kept_records
from headwater.lake.table.hudi_table import Commit, HudiTable, is_in

Advance = Callable[[Progress], Progress]
"""Makes the progress of the next commit from that of the last commit."""
_Review = Callable[[Batch, Counts], None]
"""Checks a batch and its counts before the commit, and quarantines or refuses its bad records."""
Clear = Callable[[], None]
"""Removes the records of erased keys from the batch's origin."""
_Careful = Callable[[DataFrame], DataFrame]
"""The reference decoder: decodes the records that the fast path has left in a batch."""
_FEW_ROWS = 100_000
"""Up to this many rows, the driver commits faster. Hudi's own upsert takes more time for file groups than for rows."""
_LONG_MAINTENANCE_SECONDS = 1.0
"""Maintenance of at least this many seconds is reported, because changes have waited meanwhile."""
_NEXT_STEP = {
    DYNAMODB: "Raise glue.epoch in the environment's file, deploy, and load an export (headwater backfill).",
    POSTGRESQL: "Use the release that wrote the table, or describe a new table.",
}


@dataclass(frozen=True)
class WriterSettings:
    """A writer's settings."""

    quarantine: str
    """The ``s3://`` address of the quarantine."""
    epoch: int | None = None
    """The epoch of records without their own; None for the epoch of the table's last commit."""
    batch_bytes: int = 256 * 1024 * 1024
    """A batch has about this many bytes: of a stream's records, or of compressed files, per partition of a topic."""
    max_bad_share: float = 0.01
    """At most this share (0 to 1) of a batch's records may be quarantined."""
    max_unfit_share: float = 1.0
    """At most this share (0 to 1) of a batch's live rows may have conversion errors."""
    parallelism: int = 2
    """The number of Spark tasks."""
    mask_key: bytes | None = field(default=None, repr=False)
    """The key of DynamoDB's masks by HMAC."""
    hash_key: Callable[[], bytes] | None = field(default=None, repr=False)
    """Gives the key for the hashes of erased keys."""
    held_bytes: int = 16 * 1024 * 1024
    """A driver batch has at most this many bytes of records; four times as many if its table decodes ahead."""


@dataclass(frozen=True)
class WriterServices:
    """The services that the writers of a job share."""

    s3: Any
    """A client of S3."""
    catalog: Catalog
    """The Glue Data Catalog."""
    report: Report
    """Receives the writers' events."""
    decoding: DecodingAhead[HeldBatch | None] = field(default_factory=DecodingAhead)
    """Decodes the next batch of one table at a time."""


class TableWriter:
    """Commits decoded changes to one Hudi table. The caller holds the table's lease.

    Several sources may commit from threads of their own: each waits until the others' commits are done.
    """

    def __init__(self, table: HudiTable, lease: Lease, services: WriterServices, settings: WriterSettings) -> None:
        self.services = services
        self.settings = settings
        self._table = table
        self._lease = lease
        self._committing = threading.RLock()
        self._erased_store = ErasedStore(services.s3, table.uri, table.contract)
        self.erased = self._read_erased()
        """The erased keys of the table."""
        self._progress = self._resume()
        if self._progress.erased > len(self.erased.orders):
            raise ErasedKeysMissing(
                f"{self._erased_store.address}: found {len(self.erased.orders)} forgotten keys, expected at least "
                f"{self._progress.erased}. The table is not written: data of persons who were forgotten could come "
                "back. Restore an earlier version of the object."
            )
        if self.erased.noted(self._progress) != self._progress:
            self._erase_again()

    @property
    def table(self) -> HudiTable:
        """The table that this writer writes."""
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
        """The progress of the last commit, with changes that the next commit will record."""
        return self._progress

    def note_streaming_start(self, former: Progress | None = None) -> None:
        """Record that streaming begins now, unless an earlier moment is known. The next commit keeps the moment.

        ``former`` is the progress of the writer before this one. If it has the same epoch, its moment counts.
        """
        known = former.since if former is not None and former.epoch == self._progress.epoch else 0
        with self._committing:
            self._progress = self._progress.with_streaming_start(known)

    def _resume(self) -> Progress:
        """Prepare the table, and return the progress from which to go on: the last commit's, or a new epoch's.

        It registers the last commit's partitions again, because the job may have crashed before it registered them. It
        runs an open compaction. Raises ValueError if the table does not match the contract or the epoch.
        """
        last = self._table.last_commit()
        self._has_rows = last is not None
        if last is None:
            first = Progress(layout=layout(self.contract))
            return self._begun(first, self.settings.epoch or first.epoch)
        # Refuse an epoch or a layout that does not fit the table.
        epoch = last.progress.epoch if self.settings.epoch is None else self.settings.epoch
        if last.progress.epoch > epoch:
            raise ValueError(
                f"{self.contract.table}: epoch: found {epoch}, expected at least "
                f"{last.progress.epoch}, which the table was written with. An epoch is never lowered."
            )
        if not is_layout(last.progress.layout, self.contract):
            raise ValueError(
                f"{self.contract.table}: key, partition_by with its transform, buckets: found {layout(self.contract)}, "
                f"expected {last.progress.layout}, which the table was written with. To change them, describe a new "
                "table."
            )
        progress = replace(last.progress, layout=layout(self.contract))
        if progress.epoch < epoch:
            progress = self._begun(progress, epoch)
        if progress.order_version != order_version(self.contract):
            raise ValueError(
                f"{self.contract.table}: layout of _order: found version {progress.order_version}, which the table was "
                f"written with, expected {order_version(self.contract)}. The two do not compare within epoch "
                f"{progress.epoch}. {_NEXT_STEP[self.contract.source.database]}"
            )
        self.services.catalog.register(self.contract.table, last.partitions)
        # The event of the last commit may have been lost in a crash.
        self.services.report(
            {
                "event": "resumed",
                "table": self.contract.table,
                "instant": last.instant,
                "cursor": last.progress.cursor,
            }
        )
        # Prepare the table for the contract, and complete the work of a killed writer.
        self._lease.check()
        self._table.evolve(last.progress)
        try:
            self._table.run_open_compaction()
        except Exception:
            # The next commit tries again, and raises the error if it persists.
            traceback.print_exc()
        return progress

    def _begun(self, before: Progress, epoch: int) -> Progress:
        """The progress at the beginning of an epoch.

        A stream is then read from its beginning, because it may have lost shards of the cursor. The landing bucket is
        read on from the cursor.
        """
        is_stream = self.contract.source.database == DYNAMODB
        return before.in_epoch(epoch, order_version(self.contract), from_beginning=is_stream)

    def clear_landing(self, objects: Sequence[tuple[str, str]]) -> Searched:
        """Rewrite landing objects without the records of erased keys; ``objects`` are pairs of bucket and key."""
        # The lambda goes to the executors, so it must not capture self, which holds the Spark session.
        contract, epoch, erased = self.contract, self.progress.epoch, self.erased
        return landing_objects.clear(
            self.spark, objects, self.settings.parallelism, lambda: LandedLines(contract, epoch, erased)
        )

    def _read_erased(self) -> ErasedKeys:
        orders = self._erased_store.read()
        is_timed = self.contract.source.database == DYNAMODB
        return ErasedKeys(self.contract.source.table, orders, self._hash_key() if orders else b"", is_timed)

    def _hash_key(self) -> bytes:
        if self.settings.hash_key is None:
            raise UserError(
                f"{self.contract.table}: --forget-secret: found none, expected the secret with the key for the hashes "
                "of forgotten keys. The table has forgotten keys, so it cannot be written without this key."
            )
        return self.settings.hash_key()

    def erase(self, key: str, order: str, is_row: Column, sweep: Callable[[], None]) -> tuple[str, int]:
        """Erase a row for good. Returns the keyed hash of its key, and the number of rows that were removed.

        From now on, changes of the key up to that order are never committed. A commit removes the key's rows and
        compacts all log files. The call may be repeated. Raises UserError, LeaseLost, and the exceptions of Spark.

        - ``key``: the row key.
        - ``order``: the highest order to erase.
        - ``is_row``: selects the row in the table.
        - ``sweep``: deletes the files that the compaction replaced, before any other commit.
        """
        with self._committing:
            started = time.time()
            self._lease.check()
            erased = replace(self.erased, hash_key=self.erased.hash_key or self._hash_key()).and_this(key, order)
            # The key is stored first: then its changes cannot come back even if the commit fails.
            self._erased_store.write(erased.orders)
            self.erased = erased
            self._progress = erased.noted(self._progress)
            if not self._has_rows:
                return erased.hashed(key), 0
            is_past = (F.col("_order") <= order) | self._is_of_floor()
            return erased.hashed(key), self._erase(self._table.read().where(is_row & is_past), started, sweep)

    def compact(self, sweep: Callable[[], None]) -> None:
        """Compact all log files by a commit, then call ``sweep``, which deletes the replaced files.

        There is no other commit in between. Raises LeaseLost, and the exceptions of Spark and of ``sweep``.
        """
        with self._committing:
            if self._has_rows:
                self._erase(self._table.read().limit(0), time.time(), sweep)

    def _erase_again(self) -> None:
        """Remove rows of erased keys that the table's last commit does not know.

        The table was restored to an earlier state, or a writer ended between storing a key and removing its rows. A new
        history takes over the erased keys of its table.
        """
        started = time.time()
        self._lease.check()
        self._erased_store.write(self.erased.orders)
        self._progress = self.erased.noted(self._progress)
        if not self._has_rows:
            return
        erased, is_history = self.erased, self.contract.is_history
        is_erased = F.udf(lambda key, order: erased.covers(row_key(key, is_history=is_history), order), "boolean")
        order = F.when(~self._is_of_floor(), F.col("_order"))
        self._erase(self._table.read().where(is_erased("_key", order)), started)

    def _is_of_floor(self) -> Column:
        """Whether a row is a tombstone at or below the truncate marker.

        Such a tombstone is not needed, because the marker deletes late changes too. It has the row's key, and a higher
        order than the row had. The progress of a history has no truncate marker.
        """
        return F.col("_deleted") & (F.col("_order") <= self._progress.floor)

    def _erase(self, rows: DataFrame, started: float, sweep: Callable[[], None] = lambda: None) -> int:
        """Remove rows of the table and compact all its log files. Returns the number of rows."""
        places = rows.select(*self.contract.place).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count = places.count()
            self.settle()
            self._lease.check()
            commit = self._table.erase(places, self._progress)
            self._done(commit, started, Counts(rows=count))
            sweep()
        finally:
            places.unpersist()
        return count

    def _may_be_erased(self, counts: Counts) -> bool:
        """Whether a batch with these counts may have changes of erased keys.

        It may if it has a row with an erased order, or a bad record, whose order the counts do not contain.
        """
        if not self.erased.orders:
            return False
        # If the lowest order has an earlier epoch, the batch may also have an erased order of this epoch.
        is_of_epoch = counts.lowest.startswith(epoch_digits(self.progress.epoch))
        return counts.bad > 0 or bool(counts.lowest and (not is_of_epoch or self.erased.may_cover(counts.lowest)))

    def _without_erased(self, frame: DataFrame) -> DataFrame:
        """A batch without the rows and the bad records of erased keys."""
        erased, contract = self.erased, self.contract
        is_kept_erased = kept_records(contract, erased, self.progress.epoch, self.settings.mask_key)

        def is_erased(key: str | None, order: str | None, reason: str | None, raw: str | None) -> bool:
            if key is not None:
                return erased.covers(row_key(key, is_history=contract.is_history), order)
            return reason is not None and raw is not None and is_kept_erased(json.loads(raw), None) is True

        by_record = F.udf(is_erased, "boolean")
        return frame.where(~by_record("_key", "_order", "_reason", "_raw"))

    def commit(
        self,
        batch: DataFrame,
        name: str,
        advance: Advance,
        careful: _Careful | None = None,
        clear: Clear | None = None,
        *,
        is_unique: bool = False,
        is_timely: bool = False,
    ) -> None:
        """Commit a batch together with its progress. Without rows and progress there is no commit.

        Changes of erased keys are dropped. Raises TooManyBadRecords, LeaseLost, and the exceptions of Spark; the table
        and the progress are then as before.

        - ``batch``: the rows in the columns of ``columns_tagged``.
        - ``name``: the name of the batch's quarantine object begins with it.
        - ``advance``: makes the new progress from the last one.
        - ``careful``: decodes the records that the fast path has left (``IS_LEFT``).
        - ``clear``: removes records of erased keys from the batch's origin. It is called before the commit if there may
          be such records.
        - ``is_unique``: whether no two of the rows have the same location.
        - ``is_timely``: whether no row is late, whatever its order.
        """
        self._persisted(
            batch, self._reviewed(name), advance, careful, clear=clear, is_unique=is_unique, is_timely=is_timely
        )

    def commit_held(self, batch: HeldBatch, name: str, advance: Advance, clear: Clear | None = None) -> None:
        """Commit a driver batch as ``commit`` does. The reference decoder has already decoded the records left in it.

        It runs a Spark job only if the batch must be compared with many rows of the table.
        """
        with self._committing:
            started = time.time()
            counts = batch.counts(self.progress.purged, self.progress.floor)
            beside = batch.counts_beside()
            if counts.late or self._may_be_erased(counts):
                self._persisted(batch.frame(), self._reviewed(name), advance, beside=beside, clear=clear)
                return
            held = replace(counts, rows=counts.rows - beside.rows)

            def write(progress: Progress) -> Commit:
                may_end = self._has_rows and self._may_end(progress.floor)
                most = _FEW_ROWS - held.rows
                written = self._table.upsert_held(batch.rows, progress, may_end=may_end, most_ended=most)
                return written or self._write(batch.frame(), held, progress)

            self._reviewed(name)(batch, counts)
            self._commit(started, counts, advance, write, counts.oldest, batch.taken_at)

    def check_lease(self) -> None:
        """Check the lease before records go to the quarantine. Raises LeaseLost.

        Otherwise another writer could have erased a key whose records this writer still holds.
        """
        self._lease.check()

    def maintain(self) -> None:
        """Run the compactions and the archiving that are due, beside the driver's commits.

        Call this method after each commit, and after each poll that finds no changes. Long maintenance is reported.
        Raises LeaseLost, and the exceptions of Hudi. Commits stay complete in any case.
        """
        with self._committing:
            if not self._table.is_maintenance_due():
                return
            began = time.monotonic()
            self._lease.check()
            self._table.maintain()
            seconds = time.monotonic() - began
        if seconds >= _LONG_MAINTENANCE_SECONDS:
            event = {"event": "maintained", "table": self.contract.table, "seconds": round(seconds, 3)}
            self.services.report(event)

    def settle(self) -> None:
        """Complete the compaction that runs beside the commits, if there is one. Raises LeaseLost."""
        with self._committing:
            if self._table.is_compacting():
                self._lease.check()
                self._table.settle()

    def close(self) -> None:
        """Stop the work beside the commits. Call it before another writer begins."""
        with self._committing:
            self._table.close()

    def _reviewed(self, name: str) -> _Review:
        def review(batch: Batch, counts: Counts) -> None:
            self._check_unfit(batch, counts)
            if counts.bad:
                self._put_aside(batch, counts, name)

        return review

    def replay(self, batch: DataFrame) -> list[tuple[str, str]]:
        """Commit a batch of quarantined records. Returns ``_reason`` and ``_raw`` of the records that are still bad.

        These are not quarantined again, and any share of them is accepted. The progress stays as it is.
        """
        bad: list[tuple[str, str]] = []

        def review(batch: Batch, counts: Counts) -> None:
            if counts.bad:
                bad.extend(batch.bad())

        self._persisted(batch, review, lambda last: last, timed=False)
        return bad

    @property
    def has_rows(self) -> bool:
        """Whether the table has a commit."""
        return self._has_rows

    @property
    def commits_held(self) -> bool:
        """Whether ``commit_held`` usually runs no Spark job: the table has exactly the contract's columns."""
        return self._table.has_contracts_columns

    def read(self) -> DataFrame:
        """The table's newest state, tombstones included, in the columns of the contract's ``lake_columns``."""
        return self._table.read()

    def rewrite(self, batch: DataFrame) -> int:
        """Commit new versions of rows that the table has. Returns their number; the progress stays as it is."""
        return self._persisted(batch, lambda batch, counts: None, lambda last: last, timed=False, arrived=False).rows

    def purge(self, before: dt.datetime, partition: Mapping[str, Any]) -> None:
        """Remove a partition's tombstones that were committed before a moment, as ``remove`` does."""
        self.remove(lambda: self._table.tombstones(before).where(is_in(partition)))

    def remove(self, found: Callable[[], DataFrame], first: Callable[[], None] = lambda: None) -> None:
        """Remove rows of the table, if there are any.

        - ``found``: returns the locations of the rows. Its ``_order`` is the order of a purged tombstone, and null for
          other rows. The progress keeps the latest such order.
        - ``first``: called before the removal.
        """
        with self._committing:
            started = time.time()
            # Read under the lock. Otherwise another commit could put a row at a tombstone's location meanwhile.
            places = found().persist(StorageLevel.MEMORY_AND_DISK)
            try:
                (counted,) = places.agg(F.count("_key").alias("rows"), F.max("_order").alias("latest")).collect()
                if not counted["rows"]:
                    return
                first()
                # Set this before the commit: even if the commit fails, each later one must record that order.
                self._progress = replace(self._progress, purged=max(self._progress.purged, counted["latest"] or ""))
                self.settle()
                self._lease.check()
                commit = self._table.delete(places.select(*self.contract.place), self._progress)
                self._done(commit, started, Counts(rows=counted["rows"]))
            finally:
                places.unpersist()

    def _persisted(
        self,
        frame: DataFrame,
        review: _Review,
        advance: Advance,
        careful: _Careful | None = None,
        *,
        beside: Counts | None = None,
        timed: bool = True,
        arrived: bool = True,
        clear: Clear | None = None,
        is_unique: bool = False,
        is_timely: bool = False,
    ) -> Counts:
        """Commit a distributed batch, whose frame is computed once. Returns the batch's counts.

        - ``beside``: counts of rows and records that the frame no longer has; they are added.
        - ``timed``: whether the age of the batch's changes shows how fresh the table is.
        - ``arrived``: whether the rows come from a source, not from the table itself.

        The other parameters are the same as in ``commit``.
        """
        with self._committing, ExitStack() as held:
            started = time.time()

            def hold(frame: DataFrame) -> Counts:
                held.callback(frame.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
                return SpreadBatch(frame).counts(self.progress.purged, self.progress.floor)

            # Replace the frame step by step: decode the records that are left, drop erased keys, decide on late rows.
            # Each step runs only if the counts require it, and then updates the counts.
            counts = hold(frame)
            records = counts.records
            others = replace(beside or Counts(), careful=max(counts.careful, beside.careful if beside else 0))
            if counts.careful and careful is not None:
                former, frame = frame, frame.filter(f"NOT ({IS_LEFT})").unionByName(careful(frame.filter(IS_LEFT)))
                counts = hold(frame)
                former.unpersist()
            if arrived and self._may_be_erased(counts):
                former, frame = frame, self._without_erased(frame)
                counts = hold(frame)
                former.unpersist()
                if clear is not None:
                    clear()
            if arrived and counts.late and not is_timely:
                former, frame = frame, self._without_forgotten(frame, counts)
                counts = hold(frame)
                former.unpersist()
            # The share of bad records is a share of all records, dropped ones included.
            counted = replace(counts, records=max(counts.records, records)).with_those(others)
            review(SpreadBatch(frame), counted)
            oldest = counted.oldest if timed else None

            def write(progress: Progress) -> Commit:
                return self._write(frame, counts, progress, is_unique=is_unique)

            self._commit(started, counted, advance, write, oldest)
            return counted

    def _without_forgotten(self, frame: DataFrame, counts: Counts) -> DataFrame:
        """The batch without the late rows that a purged tombstone may have deleted. These become bad records."""
        if counts.late_untold:
            raise RuntimeError(
                f"{self.contract.table}: tombstones were purged while a batch was read: the writer reads it again"
            )
        purged, floor = self.progress.purged, self.progress.floor
        return without_forgotten(frame, self._table.read(), self.contract, purged, floor)

    def _commit(
        self,
        started: float,
        counts: Counts,
        advance: Advance,
        write: Callable[[Progress], Commit],
        oldest: float | None,
        taken: float | None = None,
    ) -> None:
        """Commit a batch's rows and its progress by ``write``, and report the commit. An empty batch makes no commit.

        ``taken`` is when the batch's decoding began, if that was before ``started``.
        """
        progress = replace(
            advance(self.progress), floor=max(self.progress.floor, counts.floor), lowest=self._lowest_with(counts)
        )
        if not counts.rows and replace(progress, since=self.progress.since) == self.progress:
            # There are no rows and no progress: a commit would only add files, or create the table too early.
            self._progress = progress
            return
        self._lease.check()
        try:
            commit = write(progress)
        except BaseException:
            # The rows may be in the table despite the error, so the lowest order is unknown now.
            self._progress = replace(self.progress, lowest="")
            raise
        self._progress = progress
        self._has_rows = True
        self._done(commit, started, counts, oldest, taken)

    def _lowest_with(self, counts: Counts) -> str:
        """``Progress.lowest`` after a batch of these counts is written."""
        known = self.progress.lowest
        if not counts.rows:
            return known
        return min(known, counts.lowest) if self._has_rows else counts.lowest

    def _may_end(self, floor: str) -> bool:
        """Whether a truncate marker may delete rows of the table.

        Rows below the former marker are deleted already.
        """
        return floor > max(self.progress.floor, self.progress.lowest)

    def _write(self, frame: DataFrame, counts: Counts, progress: Progress, *, is_unique: bool = False) -> Commit:
        """Commit a batch's rows with the progress, and tombstones for rows that a raised truncate marker deletes."""
        names = [name for name, _ in self.contract.lake_columns()]
        rows = frame.filter(IS_ROW).select(names)
        rows = buried(rows, self.contract, progress.floor)
        if self._has_rows and self._may_end(progress.floor):
            is_unique = False
            rows = rows.unionByName(ended(self._table.read(), self.contract, progress.floor))
        is_few = counts.rows <= _FEW_ROWS
        commit = self._table.upsert_few(rows, progress) if is_few else None
        if commit is None:
            # Such a commit may wait for a compaction longer than the lease lasts. So check the lease after the wait.
            self.settle()
            self._lease.check()
            write = self._table.upsert if self._has_rows else self._table.insert
            commit = write(rows if is_unique else latest(rows, self.contract), progress)
        return commit

    def _check_unfit(self, batch: Batch, counts: Counts) -> None:
        """Raise TooManyBadRecords if so many rows have conversion errors that the contract must be wrong."""
        most = self.settings.max_unfit_share
        if not quarantine.exceeds(counts.unfit_rows, counts.live_rows, most):
            return
        raise TooManyBadRecords(
            f"{self.contract.table}: {counts.unfit_rows} of {counts.live_rows} rows have values that do not fit their "
            f"columns ({', '.join(batch.unfit_columns())}), at most {most:.1%} are accepted. Nothing of this batch was "
            "committed. Correct the columns' types in the contract, or raise lake.max_unfit_share, and start again."
        )

    def _put_aside(self, batch: Batch, counts: Counts, name: str) -> None:
        """Quarantine a batch's bad records.

        Raises TooManyBadRecords if there are too many; then only a sample of them is stored.
        """
        self.check_lease()
        share = (counts.bad, counts.records, self.settings.max_bad_share)
        refused = quarantine.exceeds(*share)
        read_in = {"epoch": self.progress.epoch, "order_version": order_version(self.contract)}
        bad = batch.bad(quarantine.SAMPLE if refused else None)
        entries = [BadEntry(reason, json.loads(raw), **read_in) for reason, raw in bad]
        table = self.contract.table
        aside = Quarantine(self.services.s3, self.settings.quarantine, table)
        stored = aside.address(aside.store(name, entries, refused=refused))
        if refused:
            raise quarantine.refusal(table, *share, sample=stored)
        self.services.report({"event": "quarantine", "table": table, "records": counts.bad, "object": stored})

    def _done(
        self,
        commit: Commit,
        started: float,
        counts: Counts,
        oldest: float | None = None,
        taken: float | None = None,
    ) -> None:
        completed = time.time()
        registered = self.services.catalog.register(self.contract.table, commit.partitions)
        self.services.report(
            {
                "event": "commit",
                "table": self.contract.table,
                "instant": commit.instant,
                "taken_at": started if taken is None else taken,
                "completed_at": completed,
                "oldest_source_at": oldest,
                "changes": counts.rows,
                "unfit": counts.unfit_values,
                "left_out": counts.left_out,
                "careful": counts.careful,
                "cursor": commit.progress.cursor,
                "partitions": registered,
                "seconds": round(completed - started, 3),
            }
        )

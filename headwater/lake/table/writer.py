"""The writer of a table: from decoded changes to commits."""

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
"""From the progress of the last commit to that of the next."""
_Review = Callable[[Batch, Counts], None]
"""Looks at a batch and its counts before it is committed, and does with its bad records what there is to do."""
Clear = Callable[[], None]
"""Takes what is of forgotten keys out of where a batch came from."""
_Careful = Callable[[DataFrame], DataFrame]
"""Decodes what is left in a batch."""
_FEW_ROWS = 100_000
"""Up to so many rows, what Hudi's own upsert spends on each file group outweighs the rows."""
_LONG_MAINTENANCE_SECONDS = 1.0
"""From so long on it is told: what came meanwhile has waited."""
_NEXT_STEP = {
    DYNAMODB: "Raise glue.epoch in the environment's file, deploy, and load an export (headwater backfill).",
    POSTGRESQL: "Use the release that wrote it, or describe a new table.",
}


@dataclass(frozen=True)
class WriterSettings:
    """A writer's settings. ``quarantine`` is an ``s3://`` address; ``epoch`` is that of records that do not say theirs,
    None for that of the table's last commit; ``batch_bytes`` counts the bytes of a stream's records, or those of landed
    objects and data files, which are compressed, per partition of a topic;
    ``max_bad_share`` of a batch's records may be quarantined and ``max_unfit_share`` of its rows, without tombstones,
    may lack a value that does not fit, shares from 0 to 1; ``parallelism`` is a number of tasks; ``mask_key`` is the
    key of DynamoDB's masks. A batch of landed changes whose latest rows came in ``held_bytes`` at most is held in the
    driver, and one of a table that decodes ahead in four times as much."""

    quarantine: str
    epoch: int | None = None
    batch_bytes: int = 256 * 1024 * 1024
    max_bad_share: float = 0.01
    max_unfit_share: float = 1.0
    parallelism: int = 2
    mask_key: bytes | None = field(default=None, repr=False)
    hash_key: Callable[[], bytes] | None = field(default=None, repr=False)
    held_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class WriterServices:
    """What the writers of a job share: an S3 client, the catalog, what receives their events, and what decodes ahead,
    for one of them at a time."""

    s3: Any
    catalog: Catalog
    report: Report
    decoding: DecodingAhead[HeldBatch | None] = field(default_factory=DecodingAhead)


class TableWriter:
    """Commits decoded changes to one Hudi table. The caller holds the table's lease. Several sources may commit from
    threads of their own: each waits until the others' commits are done."""

    def __init__(self, table: HudiTable, lease: Lease, services: WriterServices, settings: WriterSettings) -> None:
        self.services = services
        self.settings = settings
        self._table = table
        self._lease = lease
        self._committing = threading.RLock()
        self._erased_store = ErasedStore(services.s3, table.uri, table.contract)
        self.erased = self._read_erased()
        """The keys that the table has forgotten."""
        self._progress = self._resume()
        if self._progress.erased > len(self.erased.orders):
            raise ErasedKeysMissing(
                f"{self._erased_store.address}: found {len(self.erased.orders)} forgotten keys, expected "
                f"{self._progress.erased} at least. Restore the object: without it persons could come back."
            )
        if self.erased.noted(self._progress) != self._progress:
            self._erase_again()

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

    def note_streaming_start(self, former: Progress | None = None) -> None:
        """Note that streaming begins now, or began when the writer before this one noted it for this epoch, in its
        ``former`` progress, unless an earlier moment is known. The next commit keeps it."""
        known = former.since if former is not None and former.epoch == self._progress.epoch else 0
        with self._committing:
            self._progress = self._progress.with_streaming_start(known)

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
        try:
            self._table.run_open_compaction()
        except Exception:
            # The next commit tries it again, and ends with its error.
            traceback.print_exc()
        return progress

    def _begun(self, before: Progress, epoch: int) -> Progress:
        """The progress at the beginning of an epoch. A stream is then read anew, because shards of the cursor may be
        gone from it; a landing bucket still has what comes next."""
        is_stream = self.contract.source.database == DYNAMODB
        return before.in_epoch(epoch, order_version(self.contract), from_beginning=is_stream)

    def clear_landing(self, objects: Sequence[tuple[str, str]]) -> Searched:
        """Rewrite landing objects, each its bucket and key, without the records of forgotten keys."""
        # What goes to the executors holds no session.
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
                f"{self.contract.table}: found no key for the hashes of forgotten keys, expected --forget-secret, its "
                "secret"
            )
        return self.settings.hash_key()

    def erase(self, key: str, order: str, is_row: Column, sweep: Callable[[], None]) -> tuple[str, int]:
        """Forget a row: ``is_row`` says which rows of the table are its. From now on nothing of its row key ``key``
        with an order up to that one is committed. Its rows are removed and all log files compacted by a commit, then
        ``sweep`` deletes the files that are replaced, before anything else is committed. Returns the keyed hash and the
        number of rows. May be repeated; raises UserError, LeaseLost, and what Spark raises."""
        with self._committing:
            started = time.time()
            self._lease.check()
            erased = replace(self.erased, hash_key=self.erased.hash_key or self._hash_key()).and_this(key, order)
            # First: what is removed may not come back, whatever becomes of the commit.
            self._erased_store.write(erased.orders)
            self.erased = erased
            self._progress = erased.noted(self._progress)
            if not self._has_rows:
                return erased.hashed(key), 0
            is_past = (F.col("_order") <= order) | self._is_of_floor()
            return erased.hashed(key), self._erase(self._table.read().where(is_row & is_past), started, sweep)

    def compact(self, sweep: Callable[[], None]) -> None:
        """Compact all log files by a commit, then have ``sweep`` delete the files that are replaced, before anything
        else is committed. Raises LeaseLost, and what Spark and ``sweep`` raise."""
        with self._committing:
            if self._has_rows:
                self._erase(self._table.read().limit(0), time.time(), sweep)

    def _erase_again(self) -> None:
        """Remove what is in the table of keys that its last commit does not know to be forgotten: it was set back or
        restored, or a writer has ended between the two. A history that is begun keeps what its table has forgotten."""
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
        """Whether a row is a tombstone that nobody needs, because the floor buries whatever comes late: a floor moves
        rows that it ends above their orders, and keeps their keys. The progress of a history has none."""
        return F.col("_deleted") & (F.col("_order") <= self._progress.floor)

    def _erase(self, rows: DataFrame, started: float, sweep: Callable[[], None] = lambda: None) -> int:
        """Remove rows of the table and compact all its log files, and return how many they are."""
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
        """Whether something in a batch of these counts may be of a forgotten key: a row as old as those are, or a bad
        record, whose order is not counted."""
        if not self.erased.orders:
            return False
        # A record of an earlier epoch may hide an older one of this.
        is_of_epoch = counts.lowest.startswith(epoch_digits(self.progress.epoch))
        return counts.bad > 0 or bool(counts.lowest and (not is_of_epoch or self.erased.may_cover(counts.lowest)))

    def _without_erased(self, frame: DataFrame) -> DataFrame:
        """A batch without the rows and the bad records of forgotten keys."""
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
        """Commit a batch in the columns of ``columns_tagged`` together with the progress that ``advance`` makes of the
        last one. A batch without rows that brings no progress makes no commit. The name of the batch's quarantine
        object begins with ``name``; ``careful`` decodes what is left in it (``IS_LEFT``). What of it is of forgotten
        keys is dropped; before a batch is committed in which such may be, ``clear`` takes it out of where it came from.
        ``is_unique`` where no two of its rows have one place, ``is_timely`` where none is late, whatever its order.
        Raises TooManyBadRecords, LeaseLost, and what Spark raises; the table and the progress are then as before."""
        self._persisted(
            batch, self._reviewed(name), advance, careful, clear=clear, is_unique=is_unique, is_timely=is_timely
        )

    def commit_held(self, batch: HeldBatch, name: str, advance: Advance, clear: Clear | None = None) -> None:
        """Commit a batch that is in the driver, in which nothing is left, as ``commit`` does. It takes a job of Spark
        only if much has to be compared with what is in the table."""
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
        """Before something is put aside: once another writer has the table, it may have forgotten what this one still
        holds. Raises LeaseLost."""
        self._lease.check()

    def maintain(self) -> None:
        """Begin and complete what is due beside the driver's commits, compactions and archiving: to be called after
        each commit, and after a look that finds nothing. Where it takes long, it is reported. Raises LeaseLost, and
        what Hudi raises; what is committed stays so."""
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
        """Complete the compaction that is under way beside the commits, where there is one. Raises LeaseLost."""
        with self._committing:
            if self._table.is_compacting():
                self._lease.check()
                self._table.settle()

    def close(self) -> None:
        """End what goes on beside the commits, before another writer begins."""
        with self._committing:
            self._table.close()

    def _reviewed(self, name: str) -> _Review:
        def review(batch: Batch, counts: Counts) -> None:
            self._check_unfit(batch, counts)
            if counts.bad:
                self._put_aside(batch, counts, name)

        return review

    def replay(self, batch: DataFrame) -> list[tuple[str, str]]:
        """Commit a batch of quarantined records as ``commit`` does, whatever share of it is bad, and return
        ``_reason`` and ``_raw`` of its bad ones, which are not quarantined. The progress stays as it is."""
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
        """Whether ``commit_held`` needs no job of Spark as a rule: the table has just the contract's columns."""
        return self._table.has_contracts_columns

    def read(self) -> DataFrame:
        """The table's newest state, tombstones included, in the columns of the contract's ``lake_columns``."""
        return self._table.read()

    def rewrite(self, batch: DataFrame) -> int:
        """Commit rows of the table in another form, and return their number; the progress stays as it is."""
        return self._persisted(batch, lambda batch, counts: None, lambda last: last, timed=False, arrived=False).rows

    def purge(self, before: dt.datetime, partition: Mapping[str, Any]) -> None:
        """Remove a partition's tombstones that were committed before that moment, as ``remove`` does."""
        self.remove(lambda: self._table.tombstones(before).where(is_in(partition)))

    def remove(self, found: Callable[[], DataFrame], first: Callable[[], None] = lambda: None) -> None:
        """Remove the rows at the places that ``found`` gives, where there are any, and do something else ``first``.
        ``_order`` there is that of a delete of which nothing is left then, null for other rows: the latest is kept in
        the progress, which stays as it is otherwise."""
        with self._committing:
            started = time.time()
            # Read when nobody else commits: the place of a tombstone may have a row again.
            places = found().persist(StorageLevel.MEMORY_AND_DISK)
            try:
                (counted,) = places.agg(F.count("_key").alias("rows"), F.max("_order").alias("latest")).collect()
                if not counted["rows"]:
                    return
                first()
                # Before the commit: whatever becomes of it, no later one may forget the order that was purged.
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
        """Commit a batch that is read once, and return its counts, with those of what is ``beside`` the frame.
        ``timed`` where the age of its changes tells how fresh the table is; ``arrived`` where its rows come from
        elsewhere than from the table."""
        with self._committing, ExitStack() as held:
            started = time.time()

            def hold(frame: DataFrame) -> Counts:
                held.callback(frame.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
                return SpreadBatch(frame).counts(self.progress.purged, self.progress.floor)

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
            # Also of what is forgotten, bad records are a share.
            counted = replace(counts, records=max(counts.records, records)).with_those(others)
            review(SpreadBatch(frame), counted)
            oldest = counted.oldest if timed else None

            def write(progress: Progress) -> Commit:
                return self._write(frame, counts, progress, is_unique=is_unique)

            self._commit(started, counted, advance, write, oldest)
            return counted

    def _without_forgotten(self, frame: DataFrame, counts: Counts) -> DataFrame:
        """The batch without the late rows of which nothing is known any more: they are bad."""
        if counts.late_untold:
            raise RuntimeError(
                f"{self.contract.table}: tombstones were purged while a batch was on its way: it is read again"
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
        """Commit a batch's rows and its progress by ``write``, and report it, unless there is nothing to commit.
        ``taken`` is when its decoding began, where that was before ``started``."""
        progress = replace(
            advance(self.progress), floor=max(self.progress.floor, counts.floor), lowest=self._lowest_with(counts)
        )
        if not counts.rows and replace(progress, since=self.progress.since) == self.progress:
            # Nothing is applied and nothing is read on: a commit would only make files, and the table before its time.
            self._progress = progress
            return
        self._lease.check()
        try:
            commit = write(progress)
        except BaseException:
            # Its rows may be in the table nevertheless.
            self._progress = replace(self.progress, lowest="")
            raise
        self._progress = progress
        self._has_rows = True
        self._done(commit, started, counts, oldest, taken)

    def _lowest_with(self, counts: Counts) -> str:
        """``Progress.lowest`` once a batch of these counts is written."""
        known = self.progress.lowest
        if not counts.rows:
            return known
        return min(known, counts.lowest) if self._has_rows else counts.lowest

    def _may_end(self, floor: str) -> bool:
        """Whether such a floor may end rows that are in the table: those below the one before are dead already."""
        return floor > max(self.progress.floor, self.progress.lowest)

    def _write(self, frame: DataFrame, counts: Counts, progress: Progress, *, is_unique: bool = False) -> Commit:
        """Commit a batch's rows, and the tombstones of those that a raised floor ends, with the progress."""
        names = [name for name, _ in self.contract.lake_columns()]
        rows = frame.filter(IS_ROW).select(names)
        rows = buried(rows, self.contract, progress.floor)
        if self._has_rows and self._may_end(progress.floor):
            is_unique = False
            rows = rows.unionByName(ended(self._table.read(), self.contract, progress.floor))
        is_few = counts.rows <= _FEW_ROWS
        commit = self._table.upsert_few(rows, progress) if is_few else None
        if commit is None:
            # A compaction is waited for before such a commit, and that may take as long as the lease lasts.
            self.settle()
            self._lease.check()
            write = self._table.upsert if self._has_rows else self._table.insert
            commit = write(rows if is_unique else latest(rows, self.contract), progress)
        return commit

    def _check_unfit(self, batch: Batch, counts: Counts) -> None:
        """Raise TooManyBadRecords where so many rows lack a value that the contract must be wrong."""
        most = self.settings.max_unfit_share
        if not quarantine.exceeds(counts.unfit_rows, counts.live_rows, most):
            return
        raise TooManyBadRecords(
            f"{self.contract.table}: {counts.unfit_rows} of {counts.live_rows} rows have values that do not fit their "
            f"columns ({', '.join(batch.unfit_columns())}), at most {most:.1%} are accepted. Nothing of this batch was "
            "committed. Correct the columns' types in the contract, or raise lake.max_unfit_share, and start again."
        )

    def _put_aside(self, batch: Batch, counts: Counts, name: str) -> None:
        """Quarantine those of a batch's records that could not be decoded. Raises TooManyBadRecords."""
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

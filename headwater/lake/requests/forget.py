"""Forgets a key (GDPR, article 17): removes a row and all its former values from every store of its table.

1. The writer stores the key's hash, so that the row cannot come back. Then it removes the row and its tombstone,
  compacts the log files, and deletes all replaced files.
2. It removes the key's records from the quarantine.
3. It removes the key's records from the landing objects, some objects at a time. If a record lands later, the commit
  that reads it clears its object (``TableWriter.commit``).
4. In versioned buckets, it deletes the former versions of all these objects.

Each step may be repeated: a writer that starts in between begins with the first step again. This is one of the kinds of
``requested_work``. At the end, the request itself is removed.
"""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.contract.model import BEGUN_LATE, DYNAMODB, EXPIRED
from headwater.errors import UserError
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.quarantine import Quarantine, batch_of
from headwater.lake.base.s3_uri import key_below, split_uri
from headwater.lake.base.s3_versions import delete_former
from headwater.lake.decoding.changes import epoch_digits, record_key
from headwater.lake.requests.forget_requests import Forgotten, key_values
from headwater.lake.requests.protocol import DONE, RUNNING, Status
from headwater.lake.table.erasure.keys import row_key
from headwater.lake.table.erasure.landing_objects import Searched
from headwater.lake.table.erasure.records import kept_records
from headwater.lake.table.replaced_files import ReplacedFiles

if TYPE_CHECKING:
    from headwater.lake.sources.landing import Landing
    from headwater.lake.table.writer import TableWriter

_BYTES_PER_PART = 64 * 1024 * 1024
"""The size of the landing objects of one step, compressed. Changes wait while a step runs."""
AHEAD = dt.timedelta(days=1)
"""S3's clock may be this far ahead."""


def work(writer: TableWriter, landing: Landing | None, name: str, details: Mapping[str, Any]) -> KeyToForget:
    """The work of a request to forget a key. Raises UserError.

    - ``writer``: the writer of the table.
    - ``landing``: the landing objects to rewrite. Only one table of a topic has them.
    """
    asked = Forgotten.of(details)
    values = key_values(writer.contract, asked.key)
    _check_epoch(writer, asked.order)
    return KeyToForget(writer, landing, values, asked.order)


def _check_epoch(writer: TableWriter, order: str) -> None:
    """Raise UserError if the order has another epoch than the table's newest changes.

    With an earlier epoch, the row could come back. With a later epoch, future changes would be forgotten too.
    """
    now = ""
    if writer.contract.source.database == DYNAMODB:
        now = epoch_digits(writer.progress.epoch)
    elif writer.has_rows:
        # Leave out the rows that record where a history begins: their orders have no epoch. The truncate marker counts,
        # since an epoch may have begun without a row.
        changes = writer.read().where(~F.col("_op").isin(EXPIRED, BEGUN_LATE))
        (highest,) = changes.agg(F.max("_order")).first() or (None,)
        now = max(highest or "", writer.progress.floor)[:4]
    if now and order[:4] != now:
        raise UserError(
            f"epoch: found {int(order[:4])}, expected {int(now)}, the epoch of the newest changes of "
            f"{writer.contract.table}. Name the environment of this lake (--env). If the epoch was raised, wait "
            "until the rows that are read again are in the lake."
        )


@dataclass
class _Counts:
    """The counts of the work so far, for the receipt."""

    rows: int = 0
    """Rows removed from the table."""
    files_deleted: int = 0
    """Replaced files of the table that were deleted."""
    quarantine_objects: int = 0
    """Objects of the quarantine that were searched."""
    quarantine_records: int = 0
    """Records removed from the quarantine."""
    quarantine_unreadable: int = 0
    """Quarantined records without a readable key. They stay."""
    landing: Searched = field(default_factory=Searched)
    """The counts of the landing objects."""
    versions_deleted: int = 0
    """Former versions of objects that were deleted."""


class Clearing:
    """Clears the stores of a table step by step, one step between two commits.

    If a step fails, the request is refused, and the table goes on.
    """

    def __init__(self, writer: TableWriter, landing: Landing | None, steps: Sequence[Callable[[], None]]) -> None:
        self._writer = writer
        self._landing = landing
        self._parts = len(steps)
        self._steps = list(steps)

    def commit_next(self) -> None:
        """Do the next step. Raises UserError."""
        step = self._steps.pop(0)
        try:
            step()
        except (UserError, LeaseLost):
            raise
        except Exception as error:
            if self._writer.spark.sparkContext._jsc.sc().isStopped():
                raise
            # The table goes on, and completed steps stay done.
            traceback.print_exc()
            raise UserError(
                f"{type(error).__name__}: {error}. {self._left_by_error()}: correct the cause, such as a right that "
                "the writer lacks, and run the command again."
            ) from None

    def _left_by_error(self) -> str:
        """The state that a failed step leaves behind, for the operator."""
        return "Not all is deleted"

    def _status(self, records: int, **result: Any) -> Status:
        state = RUNNING if self._steps else DONE
        return Status("", state, self._parts, self._parts - len(self._steps), records, told=result)

    def _delete_replaced(self) -> int:
        """Delete the replaced files, and return their number. All log files must be compacted."""
        replaced = ReplacedFiles(self._writer.services.s3, self._writer.table)
        deleted = replaced.delete(dt.datetime.now(dt.UTC) + AHEAD)
        left = replaced.log_files()
        if left:
            raise UserError(
                f"{self._writer.contract.table}: found {left} log files after all were compacted, expected none. "
                "They may hold former values: run the command again."
            )
        return deleted

    def _delete_versions(self) -> int:
        """Delete the former versions of the table's, the quarantine's and the landing objects. Returns their number."""
        writer = self._writer
        bucket, folder = split_uri(writer.table.uri)
        aside, prefix = split_uri(writer.settings.quarantine)
        folders = [(bucket, f"{folder}/"), (aside, key_below(prefix, f"{writer.contract.table}/"))]
        if self._landing is not None:
            folders.append(self._landing.folder)
        return sum(delete_former(writer.services.s3, *where) for where in folders)


class KeyToForget(Clearing):
    """A key that is forgotten step by step; ``values`` are the values of its columns."""

    def __init__(self, writer: TableWriter, landing: Landing | None, values: Mapping[str, Any], order: str) -> None:
        super().__init__(writer, landing, [self._forget_row, self._clear_quarantine, self._clear_versions])
        self._values = values
        self._order = order
        self._key = row_key(record_key(list(values.values())))
        self._hash = ""
        self._counts = _Counts()

    def status(self) -> Status:
        """The progress. ``records`` counts the removed rows and records."""
        counts = self._counts
        records = counts.rows + counts.quarantine_records + counts.landing.records
        return self._status(records, **{"key": self._hash, **asdict(counts), "landing": counts.landing._asdict()})

    def _left_by_error(self) -> str:
        if self._writer.erased.covers(self._key, self._order):
            return "The row stays away, but not all of its past is gone"
        return "Nothing is forgotten"

    def _forget_row(self) -> None:
        self._hash, rows = self._writer.erase(self._key, self._order, _is_row(self._values), self._sweep)
        self._counts.rows += rows
        landing = self._landing
        if landing is not None:
            parts = _parts(landing.all())
            self._steps[1:1] = [lambda part=part: self._clear_landing(part) for part in parts]  # type: ignore[misc]
            self._parts += len(parts)

    def _sweep(self) -> None:
        self._counts.files_deleted += self._delete_replaced()

    def _clear_quarantine(self) -> None:
        """Rewrite each object of the quarantine without the key's records, or delete it if it has no other records."""
        writer, counts = self._writer, self._counts
        is_erased = kept_records(writer.contract, writer.erased, writer.progress.epoch, writer.settings.mask_key)
        quarantine = Quarantine(writer.services.s3, writer.settings.quarantine, writer.contract.table)
        for object_ in quarantine.listed():
            counts.quarantine_objects += 1
            records = quarantine.read(object_.name) or []
            erased = [is_erased(entry.record, entry.epoch) for entry in records]
            counts.quarantine_unreadable += erased.count(None)
            # Keep all records but the key's. A record without a readable key stays too.
            staying = [entry for entry, is_of_key in zip(records, erased, strict=True) if not is_of_key]
            if len(staying) == len(records):
                continue
            if not quarantine.has(object_.name):
                continue  # an operator has dropped the object meanwhile: do not write it again
            counts.quarantine_records += len(records) - len(staying)
            if staying:
                quarantine.store(batch_of(object_.name), staying)
            quarantine.delete(object_.name)

    def _clear_landing(self, part: list[tuple[str, str]]) -> None:
        self._counts.landing = self._counts.landing.and_those(self._writer.clear_landing(part))

    def _clear_versions(self) -> None:
        self._counts.versions_deleted += self._delete_versions()


def _is_row(values: Mapping[str, Any]) -> Column:
    return reduce(lambda one, other: one & other, (F.col(name) == F.lit(value) for name, value in values.items()))


def _parts(objects: list[tuple[str, str, int]]) -> list[list[tuple[str, str]]]:
    """Landing objects in parts. Each part is small enough that changes do not wait long."""
    parts: list[list[tuple[str, str]]] = []
    room = 0
    for bucket, key, size in objects:
        if room <= 0:
            parts.append([])
            room = _BYTES_PER_PART
        parts[-1].append((bucket, key))
        room -= size
    return parts

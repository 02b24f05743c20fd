"""Forgetting a key: taking a row with all its past out of every store of its table.

1. What keeps it from coming back is made durable, the row and its tombstone are removed, the log files are compacted,
   and the files that this and earlier compactions have replaced are deleted.
2. Its records leave quarantine.
3. Its records leave the landing objects, some objects at a time. What lands afterwards is cleared by the commit that
   reads it (``TableWriter.commit``).
4. What a versioned bucket keeps of all these is removed.

Each step may be repeated: a writer that starts in between begins with the first one again. It is one of the kinds of
``requested_work``, whose request is removed at the end.
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
"""Of landing objects, compressed: the stream waits for one part."""
AHEAD = dt.timedelta(days=1)
"""By how much the clock of S3 may be ahead."""


def work(writer: TableWriter, landing: Landing | None, name: str, details: Mapping[str, Any]) -> KeyToForget:
    """The work of a request to forget a key of the table of ``writer``. ``landing`` are the objects that are rewritten:
    one of a topic's tables has them. Raises UserError."""
    asked = Forgotten.of(details)
    values = key_values(writer.contract, asked.key)
    _check_epoch(writer, asked.order)
    return KeyToForget(writer, landing, values, asked.order)


def _check_epoch(writer: TableWriter, order: str) -> None:
    """Raise UserError where the order is of another epoch than the table's changes: in an earlier one the row could
    come back, in a later one changes that come would be forgotten too."""
    now = ""
    if writer.contract.source.database == DYNAMODB:
        now = epoch_digits(writer.progress.epoch)
    elif writer.has_rows:
        # A history's notes have orders of their own, and an epoch may have begun without a row.
        changes = writer.read().where(~F.col("_op").isin(EXPIRED, BEGUN_LATE))
        (highest,) = changes.agg(F.max("_order")).first() or (None,)
        now = max(highest or "", writer.progress.floor)[:4]
    if now and order[:4] != now:
        raise UserError(
            f"epoch: found {int(order[:4])}, expected {int(now)}, that of the newest changes of "
            f"{writer.contract.table}. Name the environment of this lake (--env); where the epoch was raised, wait "
            "until the rows that are read anew are in the lake."
        )


@dataclass
class _Counts:
    """What was searched and removed so far, as the receipt has it."""

    rows: int = 0
    files_deleted: int = 0
    quarantine_objects: int = 0
    quarantine_records: int = 0
    quarantine_unreadable: int = 0
    landing: Searched = field(default_factory=Searched)
    versions_deleted: int = 0


class Clearing:
    """Clears the stores of a table step by step. A step that fails refuses the request, and the table goes on.
    ``steps`` run one between two commits."""

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
            # The table goes on, and what is done stays done.
            traceback.print_exc()
            raise UserError(
                f"{type(error).__name__}: {error}. {self._left_by_error()}: mend what is wrong, such as a right that "
                "the writer lacks, and ask again."
            ) from None

    def _left_by_error(self) -> str:
        """What a step that fails leaves behind."""
        return "Not all is deleted"

    def _status(self, records: int, **told: Any) -> Status:
        state = RUNNING if self._steps else DONE
        return Status("", state, self._parts, self._parts - len(self._steps), records, told=told)

    def _delete_replaced(self) -> int:
        """Delete the replaced files, once all log files are compacted, and return their number."""
        replaced = ReplacedFiles(self._writer.services.s3, self._writer.table)
        deleted = replaced.delete(dt.datetime.now(dt.UTC) + AHEAD)
        left = replaced.log_files()
        if left:
            raise UserError(
                f"{self._writer.contract.table}: found {left} log files after all were compacted, expected none. "
                "They may hold former values: ask again."
            )
        return deleted

    def _delete_versions(self) -> int:
        """Delete what the buckets keep of what was replaced, rewritten or deleted, now or in the days before, and
        return the number of versions."""
        writer = self._writer
        bucket, folder = split_uri(writer.table.uri)
        aside, prefix = split_uri(writer.settings.quarantine)
        folders = [(bucket, f"{folder}/"), (aside, key_below(prefix, f"{writer.contract.table}/"))]
        if self._landing is not None:
            folders.append(self._landing.folder)
        return sum(delete_former(writer.services.s3, *where) for where in folders)


class KeyToForget(Clearing):
    """A key, which is forgotten step by step. ``values`` are those of its columns."""

    def __init__(self, writer: TableWriter, landing: Landing | None, values: Mapping[str, Any], order: str) -> None:
        super().__init__(writer, landing, [self._forget_row, self._clear_quarantine, self._clear_versions])
        self._values = values
        self._order = order
        self._key = row_key(record_key(list(values.values())))
        self._hash = ""
        self._counts = _Counts()

    def status(self) -> Status:
        """How far it is; ``records`` are the rows and records that were removed."""
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
        """Leave of each object what is not of the key, or unlink it."""
        writer, counts = self._writer, self._counts
        is_erased = kept_records(writer.contract, writer.erased, writer.progress.epoch, writer.settings.mask_key)
        quarantine = Quarantine(writer.services.s3, writer.settings.quarantine, writer.contract.table)
        for object_ in quarantine.listed():
            counts.quarantine_objects += 1
            records = quarantine.read(object_.name) or []
            told = [is_erased(entry.record, entry.epoch) for entry in records]
            counts.quarantine_unreadable += told.count(None)
            staying = [entry for entry, its in zip(records, told, strict=True) if not its]
            if len(staying) == len(records):
                continue
            if not quarantine.has(object_.name):
                continue  # dropped meanwhile: what stays of it is not to be there again
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
    """Landing objects, in parts of so many bytes that the changes' commits do not wait for long."""
    parts: list[list[tuple[str, str]]] = []
    room = 0
    for bucket, key, size in objects:
        if room <= 0:
            parts.append([])
            room = _BYTES_PER_PART
        parts[-1].append((bucket, key))
        room -= size
    return parts

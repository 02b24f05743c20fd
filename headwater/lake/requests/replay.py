"""Decodes quarantined records again, with the current contract, while the changes of their table go on.

Each record keeps its former order: its epoch and its own ``_order``. So it never wins over a later change, and a second
replay changes nothing. Records that can be decoded now are committed. The others stay, with their new reason.

After the commit, the quarantine object is deleted, or replaced by an object with the records that stay. If the writer
crashes in between, the object stays, and the next try finds the rows in the table.

This is one of the kinds of ``requested_work``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError
from headwater.lake.base.quarantine import BadEntry, Quarantine, QuarantineObject, batch_of, is_chosen
from headwater.lake.decoding.changes import order_version, without_row
from headwater.lake.decoding.decoded_frame import decoded_frame, spread
from headwater.lake.requests.protocol import DONE, RUNNING, Status
from headwater.lake.requests.replay_requests import Choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.lake.table.writer import TableWriter

DecodeKept = Callable[[int, str], Callable[[Any, str], Iterator[tuple[Any, ...]]]]
"""Makes a decoder for an epoch and the latest purged order. The decoder turns a quarantined record and the name of its
object into rows of ``columns_tagged``."""

_BYTES_PER_COMMIT = 8 * 1024 * 1024
"""The size of the quarantine objects of one commit, compressed. The driver has their records in memory."""
_FIRST_EPOCH = 1

_Part = tuple[str, int, int, str]
"""Object, line, epoch and the record's JSON."""


def work(writer: TableWriter, decode: DecodeKept, name: str, details: Mapping[str, Any]) -> RecordsToReplay:
    """The work of a request to replay quarantined records of a table. Raises UserError.

    ``decode`` is sent to the executors.
    """
    choice = Choice.of(details)
    quarantine = Quarantine(writer.services.s3, writer.settings.quarantine, writer.contract.table)
    objects = [object_ for object_ in quarantine.listed() if object_.name in set(choice.objects)]
    for object_ in objects:
        if object_.is_sample:
            raise UserError(
                f"{object_.name}: found a sample of a refused batch, expected records of a committed one: the "
                "writer reads a refused batch again, all of it."
            )
    return RecordsToReplay(writer, decode, quarantine, choice, objects)


class RecordsToReplay:
    """Records of quarantine objects, which are replayed some objects at a time."""

    def __init__(
        self,
        writer: TableWriter,
        decode: DecodeKept,
        quarantine: Quarantine,
        choice: Choice,
        objects: list[QuarantineObject],
    ) -> None:
        self._writer = writer
        self._decode = decode
        self._quarantine = quarantine
        self._choice = choice
        self._left = objects
        self._records = self._kept = 0

    def status(self) -> Status:
        """The progress. Objects that are gone count as done."""
        parts = len(self._choice.objects)
        state = RUNNING if self._left else DONE
        return Status("", state, parts, parts - len(self._left), self._records, self._kept)

    def commit_next(self) -> None:
        """Replay the next objects, all or none of them. Raises UserError if an object has no records of a writer."""
        objects = self._next()
        entries = {object_.name: self._quarantine.read(object_.name) for object_ in objects}
        there = {name: records for name, records in entries.items() if records is not None}
        # Choose the records. A record whose epoch does not fit stays, with that as its reason.
        reasons: dict[tuple[str, int], str] = {}
        parts: list[_Part] = []
        for name, records in there.items():
            for line, entry in enumerate(records):
                if not is_chosen(entry, self._choice.reason):
                    continue
                self._records += 1
                try:
                    parts.append((name, line, self._epoch_of(entry), json.dumps(entry.record)))
                except UserError as error:
                    reasons[name, line] = str(error)
        # Commit the other records, and then leave in each object only the records that are still bad.
        replayed = {(name, line) for name, line, *_ in parts}
        if parts:
            for reason, raw in self._writer.replay(self._frame(parts)):
                name, line = json.loads(raw)
                reasons[name, line] = reason
        self._kept += len(reasons)
        for name, records in there.items():
            self._put_back(name, records, replayed - reasons.keys(), reasons)
        self._left = self._left[len(objects) :]

    def _next(self) -> list[QuarantineObject]:
        """Return the objects to replay in the next commit. There is at least one."""
        taken: list[QuarantineObject] = []
        total = 0
        for object_ in self._left:
            if taken and total + object_.size > _BYTES_PER_COMMIT:
                break
            taken.append(object_)
            total += object_.size
        return taken

    def _epoch_of(self, entry: BadEntry) -> int:
        """The epoch in which a record was read. Raises UserError if its order among the changes is unknown."""
        epoch, version = self._writer.progress.epoch, order_version(self._writer.contract)
        advice = "Correct the row in the source, and drop the record (headwater quarantine drop)."
        if entry.epoch is None:
            if epoch > _FIRST_EPOCH:
                raise UserError(
                    "epoch: found none, expected the one in which the record was read. The release that quarantined it "
                    f"did not keep it, and the table is in epoch {epoch}. {advice}"
                )
            return epoch
        if entry.epoch > epoch:
            raise UserError(f"epoch: found {entry.epoch}, expected at most {epoch}, the table's. {advice}")
        if entry.order_version != version:
            raise UserError(
                f"layout of _order: found version {entry.order_version} in epoch {entry.epoch}, expected {version}: "
                f"the two do not compare. {advice}"
            )
        return entry.epoch

    def _frame(self, parts: list[_Part]) -> DataFrame:
        contract, decoder_of, purged = self._writer.contract, self._decode, self._writer.progress.purged
        width = len(contract.lake_columns())

        def decode(part: Iterable[_Part]) -> Iterator[tuple[Any, ...]]:
            decoders: dict[int, Any] = {}
            for name, line, epoch, text in part:
                if epoch not in decoders:
                    decoders[epoch] = decoder_of(epoch, purged)
                tag = json.dumps([name, line])
                try:
                    rows = list(decoders[epoch](json.loads(text), name))
                except (KeyError, TypeError, ValueError) as error:
                    yield without_row(width, reason=f"not a record of this source: {error!r}", raw=tag)
                    continue
                for row in rows:
                    # The last value is the record for the quarantine: the tag takes its place.
                    yield row if row[-1] is None else (*row[:-1], tag)

        rows = spread(self._writer.spark, parts, self._writer.settings.parallelism).mapPartitions(decode)
        return decoded_frame(self._writer.spark, contract, rows)

    def _put_back(
        self,
        name: str,
        records: list[BadEntry],
        applied: set[tuple[str, int]],
        reasons: Mapping[tuple[str, int], str],
    ) -> None:
        """Store the records that stay, with their new reasons, and then delete the object."""
        staying = [
            replace(entry, reason=reasons.get((name, line), entry.reason))
            for line, entry in enumerate(records)
            if (name, line) not in applied
        ]
        if staying == records:
            return
        self._writer.check_lease()
        instead = self._quarantine.store(batch_of(name), staying) if staying else None
        if instead != name:
            self._quarantine.delete(name)

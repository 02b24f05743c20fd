"""Commits a topic's landing objects to its table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F

from headwater.lake.base.progress import Progress
from headwater.lake.decoding.batches import HeldBatch, undecodable_passes
from headwater.lake.decoding.changes import ROW_TAGS, late_row
from headwater.lake.decoding.decoded_frame import few_rows_frame
from headwater.lake.decoding.usual_changes import StoredObject, UsualChanges
from headwater.lake.sources.landing import Landing, LandingObject, cursor_after
from headwater.lake.table.writer import TableWriter

# What an outage of a minute leaves, compressed, is committed by the driver in parts. More is done sooner by Spark in
# one go, of which readers see nothing until its end.
_BACKLOG_BYTES = 32 * 2**20
_BACKLOG_OBJECTS = 500
# From so much on, compressed, objects are decoded ahead; a few are decoded by the table's own thread.
_AHEAD_BYTES = 8 * 2**20
_TIMES_AS_MUCH = 4
"""How many times as much as others the table holds that decodes ahead."""


class LandedChanges:
    """Hands a topic's landing objects to ``writer``, that of its table, in the order of offsets."""

    def __init__(self, writer: TableWriter, landing: Landing) -> None:
        self.writer = writer
        self._landing = landing
        # Listed already, and not committed.
        self._waiting: list[LandingObject] = []
        self._usual: tuple[tuple[int, str], UsualChanges] | None = None
        self._table = writer.contract.table
        self._ahead = writer.services.decoding

    def commit_next(self) -> bool:
        """Commit what has landed since the last commit, and say whether there was anything. Raises LandingGap."""
        objects = self._waiting or self._landing.after(self.writer.progress.cursor, self.writer.settings.batch_bytes)
        if not objects:
            self.writer.maintain()
            return False
        held, few = self._held(objects)
        chosen = few or objects
        is_late = self._report_beginnings(chosen, self.writer.progress.cursor) and self.writer.contract.is_history

        def advance(last: Progress) -> Progress:
            return replace(last, cursor=cursor_after(last.cursor, chosen))

        def clear() -> None:
            self.writer.clear_landing([(landed.bucket, landed.key) for landed in chosen])

        name = f"{objects[0].source.replace('/', '-')}-{objects[0].first:020d}"
        if few:
            if is_late:
                held.add([self._late(held.counts("", "").lowest)])
            self.writer.commit_held(held, name, advance, clear)
        else:
            usual = self._decoder()
            listed = [StoredObject(landed.source, landed.uri) for landed in objects]
            frame = usual.frame(listed, self.writer.settings.parallelism)
            if is_late:
                (lowest,) = frame.agg(F.min("_order")).first() or (None,)
                note = few_rows_frame(self.writer.spark, self.writer.contract, [self._late(lowest or "")])
                frame = frame.unionByName(note)
            self.writer.commit(frame, name, advance, usual.careful_frame, clear)
        self._waiting = objects[len(chosen) :]
        if not self._waiting:
            self._ahead.rest(self._table)
        self.writer.maintain()
        return True

    def expire(self, before: dt.datetime, others: Iterable[Mapping[str, int]] = ()) -> int:
        """Delete what landed before that moment and is committed, as ``Landing.expire`` does; ``others`` are the
        cursors of the other tables that are made of the topic."""
        cursor = self.writer.progress.cursor
        for other in others:
            cursor = {source: min(next_, other.get(source, 0)) for source, next_ in cursor.items()}
        return self._landing.expire(cursor, before)

    def _report_beginnings(self, objects: list[LandingObject], known: Mapping[str, int]) -> bool:
        """Report the partitions that are read for the first time and whose first changes are not there any more; say
        whether there are any."""
        seen = set(known)
        is_late = False
        for landed in objects:
            if landed.source not in seen and landed.first:
                is_late = True
                self.writer.services.report(
                    {
                        "event": "begins late",
                        "table": self.writer.contract.table,
                        "main_table": self.writer.contract.main_table,
                        "partition": landed.source,
                        "first_offset": landed.first,
                    }
                )
            seen.add(landed.source)
        return is_late

    def _late(self, lowest: str) -> tuple[Any, ...]:
        """What a history notes that begins late, in the columns of ``columns_tagged``."""
        return late_row(self.writer.contract, lowest, self.writer.progress.epoch) + ROW_TAGS

    def _held(self, objects: list[LandingObject]) -> tuple[HeldBatch, list[LandingObject]]:
        """Those of the objects that the driver decodes, and the batch that they are; none where the first, or all that
        wait, are much."""
        held = HeldBatch(self.writer.spark, self.writer.contract)
        size = sum(landed.size for landed in objects)
        if len(objects) > _BACKLOG_OBJECTS or size > _BACKLOG_BYTES:
            return held, []
        usual = self._decoder()
        is_backlog = len(objects) > 1 and size > _AHEAD_BYTES and self.writer.commits_held
        with undecodable_passes(self.writer.contract):
            if self._ahead.has_turn(self._table) or (is_backlog and self._ahead.take_turn(self._table)):
                few = self._take_ahead(held, objects, usual)
            else:
                few = self._take_each(held, objects, usual)
            held.add(usual.careful_rows(held.take_left()))
        return held, few

    def _take_each(self, held: HeldBatch, objects: list[LandingObject], usual: UsualChanges) -> list[LandingObject]:
        """Decode objects into the batch until it is full, and return them."""
        few: list[LandingObject] = []
        for landed in objects:
            if not held.add_decoded(self._lines(landed, usual), self.writer.settings.held_bytes):
                break
            few.append(landed)
        return few

    def _take_ahead(self, held: HeldBatch, objects: list[LandingObject], usual: UsualChanges) -> list[LandingObject]:
        """As ``_take_each``, of a table whose turn it is: it decodes ahead, and the batch takes more."""
        most_others = self.writer.settings.held_bytes
        most = most_others * _TIMES_AS_MUCH
        few: list[LandingObject] = []

        def decode(landed: LandingObject) -> HeldBatch | None:
            one = HeldBatch(self.writer.spark, self.writer.contract)
            return one if one.add_decoded(self._lines(landed, usual), most) else None

        for landed, one in zip(objects, self._ahead.decoded(objects, decode), strict=False):
            if one is None or not held.take(one, most, most_others):
                self._ahead.give_back(landed, one)
                break
            few.append(landed)
        return few

    def _lines(self, landed: LandingObject, usual: UsualChanges) -> Any:
        """Java's ``DecodedRows`` of an object."""
        return usual.decoder.decode(landed.source, self._landing.body(landed))

    def _decoder(self) -> UsualChanges:
        """The decoder, another one where the progress has changed what it goes by."""
        progress = self.writer.progress
        goes_by = (progress.epoch, progress.purged)
        if self._usual is None or self._usual[0] != goes_by:
            self._ahead.forget(self._table)
            self._usual = goes_by, UsualChanges(self.writer.spark, self.writer.contract, *goes_by)
        return self._usual[1]

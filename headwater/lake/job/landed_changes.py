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

# Compressed bytes, about the backlog of a minute's outage. The driver commits a backlog of at most this size, in parts.
# Spark commits a larger backlog sooner, but by one commit: until then, readers see no change of it.
_BACKLOG_BYTES = 32 * 2**20
_BACKLOG_OBJECTS = 500
# A backlog of this size, compressed, is decoded ahead. The table's own thread decodes a smaller one.
_AHEAD_BYTES = 8 * 2**20
_TIMES_AS_MUCH = 4
"""A driver batch of the table that decodes ahead may be this many times as large as others."""


class LandedChanges:
    """Hands a topic's landing objects to its table's ``writer``, in the order of offsets."""

    def __init__(self, writer: TableWriter, landing: Landing) -> None:
        self.writer = writer
        self._landing = landing
        # Objects that are listed, but not committed yet.
        self._waiting: list[LandingObject] = []
        self._usual: tuple[tuple[int, str], UsualChanges] | None = None
        self._table = writer.contract.table
        self._ahead = writer.services.decoding

    def commit_next(self) -> bool:
        """Commit the next landing objects. Returns whether there were any. Raises LandingGap."""
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

        # A small batch is decoded in the driver already. Otherwise Spark reads, decodes and commits all objects.
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
        """Delete committed landing objects from before a moment, as ``Landing.expire`` does.

        ``others`` are the cursors of the other tables that are written from the topic.
        """
        cursor = self.writer.progress.cursor
        for other in others:
            cursor = {source: min(next_, other.get(source, 0)) for source, next_ in cursor.items()}
        return self._landing.expire(cursor, before)

    def _report_beginnings(self, objects: list[LandingObject], known: Mapping[str, int]) -> bool:
        """Report every new partition that no longer starts at offset 0. Returns True if there is one."""
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
        """The row in a history that records its late beginning, in the columns of ``columns_tagged``."""
        return late_row(self.writer.contract, lowest, self.writer.progress.epoch) + ROW_TAGS

    def _held(self, objects: list[LandingObject]) -> tuple[HeldBatch, list[LandingObject]]:
        """Decode the leading objects in the driver. Returns the batch and its objects.

        There are no objects if the first one or the whole backlog is too large.
        """
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
        """Decode objects into the batch until the batch is full. Returns these objects."""
        few: list[LandingObject] = []
        for landed in objects:
            if not held.add_decoded(self._lines(landed, usual), self.writer.settings.held_bytes):
                break
            few.append(landed)
        return few

    def _take_ahead(self, held: HeldBatch, objects: list[LandingObject], usual: UsualChanges) -> list[LandingObject]:
        """Fill the batch as ``_take_each`` does, while the next objects are decoded ahead.

        The table has the turn to decode ahead, so its batch may be larger.
        """
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
        """The decoder; a new one if the epoch or the purged order has changed."""
        progress = self.writer.progress
        made_for = (progress.epoch, progress.purged)
        if self._usual is None or self._usual[0] != made_for:
            self._ahead.forget(self._table)
            self._usual = made_for, UsualChanges(self.writer.spark, self.writer.contract, *made_for)
        return self._usual[1]

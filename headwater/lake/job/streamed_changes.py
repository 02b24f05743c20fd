"""Commits a Kinesis stream's records from DynamoDB to their table."""

from __future__ import annotations

from dataclasses import replace

from headwater.lake.base.progress import Progress
from headwater.lake.decoding.batches import HeldBatch, undecodable_passes
from headwater.lake.decoding.usual_items import StreamedRecord, UsualItems
from headwater.lake.sources.kinesis import KinesisStream, Record
from headwater.lake.sources.shard_ranges import ReadRanges
from headwater.lake.table.writer import TableWriter

_DRIVER_BYTES = 8 * 1024 * 1024
"""The largest number of bytes that the driver decodes for one commit. Executors read and decode a larger backlog."""
_RANGE_BYTES = 32 * 1024 * 1024
"""The largest number of bytes that one executor's task reads. A shard gives these in 16 s, so tasks of other tables
wait no longer."""


class StreamedChanges:
    """Hands the records of a stream to their table's ``writer``. ``source_table`` is the DynamoDB table's name."""

    def __init__(self, writer: TableWriter, stream: KinesisStream, source_table: str) -> None:
        self._writer = writer
        self._stream = stream
        self._source_table = source_table
        self._is_behind = False
        self._usual: tuple[tuple[int, str], UsualItems] | None = None

    def commit_next(self) -> bool:
        """Commit the stream's next records. Returns whether there were any. Raises ShardGone."""
        worked = self._is_behind or self._commit_in_driver()
        if self._is_behind:
            self._commit_by_executors()
        self._writer.maintain()
        return worked

    def _commit_in_driver(self) -> bool:
        """Read a batch in the driver and commit it, or leave a larger batch to the executors.

        Returns whether there was any record.
        """
        records, cursor = self._stream.read(self._writer.progress.cursor, _DRIVER_BYTES)
        if sum(len(record.data) for record in records) > _DRIVER_BYTES:
            self._is_behind = True
        elif records:
            held = HeldBatch(self._writer.spark, self._writer.contract)
            with undecodable_passes(self._writer.contract):
                self._decoder().hold([_streamed(record) for record in records], held)
            name = f"{records[0].shard}-{records[0].sequence}"
            self._writer.commit_held(held, name, lambda last: replace(last, cursor=cursor))
        return bool(records)

    def _commit_by_executors(self) -> None:
        """Commit a batch that executors read and decode, each task a range of one shard."""
        ranges, cursor = self._stream.ranges(self._writer.progress.cursor)
        most_bytes = min(self._writer.settings.batch_bytes // len(ranges), _RANGE_BYTES)
        read = ReadRanges(self._writer.spark, ranges, most_bytes)
        usual = self._decoder()

        def advance(last: Progress) -> Progress:
            return replace(last, cursor={**cursor, **read.cursor})

        name = f"{ranges[0].shard}-{ranges[0].after}"
        self._writer.commit(usual.frame(read.records.map(_streamed)), name, advance, usual.careful_frame)
        # Go on with the executors: if the driver read such a batch again, it would only leave the batch to them.
        self._is_behind = read.is_behind or read.size > _DRIVER_BYTES

    def _decoder(self) -> UsualItems:
        """The decoder; a new one if the epoch or the purged order has changed."""
        progress, writer = self._writer.progress, self._writer
        made_for = (progress.epoch, progress.purged)
        if self._usual is None or self._usual[0] != made_for:
            usual = UsualItems(writer.spark, writer.contract, *made_for, self._source_table, writer.settings.mask_key)
            self._usual = made_for, usual
        return self._usual[1]


def _streamed(record: Record) -> StreamedRecord:
    return record.data, record.sequence, f"{record.shard}/{record.sequence}"

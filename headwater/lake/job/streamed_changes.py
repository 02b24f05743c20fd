"""Commits a Kinesis stream's records from DynamoDB to their table."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.errors import UserError
from headwater.lake.base.progress import Progress
from headwater.lake.decoding.batches import HeldBatch, undecodable_passes
from headwater.lake.decoding.usual_items import StreamedRecord, UsualItems
from headwater.lake.sources.kinesis import KinesisStream
from headwater.lake.table.writer import TableWriter

# How Glue's Kinesis source calls a record's data when it is told not to parse it, in some releases with a dot, and how
# Spark's own sources do.
_DATA = ("$json$data_infer_schema$_temporary$", "$json$data_infer_schema$.temporary$", "data")
# A batch whose records have so many bytes at most is held in the driver.
_HELD_BYTES = 8 * 1024 * 1024
_SEQUENCE = "sequenceNumber"
_SHARD = "shardId"


class StreamedChanges:
    """Hands the records of a stream to the writer of their table. ``source_table`` is the DynamoDB table's name. Every
    commit notes when streaming began, where that is not known yet."""

    def __init__(self, writer: TableWriter, source_table: str) -> None:
        self._writer = writer
        self._source_table = source_table
        self._usual: tuple[tuple[int, str], UsualItems] | None = None

    def commit_read(self, stream: KinesisStream) -> bool:
        """Commit what the stream holds after the last commit, and say whether there was anything."""
        settings = self._writer.settings
        records, cursor = stream.read(self._writer.progress.cursor, settings.batch_bytes)
        if not records:
            self._writer.maintain()
            return False

        def advance(last: Progress) -> Progress:
            return replace(last, cursor=cursor).with_streaming_start()

        streamed: list[StreamedRecord] = [
            (record.data, record.sequence, f"{record.shard}/{record.sequence}") for record in records
        ]
        name = f"{records[0].shard}-{records[0].sequence}"
        usual = self._decoder()
        if sum(len(record.data) for record in records) > _HELD_BYTES:
            batch = usual.spread(streamed, settings.parallelism)
            self._writer.commit(batch, name, advance, usual.careful_frame)
        else:
            held = HeldBatch(self._writer.spark, self._writer.contract)
            with undecodable_passes(self._writer.contract):
                usual.hold(streamed, held)
            self._writer.commit_held(held, name, advance)
        self._writer.maintain()
        return True

    def maintain(self) -> None:
        """As ``TableWriter.maintain`` does; ``commit_read`` does it too, and ``commit_frame`` does not."""
        self._writer.maintain()

    def commit_frame(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch of Structured Streaming. A batch that is repeated after a failure, even with more
        records than before, changes nothing that was already applied: the order of changes decides, never the batch."""
        usual = self._decoder()
        batch = usual.frame(frame.select(*_columns(frame)))
        name = f"batch-{batch_id:020d}"
        self._writer.commit(batch, name, Progress.with_streaming_start, usual.careful_frame)

    def _decoder(self) -> UsualItems:
        """The decoder for the progress as it is."""
        progress, writer = self._writer.progress, self._writer
        known_by = (progress.epoch, progress.purged)
        if self._usual is None or self._usual[0] != known_by:
            usual = UsualItems(writer.spark, writer.contract, *known_by, self._source_table, writer.settings.mask_key)
            self._usual = known_by, usual
        return self._usual[1]


def _columns(frame: DataFrame) -> tuple[Column, Column, Column]:
    """Data in bytes, sequence number (null where the source has none) and position of a micro-batch's records. Raises
    UserError."""
    names = [name for name in _DATA if name in frame.columns]
    if not names:
        raise UserError(f"Kinesis source: found the columns {', '.join(frame.columns)}, expected {' or '.join(_DATA)}")

    def text(name: str) -> Column:
        return F.col(name).cast("string") if name in frame.columns else F.lit(None).cast("string")

    position = F.concat_ws("/", text(_SHARD), text(_SEQUENCE))
    return F.col(f"`{names[0]}`").cast("binary"), text(_SEQUENCE).alias("sequence"), position.alias("position")

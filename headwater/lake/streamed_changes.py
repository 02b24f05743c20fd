"""Commits a Kinesis stream's records from DynamoDB to their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark import RDD
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.errors import UserError
from headwater.lake.batches import HeldBatch, undecodable_passes
from headwater.lake.decoded_frame import decoded_frame, spread
from headwater.lake.dynamodb_decoder import DynamoDecoder, decode_records
from headwater.lake.kinesis import KinesisStream
from headwater.lake.progress import Progress
from headwater.lake.writer import Advance, TableWriter

# How Glue's Kinesis source calls a record's data when it is told not to parse it, in some releases with a dot, and how
# Spark's own sources do.
_DATA = ("$json$data_infer_schema$_temporary$", "$json$data_infer_schema$.temporary$", "data")
# A batch whose records have so many bytes at most is held in the driver, where Python decodes it.
_HELD_BYTES = 8 * 1024 * 1024
_SEQUENCE = "sequenceNumber"
_SHARD = "shardId"


class StreamedChanges:
    """Hands the records of a stream to the writer of their table. ``source_table`` is the DynamoDB table's name. Every
    commit notes when streaming began, where that is not known yet."""

    def __init__(self, writer: TableWriter, source_table: str) -> None:
        self._writer = writer
        self._source_table = source_table

    def commit_read(self, stream: KinesisStream) -> bool:
        """Commit what the stream holds after the last commit, and say whether there was anything."""
        settings = self._writer.settings
        records, cursor = stream.read(self._writer.progress.cursor, settings.batch_bytes)
        if not records:
            self._writer.settle()
            return False

        def advance(last: Progress) -> Progress:
            return replace(last, cursor=cursor).with_streaming_start()

        parts = [(record.data, record.sequence, f"{record.shard}/{record.sequence}") for record in records]
        name = f"{records[0].shard}-{records[0].sequence}"
        if sum(len(record.data) for record in records) > _HELD_BYTES:
            self._commit(spread(self._writer.spark, parts, settings.parallelism), name, advance)
        else:
            held = HeldBatch(self._writer.spark, self._writer.contract)
            with undecodable_passes(self._writer.contract):
                held.add(self._decoder()(parts))
            self._writer.commit_held(held, name, advance)
        return True

    def settle(self) -> None:
        """As ``TableWriter.settle`` does; ``commit_read`` does it too."""
        self._writer.settle()

    def commit_frame(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch of Structured Streaming. A batch that is repeated after a failure, even with more
        records than before, changes nothing that was already applied: the order of changes decides, never the batch."""
        data, sequence, position = _columns(frame)
        records = frame.select(data, sequence, position).rdd
        self._commit(records, f"batch-{batch_id:020d}", Progress.with_streaming_start)

    def _commit(self, records: RDD[Any], name: str, advance: Advance) -> None:
        batch = decoded_frame(self._writer.spark, self._writer.contract, records.mapPartitions(self._decoder()))
        self._writer.commit(batch, name, advance)

    def _decoder(self) -> Callable[[Iterable[Any]], Iterator[tuple[Any, ...]]]:
        """What decodes a part of a batch's records, wherever it runs."""
        contract, epoch, table = self._writer.contract, self._writer.progress.epoch, self._source_table
        mask_key, purged = self._writer.settings.mask_key, self._writer.progress.purged

        def decode(part: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
            plain = ((bytes(data) if isinstance(data, bytearray) else data, *where) for data, *where in part)
            return decode_records(plain, DynamoDecoder(contract, epoch, table, mask_key), purged)

        return decode


def _columns(frame: DataFrame) -> tuple[Column, Column, Column]:
    """Data, sequence number (null where the source has none) and position of a micro-batch's records. Raises
    UserError."""
    names = [name for name in _DATA if name in frame.columns]
    if not names:
        raise UserError(f"Kinesis source: found the columns {', '.join(frame.columns)}, expected {' or '.join(_DATA)}")

    def text(name: str) -> Column:
        return F.col(name).cast("string") if name in frame.columns else F.lit(None).cast("string")

    position = F.concat_ws("/", text(_SHARD), text(_SEQUENCE))
    return F.col(f"`{names[0]}`"), text(_SEQUENCE).alias("sequence"), position.alias("position")

"""Streamed changes: from DynamoDB's records in a Kinesis stream to a table's commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.lake.changes import columns_tagged
from headwater.lake.dynamodb_decoder import DynamoDecoder, decode_records
from headwater.lake.kinesis import KinesisStream
from headwater.lake.table import Progress
from headwater.lake.writer import Advance, TableWriter, WriterSettings

# How Glue's Kinesis source calls a record's data when it is told not to parse it, and how Spark's own sources do.
_DATA = ("$json$data_infer_schema$_temporary$", "data")
_SEQUENCE = "sequenceNumber"
_SHARD = "shardId"


class StreamedChanges:
    """Hands the records of a stream to the writer of their table. ``source_table`` is the DynamoDB table's name."""

    def __init__(
        self, spark: SparkSession, contract: Contract, writer: TableWriter, source_table: str, settings: WriterSettings
    ) -> None:
        self._spark = spark
        self._contract = contract
        self._writer = writer
        self._source_table = source_table
        self._settings = settings

    def commit_read(self, stream: KinesisStream) -> bool:
        """Commit what the stream holds after the last commit, and say whether there was anything."""
        last = self._writer.progress.cursor
        records, cursor = stream.read(last, self._settings.batch_bytes)
        if not records:
            return False

        def advance(progress: Progress) -> Progress:
            return replace(progress, cursor=cursor)

        rows = [(record.data, record.sequence, f"{record.shard}/{record.sequence}") for record in records]
        slices = min(len(rows), self._settings.parallelism)
        batch = self._spark.sparkContext.parallelize(rows, slices)
        self._commit(batch, f"{records[0].shard}-{records[0].sequence}", advance)
        return True

    def commit_frame(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch of Structured Streaming. A batch that is repeated after a failure, even with more
        records than before, changes nothing that was already applied: the order of changes decides, never the batch."""
        data, sequence, position = _columns(frame)
        self._commit(frame.select(data, sequence, position).rdd, f"batch-{batch_id:020d}", lambda progress: progress)

    def _commit(self, records: RDD[Any], name: str, advance: Advance) -> None:
        contract, epoch, table = self._contract, self._settings.epoch, self._source_table

        def decode(part: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
            plain = ((bytes(data) if isinstance(data, bytearray) else data, *where) for data, *where in part)
            return decode_records(plain, DynamoDecoder(contract, epoch, table))

        schema = ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))
        rows = self._spark.createDataFrame(records.mapPartitions(decode), schema, verifySchema=False)
        self._writer.commit(rows, name, _since(advance))


def _since(advance: Advance) -> Callable[[Progress], Progress]:
    """Note when the stream began to be followed, where that is not known yet: all changes from now on are in it."""

    def noted(progress: Progress) -> Progress:
        following = advance(progress)
        return following if following.since else replace(following, since=time.time_ns() // 1000)

    return noted


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

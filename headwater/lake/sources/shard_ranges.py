"""Reads ranges of a stream's shards on Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark import RDD, Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from headwater.lake.decoding.decoded_frame import spread
from headwater.lake.sources.kinesis import READ_TO_END, Record, ShardRange, ShardReader, client


class RangeEnd(NamedTuple):
    """The end of a range after it was read."""

    after: int
    """The sequence number of the last record, or ``NOTHING_READ``."""
    is_closed: bool
    """Whether the shard holds no more records."""
    is_behind: bool
    """Whether more records waited."""
    size: int
    """How many bytes of records were read."""


class ReadRanges:
    """The records of ranges as an RDD. One task reads one range.

    A range ends at the shard's end, or with the record by which it exceeds ``most_bytes``. If Spark repeats a task, the
    task ends at the same record, or later if the shard had ended before. The next batch then reads the records after
    the first end again.

    - ``most_records``: the largest number of records of one call to Kinesis.
    """

    def __init__(
        self, spark: SparkSession, ranges: Sequence[ShardRange], most_bytes: int, most_records: int = 10_000
    ) -> None:
        self._ends: Accumulator[dict[str, RangeEnd]] = spark.sparkContext.accumulator({}, _FirstEnds())
        ends = self._ends

        def read(part: ShardRange) -> Iterator[Record]:
            reader = ShardReader(client(part.place), part.stream, part.shard, part.after)
            size = 0
            while reader.is_behind:
                for record in reader.poll(most_records):
                    size += len(record.data)
                    yield record
                    # Stop at a record, not at the end of a call, because a repeated call may end at another record.
                    if size > most_bytes:
                        ends.add({part.source: RangeEnd(int(record.sequence), False, True, size)})
                        return
            ends.add({part.source: RangeEnd(reader.after, reader.is_closed, False, size)})

        self.records: RDD[Record] = spread(spark, ranges, len(ranges)).flatMap(read)
        """The records; each shard's records are in order."""

    @property
    def cursor(self) -> dict[str, int]:
        """The cursor after the ranges, once all records were read."""
        return {source: READ_TO_END if end.is_closed else end.after for source, end in self._ends.value.items()}

    @property
    def size(self) -> int:
        """How many bytes of records the ranges had, once all were read."""
        return sum(end.size for end in self._ends.value.values())

    @property
    def is_behind(self) -> bool:
        """Whether more records waited in a range, once all were read."""
        return any(end.is_behind for end in self._ends.value.values())


class _FirstEnds(AccumulatorParam[dict[str, RangeEnd]]):
    """Accumulates ends by shard.

    If a range has two ends, the first one counts: both tasks have read all records before it.
    """

    def zero(self, value: dict[str, RangeEnd]) -> dict[str, RangeEnd]:
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[str, RangeEnd], value2: dict[str, RangeEnd]
    ) -> dict[str, RangeEnd]:
        for source, end in value2.items():
            value1[source] = min(end, value1.get(source, end))
        return value1

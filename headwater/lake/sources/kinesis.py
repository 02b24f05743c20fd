"""A Kinesis stream read through its API, shard by shard, where Glue's own source does not exist.

A shard is read to its end before the shards that it was split or merged into, so that the changes of one key keep the
order of the stream across a reshard. The caller keeps the cursor, in the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ShardCursor = Mapping[str, int]
"""The sequence number of the last record read of each ``stream/shard``, or ``READ_TO_END`` or ``NOTHING_READ``."""

READ_TO_END = -1
"""For a closed shard: it will hold no more records."""
NOTHING_READ = 0
"""For a shard that has held no record yet."""
_RECORDS_PER_CALL = 10_000
TRIM_HORIZON = "TRIM_HORIZON"
LATEST = "LATEST"


class ShardGone(RuntimeError):
    """The stream no longer has a shard that was not read to its end; going on would lose changes."""


@dataclass(frozen=True)
class Record:
    """One record; ``sequence`` is its sequence number in decimal digits."""

    data: bytes
    sequence: str
    shard: str


def list_shards(kinesis: Any, stream: str) -> Iterator[dict[str, Any]]:
    """The shards of a stream of that name, as boto3's client describes them."""
    request: dict[str, Any] = {"StreamName": stream}
    while True:
        answer = kinesis.list_shards(**request)
        yield from answer["Shards"]
        if not answer.get("NextToken"):
            return
        request = {"NextToken": answer["NextToken"]}


class KinesisStream:
    """The open end of a stream. ``start`` (TRIM_HORIZON or LATEST) is for the shards that exist at the first read;
    shards that a later reshard makes are always read from their beginning."""

    def __init__(self, kinesis: Any, arn: str, start: str) -> None:
        self._kinesis = kinesis
        self._name = arn.rpartition("/")[2]
        self._start = start
        self._iterators: dict[str, str] = {}
        self._at_first: set[str] | None = None
        # Where a cursor is at a closed shard's end, although it may not say so: what holds no record makes no commit.
        self._ends: dict[str, int] = {}

    def read(self, cursor: ShardCursor, most_bytes: int) -> tuple[list[Record], dict[str, int]]:
        """Records after the cursor, of every shard whose parents are read to their end, until ``most_bytes`` are
        reached, and the cursor after them. Entries of shards that the stream no longer knows are dropped. Raises
        ShardGone where such a shard was not read to its end."""
        shards = {shard["ShardId"]: shard for shard in list_shards(self._kinesis, self._name)}
        self._check_gone({source: cursor[source] for source in cursor.keys() - {self._source(name) for name in shards}})
        reached = {self._source(name): cursor[self._source(name)] for name in shards if self._source(name) in cursor}
        if self._at_first is None:
            self._at_first = set(shards)
        records: list[Record] = []
        total = 0
        for name in _parents_first(shards):
            source = self._source(name)
            if reached.get(source) == READ_TO_END or not self._is_due(shards[name], shards, reached):
                continue
            if total >= most_bytes:
                break
            first = not cursor and name in self._at_first
            read, end = self._records(name, reached.get(source), first)
            total += sum(len(record.data) for record in read)
            records += read
            if read or source not in reached:
                reached[source] = int(read[-1].sequence) if read else NOTHING_READ
            if end:
                self._ends[source] = reached[source]
                reached[source] = READ_TO_END
        return records, reached

    def _check_gone(self, gone: ShardCursor) -> None:
        """Raise ShardGone unless these shards of this stream, or of others, were read to their ends."""
        for source, last in sorted(gone.items()):
            of_this = source.startswith(self._source(""))
            if of_this and last != READ_TO_END and self._ends.get(source) != last:
                raise ShardGone(
                    f"{source}: the stream no longer has this shard, and what it held after "
                    f"{last or 'its beginning'} was not read: the stream's retention has ended. Raise the epoch "
                    "(glue.epoch in the environment's file, then deploy): the job then reads what the stream still "
                    "has, from its starting position. Then load a new export (headwater backfill), which mends the "
                    "rest."
                )

    def _source(self, shard: str) -> str:
        return f"{self._name}/{shard}"

    def _is_due(self, shard: Mapping[str, Any], shards: Mapping[str, Any], reached: ShardCursor) -> bool:
        """Whether the shard's parents are read to their end, or older than the stream's retention."""
        parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        return all(
            parent is None or parent not in shards or reached.get(self._source(parent)) == READ_TO_END
            for parent in parents
        )

    def _records(self, shard: str, last: int | None, first: bool) -> tuple[list[Record], bool]:
        """Some records of a shard, and whether it is closed and read to its end."""
        iterator = self._iterators.pop(shard, None) or self._iterator(shard, last, first)
        try:
            answer = self._kinesis.get_records(ShardIterator=iterator, Limit=_RECORDS_PER_CALL)
        except self._kinesis.exceptions.ExpiredIteratorException:
            iterator = self._iterator(shard, last, first)
            answer = self._kinesis.get_records(ShardIterator=iterator, Limit=_RECORDS_PER_CALL)
        following = answer.get("NextShardIterator")
        if following:
            self._iterators[shard] = following
        records = [Record(record["Data"], record["SequenceNumber"], shard) for record in answer["Records"]]
        return records, not following

    def _iterator(self, shard: str, last: int | None, first: bool) -> str:
        request: dict[str, Any] = {"StreamName": self._name, "ShardId": shard}
        if last:
            request |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(last)}
        else:
            request |= {"ShardIteratorType": self._start if first else TRIM_HORIZON}
        return str(self._kinesis.get_shard_iterator(**request)["ShardIterator"])


def _parents_first(shards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Shard ids grow with time, so parents come before the shards that they became."""
    return sorted(shards)

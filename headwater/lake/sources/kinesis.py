"""A Kinesis stream, read through its API, several shards at the same time.

A shard is read to its end before its children, the shards of a split or a merge. So the changes of one key keep their
order across a reshard. The caller keeps the cursor, in the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

ShardCursor = Mapping[str, int]
"""The position in each ``stream/shard``: the sequence number of the last record that was read, ``READ_TO_END`` or
``NOTHING_READ``."""

READ_TO_END = -1
"""The cursor of a closed shard that will have no more records."""
NOTHING_READ = 0
"""The cursor of a shard before its first record."""
SHARDS_AT_ONCE = 16
"""How many shards the driver of a job reads at the same time, for all tables together."""
_DRIVER_RECORDS = 1_000
"""The largest number of records that one call of the driver fetches. If a batch is too large for the driver, it drops
these records."""
_PARENTS = ("ParentShardId", "AdjacentParentShardId")
"""The fields of a shard's description that name its parents."""
_ATTEMPTS = 10
"""Attempts of a call. A shard gives 2 MB a second, and an answer may have 10 MB. So the next call may have to wait for
5 s."""


_NEXT_STEP = (
    "Raise the epoch (glue.epoch in the environment's file, then deploy): the job then reads the stream from its "
    "oldest record. Then load a new export (headwater backfill), which brings back the changes that are lost."
)


class ShardGone(RuntimeError):
    """The stream has lost a shard, or a part of one, before the job had read all of it.

    If the job went on, changes would be lost.
    """


@dataclass(frozen=True)
class Record:
    """A record of a stream."""

    data: bytes
    """The data that the producer put."""
    sequence: str
    """Its sequence number, in decimal digits."""
    shard: str
    """The id of its shard."""


class Place(NamedTuple):
    """The address of Kinesis."""

    endpoint: str
    """The URL of its API."""
    region: str
    """The name of its region."""


@dataclass(frozen=True)
class ShardRange:
    """A shard's records after a position, which an executor reads by ``records_of``."""

    place: Place
    """The address of Kinesis."""
    stream: str
    """The stream's name."""
    shard: str
    """The shard's id."""
    after: int
    """The sequence number of the last record that was read, or ``NOTHING_READ``."""

    @property
    def source(self) -> str:
        """The shard's name in the cursor."""
        return f"{self.stream}/{self.shard}"


def client(place: Place | None = None) -> Any:
    """Return a boto3 client of Kinesis that waits if it reads a shard faster than Kinesis allows.

    Args:
        place: The address of Kinesis; by default the environment decides.
    """
    config = Config(retries={"mode": "standard", "total_max_attempts": _ATTEMPTS}, max_pool_connections=SHARDS_AT_ONCE)
    if place is None:
        return boto3.client("kinesis", config=config)
    return boto3.client("kinesis", endpoint_url=place.endpoint, region_name=place.region, config=config)


def list_shards(kinesis: Any, stream: str) -> Iterator[dict[str, Any]]:
    """The shards of the stream with that name, as boto3's client describes them."""
    request: dict[str, Any] = {"StreamName": stream}
    while True:
        answer = kinesis.list_shards(**request)
        yield from answer["Shards"]
        if not answer.get("NextToken"):
            return
        request = {"NextToken": answer["NextToken"]}


def is_incomplete(shards: Iterable[Mapping[str, Any]], ended: Collection[str]) -> bool:
    """Whether a listing lacks the children of an ended shard. That happens during a reshard."""
    parents = {shard.get(name) for shard in shards for name in _PARENTS}
    return not parents.issuperset(ended)


class ShardReader:
    """A reader of one shard, from a position or from the shard's oldest record."""

    def __init__(self, kinesis: Any, stream: str, shard: str, after: int) -> None:
        self.after = after
        """The sequence number of the last record that was read, or ``NOTHING_READ``."""
        self.is_closed = False
        """Whether the shard was split or merged, and is now read to its end."""
        self.is_behind = True
        """Whether more records wait, according to the last answer of Kinesis."""
        self._kinesis = kinesis
        self._stream = stream
        self._shard = shard
        self._iterator: str | None = None

    def poll(self, most_records: int) -> list[Record]:
        """Read up to ``most_records`` records by one call. The call may return none although more wait.

        Raises ShardGone if the position is not of this stream.
        """
        answered = self.ask(most_records)
        records = [Record(record["Data"], record["SequenceNumber"], self._shard) for record in answered]
        if records:
            self.after = int(records[-1].sequence)
        return records

    def ask(self, most_records: int) -> Sequence[Mapping[str, Any]]:
        """Read as ``poll`` does, and return the records as boto3 gives them. The position stays as it is."""
        try:
            answer = self._get(self._iterator or self._begin(), most_records)
        except self._kinesis.exceptions.ExpiredIteratorException:
            answer = self._get(self._begin(), most_records)
        self._iterator = answer.get("NextShardIterator")
        self.is_closed = not self._iterator
        self.is_behind = not self.is_closed and answer["MillisBehindLatest"] > 0
        records: Sequence[Mapping[str, Any]] = answer["Records"]
        return records

    def _get(self, iterator: str, most_records: int) -> Any:
        return self._kinesis.get_records(ShardIterator=iterator, Limit=most_records)

    def _begin(self) -> str:
        request: dict[str, Any] = {"StreamName": self._stream, "ShardId": self._shard}
        if self.after:
            request |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(self.after)}
        else:
            request |= {"ShardIteratorType": "TRIM_HORIZON"}
        try:
            return str(self._kinesis.get_shard_iterator(**request)["ShardIterator"])
        except self._kinesis.exceptions.InvalidArgumentException as error:
            raise ShardGone(
                f"{self._stream}/{self._shard}: found {error}, expected the position {self.after} to be this stream's. "
                f"The stream was deleted and created again under the same name, so changes are lost. {_NEXT_STEP}"
            ) from None


class KinesisStream:
    """The records of a stream after a cursor, or from its oldest record.

    ``pool`` reads several shards at the same time; without it, they are read one after the other.
    """

    def __init__(self, kinesis: Any, arn: str, pool: Executor | None = None) -> None:
        self._kinesis = kinesis
        self._name = arn.rpartition("/")[2]
        self._pool = pool
        self._shards: dict[str, dict[str, Any]] = {}
        self._readers: dict[str, ShardReader] = {}

    def read(self, cursor: ShardCursor, most_bytes: int) -> tuple[list[Record], dict[str, int]]:
        """Read the records after the cursor, in every shard whose parents are read to their end.

        Reading stops at the stream's end, or as soon as there are more than ``most_bytes``. Returns the records, and
        the cursor after them, without the shards that the stream no longer has. Raises ShardGone if such a shard was
        not read to its end.
        """
        reached = self._known(cursor)
        records: list[Record] = []
        total = 0
        at_end: set[str] = set()
        # Poll all due shards in turn. When a shard has ended, its children become due.
        while total <= most_bytes:
            due = {name: self._reader(name, reached) for name in self._due(reached) if name not in at_end}
            if not due:
                break
            for (name, reader), read in zip(due.items(), self._polled(list(due.values())), strict=True):
                records += read
                total += sum(len(record.data) for record in read)
                reached[self._source(name)] = READ_TO_END if reader.is_closed else reader.after
                if not reader.is_behind:
                    at_end.add(name)
                if total > most_bytes:
                    # The pool may still read other shards. Drop their readers, and the records of these.
                    self._readers = {}
                    break
        return records, reached

    def _polled(self, readers: Sequence[ShardReader]) -> Iterator[list[Record]]:
        poll = partial(ShardReader.poll, most_records=_DRIVER_RECORDS)
        return map(poll, readers) if self._pool is None or len(readers) == 1 else self._pool.map(poll, readers)

    def ranges(self, cursor: ShardCursor) -> tuple[list[ShardRange], dict[str, int]]:
        """Return ranges that executors read at the same time: one for each shard whose parents are read to their end.

        Also returns the cursor without the shards that the stream no longer has. Raises ShardGone as ``read`` does.
        """
        reached = self._known(cursor)
        place = Place(self._kinesis.meta.endpoint_url, self._kinesis.meta.region_name)
        ranges = [
            ShardRange(place, self._name, name, reached.get(self._source(name), NOTHING_READ))
            for name in self._due(reached)
        ]
        return ranges, reached

    def _listed(self, reached: ShardCursor) -> dict[str, dict[str, Any]]:
        """Return the stream's shards by id.

        The shards are listed again as long as the listing is incomplete.
        """
        ended = {name for name in self._shards if reached.get(self._source(name)) == READ_TO_END}
        if not self._shards or is_incomplete(self._shards.values(), ended):
            self._shards = {shard["ShardId"]: shard for shard in list_shards(self._kinesis, self._name)}
        return self._shards

    def _known(self, cursor: ShardCursor) -> dict[str, int]:
        """The part of a cursor whose shards the stream still has. Raises ShardGone."""
        # If a shard ended without a further record, there was no commit. So only its reader knows that it ended.
        ends = {
            self._source(name): READ_TO_END
            for name, reader in self._readers.items()
            if reader.is_closed and reader.after == cursor.get(self._source(name), NOTHING_READ)
        }
        reached = {**cursor, **ends}
        known = {self._source(name) for name in self._listed(reached)}
        for source in sorted(reached.keys() - known):
            last = reached[source]
            if source.startswith(self._source("")) and last != READ_TO_END:
                raise ShardGone(
                    f"{source}: the stream no longer has this shard, and its records after "
                    f"{last or 'its beginning'} were not read: the stream's retention has ended. {_NEXT_STEP}"
                )
        return {source: last for source, last in reached.items() if source in known}

    def _source(self, shard: str) -> str:
        return f"{self._name}/{shard}"

    def _due(self, reached: ShardCursor) -> list[str]:
        """The shards to read next. Their parents are read to their end, or have left the stream."""
        shards = self._listed(reached)

        def is_open(name: str | None) -> bool:
            return name in shards and reached.get(self._source(name)) != READ_TO_END

        # Ids grow with time, so parents come first.
        return [
            name
            for name in sorted(shards)
            if is_open(name) and not any(is_open(shards[name].get(parent)) for parent in _PARENTS)
        ]

    def _reader(self, shard: str, reached: ShardCursor) -> ShardReader:
        """The reader of a shard at the cursor.

        This is the last reader, or a new one if the last one's records were not committed.
        """
        after = reached.get(self._source(shard), NOTHING_READ)
        reader = self._readers.get(shard)
        if reader is None or reader.after != after:
            reader = self._readers[shard] = ShardReader(self._kinesis, self._name, shard, after)
        return reader

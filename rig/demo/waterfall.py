"""Where changes wait on their way into the lake.

Times come from the places that changes pass: the landing object or stream of each change, and the commit that holds it.
A change is readable when a reader saw it. The writer's events only show the writer's own stages.
"""

from __future__ import annotations

import gzip
import math
from abc import ABC, abstractmethod
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from headwater.lake.base.s3_uri import split_uri
from headwater.lake.sources.kinesis import READ_TO_END, list_shards
from rig.demo.freshness import PublishedInstants

STAGES_TO_S3 = ("source to Debezium", "Debezium to Kafka", "Kafka to S3")
STAGES_TO_KINESIS = ("source to Kinesis",)
_CHANGES = ("c", "u", "d")


def stages_of_writer(store: str, *, told: bool = True) -> tuple[str, ...]:
    """The names of the stages from a change's arrival in ``store`` until it is readable.

    There is only one stage if the writer has not reported (``told``) its commit.
    """
    return (
        (f"{store} to the writer", "decode", "write and commit", "commit to reader")
        if told
        else (f"{store} to the lake",)
    )


class AtWriter(NamedTuple):
    """A writer's times for one batch, in epoch seconds."""

    taken: float
    """The time when the writer took the batch up."""
    decoded: float
    """The time when the batch was decoded; Spark decodes a batch together with its commit."""
    committed: float
    """The time when the commit was complete."""


@dataclass(frozen=True)
class Passed(ABC):
    """A change that is in the lake, with the times at which it passed each point, in epoch seconds."""

    source: float
    """The time of the commit in the source."""
    readable: float = field(kw_only=True)
    """The time when a reader first saw the change in the lake."""
    writer: AtWriter | None = field(default=None, kw_only=True)
    """The writer's own times for the commit, if it reported them."""

    @property
    def seconds(self) -> float:
        """The seconds from the source's commit until the change was readable."""
        return self.readable - self.source

    @property
    def stages(self) -> Mapping[str, float]:
        """The seconds of each stage, by the stage's name. Differences between clocks do not make them negative."""
        stages, store, places = self._way()
        names = stages + stages_of_writer(store, told=self.writer is not None)
        ends = accumulate((self.source, *places, *(self.writer or ()), self.readable), max)
        return dict(zip(names, (after - before for before, after in pairwise(ends)), strict=True))

    @abstractmethod
    def _way(self) -> tuple[tuple[str, ...], str, tuple[float, ...]]:
        """The stages up to the store that the writer reads, the name of that store, and the end of each stage."""


@dataclass(frozen=True)
class PassedS3(Passed):
    """A change of a PostgreSQL row."""

    debezium: float
    """The time when Debezium made an event of the change."""
    kafka: float
    """The time when the event was appended to its topic."""
    landed: float
    """The time when the event landed in S3, which reports whole seconds."""

    def _way(self) -> tuple[tuple[str, ...], str, tuple[float, ...]]:
        return STAGES_TO_S3, "S3", (self.debezium, self.kafka, self.landed)


@dataclass(frozen=True)
class PassedKinesis(Passed):
    """A change of a DynamoDB item. The source's time comes from the change's record."""

    arrived: float
    """The time when the record arrived in Kinesis."""

    def _way(self) -> tuple[tuple[str, ...], str, tuple[float, ...]]:
        return STAGES_TO_KINESIS, "Kinesis", (self.arrived,)


class _Source(msgspec.Struct):
    ts_us: int = 0


class _Event(msgspec.Struct):
    """An event of Debezium. Events other than changes lack some of these fields."""

    op: str = ""
    source: _Source = msgspec.field(default_factory=_Source)
    ts_us: int = 0


class _Line(msgspec.Struct):
    offset: int
    timestamp: int | None
    value: str | None


class _Image(msgspec.Struct):
    ApproximateCreationDateTime: float
    ApproximateCreationDateTimePrecision: str = "MILLISECOND"


class _Record(msgspec.Struct):
    dynamodb: _Image


_line = msgspec.json.Decoder(_Line).decode
_event = msgspec.json.Decoder(_Event).decode
_record = msgspec.json.Decoder(_Record).decode


def passed_s3(
    s3: Any,
    landing: str,
    topics: Mapping[str, str],
    instants: PublishedInstants,
    since: float,
    commits: Iterable[Mapping[str, Any]] = (),
) -> dict[str, list[PassedS3]]:
    """All changes of PostgreSQL's tables since ``since`` (epoch seconds) that are in the lake, by table.

    ``s3`` is boto3's client; ``landing`` is the sink's landing folder (``s3://bucket/prefix``). ``topics`` are the
    names of the topics by table. ``commits`` are the events in which writers report their commits.
    """
    told = _told(commits)

    def of_table(table: str, topic: str) -> Iterator[PassedS3]:
        return _of_topic(s3, landing, topic, _Readable(instants, table, told, lambda cursor: cursor))

    return {
        table: [change for change in of_table(table, topic) if change.source >= since]
        for table, topic in topics.items()
    }


def passed_kinesis(
    kinesis: Any,
    streams: Mapping[str, str],
    instants: PublishedInstants,
    since: float,
    commits: Iterable[Mapping[str, Any]] = (),
) -> dict[str, list[PassedKinesis]]:
    """All changes of DynamoDB's tables since ``since``, in the form of ``passed_s3``.

    ``kinesis`` is boto3's client. ``streams`` are the names of the streams by table; they still hold all changes since
    ``since``. The tables' commits record the position reached in each stream.
    """
    told = _told(commits)

    def of_table(table: str, stream: str) -> Iterator[PassedKinesis]:
        return _of_stream(kinesis, stream, _Readable(instants, table, told, _after_last_read))

    return {
        table: [change for change in of_table(table, stream) if change.source >= since]
        for table, stream in streams.items()
    }


def _told(commits: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], AtWriter]:
    return {
        (commit["table"], commit["instant"]): AtWriter(
            commit["taken_at"], commit["completed_at"] - commit["seconds"], commit["completed_at"]
        )
        for commit in commits
    }


def _after_last_read(cursor: int) -> float:
    """The first sequence number that may not have been read; Kinesis's cursor has the last one that was read."""
    return math.inf if cursor == READ_TO_END else cursor + 1


class _Readable:
    """The times at which the records of a table's topic or stream were readable in the lake.

    ``end`` returns the first offset, or sequence number, after a cursor.
    """

    def __init__(
        self,
        instants: PublishedInstants,
        table: str,
        told: Mapping[tuple[str, str], AtWriter],
        end: Callable[[int], float],
    ) -> None:
        self._ends: dict[str, list[tuple[float, float, AtWriter | None]]] = {}
        for instant, cursor in sorted(instants.cursors[table].items()):
            for source, reached in cursor.items():
                seen = instants.seen[table][instant]
                self._ends.setdefault(source, []).append((end(reached), seen, told.get((table, instant))))

    def at(self, source: str, offset: float) -> tuple[float, AtWriter | None] | None:
        """When a record was readable, and the times that its writer reported.

        A record is an offset of a ``topic/partition``, or a sequence number of a ``stream/shard``. None if no published
        instant holds it yet.
        """
        ends = self._ends.get(source, [])
        at = bisect_right(ends, offset, key=lambda end: end[0])
        return ends[at][1:] if at < len(ends) else None


def _of_topic(s3: Any, landing: str, name: str, readable: _Readable) -> Iterator[PassedS3]:
    bucket, prefix = split_uri(f"{landing}/{name}")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    for listed in (entry for page in pages for entry in page.get("Contents", ())):
        source = f"{name}/{listed['Key'].split('/')[-2]}"
        landed = listed["LastModified"].timestamp()
        body = s3.get_object(Bucket=bucket, Key=listed["Key"])["Body"].read()
        for line in map(_line, gzip.decompress(body).splitlines()):
            seen = readable.at(source, line.offset)
            if line.value is None or line.timestamp is None or seen is None:
                continue
            event = _event(b64decode(line.value))
            if event.op in _CHANGES:
                times = (event.source.ts_us / 1e6, event.ts_us / 1e6, line.timestamp / 1e3, landed)
                yield PassedS3(*times, readable=seen[0], writer=seen[1])


def _of_stream(kinesis: Any, name: str, readable: _Readable) -> Iterator[PassedKinesis]:
    for shard in list_shards(kinesis, name):
        for record in _records(kinesis, name, shard["ShardId"]):
            seen = readable.at(f"{name}/{shard['ShardId']}", int(record["SequenceNumber"]))
            if seen is not None:
                image = _record(record["Data"]).dynamodb
                unit = 1e6 if image.ApproximateCreationDateTimePrecision == "MICROSECOND" else 1e3
                arrived = record["ApproximateArrivalTimestamp"].timestamp()
                changed = image.ApproximateCreationDateTime / unit
                yield PassedKinesis(changed, arrived, readable=seen[0], writer=seen[1])


def _records(kinesis: Any, stream: str, shard: str) -> Iterator[Mapping[str, Any]]:
    """All records in a shard."""
    begun = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
    following = begun["ShardIterator"]
    while following:
        answer = kinesis.get_records(ShardIterator=following)
        yield from answer["Records"]
        # A call may return no records although later ones exist in the shard.
        following = answer.get("NextShardIterator") if answer["Records"] or answer["MillisBehindLatest"] else None


def profile(changes: Sequence[Passed]) -> dict[str, dict[str, float]]:
    """The mean seconds of each stage, for the changes about the median and for the slowest twentieth.

    The stages of a group add up to the group's mean total. Empty without changes.
    """
    ranked = [change.stages for change in sorted(changes, key=lambda change: change.seconds)]
    stages = dict.fromkeys(stage for each in ranked for stage in each)
    number = len(ranked)
    groups = {
        "about the median": ranked[number * 9 // 20 : max(number * 11 // 20, number * 9 // 20 + 1)],
        "the slowest 5 %": ranked[min(number * 19 // 20, number - 1) :],
    }
    return {
        name: {stage: fmean(each.get(stage, 0.0) for each in group) for stage in stages}
        for name, group in groups.items()
        if group
    }

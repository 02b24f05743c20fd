"""Where PostgreSQL's changes wait on their way into the lake, seen at what they pass: every change in its landing
object, and the commits of the lake that hold it. When one was readable is what a reader saw; the writer is asked only
what it did meanwhile."""

from __future__ import annotations

import gzip
from base64 import b64decode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from headwater.contract.model import Contract
from headwater.definitions.connectors import CaptureSettings, topic
from headwater.demo.freshness import PublishedInstants

STAGES_TO_S3 = ("source to Debezium", "Debezium to Kafka", "Kafka to S3")
STAGES_OF_WRITER = ("S3 to the writer", "decode", "write and commit", "commit to reader")
STAGE_OF_LAKE = "S3 to the lake"
"""All that a writer does, where it does not tell of its commits."""
_CHANGES = ("c", "u", "d")


class AtWriter(NamedTuple):
    """When a writer took a batch up, had decoded it and had committed it, in epoch seconds. What Spark decodes is
    decoded with the commit."""

    taken: float
    decoded: float
    committed: float


class Passed(NamedTuple):
    """When a change was at each place, in epoch seconds: committed in the source, made an event of by Debezium,
    appended to its topic, landed in S3 (which tells the second) and seen to be readable in the lake; and what the
    writer tells of the time between the last two."""

    source: float
    debezium: float
    kafka: float
    landed: float
    readable: float
    writer: AtWriter | None = None

    @property
    def seconds(self) -> float:
        """How long it took in all."""
        return self.readable - self.source

    @property
    def stages(self) -> Mapping[str, float]:
        """The seconds between the places by what they are called; clocks that tell less do not make them negative."""
        places = (self.source, self.debezium, self.kafka, self.landed, *(self.writer or ()), self.readable)
        names = STAGES_TO_S3 + (STAGES_OF_WRITER if self.writer else (STAGE_OF_LAKE,))
        spans = (after - before for before, after in pairwise(accumulate(places, max)))
        return dict(zip(names, spans, strict=True))


class _Source(msgspec.Struct):
    ts_us: int = 0


class _Event(msgspec.Struct):
    """An event; those that are no changes may lack what changes have."""

    op: str = ""
    source: _Source = msgspec.field(default_factory=_Source)
    ts_us: int = 0


class _Line(msgspec.Struct):
    offset: int
    timestamp: int | None
    value: str | None


_line = msgspec.json.Decoder(_Line).decode
_event = msgspec.json.Decoder(_Event).decode


def passed(
    s3: Any,
    settings: CaptureSettings,
    contracts: Sequence[Contract],
    instants: PublishedInstants,
    since: float,
    commits: Iterable[Mapping[str, Any]] = (),
) -> dict[str, list[Passed]]:
    """All changes of the contracts' tables that were committed after ``since``, in epoch seconds, and are in the lake,
    by table. ``s3`` is boto3's client; ``commits`` are the events in which writers tell of theirs."""
    told = {
        (commit["table"], commit["instant"]): AtWriter(
            commit["taken_at"], commit["completed_at"] - commit["seconds"], commit["completed_at"]
        )
        for commit in commits
    }
    return {
        contract.table: [
            change
            for change in _of_topic(s3, settings, topic(contract, settings), _Readable(instants, contract.table, told))
            if change.source >= since
        ]
        for contract in contracts
    }


def arrivals(changes: Sequence[Passed], since: float) -> dict[float, int]:
    """How many of the changes were committed in the source in each tenth of a second after ``since`` in which there
    were any, by the seconds since then."""
    return dict(sorted(Counter(round(change.source - since, 1) for change in changes).items()))


class _Readable:
    """When the offsets of a table's topic were readable."""

    def __init__(self, instants: PublishedInstants, table: str, told: Mapping[tuple[str, str], AtWriter]) -> None:
        self._ends: dict[str, list[tuple[int, float, AtWriter | None]]] = {}
        for instant, cursor in sorted(instants.cursors[table].items()):
            for source, end in cursor.items():
                seen = instants.seen[table][instant]
                self._ends.setdefault(source, []).append((end, seen, told.get((table, instant))))

    def at(self, source: str, offset: int) -> tuple[float, AtWriter | None] | None:
        """When that offset of a ``topic/partition`` was readable, and what its writer tells; None where it has not been
        seen."""
        ends = self._ends.get(source, [])
        at = bisect_right(ends, offset, key=lambda end: end[0])
        return ends[at][1:] if at < len(ends) else None


def _of_topic(s3: Any, settings: CaptureSettings, name: str, readable: _Readable) -> Iterator[Passed]:
    prefix = f"{settings.landing_prefix}/{name}/"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=settings.landing_bucket, Prefix=prefix)
    for listed in (entry for page in pages for entry in page.get("Contents", ())):
        source = f"{name}/{listed['Key'].split('/')[-2]}"
        landed = listed["LastModified"].timestamp()
        body = s3.get_object(Bucket=settings.landing_bucket, Key=listed["Key"])["Body"].read()
        for line in map(_line, gzip.decompress(body).splitlines()):
            seen = readable.at(source, line.offset)
            if line.value is None or line.timestamp is None or seen is None:
                continue
            event = _event(b64decode(line.value))
            if event.op in _CHANGES:
                yield Passed(event.source.ts_us / 1e6, event.ts_us / 1e6, line.timestamp / 1e3, landed, *seen)


def profile(changes: Sequence[Passed]) -> dict[str, dict[str, float]]:
    """The mean seconds of each stage, of the changes about the median and of the slowest twentieth; they add up to what
    these changes took in all. Empty without changes."""
    stages = dict.fromkeys(stage for change in changes for stage in change.stages)
    ranked = sorted(changes, key=lambda change: change.seconds)
    number = len(ranked)
    groups = {
        "about the median": ranked[number * 9 // 20 : max(number * 11 // 20, number * 9 // 20 + 1)],
        "the slowest 5 %": ranked[min(number * 19 // 20, number - 1) :],
    }
    return {
        name: {stage: fmean(change.stages.get(stage, 0.0) for change in group) for stage in stages}
        for name, group in groups.items()
        if group
    }

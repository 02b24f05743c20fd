"""Measurements: how many landed changes per second the writer drains, and how fresh an almost idle lake is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.console import Announce
from headwater.contract.reading import read_contracts
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.demo.freshness import PublishedInstants
from rig.demo.memory import MemoryWatch
from rig.demo.report import Freshness
from rig.demo.waterfall import passed_s3
from rig.demo.workloads import SEED
from rig.local.pipeline import DATABASE, Pipeline
from rig.samples.loading import load_generated

_DRAIN_MEMORY = "3g"  # one commit takes in everything that has landed
_BACKLOG_UPDATES = 10  # of every order, while no writer runs
_SAMPLE_SECONDS = 2.0


@dataclass(frozen=True)
class Figures:
    """The pipeline's rate, freshness and memory."""

    changes: int
    """The changes of the first drain."""
    drain_seconds: float
    """The seconds of the first drain."""
    changes_per_second: float
    """The rate of the first drain."""
    backlog_changes: int
    """The changes of the backlog, which is drained into existing tables."""
    backlog_seconds: float
    """The seconds of the backlog's drain."""
    backlog_per_second: float
    """The rate of the backlog's drain."""
    idle_transactions: int
    """The number of single changes for the freshness."""
    idle_freshness_p50: float
    """Seconds from a change's commit in the source until a reader saw it in the lake: the median of all changes."""
    idle_freshness_p95: float
    """The 95th percentile of the same seconds."""
    idle_freshness_max: float
    """The largest of the same seconds."""
    peak_memory_bytes: Mapping[str, int]
    """The peak of each part over the drains and the idle time."""


def run(scale: float, idle_transactions: int, announce: Announce, folder: Path = EXAMPLE.run / "bench") -> Figures:
    """Measure on this machine.

    The changes are real. Debezium takes a snapshot of a database of ``scale`` times Northwind's size, then every order
    is updated once. When all changes have landed, Kafka and Connect stop, and only then the writer starts. The clock
    runs from the start of the writer's first commit to the end of its last one, so the time to warm up counts.

    Next, every order is updated ten more times without a writer. A new writer drains this backlog, measured in the same
    way.

    Then all parts run again, the writer with the same Java compiler as on a cluster. After its first commit,
    ``idle_transactions`` follow, one per second, with one change each.
    """
    with claimed_empty(folder, "the benchmark"), Pipeline(folder, read_contracts(EXAMPLE.contracts)) as pipeline:
        with announce(f"Creating and loading a database of {scale:g} times Northwind's size"):
            pipeline.start_source()
            with pipeline.postgres.connect(DATABASE) as owner:
                load_generated(owner, scale, SEED)
        with announce("Landing a snapshot and an update of every order"):
            pipeline.start_stream()
            pipeline.start_connect()
            _await_landed(pipeline)
            _update_all(pipeline)
        # Kafka and Connect stop, so that the writer has the machine for itself.
        pipeline.connect.stop()
        pipeline.broker.stop()
        with announce("Draining with the writer"):
            drained = _drain(pipeline)
        with announce(f"Landing {_BACKLOG_UPDATES} more updates of every order, without a writer"):
            pipeline.broker.start()
            pipeline.connect.start()
            for _ in range(_BACKLOG_UPDATES):
                _update_all(pipeline)
        pipeline.connect.stop()
        pipeline.broker.stop()
        with announce("Draining this backlog"):
            backlog = _drain(pipeline)
        # With all parts running, the first change warms the writer up.
        with announce("Starting Kafka, Connect and a writer that keeps running"):
            pipeline.broker.start()
            pipeline.connect.start()
            pipeline.start_writer(optimized=True)
            _change_one_by_one(pipeline, 1)
            pipeline.drain()
        s3 = pipeline.aws.client("s3")
        with (
            MemoryWatch(pipeline.memory_bytes, _SAMPLE_SECONDS) as idling,
            PublishedInstants(s3, pipeline.lake().uri, pipeline.contracts) as instants,
            announce(f"Measuring freshness over {idle_transactions} transactions, one per second"),
        ):
            since = time.time()
            _change_one_by_one(pipeline, idle_transactions)
            pipeline.drain()
        changes = passed_s3(s3, pipeline.landing, pipeline.topics, instants, since)
    seconds = [change.seconds for of_table in changes.values() for change in of_table]
    idle = Freshness.of(seconds)
    if idle is None or len(seconds) != idle_transactions:
        raise AssertionError(f"found {len(seconds)} changes in the lake, expected {idle_transactions}")
    return Figures(
        changes=drained.changes,
        drain_seconds=round(drained.seconds, 2),
        changes_per_second=round(drained.changes / drained.seconds, 1),
        backlog_changes=backlog.changes,
        backlog_seconds=round(backlog.seconds, 2),
        backlog_per_second=round(backlog.changes / backlog.seconds, 1),
        idle_transactions=idle_transactions,
        idle_freshness_p50=round(idle.percentile(50), 2),
        idle_freshness_p95=round(idle.percentile(95), 2),
        idle_freshness_max=round(idle.percentile(100), 2),
        peak_memory_bytes={
            part: max(watch.get(part, 0) for watch in (drained.peak, backlog.peak, idling.peak)) for part in idling.peak
        },
    )


@dataclass(frozen=True)
class _Drained:
    changes: int
    seconds: float
    peak: Mapping[str, int]


def _drain(pipeline: Pipeline) -> _Drained:
    """Let a new writer commit all landed changes."""
    before = len(pipeline.events.commits())
    writer = pipeline.start_writer("--once", memory=_DRAIN_MEMORY, optimized=True)
    with MemoryWatch(pipeline.memory_bytes, _SAMPLE_SECONDS) as watch:
        if writer.await_end() != 0:
            writer.check()
    commits = pipeline.events.commits()[before:]
    began = min(commit["completed_at"] - commit["seconds"] for commit in commits)
    ended = max(commit["completed_at"] for commit in commits)
    return _Drained(sum(commit["changes"] for commit in commits), ended - began, watch.peak)


def _update_all(pipeline: Pipeline) -> None:
    """Update every order, and wait until the updates have landed."""
    with pipeline.application() as application:
        application.execute("UPDATE northwind.orders SET freight = freight + 1")
    _await_landed(pipeline)


def landed_end(pipeline: Pipeline, source: str) -> int:
    """The offset up to which a ``topic/partition`` has landed; 0 if nothing has."""
    s3, settings = pipeline.aws.client("s3"), pipeline.settings
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=settings.landing_bucket, Prefix=f"{settings.landing_prefix}/{source}/"
    )
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    if not keys:
        return 0
    return int(s3.head_object(Bucket=settings.landing_bucket, Key=keys[-1])["Metadata"]["next-offset"])


def _change_one_by_one(pipeline: Pipeline, transactions: int) -> None:
    """Make one transaction per second, each with a change of one order."""
    with pipeline.application() as application:
        for _ in range(transactions):
            application.execute(
                "UPDATE northwind.orders SET freight = freight + 1 WHERE order_id ="
                " (SELECT order_id FROM northwind.orders ORDER BY random() LIMIT 1)"
            )
            time.sleep(1)


def _await_landed(pipeline: Pipeline) -> None:
    """Wait until every change that the source has committed so far is in the landing bucket."""
    ends = pipeline.await_captured()

    def landed() -> dict[str, int]:
        pipeline.connect.check()
        return {source: landed_end(pipeline, source) for source in ends}

    def is_landed() -> bool:
        return all(end >= ends[source] for source, end in landed().items())

    wait_until("the changes to land", is_landed, landed, poll=0.5)

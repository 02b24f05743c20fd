"""The demonstration: the whole pipeline on this machine under a live workload, and the proof that nothing was lost."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from headwater import contract, database, northwind, report, workload
from headwater.claims import claim
from headwater.local.pipeline import LAKE, EventLog, Pipeline
from headwater.paths import BUILD, CONTRACTS, RUN
from headwater.verify import TableComparison, read_lake, read_live_table

TRANSACTIONS = 2_400
CONNECTIONS = 6
SEED = 1996
_SAMPLE_SECONDS = 2.0

Step = Callable[[str], AbstractContextManager[None]]
Say = Callable[[str], None]


@dataclass
class Phases:
    """How long each phase took, in seconds, in the order of their beginning."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 2)


class MemoryWatch:
    """The largest resident memory of each part, in bytes, sampled while the pipeline runs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.peak: dict[str, int] = {}
        self._pipeline = pipeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            for name, size in self._pipeline.memory_bytes().items():
                self.peak[name] = max(size, self.peak.get(name, 0))


def run(
    *,
    data: Path | None,
    scale: float,
    seconds: float,
    keep: Callable[[Pipeline], None] | None,
    step: Step,
    say: Say,
    folder: Path = RUN / "demo",
    output: Path = BUILD / "demo",
) -> list[TableComparison]:
    """Run the demonstration and write ``report.html`` and ``report.json`` into ``output``.

    Parameters
    ----------
    data
        A folder of Northwind's CSV files; None: data are generated at ``scale``, 1 being Northwind's size.
    seconds
        How long the live workload lasts.
    keep
        Called with the pipeline still running, after the report; returns when it may stop.

    Raises UserError where a part is missing, dies or does not drain.
    """
    phases = Phases()
    with claim(folder, "the demo"), emptied(folder), Pipeline(folder, contract.load_all(CONTRACTS)) as pipeline:
        with phases.measure("start"):
            pipeline.start(step, lambda owner: _load(owner, data, scale))
        with MemoryWatch(pipeline) as memory:
            with phases.measure("snapshot"), step("Waiting for the first snapshot to reach the lake"):
                pipeline.drain(timeout=600)
            before = _orders(pipeline)
            baseline = report.revenue_by_customer(before)
            say(f"The lake holds {before.num_rows:,} orders; most revenue: {_top(baseline)}")
            workload_began = time.time()
            with (
                phases.measure("workload"),
                step(f"Changing orders over {CONNECTIONS} connections for {seconds:.0f} s"),
            ):
                summary = _workload(pipeline, seconds, say)
            say(f"  {summary.transactions:,} transactions committed")
            with phases.measure("drain"), step("Waiting for the last change to reach the lake"):
                pipeline.drain(timeout=600)
        with phases.measure("verify"), step("Comparing the lake with the source"):
            tables = pipeline.verify()
        with phases.measure("report"), step("Writing the report"):
            report.build(
                output,
                [report.PipelineRun("relational", tables, freshness(pipeline, since=workload_began), summary)],
                phases.seconds,
                _orders(pipeline),
                memory_bytes=memory.peak,
                top_customers_before=[customer.customer_id for customer in baseline[:3]],
            )
        if keep is not None:
            keep(pipeline)
    return tables


@contextmanager
def emptied(folder: Path) -> Iterator[None]:
    """Remove a run's folder with what an earlier run left there."""
    shutil.rmtree(folder, ignore_errors=True)
    yield


def _load(owner: psycopg.Connection, data: Path | None, scale: float) -> None:
    if data is not None:
        database.load(owner, data)
        return
    with tempfile.TemporaryDirectory() as generated:
        northwind.generate(scale, SEED, Path(generated))
        database.load(owner, Path(generated))


def _workload(pipeline: Pipeline, seconds: float, say: Say) -> workload.WorkloadSummary:
    told = time.monotonic()

    def progress(now: workload.WorkloadProgress) -> None:
        nonlocal told
        if time.monotonic() - told >= _SAMPLE_SECONDS:
            told = time.monotonic()
            written = written_by_table(pipeline.events)
            lake = ", ".join(f"{table} {changes:,}" for table, changes in sorted(written.items()))
            say(f"  {now.transactions:,} of {TRANSACTIONS:,} transactions · changes in the lake: {lake}")

    return workload.run(pipeline.application, seconds, TRANSACTIONS, CONNECTIONS, SEED, progress)


def written_by_table(events: EventLog) -> dict[str, int]:
    """How many changes each table's commits held so far."""
    written: dict[str, int] = {}
    for commit in events.commits():
        written[commit["table"]] = written.get(commit["table"], 0) + commit["changes"]
    return written


def _orders(pipeline: Pipeline) -> pa.Table:
    table = read_live_table(f"{LAKE}/orders", pipeline.storage())
    if table is not None:
        return table
    raise AssertionError("drained, yet the orders were never written")


def _top(customers: Sequence[report.CustomerRevenue]) -> str:
    return ", ".join(customer.customer_id for customer in customers[:3])


def freshness(pipeline: Pipeline, since: float) -> report.Freshness | None:
    """Seconds from commit in the source to readable in the lake, of the last change of every row (deleted ones too)
    that was changed after ``since``, in epoch seconds."""
    completed = pipeline.events.completion()
    seconds: list[float] = []
    for one in pipeline.contracts:
        for batch in read_lake(f"{LAKE}/{one.table}", pipeline.storage()):
            instants = batch.column("_hoodie_commit_time").to_pylist()
            micros = pc.cast(batch.column("_source_ts"), pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
            seconds += [
                completed[instant] - changed / 1e6
                for instant, changed in zip(instants, micros, strict=True)
                if changed / 1e6 >= since
            ]
    return report.Freshness.of(seconds)

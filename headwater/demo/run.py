"""The demonstration: the whole pipeline on this machine under a live workload, and the proof that nothing was lost."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from headwater.console import Announce
from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.database.loading import load_folder
from headwater.demo import report
from headwater.folder_lock import claim
from headwater.local.key_value import KeyValuePipeline
from headwater.local.pipeline import LAKE, EventLog, Pipeline
from headwater.paths import BUILD, CONTRACTS, RUN
from headwater.samples import accounts, orders, orders_workload
from headwater.verify import TableComparison, read_lake, read_live_table

# At least so many transactions and item changes, and so many a second in a long run.
CHANGES, CHANGES_A_SECOND = 2_400, 40
CONNECTIONS = 6
ITEMS = 1_000
CLIENTS = 4
SEED = 1996
_SAMPLE_SECONDS = 2.0

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

    def __init__(self, *pipelines: Pipeline | KeyValuePipeline) -> None:
        self.peak: dict[str, int] = {}
        self._pipelines = pipelines
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
            for pipeline in self._pipelines:
                for name, size in pipeline.memory_bytes().items():
                    self.peak[name] = max(size, self.peak.get(name, 0))


def run(
    *,
    data: Path | None,
    scale: float,
    seconds: float,
    keep: Callable[[Mapping[str, str]], None] | None,
    announce: Announce,
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
        Called with everything still running, after the report, with the addresses of the parts; returns when it may
        stop.

    Raises UserError where a part is missing, dies or does not drain.
    """
    phases = Phases()
    contracts = read_contracts(CONTRACTS)
    (key_value_contract,) = of_database(contracts, DYNAMODB)
    with (
        claim(folder, "the demo"),
        emptied(folder),
        Pipeline(folder / "relational", contracts) as relational,
        KeyValuePipeline(folder / "key_value", key_value_contract, relational.aws) as key_value,
    ):
        with phases.measure("start"):
            relational.start(announce, lambda owner: _load(owner, data, scale))
            with announce("Starting DynamoDB with its stream to Kinesis, and the Glue job's script"):
                key_value.start_source()
                items = accounts.generate(round(ITEMS * scale), SEED)
                loaded = accounts.load(key_value.dynamodb.client("dynamodb"), items)
                key_value.start_writer()
        with MemoryWatch(relational, key_value) as memory:
            with phases.measure("snapshot"), announce("Waiting for the first snapshot to reach the lake"):
                relational.drain(timeout=600)
                key_value.drain(timeout=600)
            before = _orders(relational)
            baseline = report.revenue_by_customer(before)
            say(f"The lake holds {before.num_rows:,} orders; most revenue: {_top(baseline)}; {loaded:,} accounts")
            workload_began = time.time()
            with (
                phases.measure("workload"),
                announce(f"Changing orders and accounts over {CONNECTIONS + CLIENTS} connections for {seconds:.0f} s"),
            ):
                orders_summary, accounts_summary = _workloads(relational, key_value, seconds, say)
            say(f"  {orders_summary.transactions:,} transactions, {accounts_summary.changes:,} item changes")
            with phases.measure("drain"), announce("Waiting for the last change to reach the lake"):
                relational.drain(timeout=600)
                key_value.drain(timeout=600)
        with phases.measure("verify"), announce("Comparing the lake with both sources"):
            runs = [
                report.PipelineRun(name, one.verify(), freshness(one, since=workload_began), summary)
                for name, one, summary in (
                    ("relational", relational, orders_summary),
                    ("key_value", key_value, accounts_summary),
                )
            ]
        with phases.measure("report"), announce("Writing the report"):
            report.build(
                output,
                runs,
                phases.seconds,
                _orders(relational),
                memory_bytes=memory.peak,
                top_customers_before=[customer.customer_id for customer in baseline[:3]],
            )
        if keep is not None:
            keep({**relational.addresses(), **key_value.addresses()})
    return [table for one in runs for table in one.tables]


@contextmanager
def emptied(folder: Path) -> Iterator[None]:
    """Remove a run's folder with what an earlier run left there."""
    shutil.rmtree(folder, ignore_errors=True)
    yield


def _load(owner: psycopg.Connection, data: Path | None, scale: float) -> None:
    if data is not None:
        load_folder(owner, data)
        return
    with tempfile.TemporaryDirectory() as generated:
        orders.generate(scale, SEED, Path(generated))
        load_folder(owner, Path(generated))


def _workloads(
    relational: Pipeline, key_value: KeyValuePipeline, seconds: float, say: Say
) -> tuple[orders_workload.WorkloadSummary, accounts.AccountsSummary]:
    """Run both workloads side by side. The first error of either ends both."""
    told = time.monotonic()
    changes = 0
    stop = threading.Event()

    def count(now: accounts.AccountsProgress) -> None:
        nonlocal changes
        changes = now.changes

    def progress(now: orders_workload.WorkloadProgress) -> None:
        nonlocal told
        if time.monotonic() - told >= _SAMPLE_SECONDS:
            told = time.monotonic()
            written = written_by_table(relational.events) | written_by_table(key_value.events)
            lake = ", ".join(f"{table} {number:,}" for table, number in sorted(written.items()))
            say(f"  {now.transactions:,} transactions, {changes:,} item changes · in the lake: {lake}")

    wanted = max(CHANGES, round(CHANGES_A_SECOND * seconds))
    with ThreadPoolExecutor(1) as beside:
        items = beside.submit(
            accounts.run,
            lambda: key_value.dynamodb.client("dynamodb"),
            seconds,
            wanted,
            CLIENTS,
            SEED,
            count,
            stop,
        )
        items.add_done_callback(lambda done: stop.set() if done.exception() else None)
        try:
            orders = orders_workload.run(relational.application, seconds, wanted, CONNECTIONS, SEED, progress, stop)
        except BaseException:
            stop.set()
            raise
        return orders, items.result()


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


def freshness(pipeline: Pipeline | KeyValuePipeline, since: float) -> report.Freshness | None:
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

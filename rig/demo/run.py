"""The demonstration: the whole pipeline on this machine under a live workload, and the proof that nothing was lost."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from headwater.console import Announce
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import CaptureSettings
from headwater.folder_lock import claimed_empty
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS
from headwater.paths import BUILD, CONTRACTS, RUN
from headwater.verify import TableComparison, read_live_table
from rig import fixed_loop
from rig.demo import report
from rig.demo.freshness import PublishedInstants
from rig.demo.memory import MemoryWatch
from rig.demo.waterfall import Passed, passed_kinesis, passed_s3, profile
from rig.local.key_value import WINDOW_SECONDS, KeyValuePipeline
from rig.local.pipeline import Pipeline
from rig.samples import dynamodb_tables, orders, orders_workload
from rig.samples.items_workload import ItemsSummary
from rig.samples.loading import load_folder
from rig.samples.orders_workload import OrdersSummary
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress

CONNECTIONS = 6
CLIENTS = 4
SEED = 1996
_SAMPLE_SECONDS = 2.0

Say = Callable[[str], None]


@dataclass
class Phases:
    """How long each phase took, in seconds, in the order in which they began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 2)


@dataclass(frozen=True)
class Pace:
    """How long the parts wait before they hand changes on. The defaults are the demo's own."""

    flush_ms: int = CaptureSettings.flush_ms
    """The sink writes what it has at least so often: ``connect.flush_ms``."""
    idle_seconds_max: float = FIRST_PAUSE_SECONDS
    """The EMR step's longest pause between two polls: ``emr.idle_seconds_max``."""
    window_seconds: int = WINDOW_SECONDS
    """From one commit of the Glue job's script to the next: ``glue.window_seconds``."""


@dataclass(frozen=True)
class DemoPlan:
    """What a demonstration does: ``data`` is a folder of Northwind's CSV files, or None to generate data at ``scale``,
    where 1 is Northwind's size. The live workload makes ``rate`` transactions on the orders in each second, and as many
    item changes, for ``seconds``. The parts wait as ``pace`` says."""

    data: Path | None
    scale: float
    seconds: float
    rate: float
    pace: Pace = Pace()


def run(
    plan: DemoPlan,
    announce: Announce,
    say: Say,
    keep: Callable[[Mapping[str, str]], None] | None = None,
    output: Path = BUILD / "demo",
) -> list[TableComparison]:
    """Run the demonstration and write ``report.html`` and ``report.json`` into ``output``, if that can be done.

    ``keep`` is called after the report, while everything still runs, with the addresses of the parts; the parts stop
    when it returns. Raises ``UserError`` where a part is missing, dies or does not drain.
    """
    phases = Phases()
    contracts = read_contracts(CONTRACTS)
    folder = RUN / "demo"
    with (
        claimed_empty(folder, "the demo"),
        Pipeline(folder / "relational", contracts, flush_ms=plan.pace.flush_ms) as relational,
        KeyValuePipeline(folder / "key_value", contracts, relational.aws) as key_value,
    ):
        with phases.measure("start"):
            relational.start(announce, lambda owner: load(owner, plan), idle_seconds_max=plan.pace.idle_seconds_max)
            with announce("Starting DynamoDB, its streams to Kinesis, and the Glue job's script"):
                key_value.start_source()
                loaded = sum(
                    dynamodb_tables.fill(key_value.client(), contract, plan.scale, SEED)
                    for contract in key_value.contracts
                )
                key_value.start_writer(window_seconds=plan.pace.window_seconds)

        def drain() -> None:
            relational.drain()
            key_value.drain()

        def memory_bytes() -> dict[str, int]:
            return {**relational.memory_bytes(), **key_value.memory_bytes()}

        s3 = relational.aws.client("s3")
        instants = PublishedInstants(s3, relational.lake().uri, contracts)
        with MemoryWatch(memory_bytes, _SAMPLE_SECONDS) as memory, instants:
            with phases.measure("snapshot"), announce("Waiting for the first snapshot to reach the lake"):
                drain()
            before = _orders(relational)
            leaders = [customer.customer_id for customer in report.revenue_by_customer(before)[:3]]
            say(f"The lake holds {before.num_rows:,} orders and {loaded:,} DynamoDB items.")
            say(f"The customers with the most revenue are {', '.join(leaders)}.")
            workload_began = time.time()
            with phases.measure("workload"), announce(_workload_text(key_value, plan)):
                orders_summary, items_summary = _run_workloads(relational, key_value, plan, say)
            say(f"  {orders_summary.transactions:,} transactions, {items_summary.changes:,} item changes")
            with phases.measure("drain"), announce("Waiting for the last change to reach the lake"):
                drain()
        with phases.measure("verify"), announce("Comparing the lake with both sources"):
            compared, compared_items = relational.verify(), key_value.verify()
        with phases.measure("report"), announce("Writing the report"), report.reported(output, say):
            changes = passed_s3(
                s3, relational.landing, relational.topics, instants, workload_began, relational.commits()
            )
            items = passed_kinesis(
                relational.aws.client("kinesis"), key_value.streams, instants, workload_began, key_value.commits()
            )
            both = (
                pipeline_run("relational", compared, changes, orders_summary),
                pipeline_run("key_value", compared_items, items, items_summary),
            )
            report.build(
                output,
                report.DemoRun(
                    pipelines=[each for each in both if each.tables],
                    seconds=phases.seconds,
                    lake_orders=_orders(relational),
                    loop_seconds=fixed_loop.seconds(),
                    memory_bytes=memory.peak,
                    top_customers_before=leaders,
                ),
            )
        if keep is not None:
            keep({**relational.addresses(), **key_value.addresses()})
    return [*compared, *compared_items]


def pipeline_run(
    name: str,
    tables: Sequence[TableComparison],
    changes: Mapping[str, Sequence[Passed]],
    workload: report.Workload,
) -> report.PipelineRun:
    """What a report says of a pipeline. ``changes`` has the changes of each table."""
    every = [change for of_table in changes.values() for change in of_table]
    return report.PipelineRun(
        name,
        tables,
        report.Freshness.of([change.seconds for change in every]),
        workload,
        profile(every),
    )


def load(owner: psycopg.Connection, plan: DemoPlan) -> None:
    """Fill the empty order database with what a plan says."""
    if plan.data is not None:
        load_folder(owner, plan.data)
        return
    with tempfile.TemporaryDirectory() as generated:
        orders.generate(plan.scale, SEED, Path(generated))
        load_folder(owner, Path(generated))


def _workload_text(key_value: KeyValuePipeline, plan: DemoPlan) -> str:
    tables = ", ".join(["the orders", *key_value.tables])
    return f"Changing {tables} over many connections for {plan.seconds:.0f} s"


def _run_workloads(
    relational: Pipeline, key_value: KeyValuePipeline, plan: DemoPlan, say: Say
) -> tuple[OrdersSummary, ItemsSummary]:
    """Run the workloads of all sources side by side. The first error of one ends all."""
    said = time.monotonic()
    item_changes = 0
    stop = threading.Event()

    def count(now: WorkloadProgress) -> None:
        nonlocal item_changes
        item_changes = now.changes

    def tell(now: WorkloadProgress) -> None:
        nonlocal said
        if time.monotonic() - said >= _SAMPLE_SECONDS:
            said = time.monotonic()
            written = written_by_table([*relational.commits(), *key_value.commits()])
            lake = ", ".join(f"{table} {number:,}" for table, number in sorted(written.items()))
            say(f"  {now.changes:,} transactions, {item_changes:,} item changes · changes in the lake: {lake}")

    changes = round(plan.rate * plan.seconds)
    with ThreadPoolExecutor(1) as beside:
        items = beside.submit(
            dynamodb_tables.change,
            key_value.client,
            key_value.contracts,
            WorkloadPlan(plan.seconds, changes, CLIENTS, SEED),
            count,
            stop,
        )
        items.add_done_callback(lambda done: stop.set() if done.exception() else None)
        try:
            summary = orders_workload.run(
                relational.application, WorkloadPlan(plan.seconds, changes, CONNECTIONS, SEED), tell, stop
            )
        except BaseException:
            stop.set()
            raise
        return summary, items.result()


def written_by_table(commits: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many changes each table's commits hold."""
    written: dict[str, int] = {}
    for commit in commits:
        written[commit["table"]] = written.get(commit["table"], 0) + commit["changes"]
    return written


def _orders(pipeline: Pipeline) -> pa.Table:
    lake = pipeline.lake()
    table = read_live_table(f"{lake.uri}/orders", lake.storage)
    if table is not None:
        return table
    raise AssertionError("the pipeline has drained, but the lake has no orders")

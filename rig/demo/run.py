"""The demonstration: the whole pipeline on this machine under a live workload, and the proof that nothing was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.console import Announce
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import LakeFolder
from headwater.verify import TableComparison
from rig import fixed_loop
from rig.demo import report, workloads
from rig.demo.freshness import PublishedInstants
from rig.demo.memory import MemoryWatch
from rig.demo.sources import (
    DemoPlan,
    DemoSource,
    ItemsPipeline,
    OrdersPipeline,
    Say,
    lake_orders,
    say_contents,
    sources_of,
)
from rig.demo.waterfall import Passed, profile
from rig.demo.workloads import LiveWorkload, await_all
from rig.local.aws import AwsApi
from rig.local.pipeline import lake_addresses, lake_memory_bytes, local_lake, new_mask_key, start_lake
from rig.samples.paced_workers import WorkloadProgress

_SAMPLE_SECONDS = 2.0


@dataclass
class Phases:
    """The duration of each phase in seconds, in the order of their starts."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 2)


def run(
    lake_folder: LakeFolder,
    plan: DemoPlan,
    announce: Announce,
    say: Say,
    keep: Callable[[Mapping[str, str]], None] | None = None,
) -> list[TableComparison]:
    """Run the demonstration and write ``report.html`` and ``report.json`` into the lake folder's ``build/demo``.

    A failed report does not fail the run. ``keep`` is called after the report, while everything still runs, with the
    addresses of the parts; the parts stop when ``keep`` returns. Raises ``UserError`` if a part is missing, dies or
    does not drain.
    """
    phases = Phases()
    contracts = read_contracts(lake_folder.contracts)
    folder, output = lake_folder.run / "demo", lake_folder.build / "demo"
    with claimed_empty(folder, "the demo"), ExitStack() as opened:
        aws_api, sources = _open(opened, folder, contracts, plan)
        with phases.measure("start"):
            if isinstance(sources[0], ItemsPipeline):
                # The relational pipeline starts the AWS API beside Kafka.
                with announce("Starting the AWS API"):
                    start_lake(opened, aws_api, contracts, new_mask_key())
            for source in sources:
                source.begin(announce, plan)

        def drain() -> None:
            for source in sources:
                source.drain()

        def memory_bytes() -> dict[str, int]:
            of_sources = [source.memory_bytes() for source in sources]
            return lake_memory_bytes(aws_api) | {name: size for each in of_sources for name, size in each.items()}

        lake = local_lake(aws_api)
        instants = PublishedInstants(aws_api.client("s3"), lake.uri, contracts)
        with MemoryWatch(memory_bytes, _SAMPLE_SECONDS) as memory, instants:
            with phases.measure("snapshot"), announce("Waiting for the first snapshot to reach the lake"):
                drain()
            leaders = say_contents(lake_orders(lake, contracts), sum(each.loaded_items for each in sources), say)
            workload_began = time.time()
            live = {source.name: source.workload() for source in sources}
            with phases.measure("workload"), announce(_workload_text(live, plan)):
                summaries = _run_workloads(live, sources, plan, say)
            say(f"  {workloads.counted(list(summaries.values()))}")
            with phases.measure("drain"), announce("Waiting for the last change to reach the lake"):
                drain()
        with phases.measure("verify"), announce(f"Comparing the lake with {sources_of(contracts)}"):
            compared = {source.name: source.verify() for source in sources}
        with phases.measure("report"), announce("Writing the report"), report.reported(output, say):
            report.build(
                output,
                report.DemoRun(
                    pipelines=[
                        pipeline_run(
                            source.name,
                            compared[source.name],
                            source.passed(instants, workload_began),
                            summaries[source.name],
                        )
                        for source in sources
                    ],
                    seconds=phases.seconds,
                    lake_orders=lake_orders(lake, contracts),
                    loop_seconds=fixed_loop.seconds(),
                    memory_bytes=memory.peak,
                    top_customers_before=leaders,
                ),
            )
        if keep is not None:
            of_parts = {name: at for source in sources for name, at in source.addresses().items()}
            keep({**of_parts, **lake_addresses(aws_api, contracts, lake_folder), "Folder": str(folder)})
    return [table for tables in compared.values() for table in tables]


def _open(
    opened: ExitStack, folder: Path, contracts: Sequence[Contract], plan: DemoPlan
) -> tuple[AwsApi, list[DemoSource]]:
    """The AWS API, and a pipeline for each source that has contracts. None of their parts runs yet."""
    sources: list[DemoSource] = []
    aws_api = AwsApi(folder / "aws")
    if of_database(contracts, POSTGRESQL):
        relational = OrdersPipeline(folder / "relational", contracts, flush_ms=plan.pace.flush_ms)
        aws_api = relational.aws
        sources.append(opened.enter_context(relational))
    if of_database(contracts, DYNAMODB):
        sources.append(opened.enter_context(ItemsPipeline(folder / "key_value", contracts, aws_api)))
    return aws_api, sources


def pipeline_run(
    name: str,
    tables: Sequence[TableComparison],
    changes: Mapping[str, Sequence[Passed]],
    workload: report.Workload,
) -> report.PipelineRun:
    """A pipeline's part of a report. ``changes`` are the changes of each table."""
    every = [change for of_table in changes.values() for change in of_table]
    return report.PipelineRun(
        name,
        tables,
        report.Freshness.of([change.seconds for change in every]),
        workload,
        profile(every),
    )


def _workload_text(live: Mapping[str, LiveWorkload[Any]], plan: DemoPlan) -> str:
    changed = workloads.all_changes(list(live.values()))
    return f"Changing {changed} over many connections for {plan.seconds:.0f} s"


def _run_workloads(
    live: Mapping[str, LiveWorkload[Any]], sources: Sequence[DemoSource], plan: DemoPlan, say: Say
) -> dict[str, report.Workload]:
    """Run the workloads of all sources at the same time. The first error of one ends all."""
    made = {workload.unit: 0 for workload in live.values()}
    stop = threading.Event()

    def work(workload: LiveWorkload[Any]) -> report.Workload:
        def count(now: WorkloadProgress) -> None:
            made[workload.unit] = now.changes

        done: report.Workload = workload.run(workload.plan(plan.seconds, plan.rate), count, stop)
        return done

    def tell() -> None:
        written = written_by_table(commit for source in sources for commit in source.commits())
        lake = ", ".join(f"{table} {number:,}" for table, number in sorted(written.items()))
        changes = ", ".join(f"{number:,} {unit}" for unit, number in made.items())
        say(f"  {changes} · changes in the lake: {lake}")

    with ThreadPoolExecutor(len(live)) as pool:
        running = {name: pool.submit(work, workload) for name, workload in live.items()}
        try:
            await_all(list(running.values()), _SAMPLE_SECONDS, tell)
        except BaseException:
            stop.set()
            raise
        return {name: each.result() for name, each in running.items()}


def written_by_table(commits: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many changes the commits of each table have."""
    written: dict[str, int] = {}
    for commit in commits:
        written[commit["table"]] = written.get(commit["table"], 0) + commit["changes"]
    return written

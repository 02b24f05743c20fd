"""The demonstration of a deployment: CDK deploys the pipeline to this machine and updates it under a live workload.

At the end it proves that nothing was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import yaml
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from headwater.console import Announce
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import topic
from headwater.errors import UserError
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import LakeFolder
from headwater.verify import TableComparison
from headwater.waiting import StuckError, wait_until
from rig import fixed_loop
from rig.demo import report, workloads
from rig.demo.deployment import LocalDeployment
from rig.demo.freshness import PublishedInstants
from rig.demo.memory import MemoryWatch
from rig.demo.run import Phases, pipeline_run
from rig.demo.sources import (
    KEY_VALUE,
    RELATIONAL,
    DemoPlan,
    Say,
    fill,
    lake_orders,
    load,
    say_contents,
    sources_of,
)
from rig.demo.waterfall import Passed, passed_kinesis, passed_s3
from rig.demo.workloads import SEED, LiveWorkload, await_all
from rig.local_aws.checkout import Checkout
from rig.samples.paced_workers import WorkloadProgress

# A writer that fails is restarted within ten minutes.
_PATIENCE_SECONDS = 900.0
_POLL_SECONDS = 0.5
# After this many seconds without a commit, the lake is compared once more.
_REST_SECONDS = 2.0
_SAY_SECONDS = 5.0
_MEMORY_SECONDS = 8.0
# The share of the workload's time before the update begins, and again after it is deployed.
_UNDISTURBED = 1 / 6
# The column that the update adds, and its table.
_TABLE, _COLUMN = "northwind.customers", "newsletter"
_COLUMN_TEXT = f"a column {_COLUMN}, "
_CONTRACT = "contracts/customers.yaml"


def run(
    lake_folder: LakeFolder,
    plan: DemoPlan,
    announce: Announce,
    say: Say,
    keep: Callable[[Mapping[str, str]], None] | None = None,
) -> list[TableComparison]:
    """Run the demonstration and write ``report.html`` and ``report.json`` into the lake folder's ``build/demo``.

    A failed report does not fail the run. ``keep`` is called after the report, while everything still runs, with the
    addresses of the deployment. When ``keep`` returns, the deployment is destroyed. Raises ``UserError`` if a part is
    missing, a deployment fails or the lake does not become equal to its sources.
    """
    phases = Phases()
    folder, output = lake_folder.run / "demo", lake_folder.build / "demo"
    with (
        claimed_empty(folder, "the demo"),
        LocalDeployment(folder) as deployment,
        ThreadPoolExecutor(1, "release") as beside,
        _interrupted(deployment, say),
    ):
        with phases.measure("deploy"):
            with announce("Starting a local AWS"):
                deployment.start()
            release = beside.submit(_make_release, deployment)
            with announce("Synthesizing and deploying the stacks by headwater deploy"):
                deployment.deploy(deployment.checkout)
        contracts = deployment.contracts()
        own, key_value = (of_database(contracts, database) for database in (POSTGRESQL, DYNAMODB))
        with phases.measure("load"), announce(f"Loading {' and '.join(_loaded_sources(contracts))}"):
            if own:
                with deployment.connect("owner") as owner:
                    load(owner, plan)
            loaded_items = fill(deployment.account.client("dynamodb"), key_value, plan)
        instants = PublishedInstants(deployment.account.client("s3"), deployment.lake.uri, contracts)
        with MemoryWatch(deployment.memory_bytes, _MEMORY_SECONDS) as memory, instants:
            with phases.measure("first rows"), announce("Waiting for the first rows to reach the lake"):
                _drain(deployment, contracts, instants)
            leaders = say_contents(lake_orders(deployment.lake, contracts), loaded_items, say)
            # While the workload runs, the release that was made meanwhile is deployed as well.
            workload_began = time.time()
            live = _workloads(deployment, contracts)
            with phases.measure("workload"), announce(_workload_text(live, plan)):
                summaries, update = _run_workloads(live, deployment, plan, release, instants, say)
            say(f"  {workloads.counted(list(summaries.values()))}")
            # The release may have added a column, so its contracts count from here on.
            contracts = deployment.contracts(release.result())
            with phases.measure("drain"), announce(f"Waiting until the lake equals {sources_of(contracts)}"):
                _drain(deployment, contracts, instants)
            with phases.measure("verify"), announce(f"Comparing the lake with {sources_of(contracts)}"):
                compared = {table.name: table for table in deployment.verify(contracts)}
            own, key_value = (of_database(contracts, database) for database in (POSTGRESQL, DYNAMODB))
        with phases.measure("report"), announce("Writing the report"), report.reported(output, say):
            # Follow each change of the workload through the stages of its pipeline.
            topics = {contract.table: topic(contract) for contract in own}
            streams = {contract.table: contract.source.table for contract in key_value}
            changes: dict[str, Mapping[str, Sequence[Passed]]] = {}
            if own:
                s3 = deployment.account.client("s3")
                changes[RELATIONAL] = passed_s3(s3, deployment.landing, topics, instants, workload_began)
            if key_value:
                kinesis = deployment.account.client("kinesis")
                changes[KEY_VALUE] = passed_kinesis(kinesis, streams, instants, workload_began)
            # The update delays some changes. They give its worst freshness, and do not count in the pipelines'
            # freshness.
            every = [change for of in changes.values() for of_table in of.values() for change in of_table]
            worst = max((change.seconds for change in every if update.disturbs(change)), default=0.0)
            pipelines = [
                pipeline_run(
                    name,
                    [compared[table] for table in of],
                    {table: [each for each in listed if not update.disturbs(each)] for table, listed in of.items()},
                    summaries[name],
                )
                for name, of in changes.items()
            ]
            report.build(
                output,
                report.DemoRun(
                    pipelines=pipelines,
                    seconds=phases.seconds,
                    lake_orders=lake_orders(deployment.lake, contracts),
                    loop_seconds=fixed_loop.seconds(),
                    memory_bytes=memory.peak,
                    peak_memory_bytes=memory.peak_of_all,
                    top_customers_before=leaders,
                    update=report.UpdateUnderLoad(update.ended - update.began, worst),
                ),
            )
        if keep is not None:
            keep(deployment.addresses())
        with announce("Destroying the stacks by cdk destroy"):
            deployment.destroy()
    return [compared[each.table] for each in [*own, *key_value]]


@contextmanager
def _interrupted(deployment: LocalDeployment, say: Say) -> Iterator[None]:
    """If the block raises, do not wait for concurrent work."""
    try:
        yield
    except BaseException:
        say("Ending the running parts, which takes some seconds")
        deployment.interrupt()
        raise


@dataclass(frozen=True)
class _Update:
    """The time of the update under load, in epoch seconds."""

    began: float
    ended: float

    def disturbs(self, change: Passed) -> bool:
        """Whether a change was made, or on its way, during the update."""
        return change.source <= self.ended and change.readable >= self.began


def _make_release(deployment: LocalDeployment) -> Checkout:
    """Synthesize a checkout of another release, with another plugin and other writers.

    The contract of customers, if there is one, has one more column there.
    """
    release = deployment.release()
    path = release.folder / _CONTRACT
    if path.exists():
        contract = yaml.safe_load(path.read_text())
        contract["columns"].append({"name": _COLUMN, "type": "boolean", "source_type": "boolean"})
        path.write_text(yaml.safe_dump(contract, sort_keys=False))
    release.append("NOTICE", "Another release.\n")
    for script in ("emr_steps/write_hudi.py", "glue_scripts/write_hudi.py"):
        release.append(script, "# Another release.\n")
    deployment.synthesize(release)
    return release


def _update(deployment: LocalDeployment, release: Future[Checkout], say: Say) -> _Update:
    """If a contract names customers, add a column to them, deploy the release with that column, and write into it."""
    checkout = release.result()
    gains_column = (checkout.folder / _CONTRACT).exists()
    began = time.time()
    say(f"  Deploying an update under load: {_COLUMN_TEXT if gains_column else ''}new versions of sink and writers")
    if gains_column:
        _execute(deployment, f"ALTER TABLE {_TABLE} ADD COLUMN {_COLUMN} boolean")
    deployment.deploy(checkout)
    if gains_column:
        _execute(deployment, f"UPDATE {_TABLE} SET {_COLUMN} = customer_id < 'M'")
    ended = time.time()
    say(f"  The update is deployed after {ended - began:.0f} s")
    return _Update(began, ended)


@retry(retry=retry_if_exception_type(psycopg.errors.DeadlockDetected), stop=stop_after_attempt(10), reraise=True)
def _execute(deployment: LocalDeployment, statement: str) -> None:
    """Execute a statement as the owner.

    Try again if the workload, which takes locks in any order, was faster.
    """
    with deployment.connect("owner") as owner:
        owner.execute(statement.encode())


def _drain(deployment: LocalDeployment, contracts: Sequence[Contract], instants: PublishedInstants) -> None:
    """Wait until the lake equals its sources, which do not change now.

    Raises UserError if the lake stands still before.
    """
    compared: dict[str, TableComparison] = {}
    published: dict[str, int] = {}
    latest: dict[str, int] = {}
    since = time.monotonic()

    def is_equal() -> bool:
        nonlocal published, latest, since
        now = instants.counts()
        if now != latest:
            latest, since = now, time.monotonic()
        # Only another commit can have changed the differing tables. Writers that still commit need the processors more.
        changed = [contract for contract in contracts if now[contract.table] != published.get(contract.table)]
        if changed and time.monotonic() > since + _REST_SECONDS:
            published = now
            compared.update({table.name: table for table in deployment.verify(changed)})
            if all(table.equal for table in compared.values()):
                return True
        deployment.check()
        return False

    try:
        wait_until(
            "the lake to equal its sources",
            is_equal,
            lambda: {"commits": instants.counts()},
            poll=_POLL_SECONDS,
            patience=_PATIENCE_SECONDS,
        )
    except StuckError as error:
        differing = ", ".join(
            f"{table.name} ({table.missing} missing, {table.extra} extra, {table.different} different)"
            for table in compared.values()
            if not table.equal
        )
        raise UserError(
            f"{error}. Found differences in: {differing}. The parts' logs are below {deployment.checkout.account}"
        ) from error


def _loaded_sources(contracts: Sequence[Contract]) -> list[str]:
    named = {POSTGRESQL: "the order database", DYNAMODB: "DynamoDB"}
    return [name for database, name in named.items() if of_database(contracts, database)]


def _workloads(deployment: LocalDeployment, contracts: Sequence[Contract]) -> dict[str, LiveWorkload[Any]]:
    """The workload of each source that has contracts, by its pipeline."""
    live: dict[str, LiveWorkload[Any]] = {}
    if of_database(contracts, POSTGRESQL):
        live[RELATIONAL] = workloads.of_orders(partial(deployment.connect, "app"))
    if key_value := of_database(contracts, DYNAMODB):
        live[KEY_VALUE] = workloads.of_items(partial(deployment.account.client, "dynamodb"), key_value)
    return live


def _workload_text(live: Mapping[str, LiveWorkload[Any]], plan: DemoPlan) -> str:
    return (
        f"Changing {workloads.all_changes(list(live.values()))} over many connections while an update is deployed, "
        f"and for {plan.seconds * _UNDISTURBED:.0f} s before and after it, {plan.seconds:.0f} s at least"
    )


def _run_workloads(
    live: Mapping[str, LiveWorkload[Any]],
    deployment: LocalDeployment,
    plan: DemoPlan,
    release: Future[Checkout],
    instants: PublishedInstants,
    say: Say,
) -> tuple[dict[str, report.Workload], _Update]:
    """Run the workloads of all sources at the same time, with the update under them.

    The first error of one ends all.
    """
    over = threading.Event()
    made = {workload.unit: 0 for workload in live.values()}

    def tell() -> None:
        commits = ", ".join(f"{table} {number:,}" for table, number in sorted(instants.counts().items()))
        changes = ", ".join(f"{number:,} {unit}" for unit, number in made.items())
        say(f"  {changes} · commits in the lake: {commits}")

    def change(workload: LiveWorkload[Any]) -> report.Workload:
        done: list[report.Workload] = []

        def count(now: WorkloadProgress) -> None:
            made[workload.unit] = sum(summary.counted()[0] for summary in done) + now.changes

        # Each round has the rarest changes once, such as a truncated table; the last round ends early.
        while not over.is_set():
            planned = workload.plan(plan.seconds, plan.rate, SEED + len(done))
            done.append(workload.run(planned, count, over))
        whole: report.Workload = workload.one_after_another(done)
        return whole

    def update() -> _Update:
        ends = time.monotonic() + plan.seconds
        over.wait(plan.seconds * _UNDISTURBED)
        updated = _update(deployment, release, say)
        over.wait(max(plan.seconds * _UNDISTURBED, ends - time.monotonic()))
        return updated

    with ThreadPoolExecutor(len(live) + 1) as pool:
        changing = {name: pool.submit(change, workload) for name, workload in live.items()}
        updating = pool.submit(update)
        # Unless there is an error, the update ends first.
        running: list[Future[Any]] = [*changing.values(), updating]
        for each in running:
            each.add_done_callback(lambda _: over.set())
        try:
            await_all(running, _SAY_SECONDS, tell)
            return {name: each.result() for name, each in changing.items()}, updating.result()
        except BaseException:
            over.set()
            deployment.interrupt()
            raise

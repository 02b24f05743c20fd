"""The demonstration: CDK deploys the whole pipeline to this machine, which is updated under a live workload, and the
proof that nothing was lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import yaml
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from headwater.console import Announce
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import topic
from headwater.errors import UserError
from headwater.folder_lock import claimed_empty
from headwater.paths import BUILD, RUN
from headwater.verify import TableComparison, read_live_table
from headwater.waiting import StuckError, wait_until
from rig import fixed_loop
from rig.demo import report
from rig.demo.deployment import LocalDeployment
from rig.demo.freshness import PublishedInstants, changed_rows
from rig.demo.memory import MemoryWatch
from rig.demo.run import CLIENTS, CONNECTIONS, SEED, DemoPlan, Phases, Say, load, pipeline_run
from rig.demo.waterfall import passed_s3
from rig.local_aws.checkout import Checkout
from rig.samples import dynamodb_tables, items_workload, orders_workload
from rig.samples.items_workload import ItemsSummary
from rig.samples.orders_workload import OrdersSummary
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress

# A writer that fails is started again within ten minutes.
_PATIENCE_SECONDS = 900.0
_POLL_SECONDS = 0.5
# For how long nothing was committed when it is looked whether that was the last.
_REST_SECONDS = 2.0
_SAY_SECONDS = 5.0
_MEMORY_SECONDS = 8.0
# How much of the workload's time passes before the update begins, and again after it is deployed.
_UNDISTURBED = 1 / 6
# The column that the update brings, in the table that has it.
_TABLE, _COLUMN = "northwind.customers", "newsletter"
_CONTRACT = "contracts/customers.yaml"


def run(
    plan: DemoPlan,
    announce: Announce,
    say: Say,
    keep: Callable[[Mapping[str, str]], None] | None = None,
    output: Path = BUILD / "demo",
) -> list[TableComparison]:
    """Run the demonstration and write ``report.html`` and ``report.json`` into ``output``, if that can be done.

    ``keep`` is called after the report, while everything still runs, with the addresses of what is deployed; it is
    destroyed when that returns. Raises ``UserError`` where a part is missing, a deployment fails or the lake does not
    come to equal its sources.
    """
    phases = Phases()
    folder = RUN / "demo"
    with (
        claimed_empty(folder, "the demo"),
        LocalDeployment(folder) as deployment,
        ThreadPoolExecutor(1, "release") as beside,
        _interrupted(deployment, say),
    ):
        with phases.measure("deploy"):
            with announce("Starting a local AWS, and synthesizing the stacks"):
                deployment.start()
            release = beside.submit(_make_release, deployment)
            with announce("Deploying the stacks by cdk deploy"):
                deployment.deploy(deployment.checkout)
        contracts = deployment.contracts()
        with phases.measure("load"), announce("Loading the order database and DynamoDB"):
            with deployment.connect("owner") as owner:
                load(owner, plan)
            client = deployment.account.client("dynamodb")
            loaded = sum(
                dynamodb_tables.fill(client, contract, plan.scale, SEED)
                for contract in of_database(contracts, DYNAMODB)
            )
        instants = PublishedInstants(deployment.account.client("s3"), deployment.lake.uri, contracts)
        with MemoryWatch(deployment.memory_bytes, _MEMORY_SECONDS) as memory, instants:
            with phases.measure("first rows"), announce("Waiting for the first rows to reach the lake"):
                _drain(deployment, contracts, instants)
            before = _orders(deployment)
            leaders = [customer.customer_id for customer in report.revenue_by_customer(before)[:3]]
            say(f"The lake holds {before.num_rows:,} orders and {loaded:,} DynamoDB items.")
            say(f"The customers with the most revenue are {', '.join(leaders)}.")
            workload_began = time.time()
            with phases.measure("workload"), announce(_workload_text(contracts, plan)):
                orders_summary, items_summary, update = _run_workloads(deployment, plan, release, instants, say)
            say(f"  {orders_summary.transactions:,} transactions, {items_summary.changes:,} item changes")
            contracts = deployment.contracts(release.result())
            with phases.measure("drain"), announce("Waiting until the lake equals its sources"):
                _drain(deployment, contracts, instants)
            with phases.measure("verify"), announce("Comparing the lake with both sources"):
                compared = {table.name: table for table in deployment.verify(contracts)}
        own, key_value = (of_database(contracts, database) for database in (POSTGRESQL, DYNAMODB))
        with phases.measure("report"), announce("Writing the report"), report.reported(output, say):
            topics = {contract.table: topic(contract) for contract in own}
            changes = passed_s3(deployment.account.client("s3"), deployment.landing, topics, instants, workload_began)
            # Where Glue's own source reads a stream, no commit tells how far.
            items = changed_rows(deployment.lake, key_value, instants.seen.__getitem__, workload_began)
            on_their_way = [(change.source, change.readable) for of_table in changes.values() for change in of_table]
            worst = max(
                (readable - at for at, readable in [*on_their_way, *items] if update.disturbs(at, readable)),
                default=0.0,
            )
            undisturbed = {
                table: [change for change in of_table if not update.disturbs(change.source, change.readable)]
                for table, of_table in changes.items()
            }
            both = (
                pipeline_run("relational", [compared[each.table] for each in own], undisturbed, orders_summary),
                report.PipelineRun(
                    "key_value",
                    [compared[each.table] for each in key_value],
                    report.Freshness.of([readable - at for at, readable in items if not update.disturbs(at, readable)]),
                    items_summary,
                ),
            )
            report.build(
                output,
                report.DemoRun(
                    pipelines=[each for each in both if each.tables],
                    seconds=phases.seconds,
                    lake_orders=_orders(deployment),
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
    """Where something goes wrong, what is under way beside it is not waited for."""
    try:
        yield
    except BaseException:
        say("Ending what runs, which takes some seconds")
        deployment.interrupt()
        raise


@dataclass(frozen=True)
class _Update:
    """When the update under load began and ended, in epoch seconds."""

    began: float
    ended: float

    def disturbs(self, at: float, readable: float) -> bool:
        """Whether a change was made, or on its way, while the update went on."""
        return at <= self.ended and readable >= self.began


def _make_release(deployment: LocalDeployment) -> Checkout:
    """A checkout of another release, synthesized: a column is added to a contract, and the connectors' plugin and both
    writers are of another version."""
    release = deployment.release()
    path = release.folder / _CONTRACT
    contract = yaml.safe_load(path.read_text())
    contract["columns"].append({"name": _COLUMN, "type": "boolean", "source_type": "boolean"})
    path.write_text(yaml.safe_dump(contract, sort_keys=False))
    release.append("NOTICE", "Another release.\n")
    for script in ("emr_steps/write_hudi.py", "glue_scripts/write_hudi.py"):
        release.append(script, "# Another release.\n")
    deployment.synthesize(release)
    return release


def _update(deployment: LocalDeployment, release: Future[Checkout], say: Say) -> _Update:
    """Give the source a column and deploy the release that knows it, then write into it."""
    checkout = release.result()
    began = time.time()
    say(f"  Deploying an update under load: a column {_COLUMN}, another version of the plugin and of both writers")
    _execute(deployment, f"ALTER TABLE {_TABLE} ADD COLUMN {_COLUMN} boolean")
    deployment.deploy(checkout)
    _execute(deployment, f"UPDATE {_TABLE} SET {_COLUMN} = customer_id < 'M'")
    ended = time.time()
    say(f"  The update is deployed after {ended - began:.0f} s")
    return _Update(began, ended)


@retry(retry=retry_if_exception_type(psycopg.errors.DeadlockDetected), stop=stop_after_attempt(10), reraise=True)
def _execute(deployment: LocalDeployment, statement: str) -> None:
    """Execute a statement as the owner, again where the workload, which takes locks in any order, was faster."""
    with deployment.connect("owner") as owner:
        owner.execute(statement.encode())


def _drain(deployment: LocalDeployment, contracts: Sequence[Contract], instants: PublishedInstants) -> None:
    """Wait until the lake equals its sources, which rest. Raises UserError if the lake stands still before."""
    compared: dict[str, TableComparison] = {}
    published: dict[str, int] = {}
    latest: dict[str, int] = {}
    since = time.monotonic()

    def is_equal() -> bool:
        nonlocal published, latest, since
        now = instants.counts()
        if now != latest:
            latest, since = now, time.monotonic()
        # Nothing but another commit can have changed what differed. Writers that still commit need the processors more.
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


def _workload_text(contracts: Sequence[Contract], plan: DemoPlan) -> str:
    tables = ", ".join(["the orders", *(contract.table for contract in of_database(contracts, DYNAMODB))])
    return (
        f"Changing {tables} over many connections while an update is deployed, from "
        f"{plan.seconds * _UNDISTURBED:.0f} s before it until as long after it, {plan.seconds:.0f} s at least"
    )


def _run_workloads(
    deployment: LocalDeployment, plan: DemoPlan, release: Future[Checkout], instants: PublishedInstants, say: Say
) -> tuple[OrdersSummary, ItemsSummary, _Update]:
    """Run the workloads of all sources side by side, and the update under them. The first error of one ends all."""
    contracts = of_database(deployment.contracts(), DYNAMODB)
    over = threading.Event()
    made: Counter[str] = Counter()
    said = time.monotonic()

    def tell(now: WorkloadProgress) -> None:
        nonlocal said
        if time.monotonic() - said >= _SAY_SECONDS:
            said = time.monotonic()
            commits = ", ".join(f"{table} {number:,}" for table, number in sorted(instants.counts().items()))
            say(
                f"  {made['orders'] + now.changes:,} transactions, {made['items']:,} item changes · "
                f"commits in the lake: {commits}"
            )

    def rounds(workers: int) -> Iterator[WorkloadPlan]:
        # Each has the rarest changes once, such as a truncated table; the last one ends early.
        number = 0
        while not over.is_set():
            yield WorkloadPlan(plan.seconds, round(plan.rate * plan.seconds), workers, SEED + number)
            number += 1

    def change_orders() -> OrdersSummary:
        done = []
        for each in rounds(CONNECTIONS):
            done.append(orders_workload.run(lambda: deployment.connect("app"), each, tell, over))
            made["orders"] += done[-1].transactions
        return orders_workload.one_after_another(done)

    def change_items() -> ItemsSummary:
        done: list[ItemsSummary] = []
        dynamodb = partial(deployment.account.client, "dynamodb")

        def count(now: WorkloadProgress) -> None:
            made["items"] = sum(summary.changes for summary in done) + now.changes

        for each in rounds(CLIENTS):
            done.append(dynamodb_tables.change(dynamodb, contracts, each, count, over))
        return replace(items_workload.together(done), seconds=sum(each.seconds for each in done))

    def update() -> _Update:
        ends = time.monotonic() + plan.seconds
        over.wait(plan.seconds * _UNDISTURBED)
        updated = _update(deployment, release, say)
        over.wait(max(plan.seconds * _UNDISTURBED, ends - time.monotonic()))
        return updated

    with ThreadPoolExecutor(3) as pool:
        running = (pool.submit(change_orders), pool.submit(change_items), pool.submit(update))
        # The update is the first to end, but for an error.
        ending: list[Future[Any]] = [*running]
        for each in ending:
            each.add_done_callback(lambda _: over.set())
        try:
            for each in wait(ending, return_when=FIRST_EXCEPTION).done:
                each.result()
            return running[0].result(), running[1].result(), running[2].result()
        except BaseException:
            over.set()
            deployment.interrupt()
            raise


def _orders(deployment: LocalDeployment) -> pa.Table:
    table = read_live_table(f"{deployment.lake.uri}/orders", deployment.lake.storage)
    if table is not None:
        return table
    raise AssertionError("the lake equals its sources, but has no orders")

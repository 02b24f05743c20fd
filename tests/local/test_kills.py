"""Parts of a running pipeline are killed with work provably in flight; nothing is lost and nothing doubled."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError

from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.connect import ConnectWorker
from rig.local.pipeline import DATABASE, LAKE_BUCKET, LANDING_BUCKET, Pipeline, Spread
from rig.local.processes import occurrences
from rig.samples import orders, orders_workload
from rig.samples.loading import load_folder
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress
from tests.background import going_on
from tests.commits_in_flight import COMPACTION, complete_instants, kill_within, stop_within
from tests.kafka_groups import assignments

# Of one round of the workload, which goes on until the kills are over.
ROUND_SECONDS = 150
TRANSACTIONS_PER_SECOND = 30
LEAST_TRANSACTIONS = 60
FULL_SECONDS = 30
AWAKE_SECONDS = 20
SPREAD = Spread(partitions=3, sink_tasks=2)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("pipeline")
    orders.generate(0.1, 1, folder / "data")
    with Pipeline(folder, read_contracts(EXAMPLE.contracts), spread=SPREAD) as pipeline:
        pipeline.start(lambda text: nullcontext(), lambda owner: _load(owner, folder / "data"))
        pipeline.drain()
        yield pipeline


def _load(owner: object, folder: Path) -> None:
    load_folder(owner, folder)  # type: ignore[arg-type]


class Changes:
    """A workload that goes on, and how many transactions it has made."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._pipeline = pipeline
        self._seed = seed
        self._former = self.made = 0

    def go_on(self, stop: threading.Event) -> None:
        """Do one round after another."""
        for seed in itertools.count(self._seed):
            if stop.is_set():
                return
            plan = WorkloadPlan(ROUND_SECONDS, ROUND_SECONDS * TRANSACTIONS_PER_SECOND, workers=4, seed=seed)
            done = orders_workload.run(self._pipeline.application, plan, self._count, stop)
            self._former += done.transactions

    def _count(self, now: WorkloadProgress) -> None:
        self.made = self._former + now.changes


def unconfirmed(pipeline: Pipeline) -> int:
    """Bytes of the source's log that Debezium has not confirmed yet."""
    with pipeline.postgres.connect(DATABASE) as owner:
        row = owner.execute(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            (connectors.SLOT,),
        ).fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def landed(pipeline: Pipeline) -> int:
    """How many landing objects there are."""
    pages = pipeline.aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=LANDING_BUCKET)
    return sum(len(page.get("Contents", ())) for page in pages)


def while_landing(pipeline: Pipeline) -> None:
    """Return when the sink has just put an object and more changes wait behind it."""
    before = landed(pipeline)
    wait_until("objects to land", lambda: landed(pipeline) > before, poll=0.02)
    wait_until("changes that Debezium has not confirmed", lambda: unconfirmed(pipeline) > 0, poll=0.02)


def kill_connect(pipeline: Pipeline) -> None:
    while_landing(pipeline)
    pipeline.connect.kill()
    assert unconfirmed(pipeline) > 0
    time.sleep(2)
    pipeline.connect.start()


def second_worker(pipeline: Pipeline) -> ConnectWorker:
    """Another worker of the group of the first one, not yet started."""
    first, environment = pipeline.connect, aws.environment(pipeline.aws.credentials)
    return ConnectWorker(pipeline.folder / "second", first.access, first.properties, environment=environment)


def join_and_leave(pipeline: Pipeline) -> None:
    """A second worker joins while tasks are writing, takes some of them over, and leaves."""
    while_landing(pipeline)
    first = pipeline.connect
    with second_worker(pipeline) as second:
        wait_until("tasks of the second worker", lambda: second.url in working(pipeline))
        while_landing(pipeline)
        assert unconfirmed(pipeline) > 0
    wait_until("all tasks to be the first worker's", lambda: working(pipeline) == {first.url})


def pause_worker(pipeline: Pipeline) -> None:
    """A worker stands still while its tasks write, until another one has them, and wakes up."""
    while_landing(pipeline)
    first = pipeline.connect
    with second_worker(pipeline) as second:
        os.killpg(first.pid, signal.SIGSTOP)
        try:
            assert unconfirmed(pipeline) > 0
            pipeline.connect = second
            wait_until("all tasks to be the second worker's", lambda: working(pipeline) == {second.url})
            # PostgreSQL and the broker wait for the silent holder of the slot and of the partitions for a minute.
            while_landing(pipeline)
        finally:
            pipeline.connect = first
            os.killpg(first.pid, signal.SIGCONT)
        time.sleep(AWAKE_SECONDS)
    # It has stored positions from before its sleep. Where these came last, the next task takes changes for lost.
    if connectors.LOST_SLOT in str(pipeline.connect.status(connectors.source_name(pipeline.settings))):
        raise_epoch(pipeline)
    while_landing(pipeline)
    # Until its tasks start anew, the first worker tells what the second one wrote of them as it left.
    for name in pipeline.connector_names:
        first.restart(name)
    wait_until("all tasks to be the first worker's", lambda: working(pipeline) == {first.url})


def working(pipeline: Pipeline) -> set[str]:
    """The workers that run the connectors' tasks, by their addresses."""
    tasks = [task for name in pipeline.connector_names for task in pipeline.connect.status(name)["tasks"]]
    return {f"http://{task['worker_id']}" for task in tasks if task["state"] == "RUNNING"}


def add_partitions(pipeline: Pipeline) -> None:
    """Each topic gets a partition more, to which a part of its keys moves once producer and sink have seen it."""
    for topic in connectors.table_topics(pipeline.contracts, pipeline.settings):
        pipeline.broker.add_partitions(topic, SPREAD.partitions + 1)


def kill_broker(pipeline: Pipeline) -> None:
    while_landing(pipeline)
    pipeline.broker.kill()
    assert unconfirmed(pipeline) > 0
    time.sleep(2)
    pipeline.broker.start()


def kill_store(pipeline: Pipeline) -> None:
    """The sink and the writer meet a store that is gone, and one that comes back."""
    while_landing(pipeline)
    pipeline.aws.store.kill()
    time.sleep(2)
    assert unconfirmed(pipeline) > 0
    pipeline.aws.store.start()
    time.sleep(2)
    revive_writer(pipeline)


def revive_writer(pipeline: Pipeline) -> None:
    """Start a writer anew that has ended because all of its tables failed, as the event rule does in AWS."""
    if not pipeline.writer.running:
        pipeline.start_writer()


def fill_store(pipeline: Pipeline) -> None:
    """The store is full for a while: it serves what it has, and takes nothing more."""
    while_landing(pipeline)
    store, s3 = pipeline.aws.store, pipeline.aws.client("s3")
    buckets = (LANDING_BUCKET, LAKE_BUCKET)
    for bucket in buckets:
        # More than a quota's least is there, whatever the pipeline has written by now.
        s3.put_object(Bucket=bucket, Key="filling", Body=os.urandom(2 * 1024 * 1024))
        store.administer(f"s3.bucket.quota -name={bucket} -op=set -sizeMB=1")

    def is_full() -> bool:
        store.administer("s3.bucket.quota.enforce -apply")
        return all(refuses(s3, bucket) for bucket in buckets)

    wait_until("the store to be full", is_full, poll=1)
    time.sleep(FULL_SECONDS)
    assert unconfirmed(pipeline) > 0
    store.administer(
        *(f"s3.bucket.quota -name={bucket} -op=remove" for bucket in buckets), "s3.bucket.quota.enforce -apply"
    )
    for bucket in buckets:
        s3.delete_object(Bucket=bucket, Key="filling")


def refuses(s3: Any, bucket: str) -> bool:
    """Whether a bucket takes no object."""
    try:
        s3.put_object(Bucket=bucket, Key="one more", Body=b"")
    except ClientError:
        return True
    s3.delete_object(Bucket=bucket, Key="one more")
    return False


def lose_slot(pipeline: Pipeline) -> None:
    """As after a failover to a server without the slot: capture stops, and all rows are read again in another epoch."""
    while_landing(pipeline)
    name = connectors.source_name(pipeline.settings)
    with pipeline.postgres.connect(DATABASE) as owner:
        wait_until("the slot to be gone", lambda: drops_slot(owner), poll=0.02)
        wait_until("capture to stop", lambda: connectors.LOST_SLOT in str(pipeline.connect.status(name)))
        lost = owner.execute("SELECT count(*) FROM northwind.orders").fetchone()
        wait_until(
            "changes that no slot keeps",
            lambda: owner.execute("SELECT count(*) FROM northwind.orders").fetchone() != lost,
        )
    raise_epoch(pipeline)


def raise_epoch(pipeline: Pipeline) -> None:
    """Have all rows read again, as the runbook of the lost slot says, and wait until the source is captured."""
    name = connectors.source_name(pipeline.settings)
    pipeline.settings = replace(pipeline.settings, epoch=pipeline.settings.epoch + 1)
    pipeline.connect.put(*connectors.source_connector(pipeline.contracts, pipeline.settings))
    # Until the worker has read its new configuration, the task is the one that has failed.
    wait_until(
        "capture to go on", lambda: [task["state"] for task in pipeline.connect.status(name)["tasks"]] == ["RUNNING"]
    )


def drops_slot(owner: psycopg.Connection) -> bool:
    """Drop the slot, unless the connector takes it again at once."""
    slot = (connectors.SLOT,)
    owner.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", slot)
    try:
        owner.execute("SELECT pg_drop_replication_slot(%s)", slot)
    except psycopg.errors.ObjectInUse:
        return False
    return True


def kill_writer(pipeline: Pipeline) -> None:
    kill_within(pipeline, "orders")


def kill_compaction(pipeline: Pipeline) -> None:
    """The next writer runs again what the killed one had begun."""
    killed = kill_within(pipeline, "orders", COMPACTION)
    wait_until("the compaction to be complete", lambda: killed <= complete_instants(pipeline, "orders", COMPACTION))


def pause_writer(pipeline: Pipeline) -> None:
    """A writer stands still within a commit, wakes up when another one has the table, and has to leave it alone."""
    paused, before = pipeline.writer, len(pipeline.commits())
    log = pipeline.folder / "spark" / "events.jsonl"
    losses = occurrences(log, b"LeaseLost")
    stop_within(pipeline, "orders")
    try:
        pipeline.start_writer()
        wait_until("the next writer's commits", lambda: len(pipeline.commits()) > before + 2)
    finally:
        os.killpg(paused.pid, signal.SIGCONT)
    wait_until("the paused writer to find its tables taken", lambda: occurrences(log, b"LeaseLost") > losses)
    paused.stop()


def test_kills_in_mid_run_lose_and_double_nothing_while_partitions_are_added(pipeline: Pipeline) -> None:
    run_with(pipeline, [kill_writer, add_partitions, kill_connect, kill_broker], seed=1)
    orders_topic = f"{pipeline.settings.topic_prefix}.northwind.order_events"
    assert f"{orders_topic}/{SPREAD.partitions}" in pipeline.events.cursor()


@pytest.mark.drill
@pytest.mark.parametrize(
    "kill",
    [
        kill_connect,
        kill_broker,
        kill_writer,
        kill_compaction,
        kill_store,
        pause_writer,
        pause_worker,
        fill_store,
        join_and_leave,
        lose_slot,
    ],
)
def test_repeated_kills_of_one_part_lose_and_double_nothing(
    pipeline: Pipeline, kill: Callable[[Pipeline], None], request: pytest.FixtureRequest
) -> None:
    run_with(pipeline, [kill] * request.config.getoption("--kills"), seed=len(kill.__name__))


def await_more(changes: Changes) -> None:
    """Let some transactions pass."""
    enough = changes.made + LEAST_TRANSACTIONS
    wait_until("more transactions", lambda: changes.made >= enough, lambda: changes.made)


def run_with(pipeline: Pipeline, kills: Sequence[Callable[[Pipeline], None]], seed: int) -> None:
    """Change the source, and kill parts meanwhile; then lake and source are equal."""
    changes = Changes(pipeline, seed)
    with going_on(changes.go_on):
        for kill in kills:
            await_more(changes)
            kill(pipeline)
        await_more(changes)
    for name in pipeline.connector_names:
        pipeline.connect.await_running(name)
    pipeline.drain()
    assert [table for table in pipeline.verify() if not table.equal] == []


def test_each_sink_task_has_partitions_of_each_topic_and_changes_land_in_all(pipeline: Pipeline) -> None:
    topics = connectors.table_topics(pipeline.contracts, pipeline.settings)
    partitions = {(topic, number) for topic in topics for number in range(SPREAD.partitions)}

    def assigned() -> list[set[tuple[str, int]]]:
        # While the group shares them out, as after a kill, nobody has any.
        with suppress(TypeError):
            return assignments(pipeline.broker, connectors.sink_group(pipeline.settings))
        return []

    def are_shared_out() -> bool:
        tasks = assigned()
        of_each = [{topic for topic, _ in task} for task in tasks]
        return of_each == [set(topics)] * SPREAD.sink_tasks and set.union(*tasks) >= partitions

    wait_until("each sink task to have partitions of each topic", are_shared_out, assigned)
    # The cursor has the partitions of which something has landed.
    assert pipeline.events.cursor().keys() >= {f"{topic}/{number}" for topic, number in partitions}


def test_the_last_to_commit_wins_though_it_was_logged_first(pipeline: Pipeline) -> None:
    """An INSERT is logged before it waits for the transaction that deletes its key; also where it is captured twice."""
    statement = "INSERT INTO northwind.customers (customer_id, company_name) VALUES ('WAITS', %s)"
    with pipeline.application() as first, pipeline.application() as second, pipeline.application() as watch:
        first.execute(statement, ["first"])
        pipeline.drain()
        first.autocommit = second.autocommit = False
        first.execute("UPDATE northwind.customers SET company_name = 'changed' WHERE customer_id = 'WAITS'")
        waiting = threading.Thread(target=second.execute, args=(statement, ["second"]))
        waiting.start()
        blocked = f"SELECT cardinality(pg_blocking_pids({second.info.backend_pid})) > 0"
        wait_until("the insert to wait", lambda: bool(watch.execute(blocked.encode()).fetchone()[0]))  # type: ignore[index]
        first.execute("DELETE FROM northwind.customers WHERE customer_id = 'WAITS'")
        first.commit()
        waiting.join()
        second.commit()
        pipeline.connect.kill()
        pipeline.connect.start()
        watch.execute("UPDATE northwind.customers SET city = 'Elsewhere' WHERE customer_id = 'ALFKI'")
    pipeline.connect.await_running(connectors.source_name(pipeline.settings))
    pipeline.drain()
    assert [table for table in pipeline.verify() if not table.equal] == []

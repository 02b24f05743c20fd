"""What the entry scripts share: their arguments, a lease per table, their reports, and the loop."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from pyspark.sql import SparkSession

from headwater.contract.model import Contract, from_json
from headwater.errors import UserError
from headwater.lake import metrics
from headwater.lake.catalog import Catalog
from headwater.lake.idle_pause import IdlePause
from headwater.lake.kinesis import ShardGone
from headwater.lake.landing import LandingGap
from headwater.lake.lease import Lease, LeaseLost
from headwater.lake.quarantine import TooManyBadRecords
from headwater.lake.s3_uri import split_uri
from headwater.lake.table import HudiTable, ProgressMissing
from headwater.lake.writer import TableWriter, WriterServices, WriterSettings

CommitNext = Callable[[], bool]
"""Commits what there is to commit next for a table, and says whether there was anything."""

_EXPECTED = (UserError, LandingGap, LeaseLost, ProgressMissing, ShardGone, TooManyBadRecords, ValueError)
_IDLE_REPORT_SECONDS = 30.0
GRACE_SECONDS = 300.0
"""How long the other tables go on after one has failed. The next run of the script then tries all of them again."""


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that every script takes; a script adds its own."""
    arguments = argparse.ArgumentParser(description=description, allow_abbrev=False)
    arguments.add_argument("--lake", required=True, help="s3://bucket/prefix of the tables")
    arguments.add_argument("--quarantine", help="s3://bucket/prefix of undecodable records; default LAKE/_quarantine")
    arguments.add_argument("--database", required=True, help="Glue database that holds the tables")
    arguments.add_argument("--epoch", type=int, default=1, help="raised when the source's history was cut")
    arguments.add_argument(
        "--batch-bytes", type=int, default=128 * 1024 * 1024, help="most compressed bytes per commit"
    )
    arguments.add_argument(
        "--max-bad-share", type=float, default=0.01, help="largest share of undecodable records in a batch, 0 to 1"
    )
    arguments.add_argument(
        "--max-unfit-share", type=float, default=1.0, help="largest share of rows in a batch with unfit values, 0 to 1"
    )
    arguments.add_argument("--lease-seconds", type=float, default=30.0, help="how long a dead writer's lease lasts")
    arguments.add_argument("--once", action="store_true", help="drain what there is, then exit")
    return arguments


@dataclass(frozen=True)
class Job:
    """A running job: it holds the leases of its tables, by table, and a Spark session. ``stop`` tells it to end;
    ``clock`` gives seconds from any moment."""

    contracts: list[Contract]
    leases: Mapping[str, Lease]
    spark: SparkSession
    services: WriterServices
    settings: WriterSettings
    options: argparse.Namespace
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic

    def writer(self, contract: Contract) -> TableWriter:
        """The writer of one of the job's tables. Raises ProgressMissing and ValueError as ``TableWriter`` does."""
        table = HudiTable(self.spark, contract, self.options.lake, self.settings.parallelism)
        return TableWriter(table, self.leases[contract.table], self.services, self.settings)

    def run(
        self, work: Mapping[str, CommitNext], pause: IdlePause, is_idle: Callable[[str], bool] = lambda table: True
    ) -> None:
        """Do the work of each table in a thread of its own until all of it is done (``--once``) or the job is told to
        stop. A table without work is looked at again after ``pause``, and reported as idle where ``is_idle`` says so:
        a silent table raises an alarm. A table that fails does no more. After an error that is not TooManyBadRecords,
        which is about one table's source and contract, the others go on for ``GRACE_SECONDS`` and end their current
        commit. The first error is raised when all threads have ended."""
        errors: list[BaseException] = []
        ended_by: list[float] = []

        def ends() -> bool:
            return self.stop.is_set() or (bool(ended_by) and self.clock() - ended_by[0] >= GRACE_SECONDS)

        def loop(table: str, commit_next: CommitNext) -> None:
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", table)
            reported = -math.inf
            idle_looks = 0
            try:
                while not ends():
                    if commit_next():
                        idle_looks = 0
                        continue
                    if self.options.once:
                        return
                    if self.clock() - reported >= _IDLE_REPORT_SECONDS and is_idle(table):
                        reported = self.clock()
                        self.services.report({"event": "idle", "table": table})
                    idle_looks += 1
                    self.stop.wait(pause.after(idle_looks))
            except BaseException as error:  # whatever it is, the caller must see it
                errors.append(error)
                if not isinstance(error, TooManyBadRecords):
                    ended_by.append(self.clock())
                # Which of the tables it was, as the error itself may not say.
                failure = {"event": "failed", "table": table, "error": type(error).__name__, "message": str(error)}
                self.services.report(failure)

        threads = [threading.Thread(target=loop, args=item, name=f"writer {item[0]}") for item in work.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def prepared(prepare: Callable[[], CommitNext]) -> CommitNext:
    """Work that is prepared when it is first asked for, so that a table that cannot be prepared fails alone."""
    ready: list[CommitNext] = []

    def commit_next() -> bool:
        if not ready:
            ready.append(prepare())
        return ready[0]()

    return commit_next


@contextmanager
def running_job(name: str, contract_uris: list[str], options: argparse.Namespace) -> Iterator[Job]:
    """A job of these contracts. It takes its tables' leases before it starts Spark, and so before Hudi's first client;
    it gives them back after Spark has stopped, also on an error.

    Endpoints, region and credentials of AWS services come from the environment, as everywhere with boto3.
    """
    with ExitStack() as reports, ExitStack() as held:
        cloudwatch = metrics.CloudWatchReport(metrics.impatient_client(), options.database)
        reports.callback(cloudwatch.flush)
        s3 = boto3.client("s3")
        contracts = [_read_contract(s3, uri) for uri in contract_uris]
        leases = {}
        for contract in contracts:
            lease = leases[contract.table] = _taken_lease(s3, contract, options)
            held.callback(lease.release)
        spark = SparkSession.builder.appName(name).getOrCreate()
        held.callback(_stop, spark, held)
        settings = WriterSettings(
            quarantine=options.quarantine or f"{options.lake}/_quarantine",
            epoch=options.epoch,
            batch_bytes=options.batch_bytes,
            max_bad_share=options.max_bad_share,
            max_unfit_share=options.max_unfit_share,
            parallelism=spark.sparkContext.defaultParallelism,
        )
        catalog = Catalog(boto3.client("glue"), options.database)
        services = WriterServices(s3, catalog, metrics.to_all(print_event, cloudwatch))
        yield Job(contracts, leases, spark, services, settings, options, threading.Event())


def _read_contract(s3: Any, uri: str) -> Contract:
    bucket, key = split_uri(uri)
    return from_json(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8"), uri)


def _taken_lease(s3: Any, contract: Contract, options: argparse.Namespace) -> Lease:
    owner = f"{socket.gethostname()}/{os.getpid()}"
    lease = Lease(s3, f"{options.lake}/_leases/{contract.table}.json", owner, options.lease_seconds)
    lease.acquire(wait=options.lease_seconds * 2)
    return lease


def _stop(spark: SparkSession, held: ExitStack) -> None:
    """Stop Spark before the leases go: a failed job's tasks may still be writing, and they must end before the next
    writer begins. If Spark cannot be stopped, the leases are not given back; they run out when this process ends."""
    try:
        spark.stop()
    except BaseException:
        held.pop_all()
        raise


def main(name: str, contract_uris: list[str], options: argparse.Namespace, body: Callable[[Job], None]) -> int:
    """Run a script's body within its job. Returns 0 when it ends or is told to stop. An error that a user's input or
    another writer can cause is reported as an event and on standard error, and gives 1."""
    try:
        with running_job(name, contract_uris, options) as job:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: job.stop.set())
            print_event({"event": "started", "tables": [contract.table for contract in job.contracts]})
            body(job)
        print_event({"event": "stopped"})
        return 0
    except _EXPECTED as error:
        print_event({"event": "error", "error": type(error).__name__, "message": str(error)})
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1


def print_event(event: dict[str, Any]) -> None:
    """Report an event as a line of JSON on standard output, which is the job's log."""
    sys.stdout.write(json.dumps({"at": round(time.time(), 3), **event}) + "\n")
    sys.stdout.flush()

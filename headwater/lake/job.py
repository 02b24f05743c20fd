"""What the entry scripts share: their arguments, one lease a table, their reports, and the loop."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from pyspark.sql import SparkSession

from headwater.contract.model import Contract, from_json
from headwater.errors import UserError
from headwater.lake import metrics
from headwater.lake.catalog import Catalog
from headwater.lake.landing import LandingGap, split_uri
from headwater.lake.lease import Lease, LeaseLost
from headwater.lake.quarantine import TooManyBadRecords
from headwater.lake.table import HudiTable, ProgressMissing
from headwater.lake.writer import TableWriter, WriterSettings

Step = Callable[[], bool]
"""Does some work, and says whether there was any."""

_EXPECTED = (UserError, LandingGap, LeaseLost, ProgressMissing, TooManyBadRecords, ValueError)
_IDLE_REPORT_SECONDS = 30.0


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that every script takes; a script adds its own."""
    arguments = argparse.ArgumentParser(description=description, allow_abbrev=False)
    arguments.add_argument("--lake", required=True, help="s3://bucket/prefix of the tables")
    arguments.add_argument("--quarantine", help="s3://bucket/prefix of undecodable records; default LAKE/_quarantine")
    arguments.add_argument("--database", required=True, help="Glue database that holds the tables")
    arguments.add_argument("--epoch", type=int, default=1, help="raised when the source's history was cut")
    arguments.add_argument("--batch-bytes", type=int, default=128 * 1024 * 1024, help="most compressed bytes a commit")
    arguments.add_argument("--max-bad-share", type=float, default=0.01, help="most undecodable records a batch, 0 to 1")
    arguments.add_argument("--lease-seconds", type=float, default=30.0, help="how long a dead writer's lease lasts")
    arguments.add_argument("--once", action="store_true", help="drain what there is, then exit")
    return arguments


class Job:
    """A running job: it holds the leases of its tables from before Hudi's first client until after its last.

    Endpoints, region and credentials of AWS services come from the environment, as everywhere with boto3.
    """

    def __init__(self, name: str, contract_uris: list[str], options: argparse.Namespace) -> None:
        self.s3 = boto3.client("s3")
        self.stop = threading.Event()
        self._cloudwatch = metrics.CloudWatchReport(metrics.impatient_client(), options.database)
        self.report = metrics.to_all(print_event, self._cloudwatch)
        self._name = name
        self._contract_uris = contract_uris
        self._options = options
        self._leases: dict[str, Lease] = {}
        self.contracts: list[Contract] = []
        self.spark: SparkSession
        self.settings: WriterSettings

    def __enter__(self) -> Job:
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _enter(self) -> None:
        options = self._options
        for uri in self._contract_uris:
            bucket, key = split_uri(uri)
            text = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8")
            self.contracts.append(from_json(text, uri))
        owner = f"{socket.gethostname()}/{os.getpid()}"
        for contract in self.contracts:
            lease = Lease(self.s3, f"{options.lake}/_leases/{contract.table}.json", owner, options.lease_seconds)
            lease.acquire(wait=options.lease_seconds * 2)
            self._leases[contract.table] = lease
        self.spark = SparkSession.builder.appName(self._name).getOrCreate()
        self.settings = WriterSettings(
            quarantine=options.quarantine or f"{options.lake}/_quarantine",
            epoch=options.epoch,
            batch_bytes=options.batch_bytes,
            max_bad_share=options.max_bad_share,
            parallelism=self.spark.sparkContext.defaultParallelism,
        )
        self._catalog = Catalog(boto3.client("glue"), options.database)

    def __exit__(self, *_: object) -> None:
        # A failed job's tasks may still be writing: they end before the next writer may begin.
        if hasattr(self, "spark"):
            self.spark.stop()
        for lease in self._leases.values():
            lease.release()
        self._cloudwatch.flush()

    def writer(self, contract: Contract) -> TableWriter:
        """The writer of one of the job's tables. Raises ProgressMissing and ValueError as ``TableWriter`` does."""
        table = HudiTable(self.spark, contract, self._options.lake, self.settings.parallelism)
        lease = self._leases[contract.table]
        return TableWriter(contract, table, lease, self._catalog, self.s3, self.settings, self.report)

    def run(self, steps: Mapping[str, Step], idle_seconds: float) -> None:
        """Run the steps, by table, each in a thread of its own until all are drained (``--once``) or the job is told to
        stop. The first error stops them all after their current commit, and is raised."""
        errors: list[BaseException] = []

        def loop(table: str, step: Step) -> None:
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", table)
            told = 0.0
            try:
                while not self.stop.is_set():
                    if step():
                        continue
                    if self._options.once:
                        return
                    if time.monotonic() - told > _IDLE_REPORT_SECONDS:
                        told = time.monotonic()
                        self.report({"event": "idle", "table": table})
                    self.stop.wait(idle_seconds)
            except BaseException as error:  # whatever it is, the caller must see it and the others must stop
                errors.append(error)
                self.stop.set()

        threads = [
            threading.Thread(target=loop, args=(table, step), name=f"writer {table}") for table, step in steps.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def main(name: str, contract_uris: list[str], options: argparse.Namespace, body: Callable[[Job], None]) -> int:
    """Run a script's body within its job; 0 when it ends or is told to stop, 1 on an error that is expected of a
    user's input or of another writer, which is told as an event and on standard error."""
    try:
        with Job(name, contract_uris, options) as job:
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

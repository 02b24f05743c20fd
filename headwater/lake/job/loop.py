"""What the entry scripts share: their arguments, a lease per table, their reports, and the loop."""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import json
import math
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from pyspark.sql import SparkSession

from headwater.contract.masks import read_key
from headwater.contract.model import Contract, from_json, lake_tables
from headwater.lake.base import jvm_signals, metrics
from headwater.lake.base.announcements import EventBridgeReport
from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.base.lease import LEASE_SECONDS, LeaseLost, Leases
from headwater.lake.base.progress import Progress
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.job.failures import LASTING, Failures, passes
from headwater.lake.job.upkeep import DAY, Chore, Upkeep, a_tenth_of, expiry
from headwater.lake.requests.expired_history import ExpiredHistory
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake.table.purge import Purge
from headwater.lake.table.replaced_files import ReplacedFiles
from headwater.lake.table.writer import TableWriter, WriterServices, WriterSettings

CommitNext = Callable[[], bool]
"""Commits what there is to commit next for a table, and says whether there was anything."""

_EXPECTED = (*LASTING, LeaseLost)
_IDLE_REPORT_SECONDS = 30.0
_FIRST_POLL_SECONDS = 15.0
"""A table that waits for its lease, or loads much, does not keep the others cold for longer."""
_WARM_UP_END_SECONDS = 10.0
"""How long a job that ends waits for its warm-up to end, too."""
PASSING_PAUSE = IdlePause(first=2.0, longest=300.0)
"""How long a table rests after a failure that may pass by itself."""
LASTING_PAUSE = IdlePause(first=60.0, longest=900.0)
"""How long a table rests after a failure that somebody has to mend."""


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that every script takes; a script adds its own."""
    arguments = argparse.ArgumentParser(description=description, allow_abbrev=False)
    arguments.add_argument("--lake", required=True, help="s3://bucket/prefix of the tables")
    arguments.add_argument("--quarantine", help="s3://bucket/prefix of undecodable records; default LAKE/_quarantine")
    arguments.add_argument("--database", required=True, help="Glue database that holds the tables")
    arguments.add_argument("--epoch", type=int, help="that of records which do not say theirs; default the table's")
    arguments.add_argument(
        "--batch-bytes", type=int, default=WriterSettings.batch_bytes, help="most compressed bytes per commit"
    )
    arguments.add_argument(
        "--max-bad-share", type=float, default=0.01, help="largest share of undecodable records in a batch, 0 to 1"
    )
    arguments.add_argument(
        "--max-unfit-share", type=float, default=1.0, help="largest share of rows in a batch with unfit values, 0 to 1"
    )
    arguments.add_argument(
        "--file-version-hours", type=float, default=1.0, help="how long files stay that compaction has replaced"
    )
    arguments.add_argument(
        "--tombstone-days", type=float, help="how long tombstones stay that are committed; default for good"
    )
    arguments.add_argument(
        "--lease-seconds", type=float, default=LEASE_SECONDS, help="how long a dead writer's lease lasts"
    )
    arguments.add_argument("--forget-secret", help="name or ARN of the secret with the key of forgotten keys' hashes")
    arguments.add_argument("--once", action="store_true", help="drain what there is, then exit")
    return arguments


@dataclass(frozen=True)
class Job:
    """A running job: it has a Spark session, and holds the leases of its tables, each from the first writer on. Tables
    and their histories have a contract each.
    ``stop`` tells it to end; ``clock`` gives seconds from any moment."""

    contracts: list[Contract]
    leases: Leases
    spark: SparkSession
    services: WriterServices
    settings: WriterSettings
    options: argparse.Namespace
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic
    failed_chores: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often in a row a chore has failed, by table and chore."""
    writers: dict[str, TableWriter] = field(default_factory=dict)
    """The newest writer of each table."""
    former: dict[str, Progress] = field(default_factory=dict)
    """What the writer before it had noted, also where its first commit failed."""

    def writer(self, contract: Contract) -> TableWriter:
        """A new writer of one of the job's tables. Raises LeaseLost where another process writes the table, and
        ProgressMissing and ValueError as ``TableWriter`` does."""
        former = self.writers.pop(contract.table, None)
        if former is not None:
            self.former[contract.table] = former.progress
            former.close()
        lease = self.leases.take(contract.table)
        table = HudiTable(self.spark, contract, self.options.lake, self.settings.parallelism)
        made = self.writers[contract.table] = TableWriter(table, lease, self.services, self.settings)
        return made

    def upkeep(self, writer: TableWriter, *chores: Chore) -> Upkeep:
        """What is done to a writer's table from time to time: these chores, and those that every job has."""
        replaced = ReplacedFiles(self.services.s3, writer.table)

        def delete_replaced(before: dt.datetime) -> int:
            # A table without a commit may be in the making by another thread.
            return replaced.delete(before) if writer.has_rows else 0

        def register_all() -> bool:
            # Somebody may have removed some, or the table and so all.
            self.services.catalog.register(writer.contract.table, replaced.partitions(), again=True)
            return False

        all_chores = [expiry("replaced files", dt.timedelta(hours=self.options.file_version_hours), delete_replaced)]
        tombstones = None if self.options.tombstone_days is None else dt.timedelta(days=self.options.tombstone_days)
        history = writer.contract.history
        if writer.contract.is_history and history is not None:
            keep = dt.timedelta(days=history.keep_days)
            expired = ExpiredHistory(writer, keep, tombstones)
            all_chores.append(Chore("history", a_tenth_of(keep), expired.do_next, commits=True))
        elif tombstones is not None:
            purge = Purge(writer, tombstones)
            all_chores.append(Chore("tombstones", a_tenth_of(tombstones), purge.do_next, commits=True))
        if writer.contract.partitions:
            all_chores.append(Chore("partitions of the catalog", DAY, register_all))
        return Upkeep(writer.contract.table, self.services.report, [*all_chores, *chores], self.failed_chores)

    def run(
        self,
        work: Mapping[str, Callable[[], CommitNext]],
        pause: IdlePause,
        warm_up: Callable[[Job], None] = lambda job: None,
    ) -> None:
        """Do the work of each table in a thread of its own until all of it is done (``--once``) or the job is told to
        stop. ``work`` prepares it. A table without work is polled again after ``pause``, and reported as idle: a silent
        table raises an alarm. When every table has been polled once, ``warm_up`` runs in
        a thread of its own, and the job reports that it is ready. Changes that wait are committed first.

        A table that fails rests and is prepared anew, alone: ``PASSING_PAUSE`` or ``LASTING_PAUSE``, with jitter. The
        job ends if all of its tables fail for good (``Failures``), or without a living Spark, since a new process may
        help then. It raises the error of a table that failed last, where there is one."""
        failures = Failures(work)
        polled = {table: threading.Event() for table in work}

        def loop(table: str, prepare: Callable[[], CommitNext]) -> None:
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", table)
            while not self.stop.is_set():
                try:
                    self._work(table, prepare(), pause, failures, polled[table])
                    if table in self.writers:
                        self.writers[table].settle()
                    return
                except BaseException as error:  # whatever it is, the caller must see it
                    if self.stop.is_set() and isinstance(error, LeaseLost):
                        return  # nothing is left to do that needs it
                    rest = self._rest(table, error, failures)
                finally:
                    polled[table].set()
                    self.services.decoding.rest(table)
                if rest is None:
                    return
                self.stop.wait(rest)

        threads = [threading.Thread(target=loop, args=item, name=f"writer {item[0]}") for item in work.items()]
        # A daemon: a store that does not answer it must not keep the process from ending.
        warming = threading.Thread(target=self._warm, args=(warm_up, polled.values()), name="warm-up", daemon=True)
        for thread in threads:
            thread.start()
        if not self.options.once:
            warming.start()
        for thread in threads:
            thread.join()
        if warming.is_alive():
            warming.join(_WARM_UP_END_SECONDS)
        # Before the leases are given back.
        with ExitStack() as closed:
            for writer in self.writers.values():
                closed.callback(writer.close)
            closed.callback(self.services.decoding.close)
        failures.raise_first()

    def _warm(self, warm_up: Callable[[Job], None], polled: Iterable[threading.Event]) -> None:
        """Warm up once every table is polled, or has had ``_FIRST_POLL_SECONDS`` for it, and report that the job is
        ready. If that fails, report it: the job goes on without."""
        deadline = time.monotonic() + _FIRST_POLL_SECONDS
        for each in polled:
            while not (each.wait(0.1) or self.stop.is_set() or time.monotonic() > deadline):
                pass
        if self.stop.is_set():
            return
        began = self.clock()
        try:
            warm_up(self)
        except Exception as failed:
            if not self.stop.is_set():
                print_event({"event": "warm-up failed", "error": type(failed).__name__, "message": str(failed)})
            return
        if not self.stop.is_set():
            print_event({"event": "ready", "warm_up_seconds": round(self.clock() - began, 3)})

    def _work(
        self,
        table: str,
        commit_next: CommitNext,
        pause: IdlePause,
        failures: Failures,
        polled: threading.Event,
    ) -> None:
        """Do the work of a table until it is done, it fails, or the job is told to stop. Sets ``polled`` when it has
        been asked for work once."""
        reported = -math.inf
        idle_looks = 0
        while not self.stop.is_set():
            worked = commit_next()
            polled.set()
            if failures.forget(table):
                self.services.report({"event": "recovered", "table": table})
            if worked:
                idle_looks = 0
                continue
            if self.options.once:
                return
            if self.clock() - reported >= _IDLE_REPORT_SECONDS:
                reported = self.clock()
                self.services.report({"event": "idle", "table": table})
            idle_looks += 1
            self.stop.wait(pause.after(idle_looks))

    def _rest(self, table: str, error: BaseException, failures: Failures) -> float | None:
        """Report a table's failure, and say how many seconds it rests; None where its work ends."""
        attempt = failures.note(table, error)
        ends = not isinstance(error, Exception) or failures.all_for_good() or not self._spark_lives()
        if ends:
            self.stop.set()
        rest = None
        if not ends and not self.options.once:
            longest = (PASSING_PAUSE if passes(error) else LASTING_PAUSE).after(attempt)
            rest = round(random.uniform(longest / 2, longest), 1)  # noqa: S311
        if not isinstance(error, _EXPECTED):
            traceback.print_exception(type(error), error, error.__traceback__)
        self.services.report(
            {
                "event": "failed",
                "table": table,
                "error": type(error).__name__,
                "message": str(error),
                "passes": passes(error),
                "attempt": attempt,
                "again_in_seconds": rest,
            }
        )
        return rest

    def _spark_lives(self) -> bool:
        try:
            return not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # the JVM does not even answer
            return False


@contextmanager
def running_job(
    name: str, contract_uris: list[str], options: argparse.Namespace, stop: threading.Event
) -> Iterator[Job]:
    """A job of these contracts, which ``stop`` tells to end. It gives its tables' leases back after Spark has stopped,
    also on an error.

    Endpoints, region and credentials of AWS services come from the environment, as everywhere with boto3.
    """
    with ExitStack() as reports, ExitStack() as held:
        cloudwatch = metrics.CloudWatchReport(metrics.impatient_client("cloudwatch"), options.database)
        reports.callback(cloudwatch.flush)
        announcements = EventBridgeReport(metrics.impatient_client("events"), options.database)
        s3 = boto3.client("s3")
        contracts = lake_tables(_read_contract(s3, uri) for uri in contract_uris)
        leases = Leases(
            # Three attempts take a quarter of the default lease at most: a renewal fails before it is half over.
            metrics.impatient_client("s3", attempts=3),
            f"{options.lake}/_leases",
            # Containers may have one host name and the same process ids.
            f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}",
            options.lease_seconds,
            stop,
        )
        held.callback(leases.release)
        spark = SparkSession.builder.appName(name).getOrCreate()
        held.callback(_stop, spark, held)
        settings = WriterSettings(
            quarantine=options.quarantine or f"{options.lake}/_quarantine",
            epoch=options.epoch,
            batch_bytes=options.batch_bytes,
            max_bad_share=options.max_bad_share,
            max_unfit_share=options.max_unfit_share,
            parallelism=spark.sparkContext.defaultParallelism,
            hash_key=_hash_key(options.forget_secret),
        )
        catalog = Catalog(boto3.client("glue"), options.database)
        services = WriterServices(s3, catalog, metrics.to_all(print_event, cloudwatch, announcements))
        yield Job(contracts, leases, spark, services, settings, options, stop)


def _hash_key(secret: str | None) -> Callable[[], bytes] | None:
    """What reads the key of forgotten keys' hashes, once, and not before something is forgotten."""
    if secret is None:
        return None
    return functools.cache(lambda: read_key(boto3.client("secretsmanager"), secret))


def _read_contract(s3: Any, uri: str) -> Contract:
    bucket, key = split_uri(uri)
    return from_json(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8"), uri)


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
    stop = threading.Event()
    try:
        with running_job(name, contract_uris, options, stop) as job:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            jvm_signals.forward_to(stop, job.spark)
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

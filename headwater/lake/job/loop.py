"""The shared part of the entry scripts: their arguments, a lease per table, their reports, and the loop."""

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
"""Commits the next changes of a table. Returns whether there were any."""

_EXPECTED = (*LASTING, LeaseLost)
_IDLE_REPORT_SECONDS = 30.0
_FIRST_POLL_SECONDS = 15.0
"""Seconds that the warm-up waits at most for the tables' first polls. A table may wait for its lease or load data."""
_WARM_UP_END_SECONDS = 10.0
"""A job that ends waits at most this long for its warm-up to end."""
PASSING_PAUSE = IdlePause(first=2.0, longest=300.0)
"""The pauses of a table after failures that may pass by themselves."""
LASTING_PAUSE = IdlePause(first=60.0, longest=900.0)
"""The pauses of a table after failures that an operator must correct."""


def parser(description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that every script takes; a script adds its own."""
    arguments = argparse.ArgumentParser(description=description, allow_abbrev=False)
    arguments.add_argument("--lake", required=True, help="s3://bucket/prefix of the tables")
    arguments.add_argument("--quarantine", help="s3://bucket/prefix of undecodable records; default LAKE/_quarantine")
    arguments.add_argument("--database", required=True, help="Glue database that holds the tables")
    arguments.add_argument("--epoch", type=int, help="epoch of records without their own; default the table's")
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
        "--file-version-hours", type=float, default=1.0, help="hours until files that compaction replaced are deleted"
    )
    arguments.add_argument(
        "--tombstone-days", type=float, help="days until committed tombstones are purged; default never"
    )
    arguments.add_argument(
        "--lease-seconds", type=float, default=LEASE_SECONDS, help="how long a dead writer's lease lasts"
    )
    arguments.add_argument("--forget-secret", help="name or ARN of the secret with the key of forgotten keys' hashes")
    arguments.add_argument("--once", action="store_true", help="commit all waiting changes, then exit")
    return arguments


@dataclass(frozen=True)
class Job:
    """A running job. It has a Spark session. Each table's first writer takes the table's lease for the job."""

    contracts: list[Contract]
    """The contracts of its tables. A table and its history have one each."""
    leases: Leases
    """The leases of its tables."""
    spark: SparkSession
    """Its Spark session."""
    services: WriterServices
    """The services that its writers share."""
    settings: WriterSettings
    """The settings of its writers."""
    options: argparse.Namespace
    """The arguments of its script."""
    stop: threading.Event
    """Ends the job once it is set."""
    clock: Callable[[], float] = time.monotonic
    """Returns the seconds since an arbitrary moment."""
    failed_chores: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often in a row a maintenance task has failed, by table and task."""
    writers: dict[str, TableWriter] = field(default_factory=dict)
    """The newest writer of each table."""
    former: dict[str, Progress] = field(default_factory=dict)
    """The progress of each table's writer before the newest one, also if the first commit of that writer failed."""

    def writer(self, contract: Contract) -> TableWriter:
        """Make a new writer of one of the job's tables.

        Raises LeaseLost if another process writes the table, and ProgressMissing and ValueError as ``TableWriter``
        does.
        """
        former = self.writers.pop(contract.table, None)
        if former is not None:
            self.former[contract.table] = former.progress
            former.close()
        lease = self.leases.take(contract.table)
        table = HudiTable(self.spark, contract, self.options.lake, self.settings.parallelism)
        made = self.writers[contract.table] = TableWriter(table, lease, self.services, self.settings)
        return made

    def upkeep(self, writer: TableWriter, *chores: Chore) -> Upkeep:
        """The maintenance of a writer's table: these tasks, and the tasks of every job."""
        replaced = ReplacedFiles(self.services.s3, writer.table)

        def delete_replaced(before: dt.datetime) -> int:
            # Another thread may be creating a table without a commit.
            return replaced.delete(before) if writer.has_rows else 0

        def register_all() -> bool:
            # An operator may have removed partitions from the catalog, or the whole table.
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
        """Do the work of each table in a thread of its own until it is done (``--once``) or ``stop`` is set.

        A table without work is polled again after a pause, and reported as idle: a silent table raises an alarm. When
        every table has been polled once, the warm-up runs in a thread of its own, and the job reports that it is ready.
        So waiting changes are committed before it.

        A table that fails rests (``PASSING_PAUSE`` or ``LASTING_PAUSE``, with jitter), and is then prepared again. The
        other tables go on. The job ends if all of its tables fail for good (``Failures``), or if Spark has ended: then
        a new process may help. It raises the last error of the table that has failed for longest, if any fails.

        - ``work``: prepares the work of each table.
        - ``pause``: the pauses between polls that find nothing.
        - ``warm_up``: commits synthetic changes.
        """
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
                except BaseException as error:  # errors that do not inherit from Exception must reach the caller too
                    if self.stop.is_set() and isinstance(error, LeaseLost):
                        return  # the job ends, and no remaining work needs the lease
                    rest = self._rest(table, error, failures)
                finally:
                    polled[table].set()
                    self.services.decoding.rest(table)
                if rest is None:
                    return
                self.stop.wait(rest)

        threads = [threading.Thread(target=loop, args=item, name=f"writer {item[0]}") for item in work.items()]
        # A daemon thread, because the process must end even if S3 does not answer.
        warming = threading.Thread(target=self._warm, args=(warm_up, polled.values()), name="warm-up", daemon=True)
        for thread in threads:
            thread.start()
        if not self.options.once:
            warming.start()
        for thread in threads:
            thread.join()
        if warming.is_alive():
            warming.join(_WARM_UP_END_SECONDS)
        # Close the writers here, before the caller gives the leases back.
        with ExitStack() as closed:
            for writer in self.writers.values():
                closed.callback(writer.close)
            closed.callback(self.services.decoding.close)
        failures.raise_first()

    def _warm(self, warm_up: Callable[[Job], None], polled: Iterable[threading.Event]) -> None:
        """Warm up, and report that the job is ready. If the warm-up fails, report the failure; the job goes on.

        First it waits until every table is polled once, at most ``_FIRST_POLL_SECONDS``.
        """
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
        """Do the work of a table until it is done, it fails, or ``stop`` is set. Set ``polled`` after one poll."""
        reported = -math.inf
        idle_polls = 0
        while not self.stop.is_set():
            worked = commit_next()
            polled.set()
            if failures.forget(table):
                self.services.report({"event": "recovered", "table": table})
            if worked:
                idle_polls = 0
                continue
            if self.options.once:
                return
            if self.clock() - reported >= _IDLE_REPORT_SECONDS:
                reported = self.clock()
                self.services.report({"event": "idle", "table": table})
            idle_polls += 1
            self.stop.wait(pause.after(idle_polls))

    def _rest(self, table: str, error: BaseException, failures: Failures) -> float | None:
        """Report a table's failure. Returns how many seconds the table rests; None if the table's work ends."""
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
    """A job of these contracts, which ends once ``stop`` is set.

    The job gives the leases of its tables back after Spark has stopped, also after an error.

    Endpoints, region and credentials of AWS services come from the environment, as always with boto3.
    """
    with ExitStack() as reports, ExitStack() as held:
        cloudwatch = metrics.CloudWatchReport(metrics.impatient_client("cloudwatch"), options.database)
        reports.callback(cloudwatch.flush)
        announcements = EventBridgeReport(metrics.impatient_client("events"), options.database)
        s3 = boto3.client("s3")
        contracts = lake_tables(_read_contract(s3, uri) for uri in contract_uris)
        leases = Leases(
            # Three attempts take at most a quarter of the default lease, so a renewal fails before half of it is over.
            metrics.impatient_client("s3", attempts=3),
            f"{options.lake}/_leases",
            # Containers may share a host name and have the same process ids.
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
    """A function that reads the key for the hashes of forgotten keys from the secret, at its first call."""
    if secret is None:
        return None
    return functools.cache(lambda: read_key(boto3.client("secretsmanager"), secret))


def _read_contract(s3: Any, uri: str) -> Contract:
    bucket, key = split_uri(uri)
    return from_json(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8"), uri)


def _stop(spark: SparkSession, held: ExitStack) -> None:
    """Stop Spark before the leases are given back.

    Tasks of a failed job may still write, and must end before the next writer begins. If Spark cannot be stopped, the
    leases are not given back; they expire after this process has ended.
    """
    try:
        spark.stop()
    except BaseException:
        held.pop_all()
        raise


def main(name: str, contract_uris: list[str], options: argparse.Namespace, body: Callable[[Job], None]) -> int:
    """Run a script's body within its job. Returns 0 when the body ends or a signal stops it.

    If the user's input or another writer causes the error, it is reported as an event and on standard error, and the
    result is 1.
    """
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
    """Write an event as a line of JSON to standard output, which is the job's log."""
    sys.stdout.write(json.dumps({"at": round(time.time(), 3), **event}) + "\n")
    sys.stdout.flush()

"""What holds a job's tables while it runs, and what the EMR step may import."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from headwater.contract.reading import read_contracts
from headwater.lake import job, metrics
from headwater.lake.idle_pause import IdlePause
from headwater.lake.job import Job, parser, running_job
from headwater.lake.lease import LeaseLost
from headwater.lake.quarantine import TooManyBadRecords
from headwater.paths import CONTRACTS, ROOT

CONTRACTS_BY_URI = {f"s3://lake/contracts/{contract.table}.json": contract for contract in read_contracts(CONTRACTS)}
URIS = list(CONTRACTS_BY_URI)[:2]
TABLES = [CONTRACTS_BY_URI[uri].table for uri in URIS]


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a job takes, starts, stops and gives back, in that order; nothing of it is real."""
    done: list[str] = []

    class Lease:
        def __init__(self, s3: Any, uri: str, owner: str, ttl: float) -> None:
            self._table = uri.rpartition("/")[2].removesuffix(".json")

        def acquire(self, wait: float) -> None:
            if f"refuse {self._table}" in done:
                raise LeaseLost(f"{self._table}: held by another")
            done.append(f"take {self._table}")

        def release(self) -> None:
            done.append(f"give back {self._table}")

    class Spark:
        sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - PySpark's name

        def stop(self) -> None:
            done.append("stop Spark")
            if "fail to stop" in done:
                raise RuntimeError("Spark does not stop")

    def start(_: str) -> Any:
        if "fail to start" in done:
            raise RuntimeError("Spark does not start")
        done.append("start Spark")
        return Spark()

    class S3:
        def get_object(self, Bucket: str, Key: str) -> Any:  # noqa: N803 - boto3's names
            text = CONTRACTS_BY_URI[f"s3://{Bucket}/{Key}"].to_json()
            return {"Body": SimpleNamespace(read=text.encode)}

    class CloudWatchReport:
        def __init__(self, *_: object) -> None: ...

        def flush(self) -> None:
            done.append("flush metrics")

    monkeypatch.setattr(job, "Lease", Lease)
    monkeypatch.setattr(boto3, "client", lambda name: S3())
    monkeypatch.setattr(metrics, "CloudWatchReport", CloudWatchReport)
    monkeypatch.setattr(metrics, "impatient_client", lambda: None)
    session = SimpleNamespace(
        builder=SimpleNamespace(appName=lambda name: SimpleNamespace(getOrCreate=lambda: start(name)))
    )
    monkeypatch.setattr(job, "SparkSession", session)
    return done


@pytest.fixture
def options() -> argparse.Namespace:
    return parser("A job of the tests.").parse_args(["--lake", "s3://lake/lake", "--database", "d"])


TAKEN = [f"take {table}" for table in TABLES]
GIVEN_BACK = [f"give back {table}" for table in reversed(TABLES)]


def test_leases_are_taken_before_spark_starts_and_given_back_after_it_has_stopped(
    deeds: list[str], options: argparse.Namespace
) -> None:
    with running_job("test", URIS, options) as running:
        assert [contract.table for contract in running.contracts] == TABLES
        assert running.settings.quarantine == "s3://lake/lake/_quarantine"
        deeds.append("work")
    assert deeds == [*TAKEN, "start Spark", "work", "stop Spark", *GIVEN_BACK, "flush metrics"]


def test_a_failing_job_gives_its_leases_back_after_spark_has_stopped(
    deeds: list[str], options: argparse.Namespace
) -> None:
    with pytest.raises(RuntimeError, match="a commit failed"), running_job("test", URIS, options):
        raise RuntimeError("a commit failed")
    assert deeds == [*TAKEN, "start Spark", "stop Spark", *GIVEN_BACK, "flush metrics"]


def test_a_lease_that_is_held_by_another_starts_no_spark_and_keeps_no_lease(
    deeds: list[str], options: argparse.Namespace
) -> None:
    deeds.append(f"refuse {TABLES[1]}")
    with pytest.raises(LeaseLost), running_job("test", URIS, options):
        pytest.fail("the job runs")
    assert deeds[1:] == [TAKEN[0], GIVEN_BACK[1], "flush metrics"]


def test_leases_are_given_back_if_spark_does_not_start(deeds: list[str], options: argparse.Namespace) -> None:
    deeds.append("fail to start")
    with pytest.raises(RuntimeError, match="does not start"), running_job("test", URIS, options):
        pytest.fail("the job runs")
    assert deeds[1:] == [*TAKEN, *GIVEN_BACK, "flush metrics"]


def test_leases_are_not_given_back_while_spark_may_still_write(deeds: list[str], options: argparse.Namespace) -> None:
    deeds.append("fail to stop")
    with pytest.raises(RuntimeError, match="does not stop"), running_job("test", URIS, options):
        pass
    assert deeds[1:] == [*TAKEN, "start Spark", "stop Spark", "flush metrics"]


class FakeTime(threading.Event):
    """What tells a job to stop: waiting for it takes no time, but moves the clock. It is set at ``end``, in seconds."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self.now = 0.0
        self._end = end

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        if self.now >= self._end:
            self.set()
        return self.is_set()


class Landed:
    """Objects of one table that land at these seconds: what a job looks for."""

    def __init__(self, time: FakeTime, *landing: float) -> None:
        self._time = time
        self._landing = list(landing)
        self.looks: list[float] = []
        self.waited: list[float] = []

    def commit_next(self) -> bool:
        self.looks.append(self._time.now)
        found = [landed for landed in self._landing if landed <= self._time.now]
        self._landing = [landed for landed in self._landing if landed > self._time.now]
        self.waited += [self._time.now - landed for landed in found]
        return bool(found)


def run_for(
    time: FakeTime,
    orders: job.CommitNext,
    pause: IdlePause,
    on_failure: Callable[[], None] = lambda: None,
    **others: job.CommitNext,
) -> list[dict[str, Any]]:
    """Run the loops of the tables until the time is over, and return what was reported."""
    events: list[dict[str, Any]] = []

    def report(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "failed":
            on_failure()

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    services: Any = SimpleNamespace(report=report)
    settings: Any = None
    options = argparse.Namespace(once=False)
    Job([], {}, spark, services, settings, options, time, clock=lambda: time.now).run(
        {"orders": orders, **others}, pause
    )
    return events


def test_an_idle_table_is_looked_at_ever_more_rarely_up_to_the_longest_pause() -> None:
    time = FakeTime(end=3600)
    landed = Landed(time)
    run_for(time, landed.commit_next, IdlePause(0.5, 30))
    assert landed.looks[:9] == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5]
    assert len(landed.looks) < 130


def test_what_lands_is_found_within_the_longest_pause_and_sooner_after_work() -> None:
    time = FakeTime(end=400)
    landed = Landed(time, 62, 92.2, 150, 299)
    run_for(time, landed.commit_next, IdlePause(0.5, 30))
    assert len(landed.waited) == 4
    assert max(landed.waited) <= 30
    assert landed.waited[1] < 1
    at = landed.looks.index(62 + landed.waited[0])
    assert landed.looks[at + 1 : at + 3] == [landed.looks[at], landed.looks[at] + 0.5]


@pytest.mark.parametrize("longest", [0.5, 7, 30])
def test_an_idle_writer_reports_in_every_minute_at_each_pause_that_a_file_may_name(longest: float) -> None:
    time = FakeTime(end=3600)
    reported = len(run_for(time, Landed(time).commit_next, IdlePause(0.5, longest)))
    assert 60 <= reported <= 121


def test_a_table_that_cannot_even_begin_leaves_the_others_time_for_their_work() -> None:
    time = FakeTime(end=3600)
    landed = Landed(time, 100, 250, 310)
    failed = threading.Event()

    def refuse() -> job.CommitNext:
        raise ValueError("epoch: found 1, expected at least 2")

    def look() -> bool:
        assert failed.wait(60)
        return landed.commit_next()

    with pytest.raises(ValueError, match="expected at least 2"):
        run_for(time, look, IdlePause(0.5, 30), on_failure=failed.set, products=job.prepared(refuse))
    assert len(landed.waited) == 2
    assert job.GRACE_SECONDS <= time.now < job.GRACE_SECONDS + 60


def test_a_table_with_too_many_bad_records_stops_alone() -> None:
    time = FakeTime(end=3600)
    landed = Landed(time, 1000)
    failed = threading.Event()

    def refuse() -> bool:
        raise TooManyBadRecords("products: 20 of 21 records cannot be decoded")

    def look() -> bool:
        assert failed.wait(60)
        return landed.commit_next()

    with pytest.raises(TooManyBadRecords, match="products: 20 of 21"):
        run_for(time, look, IdlePause(0.5, 30), on_failure=failed.set, products=refuse)
    assert len(landed.waited) == 1
    assert time.now >= 3600


def test_the_emr_step_needs_neither_msgspec_nor_what_stays_on_the_laptop() -> None:
    script = (
        "import runpy, sys; sys.modules['msgspec'] = None; runpy.run_path(sys.argv[1], run_name='imported');"
        "print(*sorted(name for name in sys.modules if name.startswith('headwater.')))"
    )
    command = [sys.executable, "-c", script, str(ROOT / "emr_steps" / "write_hudi.py")]
    imported = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    shipped = ("headwater.contract", "headwater.errors", "headwater.lake")
    assert "headwater.lake.writer" in imported
    assert [name for name in imported if not name.startswith(shipped)] == []
    assert "headwater.contract.reading" not in imported

"""What holds a job's tables while it runs, and what the EMR step may import."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from headwater.contract.model import lake_tables
from headwater.contract.reading import read_contracts
from headwater.lake.base import lease, metrics
from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.job import loop as job
from headwater.lake.job.loop import LASTING_PAUSE, PASSING_PAUSE, CommitNext, Job, parser, running_job
from headwater.lake.sources.decoding_ahead import DecodingAhead
from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT
from headwater.waiting import wait_until

CONTRACTS_BY_URI = {
    f"s3://lake/contracts/{contract.table}.json": contract for contract in read_contracts(EXAMPLE.contracts)
}
URIS = list(CONTRACTS_BY_URI)[:2]
# A history follows its table.
TABLES = [table.table for table in lake_tables(CONTRACTS_BY_URI[uri] for uri in URIS)]


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resources that a job takes, starts, stops and gives back, in that order; none of them is real."""
    done: list[str] = []

    class Lease:
        def __init__(self, s3: Any, uri: str, owner: str, ttl: float) -> None:
            self._table = uri.rpartition("/")[2].removesuffix(".json")

        def acquire(self, wait: float, stop: threading.Event) -> None:
            assert stop is STOP
            if f"refuse {self._table}" in done:
                raise LeaseLost(f"{self._table}: held by another")
            done.append(f"take {self._table}")

        def check(self) -> None:
            if f"lose {self._table}" in done:
                raise LeaseLost(f"{self._table}: another writer took the table")

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

    monkeypatch.setattr(lease, "Lease", Lease)
    monkeypatch.setattr(job, "HudiTable", lambda spark, contract, *_: contract.table)
    monkeypatch.setattr(job, "TableWriter", lambda table, *_: done.append(f"make the client of {table}"))
    monkeypatch.setattr(boto3, "client", lambda name: S3())
    monkeypatch.setattr(metrics, "CloudWatchReport", CloudWatchReport)
    monkeypatch.setattr(metrics, "impatient_client", lambda service, attempts=1: None)
    session = SimpleNamespace(
        builder=SimpleNamespace(appName=lambda name: SimpleNamespace(getOrCreate=lambda: start(name)))
    )
    monkeypatch.setattr(job, "SparkSession", session)
    return done


@pytest.fixture
def options() -> argparse.Namespace:
    return parser("A job of the tests.").parse_args(["--lake", "s3://lake/lake", "--database", "d"])


STOP = threading.Event()
WRITTEN = [deed for table in TABLES for deed in (f"take {table}", f"make the client of {table}")]
GIVEN_BACK = [f"give back {table}" for table in TABLES]


def make_writers(running: Job) -> None:
    for contract in running.contracts:
        running.writer(contract)


def test_a_lease_is_taken_before_its_tables_client_exists_and_given_back_after_spark_has_stopped(
    deeds: list[str], options: argparse.Namespace
) -> None:
    with running_job("test", URIS, options, STOP) as running:
        assert [contract.table for contract in running.contracts] == TABLES
        assert running.settings.quarantine == "s3://lake/lake/_quarantine"
        make_writers(running)
        deeds.append("work")
    assert deeds == ["start Spark", *WRITTEN, "work", "stop Spark", *GIVEN_BACK, "flush metrics"]


def test_a_failing_job_gives_its_leases_back_after_spark_has_stopped(
    deeds: list[str], options: argparse.Namespace
) -> None:
    def fail(running: Job) -> None:
        make_writers(running)
        raise RuntimeError("a commit failed")

    with (
        pytest.raises(RuntimeError, match="a commit failed"),
        running_job("test", URIS, options, STOP) as running,
    ):
        fail(running)
    assert deeds == ["start Spark", *WRITTEN, "stop Spark", *GIVEN_BACK, "flush metrics"]


def test_a_lease_that_is_held_by_another_makes_no_client_and_leaves_the_other_tables_alone(
    deeds: list[str], options: argparse.Namespace
) -> None:
    deeds.append(f"refuse {TABLES[1]}")
    with running_job("test", URIS, options, STOP) as running:
        running.writer(running.contracts[0])
        with pytest.raises(LeaseLost):
            running.writer(running.contracts[1])
    assert deeds[1:] == ["start Spark", *WRITTEN[:2], "stop Spark", GIVEN_BACK[0], "flush metrics"]


def test_the_next_writer_of_a_table_keeps_its_lease_and_takes_a_lost_one_again(
    deeds: list[str], options: argparse.Namespace
) -> None:
    client = f"make the client of {TABLES[0]}"
    with running_job("test", URIS[:1], options, STOP) as running:
        running.writer(running.contracts[0])
        running.writer(running.contracts[0])
        deeds.append(f"lose {TABLES[0]}")
        running.writer(running.contracts[0])
    lost = deeds.index(f"lose {TABLES[0]}")
    assert deeds[1:lost] == [f"take {TABLES[0]}", client, client]
    assert deeds[lost + 1 : lost + 4] == [f"give back {TABLES[0]}", f"take {TABLES[0]}", client]


def test_no_lease_is_taken_if_spark_does_not_start(deeds: list[str], options: argparse.Namespace) -> None:
    deeds.append("fail to start")
    with pytest.raises(RuntimeError, match="does not start"), running_job("test", URIS, options, STOP):
        pytest.fail("the job runs")
    assert deeds[1:] == ["flush metrics"]


def test_leases_are_not_given_back_while_spark_may_still_write(deeds: list[str], options: argparse.Namespace) -> None:
    deeds.append("fail to stop")
    with (
        pytest.raises(RuntimeError, match="does not stop"),
        running_job("test", URIS, options, STOP) as running,
    ):
        make_writers(running)
    assert deeds[1:] == ["start Spark", *WRITTEN, "stop Spark", "flush metrics"]


class FakeTime(threading.Event):
    """The event that stops a job. Waiting for it takes no time, but moves the clock. It is set at ``end``, in
    seconds."""

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
    orders: CommitNext,
    pause: IdlePause,
    *,
    warm_up: Callable[[Job], None] = lambda job: None,
    once: bool = False,
    **others: CommitNext,
) -> list[dict[str, Any]]:
    """Run the loops of the tables until the time is over. Returns the reported events. Spark ends with the first table
    that raises SystemError."""
    events: list[dict[str, Any]] = []

    def stopped() -> bool:
        return any(event["event"] == "failed" and event["error"] == "SystemError" for event in events)

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None, _jsc=java))
    services: Any = SimpleNamespace(report=events.append, decoding=DecodingAhead())
    leases: Any = None
    settings: Any = None
    options = argparse.Namespace(once=once)
    run = Job([], leases, spark, services, settings, options, time, clock=lambda: time.now).run
    run(
        {table: partial(returned, work) for table, work in {"orders": orders, **others}.items()}, pause, warm_up=warm_up
    )
    return events


def returned(work: CommitNext) -> CommitNext:
    return work


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


def test_a_job_warms_up_when_all_tables_were_looked_at() -> None:
    deeds: list[str] = []

    def look(table: str) -> bool:
        deeds.append(table)
        if table == "products" and deeds.count(table) == 1:
            wait_until("the other table's look", lambda: "orders" in deeds, poll=0.001)
            raise OSError("S3 refused")
        # The time goes on once the warm-up is over.
        wait_until("the warm-up", lambda: deeds.count(table) == 1 or "warm" in deeds, poll=0.001)
        return False

    warm: Callable[[Job], None] = lambda job: deeds.append("warm")  # noqa: E731
    products = partial(look, "products")
    run_for(FakeTime(end=60), partial(look, "orders"), IdlePause(1, 1), products=products, warm_up=warm)
    before = deeds[: deeds.index("warm")]
    assert set(before) == {"orders", "products"}
    assert deeds.count("warm") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_goes_on_if_its_warm_up_fails(capsys: pytest.CaptureFixture[str], *, fails: bool) -> None:
    looked, warms = threading.Event(), threading.Event()

    def warm(job: Job) -> None:
        warms.set()
        if fails:
            raise OSError("S3 refused")

    def look() -> bool:
        if looked.is_set():
            wait_until("the warm-up", warms.is_set, poll=0.001)
        looked.set()
        return False

    run_for(FakeTime(end=2), look, IdlePause(1, 1), warm_up=warm)
    event = json.loads(capsys.readouterr().out)
    assert event["event"] == ("warm-up failed" if fails else "ready")
    assert event.get("message") == ("S3 refused" if fails else None)


def test_a_job_that_only_drains_does_not_warm_up() -> None:
    warmed: list[Job] = []
    run_for(FakeTime(end=60), lambda: False, IdlePause(1, 1), warm_up=warmed.append, once=True)
    assert warmed == []


class Failing:
    """The work of a table that raises these errors, one at each poll, and works from then on. ``at`` has the times of
    the polls."""

    def __init__(self, time: FakeTime, *errors: Exception) -> None:
        self._time = time
        self._errors = list(errors)
        self.at: list[float] = []

    def commit_next(self) -> bool:
        self.at.append(self._time.now)
        if self._errors:
            raise self._errors.pop(0)
        return False


def in_step(work: CommitNext, others: Sequence[float], tries: int) -> CommitNext:
    """Work whose first polls each wait for another try of another table. Waiting takes no time here, so one
    thread would otherwise be at the end before the other begins."""
    looks = itertools.count(1)

    def commit_next() -> bool:
        look = min(next(looks), tries)
        wait_until("another table's try", lambda: len(others) >= look, poll=0.001)
        return work()

    return commit_next


SEVERAL = [OSError("S3 refused"), OSError("S3 refused"), LeaseLost("products: held by another"), OSError("refused")]
BAD = TooManyBadRecords("products: 20 of 21 records cannot be decoded")


def test_a_failure_that_passes_costs_its_table_some_seconds_and_the_others_nothing() -> None:
    time = FakeTime(end=3600)
    landed, products = Landed(time, 100, 1000, 3500), Failing(time, *SEVERAL)

    look = in_step(landed.commit_next, products.at, len(SEVERAL) + 1)
    events = run_for(time, look, IdlePause(0.5, 30), products=products.commit_next)
    assert len(landed.waited) == 3
    told = [event for event in events if event.get("table") == "products" and event["event"] != "idle"]
    assert [event["event"] for event in told] == ["failed"] * 4 + ["recovered"]
    assert [event["attempt"] for event in told[:4]] == [1, 2, 3, 4]
    assert all(event["passes"] for event in told[:4])
    shares = [event["again_in_seconds"] / PASSING_PAUSE.after(event["attempt"]) for event in told[:4]]
    assert 0.5 <= min(shares) < max(shares) <= 1  # they have jitter


def test_a_table_that_somebody_must_mend_is_tried_ever_more_rarely_while_the_others_go_on() -> None:
    time = FakeTime(end=7200)
    landed, products = Landed(time, 1000, 7000), Failing(time, *[BAD] * 100)
    look = in_step(landed.commit_next, products.at, 4)
    with pytest.raises(TooManyBadRecords, match="products: 20 of 21"):
        run_for(time, look, IdlePause(0.5, 30), products=products.commit_next)
    assert len(landed.waited) == 2
    assert time.now >= 7200
    assert 4 <= len(products.at) <= 30
    assert products.at[1] - products.at[0] >= LASTING_PAUSE.first / 2


def test_a_table_that_waits_for_its_lease_when_the_job_is_told_to_stop_has_not_failed() -> None:
    time = FakeTime(end=3600)

    def stopped() -> bool:
        time.set()
        raise LeaseLost("orders: held by another")

    assert run_for(time, stopped, IdlePause(0.5, 30)) == []


def test_a_table_that_cannot_even_begin_is_prepared_again() -> None:
    time = FakeTime(end=3600)
    tries: list[float] = []

    def prepare() -> CommitNext:
        tries.append(time.now)
        if len(tries) < 3:
            raise OSError("S3 refused")
        return lambda: False

    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(
            setLocalProperty=lambda *_: None, _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
        )
    )
    events: list[dict[str, Any]] = []
    services: Any = SimpleNamespace(report=events.append, decoding=DecodingAhead())
    nothing: Any = None
    options = argparse.Namespace(once=False)
    running = Job([], nothing, spark, services, nothing, options, time, clock=lambda: time.now)
    running.run(
        {"orders": prepare, "products": partial(returned, in_step(lambda: False, tries, 3))}, IdlePause(0.5, 30)
    )
    assert len(tries) == 3
    assert {"event": "recovered", "table": "orders"} in events


def test_a_job_all_of_whose_tables_fail_for_good_ends() -> None:
    time = FakeTime(end=36000)
    orders, products = Failing(time, *[OSError("S3 refused")] * 100), Failing(time, *[BAD] * 100)
    refused = in_step(products.commit_next, orders.at, 3)
    with pytest.raises((TooManyBadRecords, OSError)):
        run_for(time, orders.commit_next, IdlePause(0.5, 30), products=refused)
    assert time.now < 36000


def test_a_job_whose_spark_is_gone_ends() -> None:
    time = FakeTime(end=3600)
    gone = Failing(time, SystemError("the JVM is gone"), SystemError("the JVM is gone"))
    look = in_step(Landed(time).commit_next, gone.at, 2)
    with pytest.raises(SystemError, match="the JVM is gone"):
        run_for(time, look, IdlePause(0.5, 30), products=gone.commit_next)
    assert time.now < 3600


def test_the_emr_step_needs_neither_msgspec_nor_what_stays_on_the_laptop() -> None:
    script = (
        "import runpy, sys; sys.modules['msgspec'] = None; runpy.run_path(sys.argv[1], run_name='imported');"
        "print(*sorted(name for name in sys.modules if name.startswith('headwater.')))"
    )
    command = [sys.executable, "-c", script, str(ROOT / "emr_steps" / "write_hudi.py")]
    imported = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    shipped = ("headwater.contract", "headwater.errors", "headwater.lake")
    assert "headwater.lake.table.writer" in imported
    assert [name for name in imported if not name.startswith(shipped)] == []
    assert "headwater.contract.reading" not in imported

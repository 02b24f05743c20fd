"""What holds a job's tables while it runs, and what the EMR step may import."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from headwater.contract.reading import read_contracts
from headwater.lake import job, metrics
from headwater.lake.job import parser, running_job
from headwater.lake.lease import LeaseLost
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
    assert deeds[1:] == [*TAKEN, "start Spark", "stop Spark"]


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

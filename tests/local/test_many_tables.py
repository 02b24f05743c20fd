"""Fifty tables in one EMR step: what idle ones cost, and that a large one that its store does not answer holds up no
other."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.benchmark import change_log
from headwater.benchmark.change_log import ChangeLog
from headwater.console import say
from headwater.definitions.glue_table import table_input
from headwater.local import spark
from headwater.local.aws import REGION
from headwater.local.pipeline import EventLog, bytes_of_part
from headwater.local.processes import Process, wait_until
from headwater.local.spark import SparkJob
from headwater.paths import ROOT
from tests.aws_recorder import ApiWithS3Behind, Recorder

pytestmark = pytest.mark.drill

TABLES = 50
BUCKETS = 4
BUCKETS_OF_HELD = 40
ROWS = 1_000
CHANGES = 50
LOOK_SECONDS = 1.0
BETWEEN_BATCHES = 0.5
IDLE_SECONDS = 30
LOADED_SECONDS = 60


class HoldingS3(Recorder):
    """A proxy in front of S3 that answers nothing about the files below a folder while that is held. S3 throttles by
    prefix."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._held: str | None = None
        self._released = threading.Event()

    def hold(self, folder: str) -> None:
        """Answer nothing below the folder."""
        self._released.clear()
        self._held = folder

    def release(self) -> None:
        """Answer what waits, and everything from now on."""
        self._held = None
        self._released.set()

    def refusal(self, method: str, path: str) -> HTTPStatus | None:
        # What begins a commit passes, so that its files are waited for, all at once.
        if self._held is not None and self._held in path and "/.hoodie/" not in path:
            self._released.wait()
        return None

    def _keep(self, *_: object) -> None:
        """Keep nothing."""


@dataclass
class Tables:
    """A running step and its tables, all in the bucket ``many``."""

    api: ApiWithS3Behind[HoldingS3]
    job: Process
    events: EventLog
    logs: dict[str, ChangeLog]
    landed: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    """Of each table the offsets after what has landed, and when."""

    def land(self, table: str, changes: int) -> None:
        """Land the next changes of a table, all of its rows where it has none."""
        log = self.logs[table]
        for body in [log.batch(changes)] if self.landed[table] else log.snapshot():
            key = f"landing/headwater.shop.{table}/{body.key}"
            metadata = {"next-offset": str(body.next)}
            self.api.client("s3").put_object(Bucket="many", Key=key, Body=body.body, Metadata=metadata)
            self.landed[table].append((body.next, time.time()))

    def load(self, seconds: float) -> None:
        """Land batches of one table after the other."""
        names = list(self.logs)
        began = time.monotonic()
        number = 0
        while (behind := began + number * BETWEEN_BATCHES - time.monotonic()) < seconds - (time.monotonic() - began):
            time.sleep(max(behind, 0))
            self.land(names[number % len(names)], CHANGES)
            number += 1

    def delays(self, since: float) -> dict[str, list[float]]:
        """Of each table the seconds from the landing of a batch to its commit; infinite where there is none yet."""
        ends: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for commit in self.events.commits():
            for source, end in commit["cursor"].items():
                ends[source.split(".")[-1].partition("/")[0]].append((end, commit["completed_at"]))
        return {
            table: [
                min((at for end, at in ends[table] if end >= offset), default=float("inf")) - landed
                for offset, landed in batches
                if landed >= since
            ]
            for table, batches in self.landed.items()
        }

    def await_committed(self) -> None:
        """Wait until all that has landed is committed."""

        def committed() -> bool:
            self.job.check()
            return all(max(delays, default=0) < float("inf") for delays in self.delays(0).values())

        wait_until("all to be committed", committed, timeout=300, poll=0.5)


@pytest.fixture
def tables(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tables]:
    names = [f"payments_{number:02d}" for number in range(request.param)]
    with ApiWithS3Behind(tmp_path / "aws", HoldingS3) as api:
        s3, glue = api.client("s3"), api.client("glue")
        s3.create_bucket(Bucket="many", CreateBucketConfiguration={"LocationConstraint": REGION})
        glue.create_database(DatabaseInput={"Name": "many"})
        arguments = ["--landing", "s3://many/landing", "--lake", "s3://many/lake", "--database", "many"]
        for name in names:
            contract = change_log.contract(BUCKETS_OF_HELD if name == names[0] else BUCKETS, table=name)
            glue.create_table(DatabaseName="many", TableInput=table_input(contract, f"s3://many/lake/{name}"))
            s3.put_object(Bucket="many", Key=f"contracts/{name}.json", Body=contract.to_json().encode())
            arguments += ["--contract", f"s3://many/contracts/{name}.json"]
        arguments += ["--idle-seconds-max", str(LOOK_SECONDS)]
        job = SparkJob(ROOT / "emr_steps" / "write_hudi.py", arguments, memory="2g", optimized=True)
        process = spark.submit(job, tmp_path / "run", api)
        process.start()
        try:
            logs = {name: ChangeLog(ROWS, seed, name) for seed, name in enumerate(names)}
            yield Tables(api, process, EventLog(tmp_path / "run" / "events.jsonl"), logs)
        finally:
            api.s3_recorder.release()
            process.stop(timeout=60)


def percentile(delays: list[float], share: float) -> float:
    return statistics.quantiles(delays, n=100, method="inclusive")[round(100 * share) - 1]


def cpu_seconds(pid: int) -> float:
    """What a process and its descendants have computed so far."""
    process = psutil.Process(pid)
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


@pytest.mark.parametrize("tables", [1, TABLES], indirect=True, ids="{} tables".format)
def test_tables_are_idle_and_busy_beside_each_other(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    (held, *others) = tables.logs
    figures: dict[str, Any] = {"tables": len(tables.logs)}
    for name in tables.logs:
        tables.land(name, ROWS)
    tables.await_committed()
    time.sleep(10)
    before, began = cpu_seconds(tables.job.pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    looks = len(tables.logs) * (time.monotonic() - began) / LOOK_SECONDS
    figures["milliseconds_of_cpu_a_look"] = round(1000 * (cpu_seconds(tables.job.pid) - before) / looks, 2)
    tables.load(LOADED_SECONDS / 2)  # warms up
    tables.await_committed()
    for phase in ("alone", "beside"):
        since = time.time()
        if phase == "beside" and others:
            tables.api.s3_recorder.hold(f"/many/lake/{held}/")
            tables.land(held, ROWS)
        tables.load(LOADED_SECONDS)
        delays = {name: late for name, late in tables.delays(since).items() if name != held or not others}
        if phase == "beside" and others:
            # Each has been written in the meantime, but for what has just landed.
            assert [name for name in others if min(delays[name]) == float("inf")] == []
        tables.api.s3_recorder.release()
        tables.await_committed()
        delays = {name: late for name, late in tables.delays(since).items() if name != held or not others}
        every = [late for each in delays.values() for late in each]
        figures[f"{phase}_p50"] = round(percentile(every, 0.5), 2)
        figures[f"{phase}_p95"] = round(percentile(every, 0.95), 2)
    figures["memory_bytes"] = bytes_of_part(tables.job.pid)
    with capsys.disabled():
        say(", ".join(f"{name} {value:,}" for name, value in figures.items()))

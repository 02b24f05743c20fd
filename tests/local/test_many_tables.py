"""Fifty tables in one job: how much idle ones cost. A large one whose store does not answer holds up none of the
others."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from headwater.console import say
from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.definitions.glue_table import table_input
from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.benchmark import change_log
from rig.benchmark.change_log import ChangeLog
from rig.local import spark
from rig.local.aws import REGION
from rig.local.pipeline import EventLog, bytes_of_part
from rig.local.spark import SparkJob
from tests.aws_recorder import ApiWithS3Behind, Recorder
from tests.lake import accounts

pytestmark = pytest.mark.drill

TABLES = 50
BUCKETS = 4
BUCKETS_OF_HELD = 40
ROWS = 1_000
CHANGES = 50
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


class Tables(ABC):
    """A running job and its tables, all in the bucket ``many``. The first one has so many file groups that those who
    write it take all threads while S3 does not answer."""

    look_seconds: ClassVar[float]
    """From one look for changes to the next."""
    between_batches: ClassVar[float]
    """Seconds from the landing of one table's changes to that of the next table's."""

    def __init__(self, folder: Path, api: ApiWithS3Behind[HoldingS3], count: int) -> None:
        self.api = api
        self.names = [f"table_{number:02d}" for number in range(count)]
        self.events = EventLog(folder / "run" / "events.jsonl")
        # Of each table how many changes have landed by when.
        self._landed: dict[str, list[tuple[int, float]]] = defaultdict(list)
        s3, glue = api.client("s3"), api.client("glue")
        s3.create_bucket(Bucket="many", CreateBucketConfiguration={"LocationConstraint": REGION})
        glue.create_database(DatabaseInput={"Name": "many"})
        for number, name in enumerate(self.names):
            contract = self._contract(name, BUCKETS if number else BUCKETS_OF_HELD)
            glue.create_table(DatabaseName="many", TableInput=table_input(contract, f"s3://many/lake/{name}"))
            s3.put_object(Bucket="many", Key=f"contracts/{name}.json", Body=contract.to_json().encode())
        self.job = spark.submit(self._job(folder), folder / "run", api)

    @abstractmethod
    def _contract(self, table: str, buckets: int) -> Contract:
        """The contract of a table."""

    @abstractmethod
    def _job(self, folder: Path) -> SparkJob:
        """The job that writes them all."""

    @abstractmethod
    def _put(self, table: str, changes: int) -> int:
        """Let changes of a table land. Returns how many: all of its rows if it has none."""

    def land(self, table: str, changes: int) -> None:
        """Let changes of a table land, its rows at first."""
        landed = self._landed[table]
        put = self._put(table, changes)
        landed.append((put + (landed[-1][0] if landed else 0), time.time()))

    def load(self, seconds: float) -> None:
        """Land batches of one table after the other."""
        pause = self.pause
        began = time.monotonic()
        number = 0
        while (behind := began + number * pause - time.monotonic()) < seconds - (time.monotonic() - began):
            time.sleep(max(behind, 0))
            self.land(self.names[number % len(self.names)], CHANGES)
            number += 1

    @property
    def pause(self) -> float:
        """Seconds from one batch to the next, with so many tables."""
        return self.between_batches

    def delays(self, since: float, until: float = float("inf")) -> dict[str, list[float]]:
        """The seconds from the landing of a batch between those moments to its commit, by table; infinite if there is
            none
        yet."""
        ends: dict[str, list[tuple[int, float]]] = defaultdict(list)
        committed: Counter[str] = Counter()
        for commit in self.events.commits():
            committed[commit["table"]] += commit["changes"]
            ends[commit["table"]].append((committed[commit["table"]], commit["completed_at"]))
        return {
            table: [
                min((at for end, at in ends[table] if end >= total), default=float("inf")) - landed
                for total, landed in batches
                if since <= landed <= until
            ]
            for table, batches in self._landed.items()
        }

    def await_committed(self) -> None:
        """Wait until all that has landed is committed."""

        def committed() -> bool:
            self.job.check()
            return all(max(delays, default=0) < float("inf") for delays in self.delays(0).values())

        wait_until("all to be committed", committed, self.events.progress, poll=0.5)


class TablesOfPostgresql(Tables):
    """Written by the EMR step from the sink's landing objects."""

    look_seconds = 1.0
    between_batches = 0.5

    def __init__(self, folder: Path, api: ApiWithS3Behind[HoldingS3], count: int) -> None:
        super().__init__(folder, api, count)
        self._logs = {name: ChangeLog(ROWS, seed, name) for seed, name in enumerate(self.names)}

    def _contract(self, table: str, buckets: int) -> Contract:
        return change_log.contract(buckets, table=table)

    def _job(self, folder: Path) -> SparkJob:
        arguments = ["--landing", "s3://many/landing", "--lake", "s3://many/lake", "--database", "many"]
        for name in self.names:
            arguments += ["--contract", f"s3://many/contracts/{name}.json"]
        arguments += ["--idle-seconds-max", str(self.look_seconds)]
        return SparkJob(ROOT / "emr_steps" / "write_hudi.py", arguments, memory="2g", optimized=True)

    def _put(self, table: str, changes: int) -> int:
        log = self._logs[table]
        bodies = [log.batch(changes)] if self._landed[table] else list(log.snapshot())
        for body in bodies:
            key = f"landing/headwater.shop.{table}/{body.key}"
            metadata = {"next-offset": str(body.next)}
            self.api.client("s3").put_object(Bucket="many", Key=key, Body=body.body, Metadata=metadata)
        return sum(body.next - body.first for body in bodies)


class TablesOfDynamodb(Tables):
    """Written by the Glue job from a Kinesis stream for each."""

    look_seconds = 5.0
    between_batches = 2.0

    def __init__(self, folder: Path, api: ApiWithS3Behind[HoldingS3], count: int) -> None:
        self._numbers = itertools.count()
        super().__init__(folder, api, count)

    def _contract(self, table: str, buckets: int) -> Contract:
        text = accounts.CONTRACT.replace("table: accounts", f"table: {table}", 1).replace("headwater-accounts", table)
        return parse_contract(text.replace("buckets: 2", f"buckets: {buckets}"), f"{table}.yaml")

    def _job(self, folder: Path) -> SparkJob:
        for name in self.names:
            self.api.client("kinesis").create_stream(StreamName=name, ShardCount=1)
        account = "arn:aws:kinesis:eu-central-1:123456789012:stream"
        arguments = {
            "--contract": ",".join(f"s3://many/contracts/{name}.json" for name in self.names),
            "--stream-arn": self._of_each(f"{account}/{{}}"),
            "--source-table": self._of_each(accounts.SOURCE),
            "--lake": "s3://many/lake",
            "--database": "many",
            "--window-seconds": str(self.look_seconds),
        }
        script = ROOT / "glue_scripts" / "write_hudi.py"
        return SparkJob(script, [part for pair in arguments.items() for part in pair], memory="3g", optimized=True)

    def _of_each(self, value: str) -> str:
        return ",".join(f"{name}={value.format(name)}" for name in self.names)

    def _put(self, table: str, changes: int) -> int:
        number = next(self._numbers)
        records = []
        for id_ in range(changes):
            new = accounts.item(str(id_), name=f"name {number}")
            data = accounts.change(time.time_ns() // 1000 + id_, new if self._landed[table] else None, new)
            records.append({"Data": data, "PartitionKey": str(id_)})
        for first in range(0, changes, 500):
            self.api.client("kinesis").put_records(StreamName=table, Records=records[first : first + 500])
        return changes


@pytest.fixture
def tables(tmp_path: Path, kind: type[Tables], count: int) -> Iterator[Tables]:
    with ApiWithS3Behind(tmp_path / "aws", HoldingS3) as api:
        tables = kind(tmp_path, api, count)
        tables.job.start()
        try:
            yield tables
        finally:
            api.s3_recorder.release()
            tables.job.stop(60)


def percentile(delays: list[float], share: float) -> float:
    return statistics.quantiles(delays, n=100, method="inclusive")[round(100 * share) - 1]


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process and its descendants so far."""
    process = psutil.Process(pid)
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


@pytest.mark.parametrize("count", [1, TABLES])
@pytest.mark.parametrize("kind", [TablesOfPostgresql, TablesOfDynamodb])
def test_tables_are_idle_and_busy_beside_each_other(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    (held, *others) = tables.names
    figures: dict[str, Any] = {"tables": len(tables.names)}
    for name in tables.names:
        tables.land(name, ROWS)
    tables.await_committed()
    time.sleep(10)
    before, began = cpu_seconds(tables.job.pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    looks = len(tables.names) * (time.monotonic() - began) / tables.look_seconds
    figures["milliseconds_of_cpu_a_look"] = round(1000 * (cpu_seconds(tables.job.pid) - before) / looks, 2)
    tables.load(LOADED_SECONDS / 2)  # warms up
    tables.await_committed()
    for phase in ("alone", "beside"):
        since = time.time()
        if phase == "beside" and others:
            tables.api.s3_recorder.hold(f"/many/lake/{held}/")
            tables.land(held, ROWS)
        # Each of them twice at least.
        loaded = max(LOADED_SECONDS, 2 * len(tables.names) * tables.pause)
        tables.load(loaded)
        if phase == "beside":
            # Nobody else has waited for it to be answered.
            earlier = tables.delays(since, since + loaded / 2)
            assert [name for name in others if not earlier[name] or float("inf") in earlier[name]] == []
        tables.api.s3_recorder.release()
        tables.await_committed()
        delays = {name: late for name, late in tables.delays(since).items() if name != held or not others}
        every = [late for each in delays.values() for late in each]
        figures[f"{phase}_p50"] = round(percentile(every, 0.5), 2)
        figures[f"{phase}_p95"] = round(percentile(every, 0.95), 2)
    figures["memory_bytes"] = bytes_of_part(tables.job.pid)
    with capsys.disabled():
        say(", ".join(f"{name} {value:,}" for name, value in figures.items()))

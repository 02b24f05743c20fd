"""How many requests the shipped writer sends to S3, for a commit to four buckets and in an idle minute."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from headwater.contract.reading import parse_contract
from headwater.local import spark
from headwater.local.aws import REGION
from headwater.local.pipeline import EventLog
from headwater.local.processes import Process, wait_until
from headwater.local.spark import SparkJob
from headwater.paths import ROOT
from tests.aws_recorder import ApiWithS3Behind, Recorder, Request
from tests.lake.pipeline import CONTRACT, Pipeline, account, event

pytestmark = pytest.mark.drill

BUCKET = "requests"
# With a compaction and what it leaves to clean.
COMMITS = 40
# Limits, above what was counted. What `make cost` reckons with is the mean that is printed below.
PLAIN_COMMIT, IDLE_MINUTE = 45, 6
# As in dev.
IDLE_SECONDS_MAX = 30


class Writer:
    """The EMR step's script over one table, told what lands."""

    def __init__(self, api: ApiWithS3Behind[Recorder], folder: Path) -> None:
        self.recorder = api.s3_recorder
        self._events = EventLog(folder / "run" / "events.jsonl")
        s3 = api.client("s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        no_spark: Any = None
        self._landed = Pipeline(no_spark, api, "t", BUCKET)
        contract = parse_contract(
            CONTRACT.replace("[month]", "[]").replace("buckets: 2", "buckets: 4"), "accounts.yaml"
        )
        s3.put_object(Bucket=BUCKET, Key="accounts.json", Body=contract.to_json().encode())
        options = {
            "--contract": f"s3://{BUCKET}/accounts.json",
            "--landing": self._landed.landing,
            "--lake": self._landed.lake,
            "--database": self._landed.database,
            "--idle-seconds-max": str(IDLE_SECONDS_MAX),
        }
        arguments = [part for pair in options.items() for part in pair]
        self.process: Process = spark.submit(
            SparkJob(ROOT / "emr_steps" / "write_hudi.py", arguments), folder / "run", api
        )

    def commit(self, *events: dict[str, Any]) -> list[Request]:
        """Land changes, and give the requests until they are committed."""
        before, commits = len(self.recorder.requests), len(self._events.commits())
        self._landed.land(*events)
        wait_until("the commit", lambda: len(self._events.commits()) > commits, timeout=120, poll=0.02)
        return list(self.recorder.requests[before:])


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    folder = tmp_path_factory.mktemp("s3-requests")
    with ApiWithS3Behind(folder / "aws", Recorder) as api:
        writer = Writer(api, folder)
        with writer.process:
            writer.commit(*(event("c", 10 + id_, after=account(id_)) for id_ in range(1000)))
            yield writer


def kinds(requests: list[Request]) -> Counter[str]:
    """What is paid for, by its kind and its caller."""
    counted: Counter[str] = Counter()
    for request in requests:
        listing = request.method == "GET" and "list-type" in parse_qs(request.query)
        caller = "writer" if "boto3" in request.headers["user-agent"].lower() else "Hudi"
        counted[f"{'LIST' if listing else request.method} by {caller}"] += 1
    return counted


def test_a_plain_commit(writer: Writer) -> None:
    commits = []
    for number in range(COMMITS):
        changed = (
            event("u", 10_000 * (number + 1) + id_, account(id_), account(id_, f"n{number}")) for id_ in range(100)
        )
        commits.append(writer.commit(*changed))
    plain = statistics.median_low(len(requests) for requests in commits)
    (one, *_) = (requests for requests in commits if len(requests) == plain)
    sys.stdout.write(f"\na plain commit: {plain} requests, {dict(kinds(one))}\n")
    all_kinds = kinds([request for requests in commits for request in requests])
    mean = {kind: round(number / COMMITS, 1) for kind, number in all_kinds.items()}
    sys.stdout.write(f"the mean of {COMMITS} with compactions: {all_kinds.total() / COMMITS:.1f} requests, {mean}\n")
    assert kinds(one)["PUT by Hudi"] == 4 + 3, "a log file for each bucket, and the instant's three states"
    assert plain <= PLAIN_COMMIT


def test_an_idle_minute(writer: Writer) -> None:
    time.sleep(3 * IDLE_SECONDS_MAX)
    before = len(writer.recorder.requests)
    time.sleep(120)
    idle = list(writer.recorder.requests[before:])
    sys.stdout.write(f"\nan idle minute: {len(idle) / 2} requests, of two {dict(kinds(idle))}\n")
    assert 0 < len(idle) <= 2 * IDLE_MINUTE

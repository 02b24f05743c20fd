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
from headwater.deployment.cost import assumed
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
# Limits: two above what was counted, and what is promised of an idle table.
PLAIN_COMMIT, IDLE_MINUTE = 18, 6
# How far `headwater cost` may be from the mean that is counted here, as a share.
OFF = 0.1
# As in dev.
IDLE_SECONDS_MAX = 30


# What the writer asks for as time goes by, whether it commits or not: what has landed, requests, its lease.
BY_TIME = ("LIST by writer", "PUT by writer")


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
        sent, commits = self.sent, len(self._events.commits())
        self._landed.land(*events)
        wait_until("the commit", lambda: len(self._events.commits()) > commits, timeout=120, poll=0.02)
        return self.requests_after(sent)

    @property
    def sent(self) -> int:
        """How many requests were sent until now."""
        return len(self.recorder.requests)

    def requests_after(self, sent: int) -> list[Request]:
        """Those that followed so many."""
        return list(self.recorder.requests[sent:])


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


def test_a_commit(writer: Writer) -> None:
    commits, began = [], writer.sent
    for number in range(COMMITS):
        changed = (
            event("u", 10_000 * (number + 1) + id_, account(id_), account(id_, f"n{number}")) for id_ in range(100)
        )
        commits.append(writer.commit(*changed))
    # Also what is sent between two commits, such as by a compaction.
    mean = {kind: number / COMMITS for kind, number in kinds(writer.requests_after(began)).items()}
    plain = statistics.median_low(len(requests) for requests in commits)
    (one, *_) = (requests for requests in commits if len(requests) == plain)
    sys.stdout.write(f"\na plain commit: {plain} requests, {dict(kinds(one))}\n")
    sys.stdout.write(f"the mean of {COMMITS} with compactions: {sum(mean.values()):.1f} requests, {mean}\n")
    assert kinds(one)["PUT by Hudi"] == 4 + 3, "a log file for each bucket, and the instant's three states"
    assert plain <= PLAIN_COMMIT

    # Its looks and its lease are reckoned with by the hour, and S3 asks nothing for a deletion.
    per_commit = {kind: number for kind, number in mean.items() if kind not in BY_TIME and "DELETE" not in kind}
    reads = sum(number for kind, number in per_commit.items() if kind.startswith(("GET", "HEAD")))
    writes = sum(per_commit.values()) - reads
    sys.stdout.write(f"of these by each commit: {reads:.1f} reads, {writes:.1f} of the dearer kinds\n")
    assert reads == pytest.approx(assumed("commit_reads"), rel=OFF)
    assert writes == pytest.approx(assumed("commit_writes"), rel=OFF)


def test_an_idle_minute(writer: Writer) -> None:
    time.sleep(3 * IDLE_SECONDS_MAX)
    sent = writer.sent
    time.sleep(120)
    idle = writer.requests_after(sent)
    sys.stdout.write(f"\nan idle minute: {len(idle) / 2} requests, of two {dict(kinds(idle))}\n")
    assert len(idle) <= 2 * IDLE_MINUTE
    assert set(kinds(idle)) == set(BY_TIME), "it looks, and keeps its lease"

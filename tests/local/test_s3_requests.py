"""How many requests the shipped writers send to S3, for a commit to four buckets and in an idle minute."""

from __future__ import annotations

import re
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.paths import ROOT
from headwater.review.cost import assumed
from headwater.waiting import wait_until
from rig.local import spark
from rig.local.aws import REGION
from rig.local.pipeline import EventLog
from rig.local.processes import Process
from rig.local.spark import SparkJob
from tests.aws_recorder import ApiWithS3Behind, Recorder, Request
from tests.lake import accounts
from tests.lake.pipeline import CONTRACT, Pipeline, account, event

pytestmark = pytest.mark.drill

BUCKET = "requests"
# With a compaction and what it leaves to clean.
COMMITS = 40
ROWS, CHANGES = 1_000, 100
# How far `headwater cost` may be from the mean that is counted here, as a share.
OFF = 0.1
# As in dev.
IDLE_SECONDS_MAX = 30
WINDOW_SECONDS = 2

# What a writer asks for as time goes by, whether it commits or not: what has landed, requests, its lease.
BY_TIME = ("LIST by writer", "PUT by writer")


class Writer(ABC):
    """A shipped script over one table, told what changes."""

    plain_commit: int
    """The most requests of a plain commit: two above the measured number."""
    idle_minute: int
    """The most requests of a minute without changes, as promised."""

    def __init__(self, api: ApiWithS3Behind[Recorder], folder: Path) -> None:
        self.recorder = api.s3_recorder
        self.api = api
        self._events = EventLog(folder / "run" / "events.jsonl")
        s3 = api.client("s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=BUCKET, Key="accounts.json", Body=self._contract().to_json().encode())
        arguments = [part for pair in self._options(folder).items() for part in pair]
        self.process: Process = spark.submit(SparkJob(self._script, arguments), folder / "run", api)

    @property
    @abstractmethod
    def _script(self) -> Path:
        """The script."""

    @abstractmethod
    def _contract(self) -> Contract:
        """The table's contract: four buckets, no partitions."""

    @abstractmethod
    def _options(self, folder: Path) -> dict[str, str]:
        """The script's options."""

    @abstractmethod
    def _change(self, number: int, rows: int) -> None:
        """Let so many rows change, for the ``number``-th time."""

    def commit(self, number: int, rows: int) -> list[Request]:
        """Let rows change, and give the requests until that is committed."""
        sent, commits = self.sent, len(self._events.commits())
        self._change(number, rows)
        wait_until("the commit", lambda: len(self._events.commits()) > commits, poll=0.02)
        return self.requests_after(sent)

    def await_ready(self) -> None:
        """Wait until the warm-up has ended, whose commits are not the table's."""
        wait_until("the writer to be ready", lambda: any(each["event"] == "ready" for each in self._events.update()))

    @property
    def sent(self) -> int:
        """How many requests were sent until now."""
        return len(self.recorder.requests)

    def requests_after(self, sent: int) -> list[Request]:
        """The requests that followed the first ``sent`` ones."""
        return self.recorder.requests[sent:]


class StepWriter(Writer):
    """The EMR step's script over landing objects."""

    plain_commit, idle_minute = 18, 6

    @property
    def _script(self) -> Path:
        return ROOT / "emr_steps" / "write_hudi.py"

    def _contract(self) -> Contract:
        return parse_contract(CONTRACT.replace("[month]", "[]").replace("buckets: 2", "buckets: 4"), "accounts.yaml")

    def _options(self, folder: Path) -> dict[str, str]:
        no_spark: Any = None
        self._landed = Pipeline(no_spark, self.api, "t", BUCKET)
        return {
            "--contract": f"s3://{BUCKET}/accounts.json",
            "--landing": self._landed.landing,
            "--lake": self._landed.lake,
            "--database": self._landed.database,
            "--idle-seconds-max": str(IDLE_SECONDS_MAX),
        }

    def _change(self, number: int, rows: int) -> None:
        former = [account(id_) if number else None for id_ in range(rows)]
        self._landed.land(
            *(
                event("u" if before else "c", 10_000 * number + 10 + id_, before, account(id_, f"n{number}"))
                for id_, before in enumerate(former)
            )
        )


class JobWriter(Writer):
    """The Glue job's script over a stream."""

    plain_commit, idle_minute = 14, 60 // WINDOW_SECONDS + 4

    @property
    def _script(self) -> Path:
        return ROOT / "glue_scripts" / "write_hudi.py"

    def _contract(self) -> Contract:
        text = accounts.CONTRACT.replace("[month]", "[]").replace("buckets: 2", "buckets: 4")
        return parse_contract(text, "accounts.yaml")

    def _options(self, folder: Path) -> dict[str, str]:
        self.api.client("kinesis").create_stream(StreamName=accounts.SOURCE, ShardCount=1)
        self.api.client("glue").create_database(DatabaseInput={"Name": "requests"})
        return {
            "--contract": f"s3://{BUCKET}/accounts.json",
            "--stream-arn": f"accounts=arn:aws:kinesis:{REGION}:123456789012:stream/{accounts.SOURCE}",
            "--source-table": f"accounts={accounts.SOURCE}",
            "--lake": f"s3://{BUCKET}/lake",
            "--database": "requests",
            "--window-seconds": str(WINDOW_SECONDS),
        }

    def _change(self, number: int, rows: int) -> None:
        records = []
        for id_ in range(rows):
            new = accounts.item(str(id_), name=f"n{number}")
            data = accounts.change(time.time_ns() // 1000 + id_, new if number else None, new)
            records.append({"Data": data, "PartitionKey": "one"})
        for first in range(0, rows, 500):
            self.api.client("kinesis").put_records(StreamName=accounts.SOURCE, Records=records[first : first + 500])


@pytest.fixture(scope="module", params=[StepWriter, JobWriter])
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    folder = tmp_path_factory.mktemp("s3-requests")
    with ApiWithS3Behind(folder / "aws", Recorder) as api:
        writer: Writer = request.param(api, folder)
        with writer.process:
            writer.commit(0, ROWS)
            writer.await_ready()
            yield writer


def kind(request: Request) -> str:
    """The kind of request that AWS bills, and its caller."""
    listing = request.method == "GET" and "list-type" in parse_qs(request.query)
    caller = "writer" if "boto3" in request.headers["user-agent"].lower() else "Hudi"
    return f"{'LIST' if listing else request.method} by {caller}"


def kinds(requests: list[Request]) -> Counter[str]:
    """How many of them there are of each kind."""
    return Counter(map(kind, requests))


def told(request: Request) -> str:
    """A request for people: its kind, of what, and the call of Hadoop's that it serves, as S3A tells."""
    key = unquote(parse_qs(request.query).get("prefix", [urlsplit(request.path).path.partition(f"/{BUCKET}")[2]])[0])
    key = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27,}", "ID", key)
    call = parse_qs(urlsplit(request.headers.get("referer", "")).query).get("op", [""])[0]
    return f"{kind(request)} of {re.sub(r'[0-9]+', 'N', key)} {call}".rstrip()


def test_a_commit(writer: Writer) -> None:
    commits, began = [], writer.sent
    for number in range(COMMITS):
        commits.append(writer.commit(number + 1, CHANGES))
    # Also what is sent between two commits, such as by a compaction.
    mean = {kind: number / COMMITS for kind, number in kinds(writer.requests_after(began)).items()}
    plain = statistics.median_low(len(requests) for requests in commits)
    (one, *_) = (requests for requests in commits if len(requests) == plain)
    sys.stdout.write(f"\na plain commit: {plain} requests, {dict(kinds(one))}\n")
    sys.stdout.write("".join(f"  {number} {name}\n" for name, number in Counter(map(told, one)).items()))
    sys.stdout.write(f"the mean of {COMMITS} with compactions: {sum(mean.values()):.1f} requests, {mean}\n")
    to_the_table = [each for each in one if "/lake/" in each.path]
    assert kinds(to_the_table)["PUT by Hudi"] == 4 + 3, "a log file for each bucket, and the instant's three states"
    assert plain <= writer.plain_commit

    # Its looks and its lease are reckoned with by the hour, and S3 asks nothing for a deletion.
    per_commit = {kind: number for kind, number in mean.items() if kind not in BY_TIME and "DELETE" not in kind}
    reads = sum(number for kind, number in per_commit.items() if kind.startswith(("GET", "HEAD")))
    writes = sum(per_commit.values()) - reads
    sys.stdout.write(f"of these by each commit: {reads:.1f} reads, {writes:.1f} of the dearer kinds\n")
    for kind_, counted in (("reads", reads), ("writes", writes)):
        assert counted == pytest.approx(assumed(f"commit_{kind_}"), rel=OFF)


def test_an_idle_minute(writer: Writer) -> None:
    time.sleep(3 * IDLE_SECONDS_MAX)
    sent = writer.sent
    time.sleep(120)
    idle = writer.requests_after(sent)
    sys.stdout.write(f"\nan idle minute: {len(idle) / 2} requests, of two {dict(kinds(idle))}\n")
    assert len(idle) <= 2 * writer.idle_minute
    assert set(kinds(idle)) == set(BY_TIME), "it looks, and keeps its lease"

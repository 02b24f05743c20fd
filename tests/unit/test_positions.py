"""Whether the lake has come as far as a source was, of what the parts between them tell."""

from __future__ import annotations

import datetime as dt
import email.utils
import itertools
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from headwater.commands import lakes
from headwater.commands.lakes import DeployedLake
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract
from headwater.contract.reading import read_contracts
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.sources.kinesis import NOTHING_READ, READ_TO_END, ShardGone
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.operations import connectors, deployed, key_value
from headwater.operations.deployed import Deployed
from headwater.operations.positions import (
    ARRIVAL_SECONDS,
    CLOCK_SECONDS,
    REPLICATION_SECONDS,
    SILENT_SECONDS,
    SINK_SECONDS,
    LandedPosition,
    SinkLag,
    SinkTime,
    StreamedPosition,
    UnreadRecords,
)
from headwater.verify.watch import Reached
from headwater.yaml_files import set_value
from tests.kinesis_api import Kinesis
from tests.unit.conftest import BUCKET

MINUTE = 60.0
BEGAN = 30 * MINUTE
"""The time by AWS's clock when a test begins."""
SOURCE, OTHER = "orders/0", "orders/1"
TOPIC = "headwater.northwind.customers"
_names = itertools.count()


@dataclass
class Clock:
    """A clock that only the test moves."""

    now: float = BEGAN

    def __call__(self) -> float:
        return self.now

    def sleep_until(self, minute: float) -> None:
        """Go on to some minutes after the test's begin."""
        self.now = BEGAN + minute * MINUTE


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@dataclass
class Sink:
    """A sink, its lag in CloudWatch, and the table that is made of the landed records."""

    clock: Clock = field(default_factory=Clock)
    ends: dict[str, int] = field(default_factory=lambda: {SOURCE: 10, OTHER: 5})
    cursor: dict[str, int] = field(default_factory=lambda: {SOURCE: 10, OTHER: 5})
    lags: dict[float, float] = field(default_factory=dict)
    asked: list[float] = field(default_factory=list)

    def tell(self, minute: float, lag: float) -> None:
        """Have CloudWatch know a minute's lag, some minutes after the test's begin."""
        self.lags[BEGAN + minute * MINUTE] = lag

    def ask(self) -> Mapping[float, float]:
        self.asked.append(self.clock.now)
        return self.lags

    def position(self, *partitions: str) -> Reached:
        """The position of a PostgreSQL whose changes are all in Kafka."""
        lag = SinkLag(partitions or (SOURCE, OTHER), lambda: dict(self.ends), self.ask, self.clock)
        reached = LandedPosition(confirming, lag, lambda: self.cursor)()
        assert not reached()
        return reached


def confirming(query: str) -> str:
    return "true" if "pg_replication_slots" in query else "0/AB"


def test_a_postgresql_is_not_reached_before_its_slot_has_confirmed_what_was_written() -> None:
    asked, confirmed, began = [], "false", []

    def query(text: str) -> str:
        asked.append(text)
        return confirmed if "pg_replication_slots" in text else "0/AB"

    def stored() -> Callable[[], list[dict[str, int]]]:
        began.append(len(asked))
        return lambda: [{SOURCE: 10}]

    reached = LandedPosition(query, stored, lambda: {SOURCE: 10})()
    assert not reached()
    assert "'0/AB'" in asked[-1]
    assert not began
    confirmed = "true"
    assert reached()
    # The slot is not asked any more.
    assert (reached(), len(asked), began) == (True, 3, [3])


def test_any_of_the_goals_does_with_all_of_its_partitions() -> None:
    goals: list[dict[str, int]] = []
    cursor, asked = {SOURCE: 20}, 0

    def committed() -> dict[str, int]:
        nonlocal asked
        asked += 1
        return cursor

    reached = LandedPosition(confirming, lambda: lambda: goals, committed)()
    # A cursor costs requests.
    assert (reached(), asked) == (False, 0)
    goals += [{SOURCE: 30, OTHER: 2}, {SOURCE: 10, OTHER: 4}]
    assert not reached()
    cursor = {SOURCE: 29, OTHER: 3}
    assert not reached()
    cursor = {SOURCE: 10, OTHER: 4}
    assert reached()


def test_what_kafka_has_is_waited_for_where_the_sink_is_slow() -> None:
    sink = Sink()
    sink.cursor = {SOURCE: 1000, OTHER: 1000}
    reached = sink.position()
    # For how long ever.
    for minute in range(1, 9):
        sink.clock.sleep_until(minute)
        assert not reached()
    sink.cursor = dict(sink.ends)
    sink.tell(1, 5)
    sink.clock.sleep_until(9)
    assert not reached()
    sink.cursor = {SOURCE: 15, OTHER: 9}
    assert not reached()
    sink.cursor = {SOURCE: 15, OTHER: 10}
    assert reached()


def test_without_a_lag_what_has_landed_is_all() -> None:
    sink = Sink()
    reached = sink.position()
    sink.tell(1, 0)
    sink.ends = {SOURCE: 12, OTHER: 5}
    sink.clock.sleep_until(3)
    assert not reached()
    # What lands later came later.
    sink.ends = {SOURCE: 99, OTHER: 99}
    sink.cursor = {SOURCE: 12, OTHER: 5}
    assert reached()


def test_a_minute_that_may_have_begun_before_tells_nothing() -> None:
    sink = Sink()
    sink.clock.now = BEGAN + MINUTE - CLOCK_SECONDS + 1
    reached = sink.position()
    sink.tell(0, 0)
    sink.tell(1, 0)
    sink.clock.sleep_until(3)
    assert not reached()
    sink.tell(2, 0)
    sink.clock.sleep_until(4)
    assert reached()


def test_each_smaller_lag_is_a_goal_more() -> None:
    sink = Sink()
    reached = sink.position()
    for minute, lag, ends in ((1, 40, 20), (2, 50, 25), (3, 9, 30)):
        sink.tell(minute, lag)
        sink.ends = {SOURCE: ends, OTHER: 5}
        sink.clock.sleep_until(minute)
        assert not reached()
    # By the third minute's; by the second's and by the first's they would lie at 75, 55 and at 60, 45.
    sink.cursor = {SOURCE: 38, OTHER: 14}
    assert not reached()
    sink.cursor = {SOURCE: 39, OTHER: 14}
    assert reached()
    # Where the first is met before.
    sink.cursor = {SOURCE: 60, OTHER: 44}
    assert reached()


def test_a_goal_stays_when_others_come() -> None:
    sink = Sink()
    reached = sink.position()
    for minute, lag, ends in ((1, 10, 100), (2, 9, 500), *((later, 9 + later, 500 + later) for later in range(3, 20))):
        sink.tell(minute, lag)
        sink.ends = {SOURCE: ends, OTHER: ends}
        sink.clock.sleep_until(minute)
        assert not reached()
    sink.cursor = {SOURCE: 110, OTHER: 110}
    assert reached()


def test_a_lag_tells_nothing_beside_a_partition_of_which_nothing_has_landed() -> None:
    sink = Sink(ends={SOURCE: 10}, cursor={SOURCE: 900, OTHER: 900})
    reached = sink.position()
    sink.tell(1, 5)
    sink.clock.sleep_until(1)
    # Its first offset may be any, where Kafka has let go of those before.
    assert not reached()
    sink.tell(2, 0)
    sink.cursor = {SOURCE: 10}
    sink.clock.sleep_until(2)
    assert reached()


def test_a_partition_that_the_environment_does_not_know_counts_where_it_has_landed() -> None:
    sink = Sink()
    reached = sink.position(SOURCE)
    sink.tell(1, 0)
    sink.clock.sleep_until(1)
    sink.cursor = {SOURCE: 10, OTHER: 4}
    assert not reached()


def test_cloudwatch_is_asked_seldom_and_no_more_than_needed() -> None:
    sink = Sink()
    reached = sink.position()
    for second in range(1, 121):
        sink.clock.now = BEGAN + second
        reached()
    # Nothing can be known before a minute has begun.
    assert sink.asked == [BEGAN + second for second in (60, 75, 90, 105, 120)]
    sink.tell(1, 0)
    for second in range(121, 300):
        sink.clock.now = BEGAN + second
        reached()
    assert sink.asked[5:] == [BEGAN + 135]


def test_no_more_goals_are_kept_than_a_few() -> None:
    sink = Sink()
    goals = SinkLag([SOURCE], lambda: {SOURCE: 0}, sink.ask, sink.clock)()
    for minute in range(1, 40):
        sink.tell(minute, 100 - minute)
        sink.clock.sleep_until(minute)
        goals()
    assert [goal[SOURCE] for goal in goals()] == [68, 67, 66, 65, 64, 63, 62, 61]


def test_time_decides_where_nothing_tells_of_the_sink() -> None:
    clock, ends, cursor, listed = Clock(), {SOURCE: 10}, {SOURCE: 10, OTHER: 9}, []

    def landed() -> dict[str, int]:
        listed.append(clock.now)
        return dict(ends)

    reached = LandedPosition(confirming, SinkTime(landed, clock=clock), lambda: cursor)()
    assert not reached()
    clock.now += SINK_SECONDS - 1
    assert not reached()
    ends = {SOURCE: 12}
    clock.now += 1
    assert not reached()
    # What lands later came later.
    ends = {SOURCE: 99}
    cursor = {SOURCE: 12}
    assert reached()
    assert listed == [BEGAN + SINK_SECONDS]


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


FIRST, SECOND, CHILD = "accounts/shard-0", "accounts/shard-1", "accounts/shard-2"


@dataclass
class Stream:
    """A table's stream with two shards, its metrics in CloudWatch by minutes after the test's begin, and the cursor of
    the table's last commit. By default all of minute 0 was in the stream by the end of minute 1."""

    clock: Clock = field(default_factory=lambda: Clock(BEGAN - CLOCK_SECONDS))
    waiting: dict[float, float] = field(default_factory=lambda: {1.0: 0.0})
    cursor: dict[str, int] = field(default_factory=dict)
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kinesis = Kinesis()
        self.kinesis.open("shard-0")
        self.kinesis.open("shard-1")
        self.records = UnreadRecords()

    def put(self, source: str, seconds: float) -> int:
        """Have a record arrive some seconds after the moment by which all is in the stream, and give its number."""
        self.kinesis.now = BEGAN + 2 * MINUTE + seconds
        shard = source.partition("/")[2]
        self.kinesis.put(shard, "a record")
        return self.kinesis.shards[shard].records[-1][0]

    def by_minute(self) -> Mapping[float, float]:
        self.asked.append(self.clock.now)
        return {BEGAN + minute * MINUTE: value for minute, value in self.waiting.items()}

    def unread(self) -> float:
        return self.records.oldest(self.kinesis, "accounts", self.cursor)

    def position(self) -> Reached:
        return StreamedPosition(self.by_minute, self.unread, self.clock)()

    def is_reached(self) -> bool:
        """Whether a position that was taken at the test's begin is, long after it."""
        self.clock.now = BEGAN - CLOCK_SECONDS
        reached = self.position()
        self.clock.sleep_until(20)
        return reached()

    def calls(self) -> list[str]:
        """The calls of Kinesis' API since the last time."""
        made = [name for name, _ in self.kinesis.calls]
        self.kinesis.calls.clear()
        return made


def test_a_stream_in_which_nothing_waits_is_reached() -> None:
    stream = Stream()
    assert stream.is_reached()
    stream.cursor = {FIRST: stream.put(FIRST, -60), SECOND: NOTHING_READ}
    assert stream.is_reached()


def test_a_stream_is_not_reached_while_one_shard_is_late() -> None:
    stream = Stream()
    late, last = stream.put(FIRST, -3600), stream.put(FIRST, -10)
    stream.cursor = {FIRST: NOTHING_READ, SECOND: stream.put(SECOND, -1)}
    stream.put(SECOND, 60)
    assert not stream.is_reached()
    stream.cursor[FIRST] = late
    assert not stream.is_reached()
    stream.cursor[FIRST] = last
    assert stream.is_reached()


def test_records_that_arrived_after_the_moment_are_not_waited_for() -> None:
    stream = Stream()
    for source in (FIRST, SECOND):
        stream.put(source, ARRIVAL_SECONDS)
    assert stream.is_reached()
    # Kinesis' times of arrival may be wrong by some seconds.
    too_early = Stream()
    too_early.put(FIRST, ARRIVAL_SECONDS - 0.001)
    assert not too_early.is_reached()


def test_a_shard_that_no_commit_names_counts_as_not_read() -> None:
    stream = Stream()
    stream.put(SECOND, -1)
    stream.cursor = {FIRST: stream.put(FIRST, -1)}
    assert not stream.is_reached()


def test_a_shard_that_was_read_to_its_end_is_not_asked() -> None:
    stream = Stream(cursor={FIRST: READ_TO_END, SECOND: READ_TO_END})
    stream.put(FIRST, -1)
    stream.kinesis.open("shard-2", "shard-0", "shard-1")
    assert stream.is_reached()
    assert [request["ShardId"] for request in stream.kinesis.asked("get_shard_iterator")] == ["shard-2"]


def test_a_closed_shard_is_reached_at_its_end_though_no_commit_says_so() -> None:
    stream = Stream()
    last = stream.put(FIRST, -1)
    stream.kinesis.open("shard-2", "shard-0")
    assert not stream.is_reached()
    # What was read after the last record made no commit.
    stream.cursor = {FIRST: last}
    assert stream.is_reached()
    stream.calls()
    assert stream.is_reached()
    # An end stays one.
    assert stream.calls() == ["list_shards", "list_shards", "get_records", "get_records"]


def test_children_of_a_shard_are_waited_for() -> None:
    stream = Stream()
    stream.cursor = {FIRST: stream.put(FIRST, -60)}
    assert stream.is_reached()
    stream.kinesis.open("shard-2", "shard-0")
    child = stream.put(CHILD, -1)
    # The parent has nothing more, and need not be noted as read to its end.
    assert not stream.is_reached()
    stream.cursor = {FIRST: READ_TO_END, CHILD: child}
    assert stream.is_reached()


@pytest.mark.parametrize("is_noted", [True, False])
def test_children_that_a_listing_lacks_are_waited_for(is_noted: bool) -> None:
    stream = Stream()
    last = stream.put(FIRST, -60)
    stream.cursor = {FIRST: READ_TO_END if is_noted else last}
    stream.kinesis.open("shard-2", "shard-0")
    child = stream.put(CHILD, -1)
    stream.kinesis.list_stale(1)
    assert not stream.is_reached()
    assert stream.calls().count("list_shards") == 1
    stream.cursor[CHILD] = child
    assert stream.is_reached()


def test_a_cursor_of_another_stream_of_the_name_is_refused() -> None:
    stream = Stream(cursor={FIRST: 7})
    with pytest.raises(ShardGone, match="created again under the same name"):
        stream.is_reached()


def test_an_empty_answer_is_no_end_while_more_waits() -> None:
    stream = Stream()
    stream.kinesis.leave_gaps(3)
    stream.put(FIRST, -1)
    assert not stream.is_reached()
    stream = Stream()
    stream.kinesis.leave_gaps(3)
    stream.put(FIRST, 60)
    assert stream.is_reached()


def test_a_long_silence_is_walked_through_by_some_answers_a_time() -> None:
    stream = Stream()
    stream.put(FIRST, 60)
    stream.kinesis.leave_gaps(10)
    reached = stream.position()
    stream.clock.sleep_until(20)
    told = []
    for _ in range(3):
        stream.calls()
        told.append(reached())
        assert stream.calls().count("get_records") <= 4 + 1
        stream.clock.now += 15
    assert told == [False, False, True]
    # The other position of the table goes on from there.
    assert stream.is_reached()
    assert "get_shard_iterator" not in stream.calls()


def test_a_place_that_expired_is_begun_anew() -> None:
    stream = Stream()
    assert stream.is_reached()
    stream.put(FIRST, -1)
    stream.kinesis.expire_iterators()
    assert not stream.is_reached()


def test_a_record_that_waits_is_asked_for_once() -> None:
    stream = Stream()
    first, last = stream.put(FIRST, -60), stream.put(FIRST, -30)
    reached = stream.position()
    stream.clock.sleep_until(20)
    assert not reached()
    assert stream.calls() == ["list_shards"] + 2 * ["get_shard_iterator", "get_records"]
    # Kinesis gives a shard's records to all readers at 2 MB a second. The other shard may have got one.
    stream.clock.now += 15
    assert not reached()
    assert stream.calls() == ["list_shards", "get_records"]
    stream.cursor[FIRST] = first
    stream.clock.now += 15
    assert not reached()
    assert [request["Limit"] for request in stream.kinesis.asked("get_records")] == [1, 1]
    stream.cursor[FIRST] = last
    stream.clock.now += 15
    assert reached()


def test_changes_that_dynamodb_has_not_replicated_are_waited_for() -> None:
    # The oldest of minute 6 is of after the position.
    slow = {float(minute): minute * MINUTE + 1 for minute in range(6)} | {6.0: 6 * MINUTE, 7.0: 0.0}
    stream = Stream(waiting=slow)
    between = stream.put(FIRST, 5 * MINUTE + ARRIVAL_SECONDS - 1)
    stream.put(FIRST, 5 * MINUTE + ARRIVAL_SECONDS)
    assert not stream.is_reached()
    stream.cursor = {FIRST: between}
    assert stream.is_reached()
    del slow[6.0], slow[7.0]
    assert not stream.is_reached()


def test_a_minute_of_dynamodb_that_began_before_the_position_tells_nothing() -> None:
    stream = Stream(waiting={0.0: 0.0})
    stream.clock.now += 1
    reached = stream.position()
    stream.clock.now = BEGAN + SILENT_SECONDS - MINUTE
    assert not reached()


def test_without_a_figure_of_dynamodb_the_usual_time_is_trusted_when_one_would_be_there() -> None:
    def at(seconds: float, waiting: dict[float, float], arrives: float = math.inf) -> bool:
        stream = Stream(waiting=waiting)
        if arrives < math.inf:
            stream.put(FIRST, arrives - 2 * MINUTE)
        reached = stream.position()
        stream.clock.now = BEGAN + seconds
        return reached()

    assert not at(SILENT_SECONDS - 1, {})
    assert at(SILENT_SECONDS, {})
    assert not at(SILENT_SECONDS, {}, REPLICATION_SECONDS + ARRIVAL_SECONDS - 1)
    assert at(SILENT_SECONDS, {}, REPLICATION_SECONDS + ARRIVAL_SECONDS)
    # What waited just before the position waits still, for all that is known.
    assert not at(SILENT_SECONDS, {-4.0: REPLICATION_SECONDS + 1})
    assert at(SILENT_SECONDS, {-4.0: REPLICATION_SECONDS})
    assert at(SILENT_SECONDS, {-5.0: 600.0})


def test_a_stream_is_asked_for_seldom() -> None:
    stream = Stream(Clock(BEGAN), waiting={})
    reached = stream.position()
    for second in range(0, 121):
        stream.clock.now = BEGAN + second
        reached()
    # Nothing can be known before a minute has begun.
    assert stream.asked == [BEGAN + second for second in range(60, 121, 15)]
    assert stream.calls() == []


# --- An environment ---------------------------------------------------------------------------------------------------


@dataclass
class Account:
    """An account of AWS's, by moto, with a landing folder and a lake of its own in the bucket."""

    clock: Clock
    folder: str
    asked: list[str] = field(default_factory=list)
    landing: str = "landing"
    behind: float = 0.0

    def make(self, service: str) -> Any:
        self.asked.append(service)
        if service == "sts":
            return SimpleNamespace(get_caller_identity=self._identity)
        if service == "cloudformation":
            return SimpleNamespace(describe_stacks=self._stacks)
        return self.client(service)

    def client(self, service: Any) -> Any:
        return boto3.client(service, "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def _identity(self) -> dict[str, Any]:
        self.asked.append("identity")
        date = email.utils.formatdate(self.clock.now - self.behind)
        return {"Account": "111111111111", "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    def _stacks(self, **_: Any) -> dict[str, Any]:
        outputs = [
            {"OutputKey": "LakeUri", "OutputValue": f"s3://{BUCKET}/{self.folder}/lake"},
            {"OutputKey": "LandingUri", "OutputValue": f"s3://{BUCKET}/{self.folder}/{self.landing}"},
        ]
        return {"Stacks": [{"Outputs": outputs}]}

    def deployed(self) -> Deployed:
        return Deployed(read_environment("dev", EXAMPLE.config), read_contracts(EXAMPLE.contracts), self.make)

    def measure(self, namespace: str, name: str, at: float, value: float, **dimensions: str) -> None:
        spelled = [{"Name": key.replace("_", " "), "Value": text} for key, text in dimensions.items()]
        datum = {"MetricName": name, "Dimensions": spelled, "Timestamp": dt.datetime.fromtimestamp(at, dt.UTC)}
        self.client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=[{**datum, "Value": value}])

    def lag(self, at: float, value: float) -> None:
        group = {"Cluster_Name": "headwater-dev", "Consumer_Group": "connect-headwater-dev-landing"}
        self.measure("AWS/Kafka", "SumOffsetLag", at, value, **group, Topic=TOPIC)

    def land(self, folder: str, partition: int, first: int, next_: int) -> None:
        key = f"{self.folder}/{folder}/{TOPIC}/{partition}/{first:020d}.jsonl.gz"
        self.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"", Metadata={"next-offset": str(next_)})

    def commit(self, table: str, cursor: dict[str, int]) -> None:
        body = json.dumps({"extraMetadata": {NOTED_AS: Progress(cursor).to_json()}}).encode()
        key = f"{self.folder}/lake/{table}/.hoodie/{next(_names):017d}.deltacommit"
        self.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    # CloudWatch's values are asked for by the clock.
    clock = Clock(time.time() // MINUTE * MINUTE)
    monkeypatch.setattr(deployed, "time", SimpleNamespace(time=clock))
    with mock_aws():
        made = Account(clock, f"positions-{next(_names)}")
        made.client("s3").create_bucket(Bucket=BUCKET)
        yield made


def contract_of(database: str, table: str) -> Contract:
    (found,) = [
        each for each in read_contracts(EXAMPLE.contracts) if (each.source.database, each.table) == (database, table)
    ]
    return found


CUSTOMERS, ACCOUNTS = contract_of(POSTGRESQL, "customers"), contract_of(DYNAMODB, "accounts")


def test_an_environments_clock_is_awss_without_being_asked_for_anything_else(account: Account) -> None:
    account.behind = 600.0
    known = account.deployed()
    assert known.now() == account.clock.now - 600.0
    account.clock.now += 10
    assert known.now() == account.clock.now - 600.0
    assert account.asked.count("identity") == 1


def test_no_clock_is_told_in_another_account(account: Account, tmp_path: Path) -> None:
    text = (EXAMPLE.config / "dev.yaml").read_text("utf-8")
    (tmp_path / "dev.yaml").write_text(set_value(text, ["account"], '"222222222222"'), "utf-8")
    elsewhere = Deployed(read_environment("dev", tmp_path), read_contracts(EXAMPLE.contracts), account.make)
    with pytest.raises(UserError, match="found the account 111111111111, expected 222222222222"):
        elsewhere.now()


def test_cloudwatch_is_asked_for_the_sinks_lag_in_a_topic(account: Account) -> None:
    now = account.clock.now
    account.lag(now - 61, 7)
    account.lag(now - 119, 9)
    account.lag(now - 2 * 3600, 1)
    account.measure("AWS/Kafka", "SumOffsetLag", now - 61, 99, Topic=TOPIC)
    assert connectors.lags(account.deployed(), TOPIC) == {now - 120: 9.0}


def test_cloudwatch_is_asked_for_the_age_of_what_dynamodb_has_to_copy(account: Account) -> None:
    now, known = account.clock.now, account.deployed()
    assert key_value.replication_ages(known, ACCOUNTS) == {}
    name = "AgeOfOldestUnreplicatedRecord"
    for operation, table, at, age in (
        # AWS documents no name of the operation.
        ("PutRecord", "headwater-dev-accounts", now - 60, 1500),
        ("Another", "headwater-dev-accounts", now - 50, 4500),
        ("Another", "headwater-dev-accounts", now - 120, 500),
        ("PutRecord", "headwater-dev-others", now - 60, 9000),
    ):
        account.measure("AWS/DynamoDB", name, at, age, TableName=table, DelegatedOperation=operation)
    assert key_value.replication_ages(known, ACCOUNTS) == {now - 60: 4.5, now - 120: 0.5}


def test_a_table_of_an_environment_is_reached_by_its_sinks_lag(account: Account) -> None:
    account.land("landing", 0, 0, 10)
    account.commit("customers", {f"{TOPIC}/0": 10})
    reached = DeployedLake(account.deployed(), EXAMPLE).position(CUSTOMERS, confirming)()
    account.clock.now += 1
    assert not reached()
    began = account.clock.now - 1
    account.lag(began + MINUTE + 59, 3)
    account.clock.now = began + 3 * MINUTE
    assert not reached()
    account.commit("customers", {f"{TOPIC}/0": 13})
    assert reached()


def test_a_table_of_dynamodb_is_reached_when_a_commit_has_what_its_stream_had(account: Account) -> None:
    stream, kinesis = "headwater-dev-accounts", account.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    (source, other) = (f"{stream}/{shard['ShardId']}" for shard in kinesis.list_shards(StreamName=stream)["Shards"])
    put = kinesis.put_record(StreamName=stream, Data=b"{}", PartitionKey="p", ExplicitHashKey="0")
    # moto's Kinesis has a clock of its own.
    account.clock.now += 10 * MINUTE
    begun: list[str] = []
    known = account.deployed()
    calls = known.client("kinesis").meta.events
    calls.register("before-call.kinesis.GetShardIterator", lambda params, **_: begun.append(params["body"]))
    take = DeployedLake(known, EXAMPLE).position(ACCOUNTS, confirming)

    def taken() -> Reached:
        """A position, some minutes after which all was in the stream."""
        reached = take()
        name, of = "AgeOfOldestUnreplicatedRecord", {"TableName": stream, "DelegatedOperation": "a"}
        account.measure("AWS/DynamoDB", name, account.clock.now + 2 * MINUTE, 0, **of)
        account.clock.now += 4 * MINUTE
        return reached

    reached = taken()
    assert not reached()
    account.commit("accounts", {source: NOTHING_READ, other: NOTHING_READ})
    account.clock.now += 15
    assert not reached()
    account.commit("accounts", {source: int(put["SequenceNumber"]), other: NOTHING_READ})
    account.clock.now += 15
    assert reached()
    # The next position is not looked for from the beginning.
    begun.clear()
    assert taken()()
    assert begun == []


def test_each_position_is_of_the_environment_as_it_is_then(account: Account, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE.config, tmp_path / "config")
    account.land("landing", 0, 0, 10)
    account.commit("customers", {f"{TOPIC}/0": 10})
    take = DeployedLake(account.deployed(), LakeFolder(tmp_path)).position(CUSTOMERS, confirming)

    def tried(*lags: float) -> list[bool]:
        """Whether a position is reached in each of the minutes after it that have these lags."""
        reached, told = take(), []
        reached()
        began = account.clock.now // MINUTE * MINUTE
        for minute, lag in enumerate(lags, 1):
            account.lag(began + minute * MINUTE + 1, lag)
            account.clock.now = began + minute * MINUTE + 59
            told.append(reached())
        return told

    assert tried(1, 1, 0) == [False, False, True]
    # It is deployed with another landing folder, in which the sink begins anew.
    account.landing = "landing2"
    account.land("landing2", 0, 10, 20)
    assert tried(0, 0) == [False, False]
    account.commit("customers", {f"{TOPIC}/0": 20})
    assert tried(0, 0) == [False, True]
    # A lag says nothing of a partition of which nothing has landed.
    path = tmp_path / "config" / "dev.yaml"
    path.write_text(set_value(path.read_text("utf-8"), ("stream", "partitions"), "2"), "utf-8")
    reached = take()
    reached()
    account.lag(account.clock.now + 61, 3)
    account.clock.now += 2 * MINUTE
    assert not reached()
    account.commit("customers", {f"{TOPIC}/0": 999})
    assert not reached()
    # The clients stay.
    assert sorted(set(account.asked)) == ["cloudformation", "cloudwatch", "identity", "s3", "sts"]
    assert [account.asked.count(service) for service in ("cloudwatch", "s3", "sts")] == [1, 1, 1]


def test_a_named_lake_is_reached_after_the_time_that_its_sink_takes(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.land("landing", 0, 0, 10)
    s3, folder = account.client("s3"), f"s3://{BUCKET}/{account.folder}"
    monkeypatch.setattr(lakes, "s3_client", lambda endpoint, region: s3)

    def taken(seconds: float | None) -> Reached:
        place = lakes.of_option(
            "", EXAMPLE, f"{folder}/lake", "", "", landing=f"{folder}/landing", sink_seconds=seconds
        )
        return place.position(CUSTOMERS, confirming)()

    reached = taken(0.0)
    assert not reached()
    account.commit("customers", {f"{TOPIC}/0": 10})
    assert reached()
    assert not taken(None)()


def test_how_long_a_sink_takes_is_not_said_of_an_environment() -> None:
    with pytest.raises(UserError, match="--env: found --sink-seconds, too"):
        lakes.of_option("dev", EXAMPLE, "", "", "", sink_seconds=0.0)

"""Alarms of the local AWS: what services of AWS's measure, and when an alarm rings and tells."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headwater.contract.reading import read_contracts
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.operations import connectors, key_value
from headwater.operations.deployed import Deployed
from rig.local.postgresql_server import PostgresqlServer
from rig.local_aws.account import LocalAccount
from rig.local_aws.cloudwatch import Alarms, Measured
from rig.local_aws.database import log_of_server
from rig.local_aws.resources import Properties

MINUTE = 60
FROM_SNS = {
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": "*"}
    ]
}


@pytest.fixture
def measured() -> list[Measured]:
    """The measurements of AWS's services at the next minute's end."""
    return []


@pytest.fixture
def alarms(account: LocalAccount, measured: list[Measured]) -> Alarms:
    return Alarms(account.context, [lambda: measured])


class Minutes:
    """The ends of minutes that have passed, the oldest first."""

    def __init__(self) -> None:
        self.end = int(time.time()) // MINUTE * MINUTE - 30 * MINUTE

    def next(self) -> int:
        self.end += MINUTE
        return self.end


def alarm(name: str, **of: Any) -> Properties:
    described = {
        "AlarmName": name,
        "AlarmDescription": "It is late",
        "MetricName": "Age",
        "Namespace": "Tests",
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 10,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }
    return Properties({**described, **of})


def state(account: LocalAccount, name: str) -> str:
    (found,) = account.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return str(found["StateValue"])


def states_after(
    account: LocalAccount, alarms: Alarms, measured: list[Measured], name: str, minutes: Iterable[Measured | None]
) -> list[str]:
    """The alarm's state after each of some minutes, in which that was measured."""
    end, states = Minutes(), []
    for value in minutes:
        measured[:] = [] if value is None else [value]
        alarms.evaluate(end.next())
        states.append(state(account, name))
    return states


def values(name: str, *numbers: float | None) -> list[Measured | None]:
    """Values of a metric without dimensions, a minute each."""
    return [None if number is None else Measured("Tests", name, {}, number) for number in numbers]


def test_an_alarm_hears_of_its_own_dimensions_alone_and_tells_its_topic(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    topic = account.client("sns").create_topic(Name="operators")["TopicArn"]
    queue = account.client("sqs").create_queue(QueueName="operators")["QueueUrl"]
    arn = account.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    account.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(FROM_SNS)})
    account.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
    minutes = Minutes()
    for table in ("orders", "customers"):
        dimensions = [{"Name": "table", "Value": table}]
        alarms.put(alarm(f"late-{table}", Dimensions=dimensions, AlarmActions=[topic], OKActions=[topic]))
    measured[:] = [
        Measured("Tests", "Age", {"table": "orders"}, 11),
        Measured("Tests", "Age", {"table": "customers"}, 9),
    ]
    alarms.evaluate(minutes.next())
    assert (state(account, "late-orders"), state(account, "late-customers")) == ("ALARM", "OK")
    measured[0] = Measured("Tests", "Age", {"table": "orders"}, 10)
    alarms.evaluate(minutes.next())
    assert state(account, "late-orders") == "OK"
    told = []
    while found := account.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for each in found:
            message = json.loads(json.loads(each["Body"])["Message"])
            told.append((message["AlarmName"], message["NewStateValue"]))
            account.client("sqs").delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
    assert sorted(told) == [("late-customers", "OK"), ("late-orders", "ALARM"), ("late-orders", "OK")]


def test_enough_of_the_last_periods_ring_it(account: LocalAccount, alarms: Alarms, measured: list[Measured]) -> None:
    alarms.put(alarm("often", MetricName="Often", EvaluationPeriods=3, DatapointsToAlarm=2))
    states = states_after(account, alarms, measured, "often", values("Often", 11, 9, 11, None, 9, 9))
    # A minute without a value is passed over.
    assert states == ["OK", "OK", "ALARM", "ALARM", "OK", "OK"]


def test_a_period_of_several_minutes_takes_in_all_of_them(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    alarms.put(alarm("sum", MetricName="Summed", Statistic="Sum", Period=300))
    states = states_after(account, alarms, measured, "sum", values("Summed", 6, 5, 0, 0, 0, 0))
    assert states == ["OK", "ALARM", "ALARM", "ALARM", "ALARM", "OK"]


def larger_of(name: str, *metrics: str, **of: Any) -> Properties:
    """An alarm on the larger of some metrics, whose names are in capitals."""

    def query(metric: str) -> dict[str, Any]:
        described = {"Metric": {"Namespace": "Tests", "MetricName": metric}, "Period": 60, "Stat": "Maximum"}
        return {"Id": metric.lower(), "ReturnData": False, "MetricStat": described}

    described = alarm(name, **of)
    for each in ("MetricName", "Namespace", "Statistic", "Period"):
        del described[each]
    told = {"Id": "told", "Expression": f"MAX([{', '.join(metrics).lower()}])"}
    return Properties({**described, "Metrics": [told, *map(query, metrics)]})


def test_the_larger_of_two_metrics_of_which_one_is_never_sent(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    alarms.put(larger_of("math", "Sent", "Unsent", TreatMissingData="breaching"))
    states = states_after(account, alarms, measured, "math", values("Sent", 9, 11, None, None, None))
    assert states == ["OK", "ALARM", "ALARM", "ALARM", "ALARM"]


def test_the_larger_of_two_metrics_that_come_and_go_is_as_it_was_while_neither_comes(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    """As rows that differ and hindrances do, of a comparison that is started, killed, hindered and ended."""
    alarms.put(larger_of("differs", "Rows", "Hindrances", TreatMissingData="ignore", Threshold=0))
    minutes = Minutes()
    states = []
    for rows, hindrances in (
        (None, None), (0, 0), (None, None), (2, 0), (None, None), (0, 0), (None, 1), (None, None), (None, 0)
    ):  # fmt: skip
        sent = {"Rows": rows, "Hindrances": hindrances}
        measured[:] = [Measured("Tests", name, {}, value) for name, value in sent.items() if value is not None]
        alarms.evaluate(minutes.next())
        states.append(state(account, "differs"))
    assert states == ["INSUFFICIENT_DATA", "OK", "OK", "ALARM", "ALARM", "OK", "ALARM", "ALARM", "OK"]


def test_what_a_query_selects_has_its_dimensions_and_the_value(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    described = alarm("selected")
    for name in ("MetricName", "Namespace", "Statistic", "Period"):
        del described[name]
    query = "SELECT MAX(Lag) FROM SCHEMA(\"Tests\", Operation, TableName) WHERE TableName = 'accounts'"
    alarms.put(Properties({**described, "Metrics": [{"Id": "told", "Expression": query, "Period": 60}]}))
    every = (
        {"TableName": "accounts"},
        {"Operation": "a", "TableName": "b"},
        {"Operation": "a", "TableName": "accounts"},
    )
    minutes = [Measured("Tests", "Lag", dimensions, 11) for dimensions in every]
    states = states_after(account, alarms, measured, "selected", minutes)
    assert states == ["OK", "OK", "ALARM"]


def test_lines_of_a_log_and_rules_that_ran_are_counted(account: LocalAccount, alarms: Alarms) -> None:
    logs, events = account.client("logs"), account.client("events")
    logs.create_log_group(logGroupName="source")
    logs.create_log_stream(logGroupName="source", logStreamName="one")
    lost = {"metricName": "Lost", "metricNamespace": "Tests", "metricValue": "1", "defaultValue": 0}
    logs.put_metric_filter(
        logGroupName="source", filterName="lost", filterPattern='"slot is lost"', metricTransformations=[lost]
    )
    events.put_rule(Name="failed", EventPattern=json.dumps({"source": ["mine"]}))
    lines = ["The slot is lost, and", "something else", "again: slot is lost"]
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName="source",
        logStreamName="one",
        logEvents=[{"timestamp": now, "message": line} for line in lines],
    )
    for source in ("mine", "mine", "another"):
        events.put_events(Entries=[{"Source": source, "DetailType": "Failure", "Detail": "{}"}])
    rule = [{"Name": "RuleName", "Value": "failed"}]
    of_lines = {"MetricName": "Lost", "TreatMissingData": "ignore"}
    of_rule = {"MetricName": "TriggeredRules", "Namespace": "AWS/Events", "Dimensions": rule}
    for name, of in (("lines", of_lines), ("rules", of_rule)):
        for more_than in (1, 2):
            alarms.put(alarm(f"{name}-{more_than}", Statistic="Sum", Period=300, Threshold=more_than, **of))
    alarms.put(alarm("unknown", MetricName="Nothing", TreatMissingData="ignore"))
    alarms.evaluate(int(time.time()) // MINUTE * MINUTE + MINUTE)
    found = {name: state(account, name) for name in ("lines-1", "lines-2", "rules-1", "rules-2", "unknown")}
    # Two of each.
    assert found == {
        "lines-1": "ALARM",
        "lines-2": "OK",
        "rules-1": "ALARM",
        "rules-2": "OK",
        "unknown": "INSUFFICIENT_DATA",
    }


@pytest.mark.parametrize(("stream", "written"), [("late", [b"read"]), ("behind", [b"read", b"unread"]), ("idle", [])])
def test_the_reader_of_a_stream_is_as_far_behind_as_the_last_record_that_it_has_got_is_old(
    account: LocalAccount, alarms: Alarms, stream: str, written: list[bytes]
) -> None:
    kinesis = account.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    for data in written:
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="key")
    (shard,) = kinesis.list_shards(StreamName=stream)["Shards"]
    start = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    iterator = kinesis.get_shard_iterator(**start)["ShardIterator"]
    time.sleep(0.1)
    following = kinesis.get_records(ShardIterator=iterator, Limit=1)["NextShardIterator"]
    behind = {
        "MetricName": "GetRecords.IteratorAgeMilliseconds",
        "Namespace": "AWS/Kinesis",
        "Dimensions": [{"Name": "StreamName", "Value": stream}],
    }
    for more_than in (50, 3_600_000):
        alarms.put(alarm(f"{stream}-{more_than}", Period=300, Threshold=more_than, **behind))
    alarms.evaluate(int(time.time()) // MINUTE * MINUTE + MINUTE)
    late = "ALARM" if written else "OK"
    assert (state(account, f"{stream}-50"), state(account, f"{stream}-3600000")) == (late, "OK")
    if stream == "late":
        # Who has read all is not behind.
        alarms.put(alarm("never", Statistic="Minimum", ComparisonOperator="LessThanThreshold", Threshold=1, **behind))
        kinesis.get_records(ShardIterator=following)
        alarms.evaluate(int(time.time()) // MINUTE * MINUTE + MINUTE)
        assert state(account, "never") == "ALARM"


def test_a_part_that_cannot_be_measured_keeps_no_other_alarm_from_ringing(
    account: LocalAccount, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> list[Measured]:
        raise RuntimeError("no answer")

    alarms = Alarms(account.context, [fails, lambda: [Measured("Tests", "Measured", {}, 11)]])
    alarms.put(alarm("measured", MetricName="Measured"))
    alarms.put(alarm("gone", MetricName="Measured"))
    account.client("cloudwatch").delete_alarms(AlarmNames=["gone"])
    alarms.evaluate(Minutes().next())
    assert state(account, "measured") == "ALARM"
    assert "A part was not measured" in caplog.text
    assert "no answer" in caplog.text


def test_the_log_that_a_slot_keeps_is_measured_until_nobody_needs_it(tmp_path: Path) -> None:
    def kept() -> dict[str, float]:
        return {each.name: each.value for each in log_of_server("a", server)}

    mib = 1 << 20
    with PostgresqlServer(tmp_path) as server, server.connect() as admin:
        assert kept().keys() == {"TransactionLogsDiskUsage"}
        admin.execute("SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')")
        for _ in range(40):
            admin.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1048576))")
        admin.execute("CHECKPOINT")
        assert kept()["OldestReplicationSlotLag"] >= 40 * mib
        assert kept()["TransactionLogsDiskUsage"] >= 40 * mib
        admin.execute("SELECT pg_drop_replication_slot('forgotten')")
        admin.execute("CHECKPOINT")
        # PostgreSQL keeps files for later use, which are no log yet.
        (files,) = admin.execute("SELECT sum(size) FROM pg_ls_waldir()").fetchall()[0]
        assert files >= 40 * mib
        assert kept()["TransactionLogsDiskUsage"] < 40 * mib
        assert kept().keys() == {"TransactionLogsDiskUsage"}


def test_dynamodb_tells_of_its_destination_as_long_as_that_is_enabled(
    account: LocalAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Carrying:
        """Takes the place of a table's relay."""

        running = True

        def age(self) -> float:
            return 2.5

        def newly_dropped(self) -> int:
            return 1

    relay = Carrying()
    monkeypatch.setattr(account.tables, "_relays", {"items": relay})
    told = {each.name: (each.value, dict(each.dimensions)) for each in account.tables.measured()}
    of = {"DelegatedOperation": "PutRecord", "TableName": "items"}
    assert told == {"AgeOfOldestUnreplicatedRecord": (2500, of), "FailedToReplicateRecordCount": (1, of)}
    relay.running = False
    assert list(account.tables.measured()) == []


def test_a_comparison_finds_by_the_minute_what_the_services_send_of_an_environment(
    account: LocalAccount, alarms: Alarms, measured: list[Measured]
) -> None:
    known = Deployed(read_environment("local", EXAMPLE.config), read_contracts(EXAMPLE.contracts), account.client)
    (accounts,), topic, name = known.key_value, "headwater.northwind.customers", "headwater-local-accounts"
    of_topic = {"Cluster Name": "headwater-local", "Consumer Group": "connect-headwater-local-landing", "Topic": topic}
    of_table = {"DelegatedOperation": "PutRecord", "TableName": name}
    measured += [
        Measured("AWS/Kafka", "SumOffsetLag", of_topic, 3),
        Measured("AWS/DynamoDB", "AgeOfOldestUnreplicatedRecord", of_table, 2500),
    ]
    alarms.put(alarm("any"))
    minute = int(known.now()) // MINUTE * MINUTE - MINUTE
    alarms.evaluate(minute + MINUTE)
    assert connectors.lags(known, topic) == {minute: 3}
    assert key_value.replication_ages(known, accounts) == {minute: 2.5}

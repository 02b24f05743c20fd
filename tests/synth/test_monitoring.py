"""Alarms, dashboard, budget and notifications."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import msgspec
import pytest
from aws_cdk.assertions import Template

from headwater.contract.model import POSTGRESQL, Contract, lake_tables, of_database
from headwater.definitions import connectors
from headwater.definitions.connectors import GONE_TABLE, LOST_SLOT, UNCONFIRMED_COLUMN, UNREAD_TABLE
from headwater.environment.rules import read_environment
from headwater.lake.base import metrics
from headwater.lake.base.metrics import CloudWatchReport
from headwater.lake_folder import EXAMPLE
from headwater.operations import watched
from headwater.operations.watched import Watched
from headwater.paths import ROOT
from rig.local_aws.cloudwatch import rule_of
from rig.local_aws.resources import Properties
from stacks import application
from stacks.assets import Assets
from tests.synth.deployed import made
from tests.synth.example import example_content

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

# MSK's levels of monitoring, the cheapest first; each has the metrics of those before it. Only the first is free.
MSK_LEVELS = ("DEFAULT", "PER_BROKER", "PER_TOPIC_PER_BROKER", "PER_TOPIC_PER_PARTITION")
# The level from which MSK sends a metric with these dimensions: the tables of
# https://docs.aws.amazon.com/msk/latest/developerguide/metrics-details.html. Add the metrics of new alarms from there.
MSK_LEVEL_OF = {
    ("EstimatedMaxTimeLag", "Cluster Name, Consumer Group, Topic"): "DEFAULT",
    ("KafkaDataLogsDiskUsed", "Broker ID, Cluster Name"): "DEFAULT",
    ("MaxOffsetLag", "Cluster Name, Consumer Group, Topic"): "DEFAULT",
    ("OfflinePartitionsCount", "Cluster Name"): "DEFAULT",
    ("SumOffsetLag", "Cluster Name, Consumer Group, Topic"): "DEFAULT",
    ("RequestHandlerAvgIdlePercent", "Broker ID, Cluster Name"): "PER_BROKER",
    ("MessagesInPerSec", "Broker ID, Cluster Name, Topic"): "PER_TOPIC_PER_BROKER",
    ("OffsetLag", "Cluster Name, Consumer Group, Partition, Topic"): "PER_TOPIC_PER_PARTITION",
}


def alarms(synthesized: "Synthesized") -> dict[str, dict[str, Any]]:
    """The alarms by their names, without what names the environment."""
    prefix = f"headwater-{synthesized.environment.name}-"
    properties = [resource["Properties"] for resource in synthesized.resources("AWS::CloudWatch::Alarm").values()]
    return {str(alarm["AlarmName"]).removeprefix(prefix): alarm for alarm in properties}


def dimensions(alarm: Mapping[str, Any]) -> dict[str, Any]:
    return {dimension["Name"]: dimension["Value"] for dimension in alarm["Dimensions"]}


def read_by(alarm: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics that an alarm reads, of itself or by an expression."""
    if "MetricName" in alarm:
        return [dict(alarm)]
    return [query["MetricStat"]["Metric"] for query in alarm["Metrics"] if "MetricStat" in query]


def rules(synthesized: "Synthesized") -> dict[str, dict[str, Any]]:
    """The patterns of the notifying rules, by the type of event."""
    properties = [
        resource["Properties"] for resource in synthesized.resources("AWS::Events::Rule", "monitoring").values()
    ]
    return {rule["EventPattern"]["detail-type"][0]: rule for rule in properties}


def topics(synthesized: "Synthesized") -> dict[str, dict[str, str]]:
    """References to the topics by their names, without what names the environment."""
    prefix = f"headwater-{synthesized.environment.name}"
    return {
        topic["Properties"]["TopicName"].removeprefix(prefix): {"Ref": name.partition("/")[2]}
        for name, topic in synthesized.resources("AWS::SNS::Topic").items()
    }


class Sent:
    """A CloudWatch client that keeps what it is sent."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []

    def put_metric_data(self, **request: Any) -> None:
        self.data += [{"Namespace": request["Namespace"], **datum} for datum in request["MetricData"]]


def test_the_writers_and_who_compares_emit_every_metric_that_an_alarm_reads(every_stack: "Synthesized") -> None:
    sent = Sent()
    report = CloudWatchReport(sent, f"headwater_{every_stack.environment.name}")
    for contract in lake_tables(every_stack.contracts):
        commit = {"changes": 1, "unfit": 1, "seconds": 1.0, "completed_at": 2.0, "oldest_source_at": 1.0}
        report({"event": "commit", "table": contract.table, **commit})
        report({"event": "quarantine", "table": contract.table, "records": 1})
    report.flush()
    for contract in every_stack.contracts:
        watched.measure(sent, f"headwater_{every_stack.environment.name}", Watched(contract.table, 0.0, round_at=0.0))
        watched.tell_that_it_runs(sent, f"headwater_{every_stack.environment.name}", [contract.table])
    emitted = {(datum["Namespace"], datum["MetricName"], json.dumps(datum["Dimensions"])) for datum in sent.data}
    read = {
        (metric["Namespace"], metric["MetricName"], json.dumps(metric["Dimensions"]))
        for alarm in alarms(every_stack).values()
        for metric in read_by(alarm)
        if metric["Namespace"] == metrics.NAMESPACE and "Dimensions" in metric
    }
    of_comparison = 2 if every_stack.environment.monitoring.comparison_minutes is None else 3
    assert len(read) == 4 * len(lake_tables(every_stack.contracts)) + of_comparison * len(every_stack.contracts)
    assert read <= emitted


def test_attributes_that_are_left_out_ring_where_a_contract_hides_inside(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], every: "Synthesized"
) -> None:
    hiding = [replace(each, exclude=(("users", "ssn"),)) if each.table == "accounts" else each for each in contracts]
    stack = application.build(
        new_app(), read_environment("prod", EXAMPLE.config), hiding, example_content(hiding), assets
    ).monitoring
    found = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    (alarm,) = [each["Properties"] for each in found if "left-out" in each["Properties"]["AlarmName"]]
    assert alarm["AlarmName"] == "headwater-prod-left-out-accounts"
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == (metrics.LEFT_OUT, "Sum", 0)
    assert not [name for name in alarms(every) if name.startswith("left-out-")]


def test_unconfirmed_columns_ring_where_a_contract_hides_some(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], every: "Synthesized"
) -> None:
    hiding = [replace(each, exclude=(("password",),)) if each.table == "products" else each for each in contracts]
    stack = application.build(
        new_app(), read_environment("prod", EXAMPLE.config), hiding, example_content(hiding), assets
    ).monitoring
    template = Template.from_stack(stack)
    found = template.find_resources("AWS::CloudWatch::Alarm").values()
    (alarm,) = [each["Properties"] for each in found if "unconfirmed" in each["Properties"]["AlarmName"]]
    filters = template.find_resources("AWS::Logs::MetricFilter").values()
    (counted,) = [
        each["Properties"] for each in filters if each["Properties"]["FilterPattern"] == f'"{UNCONFIRMED_COLUMN}"'
    ]
    assert alarm["MetricName"] == counted["MetricTransformations"][0]["MetricName"]
    assert alarm["AlarmDescription"].endswith("docs/runbooks/unconfirmed-column.md")
    assert not [name for name in alarms(every) if name.startswith("unconfirmed-")]


def test_rows_that_differ_and_a_comparison_that_stands_still_ring_and_silence_changes_nothing(
    every: "Synthesized",
) -> None:
    alarm = alarms(every)["differs-orders"]
    differences, hindrances = read_by(alarm)
    assert (differences["MetricName"], hindrances["MetricName"]) == ("Differences", "ComparisonHindrances")
    (told,) = [query for query in alarm["Metrics"] if query.get("ReturnData", True)]
    assert told["Expression"] == "MAX([differences_orders, hindrances_orders])"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    rule = rule_of(Properties(json.loads(json.dumps(alarm))))
    silent = [None] * rule.range
    # Where nobody compares, or who compares has been killed, it stays as it was.
    assert [rule.state(silent, former) for former in ("OK", "ALARM", "INSUFFICIENT_DATA")] == [
        "OK", "ALARM", "INSUFFICIENT_DATA"
    ]  # fmt: skip
    assert rule.state([*silent[1:], 1.0], "OK") == "ALARM"
    assert rule.state([*silent[1:], 0.0], "ALARM") == "OK"


def test_where_somebody_has_to_compare_silence_rings_when_it_has_lasted(
    all_parts: "Synthesized", dev: "Synthesized"
) -> None:
    minutes = all_parts.environment.monitoring.comparison_minutes
    assert minutes == 15
    rule = rule_of(Properties(json.loads(json.dumps(alarms(all_parts)["compared-orders"]))))
    silent: list[float | None] = [None] * minutes
    assert rule.state(silent, "OK") == "ALARM"
    assert rule.state([*silent[1:], 1.0], "ALARM") == "OK"
    assert rule.state([1.0, *silent[1:]], "OK") == "OK"
    assert dev.environment.monitoring.comparison_minutes is None
    assert not [name for name in alarms(dev) if name.startswith("compared-")]


@pytest.mark.parametrize(
    ("name", "id_", "said"),
    [
        ("gone-table", "GoneTable", GONE_TABLE),
        ("lost-slot", "LostSlot", LOST_SLOT),
        ("unread-table", "UnreadTable", UNREAD_TABLE),
    ],
)
def test_the_log_of_the_source_is_searched_for_what_an_alarm_tells_of(
    every: "Synthesized", name: str, id_: str, said: str
) -> None:
    alarm, found = alarms(every)[name], every.only("AWS::Logs::MetricFilter", of=id_)
    (metric,) = found["MetricTransformations"]
    assert (metric["MetricNamespace"], metric["MetricName"]) == (alarm["Namespace"], alarm["MetricName"])
    assert found["FilterPattern"] == f'"{said}"'
    assert "SourceLogs" in json.dumps(found["LogGroupName"])
    page = alarm["AlarmDescription"].rpartition(" ")[2]
    assert (ROOT / page).exists()


def test_writers_send_under_the_database_that_their_arguments_name(every: "Synthesized") -> None:
    job = every.only("AWS::Glue::Job")
    assert dimensions(alarms(every)["freshness-accounts"])["Database"] == (job["DefaultArguments"]["--database"])


def test_every_table_is_watched(every: "Synthesized") -> None:
    for contract in every.contracts:
        watched = {f"{what}-{contract.table}" for what in ("freshness", "writer", "quarantine", "unfit")}
        assert watched <= set(alarms(every))


def test_a_writer_that_says_nothing_raises_an_alarm(every: "Synthesized") -> None:
    alarm = alarms(every)["writer-orders"]
    assert (alarm["MetricName"], alarm["Statistic"]) == ("Changes", "SampleCount")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["TreatMissingData"] == "breaching"


def test_thresholds_are_those_of_the_environment(every: "Synthesized") -> None:
    configured = every.environment.monitoring
    thresholds = {name: alarm["Threshold"] for name, alarm in alarms(every).items()}
    assert thresholds["freshness-orders"] == configured.freshness_seconds
    assert thresholds["consumer-lag-headwater.northwind.customers"] == configured.consumer_lag_records
    assert thresholds["slot-lag"] == configured.slot_lag_mib * 1024 * 1024
    assert thresholds["wal"] == configured.wal_mib * 1024 * 1024
    assert thresholds["iterator-age-accounts"] == configured.iterator_age_seconds * 1000
    assert thresholds["replication-age-accounts"] == configured.replication_age_seconds * 1000
    assert thresholds["replication-failed-accounts"] == 0
    assert thresholds["quarantine-accounts"] == configured.quarantined_records
    assert thresholds["unfit-accounts"] == thresholds["unfit-orders"] == configured.unfit_values


def test_the_slot_of_whoever_is_the_writer_is_watched_under_both_names(every: "Synthesized") -> None:
    slot, wal = (alarms(every)[name] for name in ("slot-lag", "wal"))
    (expression,) = [query["Expression"] for query in slot["Metrics"] if "Expression" in query]
    watched = {query["Id"]: query["MetricStat"]["Metric"] for query in slot["Metrics"] if "MetricStat" in query}
    assert expression == f"MAX([{', '.join(watched)}])"
    assert [metric["MetricName"] for metric in watched.values()] == [
        "OldestReplicationSlotLag", "OldestLogicalReplicationSlotLag"
    ]  # fmt: skip
    for metric in (*watched.values(), wal):
        assert metric["Namespace"] == "AWS/RDS"
        assert dimensions(metric)["Role"] == "WRITER"
        assert "headwater" in json.dumps(dimensions(metric)["DBClusterIdentifier"])


def test_a_metric_of_the_log_that_aurora_does_not_send_raises_its_alarm(every: "Synthesized") -> None:
    """A misspelt metric would otherwise be a slot that nobody watches."""
    for name in ("slot-lag", "wal"):
        assert alarms(every)[name]["TreatMissingData"] == "breaching"


def test_lag_is_watched_for_each_topic_that_the_sink_reads(every: "Synthesized") -> None:
    cluster = every.only("AWS::MSK::Cluster")
    lags = [dimensions(alarm) for name, alarm in alarms(every).items() if name.startswith("consumer-lag-")]
    assert [lag["Topic"] for lag in lags] == connectors.table_topics(every.contracts, every.capture)
    for lag in lags:
        assert lag["Cluster Name"] == cluster["ClusterName"]
        assert lag["Consumer Group"] == f"connect-headwater-{every.environment.name}-landing"
    assert len(lags) == len(of_database(every.contracts, POSTGRESQL))


def test_the_brokers_send_the_metrics_that_alarms_read_and_none_that_costs_more(every: "Synthesized") -> None:
    read = {
        (alarm["MetricName"], ", ".join(sorted(dimensions(alarm))))
        for alarm in alarms(every).values()
        if alarm.get("Namespace") == "AWS/Kafka"
    }
    assert read
    assert read <= set(MSK_LEVEL_OF)
    needed = max((MSK_LEVEL_OF[metric] for metric in read), key=MSK_LEVELS.index)
    assert every.only("AWS::MSK::Cluster")["EnhancedMonitoring"] == needed


def test_both_connectors_are_watched_by_their_names(every: "Synthesized") -> None:
    for name in (f"headwater-{every.environment.name}-{part}" for part in ("postgres", "landing")):
        running, failed = alarms(every)[f"running-{name}"], alarms(every)[f"failed-{name}"]
        assert dimensions(running) == dimensions(failed) == {"ConnectorName": name}
        assert (running["MetricName"], running["TreatMissingData"]) == ("RunningTaskCount", "breaching")
        assert (failed["MetricName"], failed["Threshold"]) == ("ErroredTaskCount", 0)


def test_stream_and_table_are_watched_by_their_names(every: "Synthesized") -> None:
    stream = every.only("AWS::Kinesis::Stream", of="accounts")
    table = every.only("AWS::DynamoDB::GlobalTable", of="accounts")
    age = alarms(every)["iterator-age-accounts"]
    assert age["MetricName"] == "GetRecords.IteratorAgeMilliseconds"
    assert dimensions(age) == {"StreamName": stream["Name"]}
    for name, metric in (
        ("replication-age-accounts", "MAX(AgeOfOldestUnreplicatedRecord)"),
        ("replication-failed-accounts", "SUM(FailedToReplicateRecordCount)"),
    ):
        (query,) = alarms(every)[name]["Metrics"]
        assert query["Expression"].startswith(f"SELECT {metric} FROM")
        assert query["Expression"].endswith(f"WHERE TableName = '{table['TableName']}'")


def test_failed_steps_clusters_and_jobs_are_told_of(every: "Synthesized") -> None:
    jobs = [job["Properties"]["Name"] for job in every.resources("AWS::Glue::Job").values()]
    cluster = every.only("AWS::EMR::Cluster")
    details = {name: rule["EventPattern"].get("detail") for name, rule in rules(every).items()}
    assert sorted(details["Glue Job State Change"]["jobName"]) == sorted(jobs)
    assert "FAILED" in details["Glue Job State Change"]["state"]
    assert details["EMR Cluster State Change"]["name"] == [cluster["Name"]]
    prefix = {"prefix": f"{made(every.stacks.emr_writer).step_name}-"}
    assert details["EMR Step Status Change"] == {"name": [prefix], "state": ["FAILED"]}
    assert json.dumps(made(every.stacks.emr_writer).step_name) in json.dumps(every.template("emr_writer")["Resources"])
    told = {name: rule["Targets"][0]["Arn"] for name, rule in rules(every).items() if len(rule["Targets"]) == 1}
    urgent, notices = topics(every)["-urgent"], topics(every)[""]
    assert told == {
        "EMR Cluster State Change": urgent,
        "EMR Step Status Change": notices,
        "Glue Job State Change": notices,
        "Table Failing": urgent,
        "Table Incomplete": notices,
        "Table Recovered": urgent,
        "Upkeep Failing": notices,
    }


def test_the_topic_is_told_of_tables_that_fail_by_this_environments_writers(every: "Synthesized") -> None:
    for kind, words in (
        ("Table Failing", ("table", "error", "message", "next_step")),
        ("Table Recovered", ("table",)),
        ("Table Incomplete", ("table", "message", "next_step")),
    ):
        rule = rules(every)[kind]
        assert rule["EventPattern"]["source"] == [f"headwater_{every.environment.name}.writer"]
        (target,) = rule["Targets"]
        given = target["InputTransformer"]
        assert sorted(given["InputPathsMap"].values()) == sorted(f"$.detail.{word}" for word in words)
        assert all(f"<{name}>" in given["InputTemplate"] for name in given["InputPathsMap"])


def test_every_alarm_tells_when_it_begins_and_when_it_ends(every: "Synthesized") -> None:
    for name, alarm in alarms(every).items():
        assert alarm["AlarmActions"] == alarm["OKActions"], name
        (action,) = alarm["AlarmActions"]
        assert action in topics(every).values(), name
        assert alarm["AlarmDescription"]


def test_both_topics_are_encrypted_and_tell_the_configured_addresses(every: "Synthesized") -> None:
    made = [resource["Properties"] for resource in every.resources("AWS::SNS::Topic").values()]
    assert len(made) == 2
    assert all("KmsMasterKeyId" in properties for properties in made)
    subscriptions = [resource["Properties"] for resource in every.resources("AWS::SNS::Subscription").values()]
    for topic in topics(every).values():
        told = [subscription["Endpoint"] for subscription in subscriptions if subscription["TopicArn"] == topic]
        assert sorted(told) == sorted(every.environment.monitoring.emails)
    assert {subscription["Protocol"] for subscription in subscriptions} <= {"email"}


def test_who_notifies_a_topic_may_publish_and_use_the_key(every: "Synthesized") -> None:
    policies = {
        json.dumps(policy["Properties"]["Topics"]): policy["Properties"]["PolicyDocument"]
        for policy in every.resources("AWS::SNS::TopicPolicy").values()
    }
    key = every.only("AWS::KMS::Key", "monitoring")["KeyPolicy"]
    for name, senders in (("", {"cloudwatch", "events", "budgets"}), ("-urgent", {"cloudwatch", "events"})):
        policy = policies[json.dumps([topics(every)[name]])]
        assert _senders(policy) == senders
        assert senders <= _senders(key)
        statements = policy["Statement"]
        assert [statement["Effect"] for statement in statements if statement["Principal"] == "*"] == ["Deny"]


def _senders(policy: Mapping[str, Any]) -> set[str]:
    allowed = json.dumps([statement for statement in policy["Statement"] if statement["Effect"] == "Allow"])
    return set(re.findall(r'"(\w+)\.amazonaws\.com"', allowed))


def test_the_dashboard_shows_what_the_alarms_watch(every: "Synthesized") -> None:
    dashboard = every.only("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard["DashboardBody"])
    for alarm in alarms(every).values():
        assert alarm.get("MetricName", "SELECT") in body
    assert "TriggeredRules" in body


def test_the_budget_is_the_environments(every: "Synthesized") -> None:
    budget = every.only("AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {
        "Amount": every.environment.monitoring.monthly_budget_usd,
        "Unit": "USD",
    }
    for notification in budget["NotificationsWithSubscribers"]:
        assert notification["Subscribers"] == [{"Address": topics(every)[""], "SubscriptionType": "SNS"}]


def test_monitoring_comes_after_what_it_watches(every: "Synthesized") -> None:
    stacks = every.stacks
    assert {stacks.connect, stacks.emr, stacks.emr_writer, stacks.glue_job} <= set(stacks.monitoring.dependencies)


def test_a_changed_threshold_changes_its_alarm_only(
    dev: "Synthesized", contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    changed = msgspec.structs.replace(
        settings, monitoring=msgspec.structs.replace(settings.monitoring, slot_lag_mib=77)
    )
    stack = application.build(new_app(), changed, contracts, example_content(contracts), assets).monitoring
    after = Template.from_stack(stack).to_json()["Resources"]
    before = dev.template("monitoring")["Resources"]
    different = {name for name in before if before[name] != after[name]}
    assert {before[name]["Properties"].get("AlarmName") for name in different} == {
        "headwater-dev-slot-lag",
        None,  # the dashboard, which draws the threshold
    }
    assert len(different) == 2


def test_where_runbooks_are_shown_every_text_has_their_address(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    address = "https://git.example.com/headwater/blob/main/"
    shown = msgspec.structs.replace(settings, monitoring=msgspec.structs.replace(settings.monitoring, runbooks=address))
    stack = application.build(new_app(), shown, contracts, example_content(contracts), assets).monitoring
    resources = Template.from_stack(stack).to_json()["Resources"].values()
    texts = [each["Properties"]["AlarmDescription"] for each in resources if each["Type"] == "AWS::CloudWatch::Alarm"]
    for rule in (each["Properties"] for each in resources if each["Type"] == "AWS::Events::Rule"):
        texts += [target["InputTransformer"]["InputTemplate"].rstrip('"') for target in rule["Targets"]]
    assert len(texts) > 20
    assert [text for text in texts if not re.search(rf" Runbook: {address}docs/runbooks/[\w-]+\.md$", text)] == []

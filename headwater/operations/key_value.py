"""The state of the DynamoDB tables that are captured, and of the streams that carry their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.contract.model import Contract
from headwater.operations.deployed import Deployed
from headwater.operations.measurements import Measurements, Metric, of_last_hour
from headwater.operations.state import Part, Problem

_MILLISECONDS = 1000
_HOUR = 3600
_ACTIVE = "ACTIVE"
_TABLE_WORKS = ("ACTIVE", "UPDATING")
# A destination in one of these states becomes active by itself.
_BEGIN = ("ENABLING", "UPDATING")
_REPLICATION_AGE = ("AWS/DynamoDB", "AgeOfOldestUnreplicatedRecord")


def metrics(deployed: Deployed) -> Iterable[Metric]:
    """The metrics that ``observe`` needs."""
    return [_age(deployed, contract) for contract in deployed.key_value]


def observe(deployed: Deployed, measurements: Measurements, contract: Contract) -> Part:
    """The state of a contract's table and of its stream. Raises the exceptions of boto3."""
    names = deployed.key_value_names[contract.table]
    name, stream_name = names.table, names.stream
    dynamodb, kinesis = deployed.client("dynamodb"), deployed.client("kinesis")
    table = dynamodb.describe_table(TableName=name)["Table"]["TableStatus"]
    destinations = dynamodb.describe_kinesis_streaming_destination(TableName=name)["KinesisDataStreamDestinations"]
    destination = next((each for each in destinations if each["StreamArn"].endswith(f"/{stream_name}")), None)
    stream = kinesis.describe_stream_summary(StreamName=stream_name)["StreamDescriptionSummary"]
    hours = stream["RetentionPeriodHours"]
    behind = measurements.last(_age(deployed, contract))
    status = destination["DestinationStatus"] if destination else "none"
    seconds = None if behind is None else behind / _MILLISECONDS
    environment = deployed.environment.name
    problems = []
    if status != _ACTIVE and status not in _BEGIN:
        problems.append(
            Problem(
                f"the changes of {name} do not go to its stream: the destination is {status}",
                "enable it again; the stream lacks the changes made meanwhile, so run headwater resync "
                f"{contract.table} --env {environment}, then {deployed.commands.verify('--watch', '--once')}",
                "replication",
            )
        )
    if seconds is not None and seconds > deployed.environment.monitoring.iterator_age_seconds:
        left = max(hours - seconds / _HOUR, 0)
        problems.append(
            Problem(
                f"the job is {seconds:,.0f} s behind {name}; after {left:,.1f} h more the stream drops unread changes",
                "see whether the job runs; if it does, give it more workers",
                "iterator-age",
            )
        )
    if table not in _TABLE_WORKS:
        problems.append(Problem(f"the table {name} is {table}", "check the table and its key in AWS", "replication"))
    facts = {
        "table": name,
        "table_status": table,
        "destination": status,
        "stream_status": stream["StreamStatus"],
        "shards": stream["OpenShardCount"],
        "retention_hours": hours,
        "behind_seconds": seconds,
    }
    read = "no metric of its reader" if seconds is None else f"reader {seconds:,.0f} s behind"
    says = f"changes go to Kinesis: {status}; {read}, kept {hours} h"
    return Part(part_name(contract), says, facts, problems, measurements.unasked)


def is_empty(deployed: Deployed, contract: Contract) -> bool:
    """Whether the DynamoDB table of a lake table, or of a history, has no item. Raises the exceptions of boto3."""
    name = deployed.key_value_names[contract.main_table].table
    # DescribeTable's number of items may be six hours old.
    found = deployed.client("dynamodb").scan(TableName=name, Limit=1, Select="COUNT", ConsistentRead=True)
    return not found["Count"] and "LastEvaluatedKey" not in found


def replication_ages(deployed: Deployed, contract: Contract) -> Mapping[float, float]:
    """Return the age of the oldest change that DynamoDB had not yet put into a table's stream, in seconds.

    The values are by the epoch seconds at which each minute of the last hour began. The result is empty if DynamoDB has
    sent no value. Raises UserError, and the exceptions of boto3.
    """
    cloudwatch = deployed.client("cloudwatch")
    table = [{"Name": "TableName", "Value": deployed.key_value_names[contract.table].table}]
    # AWS documents no value of the metric's other dimension.
    pages = cloudwatch.get_paginator("list_metrics").paginate(
        Namespace=_REPLICATION_AGE[0], MetricName=_REPLICATION_AGE[1], Dimensions=table
    )
    most: dict[float, float] = {}
    for found in (found for page in pages for found in page["Metrics"]):
        dimensions = tuple((each["Name"], each["Value"]) for each in found["Dimensions"])
        metric = Metric(*_REPLICATION_AGE, dimensions, "Maximum")
        for minute, age in of_last_hour(cloudwatch, metric, deployed.now()).items():
            most[minute] = max(age, most.get(minute, age))
    return {minute: age / _MILLISECONDS for minute, age in most.items()}


def part_name(contract: Contract) -> str:
    """The name of the table and its stream in the state of the environment."""
    return f"DynamoDB {contract.table}"


def _age(deployed: Deployed, contract: Contract) -> Metric:
    stream = deployed.key_value_names[contract.table].stream
    return Metric.of("AWS/Kinesis", "GetRecords.IteratorAgeMilliseconds", "Maximum", StreamName=stream)

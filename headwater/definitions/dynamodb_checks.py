"""Checks that the contracts fit their DynamoDB tables, by asking DynamoDB.

``stacks/key_value.py`` sets up the tables that a deployment makes, and the owner sets up existing tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.definitions.dynamodb_table import key_attributes
from headwater.definitions.source_checks import UNFIT, UNPREPARED, WARNING, Finding

_DEPLOY = "deploy, which sets it"
_Answer = Mapping[str, Any]
_Finding = Callable[[str, str, str, str], Finding]


def findings(
    contracts: Iterable[Contract], tables: Mapping[str, str], client: Any, streams: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings about the tables of the DynamoDB contracts. Raises botocore's ClientError.

    - ``contracts``: contracts of both databases.
    - ``tables``: by contract, the table's name if it differs from ``source.table``.
    - ``client``: boto3's client for DynamoDB.
    - ``streams``: by contract, the stream that must get the changes; None if the deployment makes tables and streams.
    """
    return [
        finding
        for contract in of_database(contracts, DYNAMODB)
        for finding in _check(
            contract,
            tables.get(contract.table, contract.source.table),
            client,
            None if streams is None else streams[contract.table],
        )
    ]


def _check(contract: Contract, table: str, client: Any, stream: str | None) -> Iterator[Finding]:
    def finding(level: str, found: str, expected: str, action: str) -> Finding:
        return Finding(contract.table, table, level, found, expected, action)

    try:
        description = client.describe_table(TableName=table)["Table"]
    except ClientError as error:
        if _code(error) != "ResourceNotFoundException":
            raise
        yield finding(UNFIT, "no such table", "the source table of the contract", _where_to_name(stream))
        return
    # Compare the table's key with the contract's key.
    types = {
        attribute["AttributeName"]: attribute["AttributeType"] for attribute in description["AttributeDefinitions"]
    }
    key = [(part["AttributeName"], types[part["AttributeName"]]) for part in description["KeySchema"]]
    expected = [(attribute.name, attribute.type) for attribute in key_attributes(contract)]
    if key != expected:
        yield finding(
            UNFIT,
            f"the key {_attributes(key)}",
            f"{_attributes(expected)}, as the contract's key says",
            "correct the contract's key: a table's key never changes",
        )
    if description.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") != "PAY_PER_REQUEST":
        yield finding(
            WARNING,
            "provisioned capacity",
            "on-demand: throttled writes reach the lake late",
            _DEPLOY if stream is None else "none if no write is throttled; otherwise aws dynamodb update-table",
        )
    # DynamoDB answers these three by operations of their own, which a stand-in for DynamoDB may lack.
    asked = {
        "DescribeKinesisStreamingDestination": _destination,
        "DescribeTimeToLive": _time_to_live,
        "DescribeContinuousBackups": _recovery,
    }
    for operation, check in asked.items():
        try:
            answer = getattr(client, xform_name(operation))(TableName=table)
        except ClientError as error:
            if _code(error) != "UnknownOperationException":
                raise
            yield finding(WARNING, f"an API without {operation}", "DynamoDB", "check the table in AWS")
        else:
            yield from check(contract, answer, finding, stream)


def _where_to_name(stream: str | None) -> str:
    return "deploy, or correct source.table" if stream is None else "correct key_value.tables in the environment's file"


def _attributes(key: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({type_})" for name, type_ in key)


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _destination(contract: Contract, answer: _Answer, finding: _Finding, stream: str | None) -> Iterator[Finding]:
    destinations = answer.get("KinesisDataStreamDestinations", [])
    active = [entry for entry in destinations if entry["DestinationStatus"] == "ACTIVE"]
    enable = "aws dynamodb enable-kinesis-streaming-destination"
    if not active:
        states = ", ".join(entry["DestinationStatus"] for entry in destinations) or "none"
        yield finding(
            UNPREPARED,
            f"no active Kinesis destination ({states})",
            "an active one, which delivers the changes",
            _DEPLOY if stream is None else enable,
        )
    elif stream is not None:
        named = [entry for entry in active if entry["StreamArn"].endswith(f":stream/{stream}")]
        if not named:
            others = ", ".join(entry["StreamArn"].rpartition("/")[2] for entry in active)
            yield finding(
                UNPREPARED,
                f"changes that go to {others}",
                f"changes that go to {stream}",
                f"correct key_value.tables, or {enable}",
            )
        active = named
    for entry in active:
        precision = entry.get("ApproximateCreationDateTimePrecision", "MILLISECOND")
        if precision != "MICROSECOND":
            yield finding(
                UNPREPARED,
                f"times in {precision} at the Kinesis destination",
                "MICROSECOND: changes of an item within a millisecond would have one time",
                f"{f'{_DEPLOY}, or ' if stream is None else ''}aws dynamodb update-kinesis-streaming-destination",
            )


def _time_to_live(contract: Contract, answer: _Answer, finding: _Finding, stream: str | None) -> Iterator[Finding]:
    description = answer["TimeToLiveDescription"]
    is_on = description["TimeToLiveStatus"] in ("ENABLED", "ENABLING")
    actual = description.get("AttributeName") if is_on else None
    expected = contract.source.time_to_live
    if actual != expected:
        yield finding(
            UNPREPARED,
            f"a time to live by {actual}" if actual else "no time to live",
            f"a time to live by {expected}, as source.time_to_live says"
            if expected
            else "none, because source.time_to_live is not set",
            f"correct the contract{f', or {_DEPLOY}' if stream is None else ''}",
        )
    for column in contract.columns:
        if column.path == (expected,) and column.source_type != "N":
            yield finding(
                UNFIT,
                f"the column {column.name} of type {column.source_type}",
                "type N for the attribute of source.time_to_live: DynamoDB expires items only by numbers",
                "correct the column's source_type, or time_to_live",
            )


def _recovery(contract: Contract, answer: _Answer, finding: _Finding, stream: str | None) -> Iterator[Finding]:
    backups = answer["ContinuousBackupsDescription"]
    status = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus", "DISABLED")
    if status != "ENABLED":
        yield finding(
            UNPREPARED if stream is None else WARNING,
            "no point-in-time recovery",
            "point-in-time recovery: without it DynamoDB exports no table for headwater backfill",
            _DEPLOY
            if stream is None
            else "load the items by headwater resync, or run aws dynamodb update-continuous-backups",
        )

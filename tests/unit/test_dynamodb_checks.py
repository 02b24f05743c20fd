"""A real DynamoDB table is held against its contract."""

from typing import Any

import pytest

from headwater.contract.reading import parse_contract
from headwater.definitions import dynamodb_checks
from tests.modelled import Modelled, refusal

CONTRACT = """
table: accounts
description: x
source: {database: dynamodb, table: headwater-accounts, time_to_live: expires_at}
key: [id, name]
partition_by: []
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
  - {name: name, type: bigint, source_type: N, from: custName}
  - {name: expires_at, type: bigint, source_type: N}
"""
NAME = "headwater-dev-accounts"


class Service:
    """DynamoDB with one table; ``answers`` replaces parts of what it says, or makes it refuse an operation."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "key": [("id", "S", "HASH"), ("custName", "N", "RANGE")],
            "billing": "PAY_PER_REQUEST",
            "destinations": [("ACTIVE", "MICROSECOND")],
            "stream": "account-changes",
            "time_to_live": {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"},
            "recovery": "ENABLED",
        } | answers

    def describe_table(self, **request: str) -> dict[str, Any]:
        if request["TableName"] != NAME:
            raise refusal("ResourceNotFoundException")
        key = self.answers["key"]
        return {
            "Table": {
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": type_} for name, type_, _ in key],
                "KeySchema": [{"AttributeName": name, "KeyType": role} for name, _, role in key],
                "BillingModeSummary": {"BillingMode": self.answers["billing"]},
            }
        }

    def describe_kinesis_streaming_destination(self, **request: str) -> dict[str, Any]:
        if self.answers["destinations"] is None:
            raise refusal("UnknownOperationException")
        return {
            "KinesisDataStreamDestinations": [
                {
                    "StreamArn": f"arn:aws:kinesis:eu-central-1:123456789012:stream/{self.answers['stream']}",
                    "DestinationStatus": status,
                    "ApproximateCreationDateTimePrecision": precision,
                }
                for status, precision in self.answers["destinations"]
            ]
        }

    def describe_time_to_live(self, **request: str) -> dict[str, Any]:
        return {"TimeToLiveDescription": self.answers["time_to_live"]}

    def describe_continuous_backups(self, **request: str) -> dict[str, Any]:
        return {
            "ContinuousBackupsDescription": {
                "ContinuousBackupsStatus": "ENABLED",
                "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": self.answers["recovery"]},
            }
        }


def check(service: Service, contract: str = CONTRACT, name: str = NAME) -> list[tuple[str, str]]:
    described = parse_contract(contract, "accounts.yaml")
    found = dynamodb_checks.findings([described], {"accounts": name}, Modelled("dynamodb", service))
    assert all(finding.contract == "accounts" and finding.place == name for finding in found)
    return [(finding.level, finding.found) for finding in found]


def test_a_table_as_the_deployment_makes_it_fits() -> None:
    assert check(Service()) == []


@pytest.mark.parametrize(
    ("answers", "level", "found"),
    [
        ({"key": [("id", "S", "HASH")]}, "unfit", "the key id (S)"),
        ({"key": [("id", "S", "HASH"), ("custName", "S", "RANGE")]}, "unfit", "the key id (S), custName (S)"),
        ({"billing": "PROVISIONED"}, "warning", "provisioned capacity"),
        ({"destinations": []}, "unprepared", "no active Kinesis destination (none)"),
        ({"destinations": [("DISABLED", "MICROSECOND")]}, "unprepared", "no active Kinesis destination (DISABLED)"),
        (
            {"destinations": [("ACTIVE", "MILLISECOND")]},
            "unprepared",
            "times in MILLISECOND at the Kinesis destination",
        ),
        ({"destinations": None}, "warning", "an API without DescribeKinesisStreamingDestination"),
        ({"time_to_live": {"TimeToLiveStatus": "DISABLED"}}, "unprepared", "no time to live"),
        (
            {"time_to_live": {"TimeToLiveStatus": "ENABLED", "AttributeName": "gone_at"}},
            "unprepared",
            "a time to live by gone_at",
        ),
        ({"recovery": "DISABLED"}, "unprepared", "no point-in-time recovery"),
    ],
)
def test_what_differs_is_named(answers: dict[str, Any], level: str, found: str) -> None:
    assert check(Service(**answers)) == [(level, found)]


def of_existing(service: Service) -> list[tuple[str, str, str]]:
    """The findings about a table that exists, with their actions."""
    described = parse_contract(CONTRACT, "accounts.yaml")
    client = Modelled("dynamodb", service)
    found = dynamodb_checks.findings([described], {"accounts": NAME}, client, {"accounts": "account-changes"})
    return [(finding.level, finding.found, finding.action) for finding in found]


@pytest.mark.parametrize(
    ("answers", "level", "found", "action"),
    [
        (
            {"stream": "user-changes"},
            "unprepared",
            "changes that go to user-changes",
            "correct key_value.tables, or aws",
        ),
        (
            {"stream": "old-account-changes"},
            "unprepared",
            "changes that go to old-account-changes",
            "correct key_value",
        ),
        ({"destinations": []}, "unprepared", "no active Kinesis destination (none)", "aws dynamodb enable-kinesis"),
        ({"destinations": [("ACTIVE", "MILLISECOND")]}, "unprepared", "times in MILLISECOND at the Kinesis", "aws dyn"),
        ({"recovery": "DISABLED"}, "warning", "no point-in-time recovery", "load the items by headwater resync"),
        ({"billing": "PROVISIONED"}, "warning", "provisioned capacity", "none if no write is throttled"),
        ({"time_to_live": {"TimeToLiveStatus": "DISABLED"}}, "unprepared", "no time to live", "correct the contract"),
    ],
)
def test_what_an_existing_table_lacks_is_its_owners_to_do(
    answers: dict[str, Any], level: str, found: str, action: str
) -> None:
    assert of_existing(Service()) == []
    ((at, what, to_do),) = of_existing(Service(**answers))
    assert at == level
    assert what.startswith(found)
    assert to_do.startswith(action)
    assert "deploy" not in to_do


def test_a_table_that_is_missing_is_named() -> None:
    assert check(Service(), name="elsewhere") == [("unfit", "no such table")]


def test_items_that_expire_where_the_contract_knows_nothing_of_it_are_named() -> None:
    assert check(Service(), CONTRACT.replace(", time_to_live: expires_at", "")) == [
        ("unprepared", "a time to live by expires_at")
    ]


def test_a_time_to_live_by_an_attribute_that_is_no_number_is_named() -> None:
    contract = CONTRACT.replace("expires_at, type: bigint, source_type: N", "expires_at, type: string, source_type: S")
    assert check(Service(), contract) == [("unfit", "the column expires_at of type S")]


def test_a_refusal_that_says_nothing_of_the_table_is_passed_on() -> None:
    class Closed(Service):
        def describe_table(self, **request: str) -> dict[str, Any]:
            raise refusal("AccessDeniedException")

    with pytest.raises(Exception, match="AccessDenied"):
        check(Closed())

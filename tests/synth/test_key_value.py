"""The sources of the key-value pipeline."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.environment.model import CreatedTables, Environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from stacks.key_value import KeyValueStack

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def settings() -> Environment:
    return read_environment("dev", EXAMPLE.config)


@pytest.fixture(scope="module")
def accounts(contracts: list[Contract]) -> Contract:
    (contract,) = [contract for contract in contracts if contract.table == "accounts"]
    return contract


def key_value_stack(app: cdk.App, settings: Environment, contracts: list[Contract]) -> KeyValueStack:
    assert isinstance(settings.key_value, CreatedTables)
    return KeyValueStack(app, environment=settings, settings=settings.key_value, contracts=contracts)


def table(synthesized: "Synthesized") -> dict[str, Any]:
    return synthesized.only("AWS::DynamoDB::GlobalTable", of="accounts")


def replica(synthesized: "Synthesized") -> dict[str, Any]:
    (replicated,) = table(synthesized)["Replicas"]
    return dict(replicated)


def stream(synthesized: "Synthesized") -> dict[str, Any]:
    return synthesized.only("AWS::Kinesis::Stream", of="accounts")


def test_table_and_stream_are_named_after_source_and_environment(every: "Synthesized") -> None:
    assert table(every)["TableName"] == f"headwater-{every.environment.name}-accounts"
    assert stream(every)["Name"] == f"headwater-{every.environment.name}-accounts"


def test_keys_and_expiry_are_the_contracts_attributes(every: "Synthesized") -> None:
    assert table(every)["KeySchema"] == [
        {"AttributeName": "id", "KeyType": "HASH"},
        {"AttributeName": "custName", "KeyType": "RANGE"},
    ]
    assert table(every)["AttributeDefinitions"] == [
        {"AttributeName": "id", "AttributeType": "S"},
        {"AttributeName": "custName", "AttributeType": "S"},
    ]
    assert table(every)["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_changes_go_to_the_stream_in_microseconds(every: "Synthesized") -> None:
    destination = replica(every)["KinesisStreamSpecification"]
    (name,) = [name for name in every.resources("AWS::Kinesis::Stream") if "accounts" in name]
    assert destination["ApproximateCreationDateTimePrecision"] == "MICROSECOND"
    assert destination["StreamArn"] == {"Fn::GetAtt": [name.partition("/")[2], "Arn"]}


def test_the_table_can_be_brought_back_and_is_protected_where_data_is_kept(every: "Synthesized") -> None:
    assert replica(every)["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert replica(every)["DeletionProtectionEnabled"] is every.environment.data.retain


def test_table_and_stream_are_encrypted_with_a_key_of_the_environment(every: "Synthesized") -> None:
    (key,) = every.resources("AWS::KMS::Key", "key_value")
    arn = {"Fn::GetAtt": [key.partition("/")[2], "Arn"]}
    assert replica(every)["SSESpecification"] == {"KMSMasterKeyId": arn}
    assert stream(every)["StreamEncryption"] == {"EncryptionType": "KMS", "KeyId": arn}


def test_the_stream_is_sized_as_configured(every: "Synthesized") -> None:
    configured = every.environment.key_value
    assert isinstance(configured, CreatedTables)
    assert stream(every)["RetentionPeriodHours"] == configured.stream_retention_hours
    assert stream(every).get("ShardCount") == configured.stream_shards
    mode = "ON_DEMAND" if configured.stream_shards is None else "PROVISIONED"
    assert stream(every)["StreamModeDetails"] == {"StreamMode": mode}


def test_a_number_as_the_only_key_is_one(
    settings: Environment, accounts: Contract, new_app: Callable[[], cdk.App]
) -> None:
    numbered = replace(accounts, key=("loyalty_points",))
    template = Template.from_stack(key_value_stack(new_app(), settings, [numbered]))
    (resource,) = template.find_resources("AWS::DynamoDB::GlobalTable").values()
    assert resource["Properties"]["KeySchema"] == [{"AttributeName": "loyaltyPoints", "KeyType": "HASH"}]
    assert resource["Properties"]["AttributeDefinitions"] == [{"AttributeName": "loyaltyPoints", "AttributeType": "N"}]


def test_a_third_key_is_refused(settings: Environment, accounts: Contract, new_app: Callable[[], cdk.App]) -> None:
    wide = replace(accounts, key=("id", "cust_name", "email"))
    with pytest.raises(UserError, match=r"accounts: key: found id, cust_name, email, expected one or two columns"):
        key_value_stack(new_app(), settings, [wide])


def test_tables_of_postgresql_get_no_source_here(
    settings: Environment, contracts: list[Contract], new_app: Callable[[], cdk.App]
) -> None:
    stack = key_value_stack(new_app(), settings, contracts)
    assert list(stack.sources) == [contract.table for contract in of_database(contracts, DYNAMODB)]
    assert "accounts" in stack.sources
    assert "orders" not in stack.sources

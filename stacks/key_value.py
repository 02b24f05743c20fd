"""KeyValue: DynamoDB tables, each with its changes on a Kinesis stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.definitions.dynamodb_table import key_attributes, table_name
from headwater.deployment.environment import Environment
from stacks.base import HeadwaterStack
from stacks.nag import Reason, acknowledge

_KEY_TYPES = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


@dataclass(frozen=True)
class KeyValueSource:
    """A table and the stream of its changes, which has the table's name."""

    name: str
    table: dynamodb.TableV2
    stream: kinesis.Stream


class KeyValueStack(HeadwaterStack):
    """The sources of the key-value pipeline, by the lake tables that they feed."""

    def __init__(self, scope: Construct, *, environment: Environment, contracts: Sequence[Contract]) -> None:
        super().__init__(
            scope, environment=environment, part="key-value", description="Headwater: DynamoDB and Kinesis"
        )
        self._key = self.encryption_key("DynamoDB tables and their changes on Kinesis")
        # Exported whether or not a contract is there to import it, so that the last contract can be removed.
        self.export_value(self._key.key_arn)
        self.sources = {contract.table: self._source(contract) for contract in of_database(contracts, DYNAMODB)}

    def grant_read_stream(self, grantee: iam.IGrantable, contract: Contract) -> None:
        """Let a job of a later stack read the changes of one contract's source."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "kinesis:DescribeStream",
                "kinesis:DescribeStreamSummary",
                "kinesis:GetRecords",
                "kinesis:GetShardIterator",
                "kinesis:ListShards",
            ],
            resource_arns=[self.stream_arn(contract)],
        )
        self.grant_decrypt(grantee, self._key, "kinesis")

    def stream_arn(self, contract: Contract) -> str:
        """The ARN of the stream of one contract's changes, for a later stack.

        It is composed of names: a reference would be an export per stream, which CloudFormation does not let go while a
        stack imports it, so that no contract could be removed.
        """
        return self.format_arn(
            service="kinesis", resource="stream", resource_name=table_name(self.environment_settings.name, contract)
        )

    def _source(self, contract: Contract) -> KeyValueSource:
        settings = self.environment_settings.key_value
        name = table_name(self.environment_settings.name, contract)
        on_demand = settings.stream_shards is None
        stream = kinesis.Stream(
            self,
            f"Stream-{contract.table}",
            stream_name=name,
            stream_mode=kinesis.StreamMode.ON_DEMAND if on_demand else kinesis.StreamMode.PROVISIONED,
            shard_count=settings.stream_shards,
            retention_period=cdk.Duration.hours(settings.stream_retention_hours),
            encryption=kinesis.StreamEncryption.KMS,
            encryption_key=self._key,
            removal_policy=self.data_removal,
        )
        acknowledge(stream, "KDS3", Reason.OWN_KEY)
        keys = [dynamodb.Attribute(name=key.name, type=_KEY_TYPES[key.type]) for key in key_attributes(contract)]
        table = dynamodb.TableV2(
            self,
            f"Table-{contract.table}",
            table_name=name,
            partition_key=keys[0],
            sort_key=keys[1] if len(keys) > 1 else None,
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.customer_managed_key(self._key),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=contract.source.time_to_live,
            kinesis_stream=stream,
            deletion_protection=self.protected,
            removal_policy=self.data_removal,
        )
        # TableV2 has no property for it. With milliseconds, more changes of an item would have the same time.
        cast(dynamodb.CfnGlobalTable, table.node.default_child).add_property_override(
            "Replicas.0.KinesisStreamSpecification.ApproximateCreationDateTimePrecision", "MICROSECOND"
        )
        return KeyValueSource(name, table, stream)

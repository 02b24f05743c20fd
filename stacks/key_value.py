"""KeyValue: DynamoDB tables, each with its changes on a Kinesis stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_kms as kms
from constructs import Construct

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.deployment.environment import Environment
from headwater.errors import UserError
from stacks.base import HeadwaterStack
from stacks.nag import Reason, acknowledge

# The column whose attribute DynamoDB takes for its time to live, in every contract that has it.
TTL_COLUMN = "expires_at"
_KEY_TYPES = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


@dataclass(frozen=True)
class KeyValueSource:
    """A table and the stream of its changes, both of one name."""

    name: str
    table: dynamodb.TableV2
    stream: kinesis.Stream


class KeyValueStack(HeadwaterStack):
    """The sources of the key-value pipeline, by the lake tables that they feed."""

    def __init__(self, scope: Construct, environment: Environment, contracts: Sequence[Contract]) -> None:
        super().__init__(scope, environment, "key-value", "Headwater: DynamoDB and Kinesis")
        self._key = kms.Key(
            self,
            "Key",
            alias=f"headwater/{environment.name}/key-value",
            description="DynamoDB tables and their changes on Kinesis",
            enable_key_rotation=True,
            removal_policy=self.data_removal,
        )
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
            resource_arns=[self.sources[contract.table].stream.stream_arn],
        )
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["kms:Decrypt"],
            resource_arns=[self._key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"kinesis.{self.region}.amazonaws.com"}},
        )

    def _source(self, contract: Contract) -> KeyValueSource:
        settings = self.environment_settings.key_value
        name = source_name(self.environment_settings, contract)
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
        keys = _key_attributes(contract)
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
            time_to_live_attribute=_ttl_attribute(contract),
            kinesis_stream=stream,
            deletion_protection=self.environment_settings.data.retain,
            removal_policy=self.data_removal,
        )
        # The L2 has no property for it, and milliseconds would leave more changes of one item in a tie.
        cast(dynamodb.CfnGlobalTable, table.node.default_child).add_property_override(
            "Replicas.0.KinesisStreamSpecification.ApproximateCreationDateTimePrecision", "MICROSECOND"
        )
        return KeyValueSource(name, table, stream)


def source_name(environment: Environment, contract: Contract) -> str:
    """What table and stream of a contract are called in an environment: ``headwater-accounts`` is
    ``headwater-dev-accounts`` in dev."""
    return f"headwater-{environment.name}-{contract.source.table.removeprefix('headwater-')}"


def _key_attributes(contract: Contract) -> list[dynamodb.Attribute]:
    """Partition key and, where there is one, sort key, in the contract's order."""
    if len(contract.key) > 2:
        raise UserError(
            f"contract {contract.table}: key: found {', '.join(contract.key)}, expected one or two columns: the "
            "partition key and the sort key of a DynamoDB table"
        )
    columns = [contract.column(name) for name in contract.key]
    return [dynamodb.Attribute(name=column.path[0], type=_KEY_TYPES[str(column.source_type)]) for column in columns]


def _ttl_attribute(contract: Contract) -> str | None:
    return next((column.path[0] for column in contract.columns if column.name == TTL_COLUMN), None)

"""DynamoDB tables, each with a Kinesis stream of its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kinesis as kinesis
from constructs import Construct

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.definitions.dynamodb_table import key_attributes
from headwater.environment.key_value_names import KeyValueNames, key_value_names
from headwater.environment.model import CreatedTables, Environment
from stacks.base import HeadwaterStack
from stacks.key_value_sources import KeyValueSources
from stacks.nag import Reason, acknowledge

_KEY_TYPES = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}


class KeyValueStack(HeadwaterStack):
    """The table and the stream of each DynamoDB contract.

    Both are named like the contract's source in the environment.
    """

    def __init__(
        self, scope: Construct, *, environment: Environment, settings: CreatedTables, contracts: Sequence[Contract]
    ) -> None:
        super().__init__(
            scope, environment=environment, part="key-value", description="Headwater: DynamoDB and Kinesis"
        )
        self._settings = settings
        self._key = self.encryption_key("DynamoDB tables and their changes on Kinesis")
        # Exported even if no contract imports it, so that the last contract can be removed.
        self.export_value(self._key.key_arn)
        names = key_value_names(environment, contracts)
        for contract in of_database(contracts, DYNAMODB):
            self._source(contract, names[contract.table])
        self.sources = KeyValueSources(
            self, {table: replace(each, stream_key=self._key.key_arn) for table, each in names.items()}
        )
        """The tables and streams for later stacks."""

    def _source(self, contract: Contract, names: KeyValueNames) -> None:
        settings = self._settings
        on_demand = settings.stream_shards is None
        stream = kinesis.Stream(
            self,
            f"Stream-{contract.table}",
            stream_name=names.stream,
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
            table_name=names.table,
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
        # TableV2 has no property for microseconds. With milliseconds, more changes of an item would have equal times.
        cast(dynamodb.CfnGlobalTable, table.node.default_child).add_property_override(
            "Replicas.0.KinesisStreamSpecification.ApproximateCreationDateTimePrecision", "MICROSECOND"
        )

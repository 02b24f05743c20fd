"""The two connectors on MSK Connect, and the publication that the source connector reads."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kafkaconnect as kafkaconnect
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions import connectors, left_slot
from headwater.definitions.connectors import CaptureSettings
from headwater.environment.model import Environment
from stacks.assets import Assets
from stacks.base import HeadwaterStack, grant, grant_pass_role, properties_text
from stacks.lake import LakeStack
from stacks.nag import Reason
from stacks.network import NetworkStack
from stacks.polled import PolledProvider
from stacks.relational_source import RelationalSource
from stacks.stream import StreamStack
from stacks.stream_topics import StreamTopicsStack

# What the custom resource may do to a connector.
_CONNECTOR_ACTIONS = (
    "DeleteConnector",
    "DescribeConnector",
    "ListConnectorOperations",
    "ListTagsForResource",
    "TagResource",
    "UpdateConnector",
)
# Actions for which AWS defines no resource: to create and list connectors, and what MSK Connect does with the rights of
# a caller that creates or deletes one.
_CALLER_ACTIONS = (
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "kafkaconnect:CreateConnector",
    "kafkaconnect:ListConnectors",
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
)


@dataclass(frozen=True)
class _Definition:
    """The settings that differ between the connectors."""

    part: str
    """The beginning of its resources' ids."""
    logs: logs.LogGroup
    name: str
    config: Mapping[str, str]
    role: iam.Role
    security_group: ec2.SecurityGroup
    units: int
    """The size of a worker, in units of 1 vCPU and 4 GiB."""
    workers: int
    slot: Mapping[str, str] | None = None
    """The properties by which the custom resource queries a source's replication slot; None if it may not."""
    release: Mapping[str, str] | None = None
    """The properties by which the connector itself drops or leaves the slot, if the custom resource may not query the
    slot."""


class ConnectStack(HeadwaterStack):
    """The source and sink connectors, their plugin, and the publication.

    Plugin and worker configuration cannot be changed, so their names end with a hash of their content. The names of
    connectors and of the offset topic never change, because the stored positions depend on them.

    The publication is deployed after topics and database, and the source connector after the publication. Deletion goes
    the other way round, so the replication slot is dropped once no connector holds it.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        network: NetworkStack,
        lake: LakeStack,
        database: RelationalSource,
        stream: StreamStack,
        stream_topics: StreamTopicsStack,
        contracts: Sequence[Contract],
        capture: CaptureSettings,
        assets: Assets,
    ) -> None:
        super().__init__(scope, environment=environment, part="connect", description="Headwater: MSK Connect")
        # A connector fails if it starts before its topics, tables and roles exist.
        for needed in (stream_topics, *database.stacks):
            self.add_stack_dependency(needed)
        self.capture = capture
        self._network = network
        self._subnets = network.work_subnet_ids
        self._stream = stream
        self._bootstrap_servers = stream_topics.bootstrap_servers
        self._plugin = self._custom_plugin(assets)
        self._worker = self._worker_configuration(capture)
        self._provider = PolledProvider(self, "Connectors", module="connector", assets=assets)
        database.grant_wait_for_slot(self._provider.role)
        self._grant_keep_connectors([connectors.source_name(capture), connectors.sink_name(capture)])

        source_name, source_config = connectors.source_connector(contracts, capture)
        source_role, source_group = self._principal("Source", source_name), self._security_group("Source")
        database.grant_capture(source_role, source_group)
        stream.grant_write(source_role, connectors.topics(contracts, capture))
        if any(contract.needs_mask_key for contract in of_database(contracts, POSTGRESQL)):
            lake.grant_read_mask_key(source_role)
        self.source_logs = self.log_group(self, "SourceLogs", "connect/source")
        source = self._connector(
            _Definition(
                part="Source",
                logs=self.source_logs,
                name=source_name,
                config=source_config,
                role=source_role,
                security_group=source_group,
                units=environment.postgresql.connect.source_units,
                workers=1,
                slot=database.slot_properties,
                release=self._release(database.released_slot),
            )
        )
        source.node.add_dependency(*database.publish(self, contracts, assets))

        sink_name, sink_config = connectors.sink_connector(contracts, capture)
        sink_role, sink_group = self._principal("Sink", sink_name), self._security_group("Sink")
        lake.grant_land(sink_role)
        stream.grant_read(sink_role, connectors.table_topics(contracts, capture), connectors.sink_group(capture))
        self._connector(
            _Definition(
                part="Sink",
                logs=self.log_group(self, "SinkLogs", "connect/sink"),
                name=sink_name,
                config=sink_config,
                role=sink_role,
                security_group=sink_group,
                units=environment.postgresql.connect.sink_units,
                workers=environment.postgresql.connect.sink_workers,
            )
        )

    def _custom_plugin(self, assets: Assets) -> kafkaconnect.CfnCustomPlugin:
        asset = s3_assets.Asset(self, "PluginZip", path=str(assets.connect_plugin()))
        return kafkaconnect.CfnCustomPlugin(
            self,
            "Plugin",
            name=f"{self.prefix}-{asset.asset_hash[:12]}",
            description="Debezium for PostgreSQL, the S3 sink and the Secrets Manager config provider",
            content_type="ZIP",
            location=kafkaconnect.CfnCustomPlugin.CustomPluginLocationProperty(
                s3_location=kafkaconnect.CfnCustomPlugin.S3LocationProperty(
                    bucket_arn=asset.bucket.bucket_arn, file_key=asset.s3_object_key
                )
            ),
        )

    def _worker_configuration(self, capture: CaptureSettings) -> kafkaconnect.CfnWorkerConfiguration:
        content = properties_text(connectors.worker_properties(capture)).encode()
        return kafkaconnect.CfnWorkerConfiguration(
            self,
            "Worker",
            name=f"{self.prefix}-{hashlib.sha256(content).hexdigest()[:12]}",
            description="Converters, offset topic and config provider",
            properties_file_content=base64.b64encode(content).decode(),
        )

    def _principal(self, part: str, name: str) -> iam.Role:
        """The role of the connector with that name."""
        return iam.Role(
            self,
            f"{part}Role",
            description=f"Headwater's {part.lower()} connector",
            assumed_by=self.service_principal(
                "kafkaconnect.amazonaws.com",
                self.format_arn(service="kafkaconnect", resource="connector", resource_name=f"{name}/*"),
            ),
        )

    def _security_group(self, part: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            f"{part}SecurityGroup",
            vpc=self._network.vpc,
            description=f"{part} connector",
            allow_all_outbound=False,
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS services")
        self._stream.grant_connect(group)
        return group

    def _connector(self, definition: _Definition) -> cdk.CustomResource:
        role, security_group = definition.role, definition.security_group
        self._stream.grant_run_connector(role)
        definition.logs.grant(self._provider.role, "logs:FilterLogEvents")
        self._grant_pass(role, security_group)
        capacity = {"mcuCount": definition.units, "workerCount": definition.workers}
        connector = self._provider.resource(
            "Connector",
            f"{definition.part}Connector",
            definition.name,
            {
                "Owner": self.stack_name,
                # The properties as CreateConnector takes them.
                "Connector": {
                    "connectorName": definition.name,
                    "connectorConfiguration": definition.config,
                    "kafkaConnectVersion": self.environment_settings.postgresql.connect.kafka_connect_version,
                    "capacity": {"provisionedCapacity": capacity},
                    "kafkaCluster": {
                        "apacheKafkaCluster": {
                            "bootstrapServers": self._bootstrap_servers,
                            "vpc": {
                                "securityGroups": [security_group.security_group_id],
                                "subnets": self._subnets,
                            },
                        }
                    },
                    "kafkaClusterClientAuthentication": {"authenticationType": "IAM"},
                    "kafkaClusterEncryptionInTransit": {"encryptionType": "TLS"},
                    "plugins": [
                        {"customPlugin": {"customPluginArn": self._plugin.attr_custom_plugin_arn, "revision": 1}}
                    ],
                    "workerConfiguration": {
                        "workerConfigurationArn": self._worker.attr_worker_configuration_arn,
                        "revision": 1,
                    },
                    "serviceExecutionRoleArn": role.role_arn,
                    "logDelivery": {
                        "workerLogDelivery": {
                            "cloudWatchLogs": {"enabled": True, "logGroup": definition.logs.log_group_name}
                        }
                    },
                },
                **({"Slot": definition.slot} if definition.slot is not None else {}),
                **({"Release": definition.release} if definition.release is not None else {}),
            },
        )
        # Rights and rules are separate resources, so CloudFormation has to create them before the connector starts.
        connector.node.add_dependency(role, security_group)
        return connector

    def _release(self, slot: str | None) -> dict[str, str] | None:
        """The properties by which the source connector drops its slot when it is deleted with the environment's data.

        Through them the custom resource also records why a slot stays.
        """
        if slot is None:
            return None
        parameter = left_slot.parameter(self.environment_settings.name)
        arn = self.format_arn(service="ssm", resource="parameter", resource_name=parameter.removeprefix("/"))
        grant(self._provider.role, ["ssm:DeleteParameter", "ssm:PutParameter"], [arn])
        drop = "true" if self.environment_settings.deletes_data else "false"
        return {"Slot": slot, "Parameter": parameter, "Drop": drop}

    def _grant_keep_connectors(self, names: Sequence[str]) -> None:
        """Let the custom resource create, change and delete the connectors.

        MSK Connect requires further rights of a caller that creates a connector.
        """
        linked_role = self.format_arn(
            service="iam",
            region="",
            resource="role",
            resource_name="aws-service-role/kafkaconnect.amazonaws.com/AWSServiceRoleForKafkaConnect",
        )
        role, below = self._provider.role, Reason.NAMES_BELOW_A_PREFIX
        kept = [self._connect_arn("connector", f"{name}/*") for name in names]
        operations = [self._connect_arn("connector-operation", f"{name}/*") for name in names]
        grant(role, [f"kafkaconnect:{action}" for action in _CONNECTOR_ACTIONS], kept, wildcard=below)
        grant(role, ["kafkaconnect:DescribeConnectorOperation"], operations, wildcard=below)
        grant(role, ["iam:AttachRolePolicy", "iam:CreateServiceLinkedRole", "iam:PutRolePolicy"], [linked_role])
        grant(role, _CALLER_ACTIONS, ["*"], wildcard=Reason.ACTION_TAKES_NO_RESOURCE)

    def _grant_pass(self, role: iam.Role, security_group: ec2.SecurityGroup) -> None:
        """Let the custom resource pass a connector its role and its network interfaces."""
        grant_pass_role(self._provider.role, role, "kafkaconnect.amazonaws.com")
        grant(
            self._provider.role,
            ["ec2:CreateNetworkInterface"],
            [
                self._ec2_arn("network-interface", "*"),
                self._ec2_arn("security-group", security_group.security_group_id),
                *(self._ec2_arn("subnet", subnet) for subnet in self._subnets),
            ],
            wildcard=Reason.NAMES_BELOW_A_PREFIX,
        )

    def _ec2_arn(self, kind: str, name: str) -> str:
        return self.format_arn(service="ec2", resource=kind, resource_name=name)

    def _connect_arn(self, kind: str, name: str) -> str:
        return self.format_arn(service="kafkaconnect", resource=kind, resource_name=name)

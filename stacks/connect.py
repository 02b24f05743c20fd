"""Connect: the two connectors on MSK Connect."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kafkaconnect as kafkaconnect
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from headwater import connectors
from headwater.connectors import CaptureSettings
from headwater.contract import Contract
from headwater.environment import Environment
from stacks.assets import Assets
from stacks.base import HeadwaterStack
from stacks.database import DatabaseStack
from stacks.lake import LakeStack
from stacks.network import NetworkStack
from stacks.stream import StreamStack


class ConnectStack(HeadwaterStack):
    """Plugin and worker configuration have their content's hash in their names, because they cannot be changed;
    connectors and the offset topic never do, because positions hang on those names."""

    def __init__(
        self,
        scope: Construct,
        environment: Environment,
        network: NetworkStack,
        lake: LakeStack,
        database: DatabaseStack,
        stream: StreamStack,
        contracts: Sequence[Contract],
        settings: CaptureSettings,
        assets: Assets,
    ) -> None:
        super().__init__(scope, environment, "connect", "Headwater: MSK Connect")
        self._network = network
        self._stream = stream
        self._plugin = self._custom_plugin(assets)
        self._worker = self._worker_configuration(settings)

        source_name, source_config = connectors.source_connector(contracts, settings)
        source_role, source_group = self._principal("Source"), self._security_group("Source")
        database.grant_connect(source_group)
        database.grant_log_in(source_role, "cdc")
        stream.grant_write(source_role, connectors.topics(contracts, settings))
        self._connector(
            "Source", source_name, source_config, source_role, source_group, environment.connect.source_units, 1
        )

        sink_name, sink_config = connectors.sink_connector(contracts, settings)
        sink_role, sink_group = self._principal("Sink"), self._security_group("Sink")
        lake.grant_land(sink_role)
        landed = [connectors.topic(contract, settings) for contract in contracts]
        stream.grant_read(sink_role, landed, f"connect-{sink_name}")
        self._connector(
            "Sink",
            sink_name,
            sink_config,
            sink_role,
            sink_group,
            environment.connect.sink_units,
            environment.connect.sink_workers,
        )

    def _custom_plugin(self, assets: Assets) -> kafkaconnect.CfnCustomPlugin:
        asset = s3_assets.Asset(self, "PluginZip", path=str(assets.connect_plugin()))
        return kafkaconnect.CfnCustomPlugin(
            self,
            "Plugin",
            name=f"headwater-{self.environment_settings.name}-{asset.asset_hash[:12]}",
            description="Debezium for PostgreSQL, the S3 sink and the Secrets Manager config provider",
            content_type="ZIP",
            location=kafkaconnect.CfnCustomPlugin.CustomPluginLocationProperty(
                s3_location=kafkaconnect.CfnCustomPlugin.S3LocationProperty(
                    bucket_arn=asset.bucket.bucket_arn, file_key=asset.s3_object_key
                )
            ),
        )

    def _worker_configuration(self, settings: CaptureSettings) -> kafkaconnect.CfnWorkerConfiguration:
        properties = connectors.worker_properties(settings)
        content = "".join(f"{key}={value}\n" for key, value in sorted(properties.items())).encode()
        return kafkaconnect.CfnWorkerConfiguration(
            self,
            "Worker",
            name=f"headwater-{self.environment_settings.name}-{hashlib.sha256(content).hexdigest()[:12]}",
            description="Converters, offset topic and config provider",
            properties_file_content=base64.b64encode(content).decode(),
        )

    def _principal(self, part: str) -> iam.Role:
        return iam.Role(
            self,
            f"{part}Role",
            description=f"Headwater's {part.lower()} connector",
            assumed_by=iam.ServicePrincipal(
                "kafkaconnect.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
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

    def _connector(
        self,
        part: str,
        name: str,
        config: dict[str, str],
        role: iam.Role,
        security_group: ec2.SecurityGroup,
        units: int,
        workers: int,
    ) -> None:
        self._stream.grant_run_connector(role)
        connector = kafkaconnect.CfnConnector(
            self,
            f"{part}Connector",
            connector_name=name,
            connector_configuration=config,
            kafka_connect_version=self.environment_settings.connect.kafka_connect_version,
            capacity=kafkaconnect.CfnConnector.CapacityProperty(
                provisioned_capacity=kafkaconnect.CfnConnector.ProvisionedCapacityProperty(
                    mcu_count=units, worker_count=workers
                )
            ),
            kafka_cluster=kafkaconnect.CfnConnector.KafkaClusterProperty(
                apache_kafka_cluster=kafkaconnect.CfnConnector.ApacheKafkaClusterProperty(
                    bootstrap_servers=self._stream.bootstrap_servers,
                    vpc=kafkaconnect.CfnConnector.VpcProperty(
                        security_groups=[security_group.security_group_id],
                        subnets=self._network.vpc.select_subnets(subnet_group_name="work").subnet_ids,
                    ),
                )
            ),
            kafka_cluster_client_authentication=kafkaconnect.CfnConnector.KafkaClusterClientAuthenticationProperty(
                authentication_type="IAM"
            ),
            kafka_cluster_encryption_in_transit=kafkaconnect.CfnConnector.KafkaClusterEncryptionInTransitProperty(
                encryption_type="TLS"
            ),
            plugins=[
                kafkaconnect.CfnConnector.PluginProperty(
                    custom_plugin=kafkaconnect.CfnConnector.CustomPluginProperty(
                        custom_plugin_arn=self._plugin.attr_custom_plugin_arn, revision=1
                    )
                )
            ],
            worker_configuration=kafkaconnect.CfnConnector.WorkerConfigurationProperty(
                worker_configuration_arn=self._worker.attr_worker_configuration_arn, revision=1
            ),
            service_execution_role_arn=role.role_arn,
            log_delivery=kafkaconnect.CfnConnector.LogDeliveryProperty(
                worker_log_delivery=kafkaconnect.CfnConnector.WorkerLogDeliveryProperty(
                    cloud_watch_logs=kafkaconnect.CfnConnector.CloudWatchLogsLogDeliveryProperty(
                        enabled=True, log_group=self.log_group(self, f"{part}Logs", f"connect/{name}").log_group_name
                    )
                )
            ),
        )
        # Rights and rules are resources of their own, which the connector needs before it starts.
        connector.node.add_dependency(role, security_group)

"""The MSK cluster: KRaft, IAM over TLS only. Its topics are the stack ``stream-topics``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_msk as msk
from constructs import Construct

from headwater.definitions.connectors import OFFSET_TOPIC, broker_config
from headwater.environment.model import Environment
from stacks.base import HeadwaterStack, grant, properties_text
from stacks.nag import Reason, acknowledge_wildcard
from stacks.network import NetworkStack

IAM_PORT = 9098
# The topics and groups that MSK Connect creates for each connector.
_CONNECT_INTERNAL = "__amazon_msk_connect_*"


class StreamStack(HeadwaterStack):
    """The Kafka cluster between the connectors."""

    def __init__(self, scope: Construct, *, environment: Environment, network: NetworkStack) -> None:
        super().__init__(scope, environment=environment, part="stream", description="Headwater: MSK")
        settings = environment.postgresql.stream
        zones = len(environment.availability_zones)
        key = self.encryption_key("MSK volumes")
        self.security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=network.vpc, description="MSK brokers", allow_all_outbound=False
        )
        configuration = msk.CfnConfiguration(
            self,
            "Configuration",
            # A configuration's Kafka versions are create-only: with other versions it is replaced, and the new one
            # comes first.
            name=f"{self.prefix}-{settings.kafka_version.replace('.', '-')}",
            kafka_versions_list=[settings.kafka_version],
            server_properties=properties_text(
                {
                    "auto.create.topics.enable": "false",
                    "default.replication.factor": str(zones),
                    "min.insync.replicas": str(zones - 1),
                    "log.retention.hours": str(settings.retention_hours),
                    **broker_config(),
                }
            ),
        )
        self.cluster = msk.CfnCluster(
            self,
            "Cluster",
            cluster_name=self.prefix,
            kafka_version=settings.kafka_version,
            number_of_broker_nodes=settings.brokers_per_zone * zones,
            broker_node_group_info=msk.CfnCluster.BrokerNodeGroupInfoProperty(
                client_subnets=network.data_subnet_ids,
                instance_type=settings.broker_type,
                security_groups=[self.security_group.security_group_id],
                storage_info=msk.CfnCluster.StorageInfoProperty(
                    ebs_storage_info=msk.CfnCluster.EBSStorageInfoProperty(volume_size=settings.volume_gib)
                ),
            ),
            configuration_info=msk.CfnCluster.ConfigurationInfoProperty(
                arn=configuration.attr_arn,
                revision=cdk.Token.as_number(configuration.get_att("LatestRevision.Revision")),
            ),
            client_authentication=msk.CfnCluster.ClientAuthenticationProperty(
                sasl=msk.CfnCluster.SaslProperty(iam=msk.CfnCluster.IamProperty(enabled=True)),
                unauthenticated=msk.CfnCluster.UnauthenticatedProperty(enabled=False),
            ),
            encryption_info=msk.CfnCluster.EncryptionInfoProperty(
                encryption_at_rest=msk.CfnCluster.EncryptionAtRestProperty(data_volume_kms_key_id=key.key_arn),
                encryption_in_transit=msk.CfnCluster.EncryptionInTransitProperty(client_broker="TLS", in_cluster=True),
            ),
            enhanced_monitoring="DEFAULT",
            logging_info=msk.CfnCluster.LoggingInfoProperty(
                broker_logs=msk.CfnCluster.BrokerLogsProperty(
                    cloud_watch_logs=msk.CfnCluster.CloudWatchLogsProperty(
                        enabled=True, log_group=self.log_group(self, "Logs", "brokers").log_group_name
                    )
                )
            ),
        )
        self.cluster.apply_removal_policy(self.data_removal)
        # The last part of the cluster's ARN. The ARNs of its topics and groups repeat it.
        self._cluster_id = self.export_value(
            cdk.Fn.select(2, cdk.Fn.split("/", self.cluster.attr_arn)), name=f"{self.stack_name}-cluster-id"
        )

    def grant_connect(self, client: ec2.IConnectable) -> None:
        """Let a client of a later stack reach the brokers' IAM port."""
        client.connections.allow_to(self.security_group, ec2.Port.tcp(IAM_PORT), "Kafka with IAM over TLS")

    def grant_write(self, grantee: iam.IGrantable, topics: Iterable[str]) -> None:
        """Let a principal write these topics."""
        self._grant(grantee, ["WriteData", "DescribeTopic"], [self._part_arn("topic", name) for name in topics])

    def grant_read(self, grantee: iam.IGrantable, topics: Iterable[str], group: str) -> None:
        """Let a principal read these topics as a member of one consumer group."""
        self._grant(grantee, ["ReadData", "DescribeTopic"], [self._part_arn("topic", name) for name in topics])
        self._grant(grantee, ["AlterGroup", "DescribeGroup"], [self._part_arn("group", group)])

    def grant_run_connector(self, grantee: iam.IGrantable) -> None:
        """Let a connector join the cluster and keep its own state.

        The state is in MSK Connect's internal topics and groups, and in the offset topic.
        """
        self._grant(grantee, ["Connect", "DescribeCluster", "WriteDataIdempotently"], [self.cluster.attr_arn])
        topics, groups = self._part_arn("topic", _CONNECT_INTERNAL), self._part_arn("group", _CONNECT_INTERNAL)
        self._grant(grantee, ["CreateTopic", "DescribeTopic", "ReadData", "WriteData"], [topics])
        self._grant(grantee, ["DescribeTopic", "ReadData", "WriteData"], [self._part_arn("topic", OFFSET_TOPIC)])
        self._grant(grantee, ["AlterGroup", "DescribeGroup"], [groups])
        acknowledge_wildcard(grantee, [topics, groups], Reason.NAMES_BELOW_A_PREFIX)

    def _grant(self, grantee: iam.IGrantable, actions: Sequence[str], arns: Sequence[str]) -> None:
        grant(grantee, [f"kafka-cluster:{action}" for action in actions], list(arns))

    def _part_arn(self, kind: str, name: str) -> str:
        """The ARN of a topic or group in a policy of a later stack.

        The ARN is the cluster's, with the kind in place of ``cluster`` and the name appended. A reference to the topic
        itself would make one export per topic. CloudFormation keeps an export while a stack imports it, so no topic
        could be removed.
        """
        return self.format_arn(
            service="kafka", resource=kind, resource_name=f"{self.cluster.cluster_name}/{self._cluster_id}/{name}"
        )

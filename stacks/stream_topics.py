"""Every Kafka topic as a resource, and the look-up of the brokers' addresses.

They have their own stack, because MSK takes half an hour to create a cluster. If AWS refuses a topic, this stack rolls
back and the cluster stays.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from aws_cdk import aws_msk as msk
from aws_cdk import custom_resources as custom
from constructs import Construct

from headwater.definitions.connectors import OFFSET_TOPIC, topic_config
from headwater.environment.model import Environment
from stacks.base import HeadwaterStack
from stacks.look_up import look_up
from stacks.nag import Reason, acknowledge
from stacks.stream import StreamStack

# The number of partitions with which Kafka Connect itself would create the topic.
_OFFSET_PARTITIONS = 25


class StreamTopicsStack(HeadwaterStack):
    """The source connector's topics (``topics``: partitions by name), and the topic of Connect's offsets.

    ``bootstrap_servers`` are the brokers' addresses, separated by commas.
    """

    def __init__(
        self, scope: Construct, *, environment: Environment, stream: StreamStack, topics: Mapping[str, int]
    ) -> None:
        super().__init__(scope, environment=environment, part="stream-topics", description="Headwater: Kafka topics")
        self._cluster_arn = stream.cluster.attr_arn
        # Topics delete records only by age: a sink loses changes only if it stops for longer than the retention.
        hours = environment.postgresql.stream.retention_hours
        config = {**topic_config(), "cleanup.policy": "delete", "retention.ms": str(hours * 3_600_000)}
        for name, partitions in topics.items():
            self._topic(name, partitions, config)
        self._topic(OFFSET_TOPIC, _OFFSET_PARTITIONS, {"cleanup.policy": "compact"})
        self.bootstrap_servers = self._look_up_brokers()

    def _topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        topic = msk.CfnTopic(
            self,
            f"Topic-{name}",
            cluster_arn=self._cluster_arn,
            topic_name=name,
            partition_count=partitions,
            replication_factor=len(self.availability_zones),
            # A JSON object instead of lines: docs/decisions/topic-configs.md.
            configs=base64.b64encode(json.dumps(config, sort_keys=True).encode()).decode(),
        )
        topic.apply_removal_policy(self.data_removal)

    def _look_up_brokers(self) -> str:
        """The brokers' bootstrap addresses, which AWS::MSK::Cluster does not return."""
        call = custom.AwsSdkCall(
            service="kafka",
            action="getBootstrapBrokers",
            parameters={"ClusterArn": self._cluster_arn},
            physical_resource_id=custom.PhysicalResourceId.of("bootstrap-brokers"),
            output_paths=["BootstrapBrokerStringSaslIam"],
        )
        resource = look_up(self, "BootstrapBrokers", call, "kafka:GetBootstrapBrokers", ["*"])
        acknowledge(resource, "IAM5[Resource::*]", Reason.ACTION_TAKES_NO_RESOURCE)
        return resource.get_response_field("BootstrapBrokerStringSaslIam")

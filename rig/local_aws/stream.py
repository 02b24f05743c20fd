"""MSK: a cluster is Kafka on this machine, with the properties of its configuration and the template's topics."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.errors import UserError
from rig.local.kafka import Access, Broker
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError
from rig.local_aws.cloudwatch import Measured
from rig.local_aws.resources import Made, Properties, ResourceType, changed, refuse_unread

CLUSTER = "AWS::MSK::Cluster"
CONFIGURATION = "AWS::MSK::Configuration"
TOPIC = "AWS::MSK::Topic"
# A single broker cannot keep more than one replica.
_OF_ONE_BROKER = {"default.replication.factor": "1", "min.insync.replicas": "1"}


def access(folder: Path, bootstrap: str) -> Access:
    """Return the access to the broker with that address, among the clusters below ``folder``.

    On AWS, the client's role gives access. Raises UserError if no cluster has the address.
    """
    for broker in (Broker(ports.parent) for ports in folder.glob("*/ports")):
        if broker.bootstrap == bootstrap:
            return broker.access
    raise UserError(f"no cluster in {folder} has the address {bootstrap}")


class Clusters:
    """The clusters of an account, below ``folder``."""

    def __init__(self, folder: Path, context: AccountContext) -> None:
        self._folder = folder
        self._arn = f"arn:aws:kafka:{context.region}:{context.account}"
        # The revisions of each configuration, the oldest first.
        self._configurations: dict[str, list[dict[str, str]]] = {}
        self._brokers: dict[str, tuple[Broker, ExitStack]] = {}
        operations = {"GetBootstrapBrokers": self._bootstrap_brokers, "ListClustersV2": self._list_clusters}
        self.api = Api("kafka", operations)

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {CLUSTER: _Cluster(self), CONFIGURATION: _Configuration(self), TOPIC: _Topic(self)}

    def configure(self, name: str, properties: str) -> Made:
        """Store server properties, in MSK's text form, as the next revision of a configuration."""
        arn = f"{self._arn}:configuration/{name}/1"
        lines = (line.partition("=") for line in properties.splitlines() if line)
        revisions = self._configurations.setdefault(arn, [])
        revisions.append({key: value for key, _, value in lines})
        return Made(arn, {"Arn": arn, "LatestRevision.Revision": str(len(revisions))})

    def start(self, name: str, configuration: Properties) -> Made:
        """Start a broker with the properties of a configuration's revision."""
        arn = f"{self._arn}:cluster/{name}/1"
        broker = Broker(self._folder / name, self._properties(configuration))
        with ExitStack() as stack:
            stack.enter_context(broker)
            self._brokers[arn] = (broker, stack.pop_all())
        return Made(arn, {"Arn": arn})

    def reconfigure(self, arn: str, configuration: Properties) -> None:
        """Restart a broker with the properties of another revision or configuration.

        MSK does so with one broker after the other.
        """
        broker, properties = self.broker(arn), self._properties(configuration)
        broker.stop()
        broker.configure(properties)
        broker.start()

    def _properties(self, configuration: Properties) -> dict[str, str]:
        arn, revision = configuration["Arn"], int(configuration["Revision"])
        revisions = self._configurations.get(arn, [])
        if not 1 <= revision <= len(revisions):
            raise UserError(f"ConfigurationInfo: there is no revision {revision} of {arn}")
        return {**revisions[revision - 1], **_OF_ONE_BROKER}

    def broker(self, arn: str) -> Broker:
        """The broker of a cluster. Raises UserError if the cluster does not exist."""
        if arn not in self._brokers:
            raise UserError(f"there is no cluster {arn}")
        return self._brokers[arn][0]

    def measured(self) -> Iterator[Measured]:
        """The metrics that MSK sends about consumer groups and the topics that they read."""
        for arn, (broker, _) in list(self._brokers.items()):
            if not broker.running:
                continue
            for (group, topic), records in broker.lags().items():
                of = {"Cluster Name": arn.split("/")[1], "Consumer Group": group, "Topic": topic}
                yield Measured("AWS/Kafka", "SumOffsetLag", of, records)

    def delete_topic(self, arn: str, topic: str) -> None:
        """Delete a topic, if the cluster and the topic exist."""
        if arn in self._brokers:
            self._brokers[arn][0].delete_topic(topic)

    def stop(self, arn: str) -> None:
        """End a broker."""
        broker = self._brokers.pop(arn, None)
        if broker is not None:
            broker[1].close()

    def close(self) -> None:
        """End all brokers."""
        for arn in list(self._brokers):
            self.stop(arn)

    def _bootstrap_brokers(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            bootstrap = self.broker(request["ClusterArn"]).bootstrap
        except UserError as error:
            raise ApiError("NotFoundException", str(error)) from None
        return {"BootstrapBrokerStringSaslIam": bootstrap}

    def _list_clusters(self, request: dict[str, Any]) -> dict[str, Any]:
        listed = [(arn, arn.split("/")[1], broker) for arn, (broker, _) in list(self._brokers.items())]
        # MSK replaces a broker that does not answer.
        return {
            "ClusterInfoList": [
                {"ClusterArn": arn, "ClusterName": name, "State": "ACTIVE" if broker.answers() else "HEALING"}
                for arn, name, broker in listed
                if name.startswith(request.get("ClusterNameFilter", ""))
            ]
        }


class _Configuration(ResourceType[Clusters]):
    kind = CONFIGURATION

    def make(self, name: str, properties: Properties) -> Made:
        return self.service.configure(properties["Name"], properties["ServerProperties"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.create(physical_id, properties)


class _Cluster(ResourceType[Clusters]):
    kind = CLUSTER

    def make(self, name: str, properties: Properties) -> Made:
        return self.service.start(properties["ClusterName"], properties["ConfigurationInfo"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        differ = changed(CLUSTER, former, properties)
        refused = [name for name in differ if not name.startswith("ConfigurationInfo")]
        if refused:
            raise UserError(
                f"{CLUSTER}: {', '.join(refused)} cannot be changed here: destroy the environment, then deploy it"
            )
        if differ:
            self.service.reconfigure(physical_id, properties["ConfigurationInfo"])
        return Made(physical_id, {"Arn": physical_id})

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.stop(physical_id)


class _Topic(ResourceType[Clusters]):
    kind = TOPIC

    def make(self, name: str, properties: Properties) -> Made:
        topic, cluster, partitions = (properties[part] for part in ("TopicName", "ClusterArn", "PartitionCount"))
        config = json.loads(base64.b64decode(properties.get("Configs", "e30="), validate=True))
        refuse_unread(TOPIC, properties)
        broker = self.service.broker(cluster)
        if topic in broker.topics():
            raise UserError(f"{topic}: the cluster has a topic of that name already")
        broker.create_topics({topic: int(partitions)}, config)
        arn = f"{cluster.replace(':cluster/', ':topic/')}/{topic}"
        return Made(arn, {"TopicArn": arn})

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        differ = changed(TOPIC, former, properties)
        # One call of MSK changes the number of partitions or the configuration, not both.
        if differ not in ([], ["PartitionCount"]):
            raise UserError(
                f"{TOPIC}: {', '.join(differ)} cannot be changed here: destroy the environment, then deploy it"
            )
        if differ:
            cluster, topic = self._of(physical_id)
            self.service.broker(cluster).add_partitions(topic, int(properties["PartitionCount"]))
        return Made(physical_id, {"TopicArn": physical_id})

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.delete_topic(*self._of(physical_id))

    def _of(self, physical_id: str) -> tuple[str, str]:
        """The ARN of a topic's cluster, and the topic's name."""
        cluster, _, topic = physical_id.replace(":topic/", ":cluster/").rpartition("/")
        return cluster, topic

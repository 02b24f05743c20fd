"""MSK: a cluster is Kafka on this machine, with the properties of its configuration and the template's topics."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.errors import UserError
from headwater.local.kafka import Broker
from headwater.local_aws.api import Api, ApiError
from headwater.local_aws.resources import Made, Properties, ResourceType, refuse_unread
from headwater.local_aws.surroundings import Surroundings

CLUSTER = "AWS::MSK::Cluster"
CONFIGURATION = "AWS::MSK::Configuration"
TOPIC = "AWS::MSK::Topic"
# One broker cannot keep more than one replica.
_OF_ONE_BROKER = {"default.replication.factor": "1", "min.insync.replicas": "1"}


class Clusters:
    """The clusters of an account, below ``folder``."""

    def __init__(self, folder: Path, surroundings: Surroundings) -> None:
        self._folder = folder
        self._arn = f"arn:aws:kafka:{surroundings.region}:{surroundings.account}"
        self._configurations: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, tuple[Broker, ExitStack]] = {}
        self.api = Api("kafka", {"GetBootstrapBrokers": self._bootstrap_brokers})

    def types(self) -> dict[str, ResourceType]:
        """The resource types, by their names."""
        return {CLUSTER: _Cluster(self), CONFIGURATION: _Configuration(self), TOPIC: _Topic(self)}

    def configure(self, name: str, properties: str) -> Made:
        """Keep server properties, as MSK's text of them."""
        arn = f"{self._arn}:configuration/{name}/1"
        lines = (line.partition("=") for line in properties.splitlines() if line)
        self._configurations[arn] = {key: value for key, _, value in lines}
        return Made(arn, {"Arn": arn, "LatestRevision.Revision": "1"})

    def start(self, name: str, configuration: str) -> Made:
        """Start a broker with the properties of a configuration."""
        if configuration not in self._configurations:
            raise UserError(f"ConfigurationInfo.Arn: there is no configuration {configuration}")
        arn = f"{self._arn}:cluster/{name}/1"
        broker = Broker(self._folder / name, {**self._configurations[configuration], **_OF_ONE_BROKER})
        with ExitStack() as stack:
            stack.enter_context(broker)
            self._brokers[arn] = (broker, stack.pop_all())
        return Made(arn, {"Arn": arn})

    def broker(self, arn: str) -> Broker:
        """The broker of a cluster. Raises UserError where there is none."""
        if arn not in self._brokers:
            raise UserError(f"there is no cluster {arn}")
        return self._brokers[arn][0]

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


class _Configuration:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def create(self, name: str, properties: Properties) -> Made:
        made = self._clusters.configure(properties["Name"], properties["ServerProperties"])
        refuse_unread(CONFIGURATION, properties)
        return made

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.create(physical_id, properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        pass


class _Cluster:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def create(self, name: str, properties: Properties) -> Made:
        configuration = properties["ConfigurationInfo"]
        if str(configuration["Revision"]) != "1":
            raise UserError(f"ConfigurationInfo.Revision: found {configuration['Revision']}, expected 1, the only one")
        made = self._clusters.start(properties["ClusterName"], configuration["Arn"])
        refuse_unread(CLUSTER, properties)
        return made

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        if former["ConfigurationInfo"] != properties["ConfigurationInfo"]:
            raise UserError(f"{CLUSTER}: ConfigurationInfo cannot be changed here")
        return Made(physical_id, {"Arn": physical_id})

    def delete(self, physical_id: str, properties: Properties) -> None:
        self._clusters.stop(physical_id)


class _Topic:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def create(self, name: str, properties: Properties) -> Made:
        topic, cluster = properties["TopicName"], properties["ClusterArn"]
        config = json.loads(base64.b64decode(properties.get("Configs", "e30="), validate=True))
        self._clusters.broker(cluster).create_topics({topic: int(properties["PartitionCount"])}, config)
        refuse_unread(TOPIC, properties)
        arn = f"{cluster.replace(':cluster/', ':topic/')}/{topic}"
        return Made(arn, {"TopicArn": arn})

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        if dict(former) != dict(properties):
            raise UserError(f"{TOPIC}: a topic cannot be changed here")
        return Made(physical_id, {"TopicArn": physical_id})

    def delete(self, physical_id: str, properties: Properties) -> None:
        # With its broker's data.
        pass

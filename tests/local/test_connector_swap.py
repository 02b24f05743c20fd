"""The connectors' custom resource, with real Kafka Connect clusters in the place of MSK Connect's. Plugin and worker
configuration are swapped while the database is in use, and no new snapshot starts."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from custom_resources import connector, database_bootstrap
from custom_resources.connector import Clients
from custom_resources.data_api import Database
from custom_resources.lifecycle import Event, ResourceFailed
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors, open_transactions, source_database
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.lake_folder import EXAMPLE
from headwater.paths import BUILD
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.connect import ConnectWorker
from rig.local.kafka import Access
from rig.local.pipeline import DATABASE, ENVIRONMENT, LANDING_BUCKET, Pipeline
from rig.samples import orders
from rig.samples.loading import load_folder
from tests.data_api import CLUSTER, OWNER_SECRET, data_api
from tests.modelled import Modelled, refusal

pytestmark = pytest.mark.drill

PLUGIN_FOLDERS = ("debezium-postgres", "headwater-connect")
SOURCE = f"headwater-{ENVIRONMENT}-postgres"
SINK = f"headwater-{ENVIRONMENT}-landing"
RENDER = {SOURCE: connectors.source_connector, SINK: connectors.sink_connector}


class LocalMskConnect:
    """MSK Connect as far as it is used here. Each connector has a Connect cluster of its own, which ends with it.

    ``plugins`` and ``workers`` are custom plugins and worker configurations by their ARNs; ``credentials`` are what the
    plugins reach AWS with.
    """

    def __init__(self, folder: Path, access: Access, credentials: Mapping[str, str]) -> None:
        self.plugins: dict[str, Path] = {}
        self.workers: dict[str, dict[str, str]] = {}
        self._folder = folder
        self._access = access
        self._credentials = credentials
        self._numbers = itertools.count(1)
        self._running = ExitStack()
        self._requests: dict[str, dict[str, Any]] = {}
        self._clusters: dict[str, ConnectWorker] = {}
        self._deleting: set[str] = set()
        self._tags: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def list_connectors(self, connectorNamePrefix: str) -> dict[str, Any]:  # noqa: N803
        for arn in self._deleting:
            # Killed, not stopped: the database has to notice by itself that the connector is gone.
            self._clusters.pop(arn).kill()
            del self._requests[arn]
        self._deleting.clear()
        return {
            "connectors": [
                {"connectorArn": arn, "connectorName": request["connectorName"]}
                for arn, request in self._requests.items()
                if request["connectorName"].startswith(connectorNamePrefix)
            ]
        }

    def describe_connector(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        state = self._state(connectorArn)
        return {
            **self._requests[connectorArn], "connectorArn": connectorArn, "connectorState": state,
            "currentVersion": "1",
        }  # fmt: skip

    def list_tags_for_resource(self, resourceArn: str) -> dict[str, Any]:  # noqa: N803
        return {"tags": self._tags[resourceArn]}

    def list_connector_operations(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        return {"connectorOperations": []}

    def create_connector(self, tags: dict[str, str], **request: Any) -> dict[str, Any]:
        name = request["connectorName"]
        if any(running["connectorName"] == name for running in self._requests.values()):
            raise refusal("ConflictException", "a connector of that name exists", "CreateConnector")
        cluster = f"msk-connect-{name}-{next(self._numbers)}"
        worker = ConnectWorker(
            self._folder / cluster,
            self._access,
            self.workers[request["workerConfiguration"]["workerConfigurationArn"]],
            group=cluster,
            plugins=self.plugins[request["plugins"][0]["customPlugin"]["customPluginArn"]],
            environment=aws.environment(self._credentials),
        )
        self._running.enter_context(worker)
        worker.put(name, request["connectorConfiguration"])
        arn = f"arn:{cluster}"
        self._clusters[arn], self._requests[arn], self._tags[arn] = worker, request, tags
        return {"connectorArn": arn, "connectorName": name, "connectorState": "CREATING"}

    def update_connector(self, connectorArn: str, currentVersion: str, **change: Any) -> dict[str, Any]:  # noqa: N803
        self._requests[connectorArn].update(change)
        self._clusters[connectorArn].put(
            self._requests[connectorArn]["connectorName"], change["connectorConfiguration"]
        )
        return {"connectorArn": connectorArn, "connectorState": "UPDATING"}

    def delete_connector(self, connectorArn: str, currentVersion: str) -> dict[str, Any]:  # noqa: N803
        self._deleting.add(connectorArn)
        return {"connectorArn": connectorArn, "connectorState": "DELETING"}

    def filter_log_events(self, logGroupName: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        """CloudWatch's answer: the errors in the log of a connector's cluster, whose log group has its name."""
        (arn,) = [arn for arn, request in self._requests.items() if request["connectorName"] == logGroupName]
        lines = (self._clusters[arn].folder / "connect.log").read_text().splitlines()
        return {"events": [{"message": line} for line in lines if "ERROR" in line or "Exception" in line]}

    def _state(self, arn: str) -> str:
        status = self._clusters[arn].status(self._requests[arn]["connectorName"])
        states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
        if "FAILED" in states:
            return "FAILED"
        return "RUNNING" if states == {"RUNNING"} and status["tasks"] else "CREATING"


class Deployment:
    """The connect stack of an environment, as CloudFormation deploys it."""

    def __init__(self, pipeline: Pipeline, msk: LocalMskConnect) -> None:
        self.pipeline = pipeline
        self.msk = msk
        self.calls: list[str] = []
        self._numbers = itertools.count(1)

    def request(self, kind: str, name: str, plugin: str, worker: str, **config: str) -> Event:
        definition = {
            "connectorName": name,
            "connectorConfiguration": {**RENDER[name](self.pipeline.contracts, self.pipeline.settings)[1], **config},
            "kafkaConnectVersion": "3.7.x",
            "capacity": {"provisionedCapacity": {"mcuCount": "1", "workerCount": "1"}},
            "kafkaCluster": {
                "apacheKafkaCluster": {
                    "bootstrapServers": self.pipeline.broker.bootstrap,
                    "vpc": {"securityGroups": ["sg-1"], "subnets": ["subnet-1"]},
                }
            },
            "kafkaClusterClientAuthentication": {"authenticationType": "IAM"},
            "kafkaClusterEncryptionInTransit": {"encryptionType": "TLS"},
            "plugins": [{"customPlugin": {"customPluginArn": plugin, "revision": "1"}}],
            "workerConfiguration": {"workerConfigurationArn": worker, "revision": "1"},
            # Another role each time: no update takes that, so the connector is deleted and created.
            "serviceExecutionRoleArn": f"arn:role-of-{plugin}-{worker}",
            "logDelivery": {"workerLogDelivery": {"cloudWatchLogs": {"enabled": "true", "logGroup": name}}},
        }
        properties: dict[str, Any] = {"Name": name, "Owner": "headwater-test-connect", "Connector": definition}
        if name == SOURCE:
            properties["Slot"] = {"Name": SLOT, **DATABASE_PROPERTIES}
        return {
            "RequestType": kind,
            "RequestId": str(next(self._numbers)),
            "PhysicalResourceId": name,
            "ResourceProperties": properties,
            "Data": {"Began": str(time.time())},
        }

    def deploy(self, event: Event, between: str | None = None) -> None:
        """Fulfil a request; the SQL ``between`` runs while there is no connector."""
        client = Modelled("kafkaconnect", self.msk)
        clients = Clients(client, Modelled("logs", self.msk), None)
        api = Database(data_api(lambda: self.pipeline.postgres.connect(DATABASE)), DATABASE_PROPERTIES)
        source = event["PhysicalResourceId"] == SOURCE

        def done() -> bool:
            nonlocal between
            if between is not None and "delete_connector" in client.calls:
                self.run(between)
                between = None
            outcome = connector.step(event, clients, api if source else None, time.time())
            return bool(outcome["IsComplete"])

        wait_until(f"{event['RequestType']} {event['PhysicalResourceId']}", done, poll=0.5)
        self.calls += client.calls
        assert between is None

    def publication(self, kind: str) -> bool:
        """Take one step of a request for the publication; whether it is done."""
        contracts = self.pipeline.contracts
        document = {
            "tables": source_database.published_tables(contracts),
            "transactions": open_transactions.FIND,
            "statements": source_database.publication_statements(contracts),
        }
        event = {
            "RequestType": kind,
            "PhysicalResourceId": PUBLICATION,
            "ResourceProperties": {
                **DATABASE_PROPERTIES, "Slot": SLOT, "Publication": PUBLICATION, "Statements": "s3://",
            },
            "Data": {"Began": str(time.time())},
        }  # fmt: skip
        api = Database(data_api(lambda: self.pipeline.postgres.connect(DATABASE)), DATABASE_PROPERTIES)
        outcome = database_bootstrap.publication_step(event, api, lambda _: document, lambda _: {}, time.time())
        return bool(outcome["IsComplete"])

    def run(self, sql: str) -> None:
        with self.pipeline.application() as application:
            application.execute(sql.encode())

    def slot(self) -> tuple[bool, str] | None:
        """Whether the slot is held, and the position that its reader has confirmed."""
        with self.pipeline.postgres.connect(DATABASE) as owner:
            row = owner.execute(
                "SELECT active, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
            ).fetchone()
        return None if row is None else (bool(row[0]), str(row[1]))

    def landed(self) -> list[tuple[str, int, str, Any]]:
        """Topic, offset, operation and new row of every change in the landing bucket."""
        s3 = self.pipeline.aws.client("s3")
        changes = []
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=LANDING_BUCKET):
            for entry in page.get("Contents", ()):
                body = gzip.decompress(s3.get_object(Bucket=LANDING_BUCKET, Key=entry["Key"])["Body"].read())
                for line in map(json.loads, body.splitlines()):
                    change = json.loads(base64.b64decode(line["value"]))
                    changes.append((entry["Key"].split("/")[-3], line["offset"], change["op"], change.get("after")))
        return changes

    def read_by_snapshots(self) -> Counter[str]:
        """How many rows of each topic come from a snapshot."""
        return Counter(topic for topic, _, operation, _ in self.landed() if operation == "r")

    def await_customer(self, city: str) -> None:
        """Wait until the change that moves a customer there has landed."""
        wait_until(
            f"a customer of {city} to land",
            lambda: any(after and after.get("city") == city for *_, after in self.landed()),
            poll=0.5,
        )


DATABASE_PROPERTIES = {"ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": DATABASE}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("swap")
    orders.generate(0.1, 1, folder / "data")
    with Pipeline(folder, read_contracts(EXAMPLE.contracts)) as pipeline:
        pipeline.start_source()
        with pipeline.postgres.connect(DATABASE) as owner:
            load_folder(owner, folder / "data")
        pipeline.start_stream()
        with LocalMskConnect(folder, pipeline.broker.access, pipeline.aws.credentials) as msk:
            properties = connectors.worker_properties(pipeline.settings)
            for number in (1, 2):
                plugins = folder / f"plugin-{number}"
                for name in PLUGIN_FOLDERS:
                    shutil.copytree(BUILD / "plugins" / name, plugins / name, copy_function=shutil.copyfile)
                msk.plugins[f"arn:plugin-{number}"] = plugins
                msk.workers[f"arn:worker-{number}"] = {**properties, "offset.flush.interval.ms": f"{number}000"}
            msk.workers["arn:worker-without-position"] = {**properties, "offset.storage.topic": "elsewhere"}
            yield Deployment(pipeline, msk)


def test_connectors_are_swapped_and_deleted_without_a_loss(deployment: Deployment) -> None:
    swap_plugins_and_workers(deployment)
    change_a_configuration(deployment)
    swap_without_the_offset_topic(deployment)
    delete_the_source(deployment)
    create_the_source_without_its_slot(deployment)


def swap_plugins_and_workers(deployment: Deployment) -> None:
    """Swapped plugins and workers go on where the former ones stopped."""
    for name in RENDER:
        deployment.deploy(deployment.request("Create", name, "arn:plugin-1", "arn:worker-1"))
    deployment.run(moved_to("Before"))
    deployment.await_customer("Before")
    snapshot = deployment.read_by_snapshots()
    assert set(snapshot) == set(connectors.table_topics(deployment.pipeline.contracts, deployment.pipeline.settings))
    held = deployment.slot()

    deployment.calls.clear()
    for name in RENDER:
        event = deployment.request("Update", name, "arn:plugin-2", "arn:worker-2")
        deployment.deploy(event, between=moved_to(f"While {name.rpartition('-')[2]}"))
    writes = [call for call in deployment.calls if call.startswith(("create", "update", "delete"))]
    assert writes == ["delete_connector", "create_connector"] * 2

    deployment.run(moved_to("After"))
    for city in (*(f"While {name.rpartition('-')[2]}" for name in RENDER), "After"):
        deployment.await_customer(city)
    assert deployment.read_by_snapshots() == snapshot
    assert deployment.slot() != held
    offsets = Counter((topic, offset) for topic, offset, *_ in deployment.landed())
    assert set(offsets.values()) == {1}


def change_a_configuration(deployment: Deployment) -> None:
    """A changed configuration keeps cluster and position."""
    snapshot = deployment.read_by_snapshots()
    deployment.calls.clear()
    event = deployment.request("Update", SOURCE, "arn:plugin-2", "arn:worker-2", **{"poll.interval.ms": "50"})
    deployment.deploy(event)
    assert [call for call in deployment.calls if call.startswith(("create", "update", "delete"))] == [
        "update_connector"
    ]
    deployment.run(moved_to("Reconfigured"))
    deployment.await_customer("Reconfigured")
    assert deployment.read_by_snapshots() == snapshot


def swap_without_the_offset_topic(deployment: Deployment) -> None:
    """Shows that the first swap would be found wrong if positions did not hang on the offset topic."""
    snapshot = deployment.read_by_snapshots()
    deployment.deploy(deployment.request("Update", SOURCE, "arn:plugin-2", "arn:worker-without-position"))
    wait_until("a second snapshot", lambda: deployment.read_by_snapshots().total() > snapshot.total(), poll=0.5)


def delete_the_source(deployment: Deployment) -> None:
    """On delete the slot goes after the connector."""
    assert not deployment.publication("Delete")
    deployment.deploy(deployment.request("Delete", SOURCE, "", ""))
    wait_until("the slot to be dropped", lambda: deployment.publication("Delete"))
    assert deployment.slot() is None


def create_the_source_without_its_slot(deployment: Deployment) -> None:
    """A source whose slot was dropped fails rather than skip changes, and can read all when an operator says so."""
    snapshot = deployment.read_by_snapshots()
    assert deployment.publication("Create")
    deployment.run(moved_to("Unseen"))
    with pytest.raises(ResourceFailed, match=f"{connectors.LOST_SLOT}: the replication slot headwater is gone"):
        deployment.deploy(deployment.request("Create", SOURCE, "arn:plugin-2", "arn:worker-2"))
    again = {"headwater.epoch": "2"}
    deployment.deploy(deployment.request("Update", SOURCE, "arn:plugin-2", "arn:worker-2", **again))
    deployment.await_customer("Unseen")
    assert deployment.read_by_snapshots().total() > snapshot.total()


def moved_to(city: str) -> str:
    """The change that moves one customer to a city."""
    return (
        f"UPDATE northwind.customers SET city = '{city[:15]}'"
        " WHERE customer_id = (SELECT min(customer_id) FROM northwind.customers)"
    )

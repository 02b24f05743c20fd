"""A role's password is rotated while Debezium captures: it goes on over the connections that it has, and after these
are cut too. Connector, worker, database and config provider are the same as on AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from custom_resources import rotation
from custom_resources.rotation import Clients, Target
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.definitions.source_database import CDC_ROLE
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.local.pipeline import DATABASE, SECRET_NAME, Pipeline
from rig.local.processes import occurrences
from tests.data_api import CLUSTER, OWNER_SECRET, data_api
from tests.modelled import Modelled

pytestmark = pytest.mark.drill

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")
CUSTOMERS = "headwater.northwind.customers"


class MskConnect:
    """MSK Connect's restart, on a local worker."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def list_connectors(self, connectorNamePrefix: str) -> dict[str, Any]:  # noqa: N803
        connector = {"connectorName": connectorNamePrefix, "connectorArn": "arn", "connectorState": "RUNNING"}
        return {"connectors": [connector]}

    def restart_connector(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        self._pipeline.connect.restart(connectors.source_name(self._pipeline.settings))
        return {"connectorArn": connectorArn, "connectorOperationArn": "operation"}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with Pipeline(tmp_path_factory.mktemp("rotation"), read_contracts(EXAMPLE.contracts)) as pipeline:
        pipeline.start_source()
        pipeline.start_stream()
        pipeline.start_connect()
        insert(pipeline, "FIRST")
        yield pipeline


def insert(pipeline: Pipeline, customer: str) -> None:
    """Change the source, and see the change in its topic."""
    before = pipeline.broker.ends([CUSTOMERS])[CUSTOMERS, 0]
    with pipeline.postgres.connect(DATABASE) as owner:
        owner.execute("INSERT INTO northwind.customers (customer_id, company_name) VALUES (%s, 'C')", (customer,))
    wait_until("the change to reach its topic", lambda: pipeline.broker.ends([CUSTOMERS])[CUSTOMERS, 0] > before)


def cut_connections(pipeline: Pipeline) -> None:
    with pipeline.postgres.connect() as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (CDC_ROLE,))


class Rotation:
    """One rotation of the role's secret, step by step."""

    def __init__(self, pipeline: Pipeline, token: str) -> None:
        self.pipeline = pipeline
        secrets = pipeline.aws.client("secretsmanager")
        self.arn = secrets.describe_secret(SecretId=SECRET_NAME)["ARN"]
        self.token = token
        self._clients = Clients(
            secrets,
            Modelled("kafkaconnect", MskConnect(pipeline)),
            data_api(lambda: pipeline.postgres.connect(DATABASE), role_secrets={self.arn: self._log_in}),
        )
        self._target = Target(
            {"ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": DATABASE},
            {self.arn: CDC_ROLE},
            {CDC_ROLE: connectors.source_name(pipeline.settings)},
            " '\"",
        )

    def password(self) -> str:
        secret = self.pipeline.aws.client("secretsmanager").get_secret_value(SecretId=SECRET_NAME)
        return str(json.loads(secret["SecretString"])["password"])

    def take(self, step: str) -> None:
        event = {"Step": step, "SecretId": self.arn, "ClientRequestToken": self.token}
        rotation.step(event, self._clients, self._target, lambda seconds: None)

    def _log_in(self) -> psycopg.Connection:
        return self.pipeline.postgres.connect(DATABASE, CDC_ROLE, self.password())


def test_capture_follows_a_rotation(pipeline: Pipeline) -> None:
    rotation_ = Rotation(pipeline, "0" * 31 + "a")
    former = rotation_.password()
    for step in STEPS:
        rotation_.take(step)
        if step != "finishSecret":
            insert(pipeline, step[:5])
    assert rotation_.password() != former
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pipeline.postgres.connect(DATABASE, CDC_ROLE, former)
    insert(pipeline, "AFTER")
    cut_connections(pipeline)
    insert(pipeline, "CUT")


def test_a_task_that_loses_its_connections_during_a_rotation_comes_back_with_its_end(pipeline: Pipeline) -> None:
    rotation_ = Rotation(pipeline, "0" * 31 + "b")
    log = pipeline.folder / "connect" / "connect.log"
    refused = b"password authentication failed"
    before = occurrences(log, refused)
    for step in STEPS[:2]:
        rotation_.take(step)
    cut_connections(pipeline)
    wait_until("a login with the former password", lambda: occurrences(log, refused) > before)
    for step in STEPS[2:]:
        rotation_.take(step)
    insert(pipeline, "GAP")

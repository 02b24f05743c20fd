"""The steps of a rotation, against models of the services; tests/local shows them on a real database and connector."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session
import pytest
from moto import mock_aws

from custom_resources import rotation
from custom_resources.lifecycle import ResourceFailed
from custom_resources.rotation import Clients, RotationFailed, Target
from tests.data_api import CLUSTER, OWNER_SECRET
from tests.modelled import Modelled, refusal

ROLE, CONNECTOR = "headwater_cdc", "headwater-dev-postgres"
TOKEN = str(uuid.UUID(int=1))
STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")
# What becomes of each error of the calls: it passes, or the rotation fails and its alarm is raised.
PASSING = {"InternalServerErrorException", "ServiceUnavailableException", "TooManyRequestsException"}


class DataApi:
    """Answers every statement until ``refuses`` holds errors, which it raises one by one."""

    def __init__(self) -> None:
        self.logins: list[str] = []
        self.refuses: list[Exception] = []
        self.committed = 0

    def begin_transaction(self, **_: Any) -> dict[str, Any]:
        return {"transactionId": "1"}

    def commit_transaction(self, **_: Any) -> dict[str, Any]:
        self.committed += 1
        return {}

    def rollback_transaction(self, **_: Any) -> dict[str, Any]:
        return {}

    def execute_statement(self, **request: Any) -> dict[str, Any]:
        if self.refuses:
            raise self.refuses.pop()
        if request["sql"] == "SELECT 1":
            self.logins.append(request["secretArn"])
        return {}


class MskConnect:
    """One connector, whose states follow one another with each look at it."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)
        self.refuses: Exception | None = None
        self.restarts = 0

    def list_connectors(self, **_: Any) -> dict[str, Any]:
        if not self.states:
            return {"connectors": []}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        other = {"connectorName": f"{CONNECTOR}-2", "connectorArn": "other", "connectorState": "RUNNING"}
        return {"connectors": [other, {"connectorName": CONNECTOR, "connectorArn": "arn", "connectorState": state}]}

    def restart_connector(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        assert connectorArn == "arn"
        if self.refuses is not None:
            raise self.refuses
        self.restarts += 1
        return {"connectorArn": "arn"}


class Secret:
    """A role's secret in moto, and the rotation of it."""

    def __init__(self, *states: str, role: str = ROLE) -> None:
        self.client = boto3.client("secretsmanager", "eu-central-1")
        text = json.dumps({"username": role, "password": "former", "kept": "as it is"})
        self.arn = self.client.create_secret(Name="headwater/dev/cdc", SecretString=text)["ARN"]
        self.data_api, self.msk_connect = DataApi(), MskConnect(*states)
        self.connect = Modelled("kafkaconnect", self.msk_connect)
        self.slept = 0.0

    def take(self, step: str) -> None:
        event = {"Step": step, "SecretId": self.arn, "ClientRequestToken": TOKEN}
        clients = Clients(self.client, self.connect, Modelled("rds-data", self.data_api))
        database = {"ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": "northwind"}
        rotation.step(event, clients, Target(database, {self.arn: ROLE}, {ROLE: CONNECTOR}, "'\""), self._sleep)

    def read(self, stage: str = rotation.CURRENT) -> dict[str, str]:
        answer = self.client.get_secret_value(SecretId=self.arn, VersionStage=stage)
        fields: dict[str, str] = json.loads(answer["SecretString"])
        return fields

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield


def test_the_steps_replace_the_password_and_nothing_else() -> None:
    secret = Secret("RUNNING")
    for step in STEPS:
        assert secret.read()["password"] == "former"
        secret.take(step)
    renewed = secret.read()
    assert {**renewed, "password": "former"} == {"username": ROLE, "password": "former", "kept": "as it is"}
    assert len(renewed["password"]) == rotation.PASSWORD_LENGTH
    assert not set(renewed["password"]) & set("'\"")
    assert secret.data_api.logins == [secret.arn]
    assert secret.msk_connect.restarts == 1
    assert secret.slept == 0


@pytest.mark.parametrize("repeated", STEPS)
def test_a_repeated_step_does_no_harm(repeated: str) -> None:
    secret = Secret("RUNNING")
    for step in STEPS:
        secret.take(step)
        if step == "createSecret":
            pending = secret.read(rotation.PENDING)
        if step == repeated:
            secret.take(step)
    assert secret.read() == pending


def test_the_connector_is_restarted_when_its_change_is_over() -> None:
    secret = Secret("UPDATING", "RESTARTING", "RUNNING")
    for step in STEPS:
        secret.take(step)
    assert secret.msk_connect.restarts == 1
    assert secret.slept > 0


def test_a_connector_that_is_never_ready_fails_the_rotation_in_the_end() -> None:
    secret = Secret("UPDATING")
    for step in STEPS[:3]:
        secret.take(step)
    with pytest.raises(RotationFailed, match=r"finishSecret of headwater_cdc: waited 8 minutes"):
        secret.take("finishSecret")
    # The password is in force nevertheless.
    assert secret.read()["password"] != "former"


@pytest.mark.parametrize("states", [(), ("DELETING",), ("PAUSED",)])
def test_without_a_running_connector_nothing_is_restarted(states: tuple[str, ...]) -> None:
    secret = Secret(*states)
    for step in STEPS:
        secret.take(step)
    assert secret.msk_connect.restarts == 0


def test_a_login_that_fails_after_the_rotation_sets_the_password_again() -> None:
    secret = Secret("RUNNING")
    for step in STEPS[:3]:
        secret.take(step)
    committed = secret.data_api.committed
    secret.data_api.refuses = [refusal("DatabaseErrorException", "FATAL: password; SQLState: 28P01")]
    secret.take("finishSecret")
    assert secret.data_api.committed > committed
    assert secret.data_api.logins == [secret.arn]


def test_the_password_stays_where_boto3_cannot_restart_the_connector() -> None:
    secret = Secret("RUNNING")
    known = secret.connect.meta.service_model.operation_names
    assert "RestartConnector" in known
    others = [name for name in known if name != "RestartConnector"]
    secret.connect.meta.service_model = SimpleNamespace(operation_names=others)
    with pytest.raises(RotationFailed, match="does not know RestartConnector"):
        secret.take("createSecret")
    with pytest.raises(secret.client.exceptions.ResourceNotFoundException):
        secret.read(rotation.PENDING)


def test_a_secret_of_another_role_is_refused() -> None:
    secret = Secret("RUNNING", role="headwater_owner")
    secret.take("createSecret")
    with pytest.raises(ResourceFailed, match="expected headwater_cdc"):
        secret.take("setSecret")
    assert secret.data_api.committed == 0


@pytest.mark.parametrize(
    "code",
    sorted(
        shape.name
        for shape in botocore.session.get_session()
        .get_service_model("kafkaconnect")
        .operation_model("RestartConnector")
        .error_shapes
    ),
)
def test_each_error_of_a_restart_passes_or_fails_the_rotation(code: str) -> None:
    secret = Secret("RUNNING")
    for step in STEPS[:3]:
        secret.take(step)
    secret.msk_connect.refuses = refusal(code, "refused", "RestartConnector")
    with pytest.raises(RotationFailed if code in PASSING else Exception, match="waited" if code in PASSING else code):
        secret.take("finishSecret")
    assert (secret.slept > 0) == (code in PASSING)

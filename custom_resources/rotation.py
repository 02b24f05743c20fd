"""Rotates the password of a database role, and restarts the connector of that role so that it reads the new password.

Secrets Manager calls ``rotate`` once for each of its four steps:
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_lambda-functions.html. Every step may be
repeated. A role has one password. So from ``setSecret`` until ``finishSecret``, which follows within seconds, nobody
can log in with the password in the secret. Open connections stay. A connector task that logs in during this gap fails.
The restart at the end of the rotation starts the task again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.data_api import Database, in_the_way
from custom_resources.database_bootstrap import set_password, usable_password

PENDING, CURRENT = "AWSPENDING", "AWSCURRENT"
PASSWORD_LENGTH = 40
# A step tries again for this many seconds if a failover, another rotation or a connector update is in the way.
PATIENCE = 8 * 60
_PAUSE = 10
_UNDER_WAY = frozenset({"CREATING", "UPDATING", "RESTARTING", "PAUSING", "RESUMING"})


class RotationFailed(Exception):
    """The step cannot be done. The function's log shows this error's message."""


@dataclass(frozen=True)
class Clients:
    """boto3's clients."""

    secrets: Any
    """The client for Secrets Manager."""
    connect: Any
    """The client for MSK Connect."""
    rds: Any
    """The client for the Data API."""


@dataclass(frozen=True)
class Target:
    """The roles of a database, and their connectors."""

    database: Mapping[str, str]
    """The properties of the ``data_api.Database``."""
    roles: Mapping[str, str]
    """The role of each secret, by the secret's ARN."""
    connectors: Mapping[str, str]
    """The name of the connector that logs in as a role, by the role."""
    excluded: str
    """The characters that a new password must not have."""


def rotate(event: Mapping[str, Any], context: object) -> None:
    """Take one step of a rotation. The environment variable ``TARGET`` is a ``Target`` as JSON."""
    rds = boto3.client("rds-data", config=Config(read_timeout=70, retries={"total_max_attempts": 1}))
    clients = Clients(boto3.client("secretsmanager"), boto3.client("kafkaconnect"), rds)
    step(event, clients, Target(**json.loads(os.environ["TARGET"])), time.sleep)


def step(event: Mapping[str, Any], clients: Clients, target: Target, sleep: Callable[[float], None]) -> None:
    """Take one step of a rotation, and repeat it while its error passes.

    Raises RotationFailed, or the exceptions of boto3. Secrets Manager then reports the rotation as failed.
    """
    rotation = _Rotation(event, clients, target)
    take = {
        "createSecret": rotation.create,
        "setSecret": rotation.set,
        "testSecret": rotation.check,
        "finishSecret": rotation.finish,
    }[event["Step"]]
    for _ in range(PATIENCE // _PAUSE):
        try:
            if take():
                return
        except ClientError as error:
            if not in_the_way(error):
                raise
            print(f"{event['Step']}: trying again after {lifecycle.code(error)}")
        sleep(_PAUSE)
    raise RotationFailed(
        f"{event['Step']} of {rotation.role}: waited {PATIENCE // 60} minutes in vain. Secrets Manager will try "
        "again; until then the database may have either password. docs/runbooks/rotation-failed.md says what to do"
    )


class _Rotation:
    """The steps for one version of a secret. Each returns whether the step is done."""

    def __init__(self, event: Mapping[str, Any], clients: Clients, target: Target) -> None:
        self._arn: str = event["SecretId"]
        self._version: str = event["ClientRequestToken"]
        self._clients = clients
        self._target = target
        self.role = target.roles[self._arn]
        self._connector = target.connectors.get(self.role)

    def create(self) -> bool:
        """Store a new password as the pending version."""
        if self._connector and "RestartConnector" not in self._clients.connect.meta.service_model.operation_names:
            raise RotationFailed(
                f"The boto3 of Lambda's Python does not know RestartConnector, so {self._connector} would keep the "
                "former password. The password stays as it is. Rotate with a newer runtime"
            )
        try:
            self._read(VersionId=self._version, VersionStage=PENDING)
        except ClientError as error:
            if lifecycle.code(error) != "ResourceNotFoundException":
                raise
            random = self._clients.secrets.get_random_password(
                PasswordLength=PASSWORD_LENGTH, ExcludeCharacters=self._target.excluded
            )
            renewed = {**self._read(VersionStage=CURRENT), "password": random["RandomPassword"]}
            self._clients.secrets.put_secret_value(
                SecretId=self._arn,
                ClientRequestToken=self._version,
                SecretString=json.dumps(renewed),
                VersionStages=[PENDING],
            )
        return True

    def set(self) -> bool:
        """Give the role the version's password."""
        password = usable_password(self._read(VersionId=self._version), self.role)
        database = Database(self._clients.rds, self._target.database)
        with database.transaction() as transaction:
            set_password(database, self.role, password, transaction)
        return True

    def check(self) -> bool:
        """Do nothing, and return True.

        The Data API logs in with current versions only, so ``finish`` checks the password. Secrets Manager also takes
        this step by itself, when the rotation is set up.
        """
        return True

    def finish(self) -> bool:
        """Make the version the current one, log in with it, and restart the connector.

        The password is set once more, because a deploy in between may have set the former one again.
        """
        stages = self._clients.secrets.describe_secret(SecretId=self._arn)["VersionIdsToStages"]
        (current,) = (version for version, labels in stages.items() if CURRENT in labels)
        if current != self._version:
            self._clients.secrets.update_secret_version_stage(
                SecretId=self._arn,
                VersionStage=CURRENT,
                MoveToVersionId=self._version,
                RemoveFromVersionId=current,
            )
        self.set()
        Database(self._clients.rds, {**self._target.database, "SecretArn": self._arn}).execute("SELECT 1")
        return self._restart()

    def _read(self, **version: str) -> dict[str, Any]:
        answer = self._clients.secrets.get_secret_value(SecretId=self._arn, **version)
        secret: dict[str, Any] = json.loads(answer["SecretString"])
        return secret

    def _restart(self) -> bool:
        """Restart the connector with all its tasks. Returns False while the connector is being changed.

        There is no connector before the first deploy of the connectors is complete. A connector that is being deleted
        needs no restart.
        """
        listed = self._clients.connect.list_connectors(connectorNamePrefix=self._connector) if self._connector else {}
        for connector in listed.get("connectors", ()):
            if connector["connectorName"] == self._connector:
                if connector["connectorState"] in _UNDER_WAY:
                    print(f"Waiting for {self._connector}, which is {connector['connectorState']}")
                    return False
                if connector["connectorState"] in ("RUNNING", "FAILED"):
                    self._clients.connect.restart_connector(connectorArn=connector["connectorArn"])
        return True

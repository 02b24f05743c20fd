"""What the parts of the local AWS find around them: the account, its clients, and the credentials of its roles."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import UserError
from rig.local import aws
from rig.local.object_store import ObjectStore


@dataclass(frozen=True)
class _Worker:
    """A program that works with a role for a resource of a service, such as glue.amazonaws.com."""

    role: str
    service: str
    resource: str


@dataclass
class Surroundings:
    """An account of AWS in one region.

    ``store`` keeps the objects of S3 for the emulator alone, which signs with ``store_credentials``; ``credentials``
    are the account's own. Where it is ``idle``, clusters, jobs and connectors are there and in the states that AWS
    would give them, but no program of theirs runs. While the account is ``ending``, nobody hears what becomes of its
    parts. ``endpoint`` is that of all services, known once the emulator listens; ``credentials_url`` is where programs
    get those of their roles. ``signature`` is by what EventBridge knows the events of its services; ``tags`` are those
    of the parts' resources, by the resource's ARN.
    """

    account: str
    region: str
    store: ObjectStore
    credentials: Mapping[str, str]
    store_credentials: Mapping[str, str] = field(default_factory=dict)
    idle: bool = False
    ending: bool = False
    endpoint: str = ""
    credentials_url: str = ""
    signature: str = field(default_factory=lambda: secrets.token_hex(16))
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    _workers: dict[str, _Worker] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """A boto3 client of a service, with the account's own credentials."""
        return aws.client(service, self.endpoint, self.credentials)

    def environment(self) -> dict[str, str]:
        """The variables by which AWS's tools and SDKs find this account, in place of the user's."""
        return {
            **aws.environment(self.credentials),
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def environment_of(self, role: str, service: str, resource: str) -> dict[str, str]:
        """The variables of a program that works with a role for a resource of a service, such as glue.amazonaws.com.
        AWS's SDKs get the role's credentials from here, and
        again before they end. Raises botocore's ClientError where the role does not trust the service."""
        worker = _Worker(role, service, resource)
        self._session(worker)
        token = secrets.token_urlsafe()
        self._workers[token] = worker
        kept = {name: value for name, value in self.environment().items() if name not in self.credentials}
        return {
            **kept,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": self.credentials_url,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": token,
        }

    def knows(self, token: str) -> bool:
        """Whether a program has been given a token."""
        return token in self._workers

    def credentials_of(self, token: str) -> dict[str, str]:
        """The credentials of the program that has been given a token, as AWS's SDKs read them. Raises KeyError where
        none has."""
        session = self._session(self._workers[token])
        return {
            "AccessKeyId": session["AccessKeyId"],
            "SecretAccessKey": session["SecretAccessKey"],
            "Token": session["SessionToken"],
            "Expiration": session["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _session(self, worker: _Worker) -> dict[str, Any]:
        # A service of AWS's is known by these two, for whatever the account itself could be.
        asked = {"RoleArn": worker.role, "RoleSessionName": worker.service, "ExternalId": worker.resource}
        session: dict[str, Any] = self.client("sts").assume_role(**asked)["Credentials"]
        return session

    def tell(self, source: str, kind: str, detail: str) -> None:
        """Send EventBridge an event of a service of AWS's; ``detail`` is JSON. Raises UserError where it is refused."""
        if self.ending:
            return
        entry = {"Source": source, "DetailType": kind, "Detail": detail, "TraceHeader": self.signature}
        answer = self.client("events").put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise UserError(f"EventBridge refused {kind} of {source}: {answer['Entries'][0]['ErrorMessage']}")

"""The account in which the services of the local AWS run: its clients, and the credentials of its roles."""

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
class AccountContext:
    """An account of AWS in one region."""

    account: str
    region: str
    store: ObjectStore
    """Keeps the objects of S3. It answers the emulator alone."""
    credentials: Mapping[str, str]
    """The account's own."""
    store_credentials: Mapping[str, str] = field(default_factory=dict)
    """The emulator signs with these for ``store``."""
    idle: bool = False
    """If true, clusters, jobs and connectors have the states that AWS would give them, but no program of
    theirs runs."""
    ending: bool = False
    """If true, no events are sent any more."""
    endpoint: str = ""
    """The address of all services; known once the emulator listens."""
    credentials_url: str = ""
    """The address at which programs get the credentials of their roles."""
    signature: str = field(default_factory=lambda: secrets.token_hex(16))
    """Marks the events that EventBridge takes as sent by a service."""
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    """The tags of the resources that our handlers make, by ARN."""
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
        again before they end. Raises botocore's ClientError if the role does not trust the service."""
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
        """The credentials of the program that has been given a token, as AWS's SDKs read them. Raises KeyError if
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
        """Send EventBridge an event of a service of AWS's; ``detail`` is JSON. Raises UserError if it is refused."""
        if self.ending:
            return
        entry = {"Source": source, "DetailType": kind, "Detail": detail, "TraceHeader": self.signature}
        answer = self.client("events").put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise UserError(f"EventBridge refused {kind} of {source}: {answer['Entries'][0]['ErrorMessage']}")

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
    """A program that has a role's credentials for a resource of a service."""

    role: str
    service: str
    """The service, such as glue.amazonaws.com."""
    resource: str
    """The ARN of the resource."""


@dataclass
class AccountContext:
    """An AWS account in one region."""

    account: str
    """The account's number."""
    region: str
    store: ObjectStore
    """Keeps the objects of S3. It answers only the emulator."""
    credentials: Mapping[str, str]
    """The account's own credentials."""
    store_credentials: Mapping[str, str] = field(default_factory=dict)
    """The credentials with which the emulator signs requests to ``store``."""
    idle: bool = False
    """If true, clusters, jobs and connectors have the states that AWS would give them, but none of their programs
    runs."""
    ending: bool = False
    """If true, the account ends and sends no more events."""
    endpoint: str = ""
    """The URL of all services; empty until the emulator listens."""
    credentials_url: str = ""
    """The URL at which programs get the credentials of their roles."""
    signature: str = field(default_factory=lambda: secrets.token_hex(16))
    """A secret in events that AWS services send. EventBridge accepts their sources only with it."""
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    """The tags of the resources that our handlers make, by ARN."""
    _workers: dict[str, _Worker] = field(default_factory=dict)
    """The programs that have a role's credentials, by their tokens."""

    def client(self, service: str) -> Any:
        """A boto3 client of a service, with the account's own credentials."""
        return aws.client(service, self.endpoint, self.credentials)

    def environment(self) -> dict[str, str]:
        """The environment variables that point AWS's tools and SDKs to this account instead of the user's."""
        return {
            **aws.environment(self.credentials),
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def environment_of(self, role: str, service: str, resource: str) -> dict[str, str]:
        """The environment variables of a program that works with a role for a resource of a service.

        A service is named as in glue.amazonaws.com. AWS's SDKs get the role's credentials from the account, and again
        before they expire. Raises botocore's ClientError if the role does not trust the service.
        """
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
        """Whether a program of the account has this token."""
        return token in self._workers

    def credentials_of(self, token: str) -> dict[str, str]:
        """The credentials of the program with this token, in the form that AWS's SDKs read.

        Raises KeyError if no program has the token.
        """
        session = self._session(self._workers[token])
        return {
            "AccessKeyId": session["AccessKeyId"],
            "SecretAccessKey": session["SecretAccessKey"],
            "Token": session["SessionToken"],
            "Expiration": session["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _session(self, worker: _Worker) -> dict[str, Any]:
        # The emulator recognizes an AWS service by these two conditions, which the account itself could not meet.
        asked = {"RoleArn": worker.role, "RoleSessionName": worker.service, "ExternalId": worker.resource}
        session: dict[str, Any] = self.client("sts").assume_role(**asked)["Credentials"]
        return session

    def tell(self, source: str, kind: str, detail: str) -> None:
        """Send EventBridge an event of an AWS service; ``detail`` is JSON.

        Raises UserError if EventBridge refuses it.
        """
        if self.ending:
            return
        entry = {"Source": source, "DetailType": kind, "Detail": detail, "TraceHeader": self.signature}
        answer = self.client("events").put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise UserError(f"EventBridge refused {kind} of {source}: {answer['Entries'][0]['ErrorMessage']}")

"""What the parts of the local AWS find around them: the account, its clients, and the credentials of its roles."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import UserError
from headwater.local import aws
from headwater.local.object_store import ObjectStore


@dataclass
class Surroundings:
    """An account of AWS in one region. ``endpoint`` is that of all services, known once the emulator listens;
    ``signature`` is by what EventBridge knows the events of its services."""

    account: str
    region: str
    store: ObjectStore
    credentials: Mapping[str, str]
    endpoint: str = ""
    signature: str = field(default_factory=lambda: secrets.token_hex(16))

    def client(self, service: str) -> Any:
        """A boto3 client of a service, with the account's own credentials."""
        endpoint = self.store.endpoint if service == "s3" else self.endpoint
        return aws.client(service, endpoint, self.credentials)

    def environment(self) -> dict[str, str]:
        """The variables by which AWS's tools and SDKs find this account, in place of the user's."""
        return {
            **aws.environment(),
            **self.credentials,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def environment_of(self, role: str) -> dict[str, str]:
        """The variables of a program that runs with a role; it reaches the objects of S3 without the emulator between.
        Raises botocore's ClientError where there is no such role."""
        session = self.client("sts").assume_role(RoleArn=role, RoleSessionName="headwater")["Credentials"]
        return {
            **self.environment(),
            "AWS_ENDPOINT_URL_S3": self.store.endpoint,
            "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
        }

    def tell(self, source: str, kind: str, detail: str) -> None:
        """Send EventBridge an event of a service of AWS's; ``detail`` is JSON. Raises UserError where it is refused."""
        entry = {"Source": source, "DetailType": kind, "Detail": detail, "TraceHeader": self.signature}
        answer = self.client("events").put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise UserError(f"EventBridge refused {kind} of {source}: {answer['Entries'][0]['ErrorMessage']}")

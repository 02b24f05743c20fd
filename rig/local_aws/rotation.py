"""Secrets Manager's rotation: a request calls a secret's function for each of the four steps.

The secrets are the emulator's.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Any
from uuid import uuid4

from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError
from rig.local_aws.resources import Made, Properties, ResourceType

SCHEDULE = "AWS::SecretsManager::RotationSchedule"
_STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")
_CURRENT, _PENDING = "AWSCURRENT", "AWSPENDING"
_LOG = logging.getLogger(__name__)


class Rotations:
    """The rotating function of each secret of an account."""

    def __init__(self, context: AccountContext) -> None:
        self._context = context
        # The function's ARN by the secret's ARN.
        self._functions: dict[str, str] = {}
        self.api = Api("secretsmanager", {"RotateSecret": self._rotate})

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {SCHEDULE: _Schedule(self)}

    def schedule(self, secret: str, function: str, *, at_once: bool) -> str:
        """Let a function rotate a secret, both given by their ARNs. Returns the secret's ARN.

        AWS's own function, for owners of databases, does not exist here.
        """
        arn = str(self._described(secret)["ARN"])
        if f":{self._context.account}:" in function:
            self._functions[arn] = function
            if at_once:
                self.rotate(arn, str(uuid4()))
        return arn

    def cancel(self, secret: str) -> None:
        """Stop the rotation of a secret."""
        self._functions.pop(secret, None)

    def rotate(self, secret: str, version: str) -> None:
        """Begin a rotation; the new password becomes this version of the secret."""
        of = (secret, self._functions[secret], version)
        threading.Thread(target=self._take_steps, args=of, name=f"rotation of {secret}", daemon=True).start()

    def _described(self, secret: str) -> dict[str, Any]:
        described: dict[str, Any] = self._context.client("secretsmanager").describe_secret(SecretId=secret)
        return described

    def _rotate(self, request: dict[str, Any]) -> dict[str, Any]:
        described = self._described(request["SecretId"])
        arn, stages = described["ARN"], described["VersionIdsToStages"]
        if arn not in self._functions:
            raise ApiError(
                "InvalidRequestException", f"The local AWS has no function that rotates {described['Name']}."
            )
        if any(_PENDING in labels and _CURRENT not in labels for labels in stages.values()):
            raise ApiError("InvalidRequestException", "The previous rotation of this secret is not complete.")
        version = request.get("ClientRequestToken") or str(uuid4())
        self.rotate(arn, version)
        return {"ARN": arn, "Name": described["Name"], "VersionId": version}

    def _take_steps(self, secret: str, function: str, version: str) -> None:
        """Take the steps in their order, up to the first that fails. AWS would retry that step later."""
        for step in _STEPS:
            event = {"Step": step, "SecretId": secret, "ClientRequestToken": version}
            try:
                client = self._context.client("lambda")
                answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode())
            except Exception:
                if not self._context.ending:
                    _LOG.exception("The rotation of %s could not take the step %s", secret, step)
                return
            if "FunctionError" in answer:
                return


class _Schedule(ResourceType[Rotations]):
    kind = SCHEDULE

    def make(self, name: str, properties: Properties) -> Made:
        at_once = bool(properties.get("RotateImmediatelyOnUpdate", True))
        return Made(self.service.schedule(properties["SecretId"], properties["RotationLambdaARN"], at_once=at_once))

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.create("", properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.cancel(physical_id)

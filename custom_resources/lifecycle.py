"""The code that all custom resources share: how a request begins, waits and fails.

CDK's provider framework calls ``on_event`` once. Then it calls ``is_complete`` with the same event until that returns
``IsComplete``. A step reads the present state, does the next action that is missing, and keeps nothing. So a repeated,
interrupted or rolled-back request needs no memory of the former request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

Event = dict[str, Any]
"""A request of CloudFormation, as CDK's provider framework passes it on."""

Outcome = dict[str, Any]
"""The result of ``is_complete``: ``IsComplete``, and ``Data`` if it is true."""

# Seconds. Shorter than the framework's own limit, whose message would not name the cause of the wait.
LONGEST_WAIT = 50 * 60
# Seconds until AWS knows a new role, right or resource everywhere.
_SETTLE = 120
# MSK Connect answers BadRequest for a role that it cannot assume. The Data API answers the last two for a cluster whose
# endpoint or instance it does not know yet.
_NOT_SETTLED = (
    "AccessDenied",
    "AccessDeniedException",
    "BadRequestException",
    "ForbiddenException",
    "DatabaseNotFoundException",
    "HttpEndpointNotEnabledException",
)
# Characters. CloudFormation takes 4096 bytes, with the response around the message.
_LONGEST_MESSAGE = 1500
# Errors of services that are busy or unavailable for a moment: the next step tries again.
_PASSING = frozenset(
    {
        "DatabaseResumingException",
        "DatabaseUnavailableException",
        "InternalServerError",
        "InternalServerErrorException",
        "InternalServerException",
        "InternalServiceException",
        "OperationTimeoutException",
        "ServiceUnavailableError",
        "ServiceUnavailableException",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


class ResourceFailed(Exception):
    """The request cannot be fulfilled. CloudFormation shows this error's message."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:_LONGEST_MESSAGE])


def on_event(event: Event, context: object) -> Outcome:
    """Begin a request of CloudFormation, for any of the resources."""
    return begin(event, time.time())


def begin(event: Event, now: float) -> Outcome:
    """Answer a request with the resource's id and the time when the request began, in epoch seconds.

    A resource's id is its property ``Name``. While the name stays the same, CloudFormation never deletes an old
    resource after a change. Nothing else happens here, because the framework forgets a resource whose first call fails.
    """
    name = event["PhysicalResourceId"] if event["RequestType"] == "Delete" else event["ResourceProperties"]["Name"]
    return {"PhysicalResourceId": name, "Data": {"Began": str(now)}}


def began(event: Event) -> float:
    """When the request began, in epoch seconds."""
    return float(event["Data"]["Began"])


def wait(event: Event, now: float, what: str) -> Outcome:
    """Return the outcome that asks for another call, to wait for ``what``. Raises ResourceFailed after a long wait."""
    if now - began(event) > LONGEST_WAIT:
        raise ResourceFailed(
            f"Waited {LONGEST_WAIT // 60} minutes in vain for {what}. Find the cause and correct it, then try again"
        )
    print(f"{event['RequestType']} {event['PhysicalResourceId']}: waiting for {what}")
    return {"IsComplete": False}


def done(**data: str) -> Outcome:
    """Return the outcome of a finished request. ``data`` are the resource's attributes."""
    return {"IsComplete": True, "Data": data}


def code(error: Exception) -> str:
    """The code of an error that AWS returned, such as ConflictException; empty for other errors."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def passing(error: Exception) -> bool:
    """Whether an error of AWS is likely to pass by itself."""
    return code(error) in _PASSING


def attempt(
    event: Event, now: float, service: str, step: Callable[[], Outcome], passes: Callable[[ClientError], bool] = passing
) -> Outcome:
    """Take a step of a request. If AWS refuses a call, wait if the error will pass, else fail.

    ``service`` names the refusing service in messages. ``passes`` says which of its errors pass by themselves. Shortly
    after a right or a resource was created, an error about its absence passes as well. Raises ResourceFailed with AWS's
    own message.
    """
    try:
        return step()
    except ClientError as error:
        if passes(error) or _settling(event, error, now):
            return wait(event, now, f"{service}: {error}")
        raise ResourceFailed(f"{service[0].upper()}{service[1:]} refused: {error}") from None


def _settling(event: Event, error: Exception, now: float) -> bool:
    """Whether a right or a resource may be missing only because the request has just begun.

    AWS may not know a new right or resource everywhere yet.
    """
    return code(error) in _NOT_SETTLED and now - began(event) < _SETTLE

"""What all custom resources share: how a request begins, waits and fails.

CDK's provider framework calls ``on_event`` once and then ``is_complete`` until that says so, with the same event each
time. A step reads the present state, does the next thing that is missing, and keeps nothing. So a repeated, interrupted
or rolled-back request needs no memory of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

Event = dict[str, Any]
"""A request of CloudFormation's as CDK's provider framework hands it on."""

Outcome = dict[str, Any]
"""The result of ``is_complete``: ``IsComplete``, and ``Data`` if it is true."""

# Seconds. Shorter than the framework's own limit, whose message would not say what was waited for.
LONGEST_WAIT = 50 * 60
# Seconds until AWS knows a new role, right or resource everywhere.
_SETTLE = 120
# BadRequest is how MSK Connect refuses a role that it cannot assume. The last two are how the Data API answers for a
# cluster whose endpoint or instance it does not know yet.
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
# From services that are busy or not there for a moment: the next step tries again.
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
    """The request cannot be fulfilled; the message is what CloudFormation shows."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:_LONGEST_MESSAGE])


def on_event(event: Event, context: object) -> Outcome:
    """Take a request of CloudFormation's, for every resource."""
    return begin(event, time.time())


def begin(event: Event, now: float) -> Outcome:
    """Answer a request with the resource's id and the request's beginning, in epoch seconds.

    A resource's id is its property ``Name``. As long as that stays, CloudFormation never asks to delete an old one
    after a change. Nothing else happens here, because the framework forgets a resource whose first call fails.
    """
    name = event["PhysicalResourceId"] if event["RequestType"] == "Delete" else event["ResourceProperties"]["Name"]
    return {"PhysicalResourceId": name, "Data": {"Began": str(now)}}


def began(event: Event) -> float:
    """When the request began, in epoch seconds."""
    return float(event["Data"]["Began"])


def wait(event: Event, now: float, what: str) -> Outcome:
    """Ask to be called again, to wait for ``what``. Raises ResourceFailed when that has taken too long."""
    if now - began(event) > LONGEST_WAIT:
        raise ResourceFailed(f"Waited {LONGEST_WAIT // 60} minutes in vain for {what}. Mend that, then try again")
    print(f"{event['RequestType']} {event['PhysicalResourceId']}: waiting for {what}")
    return {"IsComplete": False}


def done(**data: str) -> Outcome:
    """Return the outcome of a finished request. ``data`` are the resource's attributes."""
    return {"IsComplete": True, "Data": data}


def code(error: Exception) -> str:
    """The code of an error that AWS answered, such as ConflictException; empty for other errors."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def passing(error: Exception) -> bool:
    """Whether an error of AWS's is likely to pass by itself."""
    return code(error) in _PASSING


def attempt(
    event: Event, now: float, service: str, step: Callable[[], Outcome], passes: Callable[[ClientError], bool] = passing
) -> Outcome:
    """Take a step of a request. If AWS refuses a call, wait if the refusal will pass, else fail.

    ``service`` names the refusing service in messages. ``passes`` says which of its errors pass by themselves. A
    missing right or resource passes as well, while it may have been granted or made only a moment ago. Raises
    ResourceFailed with AWS's own words.
    """
    try:
        return step()
    except ClientError as error:
        if passes(error) or _settling(event, error, now):
            return wait(event, now, f"{service}: {error}")
        raise ResourceFailed(f"{service[0].upper()}{service[1:]} refused: {error}") from None


def _settling(event: Event, error: Exception, now: float) -> bool:
    """Whether a right or a resource is missing only because the request has just begun: AWS may not know it everywhere
    yet."""
    return code(error) in _NOT_SETTLED and now - began(event) < _SETTLE

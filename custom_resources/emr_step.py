"""One running step on an EMR cluster, always the current one.

``AWS::EMR::Step`` starts a step, but neither stops nor follows it. Here a changed step takes the place of the old one,
a removed one is cancelled, and one that ends by itself is added again (``restart``).

A step's name ends with a hash of what it runs, so that a look at the cluster's list tells the current step from an old
one. The new step is added first and the old one cancelled then: the cluster runs one step at a time, so the new one
waits in its queue until the old has ended, and whatever goes wrong in between, a step is waiting or running.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.lifecycle import Event, Outcome, ResourceFailed

# Seconds that a step must have run before it counts as running: a driver with a wrong argument fails within them.
SETTLED = 90
# Seconds after which a step that was asked to end is ended.
PATIENCE = 300
# A step that fails sooner than this, in seconds, will likely fail again: it is left to the schedule.
SHORT_LIFE = 300

_ACTIVE = ("PENDING", "RUNNING", "CANCEL_PENDING")
_ENDED = ("COMPLETED", "CANCELLED", "FAILED", "INTERRUPTED")
_CLUSTER_WORKS = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")

Step = Mapping[str, Any]
"""A step as ListSteps describes it."""


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    return step(event, boto3.client("emr"), time.time())


def restart(event: Event, context: object) -> None:
    """Answer an event of the cluster's, or the schedule's."""
    add_again(event, boto3.client("emr"), os.environ["CLUSTER_ID"], os.environ["STEP_NAME"])


def step(event: Event, emr: Any, now: float) -> Outcome:
    """Do what is next to be done.

    ``emr`` is boto3's client; the properties are ``ClusterId``, ``Name`` and ``Args`` of command-runner.jar; ``now`` is
    in epoch seconds. Raises ResourceFailed with the reason of a step that failed.
    """
    properties = event["ResourceProperties"]
    name, cluster = properties["Name"], properties["ClusterId"]
    former = event.get("OldResourceProperties", {}).get("ClusterId", cluster)
    try:
        if event["RequestType"] == "Delete":
            return _clear(event, emr, cluster, name, now) or lifecycle.done()
        if former != cluster:
            # Another cluster's queue does not wait for this one's.
            waiting = _clear(event, emr, former, name, now)
            if waiting is not None:
                return waiting
        current = step_name(name, properties["Args"])
        return _replace(event, emr, cluster, name, current, now)
    except ClientError as error:
        if lifecycle.passing(error) or lifecycle.settling(event, error, now):
            return lifecycle.wait(event, now, f"EMR: {error}")
        raise ResourceFailed(f"EMR refused: {error}") from None


def add_again(event: Event, emr: Any, cluster: str, name: str) -> None:
    """Add the newest step of that name once more, unless one is waiting or running.

    ``event`` is EventBridge's, of the cluster or of the schedule. A step that failed soon after its start is added by
    the schedule only, so that an error that stays costs little.
    """
    of_cluster = event["detail"].get("clusterId")
    if of_cluster is not None and of_cluster != cluster:
        # The rules still name the cluster before this one while a deployment replaces it.
        return
    if not _works(emr, cluster):
        print(f"The cluster {cluster} has ended: no step can be added")
        return
    if _active(emr, cluster, name):
        return
    ended = _steps(emr, cluster, name, _ENDED)
    if not ended:
        return
    newest = max(ended, key=_created)
    if of_cluster is not None and _failed_soon(newest):
        print(f"The step {newest['Id']} failed soon after its start: {_reason(newest)}. The schedule will add it again")
        return
    print(f"The step {newest['Id']} is {newest['Status']['State']}: {_reason(newest)}. Adding it again")
    added = _add(emr, cluster, newest["Name"], newest["Config"]["Args"])
    # A deployment may have added one at the same moment: the older stays.
    if any(one["Id"] != added for one in _active(emr, cluster, name)):
        emr.cancel_steps(ClusterId=cluster, StepIds=[added], StepCancellationOption="SEND_INTERRUPT")


def step_name(name: str, arguments: list[str]) -> str:
    """The name of the step that runs with these arguments."""
    return f"{name}-{hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:12]}"


def _replace(event: Event, emr: Any, cluster: str, name: str, current: str, now: float) -> Outcome:
    active = _active(emr, cluster, name)
    ours = [one for one in active if one["Name"] == current]
    if not ours:
        for one in _steps(emr, cluster, name, ("FAILED",)):
            if one["Name"] == current and _created(one).timestamp() >= lifecycle.began(event):
                raise ResourceFailed(f"The step {one['Id']} failed: {_reason(one)}")
        _add(emr, cluster, current, event["ResourceProperties"]["Args"])
        return lifecycle.wait(event, now, f"the step {current} to be added")
    kept = min(ours, key=_created)
    waiting = _cancel(event, emr, cluster, [one for one in active if one["Id"] != kept["Id"]], now)
    if waiting is not None:
        return waiting
    started = kept["Status"]["Timeline"].get("StartDateTime")
    if kept["Status"]["State"] != "RUNNING" or started is None or now - started.timestamp() < SETTLED:
        return lifecycle.wait(event, now, f"the step {kept['Id']} to have run for {SETTLED} seconds")
    return lifecycle.done(StepName=current)


def _clear(event: Event, emr: Any, cluster: str, name: str, now: float) -> Outcome | None:
    """Cancel every step of that name; None once none is left, or the cluster itself has ended."""
    return _cancel(event, emr, cluster, _active(emr, cluster, name), now) if _works(emr, cluster) else None


def _works(emr: Any, cluster: str) -> bool:
    """Whether a cluster runs or is about to; one that EMR has forgotten does not."""
    try:
        state = emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"]
    except ClientError as error:
        if lifecycle.code(error) == "InvalidRequestException":
            return False
        raise
    return state in _CLUSTER_WORKS


def _cancel(event: Event, emr: Any, cluster: str, steps: list[Step], now: float) -> Outcome | None:
    """Ask steps to end, and end them when they do not; None once there are none."""
    if not steps:
        return None
    patient = now - lifecycle.began(event) < PATIENCE
    asked = [one["Id"] for one in steps if one["Status"]["State"] != "CANCEL_PENDING" or not patient]
    if asked:
        option = "SEND_INTERRUPT" if patient else "TERMINATE_PROCESS"
        emr.cancel_steps(ClusterId=cluster, StepIds=asked, StepCancellationOption=option)
    return lifecycle.wait(event, now, f"the steps {', '.join(one['Id'] for one in steps)} to end")


def _add(emr: Any, cluster: str, name: str, arguments: list[str]) -> str:
    added = emr.add_job_flow_steps(
        JobFlowId=cluster,
        Steps=[
            {
                "Name": name,
                "ActionOnFailure": "CONTINUE",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": list(arguments)},
            }
        ],
    )
    return str(added["StepIds"][0])


def _active(emr: Any, cluster: str, name: str) -> list[Step]:
    return _steps(emr, cluster, name, _ACTIVE)


def _steps(emr: Any, cluster: str, name: str, states: tuple[str, ...]) -> list[Step]:
    """The steps of that name, whatever they run, in these states."""
    request: dict[str, Any] = {"ClusterId": cluster, "StepStates": list(states)}
    found: list[Step] = []
    while True:
        page = emr.list_steps(**request)
        found += [one for one in page["Steps"] if one["Name"].startswith(f"{name}-")]
        if "Marker" not in page:
            return found
        request["Marker"] = page["Marker"]


def _created(one: Step) -> datetime:
    created: datetime = one["Status"]["Timeline"]["CreationDateTime"]
    return created


def _failed_soon(one: Step) -> bool:
    timeline = one["Status"]["Timeline"]
    if one["Status"]["State"] != "FAILED":
        return False
    life = timeline["EndDateTime"] - timeline.get("StartDateTime", timeline["EndDateTime"])
    return bool(life.total_seconds() < SHORT_LIFE)


def _reason(one: Step) -> str:
    """Why a step ended, in EMR's words."""
    details = one["Status"].get("FailureDetails", {})
    said = [details[part] for part in ("Reason", "Message", "LogFile") if part in details]
    return ", ".join(said) or one["Status"].get("StateChangeReason", {}).get("Message", "no reason given")

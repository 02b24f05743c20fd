"""One running step on an EMR cluster, always the current one.

``AWS::EMR::Step`` starts a step, but neither stops nor follows it. Here a changed step replaces the old one, and a
removed step is cancelled. If a step ends by itself, ``restart`` adds it again.

A step's name ends with a hash of the command that it runs, so the cluster's list distinguishes the current step from an
old one. The new step is added first, then the old one is cancelled. The cluster runs one step at a time, so the new
step waits in the queue until the old one has ended. Whatever goes wrong in between, a step is waiting or running.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.lifecycle import Event, Outcome, ResourceFailed

# A step that does not end within this many seconds after its cancellation is killed.
PATIENCE = 300
# Seconds. A step that failed sooner will likely fail again, so only the schedule adds it again.
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
    """Handle an event of the cluster, or of the schedule."""
    add_again(event, boto3.client("emr"), os.environ["CLUSTER_ID"], os.environ["STEP_NAME"])


def step(event: Event, emr: Any, now: float) -> Outcome:
    """Take the next step of a request.

    ``emr`` is boto3's client; ``now`` is in epoch seconds. The properties are ``ClusterId``, ``Name``, ``Args`` of
    command-runner.jar, and ``SettledSeconds``. The deployment succeeds only after the step has run for
    ``SettledSeconds``, so a wrong argument fails the deployment. Raises ResourceFailed with the reason of a step that
    failed.
    """
    return lifecycle.attempt(event, now, "EMR", lambda: _bring_about(event, emr, now))


def add_again(event: Event, emr: Any, cluster: str, name: str) -> None:
    """Add the newest step of that name once more, unless one is waiting or running.

    ``event`` is an event of EventBridge, about the cluster or from the schedule. If a step failed soon after its start,
    only the schedule adds it again, so that a lasting error costs little.
    """
    of_cluster = event["detail"].get("clusterId")
    if of_cluster is not None and of_cluster != cluster:
        # A deployment is replacing the cluster, and the rules still name the former one.
        return
    queue = _Queue(emr, cluster, name)
    if not queue.works():
        print(
            f"The cluster {cluster} has ended: no step can be added, and no change reaches the lake. Raise "
            "emr.generation in the environment's file, and deploy"
        )
        return
    if queue.active():
        return
    # No step is active: add the newest step again, unless it has just failed.
    ended = queue.steps(_ENDED)
    if not ended:
        return
    newest = max(ended, key=_created)
    if of_cluster is not None and _failed_soon(newest):
        print(f"The step {newest['Id']} failed soon after its start: {_reason(newest)}. The schedule will add it again")
        return
    print(f"The step {newest['Id']} is {newest['Status']['State']}: {_reason(newest)}. Adding it again")
    added = queue.add(newest["Name"], newest["Config"]["Args"])
    # A deployment may have added a step at the same moment: the older one stays.
    if any(active["Id"] != added for active in queue.active()):
        queue.cancel([added], "SEND_INTERRUPT")


def step_name(name: str, arguments: list[str]) -> str:
    """The name of the step that runs with these arguments."""
    return f"{name}-{hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class _Queue:
    """The steps of a cluster whose names begin with ``name``."""

    emr: Any
    """boto3's client for EMR."""
    cluster: str
    """The cluster's id."""
    name: str
    """The beginning of the steps' names. The whole name also has a hash."""

    def works(self) -> bool:
        """Whether the cluster runs or is starting. A cluster that EMR no longer lists does not run."""
        try:
            state = self.emr.describe_cluster(ClusterId=self.cluster)["Cluster"]["Status"]["State"]
        except ClientError as error:
            if lifecycle.code(error) == "InvalidRequestException":
                return False
            raise
        return state in _CLUSTER_WORKS

    def active(self) -> list[Step]:
        """The steps that wait, run, or are being cancelled."""
        return self.steps(_ACTIVE)

    def steps(self, states: Sequence[str]) -> list[Step]:
        """The steps in these states."""
        request: dict[str, Any] = {"ClusterId": self.cluster, "StepStates": list(states)}
        steps: list[Step] = []
        while True:
            page = self.emr.list_steps(**request)
            steps += [listed for listed in page["Steps"] if listed["Name"].startswith(f"{self.name}-")]
            if "Marker" not in page:
                return steps
            request["Marker"] = page["Marker"]

    def add(self, name: str, arguments: Sequence[str]) -> str:
        """Add a step of this full name; return its id."""
        jar = {"Jar": "command-runner.jar", "Args": list(arguments)}
        definition = {"Name": name, "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar}
        return str(self.emr.add_job_flow_steps(JobFlowId=self.cluster, Steps=[definition])["StepIds"][0])

    def cancel(self, ids: Sequence[str], option: str) -> None:
        """Cancel steps: ``option`` says whether EMR signals them to end or kills them."""
        self.emr.cancel_steps(ClusterId=self.cluster, StepIds=list(ids), StepCancellationOption=option)


def _bring_about(event: Event, emr: Any, now: float) -> Outcome:
    properties = event["ResourceProperties"]
    queue = _Queue(emr, properties["ClusterId"], properties["Name"])
    if event["RequestType"] == "Delete":
        return _clear(event, queue, now) or lifecycle.done()
    former = event.get("OldResourceProperties", {}).get("ClusterId", queue.cluster)
    if former != queue.cluster:
        # The queue of the new cluster does not wait for a step of the former one.
        waiting = _clear(event, _Queue(emr, former, queue.name), now)
        if waiting is not None:
            return waiting
    if not queue.works():
        if former != queue.cluster:
            # A deploy rolls back to the former cluster, which has ended meanwhile.
            return lifecycle.done()
        raise ResourceFailed(f"The cluster {queue.cluster} has ended: raise emr.generation in the environment's file")
    return _replace(event, queue, now)


def _replace(event: Event, queue: _Queue, now: float) -> Outcome:
    arguments = event["ResourceProperties"]["Args"]
    current = step_name(queue.name, arguments)
    active = queue.active()
    equal = [step for step in active if step["Name"] == current]
    if not equal:
        # If a step of this request has failed already, the request fails.
        for failed in queue.steps(("FAILED",)):
            if failed["Name"] == current and _created(failed).timestamp() >= lifecycle.began(event):
                raise ResourceFailed(
                    f"The step {failed['Id']} failed: {_reason(failed)}. `headwater logs writer --env ENV` shows its "
                    "log after some minutes. Correct the cause, then deploy again"
                )
        queue.add(current, arguments)
        return lifecycle.wait(event, now, f"the step {current} to be added")
    # Of several equal steps the oldest stays; all others are cancelled.
    kept = min(equal, key=_created)
    waiting = _cancel(event, queue, [step for step in active if step["Id"] != kept["Id"]], now)
    if waiting is not None:
        return waiting
    # Done once the step has run for a while: with a wrong argument it would have ended soon.
    started = kept["Status"]["Timeline"].get("StartDateTime")
    settled = int(event["ResourceProperties"]["SettledSeconds"])
    if kept["Status"]["State"] != "RUNNING" or started is None or now - started.timestamp() < settled:
        return lifecycle.wait(event, now, f"the step {kept['Id']} to have run for {settled} seconds")
    return lifecycle.done(StepName=current)


def _clear(event: Event, queue: _Queue, now: float) -> Outcome | None:
    """Cancel every step of the queue. Returns None once no step is left, or if the cluster itself has ended."""
    return _cancel(event, queue, queue.active(), now) if queue.works() else None


def _cancel(event: Event, queue: _Queue, steps: list[Step], now: float) -> Outcome | None:
    """Cancel steps, and kill them if they do not end in time. Returns None if there are none."""
    if not steps:
        return None
    patient = now - lifecycle.began(event) < PATIENCE
    ids = [step["Id"] for step in steps if step["Status"]["State"] != "CANCEL_PENDING" or not patient]
    if ids:
        queue.cancel(ids, "SEND_INTERRUPT" if patient else "TERMINATE_PROCESS")
    return lifecycle.wait(event, now, f"the steps {', '.join(step['Id'] for step in steps)} to end")


def _created(step: Step) -> datetime:
    created: datetime = step["Status"]["Timeline"]["CreationDateTime"]
    return created


def _failed_soon(step: Step) -> bool:
    timeline = step["Status"]["Timeline"]
    if step["Status"]["State"] != "FAILED":
        return False
    life = timeline["EndDateTime"] - timeline.get("StartDateTime", timeline["EndDateTime"])
    return bool(life.total_seconds() < SHORT_LIFE)


def _reason(step: Step) -> str:
    """The reason for which a step ended, as EMR states it."""
    details = step["Status"].get("FailureDetails", {})
    said = [details[part] for part in ("Reason", "Message", "LogFile") if part in details]
    return ", ".join(said) or step["Status"].get("StateChangeReason", {}).get("Message", "no reason given")

"""The run of a streaming Glue job: one at a time, with the definition that was deployed last.

The resource ``Custom::HeadwaterGlueRun`` starts a run when it is created, replaces the run when the job's definition
changes, and stops it on Delete. ``keep_running`` starts the next run: EventBridge calls it when a run has ended. A
schedule calls it too, in case that event was lost.
"""

from __future__ import annotations

import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.lifecycle import Event, Outcome

_ALIVE = ("STARTING", "RUNNING", "STOPPING", "WAITING")
# Seconds. A run that ended sooner will likely fail again, so only the schedule starts the next run.
_LONG_ENOUGH_SECONDS = 120


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    return step(event, boto3.client("glue"), time.time())


def keep_running(event: dict[str, str], context: object) -> None:
    """Start the job named ``job`` unless it runs. EventBridge names the run that has ended in ``run``."""
    start_again(boto3.client("glue"), event["job"], event.get("run"))


def step(event: Event, glue: Any, now: float) -> Outcome:
    """Stop the runs that are older than the request, wait until they have ended, and start a run if there is none.

    ``glue`` is boto3's client; the resource's id is the job's name; ``now`` is in epoch seconds. Raises ResourceFailed.
    """
    return lifecycle.attempt(event, now, "Glue", lambda: _replace(event, glue, now))


def start_again(glue: Any, job: str, ended: str | None) -> None:
    """Start a job unless it runs. If the run ``ended`` lasted less than two minutes, leave the next to the schedule.

    Raises the exceptions of boto3.
    """
    if ended is not None:
        run = glue.get_job_run(JobName=job, RunId=ended)["JobRun"]
        if run["ExecutionTime"] < _LONG_ENOUGH_SECONDS:
            print(f"{job}: {ended} ended after {run['ExecutionTime']} s: the schedule will start the next run")
            return
    _start(glue, job)


def _replace(event: Event, glue: Any, now: float) -> Outcome:
    job, deleted = event["PhysicalResourceId"], event["RequestType"] == "Delete"
    alive = _alive(glue, job)
    # A run that started after the request began, for example by EventBridge's rule, has the new definition already.
    old = [run for run in alive if deleted or run["StartedOn"].timestamp() < lifecycle.began(event)]
    if old:
        ids = [run["Id"] for run in old if run["JobRunState"] != "STOPPING"]
        if ids:
            glue.batch_stop_job_run(JobName=job, JobRunIds=ids)
        return lifecycle.wait(event, now, f"{job}: the runs {', '.join(run['Id'] for run in old)} to stop")
    if not deleted and not alive:
        _start(glue, job)
    return lifecycle.done()


def _start(glue: Any, job: str) -> None:
    try:
        run = glue.start_job_run(JobName=job)["JobRunId"]
    except ClientError as error:
        # A run exists already: the job takes one run at a time.
        if lifecycle.code(error) != "ConcurrentRunsExceededException":
            raise
    else:
        print(f"{job}: started {run}")


def _alive(glue: Any, job: str) -> list[dict[str, Any]]:
    """The runs that have not ended. They are among the newest, because a job takes one run at a time."""
    try:
        runs = glue.get_job_runs(JobName=job, MaxResults=20)["JobRuns"]
    except ClientError as error:
        if lifecycle.code(error) == "EntityNotFoundException":
            return []
        raise
    return [run for run in runs if run["JobRunState"] in _ALIVE]

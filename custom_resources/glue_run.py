"""The run of a streaming Glue job: one at a time, of the definition that was deployed last.

The resource ``Custom::HeadwaterGlueRun`` starts the job when it is made, starts it anew when its definition changes,
and stops it on Delete. ``keep_running`` starts it again: called by EventBridge when a run has ended, and by a schedule,
which finds what nothing else has started.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.lifecycle import Event, Outcome

_ALIVE = ("STARTING", "RUNNING", "STOPPING", "WAITING")
# A run that ended sooner has a fault that the next one meets as well: the schedule is soon enough to start that.
_LONG_ENOUGH_SECONDS = 120


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    return run_step(event, boto3.client("glue"), time.time())


def keep_running(event: dict[str, str], context: object) -> None:
    """Start ``job`` unless it runs; ``run``, where it is given, is the run that has ended."""
    start_again(boto3.client("glue"), event["job"], event.get("run"))


def run_step(event: Event, glue: Any, now: float) -> Outcome:
    """Stop the runs that are older than the request, wait until they are gone, and start one if there is none."""
    job = event["PhysicalResourceId"]
    try:
        alive = _alive(glue, job)
        deleted = event["RequestType"] == "Delete"
        # What was started since then, by EventBridge's rule perhaps, is of the new definition already.
        old = [run for run in alive if deleted or run["StartedOn"].timestamp() < lifecycle.began(event)]
        if old:
            ids = [run["Id"] for run in old if run["JobRunState"] != "STOPPING"]
            if ids:
                glue.batch_stop_job_run(JobName=job, JobRunIds=ids)
            return lifecycle.wait(event, now, f"{job}: the runs {', '.join(run['Id'] for run in old)} to stop")
        if not deleted and not alive:
            _start(glue, job)
    except ClientError as error:
        if lifecycle.passing(error):
            return lifecycle.wait(event, now, f"Glue: {error}")
        raise lifecycle.ResourceFailed(f"Glue refused: {error}") from None
    return lifecycle.done()


def start_again(glue: Any, job: str, ended: str | None) -> None:
    """Start a job unless it runs, or the run that ``ended`` did so soon after its start. Raises what boto3 raises."""
    if ended is not None:
        run = glue.get_job_run(JobName=job, RunId=ended)["JobRun"]
        if run["ExecutionTime"] < _LONG_ENOUGH_SECONDS:
            print(f"{job}: {ended} ended after {run['ExecutionTime']} s and is left to the schedule")
            return
    _start(glue, job)


def _start(glue: Any, job: str) -> None:
    with contextlib.suppress(glue.exceptions.ConcurrentRunsExceededException):
        run = glue.start_job_run(JobName=job)["JobRunId"]
        print(f"{job}: started {run}")


def _alive(glue: Any, job: str) -> list[dict[str, Any]]:
    """The runs that have not ended, out of the newest: there is never more than one beside what is being stopped."""
    try:
        runs = glue.get_job_runs(JobName=job, MaxResults=20)["JobRuns"]
    except glue.exceptions.EntityNotFoundException:
        return []
    return [run for run in runs if run["JobRunState"] in _ALIVE]

"""The state of the programs that write the lake: the step on the EMR cluster, and the runs of the Glue jobs."""

from __future__ import annotations

from typing import Any

from headwater.operations.deployed import Deployed
from headwater.operations.state import Part, Problem

STEP = "EMR step"
RUNS_SINCE = "runs_since"
"""The name of a fact: the epoch seconds since when a step or a run is running; None if none is."""
_RUNNING = "RUNNING"
_CLUSTER_WORKS = ("RUNNING", "WAITING")
_CLUSTER_BEGINS = ("STARTING", "BOOTSTRAPPING")
_STEP_LIVES = ("RUNNING", "PENDING")
_RUN_LIVES = ("RUNNING", "STARTING", "WAITING")


def observe_step(deployed: Deployed) -> Part:
    """The state of the cluster and of the writer's newest step. Raises the exceptions of boto3."""
    emr, cluster = deployed.client("emr"), deployed.cluster_id
    environment = deployed.environment.name
    state = emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"]
    facts: dict[str, Any] = {"cluster": cluster, "cluster_state": state}
    if state in _CLUSTER_BEGINS:
        return Part(STEP, f"the cluster is {state}", facts)
    if state not in _CLUSTER_WORKS:
        advice = f"raise emr.generation in config/{environment}.yaml, then headwater deploy --env {environment}"
        return Part(
            STEP, f"the cluster is {state}", facts, [Problem(f"the cluster {cluster} is {state}", advice, "ended")]
        )
    # The newest are first.
    steps = [step for step in emr.list_steps(ClusterId=cluster)["Steps"] if step["Name"].startswith(deployed.step_name)]
    living = [step for step in steps if step["Status"]["State"] in _STEP_LIVES]
    newest = next(iter(living or steps), None)
    if newest is None:
        return Part(
            STEP,
            "no step",
            facts,
            [Problem("the cluster has no step", f"headwater deploy --env {environment}", "ended")],
        )
    status = newest["Status"]
    started = status["Timeline"].get("StartDateTime")
    facts |= {"step": newest["Id"], "step_state": status["State"], RUNS_SINCE: None}
    if started and status["State"] == _RUNNING:
        facts[RUNS_SINCE] = started.timestamp()
    if living:
        return Part(STEP, f"{status['State']} on {cluster}", facts)
    reason = status.get("FailureDetails", {}).get("Message", "")
    facts["reason"] = reason
    found = f"the step {newest['Id']} is {status['State']}" + (f": {_line(reason)}" if reason else "")
    advice = (
        "the step is added again within ten minutes; if it fails again, "
        f"headwater logs writer --env {environment} --errors says why"
    )
    return Part(STEP, f"{status['State']}: no step runs", facts, [Problem(found, advice, "ended")])


def observe_job(deployed: Deployed, job: str) -> Part:
    """The state of a job's newest run. Raises the exceptions of boto3."""
    runs = deployed.client("glue").get_job_runs(JobName=job, MaxResults=5)["JobRuns"]
    name = f"Glue job {job.removeprefix(deployed.prefix + '-')}"
    facts: dict[str, Any] = {"job": job}
    if not runs:
        advice = f"headwater deploy --env {deployed.environment.name}"
        return Part(name, "no run", facts, [Problem(f"the job {job} has no run", advice, "ended")])
    newest = max(runs, key=lambda run: run["StartedOn"])
    state = newest["JobRunState"]
    facts |= {"run": newest["Id"], "run_state": state, RUNS_SINCE: None}
    if state == _RUNNING:
        facts[RUNS_SINCE] = newest["StartedOn"].timestamp()
    facts["reason"] = newest.get("ErrorMessage", "")
    if state in _RUN_LIVES:
        return Part(name, f"{state} since {newest['StartedOn']:%d %b %H:%M} UTC", facts)
    found = f"the run {newest['Id']} is {state}" + (f": {_line(facts['reason'])}" if facts["reason"] else "")
    hours = deployed.environment.dynamodb.key_value.stream_retention_hours
    advice = (
        f"the next run starts within five minutes, and streams keep changes for {hours} h; if it fails again, "
        f"headwater logs job --env {deployed.environment.name} --errors says why"
    )
    return Part(name, f"{state}: no run goes on", facts, [Problem(found, advice, "ended")])


def _line(text: str) -> str:
    return " ".join(text.split())[:300]

"""The Glue run's custom resource and what starts the next run, against a stand-in for Glue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from custom_resources import glue_run
from custom_resources.lifecycle import Event, ResourceFailed
from tests.modelled import Modelled, refusal

JOB = "headwater-dev-accounts"
BEGAN = 1_000_000.0


class Glue:
    """A job that takes one run at a time, as Glue answers for it."""

    def __init__(self, *runs: tuple[str, str, float]) -> None:
        self.exists = True
        self.fails_with: str | None = None
        self.execution_seconds = 600
        self.runs = [
            {"Id": name, "JobRunState": state, "StartedOn": datetime.fromtimestamp(started, UTC)}
            for name, state, started in runs
        ]

    def get_job_runs(self, **request: Any) -> dict[str, Any]:
        assert request["JobName"] == JOB
        if not self.exists:
            raise refusal("EntityNotFoundException", "no such job", "GetJobRuns")
        if self.fails_with is not None:
            raise refusal(self.fails_with, "refused", "GetJobRuns")
        return {"JobRuns": list(self.runs)}

    def get_job_run(self, **request: Any) -> dict[str, Any]:
        assert request["JobName"] == JOB
        return {"JobRun": {"Id": request["RunId"], "ExecutionTime": self.execution_seconds}}

    def batch_stop_job_run(self, **request: Any) -> None:
        for run in self.runs:
            if run["Id"] in request["JobRunIds"]:
                assert run["JobRunState"] != "STOPPING"
                run["JobRunState"] = "STOPPING"

    def start_job_run(self, **request: Any) -> dict[str, Any]:
        assert request["JobName"] == JOB
        if self.alive():
            raise refusal("ConcurrentRunsExceededException", "one at a time", "StartJobRun")
        run = f"run-{len(self.runs) + 1}"
        self.runs.insert(
            0, {"Id": run, "JobRunState": "STARTING", "StartedOn": datetime.fromtimestamp(BEGAN + 60, UTC)}
        )
        return {"JobRunId": run}

    def ends(self) -> None:
        """Let runs that are stopping have stopped."""
        for run in self.runs:
            if run["JobRunState"] == "STOPPING":
                run["JobRunState"] = "STOPPED"

    def alive(self) -> list[Any]:
        return [run["Id"] for run in self.runs if run["JobRunState"] in ("STARTING", "RUNNING", "STOPPING", "WAITING")]


def request(kind: str) -> Event:
    return {
        "RequestType": kind,
        "PhysicalResourceId": JOB,
        "ResourceProperties": {"Name": JOB, "Definition": "abc"},
        "Data": {"Began": str(BEGAN)},
    }


def step(kind: str, glue: Glue, now: float = BEGAN + 30) -> bool:
    return bool(glue_run.step(request(kind), Modelled("glue", glue), now)["IsComplete"])


def start_again(glue: Glue, ended: str | None) -> None:
    glue_run.start_again(Modelled("glue", glue), JOB, ended)


def test_a_new_job_is_started() -> None:
    glue = Glue()
    assert step("Create", glue)
    assert glue.alive() == ["run-1"]


def test_a_changed_definition_stops_the_old_run_before_it_starts_the_new() -> None:
    glue = Glue(("old", "RUNNING", BEGAN - 86400))
    assert not step("Update", glue)
    assert glue.runs[0]["JobRunState"] == "STOPPING"
    assert not step("Update", glue)
    assert glue.alive() == ["old"]
    glue.ends()
    assert step("Update", glue)
    assert glue.alive() == ["run-2"]


def test_a_run_that_the_rule_has_started_meanwhile_is_kept() -> None:
    glue = Glue(("new", "RUNNING", BEGAN + 10), ("old", "STOPPED", BEGAN - 86400))
    assert step("Update", glue)
    assert glue.alive() == ["new"]


def test_a_deleted_job_is_stopped_whenever_its_run_began() -> None:
    glue = Glue(("new", "STARTING", BEGAN + 10))
    assert not step("Delete", glue)
    glue.ends()
    assert step("Delete", glue)
    assert glue.alive() == []


def test_a_job_that_is_gone_needs_no_stopping() -> None:
    glue = Glue()
    glue.exists = False
    assert step("Delete", glue)


def test_a_run_that_does_not_stop_fails_the_request_by_its_name() -> None:
    glue = Glue(("old", "STOPPING", BEGAN - 86400))
    with pytest.raises(ResourceFailed, match="in vain for headwater-dev-accounts: the runs old to stop"):
        step("Update", glue, now=BEGAN + 86400)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServiceException", "OperationTimeoutException"])
def test_a_busy_service_is_asked_again(code: str) -> None:
    glue = Glue()
    glue.fails_with = code
    assert not step("Create", glue)


def test_a_refusal_counts_once_the_rights_have_had_time_to_settle() -> None:
    glue = Glue()
    glue.fails_with = "AccessDeniedException"
    assert not step("Create", glue, BEGAN + 30)
    with pytest.raises(ResourceFailed, match=r"Glue refused: .*AccessDenied"):
        step("Create", glue, BEGAN + 150)


def test_any_further_refusal_fails_the_request_at_once() -> None:
    glue = Glue()
    glue.fails_with = "InvalidInputException"
    with pytest.raises(ResourceFailed, match=r"Glue refused: .*InvalidInput"):
        step("Create", glue)


def test_the_schedule_starts_a_job_that_does_not_run() -> None:
    glue = Glue(("old", "FAILED", BEGAN))
    start_again(glue, None)
    assert glue.alive() == ["run-2"]


def test_a_running_job_is_not_started_twice() -> None:
    glue = Glue(("running", "RUNNING", BEGAN))
    start_again(glue, None)
    assert glue.alive() == ["running"]


@pytest.mark.parametrize(("seconds", "started"), [(600, ["run-2"]), (5, [])])
def test_a_run_that_ended_at_once_is_left_to_the_schedule(seconds: int, started: list[str]) -> None:
    glue = Glue(("ended", "FAILED", BEGAN))
    glue.execution_seconds = seconds
    start_again(glue, "ended")
    assert glue.alive() == started

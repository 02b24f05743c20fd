"""The EMR step's custom resource and what adds the step again, against a stand-in for EMR."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from custom_resources import emr_step, lifecycle
from custom_resources.emr_step import PATIENCE, SHORT_LIFE, step_name
from custom_resources.lifecycle import Event, Outcome, ResourceFailed
from tests.modelled import Modelled, refusal

NAME = "headwater-dev-writer"
CLUSTER = "j-1"
BEGAN = 1_000_000.0
SETTLED = 90
ARGS = ["spark-submit", "s3://assets/one.py"]
OTHER_ARGS = ["spark-submit", "s3://assets/two.py"]


class Emr:
    """Clusters that run one step at a time, in the order in which they were added."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.states = {CLUSTER: "WAITING"}
        self.steps: dict[str, list[dict[str, Any]]] = {CLUSTER: []}
        self.refuses: Exception | None = None
        self.interrupts: list[str] = []
        self.stubborn = False

    def list_steps(self, ClusterId: str, StepStates: list[str], Marker: str = "0") -> dict[str, Any]:  # noqa: N803
        if self.refuses is not None:
            raise self.refuses
        newest_first = [step for step in reversed(self.steps[ClusterId]) if step["Status"]["State"] in StepStates]
        # Two steps per page.
        page = int(Marker)
        more = {"Marker": str(page + 2)} if page + 2 < len(newest_first) else {}
        return {"Steps": newest_first[page : page + 2], **more}

    def describe_cluster(self, ClusterId: str) -> dict[str, Any]:  # noqa: N803
        if ClusterId not in self.states:
            raise refusal("InvalidRequestException", "Cluster id is not valid", "DescribeCluster")
        return {"Cluster": {"Id": ClusterId, "Status": {"State": self.states[ClusterId]}}}

    def add_job_flow_steps(self, JobFlowId: str, Steps: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        (definition,) = Steps
        assert definition["ActionOnFailure"] == "CONTINUE"
        self.now += 1
        number = sum(map(len, self.steps.values())) + 1
        self.steps[JobFlowId].append(
            {
                "Id": f"s-{number}",
                "Name": definition["Name"],
                "Config": definition["HadoopJarStep"],
                "Status": {"State": "PENDING", "Timeline": {"CreationDateTime": self.time()}},
            }
        )
        return {"StepIds": [f"s-{number}"]}

    def cancel_steps(self, ClusterId: str, StepIds: list[str], StepCancellationOption: str) -> dict[str, Any]:  # noqa: N803
        for step in self.steps[ClusterId]:
            if step["Id"] in StepIds:
                if step["Status"]["State"] == "PENDING":
                    self.end(step, "CANCELLED")
                elif not self.stubborn or StepCancellationOption == "TERMINATE_PROCESS":
                    step["Status"]["State"] = "CANCEL_PENDING"
        self.interrupts.append(StepCancellationOption)
        return {"CancelStepsInfoList": [{"StepId": id_, "Status": "SUBMITTED"} for id_ in StepIds]}

    def time(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def settle(self, seconds: float = 60) -> None:
        """Let time pass: cancelled steps end, and the next one starts."""
        self.now += seconds
        for cluster in self.steps.values():
            for step in cluster:
                if step["Status"]["State"] == "CANCEL_PENDING":
                    self.end(step, "CANCELLED")
            running = [step for step in cluster if step["Status"]["State"] == "RUNNING"]
            pending = [step for step in cluster if step["Status"]["State"] == "PENDING"]
            if pending and not running:
                pending[0]["Status"]["State"] = "RUNNING"
                pending[0]["Status"]["Timeline"]["StartDateTime"] = self.time()

    def end(self, step: dict[str, Any], state: str) -> None:
        step["Status"]["State"] = state
        step["Status"]["Timeline"]["EndDateTime"] = self.time()
        if state == "FAILED":
            step["Status"]["FailureDetails"] = {"Reason": "Unknown Error.", "LogFile": "s3://logs/stderr.gz"}


class World:
    """EMR, and CloudFormation's requests to our resource."""

    def __init__(self) -> None:
        self.emr = Emr()
        self.client = Modelled("emr", self.emr)

    def request(self, kind: str, args: list[str] = ARGS, cluster: str = CLUSTER, former: str | None = None) -> Event:
        event: Event = {
            "RequestType": kind,
            "PhysicalResourceId": NAME,
            "ResourceProperties": {"Name": NAME, "ClusterId": cluster, "Args": args, "SettledSeconds": str(SETTLED)},
            "Data": {"Began": str(self.emr.now)},
        }
        if kind == "Update":
            event["OldResourceProperties"] = {"Name": NAME, "ClusterId": former or cluster, "Args": ARGS}
        return event

    def step(self, event: Event) -> Outcome:
        return emr_step.step(event, self.client, self.emr.now)

    def until_done(self, event: Event) -> None:
        for _ in range(10):
            if self.step(event)["IsComplete"]:
                return
            self.emr.settle()
        raise AssertionError(f"not done after ten steps: {self.shown()}")

    def add_again(self, event: Event) -> None:
        emr_step.add_again(event, self.client, CLUSTER, NAME)

    def shown(self, cluster: str = CLUSTER) -> list[tuple[str, str]]:
        """Name and state of each step, in the order in which they were added."""
        return [(step["Name"], step["Status"]["State"]) for step in self.emr.steps[cluster]]

    def of_cluster(self, cluster: str = CLUSTER) -> Event:
        return {"detail-type": "EMR Step Status Change", "detail": {"clusterId": cluster, "state": "FAILED"}}


OF_SCHEDULE: Event = {"detail-type": "Scheduled Event", "detail": {}}


@pytest.fixture
def world() -> World:
    return World()


def test_a_steps_name_tells_what_it_runs() -> None:
    assert step_name(NAME, ARGS) != step_name(NAME, OTHER_ARGS)
    assert step_name(NAME, ["a", "b"]) != step_name(NAME, ["a b"])


def test_a_step_is_added_and_must_have_run_for_a_while(world: World) -> None:
    event = world.request("Create")
    assert world.step(event) == {"IsComplete": False}
    assert world.step(event) == {"IsComplete": False}
    world.emr.settle()
    assert world.step(event) == {"IsComplete": False}
    world.emr.settle(SETTLED)
    assert world.step(event) == {"IsComplete": True, "Data": {"StepName": step_name(NAME, ARGS)}}
    assert world.shown() == [(step_name(NAME, ARGS), "RUNNING")]


def test_nothing_happens_where_nothing_changed(world: World) -> None:
    world.until_done(world.request("Create"))
    world.until_done(world.request("Update"))
    assert len(world.shown()) == 1


def test_a_step_is_found_behind_many_of_others(world: World) -> None:
    world.until_done(world.request("Create"))
    for _ in range(3):
        add(world, "analyst", ["theirs"])
    world.until_done(world.request("Update"))
    world.add_again(world.of_cluster())
    assert len(world.shown()) == 4


def test_a_changed_step_runs_only_when_the_old_one_has_ended(world: World) -> None:
    world.until_done(world.request("Create"))
    event = world.request("Update", OTHER_ARGS)
    seen = []
    for _ in range(6):
        outcome = world.step(event)
        seen.append([state for _, state in world.shown()])
        if outcome["IsComplete"]:
            break
        world.emr.settle()
    assert seen == [
        ["RUNNING", "PENDING"],
        ["CANCEL_PENDING", "PENDING"],
        ["CANCELLED", "RUNNING"],
        ["CANCELLED", "RUNNING"],
        ["CANCELLED", "RUNNING"],
    ]
    assert world.shown()[1][0] == step_name(NAME, OTHER_ARGS)
    assert world.emr.steps[CLUSTER][1]["Config"]["Args"] == OTHER_ARGS


def test_a_step_that_does_not_end_is_ended(world: World) -> None:
    world.until_done(world.request("Create"))
    world.emr.stubborn = True
    event = world.request("Update", OTHER_ARGS)
    for _ in range(PATIENCE // 60 + 2):
        world.step(event)
        world.emr.now += 60
    assert set(world.emr.interrupts[:4]) == {"SEND_INTERRUPT"}
    assert world.emr.interrupts[-1] == "TERMINATE_PROCESS"


def test_steps_of_others_are_left_alone(world: World) -> None:
    add(world, "headwater-dev-writer", ["mine"])
    add(world, "analyst", ["theirs"])
    event = world.request("Delete")
    world.until_done(event)
    assert [state for _, state in world.shown()] == ["RUNNING", "PENDING"]


def test_a_step_that_fails_soon_fails_the_deployment_with_its_reason(world: World) -> None:
    event = world.request("Create")
    world.step(event)
    world.emr.settle()
    world.emr.end(world.emr.steps[CLUSTER][0], "FAILED")
    with pytest.raises(ResourceFailed, match=r"s-1 failed: Unknown Error\., s3://logs/stderr\.gz"):
        world.step(event)


def test_after_a_failed_deployment_the_former_step_comes_back(world: World) -> None:
    world.until_done(world.request("Create"))
    event = world.request("Update", OTHER_ARGS)
    for _ in range(3):
        world.step(event)
        world.emr.settle()
    world.emr.end(world.emr.steps[CLUSTER][-1], "FAILED")
    with pytest.raises(ResourceFailed):
        world.step(event)
    world.until_done(world.request("Update"))
    assert world.shown()[-1] == (step_name(NAME, ARGS), "RUNNING")


def test_a_failure_of_an_earlier_deployment_does_not_count(world: World) -> None:
    add(world, step_name(NAME, ARGS), ARGS)
    world.emr.end(world.emr.steps[CLUSTER][0], "FAILED")
    world.emr.now += 60
    world.until_done(world.request("Create"))
    assert [state for _, state in world.shown()] == ["FAILED", "RUNNING"]


def test_of_two_equal_steps_the_older_stays(world: World) -> None:
    event = world.request("Create")
    world.step(event)
    add(world, step_name(NAME, ARGS), ARGS)
    world.until_done(event)
    assert [state for _, state in world.shown()] == ["RUNNING", "CANCELLED"]


def test_another_cluster_gets_its_step_when_the_former_ones_has_ended(world: World) -> None:
    world.until_done(world.request("Create"))
    world.emr.states["j-2"], world.emr.steps["j-2"] = "WAITING", []
    event = world.request("Update", cluster="j-2", former=CLUSTER)
    world.step(event)
    assert world.shown("j-2") == []
    world.until_done(event)
    assert [state for _, state in world.shown()] == ["CANCELLED"]
    assert [state for _, state in world.shown("j-2")] == ["RUNNING"]


def test_a_deployment_to_a_cluster_that_has_ended_says_how_to_get_another(world: World) -> None:
    world.emr.states[CLUSTER] = "TERMINATED"
    for kind in ("Create", "Update"):
        with pytest.raises(ResourceFailed, match=r"The cluster j-1 has ended: raise emr\.generation"):
            world.step(world.request(kind))


def test_a_rollback_to_a_cluster_that_has_gone_ends_the_new_ones_step_and_is_done(world: World) -> None:
    world.emr.states = {"j-2": "WAITING", CLUSTER: "TERMINATED"}
    world.emr.steps["j-2"] = []
    world.until_done(world.request("Update", OTHER_ARGS, "j-2", CLUSTER))
    world.until_done(world.request("Update", ARGS, CLUSTER, "j-2"))
    assert [state for _, state in world.shown("j-2")] == ["CANCELLED"]
    assert world.shown() == []


def test_deleting_cancels_and_awaits_the_step(world: World) -> None:
    world.until_done(world.request("Create"))
    event = world.request("Delete")
    assert world.step(event) == {"IsComplete": False}
    world.emr.settle()
    assert world.step(event)["IsComplete"]
    assert [state for _, state in world.shown()] == ["CANCELLED"]


@pytest.mark.parametrize("state", ["TERMINATED_WITH_ERRORS", None], ids=["ended", "forgotten"])
def test_a_cluster_that_has_ended_holds_nothing_up(world: World, state: str | None) -> None:
    world.until_done(world.request("Create"))
    world.emr.states["j-2"], world.emr.steps["j-2"] = "WAITING", []
    if state is None:
        del world.emr.states[CLUSTER]
    else:
        world.emr.states[CLUSTER] = state
    assert world.step(world.request("Delete"))["IsComplete"]
    world.until_done(world.request("Update", cluster="j-2", former=CLUSTER))
    assert [state for _, state in world.shown("j-2")] == ["RUNNING"]
    assert world.emr.interrupts == []


def test_a_passing_error_is_tried_again_and_another_fails(world: World) -> None:
    event = world.request("Create")
    world.emr.refuses = refusal("ThrottlingException")
    assert world.step(event) == {"IsComplete": False}
    world.emr.refuses = refusal("ValidationException", "no such cluster")
    with pytest.raises(ResourceFailed, match=r"EMR refused: .*no such cluster"):
        world.step(event)


def test_a_missing_right_counts_once_it_has_had_time_to_settle(world: World) -> None:
    event = world.request("Create")
    world.emr.refuses = refusal("AccessDeniedException", "not authorized", "ListSteps")
    assert world.step(event) == {"IsComplete": False}
    world.emr.now += 150
    with pytest.raises(ResourceFailed, match=r"EMR refused: .*not authorized"):
        world.step(event)


def test_waiting_too_long_fails_with_what_was_waited_for(world: World) -> None:
    event = world.request("Create")
    world.step(event)
    world.emr.now += lifecycle.LONGEST_WAIT + 10
    with pytest.raises(ResourceFailed, match="in vain for the step s-1 to have run"):
        world.step(event)


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "INTERRUPTED", "COMPLETED"])
def test_a_step_that_ended_is_added_again_as_it_was(world: World, state: str) -> None:
    world.until_done(world.request("Create"))
    world.emr.now += SHORT_LIFE
    world.emr.end(world.emr.steps[CLUSTER][0], state)
    world.add_again(world.of_cluster())
    assert world.shown() == [(step_name(NAME, ARGS), state), (step_name(NAME, ARGS), "PENDING")]
    assert world.emr.steps[CLUSTER][1]["Config"]["Args"] == ARGS


def test_the_newest_of_the_ended_steps_is_added(world: World) -> None:
    world.until_done(world.request("Create"))
    world.until_done(world.request("Update", OTHER_ARGS))
    for step in world.emr.steps[CLUSTER]:
        world.emr.end(step, "CANCELLED")
    world.add_again(world.of_cluster())
    assert world.shown()[-1] == (step_name(NAME, OTHER_ARGS), "PENDING")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CANCEL_PENDING"])
def test_no_step_is_added_beside_one_that_waits_or_runs(world: World, state: str) -> None:
    world.until_done(world.request("Create"))
    world.emr.steps[CLUSTER][0]["Status"]["State"] = state
    for event in (world.of_cluster(), OF_SCHEDULE):
        world.add_again(event)
    assert len(world.shown()) == 1


def test_during_a_replacement_nothing_is_added(world: World) -> None:
    world.until_done(world.request("Create"))
    event = world.request("Update", OTHER_ARGS)
    for _ in range(5):
        world.step(event)
        world.add_again(world.of_cluster())
        world.emr.settle()
        world.add_again(world.of_cluster())
    assert [name for name, _ in world.shown()] == [step_name(NAME, ARGS), step_name(NAME, OTHER_ARGS)]


def test_a_step_that_failed_soon_is_left_to_the_schedule(world: World) -> None:
    add(world, step_name(NAME, ARGS), ARGS)
    world.emr.now += SHORT_LIFE - 1
    world.emr.end(world.emr.steps[CLUSTER][0], "FAILED")
    world.add_again(world.of_cluster())
    assert len(world.shown()) == 1
    world.add_again(OF_SCHEDULE)
    assert len(world.shown()) == 2


def test_an_event_of_a_former_cluster_adds_nothing(world: World) -> None:
    add(world, step_name(NAME, ARGS), ARGS)
    world.emr.end(world.emr.steps[CLUSTER][0], "CANCELLED")
    world.add_again(world.of_cluster("j-0"))
    assert len(world.shown()) == 1


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED", "TERMINATED_WITH_ERRORS"])
def test_a_cluster_that_is_gone_gets_no_step(world: World, state: str) -> None:
    add(world, step_name(NAME, ARGS), ARGS)
    world.emr.end(world.emr.steps[CLUSTER][0], "CANCELLED")
    world.emr.states[CLUSTER] = state
    world.add_again(OF_SCHEDULE)
    assert len(world.shown()) == 1


def test_before_the_first_deployment_has_added_one_there_is_nothing_to_add(world: World) -> None:
    world.add_again(OF_SCHEDULE)
    assert world.shown() == []


def test_a_step_added_at_the_same_moment_by_a_deployment_stays_alone(world: World) -> None:
    add(world, step_name(NAME, ARGS), ARGS)
    world.emr.end(world.emr.steps[CLUSTER][0], "CANCELLED")
    add_job_flow_steps = world.emr.add_job_flow_steps

    def after_the_deployment(**request: Any) -> dict[str, Any]:
        add(world, step_name(NAME, OTHER_ARGS), OTHER_ARGS, add_job_flow_steps)
        return add_job_flow_steps(**request)

    world.emr.add_job_flow_steps = after_the_deployment  # type: ignore[assignment,method-assign]
    world.add_again(OF_SCHEDULE)
    assert [state for _, state in world.shown()] == ["CANCELLED", "PENDING", "CANCELLED"]


def add(world: World, name: str, args: list[str], adds: Any = None) -> None:
    """Add a step as something else would."""
    world.emr.now += 1
    jar = {"Jar": "command-runner.jar", "Args": args}
    (adds or world.emr.add_job_flow_steps)(
        JobFlowId=CLUSTER, Steps=[{"Name": name, "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar}]
    )
    if len(world.emr.steps[CLUSTER]) == 1:
        world.emr.settle(0)

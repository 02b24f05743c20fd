"""The workflow of GitHub Actions runs what exists, with no more rights than it needs."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headwater.commands import VERBS
from headwater.deployment import environment
from headwater.paths import CONFIG, ROOT

FILE = ROOT / ".github" / "workflows" / "ci.yaml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    # YAML takes the key `on` for a truth value.
    return {"on" if key is True else str(key): value for key, value in yaml.safe_load(FILE.read_text()).items()}


def test_pull_requests_are_checked_with_their_own_rights(workflow: dict[str, Any]) -> None:
    # pull_request_target would run a stranger's code with the repository's token.
    assert set(workflow["on"]) == {"pull_request", "push"}


def test_only_the_job_that_runs_no_code_of_the_change_may_write(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name: job for name, job in workflow["jobs"].items() if "permissions" in job}
    assert list(writing) == ["comment"]
    assert writing["comment"]["permissions"] == {"pull-requests": "write"}
    text = yaml.safe_dump(writing["comment"])
    assert not re.search(r"checkout|make |headwater", text)


def test_actions_are_pinned_to_a_version(workflow: dict[str, Any]) -> None:
    used = [step["uses"] for _, step in _steps(workflow) if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"actions/[a-z-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", one)] == []


def test_no_text_of_a_pull_request_reaches_a_shell(workflow: dict[str, Any]) -> None:
    for _, step in _steps(workflow):
        assert "${{" not in step.get("run", ""), step


def test_every_environment_is_synthesized_and_compared(workflow: dict[str, Any]) -> None:
    review = workflow["jobs"]["review"]
    assert sorted(review["strategy"]["matrix"]["environment"]) == environment.names(CONFIG)
    commands = "\n".join(step.get("run", "") for step in review["steps"])
    for command in ("make synth", "headwater review diff", "headwater review gate", "headwater cost"):
        assert command in commands


def test_every_target_and_every_command_exists(workflow: dict[str, Any]) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    runs = "\n".join(step.get("run", "") for _, step in _steps(workflow))
    made = {word for line in re.findall(r"^make (.*)$", runs, re.MULTILINE) for word in line.split() if "=" not in word}
    assert {"setup", "assets", "lint", "unit", "synth", "test"} <= made <= targets
    verbs = set(re.findall(r"bin/headwater ([a-z]+)", runs))
    assert verbs
    assert verbs <= set(VERBS)


def _steps(workflow: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            yield name, step

"""The workflow of a lake folder runs what exists, with no more rights than it needs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headwater.cli import app
from headwater.paths import ROOT
from headwater.review.comment import marker, render
from tests.command_line import understood

OWN = ROOT / ".github" / "workflows" / "ci.yaml"


def git(folder: Path, *arguments: str) -> str:
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    return subprocess.run([*own, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake folder in the user's git repository."""
    git(tmp_path, "init", "--quiet")
    words = ["init", str(tmp_path / "lakes" / "sales"), "--repository", "https://git.example.com/headwater.git"]
    CliRunner().invoke(app, words, catch_exceptions=False)
    return tmp_path / "lakes" / "sales"


@pytest.fixture
def file(lake: Path) -> Path:
    return lake.parent.parent / ".github" / "workflows" / "headwater-sales.yaml"


@pytest.fixture
def workflow(file: Path) -> dict[str, Any]:
    # YAML takes the key `on` for a truth value.
    return {"on" if key is True else str(key): value for key, value in yaml.safe_load(file.read_text()).items()}


def step(workflow: dict[str, Any], job: str, name: str) -> dict[str, Any]:
    [found] = [step for step in workflow["jobs"][job]["steps"] if step.get("name") == name]
    return dict(found)


def run_step(workflow: dict[str, Any], job: str, name: str, folder: Path, **variables: str) -> None:
    """Run a step's script as a runner does, in a folder."""
    script = step(workflow, job, name)["run"]
    subprocess.run(["bash", "-e", "-c", script], cwd=folder, env={**os.environ, **variables}, check=True)


def test_it_has_no_secret_and_no_credentials(file: Path, workflow: dict[str, Any]) -> None:
    # pull_request_target would run a stranger's code with the repository's token.
    assert set(workflow["on"]) == {"pull_request", "push"}
    assert not re.search(r"aws-actions/|AWS_[A-Z]|\bsecrets\b", file.read_text())


def test_the_job_that_may_write_runs_no_code_of_the_change(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name: job for name, job in workflow["jobs"].items() if "permissions" in job}
    assert {name: job["permissions"] for name, job in writing.items()} == {"comment": {"pull-requests": "write"}}
    assert not re.search(r"checkout|headwater ", yaml.safe_dump(writing))
    assert "head.repo.full_name == github.repository" in workflow["jobs"]["comment"]["if"]


def test_its_actions_are_those_of_headwaters_own_workflow(file: Path) -> None:
    pins = r"uses: (\S+@[0-9a-f]{40} # v[\d.]+)$"
    used = re.findall(pins, file.read_text(), re.MULTILINE)
    assert len(used) == file.read_text().count("uses:") == 6
    assert set(used) <= set(re.findall(pins, OWN.read_text(), re.MULTILINE))


def test_every_command_exists(workflow: dict[str, Any]) -> None:
    runs = "\n".join(step.get("run", "") for step in workflow["jobs"]["review"]["steps"])
    lines = re.findall(r"\./headwater (.*?)(?: *(?:[>&]|\|\|).*)?$", runs.replace("\\\n", " "), re.MULTILINE)
    verbs = {" ".join(word for word in line.split()[:3] if word.isalpha()) for line in lines}
    assert verbs == {
        "",
        "baselines",
        "check",
        "contract check",
        "cost",
        "dev review comment",
        "dev review diff",
        "dev review gate",
    }
    for line in lines:
        if line != "--version":
            understood(*shlex.split(line))


def test_it_keeps_the_release_where_the_script_has_it(lake: Path, workflow: dict[str, Any]) -> None:
    [cache] = [each for each in workflow["jobs"]["review"]["steps"] if "actions/cache" in each.get("uses", "")]
    assert cache["with"]["path"] == "~/.cache/headwater"
    assert "${XDG_CACHE_HOME:-$HOME/.cache}/headwater" in (lake / "headwater").read_text()
    assert "hashFiles('lakes/sales/headwater.yaml')" in cache["with"]["key"]


def test_the_base_branchs_state_is_found(lake: Path, workflow: dict[str, Any]) -> None:
    repository = lake.parent.parent
    template = lake / "reviewed" / "baselines" / "dev" / "lake.yaml"
    template.parent.mkdir(parents=True)
    template.write_text("Resources: {}\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "base")
    base = git(repository, "rev-parse", "HEAD")
    template.write_text("changed\n")
    run_step(workflow, "review", "Fetch the base branch's baselines", lake, BASE=base)
    before = lake / "build" / "base"
    assert (before / "reviewed" / "baselines" / "dev" / "lake.yaml").read_text() == "Resources: {}\n"
    # Git has no empty folder.
    assert not (before / "contracts").exists()


def test_what_the_base_branch_lacks_is_empty(lake: Path, workflow: dict[str, Any]) -> None:
    run_step(workflow, "review", "Fetch the base branch's baselines", lake, BASE="0" * 40)
    assert list((lake / "build" / "base" / "reviewed" / "baselines").iterdir()) == []
    assert {path.name for path in (lake / "build" / "base").iterdir()} == {"reviewed"}


def test_each_environment_is_judged_and_commented(lake: Path, workflow: dict[str, Any]) -> None:
    # A stand-in, which writes down its calls and refuses what dev would lose.
    (lake / "headwater").write_text(
        '#!/bin/sh\necho "$@" >> calls.txt\necho "$4 of $5"\ncase "$*" in *gate*dev*) exit 1 ;; esac\n'
    )
    for environment in ("dev", "prod"):
        (lake / "reviewed" / "baselines" / environment).mkdir(parents=True)
    (lake / "build" / "base").mkdir(parents=True)
    run_step(workflow, "review", "Describe the change", lake)
    with pytest.raises(subprocess.CalledProcessError):
        run_step(workflow, "review", "Refuse to lose data that nobody agreed to lose", lake)
    summary = lake / "summary"
    run_step(workflow, "review", "Write the comments", lake, RUN_URL="https://x/1", GITHUB_STEP_SUMMARY=str(summary))
    for environment in ("dev", "prod"):
        written = {path.name for path in (lake / "build" / "review" / environment).iterdir()}
        assert written == {"comment.md", "cost.txt", "diff.txt", "gate.txt"}
        assert (lake / "calls.txt").read_text().count(f"dev review gate --env {environment} ") == 1
    assert summary.read_text() == "--env of dev\n--env of prod\n"


def test_a_change_that_ends_before_its_review_has_no_comment(lake: Path, workflow: dict[str, Any]) -> None:
    run_step(workflow, "review", "Write the comments", lake, RUN_URL="https://x/1", GITHUB_STEP_SUMMARY="none")
    assert not (lake / "none").exists()


def test_each_environment_has_one_comment(tmp_path: Path, workflow: dict[str, Any]) -> None:
    folder = tmp_path / "artifact"
    for name in ("dev", "prod"):
        (folder / name).mkdir(parents=True)
        (folder / name / "comment.md").write_text(render("sales", name, [], "https://example.org/run"))
    # A `gh` that knows the comment of dev, and writes down every call.
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\necho "$@" >> calls.txt\ncase "$*" in *--paginate*"sales dev -->"*) echo 7 ;; esac\n')
    gh.chmod(0o755)
    variables = {"PATH": f"{gh.parent}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "o/r", "NUMBER": "3"}
    run_step(workflow, "comment", "Write a comment per environment, or edit the one that is there", folder, **variables)
    calls = (folder / "calls.txt").read_text().splitlines()
    assert [call for call in calls if "--paginate" not in call] == [
        "api --silent --method PATCH repos/o/r/issues/comments/7 --field body=@dev/comment.md",
        "api --silent --method POST repos/o/r/issues/3/comments --field body=@prod/comment.md",
    ]
    assert any(f'startswith("{marker("sales", "prod")}")' in call for call in calls)

"""The workflows of GitHub Actions run what exists, with no more rights than they need."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.environment import model as environment
from headwater.lake_folder import EXAMPLE
from headwater.packaging.sbom import LICENCES
from headwater.paths import ROOT
from headwater.review.comment import marker, render
from tests.command_line import understood

FOLDER = ROOT / ".github" / "workflows"
ACCEPTED = ROOT / ".github" / "osv-scanner.toml"
WORKFLOWS = sorted(FOLDER.glob("*.yaml"))


def _read(name: str) -> dict[str, Any]:
    # YAML takes the key `on` for a truth value.
    document = yaml.safe_load((FOLDER / name).read_text())
    return {"on" if key is True else str(key): value for key, value in document.items()}


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return _read("ci.yaml")


@pytest.fixture(scope="module")
def nightly() -> dict[str, Any]:
    return _read("nightly.yaml")


@pytest.fixture(scope="module")
def supply_chain() -> dict[str, Any]:
    return _read("supply-chain.yaml")


def test_pull_requests_are_checked_with_their_own_rights(workflow: dict[str, Any]) -> None:
    # pull_request_target would run a stranger's code with the repository's token.
    assert set(workflow["on"]) == {"pull_request", "push"}


def test_only_jobs_that_run_no_code_of_the_change_may_write(workflow: dict[str, Any]) -> None:
    workflows = [workflow, *(_read(file.name) for file in WORKFLOWS if file.name != "ci.yaml")]
    assert all(each["permissions"] == {"contents": "read"} for each in workflows)
    writing = {name: job for each in workflows for name, job in each["jobs"].items() if "permissions" in job}
    assert {name: job["permissions"] for name, job in writing.items()} == {
        "publish": {"id-token": "write", "pages": "write"},
        "comment": {"pull-requests": "write"},
    }
    assert not re.search(r"checkout|make |headwater", yaml.safe_dump(writing))


def test_no_workflow_has_credentials_of_aws() -> None:
    for file in WORKFLOWS:
        assert not re.search(r"aws-actions/|AWS_[A-Z]|\bsecrets\b", file.read_text()), file


def test_the_site_is_kept_of_every_change_and_published_from_main_alone(workflow: dict[str, Any]) -> None:
    assert workflow["on"]["push"] == {"branches": ["main"]}
    [kept, published, _] = [step for step in workflow["jobs"]["test"]["steps"] if "upload-" in step.get("uses", "")]
    assert "if" not in kept
    assert published["if"] == "github.event_name == 'push'"
    assert workflow["jobs"]["publish"]["if"].startswith("github.event_name == 'push' && ")
    [folder] = re.findall(r"^site_dir: (.*)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert {upload["with"]["path"] for upload in (kept, published)} == {f"{folder}/"}


def test_a_change_runs_each_suite_once_and_side_by_side(workflow: dict[str, Any]) -> None:
    runs = {
        name: [step["run"] for _, step in _steps({"jobs": {name: job}}) if "run" in step]
        for name, job in workflow["jobs"].items()
    }
    assert (runs["test"], runs["rest"]) == (["make test"], ["make rest"])
    assert all("needs" not in workflow["jobs"][name] for name in ("test", "rest"))
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test-full"
    named = re.findall(r"call pytest,([a-z-]+)\)", (ROOT / "Makefile").read_text())
    assert len(named) == len(set(named)) == 6


def test_actions_are_pinned_to_a_commit_with_its_version_beside() -> None:
    for file in WORKFLOWS:
        used = re.findall(r"^.*\buses:.*$", file.read_text(), re.MULTILINE)
        assert used
        pin = r" *(- )?uses: actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
        assert [line for line in used if not re.fullmatch(pin, line)] == [], file


def test_an_action_has_one_pin_in_all_workflows() -> None:
    text = "".join(file.read_text() for file in WORKFLOWS)
    pins = set(re.findall(r"uses: (\S+?)@(\S+ # \S+)", text))
    assert len(pins) == len({action for action, _ in pins})


def test_no_text_of_a_pull_request_reaches_a_shell() -> None:
    for _, step in (step for file in WORKFLOWS for step in _steps(_read(file.name))):
        assert "${{" not in step.get("run", ""), step


def test_no_job_runs_without_a_limit_of_time() -> None:
    for job in (job for file in WORKFLOWS for job in _read(file.name)["jobs"].values()):
        assert "timeout-minutes" in job


def test_what_takes_too_long_for_every_change_runs_every_night(nightly: dict[str, Any]) -> None:
    assert set(nightly["on"]) == {"schedule", "workflow_dispatch"}
    assert nightly["permissions"] == {"contents": "read"}
    [job] = nightly["jobs"].values()
    rows = job["strategy"]["matrix"]["include"]
    once = {"drills", "soak", "bench", "mutants", "promises", "busy"}
    assert Counter(row["target"] for row in rows) == {**dict.fromkeys(once, 1), "test-full": 5}
    assert {row["target"] for row in rows} <= _targets()
    # Every run of all tests draws an order of its own.
    assert "SEED" not in job["env"]
    assert job["timeout-minutes"] == "${{ matrix.minutes }}"
    # Mutants run the unit tests some thousand times; the soak draws for an hour and then loads for half an hour; drills
    # kill each of five parts twenty times, half a minute each, and deploy again and again. The bench commits 63 times
    # with each of eight tables, at two sizes. About a hundred promises start Spark, Kafka or Maven anew, a minute each.
    # Beside busy loops all tests take several times as long.
    longest = {"mutants": 330, "soak": 150, "drills": 270, "bench": 240, "promises": 240, "busy": 350}
    assert job["env"]["KILLS"] == "20"
    assert all(30 < row["minutes"] <= longest.get(row["target"], 90) for row in rows)
    uploads = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [step["with"]["name"] for step in uploads] == ["nightly-${{ matrix.target }}${{ matrix.order }}"]


def test_the_demo_and_all_tests_run_beside_eight_loops() -> None:
    beside = r"^\t@tools/busy \$\(or \$\(LOOPS\),8\) -- \$\(MAKE\) .*?(\w+)$"
    assert re.findall(beside, (ROOT / "Makefile").read_text(), re.MULTILINE) == ["demo", "test"]


def test_what_ships_is_looked_up_every_night_and_when_a_lock_changes(supply_chain: dict[str, Any]) -> None:
    assert set(supply_chain["on"]) == {"schedule", "workflow_dispatch", "push", "pull_request"}
    assert supply_chain["permissions"] == {"contents": "read"}
    paths = supply_chain["on"]["pull_request"]["paths"]
    assert supply_chain["on"]["push"] == {"branches": ["main"], "paths": paths}
    watched = {str(file.relative_to(ROOT)) for glob in paths for file in ROOT.glob(glob)}
    assert all(any(ROOT.glob(glob)) for glob in paths)
    assert {"assets/jars/jars.lock", "requirements.txt", str(LICENCES.relative_to(ROOT))} <= watched
    runs = [step["run"] for _, step in _steps(supply_chain) if "run" in step]
    assert [line.partition(" ")[2] for line in runs if line.startswith("make ")] == ["setup assets", "sbom"]
    assert "sbom" in _targets()
    [installed] = [line for line in runs if line.startswith("go install ")]
    assert re.fullmatch(r".*/osv-scanner@v\d+\.\d+\.\d+", installed)
    options = dict(re.findall(r"--(\w+)=(\S+)", runs[-1]))
    assert ROOT / options["lockfile"] == EXAMPLE.build / "sbom.cdx.json"
    assert ROOT / options["config"] == ACCEPTED
    # A finding ends the scanner, and with it the job.
    assert not any("continue-on-error" in step for _, step in _steps(supply_chain))


def test_a_vulnerability_is_accepted_with_a_reason_and_until_a_day() -> None:
    accepted = tomllib.loads(ACCEPTED.read_text())
    assert accepted.keys() <= {"IgnoredVulns"}
    for entry in accepted.get("IgnoredVulns", []):
        assert entry.keys() == {"id", "ignoreUntil", "reason"}, entry


def test_every_environment_is_synthesized_and_compared(workflow: dict[str, Any]) -> None:
    review = workflow["jobs"]["review"]
    assert sorted(review["strategy"]["matrix"]["environment"]) == environment.on_aws(EXAMPLE.config)
    commands = "\n".join(step.get("run", "") for step in review["steps"])
    for command in (f"headwater {verb}" for verb in ("dev review diff", "dev review gate", "cost")):
        assert command in commands
    [upload] = [step for step in review["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["with"] == {"name": "review-${{ matrix.environment }}", "path": f"{review['env']['REVIEW']}/"}


def test_every_target_and_every_command_exists(workflow: dict[str, Any]) -> None:
    runs = "\n".join(step.get("run", "") for _, step in _steps(workflow))
    made = {word for line in re.findall(r"^make (.*)$", runs, re.MULTILINE) for word in line.split() if "=" not in word}
    assert {"setup", "assets", "test", "rest"} <= made <= _targets()
    lines = re.findall(r"bin/headwater (.*?)(?: *[>&].*)?$", runs.replace("\\\n", " "), re.MULTILINE)
    assert lines
    for line in lines:
        understood(*shlex.split(line))


def test_every_test_that_the_makefile_names_exists() -> None:
    named = re.findall(r"\btests/[\w/.]+", (ROOT / "Makefile").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_option_of_a_target_is_set_before_anybody_gives_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    options = {name for help_ in re.findall(r"## (.*)", makefile) for name in re.findall(r"\b([A-Z]+)=", help_)}
    assert {"DATA", "QUICK", "SECONDS"} <= options
    # Every target that takes ENV has dev in its place.
    assert options & set(re.findall(r"^([A-Z]+) :?=", makefile, re.MULTILINE)) == {"ENV"}


def test_baselines_are_found_where_the_base_branch_has_them(workflow: dict[str, Any], tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
    template = tmp_path / "reviewed" / "baselines" / "dev" / "lake.yaml"
    template.parent.mkdir(parents=True)
    template.write_text("Resources: {}\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    _run_step(workflow, "review", "Fetch the base branch's baselines", tmp_path, BASE=commit, BEFORE="build/before")
    assert (tmp_path / "build" / "before" / "dev" / "lake.yaml").read_text() == "Resources: {}\n"


def test_a_pull_request_without_baselines_on_its_base_is_compared_with_none(
    workflow: dict[str, Any], tmp_path: Path
) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    _run_step(workflow, "review", "Fetch the base branch's baselines", tmp_path, BASE="0" * 40, BEFORE="build/before")
    assert list((tmp_path / "build" / "before").iterdir()) == []


def test_each_environment_has_a_comment_prod_first_which_is_edited_when_there_is_one(
    workflow: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("dev", "stage", "prod"):
        folder = tmp_path / f"review-{name}"
        folder.mkdir()
        (folder / "comment.md").write_text(render("example", name, [], "https://example.org/run"))
    (tmp_path / "review-stage" / "comment.md").write_text("")  # its job ended before it was written
    # A `gh` that knows the comment of dev, and notes every call.
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(
        '#!/bin/sh\necho "$@" >> calls.txt\n'
        'case "$*" in *--paginate*"review: example dev -->"*) printf "7\\n8\\n" ;; esac\n'
    )
    gh.chmod(0o755)
    path = f"{gh.parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "GITHUB_REPOSITORY": "o/r", "NUMBER": "3"}
    _run_step(
        workflow, "comment", "Write a comment per environment, or edit the one that is there", tmp_path, **variables
    )
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert [call for call in calls if "--paginate" not in call] == [
        "api --silent --method POST repos/o/r/issues/3/comments --field body=@review-prod/comment.md",
        "api --silent --method PATCH repos/o/r/issues/comments/7 --field body=@review-dev/comment.md",
    ]
    [searched] = [call for call in calls if "review: example prod" in call]
    assert f"startswith({json.dumps(marker('example', 'prod'))})" in searched
    assert '.user.login == "github-actions[bot]"' in searched


def _run_step(workflow: dict[str, Any], job: str, name: str, folder: Path, **variables: str) -> None:
    """Run a step's script as a runner does, in a folder."""
    [step] = [step for step in workflow["jobs"][job]["steps"] if step.get("name") == name]
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env={**os.environ, **variables}, check=True)


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _steps(workflow: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            yield name, step

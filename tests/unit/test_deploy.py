"""``headwater deploy`` protects a stack once it is complete, and not before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import boto3
import pytest
import typer
from botocore.exceptions import NoCredentialsError
from botocore.model import StringShape
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands import deploy, synthesis
from headwater.environment import lake_format, model
from headwater.environment.account import LAKE_TAG
from headwater.environment.protection import described_stacks, incomplete
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, FILE, LakeFolder
from headwater.new_folder import clones
from headwater.packaging import shipped
from headwater.review.baselines import parse
from headwater.review.templates import Deployment
from headwater.yaml_files import set_value
from rig.commands import local

STAGE = "111122223333"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Every status of the service model, and whether a stack that has it was ever complete.
STATUSES = {
    "CREATE_COMPLETE": True,
    "CREATE_FAILED": False,
    "CREATE_IN_PROGRESS": False,
    "DELETE_COMPLETE": False,
    "DELETE_FAILED": False,
    "DELETE_IN_PROGRESS": False,
    "IMPORT_COMPLETE": True,
    "IMPORT_IN_PROGRESS": True,
    "IMPORT_ROLLBACK_COMPLETE": True,
    "IMPORT_ROLLBACK_FAILED": True,
    "IMPORT_ROLLBACK_IN_PROGRESS": True,
    "REVIEW_IN_PROGRESS": False,
    "ROLLBACK_COMPLETE": False,
    "ROLLBACK_FAILED": False,
    "ROLLBACK_IN_PROGRESS": False,
    "UPDATE_COMPLETE": True,
    "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS": True,
    "UPDATE_FAILED": True,
    "UPDATE_IN_PROGRESS": True,
    "UPDATE_ROLLBACK_COMPLETE": True,
    "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS": True,
    "UPDATE_ROLLBACK_FAILED": True,
    "UPDATE_ROLLBACK_IN_PROGRESS": True,
}


class CloudFormation:
    """boto3's client, as far as it lists stacks and names the account. ``refuses`` is raised in place of an answer."""

    def __init__(
        self,
        statuses: dict[str, str],
        refuses: Exception | None = None,
        account: str = STAGE,
        tags: Mapping[str, Any] = MappingProxyType({}),
        outputs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._statuses = statuses
        self._tags = tags
        self._outputs = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        self._refuses = refuses
        self._account = account
        self.listings = 0

    def get_caller_identity(self) -> dict[str, str]:
        if self._refuses is not None:
            raise self._refuses
        return {"Account": self._account}

    def get_paginator(self, operation: str) -> CloudFormation:
        assert operation == "describe_stacks"
        return self

    def paginate(self) -> Iterator[dict[str, Any]]:
        self.listings += 1
        if self._refuses is not None:
            raise self._refuses
        for name, status in self._statuses.items():
            stack = {"StackName": name, "StackStatus": status, "Tags": self._tags.get(name, [])}
            yield {"Stacks": [stack | {"Outputs": self._outputs}]}


@pytest.fixture
def ran(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; stage has two stacks, and each of its files an origin."""
    synthesize(monkeypatch, "database", "lake")
    monkeypatch.setattr(synthesis, "synthesize", lambda folder, name: read_environment(name, folder.config))
    monkeypatch.setattr(shipped, "unexplained", lambda *_: [])
    return ran


def synthesize(monkeypatch: pytest.MonkeyPatch, *parts: str, environment: str = "stage") -> None:
    """Have these stacks synthesized."""
    templates = {
        f"headwater-{environment}-{part}": parse(
            (EXAMPLE.baselines / environment / f"{part}.yaml").read_text(), Path(part)
        )
        for part in parts
    }
    monkeypatch.setattr(Deployment, "read", lambda *_: Deployment(templates, "eu-central-1"))


def contexts(commands: list[list[str]]) -> list[str]:
    return [argument.partition("=")[2] for command in commands for argument in command if "unprotected=" in argument]


def answer(monkeypatch: pytest.MonkeyPatch, cloudformation: CloudFormation) -> None:
    monkeypatch.setattr(boto3, "client", lambda *_, **__: cloudformation)


def test_every_status_of_a_stack_is_known() -> None:
    model = boto3.session.Session()._session.get_service_model("cloudformation")
    shape = model.shape_for("StackStatus")
    assert isinstance(shape, StringShape)
    assert sorted(shape.enum) == sorted(STATUSES)


@pytest.mark.parametrize(("status", "complete"), STATUSES.items())
def test_a_stack_is_incomplete_until_its_creation_has_succeeded_once(status: str, complete: bool) -> None:
    assert incomplete(described_stacks(CloudFormation({"a": status})), ["a"]) == ([] if complete else ["a"])


def test_a_stack_that_is_absent_is_incomplete() -> None:
    assert incomplete(described_stacks(CloudFormation({"b": "CREATE_COMPLETE"})), ["a", "b"]) == ["a"]


def test_new_stacks_are_protected_by_a_second_pass(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}))
    deploy.deploy("stage", folder=EXAMPLE)
    assert contexts(ran) == ["headwater-stage-database", ""]
    assert [command[-1] for command in ran] == ["any-change", "never"]


def test_complete_stacks_are_deployed_once(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    answer(monkeypatch, CloudFormation(dict.fromkeys(("headwater-stage-lake", "headwater-stage-database"), "UPDATE_")))
    deploy.deploy("stage", folder=EXAMPLE)
    assert contexts(ran) == [""]


def test_one_stack_is_deployed_by_its_name(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    answer(monkeypatch, CloudFormation({}))
    for environment, passes in (("dev", 1), ("stage", 2)):
        synthesize(monkeypatch, "network", "lake", environment=environment)
        ran.clear()
        done = CliRunner().invoke(app, ["deploy", "--env", environment, "--stack", "network"], catch_exceptions=False)
        assert done.exit_code == 0
        chosen = [command[command.index("deploy") + 1] for command in ran]
        assert chosen == [f"headwater-{environment}-network"] * passes
        assert not any("--all" in command for command in ran)


def test_a_stack_that_an_environment_lacks_is_refused(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    answer(monkeypatch, CloudFormation({}))
    with pytest.raises(UserError, match=r"--stack: found networks, expected a stack of stage: database or lake"):
        deploy.deploy("stage", "networks", folder=EXAMPLE)
    assert ran == []


@pytest.mark.parametrize("environment", ["dev", "stage"])
def test_no_stack_is_deployed_if_none_can_be_listed(
    environment: str, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    answer(monkeypatch, CloudFormation({}, refuses=NoCredentialsError()))
    with pytest.raises(UserError, match=r"expected the list of stacks: use credentials that may deploy$"):
        deploy.deploy(environment, folder=EXAMPLE)
    assert ran == []


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (["key-value", "lake"], ["key-value"]),
        (["database-content", "database", "database-peering"], ["database-content", "database-peering"]),
        (["database-peering"], ["database-peering"]),
        (["bi", "lake"], []),
    ],
)
def test_stacks_of_another_kind_of_source_are_refused(
    there: list[str], left: list[str], monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    synthesize(monkeypatch, "database", "lake", "connect", "glue-job")
    names = [f"headwater-stage-{part}" for part in there]
    answer(monkeypatch, CloudFormation({"headwater-dev-key-value": "", **dict.fromkeys(names, "CREATE_COMPLETE")}))
    if not left:
        deploy.deploy("stage", folder=EXAMPLE)
        assert ran
        return
    expected = ", ".join(f"headwater-stage-{part}" for part in left)
    with pytest.raises(
        UserError, match=rf"stage: found the stacks {expected} of another .*headwater destroy --env stage"
    ):
        deploy.deploy("stage", folder=EXAMPLE)
    assert ran == []


@pytest.mark.parametrize(
    ("environment", "there", "deleted", "kept"),
    [
        ("dev", ["key-value", "glue-job"], ["glue-job", "key-value"], []),
        ("stage", ["key-value", "glue-job"], ["glue-job"], ["key-value"]),
        ("stage", ["key-value"], [], ["key-value"]),
        ("stage", ["lake"], [], []),
    ],
)
def test_stacks_of_a_source_without_a_contract_are_named_last(
    environment: str,
    there: list[str],
    deleted: list[str],
    kept: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ran: list[list[str]],
) -> None:
    synthesize(monkeypatch, "lake", "connect", environment=environment)
    names = [f"headwater-{environment}-{part}" for part in [*there, "lake", "connect"]]
    answer(monkeypatch, CloudFormation(dict.fromkeys([*names, "key-value"], "CREATE_COMPLETE")))
    deploy.deploy(environment, folder=EXAMPLE)
    said = capsys.readouterr().out
    gone, stays = (", ".join(f"headwater-{environment}-{part}" for part in parts) for parts in (deleted, kept))
    assert (f"its stacks still cost money: {gone}\n" in said) == bool(deleted)
    assert (f"Delete them: headwater destroy --env {environment} --source dynamodb" in said) == bool(deleted)
    assert (f"stay, because {environment} keeps its data: {stays} " in said) == bool(kept)
    assert ran


@pytest.mark.parametrize("environment", ["dev", "stage"])
def test_a_file_without_an_origin_stops_the_deployment(
    environment: str, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    answer(monkeypatch, CloudFormation({}))
    monkeypatch.setattr(shipped, "unexplained", lambda assembly, _: [f"{assembly}/evil.sh would be uploaded"])
    with pytest.raises(UserError, match=f"{environment}: nothing was deployed.\n{EXAMPLE.synthesized}/evil.sh would"):
        deploy.deploy(environment, folder=EXAMPLE)
    assert ran == []


def test_a_failed_pass_ends_with_its_status(monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]) -> None:
    answer(monkeypatch, CloudFormation({}))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=7))
    with pytest.raises(typer.Exit) as ended:
        deploy.deploy("stage", folder=EXAMPLE)
    assert ended.value.exit_code == 7
    assert ran == []


def test_credentials_of_another_account_take_the_protection_from_nothing(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    answer(monkeypatch, CloudFormation({}, account="999999999999"))
    with pytest.raises(UserError, match="found the account 999999999999, expected 111122223333, the account of stage"):
        deploy.deploy("stage", folder=EXAMPLE)
    assert ran == []


def test_cdk_looks_at_stacks_of_the_local_aws_sooner() -> None:
    # The second timer would end first, unless the first one is CDK's.
    script = "for (const ms of [5000, 2500]) setTimeout(() => { console.log(ms); process.exit() }, ms)"
    command = [str(Path(sys.executable).with_name("node")), "--require", str(local.IMPATIENT), "--eval", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "5000\n"


def test_where_no_data_stays_cdk_deploys_what_was_synthesized_and_checked(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    answer(monkeypatch, CloudFormation({}))
    deploy.deploy("dev", folder=EXAMPLE)
    (command,) = ran
    assert command[command.index("--app") + 1] == str(EXAMPLE.synthesized)
    assert command[-2:] == ["--require-approval", "broadening"]


def test_the_stacks_of_another_lake_are_not_deployed_over(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    tags = {"headwater-stage-lake": [{"Key": LAKE_TAG, "Value": "shop"}]}
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}, tags=tags))
    with pytest.raises(UserError, match="found the stack of the lake shop, expected a stack of the lake example"):
        deploy.deploy("stage", folder=EXAMPLE)
    assert ran == []


@pytest.mark.parametrize("name", ["headwater-dev-lake", "shop-stage-lake"])
def test_a_lake_may_share_an_account_with_other_environments(
    name: str, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    tags = {name: [{"Key": LAKE_TAG, "Value": "shop"}]}
    answer(monkeypatch, CloudFormation({name: "UPDATE_COMPLETE"}, tags=tags))
    deploy.deploy("stage", folder=EXAMPLE)
    assert ran


@pytest.mark.parametrize(
    ("deployed", "known", "advice"),
    [
        ("2", 2, r"expected 2, with which the stack headwater-stage-lake was deployed: a format is never lowered"),
        ("3", 2, r"expected 3, .* This release knows at most 2: use a release that knows 3$"),
    ],
)
def test_a_lower_format_than_is_deployed_is_refused(
    deployed: str, known: int, advice: str, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    monkeypatch.setattr(model, "LAKE_FORMAT", known)
    outputs = {lake_format.OUTPUT: deployed}
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}, outputs=outputs))
    with pytest.raises(UserError, match=rf"^config/stage\.yaml: lake\.format: found 1, {advice}"):
        deploy.deploy("stage", folder=EXAMPLE)
    assert ran == []


@pytest.mark.parametrize("outputs", [{}, {lake_format.OUTPUT: "1"}])
def test_a_format_is_deployed_over_the_same_or_none(
    outputs: dict[str, str], monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}, outputs=outputs))
    deploy.deploy("stage", folder=EXAMPLE)
    assert ran


@pytest.mark.parametrize("environment", ["dev", "stage"])
def test_a_deploy_lists_the_stacks_of_the_account_once(
    environment: str, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    synthesize(monkeypatch, "database", "lake", environment=environment)
    cloudformation = CloudFormation({})
    answer(monkeypatch, cloudformation)
    deploy.deploy(environment, folder=EXAMPLE)
    assert cloudformation.listings == 1
    assert ran


@pytest.mark.parametrize(
    ("known", "stack", "said"),
    [(1, [], False), (2, [], True), (2, ["--stack", "lake"], False)],
)
def test_deploy_says_when_the_format_may_be_raised(
    known: int, stack: list[str], said: bool, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    monkeypatch.setattr(model, "LAKE_FORMAT", known)
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}))
    done = CliRunner().invoke(app, ["deploy", "--env", "stage", *stack], catch_exceptions=False)
    assert ran
    lines = [line for line in done.output.splitlines() if "format" in line]
    advice = (
        "config/stage.yaml: lake.format is 1, and this release knows 2. As long as it is 1, you can go back to a ",
        "Once you do not need that release any more, write 2 and deploy: lake.format is never lowered (docs/dec",
    )
    assert len(lines) == (len(advice) if said else 0)
    assert all(line.startswith(begin) for line, begin in zip(lines, advice, strict=False))


def test_the_advised_format_is_taken_and_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[str]]
) -> None:
    monkeypatch.setattr(model, "LAKE_FORMAT", 2)
    text = set_value((EXAMPLE.config / "stage.yaml").read_text(), ("lake", "format"), "2")
    (tmp_path / "stage.yaml").write_text(text)
    raised = read_environment("stage", tmp_path)
    outputs = {lake_format.OUTPUT: "1"}
    answer(monkeypatch, CloudFormation({"headwater-stage-lake": "UPDATE_COMPLETE"}, outputs=outputs))
    monkeypatch.setattr(synthesis, "synthesize", lambda *_: raised)
    done = CliRunner().invoke(app, ["deploy", "--env", "stage"], catch_exceptions=False)
    assert ran
    assert "format" not in done.output


def test_a_folder_that_wants_another_release_is_not_synthesized(tmp_path: Path) -> None:
    folder = LakeFolder.make(tmp_path / "lake", "shop")
    (folder.root / FILE).write_text("name: shop\nrelease: 0.1.0\n")
    with pytest.raises(UserError, match=r"headwater\.yaml: release: found 0\.1\.0, expected .* use \./headwater"):
        synthesis.synthesize(folder, "dev")


@pytest.mark.parametrize(("wanted", "runs"), [(COMMIT, True), (COMMIT.replace("0", "1"), False)])
def test_a_folder_may_want_the_commit_that_runs(
    wanted: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clones, "release", lambda: (COMMIT, None))
    folder = LakeFolder.make(tmp_path / "lake", "shop")
    (folder.root / FILE).write_text(f"name: shop\nrelease: {wanted}\n")
    with nullcontext() if runs else pytest.raises(UserError, match=f"release: found {wanted}, expected "):
        synthesis.refuse_another_release(folder)


def test_a_release_is_its_tag_whatever_its_version_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LakeFolder.make(tmp_path / "lake", "shop")
    (folder.root / FILE).write_text("name: shop\nrelease: 9.1.0\n")
    monkeypatch.setattr(clones, "release", lambda: ("9.1.0", "f" * 40))
    synthesis.refuse_another_release(folder)

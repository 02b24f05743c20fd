"""``headwater destroy`` beside an existing database says last that a replication slot is left, and how it goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from moto import mock_aws
from typer.testing import CliRunner, Result

from headwater.cli import app
from headwater.commands import destroy
from headwater.definitions.left_slot import parameter
from tests.unit.conftest import EXISTING, REGION, write_dev

WHY = "the environment keeps its data"
NAME = parameter("dev")

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Destroys the environment dev, whose file has these parts, with a CDK that ends with a status."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setattr(destroy, "CONFIG", tmp_path)

    def run(*parts: str, cdk: int = 0) -> Result:
        write_dev(tmp_path, *parts)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=cdk))
        return CliRunner().invoke(app, ["destroy", "--env", "dev"])

    return run


def record(parameters: Any) -> None:
    """Leave what the source connector's custom resource leaves."""
    parameters.put_parameter(Name=NAME, Value=WHY, Type="String")


@mock_aws
def test_a_slot_that_stays_is_told_last_with_a_status_of_its_own(run: Run) -> None:
    parameters = boto3.client("ssm", REGION)
    record(parameters)
    done = run(EXISTING["database"])
    assert done.exit_code == destroy.SLOT_LEFT == 4
    first, *_, last = done.output.splitlines()
    assert first == f"The replication slot headwater of rental on rental.example.com:5433 stays: {WHY}."
    assert "until the disk is full" in done.output
    assert "  SELECT pg_drop_replication_slot('headwater')\n" in done.output
    address = "--host rental.example.com --port 5433 --database rental"
    assert last == f"  .venv/bin/headwater db release {address} --user postgres"
    # It was said.
    assert (run(EXISTING["database"]).exit_code, run(EXISTING["database"]).output) == (0, "")


@mock_aws
def test_it_is_told_too_where_the_deletion_fails_with_its_status(run: Run) -> None:
    record(boto3.client("ssm", REGION))
    done = run(EXISTING["database"], cdk=7)
    assert done.exit_code == 7
    assert f"stays: {WHY}." in done.output


def test_where_nobody_can_say_it_the_slot_may_be_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(boto3, "client", lambda *_, **__: SimpleNamespace(get_parameter=refuse))
    done = run(EXISTING["database"])
    assert done.exit_code == destroy.SLOT_LEFT
    assert "may be left: Unable to locate credentials" in done.output


@mock_aws
def test_of_a_database_that_goes_too_nothing_is_told(run: Run) -> None:
    record(boto3.client("ssm", REGION))
    done = run()
    assert (done.exit_code, done.output) == (0, "")


@mock_aws
def test_stacks_in_aws_are_synthesized_before_they_are_destroyed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def cdk(command: list[str], **_: Any) -> SimpleNamespace:
        ran.append(command)
        return SimpleNamespace(returncode=0)

    run()
    monkeypatch.setattr(subprocess, "run", cdk)
    assert CliRunner().invoke(app, ["destroy", "--env", "dev"]).exit_code == 0
    # What was synthesized last may have another kind of source.
    assert [command[1:] for command in ran] == [["--no-notices", "--context", "env=dev", "destroy", "--all"]]

"""Secrets Manager of the local AWS: the steps of a rotation, and a rotation that fails."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headwater.waiting import wait_until
from rig.local_aws.account import LocalAccount
from rig.local_aws.resources import Properties
from rig.local_aws.rotation import SCHEDULE, Rotations

# Writes down its steps, leaves a pending version behind, and fails where it is told to.
FUNCTION = """
import boto3, pathlib
folder = pathlib.Path({folder!r})
def rotate(event, context):
    with (folder / "steps").open("a") as steps:
        steps.write(event["Step"] + " " + event["ClientRequestToken"] + chr(10))
    if (folder / "fails").exists() and event["Step"] == "setSecret":
        raise ValueError("no right")
"""
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
STEPS = ["createSecret", "setSecret", "testSecret", "finishSecret"]


@dataclass
class Rotated:
    """A secret that a function rotates, which works in a folder."""

    account: LocalAccount
    rotations: Rotations
    folder: Path
    secret: str

    def steps(self) -> list[str]:
        """The steps that were taken, and for which versions."""
        path = self.folder / "steps"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def rotated(account: LocalAccount, tmp_path: Path) -> Rotated:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("rotation.py", FUNCTION.format(folder=str(tmp_path)))
    role = account.client("iam").create_role(RoleName=tmp_path.name, AssumeRolePolicyDocument=json.dumps(TRUST))
    function = account.client("lambda").create_function(
        FunctionName=tmp_path.name,
        Runtime="python3.11",
        Role=role["Role"]["Arn"],
        Handler="rotation.rotate",
        Code={"ZipFile": archive.getvalue()},
    )
    secret = account.client("secretsmanager").create_secret(Name=tmp_path.name, SecretString="{}")["ARN"]
    rotations = Rotations(account.context)
    described = {"SecretId": secret, "RotationLambdaARN": function["FunctionArn"], "RotateImmediatelyOnUpdate": False}
    rotations.types()[SCHEDULE].create("schedule", Properties(described))
    return Rotated(account, rotations, tmp_path, secret)


def ask(rotated: Rotated, **of: Any) -> str:
    answer = rotated.rotations.api.operations["RotateSecret"]({"SecretId": rotated.secret, **of})
    assert answer is not None
    return str(answer["VersionId"])


def test_who_asks_for_a_rotation_has_its_four_steps_taken_for_one_version(rotated: Rotated) -> None:
    assert rotated.steps() == []
    version = ask(rotated)
    wait_until("the rotation to end", lambda: len(rotated.steps()) == len(STEPS))
    assert rotated.steps() == [f"{step} {version}" for step in STEPS]


def test_a_step_that_fails_ends_the_rotation_and_counts_as_an_error_of_its_function(rotated: Rotated) -> None:
    (rotated.folder / "fails").touch()
    ask(rotated)

    def counted() -> bool:
        asked = {"Namespace": "AWS/Lambda", "MetricName": "Errors"}
        of = [{"Name": "FunctionName", "Value": rotated.folder.name}]
        return bool(rotated.account.client("cloudwatch").list_metrics(**asked, Dimensions=of)["Metrics"])

    def ended() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == f"rotation of {rotated.secret}"]

    wait_until("the rotation to end", lambda: ended() and counted())
    assert [step.split()[0] for step in rotated.steps()] == STEPS[:2]


def test_a_rotation_waits_for_the_one_before_it_to_be_complete(rotated: Rotated) -> None:
    secrets = rotated.account.client("secretsmanager")
    pending = {"SecretId": rotated.secret, "VersionStages": ["AWSPENDING"]}
    version = secrets.put_secret_value(**pending, SecretString="{}")["VersionId"]
    with pytest.raises(Exception, match="not complete"):
        ask(rotated)
    secrets.update_secret_version_stage(SecretId=rotated.secret, VersionStage="AWSPENDING", RemoveFromVersionId=version)
    ask(rotated)
    wait_until("the rotation to end", lambda: len(rotated.steps()) == len(STEPS))


def test_a_secret_that_nothing_here_rotates_is_not_rotated(rotated: Rotated) -> None:
    of_aws = {"SecretId": rotated.secret, "RotationLambdaARN": "arn:aws:lambda:::function:aws", "RotationRules": {}}
    rotated.rotations.types()[SCHEDULE].delete(rotated.secret, Properties({}))
    rotated.rotations.types()[SCHEDULE].create("schedule", Properties(of_aws))
    with pytest.raises(Exception, match="has no function that rotates"):
        ask(rotated)
    # The account's own API asks the same.
    with pytest.raises(ClientError, match="has no function that rotates"):
        rotated.account.client("secretsmanager").rotate_secret(SecretId=rotated.secret)

"""What several unit tests need."""

import copy
import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session
import pytest
import yaml
from moto import mock_aws

from headwater.lake_folder import EXAMPLE

BUCKET = "headwater-test"
REGION = "eu-central-1"
"""Of all environments."""
EXISTING = {
    "database": """database:
  kind: existing
  host: rental.example.com
  port: 5433
  name: rental
  secret: rental/headwater-cdc
  secret_key: null
  root_certificate: null
  cidr: 10.60.0.0/16
  peering: null
  monitored: null
""",
    "key_value": """key_value:
  kind: existing
  stream_retention_hours: 24
  tables: [{contract: accounts, table: Accounts, stream: account-changes, stream_key: null}]
""",
}
"""Existing sources, as parts of an environment's file."""


def write_dev(folder: Path, *parts: str) -> None:
    """Write the environment dev with these parts, in place of its own."""
    text = (EXAMPLE.config / "dev.yaml").read_text()
    for part in parts:
        name = part.partition(":")[0]
        text = re.sub(rf"^{name}:\n(  .*\n)+", "", text, flags=re.MULTILINE)
    (folder / "dev.yaml").write_text(text + "".join(parts))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.fixture(scope="session", autouse=True)
def _shared_descriptions() -> Iterator[None]:
    """Let all sessions of boto3 share the descriptions of AWS's services. Each would read them anew, which takes tenths
    of a second for every client."""
    shared = functools.cache(botocore.session.create_loader)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Parse each text of YAML once, and give each reader a copy of its own. These tests read the same few files
    thousands of times, and PyYAML takes tens of milliseconds for one."""
    load = yaml.load
    parsed = functools.lru_cache(maxsize=64)(load)

    def load_copy(stream: Any, Loader: Any) -> Any:  # noqa: N803 (PyYAML's name)
        return copy.deepcopy(parsed(stream, Loader)) if isinstance(stream, str) else load(stream, Loader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "load", load_copy)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_settings_of_aws() -> Iterator[None]:
    """Take away the variables by which tests of other folders send AWS's clients to the parts that they started."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """An S3 client with an empty bucket, answered inside this process; a module's tests share it."""
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def deploy(s3: Any) -> Iterator[Callable[[str, str], None]]:
    """Makes the stack whose outputs say where an environment's lake is."""
    cloudformation = boto3.client("cloudformation", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    made = []

    def make(environment: str, lake: str) -> None:
        told = {"LakeUri": lake, "LandingUri": f"{lake}/landing"}
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in told.items()},
        }
        stack = f"headwater-{environment}-lake"
        cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(template))
        made.append(stack)

    yield make
    for stack in made:
        cloudformation.delete_stack(StackName=stack)

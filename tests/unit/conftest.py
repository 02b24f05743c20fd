"""What several unit tests need."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from headwater.paths import CONFIG

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
"""Sources that are there, as parts of an environment's file."""


def write_dev(folder: Path, *parts: str) -> None:
    """Write the environment dev with these parts in place of its own."""
    text = (CONFIG / "dev.yaml").read_text()
    for part in parts:
        name = part.partition(":")[0]
        text, replaced = re.subn(rf"^{name}:\n(  .*\n)+", part, text, flags=re.MULTILINE)
        assert replaced == 1, name
    (folder / "dev.yaml").write_text(text)


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """An S3 client with an empty bucket, answered inside this process; a module's tests share it."""
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def deploy(s3: Any) -> Iterator[Callable[[str, str], None]]:
    """Makes the stack of an environment that tells where its lake is, in the account that answers."""
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

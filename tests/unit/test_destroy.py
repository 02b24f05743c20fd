"""``headwater destroy`` beside an existing database says last that a replication slot is left, and how it goes."""

from __future__ import annotations

import json
import shutil
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
from headwater.commands import destroy, synthesis
from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.left_slot import parameter
from headwater.environment.account import LAKE_TAG
from headwater.environment.source_stacks import SOURCES_OUTPUT
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, LakeFolder
from tests.unit.conftest import EXISTING, REGION, write_dev

WHY = "the environment keeps its data"
NAME = parameter("dev")
ACCOUNT = "123456789012"
"""The account that moto answers for."""
OTHER_ACCOUNT = "111122223333"
"""The account in stage's file."""

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeFolder:
    """The lake folder of the current folder, with the example's contracts and no environment."""
    made = LakeFolder.make(tmp_path / "lake", "test")
    shutil.copytree(EXAMPLE.contracts, made.contracts, dirs_exist_ok=True)
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def run(folder: LakeFolder, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Destroys the environment dev, whose file has these parts, with a CDK that ends with a status."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setattr(synthesis, "synthesize", lambda folder, name: None)

    def run(*parts: str, cdk: int = 0) -> Result:
        write_dev(folder.config, *parts)
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
    assert "That fills the disk, unless max_slot_wal_keep_size is set" in done.output
    assert "  SELECT pg_drop_replication_slot('headwater')\n" in done.output
    address = "--host rental.example.com --port 5433 --database rental"
    assert last == f"  headwater db release {address} --user postgres"
    # It was said.
    assert (run(EXISTING["database"]).exit_code, run(EXISTING["database"]).output) == (0, "")


@mock_aws
def test_it_is_told_too_where_the_deletion_fails_with_its_status(run: Run) -> None:
    record(boto3.client("ssm", REGION))
    done = run(EXISTING["database"], cdk=7)
    assert done.exit_code == 7
    assert f"stays: {WHY}." in done.output


@mock_aws
def test_where_nobody_can_say_it_the_slot_may_be_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise NoCredentialsError

    create = boto3.client
    silent = SimpleNamespace(get_parameter=refuse)
    monkeypatch.setattr(boto3, "client", lambda name, *a, **k: silent if name == "ssm" else create(name, *a, **k))
    done = run(EXISTING["database"])
    assert done.exit_code == destroy.SLOT_LEFT
    assert "failed: Unable to locate credentials" in done.output


@mock_aws
def test_of_a_database_that_goes_too_nothing_is_told(run: Run) -> None:
    record(boto3.client("ssm", REGION))
    done = run()
    assert (done.exit_code, done.output) == (0, "")


TEMPLATE = """{"Resources": {
  "Table": {"Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain", "Properties": {
    "TableName": "TABLE", "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}},
  "Topic": {"Type": "AWS::SNS::Topic"}
}}"""


@pytest.fixture
def relational(folder: LakeFolder) -> None:
    """The lake folder has no contract of DynamoDB, and some of PostgreSQL."""
    (folder.contracts / "accounts.yaml").unlink()


def create(environment: str, *parts: str, sources: str | None = "postgresql", lake: str = "test") -> Any:
    """Create stacks of an environment, whose lake is of these sources, and return the client that did."""
    cloudformation = boto3.client("cloudformation", REGION)
    for part in parts:
        template = json.loads(TEMPLATE.replace("TABLE", f"{environment}-{part}"))
        if part == "lake" and sources is not None:
            template["Outputs"] = {SOURCES_OUTPUT: {"Value": sources}}
        cloudformation.create_stack(
            StackName=f"headwater-{environment}-{part}",
            TemplateBody=json.dumps(template),
            Tags=[{"Key": LAKE_TAG, "Value": lake}],
        )
    return cloudformation


def there(cloudformation: Any) -> set[str]:
    return {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}


@mock_aws
def test_a_source_without_a_contract_is_deleted_last_stack_first(run: Run, relational: None) -> None:
    run()
    cloudformation = create("dev", "lake", "key-value", "glue-job")
    cloudformation.create_stack(StackName="glue-job", TemplateBody=TEMPLATE)
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "dynamodb"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == ["Deleting headwater-dev-glue-job", "Deleting headwater-dev-key-value"]
    assert there(cloudformation) == {"headwater-dev-lake", "glue-job"}
    again = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "dynamodb"], catch_exceptions=False)
    assert again.output == "No stack of DynamoDB is left in dev\n"


@mock_aws
def test_a_stack_with_data_stays_where_data_is_kept(relational: None, run: Run, folder: LakeFolder) -> None:
    (folder.config / "stage.yaml").write_text(
        (EXAMPLE.config / "stage.yaml").read_text().replace(OTHER_ACCOUNT, ACCOUNT)
    )
    cloudformation = create("stage", "lake", "key-value", "glue-job")
    done = CliRunner().invoke(app, ["destroy", "--env", "stage", "--source", "dynamodb"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    first, last = done.output.splitlines()
    assert first == "Deleting headwater-stage-glue-job"
    assert last == "headwater-stage-key-value stays, and holds stage-key-value (AWS::DynamoDB::Table)"
    assert there(cloudformation) == {"headwater-stage-lake", "headwater-stage-key-value"}


@mock_aws
@pytest.mark.parametrize("options", [[], ["--source", "dynamodb"]])
def test_nothing_is_deleted_in_another_account(
    options: list[str], relational: None, run: Run, folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    shutil.copy(EXAMPLE.config / "stage.yaml", folder.config)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("cdk was run"))
    cloudformation = create("stage", "lake", "glue-job")
    done = CliRunner().invoke(app, ["destroy", "--env", "stage", *options])
    assert isinstance(done.exception, UserError)
    expected = f"credentials: found the account {ACCOUNT}, expected {OTHER_ACCOUNT}, the account of stage"
    assert str(done.exception) == expected
    assert len(there(cloudformation)) == 2


@mock_aws
@pytest.mark.parametrize("sources", ["dynamodb,postgresql", "dynamodb", None])
def test_a_source_that_the_deployed_lake_has_is_not_deleted(sources: str | None, relational: None, run: Run) -> None:
    run()
    cloudformation = create("dev", "lake", "key-value", "glue-job", sources=sources)
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "dynamodb"])
    assert isinstance(done.exception, UserError)
    assert f"headwater-dev-lake: found the output Sources {sources!r}, expected it without dynamodb" in str(
        done.exception
    )
    assert "run `headwater deploy --env dev` first" in str(done.exception)
    assert len(there(cloudformation)) == 3


@mock_aws
def test_no_stack_goes_while_those_of_a_gone_source_are_left(
    relational: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run().exit_code == 0
    create("dev", "lake", "connect", "key-value", "glue-job")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("cdk was run"))
    done = CliRunner().invoke(app, ["destroy", "--env", "dev"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("found headwater-dev-glue-job, headwater-dev-key-value of DynamoDB, expected")
    assert str(done.exception).endswith(": headwater destroy --env dev --source dynamodb")


@mock_aws
def test_a_stack_that_stays_with_its_data_stops_no_deletion(relational: None, run: Run, folder: LakeFolder) -> None:
    run()
    (folder.config / "stage.yaml").write_text(
        (EXAMPLE.config / "stage.yaml").read_text().replace(OTHER_ACCOUNT, ACCOUNT)
    )
    create("stage", "lake", "key-value")
    assert CliRunner().invoke(app, ["destroy", "--env", "stage"]).exit_code == 0


@mock_aws
def test_a_protected_stack_is_named_with_the_command_that_lifts_it(
    run: Run, relational: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    cloudformation = create("dev", "glue-job")
    cloudformation.create_stack(
        StackName="headwater-dev-key-value", TemplateBody=TEMPLATE, EnableTerminationProtection=True
    )
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "dynamodb"])
    assert isinstance(done.exception, UserError)
    assert "found headwater-dev-key-value protected from deletion" in str(done.exception)
    command = str(done.exception).splitlines()[-1]
    assert command == (
        "  aws cloudformation update-termination-protection --no-enable-termination-protection "
        f"--region {REGION} --stack-name headwater-dev-key-value"
    )
    assert len(there(cloudformation)) == 2


@mock_aws
def test_a_slot_that_the_source_leaves_is_told_too(run: Run, folder: LakeFolder) -> None:
    for contract in of_database(read_contracts(folder.contracts), POSTGRESQL):
        (folder.contracts / f"{contract.table}.yaml").unlink()
    run(EXISTING["database"])
    cloudformation = create("dev", "network", "connect")
    record(boto3.client("ssm", REGION))
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "postgresql"], catch_exceptions=False)
    assert done.exit_code == destroy.SLOT_LEFT
    assert done.output.startswith(
        "Deleting headwater-dev-connect\nDeleting headwater-dev-network\nThe replication slot"
    )
    assert there(cloudformation) == set()


@mock_aws
def test_a_source_that_has_a_contract_is_not_deleted(run: Run, relational: None) -> None:
    run()
    create("dev", "connect")
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", "--source", "postgresql"])
    assert isinstance(done.exception, UserError)


@mock_aws
def test_stacks_in_aws_are_synthesized_before_they_are_destroyed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def cdk(command: list[str], **_: Any) -> SimpleNamespace:
        ran.append(command)
        return SimpleNamespace(returncode=0)

    run()
    monkeypatch.setattr(subprocess, "run", cdk)
    # What was synthesized last may have another kind of source.
    monkeypatch.setattr(synthesis, "synthesize", lambda folder, name: ran.append(["synth", name]))
    assert CliRunner().invoke(app, ["destroy", "--env", "dev"]).exit_code == 0
    synthesized, (_, *arguments) = ran
    assert synthesized == ["synth", "dev"]
    assert arguments[-4:] == ["destroy", "--all", "--app", str(LakeFolder.find().synthesized)]


@mock_aws
@pytest.mark.parametrize("options", [[], ["--source", "dynamodb"]])
def test_the_stacks_of_another_lake_are_not_deleted(options: list[str], relational: None, run: Run) -> None:
    run()
    cloudformation = create("dev", "lake", "glue-job", lake="shop")
    done = CliRunner().invoke(app, ["destroy", "--env", "dev", *options])
    assert isinstance(done.exception, UserError)
    assert "found the stack of the lake shop, expected a stack of the lake test, which headwater.yaml names" in str(
        done.exception
    )
    assert len(there(cloudformation)) == 2

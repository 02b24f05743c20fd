"""One deploy, no hand work after it: the custom resources, their order, and what they leave behind."""

import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from custom_resources import connector
from custom_resources.emr_step import step_name
from headwater.contract.model import Contract
from headwater.definitions import database_files, source_database
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.definitions.database_files import read_database_files
from headwater.definitions.lake_content import LakeContent
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars
from headwater.paths import ROOT
from stacks import application
from stacks.assets import Assets
from tests.modelled import Modelled
from tests.synth.conftest import Synthesized
from tests.synth.deployed import made
from tests.synth.example import example_content

HANDLERS = ("database_bootstrap", "connector", "emr_step")
# The functions with which CloudFormation fills in a value.
TOKENS = ("Ref", "Fn::GetAtt", "Fn::ImportValue", "Fn::Join", "Fn::Sub", "Fn::Select", "Fn::Split")


def as_handed_on(value: Any) -> Any:
    """A property as CloudFormation hands it to a custom resource: every value is text."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in TOKENS:
            return "filled in"
        return {key: as_handed_on(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_handed_on(inner) for inner in value]
    return value if isinstance(value, str) else json.dumps(value)


def depends_on(synthesized: Synthesized, part: str, name: str) -> set[str]:
    """Everything in its stack that a resource needs to be deployed first."""
    resources = synthesized.template(part)["Resources"]
    needed: set[str] = set()
    left = [name]
    while left:
        resource = resources[left.pop()]
        listed = resource.get("DependsOn", [])
        direct = {listed} if isinstance(listed, str) else set(listed)
        properties = json.dumps(resource.get("Properties", {}))
        direct |= {candidate for candidate in resources if f'"{candidate}"' in properties}
        left += direct - needed
        needed |= direct
    return needed


def test_the_functions_are_the_tested_modules_unchanged(every: Synthesized) -> None:
    ours = [
        function["Properties"]
        for function in every.resources("AWS::Lambda::Function").values()
        if function["Properties"]["Handler"].startswith("custom_resources.")
    ]
    handlers = {function["Handler"] for function in ours}
    assert {f"custom_resources.{name}.is_complete" for name in HANDLERS} <= handlers
    assert {"custom_resources.lifecycle.on_event", "custom_resources.emr_step.restart"} <= handlers
    (key,) = {function["Code"]["S3Key"] for function in ours}
    with zipfile.ZipFile(every.asset(key)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"custom_resources/{path.name}": path.read_bytes() for path in (ROOT / "custom_resources").glob("*.py")
        }


def test_the_statements_are_those_of_db_create(every: Synthesized) -> None:
    content = json.loads(every.asset(every.only("Custom::HeadwaterDatabase")["Statements"]).read_text())
    publication = json.loads(every.asset(every.only("Custom::HeadwaterPublication")["Statements"]).read_text())
    assert content["statements"] == source_database.created_statements()
    assert publication["statements"] == source_database.publication_statements(every.contracts)
    assert publication["tables"] == source_database.published_tables(every.contracts)


def test_every_statement_of_the_lake_folders_files_is_deployed(every: Synthesized) -> None:
    content = json.loads(every.asset(every.only("Custom::HeadwaterDatabase")["Statements"]).read_text())
    files = read_database_files(EXAMPLE.database)
    assert content.items() >= database_files.document(files).items()
    deployed = [statement["parameters"]["statement"] for file in content["files"] for statement in file["statements"]]
    assert deployed == [statement.text for file in files for statement in file.statements]


def test_without_sql_files_the_database_gets_what_capture_needs(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    bare = Synthesized(new_app(), settings, contracts, assets, LakeContent())
    content = json.loads(bare.asset(bare.only("Custom::HeadwaterDatabase")["Statements"]).read_text())
    assert content["statements"] == source_database.created_statements()
    assert content["files"] == []
    assert "northwind" not in json.dumps(content)


def test_the_roles_get_their_passwords_from_their_own_secrets(every: Synthesized) -> None:
    secrets = every.only("Custom::HeadwaterDatabase")["RoleSecrets"]
    assert set(secrets) == set(source_database.ROLES)
    for role, reference in secrets.items():
        (secret,) = [
            resource["Properties"]["GenerateSecretString"]
            for name, resource in every.resources("AWS::SecretsManager::Secret", "database").items()
            if name.partition("/")[2] in reference["Fn::ImportValue"]
        ]
        assert json.loads(secret["SecretStringTemplate"]) == {"username": role}


def test_the_database_is_filled_when_its_instances_answer(every: Synthesized) -> None:
    assert every.resources("AWS::RDS::DBInstance", "database")
    assert every.resources("Custom::HeadwaterDatabase", "database_content")
    assert every.stacks.database_content is not None
    assert every.stacks.database in every.stacks.database_content.dependencies


def test_msk_connect_understands_the_connectors(every: Synthesized) -> None:
    class MskConnect:
        def create_connector(self, **_: Any) -> None:
            return None

    resources = every.resources("Custom::HeadwaterConnector")
    assert len(resources) == 2
    for resource in resources.values():
        request = connector.wanted(as_handed_on(resource["Properties"]))
        Modelled("kafkaconnect", MskConnect()).create_connector(**request, tags={})
        assert connector.make(request)


def test_only_the_source_waits_for_the_slot(every: Synthesized) -> None:
    source, sink = (
        every.template("connect")["Resources"][f"{part}Connector"]["Properties"] for part in ("Source", "Sink")
    )
    assert source["Slot"]["Name"] == SLOT
    assert "Slot" not in sink
    publication = every.only("Custom::HeadwaterPublication")
    assert (publication["Slot"], publication["Publication"]) == (SLOT, PUBLICATION)


def test_the_publication_is_there_before_the_source_and_goes_after_it(every: Synthesized) -> None:
    assert "Publication" in depends_on(every, "connect", "SourceConnector")
    assert "SourceConnector" not in depends_on(every, "connect", "Publication")


def test_the_writer_starts_after_its_tables_and_is_followed_up_only_then(every: Synthesized) -> None:
    assert {every.stacks.lake, every.stacks.emr} <= set(made(every.stacks.emr_writer).dependencies)
    needed = depends_on(every, "emr_writer", "Writer")
    assert [name for name in needed if name.startswith("StepsRestart")]
    assert [name for name in needed if name.startswith("NodeRoleFetches")]
    rules = [name.partition("/")[2] for name in every.resources("AWS::Events::Rule", "emr_writer")]
    assert len(rules) == 2
    for rule in rules:
        assert "Writer" in depends_on(every, "emr_writer", rule)


def test_a_failed_step_leaves_the_cluster_alone_and_a_new_cluster_gets_the_step(every: Synthesized) -> None:
    assert every.resources("Custom::HeadwaterStep", "emr") == {}
    assert every.resources("AWS::EMR::Cluster", "emr_writer") == {}
    parameter = every.only("AWS::SSM::Parameter", "emr")
    assert parameter["Value"] == {"Ref": "Cluster"}
    template = every.template("emr_writer")
    asked = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": parameter["Name"]}
    (name,) = [name for name, declared in template["Parameters"].items() if declared == asked]
    assert template["Resources"]["Writer"]["Properties"]["ClusterId"] == {"Ref": name}
    # CloudFormation refuses to change an export that is imported, so none may hold what changes with the cluster.
    assert '{"Ref": "Cluster"}' not in json.dumps(
        [output["Value"] for output in every.template("emr")["Outputs"].values() if "Export" in output]
    )


def test_a_step_that_ends_is_added_again_by_the_clusters_events_and_by_a_schedule(every: Synthesized) -> None:
    rules = [rule["Properties"] for rule in every.resources("AWS::Events::Rule", "emr_writer").values()]
    (pattern,) = [rule["EventPattern"] for rule in rules if "EventPattern" in rule]
    assert pattern["source"] == ["aws.emr"]
    cluster = every.only("Custom::HeadwaterStep")["ClusterId"]
    assert pattern["detail"]["clusterId"] == [cluster]
    assert {"FAILED", "CANCELLED", "INTERRUPTED", "COMPLETED", "WAITING"} == set(pattern["detail"]["state"])
    assert [rule["ScheduleExpression"] for rule in rules if "ScheduleExpression" in rule] == ["rate(10 minutes)"]
    (restart,) = [
        function["Properties"]
        for function in every.resources("AWS::Lambda::Function", "emr_writer").values()
        if function["Properties"]["Handler"] == "custom_resources.emr_step.restart"
    ]
    assert restart["Environment"]["Variables"] == {
        "CLUSTER_ID": cluster,
        "STEP_NAME": every.only("Custom::HeadwaterStep")["Name"],
    }


def test_a_changed_file_is_another_step(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], tmp_path: Path
) -> None:
    build = tmp_path / "build"
    shutil.copytree(assets.build, build)
    settings = read_environment("dev", EXAMPLE.config)

    def name(contracts: Sequence[Contract] = contracts) -> str:
        stack = application.build(
            new_app(), settings, contracts, example_content(contracts), Assets(ROOT, build, assets.lake)
        ).emr_writer
        resources = cdk.assertions.Template.from_stack(made(stack)).to_json()["Resources"]
        return step_name("x", [json.dumps(argument) for argument in resources["Writer"]["Properties"]["Args"]])

    names = [name()]
    assert name() == names[0]
    for changed in ("headwater.zip", f"jars/{jars.HUDI}", "lake_jvm/headwater-lake.jar"):
        (build / changed).write_text("changed")
        names.append(name())
        assert len(set(names)) == len(names), changed
    assert name([replace(contract, buckets=contract.buckets + 1) for contract in contracts]) not in names


@pytest.mark.parametrize("snapshot_mode", ["initial", "no_data"])
def test_a_writer_waits_for_rows_where_the_source_connector_reads_none(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], snapshot_mode: str
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    connect = msgspec.structs.replace(settings.postgresql.connect, snapshot_mode=snapshot_mode)
    built = application.build(
        new_app(), msgspec.structs.replace(settings, connect=connect), contracts, example_content(contracts), assets
    )
    writer = cdk.assertions.Template.from_stack(made(built.emr_writer)).to_json()["Resources"]["Writer"]
    assert ("--await-backfill" in writer["Properties"]["Args"]) == (snapshot_mode == "no_data")
    template = json.dumps(cdk.assertions.Template.from_stack(made(built.connect)).to_json())
    assert template.count(f'"snapshot.mode": "{snapshot_mode}"') == 1


def test_a_raised_generation_replaces_cluster_and_step_and_nothing_else(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    settings = read_environment("dev", EXAMPLE.config)
    before, after = (
        Synthesized(
            new_app(),
            msgspec.structs.replace(
                settings, emr=msgspec.structs.replace(settings.postgresql.emr, generation=generation)
            ),
            contracts,
            assets,
        )
        for generation in (1, 2)
    )
    changed = {
        re.sub(r"[0-9A-F]{8}$", "", f"{part}/{name}"): {
            key for key in resource["Properties"] if resource["Properties"][key] != after_[name]["Properties"][key]
        }
        for part in before.parts()
        for after_ in [after.template(part)["Resources"]]
        for name, resource in before.template(part)["Resources"].items()
        if resource != after_[name]
    }
    # The notification of a cluster's errors is for the new one, and is changed in place.
    assert changed == {"emr/Cluster": {"Name"}, "monitoring/ClusterFailed": {"EventPattern"}}
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", "AWS::EMR::Cluster").schema
    assert "/properties/Name" in schema["createOnlyProperties"]
    # The step's resource takes the new cluster's id from the parameter, and adds the step there.
    parameter = after.only("AWS::SSM::Parameter", "emr")
    assert parameter["Value"] == {"Ref": "Cluster"}


def test_no_function_logs_for_ever(every: Synthesized) -> None:
    for name, function in every.resources("AWS::Lambda::Function").items():
        part = name.partition("/")[0]
        group = function["Properties"].get("LoggingConfig", {}).get("LogGroup", {}).get("Ref")
        assert group is not None, f"{name} makes a log group of its own"
        assert "RetentionInDays" in every.template(part)["Resources"][group]["Properties"], name


def test_log_groups_that_services_would_make_are_the_stacks(every: Synthesized) -> None:
    names = {
        group["Properties"]["LogGroupName"]
        for group in every.resources("AWS::Logs::LogGroup", "database", "database_content").values()
        if isinstance(group["Properties"].get("LogGroupName"), str)
    }
    cluster = every.only("AWS::RDS::DBCluster")["DBClusterIdentifier"]
    rotation = every.only("AWS::Serverless::Application")["Parameters"]["functionName"]
    assert {f"/aws/rds/cluster/{cluster}/postgresql", f"/aws/lambda/{rotation}"} <= names


def test_no_two_log_groups_have_one_name(every: Synthesized) -> None:
    names = Counter(
        json.dumps(group["Properties"].get("LogGroupName", name))
        for name, group in every.resources("AWS::Logs::LogGroup").items()
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_deleting_leaves_nothing_where_data_is_deleted(dev: Synthesized) -> None:
    kept = [
        f"{part}/{name}"
        for part in dev.parts()
        for name, resource in dev.template(part)["Resources"].items()
        if "Delete" not in (resource.get("DeletionPolicy", "Delete"), resource.get("UpdateReplacePolicy", "Delete"))
        or resource.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate", "Snapshot")
    ]
    assert kept == []


def test_a_replaced_cluster_is_not_kept_alive(every: Synthesized) -> None:
    assert every.only("AWS::EMR::Cluster")["Instances"]["TerminationProtected"] is False

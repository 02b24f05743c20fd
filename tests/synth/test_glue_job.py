"""The streaming jobs of the key-value pipeline, and what keeps them running."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import aws_cdk as cdk
import msgspec
import pytest
from aws_cdk.assertions import Template

from headwater.contract.model import Contract
from headwater.contract.reading import parse_contract
from headwater.definitions import spark_settings
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.lake.job.streamed_source import StreamedSource
from headwater.lake_folder import EXAMPLE
from headwater.packaging import jars
from headwater.paths import ROOT
from stacks import application
from stacks.assets import Assets
from tests.synth.deployed import made
from tests.synth.example import example_content

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


def job(synthesized: "Synthesized") -> dict[str, Any]:
    return synthesized.only("AWS::Glue::Job")


def arguments(synthesized: "Synthesized") -> dict[str, Any]:
    return dict(job(synthesized)["DefaultArguments"])


def deployed(value: Any) -> str:
    """A value of a template as CloudFormation hands it over; what it looks up is an ``x``."""
    if isinstance(value, str):
        return value
    parts = value["Fn::Join"][1] if "Fn::Join" in value else [value.get("Fn::Sub", "x")]
    return "".join(part if isinstance(part, str) else part.get("Fn::Sub", "x") for part in parts)


def only(synthesized: "Synthesized", type_: str) -> tuple[str, dict[str, Any]]:
    """Logical id and resource of the only resource of a type in the stack of the job."""
    ((name, resource),) = synthesized.resources(type_, "glue_job").items()
    return name.partition("/")[2], resource


def policy(synthesized: "Synthesized", role: str) -> list[dict[str, Any]]:
    """The statements of the role whose logical id begins with ``role``."""
    (statements,) = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in synthesized.resources("AWS::IAM::Policy", "glue_job").items()
        if name.startswith(f"glue_job/{role}DefaultPolicy")
    ]
    return list(statements)


def test_the_job_streams_on_the_configured_workers(every: "Synthesized") -> None:
    configured = every.environment.dynamodb.glue
    assert job(every)["Command"]["Name"] == "gluestreaming"
    assert job(every)["GlueVersion"] == configured.version
    assert (job(every)["WorkerType"], job(every)["NumberOfWorkers"]) == (configured.worker_type, configured.workers)


def test_one_run_at_a_time_lasts_as_long_as_glue_lets_it(every: "Synthesized") -> None:
    assert job(every)["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    assert job(every)["Timeout"] == 10079
    assert job(every)["MaintenanceWindow"] == every.environment.dynamodb.glue.maintenance_window
    # The rules start the next run: a retry of Glue's own would compete with them.
    assert job(every)["MaxRetries"] == 0


def test_hudi_comes_first_on_the_class_path_and_is_ours(every: "Synthesized") -> None:
    assert [path.suffix for path in every.assets(arguments(every)["--extra-jars"])] == [".jar", ".jar"]
    assert arguments(every)["--user-jars-first"] == "true"
    assert "--datalake-formats" not in arguments(every)


def test_spark_is_set_as_in_the_local_run(every: "Synthesized") -> None:
    settings = dict(setting.split("=", 1) for setting in arguments(every)["--conf"].split(" --conf "))
    assert settings == spark_settings.shared()


def test_the_script_takes_the_arguments_of_the_job(dev: "Synthesized") -> None:
    # Glue hands the job's own arguments to the script too, and adds some.
    passed = [text for name, value in arguments(dev).items() for text in (name, deployed(value))]
    options = StreamedSource().arguments([*passed, "--JOB_NAME", "headwater-dev-key-value", "--JOB_RUN_ID", "jr_1"])
    assert set(options.stream_arn) == set(options.source_table) == {"accounts"}
    assert options.database == "headwater_dev"
    assert options.source_table == {"accounts": "headwater-dev-accounts"}
    assert [uri.rpartition(".")[2] for uri in options.contract] == ["json"]
    assert options.window_seconds == 30
    assert options.epoch == 1


def test_the_job_reads_the_stream_of_its_table(every: "Synthesized") -> None:
    name = f"headwater-{every.environment.name}-accounts"
    assert arguments(every)["--source-table"] == f"accounts={name}"
    assert arguments(every)["--database"] == f"headwater_{every.environment.name}"
    assert deployed(arguments(every)["--stream-arn"]).endswith(f":stream/{name}")


def test_the_role_reads_one_stream_and_writes_one_table(every: "Synthesized") -> None:
    text = json.dumps(policy(every, "Rolekeyvalue"))
    assert "kinesis:GetRecords" in text
    assert "/lake/accounts/*" in text
    for foreign in ("orders", "customers", "landing", '"/lake/*"', "dynamodb:"):
        assert foreign not in text


def test_metrics_go_to_one_namespace_only(every: "Synthesized") -> None:
    (statement,) = [
        statement for statement in policy(every, "Rolekeyvalue") if statement["Action"] == "cloudwatch:PutMetricData"
    ]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Headwater"}}


def test_data_logs_and_bookmarks_are_encrypted(every: "Synthesized") -> None:
    name, security = only(every, "AWS::Glue::SecurityConfiguration")
    assert job(every)["SecurityConfiguration"] == {"Ref": name}
    encryption = security["Properties"]["EncryptionConfiguration"]
    assert [encrypted["S3EncryptionMode"] for encrypted in encryption["S3Encryptions"]] == ["SSE-KMS"]
    assert encryption["CloudWatchEncryption"]["CloudWatchEncryptionMode"] == "SSE-KMS"
    assert encryption["JobBookmarksEncryption"]["JobBookmarksEncryptionMode"] == "CSE-KMS"


def test_logs_are_kept_under_the_names_that_glue_gives_them(every: "Synthesized") -> None:
    security, _ = only(every, "AWS::Glue::SecurityConfiguration")
    (role,) = [
        name.partition("/")[2]
        for name in every.resources("AWS::IAM::Role", "glue_job")
        if name.startswith("glue_job/Rolekeyvalue")
    ]
    prefix = arguments(every)["--custom-logGroup-prefix"]
    groups = {
        json.dumps(group["Properties"]["LogGroupName"]): group["Properties"]
        for group in every.resources("AWS::Logs::LogGroup", "glue_job").values()
    }
    for kind in ("error", "output"):
        name = {"Fn::Join": ["", [f"{prefix}/", {"Ref": security}, "-role/", {"Ref": role}, f"/{kind}"]]}
        assert groups[json.dumps(name)]["RetentionInDays"] == every.environment.log_days
        assert "KmsKeyId" in groups[json.dumps(name)]


def test_the_run_begins_once_the_job_its_rights_and_its_logs_are_there(every: "Synthesized") -> None:
    _, run = only(every, "Custom::HeadwaterGlueRun")
    name, definition = only(every, "AWS::Glue::Job")
    assert run["Properties"]["Name"] == job(every)["Name"]
    assert name in run["DependsOn"]
    needed = definition["DependsOn"]
    for part in ("RolekeyvalueDefaultPolicy", "ErrorLogs", "OutputLogs"):
        assert [needed_id for needed_id in needed if needed_id.startswith(part)], part


def test_whatever_ends_a_run_starts_the_next(every: "Synthesized") -> None:
    rules = every.resources("AWS::Events::Rule", "glue_job")
    (ended,) = [rule["Properties"] for rule in rules.values() if "EventPattern" in rule["Properties"]]
    assert ended["EventPattern"]["detail"]["jobName"] == [job(every)["Name"]]
    assert {"SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED", "EXPIRED"} <= set(ended["EventPattern"]["detail"]["state"])
    (regularly,) = [rule["Properties"] for rule in rules.values() if "ScheduleExpression" in rule["Properties"]]
    assert regularly["ScheduleExpression"] == "rate(5 minutes)"
    assert json.loads(regularly["Targets"][0]["Input"]) == {"job": job(every)["Name"]}


def test_on_delete_nothing_starts_what_has_been_stopped(every: "Synthesized") -> None:
    run, _ = only(every, "Custom::HeadwaterGlueRun")
    for rule in every.resources("AWS::Events::Rule", "glue_job").values():
        assert run in rule["DependsOn"]


def test_the_runner_may_start_and_stop_these_jobs_only(every: "Synthesized") -> None:
    (statement,) = [statement for statement in policy(every, "RunsRole") if "glue:StartJobRun" in statement["Action"]]
    assert json.dumps(statement["Resource"]).rstrip('"]}').endswith(f":job/{job(every)['Name']}")


SECOND = """
table: devices
description: One row per device.
source: {database: dynamodb, table: headwater-devices}
key: [id]
partition_by: []
buckets: 1
columns:
  - {name: id, type: string, source_type: S}
"""


@pytest.mark.parametrize(
    ("jobs", "tables"),
    [
        ("shared", {"key-value": ["accounts", "devices"]}),
        ("per-table", {"accounts": ["accounts"], "devices": ["devices"]}),
    ],
)
def test_all_tables_share_a_job_unless_the_environment_gives_each_its_own(
    contracts: list[Contract],
    assets: Assets,
    new_app: Callable[[], cdk.App],
    jobs: Literal["shared", "per-table"],
    tables: dict[str, list[str]],
) -> None:
    second = parse_contract(SECOND, "devices.yaml")
    settings = read_environment("dev", EXAMPLE.config)
    settings = msgspec.structs.replace(settings, glue=msgspec.structs.replace(settings.dynamodb.glue, jobs=jobs))
    stacks = application.build(new_app(), settings, [*contracts, second], example_content([*contracts, second]), assets)
    template = Template.from_stack(made(stacks.glue_job))
    found = {}
    for job in template.find_resources("AWS::Glue::Job").values():
        values = job["Properties"]["DefaultArguments"]
        bound = [
            [pair.partition("=")[0] for pair in deployed(values[name]).split(",")]
            for name in ("--source-table", "--stream-arn")
        ]
        assert bound[0] == bound[1]
        assert deployed(values["--contract"]).count(".json") == len(bound[0])
        found[job["Properties"]["Name"].removeprefix("headwater-dev-")] = bound[0]
    assert found == tables
    assert len(template.find_resources("Custom::HeadwaterGlueRun")) == len(tables)


@pytest.fixture(scope="module")
def definition(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> Callable[[Environment], str]:
    """The hash of the job's definition in an environment."""

    def of(settings: Environment) -> str:
        stack = application.build(new_app(), settings, contracts, example_content(contracts), assets).glue_job
        (run,) = Template.from_stack(made(stack)).find_resources("Custom::HeadwaterGlueRun").values()
        return str(run["Properties"]["Definition"])

    return of


def test_a_changed_definition_restarts_the_run_and_an_unchanged_one_does_not(
    definition: Callable[[Environment], str], dev: "Synthesized"
) -> None:
    _, run = only(dev, "Custom::HeadwaterGlueRun")
    before = run["Properties"]["Definition"]
    settings = read_environment("dev", EXAMPLE.config)
    assert definition(settings) == before
    for changed in ({"epoch": 2}, {"workers": 3}):
        glue = msgspec.structs.replace(settings.dynamodb.glue, **changed)
        assert definition(msgspec.structs.replace(settings, glue=glue)) != before
    assert definition(msgspec.structs.replace(settings, log_days=30)) == before


def test_a_changed_file_restarts_the_run(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App], tmp_path: Path
) -> None:
    build, script = tmp_path / "build", tmp_path / "write_hudi.py"
    shutil.copytree(assets.build, build)
    script.write_bytes(assets.glue_script().read_bytes())
    settings = read_environment("dev", EXAMPLE.config)

    def definition(contracts: Sequence[Contract] = contracts) -> str:
        with mock.patch.object(Assets, "glue_script", return_value=script):
            stack = application.build(
                new_app(), settings, contracts, example_content(contracts), Assets(ROOT, build, assets.lake)
            ).glue_job
        (run,) = Template.from_stack(made(stack)).find_resources("Custom::HeadwaterGlueRun").values()
        return str(run["Properties"]["Definition"])

    definitions = [definition()]
    shipped = ("headwater.zip", f"jars/{jars.HUDI}", "lake_jvm/headwater-lake.jar")
    for changed in (*(build / name for name in shipped), script):
        changed.write_text("changed")
        definitions.append(definition())
        assert len(set(definitions)) == len(definitions), changed
    assert definition([replace(contract, buckets=contract.buckets + 1) for contract in contracts]) not in definitions

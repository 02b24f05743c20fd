"""`make deploy ENV=local` and `make destroy ENV=local`, as their user lives them: CDK's command line deploys the very
templates to the local AWS, in which the services are real parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import psutil
import psycopg
import pytest

from headwater.contract.model import DYNAMODB, of_database
from headwater.contract.reading import read_contracts
from headwater.local.processes import wait_until
from headwater.local_aws.authority import ROOT as AUTHORITY
from headwater.local_aws.daemon import FOLDER, Running
from headwater.order_database.loading import load_folder
from headwater.paths import CONTRACTS, ROOT
from headwater.samples import dynamodb_tables, orders
from tests.listening import listening_programs

pytestmark = pytest.mark.drill

DEPLOY_SECONDS = 420
ORDERS_DATABASE = "northwind"


def headwater(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of Headwater's, as a shell runs it."""
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=DEPLOY_SECONDS,
        check=False,
    )


def runs(program: psutil.Process) -> bool:
    """Whether a program has not ended, whoever still has to ask for its status."""
    try:
        return program.is_running() and program.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Deployment:
    """The environment local, deployed."""

    def __init__(self) -> None:
        running = Running.find()
        assert running is not None
        self.pid, self.variables = running.pid, running.environment

    def client(self, service: str) -> Any:
        return boto3.Session(
            self.variables["AWS_ACCESS_KEY_ID"],
            self.variables["AWS_SECRET_ACCESS_KEY"],
            region_name=self.variables["AWS_REGION"],
        ).client(service, endpoint_url=self.variables["AWS_ENDPOINT_URL"])  # type: ignore[call-overload]

    def login(self, role: str) -> dict[str, Any]:
        secret = self.client("secretsmanager").get_secret_value(SecretId=f"headwater/local/{role}")
        login: dict[str, Any] = json.loads(secret["SecretString"])
        return login

    def connect(self) -> psycopg.Connection:
        """Connect as the owner, who trusts the authority alone that the template names."""
        owner = self.login("owner")
        return psycopg.connect(
            host=owner["host"],
            port=owner["port"],
            dbname=ORDERS_DATABASE,
            user=owner["username"],
            password=owner["password"],
            sslmode="verify-full",
            sslrootcert=str(AUTHORITY),
            autocommit=True,
        )

    def lake(self) -> str:
        exports = self.client("cloudformation").list_exports()["Exports"]
        prefix = "headwater-local-lake:ExportsOutputRefLake"
        (bucket,) = [export["Value"] for export in exports if export["Name"].startswith(prefix)]
        return f"s3://{bucket}/lake"

    def verified(self) -> dict[str, Any]:
        """What `headwater verify` says, which the user runs."""
        owner = self.login("owner")
        done = headwater(
            "verify",
            "--json",
            *("--lake", self.lake()),
            *("--host", owner["host"], "--port", str(owner["port"]), "--user", "headwater_reader"),
            *("--dynamodb-table", "accounts=headwater-local-accounts"),
            *("--endpoint", self.variables["AWS_ENDPOINT_URL"]),
            **self.variables,
            HEADWATER_DB_PASSWORD=self.login("reader")["password"],
        )
        assert done.returncode in (0, 1), done.stderr
        return {"equal": done.returncode == 0, "said": done.stdout}

    def running(self) -> dict[str, Any]:
        """What runs, by the names that a restart or a replacement would change."""
        cluster = self.client("ssm").get_parameter(Name="/headwater/local/emr/cluster-id")["Parameter"]["Value"]
        steps = self.client("emr").list_steps(ClusterId=cluster)["Steps"]
        runs = self.client("glue").get_job_runs(JobName="headwater-local-key-value")["JobRuns"]
        connectors = self.client("kafkaconnect").list_connectors()["connectors"]
        return {
            "steps": [(cluster, step["Id"], step["Status"]["State"]) for step in steps],
            "runs": [(run["Id"], run["JobRunState"]) for run in runs],
            "connectors": sorted((found["connectorArn"], found["connectorState"]) for found in connectors),
        }

    def states(self, kind: str) -> list[str]:
        return [entry[-1] for entry in self.running()[kind]]

    def log(self, group: str) -> str:
        """What a log group has."""
        pages = (
            self.client("logs").get_paginator("filter_log_events").paginate(logGroupName=f"/headwater/local/{group}")
        )
        return "\n".join(event["message"] for page in pages for event in page["events"])

    def kill(self, *words: str) -> None:
        """Kill the program that has these words in its command line or its working directory."""
        programs = psutil.Process(self.pid).children(recursive=True)
        (program,) = [each for each in programs if each.name() == "java" and all(map(_told(each).__contains__, words))]
        program.kill()


def _told(program: psutil.Process) -> str:
    return f"{program.cwd()} {' '.join(program.cmdline())}"


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    assert Running.find() is None, "a local AWS runs: end it first, by `make destroy ENV=local`"
    try:
        done = headwater("deploy", "local")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield Deployment()
    finally:
        left = Running.find()
        if left is not None:
            left.stop()


def test_both_pipelines_run_and_the_lake_equals_its_sources(deployment: Deployment, tmp_path: Path) -> None:
    running = deployment.running()
    assert [state for *_, state in running["steps"]] == ["RUNNING"]
    assert [state for _, state in running["runs"]] == ["RUNNING"]
    assert [state for _, state in running["connectors"]] == ["RUNNING", "RUNNING"]
    orders.generate(0.2, 1996, tmp_path)
    with deployment.connect() as owner:
        load_folder(owner, tmp_path)
    for contract in of_database(read_contracts(CONTRACTS), DYNAMODB):
        named = replace(contract, source=replace(contract.source, table=f"headwater-local-{contract.table}"))
        dynamodb_tables.fill(deployment.client("dynamodb"), named, 0.2, 1996)
    wait_until("the lake to equal its sources", lambda: deployment.verified()["equal"], timeout=120, poll=2)


def test_everything_listens_on_the_loopback_alone(deployment: Deployment) -> None:
    listening, reachable = listening_programs(deployment.pid)
    assert len(listening) > 10
    assert reachable == []


def test_a_deploy_of_the_same_replaces_and_restarts_nothing(deployment: Deployment) -> None:
    before = deployment.running()
    done = headwater("deploy", "local")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert deployment.running() == before


def test_what_a_log_group_is_for_gets_the_log(deployment: Deployment) -> None:
    assert "HeadwaterPostgres" in deployment.log("connect/source")


def test_a_step_that_ends_is_told_to_what_adds_it_again_and_the_schedule_does(deployment: Deployment) -> None:
    deployment.kill("SparkSubmit", "--landing")
    wait_until("the step to have failed", lambda: deployment.states("steps") == ["FAILED"], timeout=30)
    said = "failed soon after its start"
    wait_until("the rule to call the function", lambda: said in deployment.log("custom-resources/steps"), timeout=60)
    functions = deployment.client("lambda").list_functions()["Functions"]
    (restart,) = [each["FunctionName"] for each in functions if "emr-writer-StepsRestart" in each["FunctionName"]]
    regularly = {"detail-type": "Scheduled Event", "detail": {}}
    deployment.client("lambda").invoke(FunctionName=restart, Payload=json.dumps(regularly).encode())
    wait_until("the step to run", lambda: deployment.states("steps") == ["RUNNING", "FAILED"], timeout=60)


def test_a_worker_that_is_killed_is_replaced_and_changes_go_on(deployment: Deployment) -> None:
    deployment.kill("ConnectDistributed", "headwater-local-landing")
    with deployment.connect() as owner:
        owner.execute("UPDATE northwind.customers SET city = 'Ghent' WHERE city IS NOT NULL")
    wait_until("the lake to equal its sources", lambda: deployment.verified()["equal"], timeout=120, poll=2)


def test_destroy_leaves_nothing(deployment: Deployment) -> None:
    programs = [psutil.Process(deployment.pid), *psutil.Process(deployment.pid).children(recursive=True)]
    done = headwater("destroy", "local")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "FAILED" not in done.stdout + done.stderr
    assert [program for program in programs if runs(program)] == []
    assert not FOLDER.exists()
    assert Running.find() is None

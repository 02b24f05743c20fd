"""An environment that a checkout has deployed to the local AWS, with the actions of its operators and users."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
from kafka.admin import KafkaAdminClient

from headwater.waiting import cpu_seconds, wait_until
from rig.local.processes import occurrences
from rig.local_aws import logins, stream
from rig.local_aws.daemon import Running
from tests.checkout import Checkout

ORDERS_DATABASE = "northwind"
# The metrics behind alarms with metric math, which the emulator does not report.
OF_MATH = {
    ("AWS/DynamoDB", "AgeOfOldestUnreplicatedRecord"),
    ("AWS/DynamoDB", "FailedToReplicateRecordCount"),
    ("AWS/RDS", "OldestReplicationSlotLag"),
}


class Deployment:
    """The environment local, deployed from a checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        running = Running.find(checkout.account)
        assert running is not None
        self.pid, self.variables, self.client = running.pid, running.environment, running.client
        # The calls that were refused while a test had removed a right.
        self.expected: list[str] = []

    def login(self, role: str) -> dict[str, Any]:
        return logins.login(self.client, role)

    def connect(self, database: str = ORDERS_DATABASE) -> psycopg.Connection:
        """Connect as the owner. The connection trusts only the authority that the template names."""
        return logins.connect(self.client, self.checkout.account, "owner", database)

    def lake(self) -> str:
        exports = self.client("cloudformation").list_exports()["Exports"]
        prefix = "headwater-local-lake:ExportsOutputRefLake"
        (bucket,) = [export["Value"] for export in exports if export["Name"].startswith(prefix)]
        return f"s3://{bucket}/lake"

    def landing(self) -> tuple[str, str]:
        """Bucket and prefix of the landing objects."""
        (stack,) = self.client("cloudformation").describe_stacks(StackName="headwater-local-lake")["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        bucket, _, prefix = outputs["LandingUri"].removeprefix("s3://").partition("/")
        return bucket, prefix

    def verified(self) -> dict[str, Any]:
        """The output of the user's `headwater verify`."""
        done = self.checkout.run_headwater("verify", "--env", "local", "--json")
        assert done.returncode in (0, 1), done.stderr
        return {"equal": done.returncode == 0, **json.loads(done.stdout)}

    def wait_until(self, what: str, condition: Callable[[], bool], patience: float = 300, poll: float = 2) -> None:
        """Wait for an action of the local AWS. Its rules, alarms and waiters poll every minute, or every five."""
        work = partial(cpu_seconds, self.pid)
        wait_until(what, condition, self.progress, poll=poll, patience=patience, work=work)

    def progress(self) -> dict[str, Any]:
        """The states that change while the local AWS works."""
        written = self.checkout.account.glob("emr/*/steps/*/stdout")
        return {"alarms": self.alarms(), "commits": sum(occurrences(out, b'"event": "commit"') for out in written)}

    def await_equality(self, patience: float = 300) -> None:
        """Wait until the lake equals its sources."""
        self.wait_until("the lake to equal its sources", lambda: self.verified()["equal"], patience)

    def running(self) -> dict[str, Any]:
        """The running programs, by the names that a restart or a replacement would change."""
        cluster = self.client("ssm").get_parameter(Name="/headwater/local/emr/cluster-id")["Parameter"]["Value"]
        steps = self.client("emr").list_steps(ClusterId=cluster)["Steps"]
        runs = self.client("glue").get_job_runs(JobName="headwater-local-key-value")["JobRuns"]
        connectors = self.client("kafkaconnect").list_connectors(connectorNamePrefix="headwater-local-")["connectors"]
        return {
            "steps": [(cluster, step["Id"], step["Status"]["State"]) for step in steps],
            "runs": [(run["Id"], run["JobRunState"]) for run in runs],
            "connectors": sorted((found["connectorArn"], found["connectorState"]) for found in connectors),
        }

    def programs(self) -> set[tuple[int, str]]:
        """The programs of broker, database, workers and writers, each with its process id."""
        programs = psutil.Process(self.pid).children(recursive=True)
        return {(each.pid, each.name()) for each in programs if each.name() in ("java", "postgres") and _lasts(each)}

    def brokers(self) -> set[int]:
        """The process ids of the brokers."""
        programs = psutil.Process(self.pid).children(recursive=True)
        return {each.pid for each in programs if each.name() == "java" and "kafka.Kafka" in _told(each)}

    def metrics(self) -> set[tuple[str, str]]:
        """Namespace and name of the metrics that have values."""
        pages = self.client("cloudwatch").get_paginator("list_metrics").paginate()
        return {(metric["Namespace"], metric["MetricName"]) for page in pages for metric in page["Metrics"]}

    def watched(self) -> set[tuple[str, str]]:
        """Namespace and name of the metrics that alarms watch."""
        pages = self.client("cloudwatch").get_paginator("describe_alarms").paginate()
        of_one = [alarm for page in pages for alarm in page["MetricAlarms"] if alarm.get("MetricName")]
        return {(alarm["Namespace"], alarm["MetricName"]) for alarm in of_one} | OF_MATH

    def refused(self) -> list[str]:
        """The calls that the emulator refused to roles, from its log."""
        log = (self.checkout.account / "emulator" / "emulator.log").read_text()
        return [line for line in log.splitlines() if "Refused: " in line]

    def any_key(self, table: str) -> dict[str, Any]:
        """The key of an item of a table of DynamoDB."""
        client = self.client("dynamodb")
        names = [each["AttributeName"] for each in client.describe_table(TableName=table)["Table"]["KeySchema"]]
        item = client.scan(TableName=table, Limit=1)["Items"][0]
        return {name: item[name] for name in names}

    def stores(self, environment: str) -> list[str]:
        """The resources in which an environment stores data."""
        buckets = [bucket["Name"] for bucket in self.client("s3").list_buckets()["Buckets"]]
        names = [*buckets, *self.client("dynamodb").list_tables()["TableNames"]]
        return sorted(name for name in names if f"headwater-{environment}-" in name)

    def states(self, kind: str) -> list[str]:
        return [entry[-1] for entry in self.running()[kind]]

    def log(self, group: str) -> str:
        """The lines of a log group."""
        pages = (
            self.client("logs").get_paginator("filter_log_events").paginate(logGroupName=f"/headwater/local/{group}")
        )
        return "\n".join(event["message"] for page in pages for event in page["events"])

    def alarms(self) -> dict[str, str]:
        """The states of the environment's alarms."""
        pages = self.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix="headwater-local-")
        found = [alarm for page in pages for alarm in page["MetricAlarms"]]
        return {alarm["AlarmName"].removeprefix("headwater-local-"): alarm["StateValue"] for alarm in found}

    def kafka(self) -> KafkaAdminClient:
        """A client of the broker."""
        resources = self.client("cloudformation").describe_stack_resources(StackName="headwater-local-stream")
        (arn,) = [
            each["PhysicalResourceId"]
            for each in resources["StackResources"]
            if each["ResourceType"] == "AWS::MSK::Cluster"
        ]
        brokers = self.client("kafka").get_bootstrap_brokers(ClusterArn=arn)["BootstrapBrokerStringSaslIam"]
        return KafkaAdminClient(**stream.access(self.checkout.account / "msk", brokers).for_python())

    def captured(self) -> set[str]:
        """The tables in the publication."""
        with self.connect() as owner:
            return {name for (name,) in owner.execute("SELECT tablename FROM pg_publication_tables").fetchall()}

    def topics(self) -> list[str]:
        """The topics of the tables."""
        with self.kafka() as kafka:
            return sorted(kafka.list_topics())

    def partitions(self, topic: str) -> int:
        """The number of a topic's partitions."""
        with self.kafka() as kafka:
            (described,) = kafka.describe_topics([topic])
        return len(described["partitions"])

    def worker(self, connector: str) -> Path:
        """The folder of the worker that a connector has now."""
        (folder,) = [
            Path(program.cwd())
            for program in psutil.Process(self.pid).children(recursive=True)
            if program.name() == "java" and "ConnectDistributed" in _told(program) and connector in _told(program)
        ]
        return folder

    def commits(self) -> list[dict[str, Any]]:
        """The commits of the running step, from its log."""
        (step, *_) = self.running()["steps"]
        (out,) = (self.checkout.account / "emr").glob(f"*/steps/{step[1]}/stdout")
        events = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
        return [event for event in events if event.get("event") == "commit"]

    def kill(self, *words: str) -> None:
        """Kill the program that has these words in its command line or its working directory."""
        programs = psutil.Process(self.pid).children(recursive=True)
        (program,) = [each for each in programs if each.name() == "java" and all(map(_told(each).__contains__, words))]
        program.kill()


def _lasts(program: psutil.Process) -> bool:
    """Whether a program stays. Server processes of PostgreSQL come and go with their sessions."""
    parent = program.parent()
    return program.name() != "postgres" or parent is None or parent.name() != "postgres"


def _told(program: psutil.Process) -> str:
    return f"{program.cwd()} {' '.join(program.cmdline())}"

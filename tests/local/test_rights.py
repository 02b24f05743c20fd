"""The rights that writers and connectors ask for in a local run are those that the tests of templates check.

``make requests`` writes the recorded rights into ``reviewed/rights/``.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.contract.model import QUARANTINE
from headwater.contract.reading import read_contract, read_contracts
from headwater.definitions import connectors
from headwater.lake_folder import EXAMPLE
from headwater.paths import RIGHTS
from headwater.review.rights import Right, read_principals
from headwater.waiting import wait_until
from rig.local import aws, java
from rig.local.aws import AwsApi
from rig.local.kafka import Broker
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import DATABASE, GLUE_DATABASE, LAKE_BUCKET, LANDING_BUCKET, SECRET_NAME, Pipeline
from rig.samples import dynamodb_tables, items_workload, orders, orders_workload
from rig.samples.loading import load_folder
from rig.samples.paced_workers import WorkloadPlan
from tests import kafka_rights
from tests.aws_recorder import ApiWithS3Behind, Recorder, Request
from tests.aws_rights import Names, rights, write_recorded
from tests.listening import listening_programs

RENEW = "HEADWATER_RECORD_REQUESTS"
PRINCIPALS = ("source connector", "sink connector", "emr writer", "glue writer")
NAMES = Names(
    buckets={LANDING_BUCKET: "{landing}", LAKE_BUCKET: "{lake}"},
    resources={
        GLUE_DATABASE: "{database}",
        SECRET_NAME: "{source_secret}",
        "headwater-accounts": "{key-value_Streamaccounts}",
    },
    keys=(
        # On AWS contracts are assets of the step and the job.
        (LAKE_BUCKET, r"contracts/accounts", "assets-of:glue-job:Jobkeyvalue"),
        (LAKE_BUCKET, r"contracts/", "assets-of:emr-writer:Writer"),
        # Each table has a lease and what it has forgotten, an object each, and folders of bad records and of requests.
        (LAKE_BUCKET, r"lake/_(forgotten|leases)/.*", r"arn:aws:s3:::{lake}/\g<0>"),
        (LAKE_BUCKET, r"lake/_(quarantine|requests)/[^/]+/", r"arn:aws:s3:::{lake}/\g<0>*"),
    ),
    stream="{key-value_Streamaccounts}",
)
# MSK Connect itself names the worker's group and the topics of its state, except the topic of offsets.
INTERNAL = "__amazon_msk_connect_*"
STATE = "headwater-connect"
SINK_GROUP = "connect-headwater-{environment}-landing"
KAFKA_NAMES = dict.fromkeys((STATE, f"{STATE}-config", f"{STATE}-status"), INTERNAL)


class RecordedApi(ApiWithS3Behind[Recorder]):
    """The AWS API behind a recorder, all services of it, which the tests' own clients bypass."""

    recorder: Recorder

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Recorder)

    def start(self) -> None:
        super().start()
        self.recorder = Recorder(super().endpoint, self.s3_recorder.requests)
        self.recorder.__enter__()

    def stop(self) -> None:
        self.recorder.__exit__(None, None, None)
        super().stop()

    @property
    def endpoint(self) -> str:
        return self.recorder.endpoint

    def client(self, service: str) -> Any:
        return super().client(service) if service == "s3" else aws.client(service, super().endpoint, self.credentials)


class AuditedBroker(Broker):
    """The broker, with a log of its clients' operations."""

    def _properties(self, controller: int) -> dict[str, str]:
        return {**super()._properties(controller), **kafka_rights.AUTHORIZER}


def asked_of_kafka(log: Path, sink_group: str) -> dict[str, set[Right]]:
    """The rights that each connector used at the broker; ``sink_group`` is the sink's consumer group. On AWS each
    connector has a worker of its own, so both need the rights to a worker's state. The connector that writes or reads a
    table's topic needs the rights to it."""
    with log.open(errors="replace") as lines:
        # The stream stack creates topics; here this test does, and asks for their configuration with that. Connect asks
        # for the configuration of its own topics too, and goes on without it. Offsets of groups are the broker's own.
        asked = {
            operation
            for operation in kafka_rights.asked(lines)
            if operation.verb not in ("CREATE", "DESCRIBE_CONFIGS") and operation.name != "__consumer_offsets"
        }
    state = {operation for operation in asked if operation.name.startswith(STATE) or operation.kind == "Cluster"}
    topics = {operation for operation in asked if operation.kind == "Topic"} - state
    read = {operation for operation in topics if operation.verb == "READ"}
    read_names = {operation.name for operation in read}
    described = {operation for operation in topics if operation.name in read_names and operation.verb == "DESCRIBE"}
    group = {operation for operation in asked if operation.name == sink_group}
    sink = read | described | group
    source = topics - read
    names = {**KAFKA_NAMES, sink_group: SINK_GROUP}
    return {
        "source connector": set(kafka_rights.rights(source | state, names)),
        "sink connector": set(kafka_rights.rights(sink | state, names)),
    }


class Through(AwsApi):
    """A running API as a second pipeline sees it: behind recorders of its own."""

    def __init__(self, api: AwsApi, recorder: Recorder, s3_recorder: Recorder) -> None:
        super().__init__(api.folder)
        self.credentials = api.credentials
        self._api = api
        self._recorder = recorder
        self._s3_recorder = s3_recorder

    @property
    def endpoint(self) -> str:
        return self._recorder.endpoint

    @property
    def s3_endpoint(self) -> str:
        return self._s3_recorder.endpoint

    def client(self, service: str) -> Any:
        return self._api.client(service)

    def check(self) -> None:
        self._api.check()


def principal(request: Request) -> str:
    """The principal that sent a request. One Connect worker runs both connectors here; only the source reads a secret,
    and only the sink writes objects."""
    if "aws-sdk-java/2" in request.headers["user-agent"]:
        return "source connector" if request.service == "secretsmanager" else "sink connector"
    return "emr writer"


def load_data(folder: Path, owner: psycopg.Connection) -> None:
    load_folder(owner, folder)


@dataclass(frozen=True)
class WholeRun:
    """The result of a run of both pipelines."""

    rights: dict[str, set[Right]]
    """The rights that each principal used."""
    listening: list[str]
    """The programs that listened on a socket."""
    reachable: list[str]
    """The sockets that other machines can reach."""


def write_accounts(key_value: KeyValuePipeline) -> None:
    """Run the key-value pipeline under a workload until everything is in the lake."""
    key_value.start_source()
    (accounts,) = key_value.contracts
    dynamodb_tables.fill(key_value.client(), accounts, 0.2, 1)
    key_value.start_writer()
    items_workload.run(key_value.client, accounts, WorkloadPlan(seconds=20, changes=200, workers=2, seed=5))
    key_value.drain()


def any_metrics(recorder: Recorder) -> bool:
    return any(request.service == "monitoring" for request in list(recorder.requests))


def of_the_job(requests: list[Request]) -> list[Request]:
    """The requests of the Glue job's script. The relay's are left out: it stands in for DynamoDB and only puts
    records."""
    return [request for request in requests if "PutRecords" not in request.headers.get("x-amz-target", "")]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """A run with every kind of change, a second writer and compactions."""
    folder = tmp_path_factory.mktemp("requests")
    orders.generate(0.1, 1, folder / "data")
    contracts = [
        replace(contract, on_unfit=QUARANTINE) if contract.table == "products" else contract
        for contract in read_contracts(EXAMPLE.contracts)
    ]
    with pytest.MonkeyPatch.context() as patch, Pipeline(folder, contracts) as pipeline:
        patch.setattr(java, "LOG4J", java.LOG4J + kafka_rights.LOGGER)
        pipeline.broker = AuditedBroker(folder / "kafka")
        api = pipeline.aws = RecordedApi(folder / "aws")
        pipeline.start(lambda text: nullcontext(), partial(load_data, folder / "data"))
        pipeline.drain()
        # A new sink reads its position from the bucket, a new writer reads its own from the tables.
        pipeline.connect.stop()
        pipeline.writer.stop()
        pipeline.connect.start()
        pipeline.start_writer()
        orders_workload.run(pipeline.application, WorkloadPlan(seconds=40, changes=300, workers=4, seed=3))
        with pipeline.postgres.connect(DATABASE) as owner:
            # No decimal can hold NaN, so the change is quarantined.
            owner.execute("INSERT INTO northwind.products VALUES (99999, 'A', NULL, NULL, NULL, 'NaN')")
        pipeline.drain()
        contract = read_contract(EXAMPLE.contracts / "accounts.yaml")
        with (
            Recorder(api.recorder.target) as recorder,
            Recorder(api.s3_recorder.target, recorder.requests) as s3_recorder,
            KeyValuePipeline(folder / "key_value", [contract], Through(api, recorder, s3_recorder)) as key_value,
        ):
            write_accounts(key_value)
            # The job sends them once a minute, which may be longer than all it has done so far.
            wait_until("the Glue job's metrics", partial(any_metrics, recorder), poll=0.5)
            listening, reachable = listening_programs()
        asked: dict[str, list[Request]] = {}
        for request in list(api.recorder.requests):
            asked.setdefault(principal(request), []).append(request)
        of_aws = {name: rights(requests, NAMES) for name, requests in asked.items()}
        of_aws["glue writer"] = rights(of_the_job(recorder.requests), NAMES)
        of_kafka = asked_of_kafka(folder / "kafka" / "broker.log", connectors.sink_group(pipeline.settings))
        recorded = {name: of_aws.get(name, set()) | of_kafka.get(name, set()) for name in PRINCIPALS}
        return WholeRun(recorded, listening, reachable)


@pytest.mark.drill
@pytest.mark.parametrize("name", PRINCIPALS)
def test_no_right_is_asked_for_that_the_policies_are_not_held_against(whole_run: WholeRun, name: str) -> None:
    recorded = whole_run.rights[name]
    if RENEW in os.environ:
        write_recorded(RIGHTS / f"{name.replace(' ', '_')}.yaml", recorded)
    (reviewed,) = [entry for entry in read_principals() if entry.name == name]
    assert sorted(map(str, recorded - reviewed.recorded)) == []
    assert sorted(map(str, reviewed.recorded - recorded)) == []


@pytest.mark.drill
def test_every_part_listens_on_the_loopback_only(whole_run: WholeRun) -> None:
    assert whole_run.reachable == []
    parts = ("postgres", "kafka.Kafka", "ConnectDistributed", "DynamoDbLocal", "moto_server", "weed", "write_hudi.py")
    absent = [part for part in parts if not any(part in command for command in whole_run.listening)]
    assert absent == []


def test_the_recorder_hands_requests_and_answers_on_unchanged(aws_api: AwsApi, tmp_path: Path) -> None:
    with Recorder(aws_api.s3_endpoint) as recorder:
        s3 = aws.client("s3", recorder.endpoint, aws_api.credentials)
        s3.create_bucket(Bucket="recorded", CreateBucketConfiguration={"LocationConstraint": aws.REGION})
        body = bytes(range(256)) * 300
        s3.put_object(Bucket="recorded", Key="a b/ü", Body=body)
        assert aws_api.client("s3").get_object(Bucket="recorded", Key="a b/ü")["Body"].read() == body
        assert s3.head_object(Bucket="recorded", Key="a b/ü")["ContentLength"] == len(body)
        with pytest.raises(s3.exceptions.NoSuchKey):
            s3.get_object(Bucket="recorded", Key="none")
    names = Names({"recorded": "{lake}"})
    assert sorted(map(str, rights(recorder.requests[1:], names))) == [
        "s3:GetObject arn:aws:s3:::{lake}/a b/ü",
        "s3:GetObject arn:aws:s3:::{lake}/none",
        "s3:ListBucket arn:aws:s3:::{lake}",
        "s3:PutObject arn:aws:s3:::{lake}/a b/ü",
    ]

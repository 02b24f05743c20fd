"""What stands between CloudFormation's requests and the real parts of the local AWS."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.connect import ConnectWorker
from rig.local.kafka import Access
from rig.local_aws import connect, database, dynamodb, emr, ignored, stream
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError, Request
from rig.local_aws.glue import Jobs
from rig.local_aws.log_delivery import LogDelivery
from rig.local_aws.resources import Properties, changed, refuse_unread
from rig.local_aws.stream import Clusters

ARN = "arn:aws:kafkaconnect:eu-central-1:111111111111:connector/headwater-local-landing/1"
NO_STORE: Any = None
CONTEXT = AccountContext("111111111111", "eu-central-1", NO_STORE, aws.make_credentials())
# Lower it when an exception goes. Headwater's templates are proven by what is not in that list.
MOST_EXCEPTIONS = 76


def asked(method: str, path: str, body: Any = None, query: Mapping[str, list[str]] | None = None) -> Request:
    return Request(method, path, {}, query or {}, b"" if body is None else json.dumps(body).encode())


def test_the_list_of_exceptions_only_shrinks() -> None:
    properties = [(kind, name) for kind, names in ignored.IGNORED_PROPERTIES.items() for name in names]
    assert len(ignored.NO_OP_TYPES) + len(properties) == MOST_EXCEPTIONS


def test_a_property_that_nothing_heeds_is_refused_by_its_name() -> None:
    properties = Properties({"Name": "a", "KafkaVersionsList": ["b"], "Colour": "red"})
    assert properties["Name"] == "a"
    with pytest.raises(UserError, match="AWS::MSK::Configuration: Colour would have no effect here"):
        refuse_unread("AWS::MSK::Configuration", properties)
    assert properties["Colour"] == "red"
    refuse_unread("AWS::MSK::Configuration", properties)


def test_a_property_within_another_one_is_refused_too() -> None:
    values = {"Outer": {"Seen": 1, "Inner": {"Left": 2}}, "Listed": [{"Seen": 3}, {"Seen": 4, "Left": 5}]}
    properties = Properties(values)
    assert properties.unread() == {"Outer", "Listed"}
    assert [properties["Outer"]["Seen"], *(each["Seen"] for each in properties["Listed"])] == [1, 3, 4]
    with pytest.raises(UserError, match=r"A::B: Listed\.Left, Outer\.Inner would have no effect here"):
        refuse_unread("A::B", properties)
    assert properties["Outer"]["Inner"] == {"Left": 2}
    assert properties.unread() == {"Listed.Left", "Outer.Inner.Left"}
    # Who has it written has read it all.
    assert json.loads(json.dumps(properties)) == values
    assert properties.unread() == set()


def test_an_exception_covers_what_is_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ignored.IGNORED_PROPERTIES, "A::B", {"Outer": "a reason", "Other.Inner": "another one"})
    former = {"Outer": {"Inner": 1}, "Other": {"Inner": 1, "Left": 1}, "Same": [{"A": 1}]}
    now = {"Outer": {"Inner": 2}, "Other": {"Inner": 2, "Left": 2}, "Same": [{"A": 1}]}
    assert changed("A::B", Properties(former), Properties(now)) == ["Other.Left"]
    properties = Properties(now)
    assert properties["Other"]["Left"] == 2
    assert properties["Same"][0]["A"] == 1
    refuse_unread("A::B", properties)


JOB_PROPERTIES = {
    "Command": {"Name": "gluestreaming", "PythonVersion": "3", "ScriptLocation": "s3://a/b.py"},
    "MaxRetries": 0,
    "WorkerType": "G.1X",
}


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"Command": {"Name": "glueetl"}}, "Command.Name: found glueetl, expected gluestreaming"),
        ({"Command": {"Name": "gluestreaming", "PythonVersion": "2"}}, "Command.PythonVersion: found 2, expected 3"),
        ({"MaxRetries": 2}, "MaxRetries: found 2, expected 0"),
        ({"WorkerType": "Z.9X"}, "WorkerType: found Z.9X, expected one of "),
    ],
)
def test_a_job_that_would_run_otherwise_on_aws_is_refused(tmp_path: Path, wrong: dict[str, Any], refusal: str) -> None:
    jobs = Jobs(tmp_path, CONTEXT)
    with pytest.raises(UserError, match=refusal):
        jobs.types()["AWS::Glue::Job"].create("job", Properties({**JOB_PROPERTIES, **wrong}))


def test_a_configuration_that_changes_has_another_revision(tmp_path: Path) -> None:
    clusters = Clusters(tmp_path, CONTEXT)
    kind = clusters.types()[stream.CONFIGURATION]
    former = Properties({"Name": "c", "ServerProperties": "a=1", "KafkaVersionsList": ["b"]})
    made = kind.create("c", former)
    now = Properties({**former, "ServerProperties": "a=2"})
    changed_ = kind.update(made.physical_id, former, now)
    assert changed_.physical_id == made.physical_id
    revisions = [each.attributes["LatestRevision.Revision"] for each in (made, changed_)]
    assert revisions == ["1", "2"]
    with pytest.raises(UserError, match=f"there is no revision 3 of {made.physical_id}"):
        clusters.start("c", Properties({"Arn": made.physical_id, "Revision": "3"}))


def test_a_worker_is_let_into_the_broker_of_its_address(tmp_path: Path) -> None:
    for name, ports in (("first", "1 2"), ("second", "3 4")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ports").write_text(ports)
        (tmp_path / name / "password").write_text(name)
    assert stream.access(tmp_path, "127.0.0.1:3") == Access("127.0.0.1:3", "second")
    with pytest.raises(UserError, match=r"no cluster in .* has the address 127\.0\.0\.1:5"):
        stream.access(tmp_path, "127.0.0.1:5")


def test_an_operation_of_rest_gets_what_path_query_and_body_say() -> None:
    seen: list[dict[str, Any]] = []

    def update(request: dict[str, Any]) -> dict[str, Any]:
        seen.append(request)
        return {"connectorArn": ARN, "connectorState": "UPDATING"}

    api = Api("kafkaconnect", {"UpdateConnector": update})
    body = {"connectorConfiguration": {"tasks.max": "1"}}
    # The emulator hands a path on without its escapes.
    answer = api.answer(asked("PUT", f"/v1/connectors/{ARN}", body, {"currentVersion": ["3"]}))
    assert answer.status == 200
    assert json.loads(answer.body) == {"connectorArn": ARN, "connectorState": "UPDATING"}
    assert seen == [{"connectorArn": ARN, "currentVersion": "3", **body}]


def test_an_operation_of_json_is_known_by_its_header() -> None:
    api = Api("elasticmapreduce", {"ListSteps": lambda request: {"Steps": [{"Id": request["ClusterId"]}]}}, model="emr")
    request = Request("POST", "/", {"x-amz-target": "ElasticMapReduce.ListSteps"}, {}, b'{"ClusterId": "j-1"}')
    assert json.loads(api.answer(request).body) == {"Steps": [{"Id": "j-1"}]}


def test_a_refusal_has_the_form_of_the_services() -> None:
    def refuse(request: dict[str, Any]) -> None:
        raise ApiError("NotFoundException", f"There is no {request['connectorArn']}")

    api = Api("kafkaconnect", {"DescribeConnector": refuse})
    answer = api.answer(asked("GET", f"/v1/connectors/{ARN}"))
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (400, "NotFoundException")
    assert json.loads(answer.body)["message"] == f"There is no {ARN}"


def test_an_operation_that_has_nothing_behind_it_is_refused() -> None:
    answer = Api("kafkaconnect", {}).answer(asked("GET", f"/v1/connectors/{ARN}"))
    assert b"The local AWS does not answer kafkaconnect:DescribeConnector" in answer.body


class Logs:
    """A client of CloudWatch Logs that keeps what it is given."""

    class exceptions:  # noqa: N801
        class ResourceAlreadyExistsException(Exception):
            pass

    def __init__(self) -> None:
        self.put: list[tuple[str, str, list[str]]] = []

    def create_log_stream(self, **_: str) -> None:
        raise self.exceptions.ResourceAlreadyExistsException

    def put_log_events(self, logGroupName: str, logStreamName: str, logEvents: list[dict[str, Any]]) -> None:  # noqa: N803
        self.put.append((logGroupName, logStreamName, [event["message"] for event in logEvents]))


def test_what_is_written_until_the_end_is_delivered_once(tmp_path: Path) -> None:
    log, logs = tmp_path / "connect.log", Logs()
    log.write_text("of the run before\n")
    with LogDelivery(logs, log, "/group", "stream"), log.open("a") as file:
        file.write("first\n\nsecond\nhalf of the th")
        file.flush()
        file.write("ird\n")
    delivered = [message for group, stream, messages in logs.put for message in messages]
    assert delivered == ["first", "second", "half of the third"]
    assert {(group, stream) for group, stream, _ in logs.put} == {("/group", "stream")}


def test_bytes_and_names_of_the_wire_are_those_of_the_service() -> None:
    seen: list[dict[str, Any]] = []
    api = Api("kinesis", {"PutRecord": lambda request: seen.append(request)})
    body = {"Data": base64.b64encode(b"\x00").decode(), "PartitionKey": "k"}
    target = {"x-amz-target": "Kinesis_20131202.PutRecord"}
    api.answer(Request("POST", "/", target, {}, json.dumps(body).encode()))
    assert seen == [{"Data": b"\x00", "PartitionKey": "k"}]


def refused_creation(kind: str, properties: Mapping[str, Any]) -> Any:
    services = (
        connect.Connectors(Path("connect"), CONTEXT),
        database.Clusters(Path("rds"), CONTEXT, NO_STORE),
        dynamodb.Tables(Path("dynamodb"), CONTEXT),
        emr.Clusters(Path("emr"), CONTEXT),
        stream.Clusters(Path("msk"), CONTEXT),
    )
    types = {name: of for service in services for name, of in service.types().items()}
    try:
        return types[kind].create("a", Properties(properties))
    finally:
        for service in services:
            service.close()


REPLICA = {"KinesisStreamSpecification": {"StreamArn": "arn:stream/other"}}
CREATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a plugin that is no ZIP": (connect.CUSTOM_PLUGIN, {"ContentType": "JAR"}, "found JAR, expected ZIP"),
    "another engine": (database.CLUSTER, {"Engine": "aurora-mysql"}, "Engine: found aurora-mysql"),
    "another version": (
        database.CLUSTER,
        {"Engine": "aurora-postgresql", "EngineVersion": "15.2"},
        "EngineVersion: found 15.2",
    ),
    "a secret for something else": (database.SECRET_ATTACHMENT, {"TargetType": "b"}, "TargetType: found b"),
    "times in milliseconds": (dynamodb.TABLE, {"Replicas": [REPLICA]}, "found None, expected MICROSECOND"),
    "steps side by side": (emr.CLUSTER, {"StepConcurrencyLevel": 2}, "StepConcurrencyLevel: found 2, expected 1"),
    "an unknown configuration": (
        emr.CLUSTER,
        {"StepConcurrencyLevel": 1, "Name": "b", "Configurations": [{"Classification": "pig"}]},
        "the configuration pig would have no effect here",
    ),
    "a revision that is not there": (
        stream.CLUSTER,
        {"ClusterName": "b", "ConfigurationInfo": {"Arn": "c", "Revision": 2}},
        "there is no revision 2 of c",
    ),
}


@pytest.mark.parametrize("what", CREATIONS)
def test_what_the_parts_cannot_be_is_refused(what: str) -> None:
    kind, properties, word = CREATIONS[what]
    with pytest.raises(UserError, match=word):
        refused_creation(kind, properties)


def test_a_type_refuses_a_property_that_it_does_not_heed(tmp_path: Path) -> None:
    kind = Clusters(tmp_path, CONTEXT).types()[stream.CONFIGURATION]
    with pytest.raises(UserError, match="AWS::MSK::Configuration: Unheard would have no effect here"):
        kind.create("c", Properties({"Name": "c", "ServerProperties": "a=1", "Unheard": 1}))


UPDATES: dict[str, tuple[Any, str]] = {
    database.CLUSTER: (database.Clusters(Path("rds"), CONTEXT, NO_STORE), "Engine"),
    database.PARAMETER_GROUP: (database.Clusters(Path("rds"), CONTEXT, NO_STORE), "Parameters"),
    dynamodb.TABLE: (dynamodb.Tables(Path("dynamodb"), CONTEXT), "KeySchema"),
    stream.CLUSTER: (Clusters(Path("msk"), CONTEXT), "ClusterName"),
    stream.TOPIC: (Clusters(Path("msk"), CONTEXT), "Configs"),
}


@pytest.mark.parametrize("kind", UPDATES)
def test_what_a_part_cannot_become_is_refused_by_its_name(kind: str) -> None:
    service, name = UPDATES[kind]
    with pytest.raises(UserError, match="cannot be changed here"):
        service.types()[kind].update("a", Properties({name: "b"}), Properties({}))


@pytest.mark.parametrize(
    ("group", "level"),
    [
        ({"rds.force_ssl": "1"}, "replica"),
        ({"rds.force_ssl": "1", "rds.logical_replication": "1"}, "logical"),
    ],
)
def test_the_server_replicates_logically_where_its_group_says_so(
    group: dict[str, str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(Exception):
        """The settings with which the server would start."""

    def start(folder: Path, settings: dict[str, str]) -> None:
        raise Started(settings)

    monkeypatch.setattr(database, "PostgresqlServer", start)
    clusters = database.Clusters(Path("rds"), CONTEXT, NO_STORE)
    made = clusters.types()[database.PARAMETER_GROUP].create("G", Properties({"Parameters": group}))
    with pytest.raises(Started) as started:
        clusters.start("a", Properties({"DBClusterParameterGroupName": made.physical_id}))
    (settings,) = started.value.args
    assert settings["wal_level"] == level
    assert not [name for name in settings if name.startswith("rds.")]


def test_a_server_that_would_take_what_is_not_tls_is_refused() -> None:
    clusters = database.Clusters(Path("rds"), CONTEXT, NO_STORE)
    made = clusters.types()[database.PARAMETER_GROUP].create("G", Properties({"Parameters": {"rds.force_ssl": "0"}}))
    with pytest.raises(UserError, match=r"rds\.force_ssl: expected 1"):
        clusters.start("a", Properties({"DBClusterParameterGroupName": made.physical_id}))


def test_a_step_that_fails_says_what_its_program_said(tmp_path: Path) -> None:
    stderr, stdout = tmp_path / "stderr", tmp_path / "stdout"
    stderr.write_text(
        "2026-01-01 WARN internal.Loader: no file\njava.lang.IllegalArgumentException: no file\n\tat a.b\n"
    )
    stdout.write_text("usage: write_hudi.py [-h]\nwrite_hudi.py: error: unrecognized arguments: --hours 1\n")
    assert emr.last_said(tmp_path) == "write_hudi.py: error: unrecognized arguments: --hours 1"
    stdout.write_text("Traceback (most recent call last):\n  File 1\nheadwater.errors.UserError: no lake\n")
    assert emr.last_said(tmp_path) == "headwater.errors.UserError: no lake"
    stderr.write_text("")
    stdout.write_text("killed\n")
    assert emr.last_said(tmp_path).endswith("killed")


class Machine(ExitStack):
    """Takes the place of a cluster's node."""

    lost = False

    def __init__(self, *args: Any, **of: Any) -> None:
        super().__init__()


class Told:
    """Takes the place of an account's context: it has one instance profile, and records the events for EventBridge."""

    region, account = CONTEXT.region, CONTEXT.account

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, str]] = {}
        self.told: list[tuple[str, str]] = []

    def client(self, service: str) -> Any:
        return self

    def get_instance_profile(self, **_: str) -> dict[str, Any]:
        return {"InstanceProfile": {"Roles": [{"Arn": "arn"}]}}

    def environment_of(self, *_: str) -> dict[str, str]:
        return {}

    def tell(self, source: str, kind: str, detail: str) -> None:
        self.told.append((kind, json.loads(detail)["state"]))


CLUSTER_PROPERTIES = {
    "Name": "headwater-local",
    "JobFlowRole": "profile",
    "LogUri": "s3://logs/emr",
    "Configurations": [
        {
            "Classification": "yarn-site",
            "ConfigurationProperties": {"yarn.nodemanager.resource.memory-mb": "1024"},
        }
    ],
}


def test_a_cluster_whose_node_ends_has_ended_with_errors_and_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emr, "Node", Machine)
    monkeypatch.setattr(emr, "_WATCH_SECONDS", 0.01)
    context: Any = Told()
    clusters = emr.Clusters(Path("emr"), context)
    lost, kept = (clusters.start(Properties(CLUSTER_PROPERTIES)).physical_id for _ in range(2))

    def status(id_: str) -> Any:
        answer = clusters.api.operations["DescribeCluster"]({"ClusterId": id_})
        assert answer is not None
        return answer["Cluster"]["Status"]

    assert status(lost)["State"] == "WAITING"
    monkeypatch.setattr(clusters._clusters[lost].node, "lost", True)
    wait_until("the cluster to end", lambda: status(lost)["State"] == "TERMINATED_WITH_ERRORS")
    assert status(lost)["StateChangeReason"]["Code"] == "INSTANCE_FAILURE"
    clusters.close()
    assert (status(lost)["State"], status(kept)["State"]) == ("TERMINATED_WITH_ERRORS", "TERMINATED")
    assert context.told == [
        ("EMR Cluster State Change", "TERMINATED_WITH_ERRORS"),
        ("EMR Cluster State Change", "TERMINATED"),
    ]


@pytest.mark.parametrize(
    ("states", "left"),
    [(["FAILED", "FAILED", "RESTARTING", "RUNNING"], "RUNNING"), (["FAILED"] * 9, "FAILED")],
    ids=["comes back", "fails again"],
)
def test_a_restart_is_not_taken_for_the_failure_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[str], left: str
) -> None:
    asked: list[str] = []
    told = iter(states)

    def answer(method: str, path: str, body: object = None) -> Any:
        asked.append(method)
        state = next(told, states[-1]) if method == "GET" else ""
        return {"connector": {"state": "RUNNING"}, "tasks": [{"state": state}]}

    worker = ConnectWorker(tmp_path, Access("localhost:9092", "secret"), {})
    monkeypatch.setattr(worker, "_request", answer)
    monkeypatch.setattr("rig.local.connect.RESTART_PATIENCE_SECONDS", 0.5 if left == "FAILED" else 60)
    worker.restart("landing")
    assert asked[0] == "POST"
    assert worker.status("landing")["tasks"] == [{"state": left}]

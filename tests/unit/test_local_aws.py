"""What stands between CloudFormation's requests and the real parts of the local AWS."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import UserError
from headwater.local_aws import noted, without_effect
from headwater.local_aws.api import Api, ApiError, NotAnswered, Request
from headwater.local_aws.glue import Jobs
from headwater.local_aws.log_delivery import LogDelivery
from headwater.local_aws.resources import Made, Properties, changed, refuse_unread
from headwater.local_aws.stream import Clusters
from headwater.local_aws.surroundings import Surroundings

ARN = "arn:aws:kafkaconnect:eu-central-1:111111111111:connector/headwater-local-landing/1"
NO_STORE: Any = None
SURROUNDINGS = Surroundings("111111111111", "eu-central-1", NO_STORE, {})
# Lower it when an exception goes. Headwater's templates are proven by what is not in that list.
MOST_EXCEPTIONS = 75


def asked(method: str, path: str, body: Any = None, query: Mapping[str, list[str]] | None = None) -> Request:
    return Request(method, path, {}, query or {}, b"" if body is None else json.dumps(body).encode())


def test_the_list_of_exceptions_only_shrinks() -> None:
    properties = [(kind, name) for kind, names in without_effect.PROPERTIES.items() for name in names]
    assert len(without_effect.TYPES) + len(properties) == MOST_EXCEPTIONS


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
    monkeypatch.setitem(without_effect.PROPERTIES, "A::B", {"Outer": "a reason", "Other.Inner": "another one"})
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
    jobs = Jobs(tmp_path, SURROUNDINGS)
    with pytest.raises(UserError, match=refusal):
        jobs.types()["AWS::Glue::Job"].create("job", Properties({**JOB_PROPERTIES, **wrong}))


def test_a_cluster_knows_one_revision_of_a_configuration(tmp_path: Path) -> None:
    clusters = Clusters(tmp_path, SURROUNDINGS)
    properties = Properties({"ClusterName": "c", "ConfigurationInfo": {"Arn": ARN, "Revision": "2"}})
    with pytest.raises(UserError, match=r"ConfigurationInfo\.Revision: found 2, expected 1, the only one"):
        clusters.types()["AWS::MSK::Cluster"].create("cluster", properties)


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
    assert b"kafkaconnect:DescribeConnector has nothing behind it here" in answer.body


def test_only_an_alarm_of_metric_math_is_noted() -> None:
    alarms = noted.types()["AWS::CloudWatch::Alarm"]
    assert alarms.create("a", Properties({"AlarmName": "b", "Metrics": []})) == Made("b", {"Arn": "a"})
    with pytest.raises(NotAnswered):
        alarms.create("a", Properties({"AlarmName": "b", "MetricName": "c"}))


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

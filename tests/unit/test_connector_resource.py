"""The connector's custom resource against a stand-in for MSK Connect: every way from one state to another."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from custom_resources import connector, lifecycle
from custom_resources.connector import MAKE_TAG, OWNER_TAG, RELEASE, RELEASED, REQUEST_TAG, Clients
from custom_resources.data_api import Database
from custom_resources.lifecycle import Event, Outcome, ResourceFailed
from headwater.paths import ROOT
from tests.data_api import CLUSTER, OWNER_SECRET
from tests.modelled import Modelled, refusal

NAME = "headwater-postgres"
OWNER = "headwater-dev-connect"
BEGAN = 1_000_000.0
LOG_GROUP = "/headwater/dev/connect/headwater-postgres"
SLOT_LEFT = "/headwater/dev/slot-left"
# As CloudFormation hands it on: all values are texts.
DEFINITION: dict[str, Any] = {
    "connectorName": NAME,
    "connectorConfiguration": {"tasks.max": "1", "enabled": "true"},
    "kafkaConnectVersion": "3.7.x",
    "capacity": {"provisionedCapacity": {"mcuCount": "1", "workerCount": "1"}},
    "kafkaCluster": {
        "apacheKafkaCluster": {
            "bootstrapServers": "b-1:9098,b-2:9098",
            "vpc": {"securityGroups": ["sg-1"], "subnets": ["subnet-1", "subnet-2"]},
        }
    },
    "kafkaClusterClientAuthentication": {"authenticationType": "IAM"},
    "kafkaClusterEncryptionInTransit": {"encryptionType": "TLS"},
    "plugins": [{"customPlugin": {"customPluginArn": "arn:plugin-1", "revision": "1"}}],
    "workerConfiguration": {"workerConfigurationArn": "arn:worker-1", "revision": "1"},
    "serviceExecutionRoleArn": "arn:role",
    "logDelivery": {"workerLogDelivery": {"cloudWatchLogs": {"enabled": "true", "logGroup": LOG_GROUP}}},
}


class MskConnect:
    """MSK Connect with at most one connector per name. A requested operation happens when ``settle`` is called."""

    def __init__(self) -> None:
        self.connectors: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.operations: list[dict[str, Any]] = []
        self.created = 0
        self.deleted = 0
        self.fails_to: str | None = None
        self.refuses: Exception | None = None
        self.refuses_update: Exception | None = None
        self.now = BEGAN

    def list_connectors(self, connectorNamePrefix: str, nextToken: str = "0") -> dict[str, Any]:  # noqa: N803
        summary = ("connectorArn", "connectorName", "connectorState", "currentVersion")
        listed = [
            {key: described[key] for key in summary}
            for described in self.connectors.values()
            if described["connectorName"].startswith(connectorNamePrefix)
        ]
        # One connector per page.
        page = int(nextToken)
        more = {"nextToken": str(page + 1)} if page + 1 < len(listed) else {}
        return {"connectors": listed[page : page + 1], **more}

    def describe_connector(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        return dict(self._get(connectorArn))

    def list_tags_for_resource(self, resourceArn: str) -> dict[str, Any]:  # noqa: N803
        return {"tags": self.tags[resourceArn]}

    def create_connector(self, tags: dict[str, str], **request: Any) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        if any(existing["connectorName"] == request["connectorName"] for existing in self.connectors.values()):
            raise refusal("ConflictException", "a connector of that name exists")
        self.created += 1
        arn = f"arn:connector/{request['connectorName']}/{self.created}"
        described = {key: value for key, value in request.items() if key != "tags"}
        self.connectors[arn] = {
            **copy.deepcopy(described), "connectorArn": arn, "connectorState": "CREATING", "currentVersion": "v1",
        }  # fmt: skip
        self.tags[arn] = tags
        return {"connectorArn": arn, "connectorState": "CREATING"}

    def update_connector(self, connectorArn: str, currentVersion: str, **change: Any) -> dict[str, Any]:  # noqa: N803
        if self.refuses_update is not None:
            raise self.refuses_update
        described = self._get(connectorArn)
        # A request changes either the configuration or the workers' settings.
        assert len(change) == 1 or "connectorConfiguration" not in change
        assert currentVersion == described["currentVersion"]
        described["connectorState"] = "UPDATING"
        self.operations.insert(
            0,
            {
                "connectorOperationArn": f"arn:operation/{len(self.operations)}",
                "connectorOperationType": (
                    "UPDATE_CONNECTOR_CONFIGURATION" if "connectorConfiguration" in change else "UPDATE_WORKER_SETTING"
                ),
                "connectorOperationState": "UPDATE_IN_PROGRESS",
                "creationTime": datetime.fromtimestamp(self.now, UTC),
                "change": change,
            },
        )  # fmt: skip
        return {"connectorArn": connectorArn, "connectorState": "UPDATING"}

    def delete_connector(self, connectorArn: str, currentVersion: str) -> dict[str, Any]:  # noqa: N803
        described = self._get(connectorArn)
        assert currentVersion == described["currentVersion"]
        assert described["connectorState"] in ("RUNNING", "FAILED", "PAUSED")
        described["connectorState"] = "DELETING"
        return {"connectorArn": connectorArn, "connectorState": "DELETING"}

    def list_connector_operations(self, connectorArn: str) -> dict[str, Any]:  # noqa: N803
        return {"connectorOperations": [_without_change(operation) for operation in self.operations]}

    def describe_connector_operation(self, connectorOperationArn: str) -> dict[str, Any]:  # noqa: N803
        (operation,) = [
            listed for listed in self.operations if listed["connectorOperationArn"] == connectorOperationArn
        ]
        return {**_without_change(operation), "errorInfo": {"code": "InvalidInput.Config", "message": "no such option"}}

    def settle(self) -> None:
        """Let all operations that are under way end, well or badly."""
        for arn, described in list(self.connectors.items()):
            state = described["connectorState"]
            if state == "CREATING":
                described["connectorState"] = "FAILED" if self.fails_to == "create" else "RUNNING"
                described["stateDescription"] = {"code": "UnknownError.Unknown", "message": "a task failed"}
            if state == "UPDATING":
                self._end_update(described)
            if state == "DELETING":
                del self.connectors[arn]
                self.deleted += 1

    def _end_update(self, described: dict[str, Any]) -> None:
        operation = self.operations[0]
        described["connectorState"] = "RUNNING"
        if self.fails_to == "update":
            operation["connectorOperationState"] = "ROLLBACK_COMPLETE"
            return
        operation["connectorOperationState"] = "UPDATE_COMPLETE"
        described.update(operation["change"])
        described["currentVersion"] += "+"

    def _get(self, arn: str) -> dict[str, Any]:
        if arn not in self.connectors:
            raise refusal("NotFoundException", "gone", "DescribeConnector")
        return self.connectors[arn]


def _without_change(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation as MSK Connect shows it."""
    return {key: value for key, value in operation.items() if key != "change"}


class Logs:
    """CloudWatch Logs with one connector's log, whose last lines say what slot it has ``released``."""

    def __init__(self) -> None:
        self.released: list[str] = []

    def filter_log_events(self, **request: Any) -> dict[str, Any]:
        assert request["logGroupName"] == LOG_GROUP
        assert request["startTime"] == BEGAN * 1000
        if request["filterPattern"] == '"is released"':
            if "nextToken" not in request:
                # As CloudWatch does, which has not found a line yet.
                return {"events": [], "nextToken": "1"}
            lines = [f"[Worker-1] WARN {RELEASED.format(slot)}, and the connector" for slot in self.released]
        else:
            assert request["filterPattern"] == "?ERROR ?Exception"
            lines = [
                *(f"[Worker-1] ERROR number {number}" for number in range(5)),
                "\tat SomeException.thrown(Some.java:1)",
            ]
        return {"events": [{"message": line + "\n", "timestamp": 1} for line in lines]}


class Parameters:
    """Systems Manager's parameters."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def put_parameter(self, **request: Any) -> dict[str, Any]:
        assert request["Overwrite"]
        self.values[request["Name"]] = request["Value"]
        return {"Version": 1}

    def delete_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803
        if self.values.pop(Name, None) is None:
            raise refusal("ParameterNotFound")
        return {}


class Slot:
    """A Data API that knows one slot, and whether a connector holds it."""

    def __init__(self) -> None:
        self.active: bool | None = None

    def execute_statement(self, **request: Any) -> dict[str, Any]:
        assert "pg_replication_slots" in request["sql"]
        return {"records": [] if self.active is None else [[{"booleanValue": self.active}]]}


class World:
    """MSK Connect with the source's slot, and CloudFormation's requests to our resource."""

    def __init__(self) -> None:
        self.msk = MskConnect()
        self.slot = Slot()
        self.logs = Logs()
        self.parameters = Parameters()
        self.client = Modelled("kafkaconnect", self.msk)
        self._number = 0

    def request(self, kind: str, definition: dict[str, Any] = DEFINITION, *, source: bool = True) -> Event:
        self._number += 1
        properties: dict[str, Any] = {"Name": NAME, "Owner": OWNER, "Connector": definition}
        if source:
            properties["Slot"] = {
                "Name": "headwater", "ClusterArn": CLUSTER, "SecretArn": OWNER_SECRET, "Database": "northwind",
            }  # fmt: skip
        return {
            "RequestType": kind,
            "RequestId": f"request-{self._number}",
            "PhysicalResourceId": NAME,
            "ResourceProperties": properties,
            "Data": {"Began": str(BEGAN)},
        }

    def release(self, kind: str = "Delete", drop: str = "true") -> Event:
        """A request for a source connector beside an existing database."""
        event = self.request(kind, source=False)
        event["ResourceProperties"]["Release"] = {"Slot": "headwater", "Parameter": SLOT_LEFT, "Drop": drop}
        return event

    @property
    def left(self) -> str | None:
        """The record of a slot that stays."""
        return self.parameters.values.get(SLOT_LEFT)

    def step(self, event: Event, seconds: float = 30) -> Outcome:
        self.msk.now = BEGAN + seconds
        slot = event["ResourceProperties"].get("Slot")
        database = Database(Modelled("rds-data", self.slot), slot) if slot else None
        clients = Clients(self.client, Modelled("logs", self.logs), Modelled("ssm", self.parameters))
        return connector.step(event, clients, database, BEGAN + seconds)

    def until_done(self, event: Event) -> Outcome:
        """Take steps until the request is done, with time for MSK Connect between them."""
        for _ in range(10):
            outcome = self.step(event)
            if outcome["IsComplete"]:
                return outcome
            self.msk.settle()
        raise AssertionError(f"not done after ten steps: {self.client.calls}")

    def create(self) -> None:
        self.until_done(self.request("Create"))
        self.client.calls.clear()

    def writes(self) -> list[str]:
        return [call for call in self.client.calls if call.startswith(("create", "update", "delete"))]

    @property
    def only(self) -> dict[str, Any]:
        (described,) = self.msk.connectors.values()
        return described


@pytest.fixture
def world() -> World:
    return World()


def changed(path: str, value: Any) -> dict[str, Any]:
    """The definition with another value at a path such as ``plugins.0.customPlugin.revision``."""
    definition = copy.deepcopy(DEFINITION)
    *parents, last = path.split("/")
    node: Any = definition
    for parent in parents:
        node = node[int(parent) if isinstance(node, list) else parent]
    node[last] = value
    return definition


def test_a_request_is_taken_under_the_connectors_own_name(world: World) -> None:
    begun = lifecycle.begin(world.request("Create"), BEGAN)
    assert begun == {"PhysicalResourceId": NAME, "Data": {"Began": str(BEGAN)}}
    assert lifecycle.begin({"RequestType": "Delete", "PhysicalResourceId": "old"}, BEGAN)["PhysicalResourceId"] == "old"


def test_a_connector_is_created_with_numbers_as_numbers_and_awaited(world: World) -> None:
    event = world.request("Create")
    assert world.step(event) == {"IsComplete": False}
    assert world.step(event) == {"IsComplete": False}
    world.msk.settle()
    assert world.step(event) == {"IsComplete": True, "Data": {"ConnectorArn": world.only["connectorArn"]}}
    assert world.writes() == ["create_connector"]
    assert world.only["capacity"] == {"provisionedCapacity": {"mcuCount": 1, "workerCount": 1}}
    assert world.only["logDelivery"]["workerLogDelivery"]["cloudWatchLogs"]["enabled"] is True
    assert world.only["connectorConfiguration"]["enabled"] == "true"


def test_a_connector_of_a_longer_name_is_another_one(world: World) -> None:
    definition = {**connector.wanted({"Connector": DEFINITION}), "connectorName": f"{NAME}-2"}
    world.msk.create_connector(tags={}, **definition)
    world.create()
    assert {described["connectorName"] for described in world.msk.connectors.values()} == {NAME, f"{NAME}-2"}


def test_nothing_happens_where_nothing_changed(world: World) -> None:
    world.create()
    shuffled = changed("kafkaCluster/apacheKafkaCluster/bootstrapServers", "b-2:9098,b-1:9098")
    shuffled["kafkaCluster"]["apacheKafkaCluster"]["vpc"]["subnets"].reverse()
    for definition in (DEFINITION, shuffled):
        assert world.step(world.request("Update", definition))["IsComplete"]
    assert world.writes() == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("connectorConfiguration/poll.interval.ms", "50"),
        ("capacity/provisionedCapacity/mcuCount", "2"),
        ("plugins/0/customPlugin/customPluginArn", "arn:plugin-2"),
        ("workerConfiguration/workerConfigurationArn", "arn:worker-2"),
    ],
)
def test_configuration_capacity_plugin_and_worker_change_in_place(world: World, path: str, value: str) -> None:
    world.create()
    arn = world.only["connectorArn"]
    definition = changed(path, value)
    world.until_done(world.request("Update", definition))
    assert world.writes() == ["update_connector"]
    assert world.only["connectorArn"] == arn
    part = path.partition("/")[0]
    assert world.only[part] == connector.wanted({"Connector": definition})[part]


def test_the_workers_change_together_and_before_the_configuration(world: World) -> None:
    world.create()
    everything = changed("connectorConfiguration/tasks.max", "2")
    everything["capacity"]["provisionedCapacity"]["workerCount"] = "2"
    everything["plugins"][0]["customPlugin"]["customPluginArn"] = "arn:plugin-2"
    everything["workerConfiguration"]["workerConfigurationArn"] = "arn:worker-2"
    world.until_done(world.request("Update", everything))
    assert world.writes() == ["update_connector", "update_connector"]
    operations = [operation["connectorOperationType"] for operation in reversed(world.msk.operations)]
    assert operations == ["UPDATE_WORKER_SETTING", "UPDATE_CONNECTOR_CONFIGURATION"]
    assert world.only["connectorConfiguration"]["tasks.max"] == "2"
    assert world.only["capacity"]["provisionedCapacity"]["workerCount"] == 2
    assert world.only["plugins"][0]["customPlugin"]["customPluginArn"] == "arn:plugin-2"


def test_a_boto3_that_does_not_know_a_plugins_update_replaces_the_connector(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    shape = world.client.meta.service_model.operation_model("UpdateConnector").input_shape
    known = {name: member for name, member in shape.members.items() if name != "plugins"}
    old = SimpleNamespace(operation_model=lambda _: SimpleNamespace(input_shape=SimpleNamespace(members=known)))
    monkeypatch.setattr(world.client.meta, "service_model", old)
    world.until_done(world.request("Update", changed("plugins/0/customPlugin/customPluginArn", "arn:plugin-2")))
    assert world.writes() == ["delete_connector", "create_connector"]
    assert world.only["plugins"][0]["customPlugin"]["customPluginArn"] == "arn:plugin-2"


def test_an_option_that_is_gone_goes(world: World) -> None:
    world.create()
    fewer = copy.deepcopy(DEFINITION)
    del fewer["connectorConfiguration"]["enabled"]
    world.until_done(world.request("Update", fewer))
    assert world.only["connectorConfiguration"] == {"tasks.max": "1"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("serviceExecutionRoleArn", "arn:role-2"),
        ("logDelivery/workerLogDelivery/cloudWatchLogs/enabled", "false"),
        ("kafkaConnectVersion", "3.8.x"),
        ("kafkaCluster/apacheKafkaCluster/bootstrapServers", "b-3:9098"),
        ("kafkaCluster/apacheKafkaCluster/vpc/subnets", ["subnet-9"]),
    ],
)
def test_anything_else_replaces_it_under_the_same_name(world: World, path: str, value: Any) -> None:
    world.create()
    former = world.only["connectorArn"]
    world.until_done(world.request("Update", changed(path, value)))
    assert world.writes() == ["delete_connector", "create_connector"]
    assert world.only["connectorName"] == NAME
    assert world.only["connectorArn"] != former


def test_the_next_source_waits_until_the_slot_is_free(world: World) -> None:
    world.create()
    world.slot.active = True
    event = world.request("Update", changed("serviceExecutionRoleArn", "arn:role-2"))
    world.step(event)
    world.msk.settle()
    assert world.step(event) == {"IsComplete": False}
    assert world.msk.connectors == {}
    world.slot.active = False
    world.until_done(event)
    assert world.writes() == ["delete_connector", "create_connector"]


def test_a_sink_waits_for_no_slot(world: World) -> None:
    world.slot.active = True
    world.until_done(world.request("Create", source=False))


def test_a_failed_creation_tells_the_connectors_own_reason(world: World) -> None:
    world.msk.fails_to = "create"
    event = world.request("Create")
    world.step(event)
    world.msk.settle()
    with pytest.raises(ResourceFailed) as failed:
        world.step(event)
    assert str(failed.value).splitlines() == [
        f"The connector {NAME} failed: UnknownError.Unknown: a task failed. Its log is {LOG_GROUP}",
        *(f"[Worker-1] ERROR number {number}" for number in (2, 3, 4)),
    ]


def test_a_rollback_puts_the_former_connector_in_the_place_of_the_failed_one(world: World) -> None:
    world.create()
    world.msk.fails_to = "create"
    event = world.request("Update", changed("serviceExecutionRoleArn", "arn:role-2"))
    with pytest.raises(ResourceFailed, match="a task failed"):
        world.until_done(event)
    world.msk.fails_to = None
    world.until_done(world.request("Update"))
    assert world.only["serviceExecutionRoleArn"] == "arn:role"
    assert world.only["connectorState"] == "RUNNING"


def test_a_failed_update_tells_why_and_its_rollback_finds_nothing_to_do(world: World) -> None:
    world.create()
    world.msk.fails_to = "update"
    event = world.request("Update", changed("connectorConfiguration/tasks.max", "x"))
    with pytest.raises(ResourceFailed, match=r"refused its update: InvalidInput\.Config: no such option"):
        world.until_done(event)
    rollback = world.request("Update")
    rollback["Data"]["Began"] = str(BEGAN + 60)
    assert world.step(rollback, 90)["IsComplete"]
    assert world.writes() == ["update_connector"]


def test_an_update_that_is_not_seen_yet_is_not_asked_for_again(world: World) -> None:
    world.create()
    event = world.request("Update", changed("connectorConfiguration/tasks.max", "2"))
    world.step(event)
    # The service has taken the update, but still shows the state before it.
    world.only["connectorState"] = "RUNNING"
    assert world.step(event) == {"IsComplete": False}
    assert world.writes() == ["update_connector"]


def test_a_connector_that_failed_long_ago_is_made_anew(world: World) -> None:
    world.create()
    world.only["connectorState"] = "FAILED"
    world.until_done(world.request("Update"))
    assert world.writes() == ["delete_connector", "create_connector"]


def test_a_paused_connector_is_left_to_whoever_paused_it(world: World) -> None:
    world.create()
    world.only["connectorState"] = "PAUSED"
    with pytest.raises(ResourceFailed, match="is paused: resume it"):
        world.step(world.request("Update"))


@pytest.mark.parametrize("owner", [None, "headwater-stage-connect"])
def test_a_connector_of_others_is_neither_changed_nor_deleted(world: World, owner: str | None) -> None:
    tags = {MAKE_TAG: "x", REQUEST_TAG: "y", **({OWNER_TAG: owner} if owner else {})}
    world.msk.create_connector(tags=tags, **connector.wanted({"Connector": DEFINITION}))
    world.msk.settle()
    with pytest.raises(ResourceFailed, match=f"of {owner or 'unknown origin'}: expected none, or one of {OWNER}"):
        world.step(world.request("Create"))
    assert world.step(world.request("Delete"))["IsComplete"]
    assert world.only["connectorState"] == "RUNNING"


def test_deleting_awaits_the_connectors_end_and_then_the_slot(world: World) -> None:
    world.create()
    event = world.request("Delete")
    world.slot.active = True
    assert world.step(event) == {"IsComplete": False}
    assert world.step(event) == {"IsComplete": False}
    world.msk.settle()
    assert world.step(event) == {"IsComplete": False}
    world.slot.active = False
    assert world.step(event)["IsComplete"]
    assert world.writes() == ["delete_connector"]


def test_deleting_waits_for_what_is_under_way(world: World) -> None:
    world.step(world.request("Create"))
    event = world.request("Delete")
    assert world.step(event) == {"IsComplete": False}
    world.msk.settle()
    world.until_done(event)
    assert world.msk.connectors == {}


def test_a_connector_drops_its_slot_before_it_is_deleted_for_good(world: World) -> None:
    world.create()
    event = world.release()
    world.step(event)
    world.msk.settle()
    assert world.only["connectorConfiguration"] == {**DEFINITION["connectorConfiguration"], RELEASE: "true"}
    # The update ends before the new task has dropped the slot, and a line may be of another one.
    world.logs.released.append("others")
    assert world.step(event) == {"IsComplete": False}
    assert world.writes() == ["update_connector"]
    world.logs.released.append("headwater")
    world.until_done(event)
    assert world.writes() == ["update_connector", "delete_connector"]
    assert world.left is None


def test_a_replaced_connector_leaves_its_slot(world: World) -> None:
    world.until_done(world.release("Create"))
    world.client.calls.clear()
    event = world.release("Update")
    event["ResourceProperties"]["Connector"] = changed("serviceExecutionRoleArn", "arn:other")
    world.until_done(event)
    assert world.writes() == ["delete_connector", "create_connector"]
    assert RELEASE not in world.only["connectorConfiguration"]
    assert world.left is None


def test_the_slot_stays_where_the_data_does_until_it_is_read_again(world: World) -> None:
    world.create()
    world.until_done(world.release(drop="false"))
    assert world.writes() == ["delete_connector"]
    assert world.left is not None
    assert world.left.startswith("the environment keeps its data")
    world.until_done(world.release("Create"))
    assert world.left is None


def refuse_update(world: World) -> None:
    world.msk.refuses_update = refusal("BadRequestException", "it is PAUSED", "UpdateConnector")


def fail_update(world: World) -> None:
    world.msk.fails_to = "update"


@pytest.mark.parametrize(
    ("arrange", "why"),
    [
        (refuse_update, "MSK Connect refused to update the connector, which was RUNNING: .*it is PAUSED"),
        (fail_update, "the connector could not drop the slot: InvalidInput.Config: no such option"),
    ],
)
def test_a_slot_that_stays_is_recorded_and_holds_up_nothing(
    world: World, arrange: Callable[[World], None], why: str
) -> None:
    world.create()
    arrange(world)
    world.until_done(world.release())
    assert world.msk.connectors == {}
    assert re.fullmatch(why, world.left or "")


def test_a_connector_that_fails_to_drop_its_slot_says_why(world: World) -> None:
    world.create()
    event = world.release()
    world.step(event)
    world.msk.settle()
    world.only.update(
        {"connectorState": "FAILED", "stateDescription": {"code": "UnknownError", "message": "no answer"}}
    )
    world.until_done(event)
    assert (world.left or "").startswith("the connector could not drop the slot: UnknownError: no answer. Its log is")


def test_a_connector_that_says_nothing_is_deleted_all_the_same(world: World) -> None:
    world.create()
    event = world.release()
    world.step(event)
    world.msk.settle()
    assert world.step(event, 20 * 60) == {"IsComplete": False}
    assert world.writes() == ["update_connector"]
    world.step(event, 20 * 60 + 1)
    assert world.writes() == ["update_connector", "delete_connector"]
    assert world.left == "the connector did not log within 20 minutes that it has dropped the slot"


def test_a_deletion_that_is_tried_again_knows_that_the_slot_is_gone(world: World) -> None:
    world.create()
    world.only["connectorConfiguration"][RELEASE] = "true"
    world.until_done(world.release())
    assert world.writes() == ["delete_connector"]
    assert world.left is None


def test_a_connector_that_was_to_go_and_stays_reads_again(world: World) -> None:
    world.create()
    world.only["connectorConfiguration"][RELEASE] = "true"
    world.until_done(world.release("Update"))
    assert world.writes() == ["update_connector"]
    assert world.only["connectorConfiguration"] == DEFINITION["connectorConfiguration"]


def test_the_connector_logs_the_words_that_are_waited_for() -> None:
    java = ROOT / "connect/src/main/java/io/headwater/connect/postgresql/SlotRelease.java"
    text = java.read_text()
    assert f'"{RELEASED}, ' in text
    assert f'CONFIG = "{RELEASE}";' in text


def test_deleting_what_is_not_there_succeeds(world: World) -> None:
    assert world.step(world.request("Delete"))["IsComplete"]


def test_a_creation_that_was_asked_for_twice_makes_one(world: World) -> None:
    event = world.request("Create")
    world.step(event)
    # The list is not up to date yet, so that the step runs into the connector that it made itself.
    stale = world.msk.list_connectors
    world.msk.list_connectors = lambda **_: {"connectors": []}  # type: ignore[method-assign]
    assert world.step(event) == {"IsComplete": False}
    world.msk.list_connectors = stale  # type: ignore[method-assign]
    world.until_done(event)
    assert world.msk.created == 1


@pytest.mark.parametrize("code", ["TooManyRequestsException", "ServiceUnavailableException", "NotFoundException"])
def test_a_passing_error_is_tried_again(world: World, code: str) -> None:
    event = world.request("Create")
    world.msk.refuses = refusal(code)
    assert world.step(event, 1000) == {"IsComplete": False}
    world.msk.refuses = None
    world.until_done(event)


@pytest.mark.parametrize("code", ["BadRequestException", "ForbiddenException", "AccessDeniedException"])
def test_a_refusal_counts_once_the_rights_have_had_time_to_settle(world: World, code: str) -> None:
    event = world.request("Create")
    world.msk.refuses = refusal(code, "the role cannot be assumed", "CreateConnector")
    assert world.step(event, 30) == {"IsComplete": False}
    with pytest.raises(ResourceFailed, match=r"AWS refused: .*the role cannot be assumed"):
        world.step(event, 150)


@pytest.mark.parametrize(
    ("arrange", "what"),
    [
        (lambda world: setattr(world.slot, "active", True), "the replication slot headwater to become inactive"),
        (lambda world: world.step(world.request("Create")), "the connector, which is CREATING"),
    ],
)
def test_waiting_too_long_fails_with_what_was_waited_for(
    world: World, arrange: Callable[[World], object], what: str
) -> None:
    arrange(world)
    event = world.request("Create")
    assert world.step(event, lifecycle.LONGEST_WAIT) == {"IsComplete": False}
    with pytest.raises(ResourceFailed, match=f"50 minutes in vain for {what}"):
        world.step(event, lifecycle.LONGEST_WAIT + 1)


def test_a_message_fits_into_cloudformations_answer() -> None:
    assert len(str(ResourceFailed("x" * 5000))) == 1500

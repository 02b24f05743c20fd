"""A connector of MSK Connect that keeps its name, and so its position, through every change.

MSK Connect stores offsets under the connector's name. A changed configuration, capacity, plugin or worker configuration
is updated in place. Any other change needs another connector of the same name. The new connector can be created only
when the old one is gone and, for the source, when the replication slot is free. ``AWS::KafkaConnect::Connector`` would
create the new connector before it deletes the old one.

If the property ``Release`` is set, a source connector drops the slot itself before a final deletion. In a database that
the deployment did not make, only the connector can log in. If the slot stays, a parameter of Systems Manager says why.
``headwater destroy`` reads this parameter.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.data_api import Database, in_the_way
from custom_resources.database_bootstrap import slot_is_active
from custom_resources.lifecycle import Event, Outcome, ResourceFailed

# Tags that a connector gets when it is created: its owner, a hash of its fixed parts, and the request that created it.
OWNER_TAG = "headwater:owner"
MAKE_TAG = "headwater:made-of"
REQUEST_TAG = "headwater:request"

# The arguments of UpdateConnector, by the operation that they start. One call takes the arguments of one operation. The
# workers come first, because a configuration may need the new plugin.
# https://docs.aws.amazon.com/MSKC/latest/mskc/API_UpdateConnector.html
_IN_PLACE = {
    "UPDATE_WORKER_SETTING": ("capacity", "plugins", "workerConfiguration"),
    "UPDATE_CONNECTOR_CONFIGURATION": ("connectorConfiguration",),
}
_PARTS_IN_PLACE = frozenset(part for parts in _IN_PLACE.values() for part in parts)
_UPDATE_FAILED = ("UPDATE_FAILED", "ROLLBACK_FAILED", "ROLLBACK_COMPLETE")
_UNDER_WAY = ("CREATING", "UPDATING", "DELETING", "RESTARTING", "PAUSING", "RESUMING")
# CloudFormation passes every value on as text. MSK Connect expects numbers and booleans in these properties.
_NUMBERS = ("mcuCount", "workerCount", "revision")
_BOOLEANS = ("enabled",)
# The setting with which a source connector drops its slot and stops reading, and the end of its log line about it:
# connect/src/main/java/io/headwater/connect/postgresql/SlotRelease.java.
RELEASE = "headwater.release.slot"
RELEASED = "The replication slot {} is released"
_RELEASED_PATTERN = '"is released"'
# Seconds from the request's beginning. MSK Connect takes minutes for an update and for the deletion that follows.
_RELEASE_WAIT = 20 * 60
# The reason is in the line of the exception, below the line that says ERROR.
_LOG_PATTERN = "?ERROR ?Exception"
_LOG_LINES = 3
# Of a long line, this many characters are kept at each end. Debezium's exceptions begin with the failure, then print
# their whole state, and end with the reason.
_LOG_LINE_ENDS = 200
# Characters. A parameter of Systems Manager takes 4 KB.
_LONGEST_RECORD = 1000


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    slot = event["ResourceProperties"].get("Slot")
    database = Database(boto3.client("rds-data"), slot) if slot else None
    clients = Clients(boto3.client("kafkaconnect"), boto3.client("logs"), boto3.client("ssm"))
    return step(event, clients, database, time.time())


class Clients(NamedTuple):
    """boto3's clients."""

    connect: Any
    """The client for kafkaconnect."""
    logs: Any
    """The client for logs."""
    parameters: Any
    """The client for ssm."""


def step(event: Event, clients: Clients, database: Database | None, now: float) -> Outcome:
    """Take the next step of a request.

    ``database`` has the slot that the connector uses. It is None for a sink, and for a database that the deployment did
    not make. ``now`` is in epoch seconds. Raises ResourceFailed with the connector's own reason.
    """
    request = _Request(event, clients, database, now)
    take = request.remove if event["RequestType"] == "Delete" else request.bring_about
    return lifecycle.attempt(event, now, "AWS", take, _passes)


def wanted(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of CreateConnector, from the resource's property ``Connector``."""
    arguments: dict[str, Any] = _typed(properties["Connector"], "")
    return arguments


def make(definition: Mapping[str, Any]) -> str:
    """A hash of the parts of a connector that no update can change.

    ``definition`` holds the arguments of CreateConnector. The order within lists does not count, because MSK lists the
    brokers in another order each time.
    """
    fixed = {key: value for key, value in definition.items() if key not in _PARTS_IN_PLACE}
    cluster = json.loads(json.dumps(fixed["kafkaCluster"]["apacheKafkaCluster"]))
    cluster["bootstrapServers"] = sorted(cluster["bootstrapServers"].split(","))
    for part in ("securityGroups", "subnets"):
        cluster["vpc"][part] = sorted(cluster["vpc"][part])
    text = json.dumps({**fixed, "kafkaCluster": cluster}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _passes(error: ClientError) -> bool:
    # NotFound: the connector was deleted between two calls.
    return in_the_way(error) or lifecycle.code(error) == "NotFoundException"


class _Request:
    """One step of a CloudFormation request."""

    def __init__(self, event: Event, clients: Clients, database: Database | None, now: float) -> None:
        self._event = event
        self._connect, self._logs, self._parameters = clients
        self._database = database
        self._now = now
        self._name = event["PhysicalResourceId"]
        self._properties = event["ResourceProperties"]

    def bring_about(self) -> Outcome:
        """Take the next step towards the connector that the properties describe."""
        definition = wanted(self._properties)
        connector = self._find()
        if connector is None:
            return self._wait_for_slot() or self._create(definition)
        # Wait or fail if the connector cannot be changed now.
        state, tags = connector["connectorState"], self._tags(connector)
        if tags.get(OWNER_TAG) != self._properties["Owner"]:
            raise ResourceFailed(
                f"There is a connector {self._name} already, of {tags.get(OWNER_TAG, 'unknown origin')}: expected "
                f"none, or one of {self._properties['Owner']}. Delete it, or deploy to another account or region"
            )
        if state in _UNDER_WAY:
            return self._wait(f"the connector, which is {state}")
        if state == "PAUSED":
            raise ResourceFailed(f"The connector {self._name} is paused: resume it, then deploy again")
        if state == "FAILED" and tags.get(REQUEST_TAG) == self._event["RequestId"]:
            raise ResourceFailed(f"The connector {self._name} failed: {self._reason(connector)}")
        updates = self._updates(connector)
        for update in updates:
            if update["connectorOperationState"] in _UPDATE_FAILED:
                raise ResourceFailed(
                    f"The connector {self._name} refused its update: {self._error(update)}. Correct the "
                    "setting, then deploy again"
                )
        changed = {part: definition[part] for part in _PARTS_IN_PLACE if connector.get(part) != definition[part]}
        # A connector that failed before this request, or by an earlier request's update, is beyond repair.
        if state == "FAILED" or tags.get(MAKE_TAG) != make(definition) or not changed.keys() <= self._updatable():
            return self._delete(connector)
        # Start the next operation of an update in place, or wait for it.
        for operation, parts in _IN_PLACE.items():
            change = {part: changed[part] for part in parts if part in changed}
            if change:
                if not any(update["connectorOperationType"] == operation for update in updates):
                    self._change(connector, **change)
                return self._wait(f"the connector to take its {', '.join(change)}")
        return lifecycle.done(ConnectorArn=connector["connectorArn"])

    def remove(self) -> Outcome:
        """Take the next step until the connector is gone and its slot is free."""
        connector = self._find()
        if connector is None:
            return self._wait_for_slot() or lifecycle.done()
        if self._tags(connector).get(OWNER_TAG) != self._properties["Owner"]:
            # The creation was refused because another owner has a connector of this name: it stays.
            return lifecycle.done()
        if connector["connectorState"] in _UNDER_WAY:
            return self._wait(f"the connector, which is {connector['connectorState']}")
        return self._release(connector) or self._delete(connector)

    def _release(self, connector: Mapping[str, Any]) -> Outcome | None:
        """Take the next step until the connector has dropped its slot.

        Returns None once the slot is dropped. Also returns None if the slot stays, because that does not hold up the
        deletion.
        """
        release = self._properties.get("Release")
        if release is None:
            return None
        outcome: Outcome | str | None = (
            "the environment keeps its data, and the next deploy reads on from the slot's position"
        )
        if release["Drop"] == "true":
            outcome = self._drop_slot(connector, RELEASED.format(release["Slot"]))
        if isinstance(outcome, str):
            self._leave(release, outcome)
            return None
        return outcome

    def _drop_slot(self, connector: Mapping[str, Any], line: str) -> Outcome | str | None:
        """Take the next step until the connector has logged ``line``.

        Returns None once the line is logged, or a text that says why the connector does not drop the slot.
        """
        state, configuration = connector["connectorState"], connector["connectorConfiguration"]
        updates = self._updates(connector)
        # An earlier request may have dropped the slot already and failed later.
        earlier = not updates and state == "RUNNING" and RELEASE in configuration
        if earlier or self._lines(connector, _RELEASED_PATTERN, line):
            return None
        if not updates:
            try:
                self._change(connector, connectorConfiguration={**configuration, RELEASE: "true"})
            except ClientError as error:
                if _passes(error):
                    raise
                # MSK Connect refuses this update for a paused connector.
                return f"MSK Connect refused to update the connector, which was {state}: {error}"
            return self._wait("the connector to drop its replication slot")
        if updates[0]["connectorOperationState"] in _UPDATE_FAILED:
            return f"the connector could not drop the slot: {self._error(updates[0])}"
        if state == "FAILED":
            return f"the connector could not drop the slot: {self._reason(connector)}"
        if self._now - lifecycle.began(self._event) > _RELEASE_WAIT:
            return f"the connector did not log within {_RELEASE_WAIT // 60} minutes that it has dropped the slot"
        return self._wait("the connector to say that it has dropped its replication slot")

    def _leave(self, release: Mapping[str, str], why: str) -> None:
        """Record that the slot stays."""
        print(f"The replication slot {release['Slot']} stays, so the server keeps its log (WAL): {why}")
        self._parameters.put_parameter(
            Name=release["Parameter"], Value=why[:_LONGEST_RECORD], Type="String", Overwrite=True
        )

    def _forget_left(self) -> None:
        """Remove the record that the slot stayed, because a connector reads the slot again."""
        if "Release" not in self._properties:
            return
        try:
            self._parameters.delete_parameter(Name=self._properties["Release"]["Parameter"])
        except ClientError as error:
            if lifecycle.code(error) != "ParameterNotFound":
                raise

    def _change(self, connector: Mapping[str, Any], **change: Any) -> None:
        arn, version = connector["connectorArn"], connector["currentVersion"]
        self._connect.update_connector(connectorArn=arn, currentVersion=version, **change)

    def _updatable(self) -> Set[str]:
        """The arguments that UpdateConnector takes in the boto3 of Lambda's Python.

        If boto3 is older than AWS's documentation, it would refuse plugins and worker configurations.
        """
        request: Mapping[str, Any] = self._connect.meta.service_model.operation_model(
            "UpdateConnector"
        ).input_shape.members
        return request.keys()

    def _find(self) -> Mapping[str, Any] | None:
        """The description of the connector with this name; None if there is none.

        Connectors can only be listed by a prefix of their names.
        """
        query: dict[str, str] = {"connectorNamePrefix": self._name}
        while True:
            page = self._connect.list_connectors(**query)
            for listed in page["connectors"]:
                if listed["connectorName"] == self._name:
                    connector: Mapping[str, Any] = self._connect.describe_connector(connectorArn=listed["connectorArn"])
                    return connector
            if "nextToken" not in page:
                return None
            query["nextToken"] = page["nextToken"]

    def _tags(self, connector: Mapping[str, Any]) -> Mapping[str, str]:
        tags: Mapping[str, str] = self._connect.list_tags_for_resource(resourceArn=connector["connectorArn"])["tags"]
        return tags

    def _wait_for_slot(self) -> Outcome | None:
        if self._database is None or not slot_is_active(self._database, self._properties["Slot"]["Name"]):
            return None
        return self._wait(f"the replication slot {self._properties['Slot']['Name']} to become inactive")

    def _create(self, definition: Mapping[str, Any]) -> Outcome:
        tags = {
            OWNER_TAG: self._properties["Owner"],
            MAKE_TAG: make(definition),
            REQUEST_TAG: self._event["RequestId"],
        }
        self._forget_left()
        try:
            self._connect.create_connector(**definition, tags=tags)
        except ClientError as error:
            # The former connector is still being deleted, or Lambda ran this step twice.
            if lifecycle.code(error) == "ConflictException":
                return self._wait(f"the former connector to be gone: {error}")
            raise
        return self._wait("the connector to be created")

    def _delete(self, connector: Mapping[str, Any]) -> Outcome:
        arn, version = connector["connectorArn"], connector["currentVersion"]
        self._connect.delete_connector(connectorArn=arn, currentVersion=version)
        return self._wait("the connector to be deleted")

    def _updates(self, connector: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The updates of the connector since the request began."""
        operations = self._connect.list_connector_operations(connectorArn=connector["connectorArn"])
        return [
            operation
            for operation in operations["connectorOperations"]
            if operation["connectorOperationType"] in _IN_PLACE
            and operation["creationTime"].timestamp() >= lifecycle.began(self._event)
        ]

    def _error(self, update: Mapping[str, Any]) -> str:
        arn = update["connectorOperationArn"]
        return _described(self._connect.describe_connector_operation(connectorOperationArn=arn).get("errorInfo"))

    def _reason(self, connector: Mapping[str, Any]) -> str:
        """Why the connector failed: MSK Connect's message, and the last errors of its log, which say more."""
        lines = [line for line in self._lines(connector, _LOG_PATTERN) if not line.startswith("at ")]
        shown = [_ends(line) for line in lines[-_LOG_LINES:]]
        return "\n".join([f"{_described(connector.get('stateDescription'))}. Its log is {_log(connector)}", *shown])

    def _lines(self, connector: Mapping[str, Any], pattern: str, text: str = "") -> list[str]:
        """The lines with ``text`` that the connector has logged since the request began.

        ``pattern`` is a filter pattern of CloudWatch. CloudWatch may return empty pages before a page with lines.
        """
        query: dict[str, Any] = {
            "logGroupName": _log(connector),
            "startTime": int(lifecycle.began(self._event) * 1000),
            "filterPattern": pattern,
        }
        lines: list[str] = []
        while True:
            page = self._logs.filter_log_events(**query)
            lines += [event["message"].strip() for event in page["events"] if text in event["message"]]
            if "nextToken" not in page:
                return lines
            query["nextToken"] = page["nextToken"]

    def _wait(self, what: str) -> Outcome:
        return lifecycle.wait(self._event, self._now, what)


def _log(connector: Mapping[str, Any]) -> str:
    """The log group of a connector."""
    return str(connector["logDelivery"]["workerLogDelivery"]["cloudWatchLogs"]["logGroup"])


def _ends(line: str) -> str:
    return line if len(line) <= 2 * _LOG_LINE_ENDS else f"{line[:_LOG_LINE_ENDS]} … {line[-_LOG_LINE_ENDS:]}"


def _described(description: Mapping[str, str] | None) -> str:
    """Code and message of a description with which MSK Connect explains states and errors."""
    return ": ".join((description or {}).get(part, "unknown") for part in ("code", "message"))


def _typed(value: Any, key: str) -> Any:
    """A property whose numbers and booleans are no longer text. The connector's configuration stays text."""
    if isinstance(value, dict):
        return {
            name: inner if name == "connectorConfiguration" else _typed(inner, name) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_typed(inner, key) for inner in value]
    if key in _NUMBERS:
        return int(value)
    return value == "true" if key in _BOOLEANS else value

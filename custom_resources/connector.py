"""A connector of MSK Connect that keeps its name, and with it its position, through every change.

Offsets hang on the connector's name. A changed configuration or capacity is updated in place; anything else needs
another connector, and under the same name that can only be made once the first is gone, and for the source also only
once its replication slot is free. ``AWS::KafkaConnect::Connector`` would create the second before it deletes the first.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from custom_resources import lifecycle
from custom_resources.data_api import Database, in_the_way
from custom_resources.database_bootstrap import slot_is_active
from custom_resources.lifecycle import Event, Outcome, ResourceFailed

# Tags that a connector gets in the call that creates it: whose it is, of what it is made, and which request made it.
OWNER_TAG = "headwater:owner"
MAKE_TAG = "headwater:made-of"
REQUEST_TAG = "headwater:request"

# What UpdateConnector can change, one of them a call, and the operation that it then runs.
_IN_PLACE = {"connectorConfiguration": "UPDATE_CONNECTOR_CONFIGURATION", "capacity": "UPDATE_WORKER_SETTING"}
_UPDATE_FAILED = ("UPDATE_FAILED", "ROLLBACK_FAILED", "ROLLBACK_COMPLETE")
_UNDER_WAY = ("CREATING", "UPDATING", "DELETING", "RESTARTING", "PAUSING", "RESUMING")
# CloudFormation hands every value on as a text.
_NUMBERS = ("mcuCount", "workerCount", "revision")
_SWITCHES = ("enabled",)
# A reason stands in the exception's own line, below the one that says that there is an error.
_LOG_PATTERN = "?ERROR ?Exception"
_LOG_LINES = 3
# Debezium's exceptions hold its whole state between what failed and why.
_LOG_LINE_ENDS = 200


def is_complete(event: Event, context: object) -> Outcome:
    """Take the next step of a request."""
    slot = event["ResourceProperties"].get("Slot")
    database = Database(boto3.client("rds-data"), slot) if slot else None
    return step(event, boto3.client("kafkaconnect"), boto3.client("logs"), database, time.time())


def step(event: Event, connect: Any, logs: Any, database: Database | None, now: float) -> Outcome:
    """Do what is next to be done.

    ``connect`` and ``logs`` are boto3's clients for kafkaconnect and logs; ``database`` is the one whose slot the
    connector uses, None for a sink; ``now`` is in epoch seconds. Raises ResourceFailed with the connector's own reason.
    """
    asked = _Asked(event, connect, logs, database, now)
    try:
        return asked.remove() if event["RequestType"] == "Delete" else asked.bring_about()
    except ClientError as error:
        # NotFound: the connector went between two calls.
        if in_the_way(error) or lifecycle.code(error) == "NotFoundException" or lifecycle.settling(event, error, now):
            return lifecycle.wait(event, now, f"AWS: {error}")
        raise ResourceFailed(f"AWS refused: {error}") from None


def wanted(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The request of CreateConnector that the resource's property ``Connector`` stands for."""
    request: dict[str, Any] = _typed(properties["Connector"], "")
    return request


def make(request: Mapping[str, Any]) -> str:
    """What a connector is made of that no update changes, as a hash. Lists are compared without their order: that of
    the brokers changes with each look-up."""
    fixed = {key: value for key, value in request.items() if key not in _IN_PLACE}
    cluster = json.loads(json.dumps(fixed["kafkaCluster"]["apacheKafkaCluster"]))
    cluster["bootstrapServers"] = sorted(cluster["bootstrapServers"].split(","))
    for part in ("securityGroups", "subnets"):
        cluster["vpc"][part] = sorted(cluster["vpc"][part])
    text = json.dumps({**fixed, "kafkaCluster": cluster}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Asked:
    """One look at one request."""

    def __init__(self, event: Event, connect: Any, logs: Any, database: Database | None, now: float) -> None:
        self._event = event
        self._connect = connect
        self._logs = logs
        self._database = database
        self._now = now
        self._name = event["PhysicalResourceId"]
        self._properties = event["ResourceProperties"]

    def bring_about(self) -> Outcome:
        """The next step towards the connector as the properties want it."""
        request = wanted(self._properties)
        found = self._find()
        if found is None:
            return self._wait_for_slot() or self._create(request)
        state, tags = found["connectorState"], self._tags(found)
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
            raise ResourceFailed(f"The connector {self._name} failed: {self._reason(found)}")
        updates = self._updates(found)
        for update in updates:
            if update["connectorOperationState"] in _UPDATE_FAILED:
                raise ResourceFailed(f"The connector {self._name} refused its update: {self._error(update)}")
        # One that failed earlier, or by a failed update of an earlier request, is beyond repair.
        if state == "FAILED" or tags.get(MAKE_TAG) != make(request):
            return self._delete(found)
        for part, operation in _IN_PLACE.items():
            if found[part] != request[part]:
                if not any(update["connectorOperationType"] == operation for update in updates):
                    arn, version = found["connectorArn"], found["currentVersion"]
                    self._connect.update_connector(connectorArn=arn, currentVersion=version, **{part: request[part]})
                return self._wait(f"the connector to take its {part}")
        return lifecycle.done(ConnectorArn=found["connectorArn"])

    def remove(self) -> Outcome:
        """The next step towards no connector, and its slot free."""
        found = self._find()
        if found is None:
            return self._wait_for_slot() or lifecycle.done()
        if self._tags(found).get(OWNER_TAG) != self._properties["Owner"]:
            # This request's creation was refused for that; what others made stays.
            return lifecycle.done()
        if found["connectorState"] in _UNDER_WAY:
            return self._wait(f"the connector, which is {found['connectorState']}")
        return self._delete(found)

    def _find(self) -> Mapping[str, Any] | None:
        """The connector of the name, described; a prefix is all that can be listed."""
        request: dict[str, str] = {"connectorNamePrefix": self._name}
        while True:
            page = self._connect.list_connectors(**request)
            for connector in page["connectors"]:
                if connector["connectorName"] == self._name:
                    found: Mapping[str, Any] = self._connect.describe_connector(connectorArn=connector["connectorArn"])
                    return found
            if "nextToken" not in page:
                return None
            request["nextToken"] = page["nextToken"]

    def _tags(self, found: Mapping[str, Any]) -> Mapping[str, str]:
        tags: Mapping[str, str] = self._connect.list_tags_for_resource(resourceArn=found["connectorArn"])["tags"]
        return tags

    def _wait_for_slot(self) -> Outcome | None:
        if self._database is None or not slot_is_active(self._database, self._properties["Slot"]["Name"]):
            return None
        return self._wait(f"the replication slot {self._properties['Slot']['Name']} to become inactive")

    def _create(self, request: Mapping[str, Any]) -> Outcome:
        tags = {
            OWNER_TAG: self._properties["Owner"],
            MAKE_TAG: make(request),
            REQUEST_TAG: self._event["RequestId"],
        }
        try:
            self._connect.create_connector(**request, tags=tags)
        except ClientError as error:
            # One of that name is still going, or this very step ran twice.
            if lifecycle.code(error) == "ConflictException":
                return self._wait(f"the former connector to be gone: {error}")
            raise
        return self._wait("the connector to be created")

    def _delete(self, found: Mapping[str, Any]) -> Outcome:
        self._connect.delete_connector(connectorArn=found["connectorArn"], currentVersion=found["currentVersion"])
        return self._wait("the connector to be deleted")

    def _updates(self, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The updates of the connector since the request began."""
        listed = self._connect.list_connector_operations(connectorArn=found["connectorArn"])["connectorOperations"]
        return [
            one
            for one in listed
            if one["connectorOperationType"] in _IN_PLACE.values()
            and one["creationTime"].timestamp() >= lifecycle.began(self._event)
        ]

    def _error(self, update: Mapping[str, Any]) -> str:
        arn = update["connectorOperationArn"]
        return _described(self._connect.describe_connector_operation(connectorOperationArn=arn).get("errorInfo"))

    def _reason(self, found: Mapping[str, Any]) -> str:
        """Why the connector failed: MSK Connect's words, and the last errors of its log, which say more."""
        group = found["logDelivery"]["workerLogDelivery"]["cloudWatchLogs"]["logGroup"]
        since = int(lifecycle.began(self._event) * 1000)
        listed = self._logs.filter_log_events(logGroupName=group, startTime=since, filterPattern=_LOG_PATTERN)["events"]
        lines = [line for line in (one["message"].strip() for one in listed) if not line.startswith("at ")]
        shown = [_ends(line) for line in lines[-_LOG_LINES:]]
        return "\n".join([f"{_described(found.get('stateDescription'))}. Its log is {group}", *shown])

    def _wait(self, what: str) -> Outcome:
        return lifecycle.wait(self._event, self._now, what)


def _ends(line: str) -> str:
    return line if len(line) <= 2 * _LOG_LINE_ENDS else f"{line[:_LOG_LINE_ENDS]} … {line[-_LOG_LINE_ENDS:]}"


def _described(description: Mapping[str, str] | None) -> str:
    """A code with a message, as MSK Connect describes states and errors."""
    return ": ".join((description or {}).get(part, "unknown") for part in ("code", "message"))


def _typed(value: Any, key: str) -> Any:
    """A property with its numbers and switches as such; the connector's configuration stays text."""
    if isinstance(value, dict):
        return {
            name: inner if name == "connectorConfiguration" else _typed(inner, name) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_typed(inner, key) for inner in value]
    if key in _NUMBERS:
        return int(value)
    return value == "true" if key in _SWITCHES else value

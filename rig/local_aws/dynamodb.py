"""DynamoDB: tables of DynamoDB Local, and relays in place of their Kinesis destinations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.errors import UserError
from rig.local.dynamodb_local import DynamoDbLocal
from rig.local.relay import Relay
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import ApiError, Forwarded
from rig.local_aws.cloudwatch import Measured
from rig.local_aws.resources import Made, Properties, ResourceType

TABLE = "AWS::DynamoDB::GlobalTable"
_STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


class Tables:
    """The tables of an account, below ``folder``. DynamoDB Local starts with the first table."""

    def __init__(self, folder: Path, context: AccountContext) -> None:
        self._folder = folder
        self._context = context
        self._running = ExitStack()
        self._lock = threading.Lock()
        self._relays: dict[str, Relay] = {}
        self._server = DynamoDbLocal(folder, context.credentials)
        # DynamoDB Local has no Kinesis destinations.
        own = {
            "DescribeKinesisStreamingDestination": self._describe_destination,
            "DeleteTable": self._delete_table,
            "DisableKinesisStreamingDestination": self._disable_destination,
            "EnableKinesisStreamingDestination": self._enable_destination,
        }
        self.api = Forwarded("dynamodb", lambda: self.server().endpoint, own, context.credentials, context.region)

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {TABLE: _Table(self)}

    def server(self) -> DynamoDbLocal:
        """The running DynamoDB Local."""
        with self._lock:
            if not self._server.running:
                self._running.enter_context(self._server)
        return self._server

    def create(self, name: str, table: dict[str, Any], expiry: str | None, stream: str) -> Made:
        """Create a table whose changes go to the Kinesis stream with that ARN."""
        client = self.server().client("dynamodb")
        client.create_table(TableName=name, StreamSpecification=_STREAM, **table)
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
        if expiry is not None:
            specification = {"Enabled": True, "AttributeName": expiry}
            client.update_time_to_live(TableName=name, TimeToLiveSpecification=specification)
        self._carry(name, stream)
        arn = f"arn:aws:dynamodb:{self._context.region}:{self._context.account}:table/{name}"
        return Made(name, {"Arn": arn, "TableId": name})

    def _carry(self, name: str, stream: str) -> None:
        """Begin to relay a table's changes to the Kinesis stream with that ARN."""
        relay = Relay(
            self._folder / name,
            self.server(),
            self._context.endpoint,
            name,
            stream=stream.rpartition("/")[2],
        )
        self._running.enter_context(relay)
        self._relays[name] = relay

    def delete(self, name: str) -> None:
        """Delete a table."""
        if name in self._relays:
            self._delete_table({"TableName": name})

    def measured(self) -> Iterator[Measured]:
        """The metrics that DynamoDB sends about its Kinesis destinations."""
        for name, relay in list(self._relays.items()):
            # DynamoDB sends no metrics about a disabled destination, because it keeps no changes for it.
            if not relay.running:
                continue
            of = {"DelegatedOperation": "PutRecord", "TableName": name}
            for metric, value in (
                ("AgeOfOldestUnreplicatedRecord", relay.age() * 1000),
                ("FailedToReplicateRecordCount", relay.newly_dropped()),
            ):
                yield Measured("AWS/DynamoDB", metric, of, value)

    def _describe_destination(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TableName"]
        relay = self._find(name)
        stream = f"arn:aws:kinesis:{self._context.region}:{self._context.account}:stream/{relay.stream}"
        destination = {
            "StreamArn": stream,
            "DestinationStatus": "ACTIVE" if relay.running else "DISABLED",
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
        }
        return {"TableName": name, "KinesisDataStreamDestinations": [destination]}

    def _disable_destination(self, request: dict[str, Any]) -> dict[str, Any]:
        self._find(request["TableName"]).stop()
        return {"TableName": request["TableName"], "DestinationStatus": "DISABLING"}

    def _enable_destination(self, request: dict[str, Any]) -> dict[str, Any]:
        """Relay a table's changes to its stream.

        After an interruption, the relay also carries the changes of the meantime, which AWS does not.
        """
        name, stream = request["TableName"], request["StreamArn"]
        if name in self._relays:
            relay = self._find(name)
            if stream.rpartition("/")[2] != relay.stream:
                raise ApiError("ValidationException", f"here a table has one destination, {relay.stream}")
            relay.start()
        else:
            configuration = request.get("EnableKinesisStreamingConfiguration", {})
            if configuration.get("ApproximateCreationDateTimePrecision") != "MICROSECOND":
                raise ApiError("ValidationException", "here times are in microseconds")
            self._give_images(name)
            self._carry(name, stream)
        return {"TableName": name, "DestinationStatus": "ENABLING"}

    def _give_images(self, name: str) -> None:
        """Enable the DynamoDB stream of a table's images, which the relay reads.

        A destination on AWS needs no such stream.
        """
        client = self.server().client("dynamodb")
        try:
            given = client.describe_table(TableName=name)["Table"].get("StreamSpecification", {"StreamEnabled": False})
        except client.exceptions.ResourceNotFoundException as error:
            raise _unknown(name) from error
        if not given["StreamEnabled"]:
            client.update_table(TableName=name, StreamSpecification=_STREAM)
        elif given != _STREAM:
            raise ApiError("ValidationException", f"here a table's stream has {_STREAM['StreamViewType']}")

    def _delete_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """Delete a table that somebody has created, with its relay."""
        name = request["TableName"]
        relay = self._relays.pop(name, None)
        if relay is not None:
            relay.stop()
        client = self.server().client("dynamodb")
        try:
            deleted = client.delete_table(TableName=name)
        except client.exceptions.ResourceNotFoundException as error:
            raise _unknown(name) from error
        return {"TableDescription": deleted["TableDescription"]}

    def _find(self, name: str) -> Relay:
        if name not in self._relays:
            raise _unknown(name)
        return self._relays[name]

    def relay(self, name: str) -> Relay:
        """The relay that carries the changes of a table."""
        return self._relays[name]

    def close(self) -> None:
        """Stop DynamoDB Local and all relays."""
        self._relays.clear()
        self._running.close()


def _unknown(table: str) -> ApiError:
    return ApiError("ResourceNotFoundException", f"Requested resource not found: Table: {table} not found")


class _Table(ResourceType[Tables]):
    kind = TABLE

    def make(self, name: str, properties: Properties) -> Made:
        (replica,) = properties["Replicas"]
        stream = replica["KinesisStreamSpecification"]
        precision = stream.get("ApproximateCreationDateTimePrecision")
        if precision != "MICROSECOND":
            raise UserError(f"ApproximateCreationDateTimePrecision: found {precision}, expected MICROSECOND")
        expiry = properties.get("TimeToLiveSpecification")
        names = ("AttributeDefinitions", "BillingMode", "KeySchema")
        made = self.service.create(
            properties["TableName"],
            {part: properties[part] for part in names},
            expiry["AttributeName"] if expiry and expiry["Enabled"] else None,
            stream["StreamArn"],
        )
        replica["Region"]
        return made

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.delete(physical_id)

"""MSK Connect: each connector is its own Kafka Connect cluster on this machine.

The cluster has the plugin that the deployment has uploaded, and the credentials of the connector's role.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import shutil
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import UserError
from rig.local.connect import ConnectWorker
from rig.local_aws import stream
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError, now
from rig.local_aws.cloudwatch import Measured
from rig.local_aws.log_delivery import LogDelivery
from rig.local_aws.resources import Made, Properties, ResourceType, refuse_unread

CONNECTOR = "AWS::KafkaConnect::Connector"
CUSTOM_PLUGIN = "AWS::KafkaConnect::CustomPlugin"
WORKER_CONFIGURATION = "AWS::KafkaConnect::WorkerConfiguration"
_WATCH_SECONDS = 1.0
# The arguments of UpdateConnector that may change, by the type of operation.
_WORKER_SETTING = ("capacity", "plugins", "workerConfiguration")
_CONFIGURATION = ("connectorConfiguration",)


@dataclass
class _Connector:
    """A connector: its request of CreateConnector and its present state."""

    arn: str
    cluster: str
    """The id of the Kafka Connect cluster."""
    definition: dict[str, Any]
    """The arguments of CreateConnector, after updates."""
    tags: dict[str, str]
    created: dt.datetime
    state: str = "CREATING"
    version: int = 1
    """The number of the definition, which UpdateConnector and DeleteConnector have to name."""
    description: dict[str, str] | None = None
    """The code and message of the last failure."""
    operations: list[dict[str, Any]] = field(default_factory=list)
    workers: list[ConnectWorker] = field(default_factory=list)
    running: ExitStack = field(default_factory=ExitStack)
    """Ends the workers."""

    @property
    def name(self) -> str:
        return str(self.definition["connectorName"])


class Connectors:
    """The plugins, worker configurations and connectors of an account, below ``folder``."""

    def __init__(self, folder: Path, context: AccountContext) -> None:
        self._folder = folder
        self._context = context
        self._numbers = itertools.count(1)
        self._plugins: dict[str, Path] = {}
        self._configurations: dict[str, dict[str, str]] = {}
        self._connectors: dict[str, _Connector] = {}
        self._lock = threading.RLock()
        self._work = ThreadPoolExecutor(thread_name_prefix="MSK Connect")
        self._closing = threading.Event()
        self._work.submit(self._replace_ended)
        self.api = Api(
            "kafkaconnect",
            {
                "CreateConnector": self._create,
                "DeleteConnector": self._delete,
                "DescribeConnector": self._describe,
                "DescribeConnectorOperation": self._describe_operation,
                "ListConnectorOperations": self._list_operations,
                "ListConnectors": self._list,
                "ListTagsForResource": self._list_tags,
                "RestartConnector": self._restart,
                "TagResource": self._tag,
                "UpdateConnector": self._update,
            },
        )

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {CUSTOM_PLUGIN: _CustomPlugin(self), WORKER_CONFIGURATION: _WorkerConfiguration(self)}

    def add_plugin(self, name: str, bucket: str, key: str) -> Made:
        """Download a ZIP file, and unpack it into its own folder on a plugin path."""
        arn = self._arn("custom-plugin", name)
        if arn in self._plugins:
            raise UserError(f"there is a custom plugin {name} already")
        path = self._folder / "plugins" / name
        path.mkdir(parents=True)
        zipped = path.with_suffix(".zip")
        self._context.client("s3").download_file(bucket, key, str(zipped))
        with zipfile.ZipFile(zipped) as archive:
            archive.extractall(path / "plugin")
        zipped.unlink()
        self._plugins[arn] = path
        return Made(arn, {"CustomPluginArn": arn, "Revision": 1})

    def remove_plugin(self, arn: str) -> None:
        """Delete a plugin. Raises UserError if a connector uses it."""
        with self._lock:
            self._refuse_used(arn, lambda each: each["plugins"][0]["customPlugin"]["customPluginArn"])
            path = self._plugins.pop(arn, None)
        if path is not None:
            shutil.rmtree(path)

    def add_configuration(self, name: str, properties: str) -> Made:
        """Store a worker configuration, the text of a properties file."""
        arn = self._arn("worker-configuration", name)
        if arn in self._configurations:
            raise UserError(f"there is a worker configuration {name} already")
        lines = (line.partition("=") for line in properties.splitlines() if line)
        self._configurations[arn] = {key: value for key, _, value in lines}
        return Made(arn, {"WorkerConfigurationArn": arn, "Revision": 1})

    def remove_configuration(self, arn: str) -> None:
        """Delete a worker configuration. Raises UserError if a connector uses it."""
        with self._lock:
            self._refuse_used(arn, lambda each: each["workerConfiguration"]["workerConfigurationArn"])
            self._configurations.pop(arn, None)

    def workers(self, name: str) -> list[ConnectWorker]:
        """The workers of the connector with that name."""
        return next((each.workers for each in self._connectors.values() if each.name == name), [])

    def measured(self) -> Iterator[Measured]:
        """The metrics that MSK Connect sends about connectors and their tasks."""
        if self._context.idle:
            return
        with self._lock:
            connectors = [(connector, list(connector.workers)) for connector in self._connectors.values()]
        for connector, workers in connectors:
            states = workers[0].task_states(connector.name) if workers else []
            of = {"ConnectorName": connector.name}
            for metric, state in (("RunningTaskCount", "RUNNING"), ("ErroredTaskCount", "FAILED")):
                yield Measured("AWS/KafkaConnect", metric, of, states.count(state))

    def close(self) -> None:
        """End all connectors."""
        self._closing.set()
        with self._lock:
            connectors = list(self._connectors.values())
            self._connectors.clear()
        for connector in connectors:
            connector.running.close()
        self._work.shutdown()

    def _replace_ended(self) -> None:
        """Replace workers that have ended by themselves, as MSK Connect does."""
        while not self._closing.wait(_WATCH_SECONDS):
            with self._lock:
                connectors = [each for each in self._connectors.values() if each.state == "RUNNING"]
            for connector in connectors:
                for worker in connector.workers:
                    if not worker.running and connector.state == "RUNNING" and not self._closing.is_set():
                        # A worker that does not start is tried again.
                        with suppress(UserError):
                            worker.start()

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:kafkaconnect:{self._context.region}:{self._context.account}:{kind}/{name}/1"

    def _refuse_used(self, arn: str, used: Callable[[Mapping[str, Any]], str]) -> None:
        users = [each.name for each in self._connectors.values() if used(each.definition) == arn]
        if users:
            raise UserError(f"{arn} is in use by {', '.join(users)}")

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        definition = {key: value for key, value in request.items() if key != "tags"}
        self._check(definition)
        name = definition["connectorName"]
        with self._lock:
            if any(each.name == name for each in self._connectors.values()):
                raise ApiError("ConflictException", f"There is a connector {name} already")
            number = next(self._numbers)
            arn = f"{self._arn('connector', name)[:-2]}/{number}"
            connector = _Connector(arn, f"{name}-{number}", definition, request.get("tags", {}), now())
            self._connectors[arn] = connector
        self._work.submit(self._bring_up, connector)
        return {"connectorArn": arn, "connectorName": name, "connectorState": connector.state}

    def _check(self, definition: Mapping[str, Any]) -> None:
        for part, kind, known in (
            (definition["plugins"][0]["customPlugin"], "customPluginArn", self._plugins),
            (definition["workerConfiguration"], "workerConfigurationArn", self._configurations),
        ):
            if part[kind] not in known or part["revision"] != 1:
                raise ApiError("NotFoundException", f"There is no revision {part['revision']} of {part[kind]}")

    def _bring_up(self, connector: _Connector) -> None:
        try:
            self._start(connector)
        except Exception as error:
            self._settle(connector, "FAILED", error)
        else:
            self._settle(connector, "RUNNING")

    def _settle(self, connector: _Connector, state: str, error: Exception | None = None) -> None:
        with self._lock:
            connector.state, connector.version = state, connector.version + 1
            connector.description = None
            if error is not None:
                connector.description = {"code": "UnknownError.Unknown", "message": str(error)}

    def _start(self, connector: _Connector) -> None:
        """Start a connector's workers, then the connector on them."""
        definition = Properties(connector.definition)
        self._check(definition)
        bootstrap = definition["kafkaCluster"]["apacheKafkaCluster"]["bootstrapServers"]
        delivered = dict(definition["logDelivery"]["workerLogDelivery"]["cloudWatchLogs"])
        workers = definition["capacity"]["provisionedCapacity"]["workerCount"]
        name, configuration = definition["connectorName"], dict(definition["connectorConfiguration"])
        environment = self._context.environment_of(
            definition["serviceExecutionRoleArn"], "kafkaconnect.amazonaws.com", connector.arn
        )
        refuse_unread(CONNECTOR, definition)
        if self._context.idle:
            return
        access = stream.access(self._folder.with_name("msk"), bootstrap)
        for number in range(workers):
            worker = ConnectWorker(
                self._folder / connector.cluster / str(number),
                access,
                self._configurations[definition["workerConfiguration"]["workerConfigurationArn"]],
                group=connector.cluster,
                plugins=self._plugins[definition["plugins"][0]["customPlugin"]["customPluginArn"]],
                environment=environment,
            )
            if delivered["enabled"]:
                delivery = LogDelivery(
                    self._context.client("logs"),
                    worker.log,
                    delivered["logGroup"],
                    f"{connector.cluster}-{number}",
                    # The worker's name, as MSK Connect forms it.
                    f"[Worker-{uuid.uuid4().hex[:17]}] ",
                )
                connector.running.enter_context(delivery)
            connector.running.enter_context(worker)
            connector.workers.append(worker)
        self._configure(connector, name, configuration)

    def _configure(self, connector: _Connector, name: str, configuration: Mapping[str, str]) -> None:
        if self._context.idle:
            return
        worker = connector.workers[0]
        worker.put(name, configuration)
        worker.await_running(name)

    def _stop(self, connector: _Connector) -> None:
        connector.running.close()
        connector.workers.clear()

    def _find(self, arn: str) -> _Connector:
        with self._lock:
            if arn not in self._connectors:
                raise ApiError("NotFoundException", f"There is no connector {arn}")
            return self._connectors[arn]

    def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        connector = self._find(request["connectorArn"])
        self._claim(connector, request.get("currentVersion"), "DELETING")

        def delete() -> None:
            self._stop(connector)
            with self._lock:
                self._connectors.pop(connector.arn, None)

        self._work.submit(delete)
        return {"connectorArn": connector.arn, "connectorState": connector.state}

    def _claim(self, connector: _Connector, version: str | None, state: str) -> None:
        """Change a connector's state, if the caller names its present version and no other operation runs."""
        with self._lock:
            if version is not None and version != str(connector.version):
                raise ApiError("BadRequestException", f"The current version is {connector.version}, not {version}")
            if connector.state not in ("RUNNING", "FAILED"):
                raise ApiError("BadRequestException", f"The connector is {connector.state}")
            connector.state, connector.version = state, connector.version + 1

    def _update(self, request: dict[str, Any]) -> dict[str, Any]:
        connector = self._find(request["connectorArn"])
        change = {part: request[part] for part in (*_WORKER_SETTING, *_CONFIGURATION) if part in request}
        of_workers = change.keys() <= set(_WORKER_SETTING)
        if not change or not (of_workers or change.keys() <= set(_CONFIGURATION)):
            raise ApiError("BadRequestException", "An update takes a configuration, or settings of the workers")
        self._check({**connector.definition, **change})
        kind = "UPDATE_WORKER_SETTING" if of_workers else "UPDATE_CONNECTOR_CONFIGURATION"
        self._claim(connector, request["currentVersion"], "UPDATING")
        operation = self._operation(connector, kind, "UPDATE_IN_PROGRESS")
        # A failed update is rolled back to the former definition, as on AWS.
        former = connector.definition
        connector.definition = {**former, **change}

        def take() -> None:
            if of_workers:
                self._stop(connector)
                self._start(connector)
            else:
                self._configure(connector, connector.name, connector.definition["connectorConfiguration"])

        def update() -> None:
            try:
                take()
            except Exception as error:
                operation["errorInfo"] = {"code": "UnknownError.Unknown", "message": str(error)}
                connector.definition = former
                try:
                    take()
                except Exception as worse:
                    self._end(operation, "ROLLBACK_FAILED")
                    self._settle(connector, "FAILED", worse)
                    return
                self._end(operation, "ROLLBACK_COMPLETE")
            else:
                self._end(operation, "UPDATE_COMPLETE")
            self._settle(connector, "RUNNING")

        self._work.submit(update)
        return {**self._begun(connector, operation), "connectorState": connector.state}

    def _restart(self, request: dict[str, Any]) -> dict[str, Any]:
        connector = self._find(request["connectorArn"])
        self._claim(connector, None, "RESTARTING")
        operation = self._operation(connector, "RESTART_CONNECTOR", "RESTART_IN_PROGRESS")

        def restart() -> None:
            try:
                connector.workers[0].restart(connector.name)
                connector.workers[0].await_running(connector.name)
            except Exception as error:
                operation["errorInfo"] = {"code": "UnknownError.Unknown", "message": str(error)}
                self._end(operation, "RESTART_FAILED")
                self._settle(connector, "FAILED", error)
            else:
                self._end(operation, "RESTART_COMPLETE")
                self._settle(connector, "RUNNING")

        self._work.submit(restart)
        return self._begun(connector, operation)

    def _begun(self, connector: _Connector, operation: Mapping[str, Any]) -> dict[str, Any]:
        return {"connectorArn": connector.arn, "connectorOperationArn": operation["connectorOperationArn"]}

    def _operation(self, connector: _Connector, kind: str, state: str) -> dict[str, Any]:
        number = len(connector.operations) + 1
        arn = f"{connector.arn.replace(':connector/', ':connector-operation/')}/{number}"
        operation = {
            "connectorArn": connector.arn,
            "connectorOperationArn": arn,
            "connectorOperationType": kind,
            "connectorOperationState": state,
            "creationTime": now(),
        }
        connector.operations.append(operation)
        return operation

    def _end(self, operation: dict[str, Any], state: str) -> None:
        operation["endTime"] = now()
        operation["connectorOperationState"] = state

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        connector = self._find(request["connectorArn"])
        state, description = self._state(connector)
        return {
            **connector.definition,
            "connectorArn": connector.arn,
            "connectorState": state,
            "creationTime": connector.created,
            "currentVersion": str(connector.version),
            **({"stateDescription": description} if description else {}),
        }

    def _state(self, connector: _Connector) -> tuple[str, dict[str, str] | None]:
        """A connector's state and the reason. One failed task makes the connector fail."""
        if connector.state == "RUNNING" and not self._context.idle:
            try:
                status = connector.workers[0].status(connector.name)
            except UserError:
                # The worker has ended, and is being replaced.
                return "RUNNING", None
            failed = [part for part in (status["connector"], *status["tasks"]) if part["state"] == "FAILED"]
            if failed:
                reason = failed[0].get("trace", "").partition("\n")[0]
                return "FAILED", {"code": "UnknownError.Unknown", "message": reason}
        return connector.state, connector.description

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        prefix = request.get("connectorNamePrefix", "")
        with self._lock:
            found = [each for each in self._connectors.values() if each.name.startswith(prefix)]
        listed = [
            {"connectorArn": each.arn, "connectorName": each.name, "connectorState": each.state} for each in found
        ]
        return {"connectors": listed}

    def _list_operations(self, request: dict[str, Any]) -> dict[str, Any]:
        listed = []
        for operation in self._find(request["connectorArn"]).operations:
            names = ("connectorOperationArn", "connectorOperationType", "connectorOperationState", "creationTime")
            listed.append({name: operation[name] for name in names})
        return {"connectorOperations": listed}

    def _describe_operation(self, request: dict[str, Any]) -> dict[str, Any]:
        for connector in list(self._connectors.values()):
            for operation in connector.operations:
                if operation["connectorOperationArn"] == request["connectorOperationArn"]:
                    return operation
        raise ApiError("NotFoundException", f"There is no operation {request['connectorOperationArn']}")

    def _list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"tags": self._find(request["resourceArn"]).tags}

    def _tag(self, request: dict[str, Any]) -> None:
        self._find(request["resourceArn"]).tags.update(request["tags"])


class _CustomPlugin(ResourceType[Connectors]):
    kind = CUSTOM_PLUGIN

    def make(self, name: str, properties: Properties) -> Made:
        if properties["ContentType"] != "ZIP":
            raise UserError(f"ContentType: found {properties['ContentType']}, expected ZIP")
        location = properties["Location"]["S3Location"]
        return self.service.add_plugin(
            properties["Name"], location["BucketArn"].rpartition(":")[2], location["FileKey"]
        )

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return Made(physical_id) if dict(former) == dict(properties) else self.create("", properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.remove_plugin(physical_id)


class _WorkerConfiguration(ResourceType[Connectors]):
    kind = WORKER_CONFIGURATION

    def make(self, name: str, properties: Properties) -> Made:
        content = base64.b64decode(properties["PropertiesFileContent"], validate=True).decode()
        return self.service.add_configuration(properties["Name"], content)

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return Made(physical_id) if dict(former) == dict(properties) else self.create("", properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.remove_configuration(physical_id)

"""EMR: a cluster is Spark's standalone cluster on this machine.

Driver and executors are processes that share nothing. A step is spark-submit with the template's own arguments.
"""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import queue
import re
import secrets
import string
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.errors import UserError
from headwater.log_files import tail
from rig.local.processes import Process
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError, now
from rig.local_aws.ignored import IGNORED_PROPERTIES
from rig.local_aws.node import Node
from rig.local_aws.resources import Made, Properties, ResourceType

CLUSTER = "AWS::EMR::Cluster"
_CLASSIFICATIONS = {"spark-defaults", "spark-env", "yarn-site"}
_ENDED = ("CANCELLED", "COMPLETED", "FAILED", "INTERRUPTED")
_GONE = ("TERMINATED", "TERMINATED_WITH_ERRORS")
_NODE_LOST = {"Code": "INSTANCE_FAILURE", "Message": "The primary node has ended"}
_PATIENCE_SECONDS = 60.0
_WATCH_SECONDS = 1.0
# EMR itself kills no step that it was asked to interrupt.
_INTERRUPT_SECONDS = 3600.0
# EMR delivers logs every five minutes.
_LOGS_SECONDS = 30.0
_LINES_OF_A_REASON = 3
_LINES_LOOKED_AT = 300
# Error lines of Python and its argparse, of Java, and of loggers.
_IS_ERROR = re.compile(r"^[\w.]*Error\b|\berror: | ERROR |^Exception in thread")
_ID = string.ascii_uppercase + string.digits


@dataclass
class _Step:
    id: str
    name: str
    action: str
    jar: str
    arguments: list[str]
    created: dt.datetime
    state: str = "PENDING"
    started: dt.datetime | None = None
    ended: dt.datetime | None = None
    """The end of the step, if it has ended."""
    failure: dict[str, str] | None = None
    """FailureDetails of ListSteps."""
    process: Process | None = None

    def described(self) -> dict[str, Any]:
        """The step in the form of ListSteps' answer."""
        times = {"CreationDateTime": self.created, "StartDateTime": self.started, "EndDateTime": self.ended}
        return {
            "Id": self.id,
            "Name": self.name,
            "Config": {"Jar": self.jar, "Args": self.arguments},
            "ActionOnFailure": self.action,
            "Status": {
                "State": self.state,
                "Timeline": {name: time for name, time in times.items() if time is not None},
                **({"FailureDetails": self.failure} if self.failure else {}),
            },
        }


@dataclass
class _Cluster:
    id: str
    name: str
    node: Node
    logs: str
    """The S3 folder of the cluster's logs."""
    running: ExitStack
    """Ends the node and Spark."""
    state: str = "WAITING"
    reason: Mapping[str, str] = field(default_factory=dict)
    """StateChangeReason of DescribeCluster."""
    steps: list[_Step] = field(default_factory=list)
    waiting: queue.Queue[_Step | None] = field(default_factory=queue.Queue)
    """The steps that have not started; None ends the cluster's thread."""


class Clusters:
    """The clusters of an account, below ``folder``."""

    def __init__(self, folder: Path, context: AccountContext) -> None:
        self._folder = folder
        self._context = context
        self._numbers = itertools.count(1)
        self._clusters: dict[str, _Cluster] = {}
        self._lock = threading.RLock()
        self.api = Api(
            "elasticmapreduce",
            {
                "AddJobFlowSteps": self._add_steps,
                "CancelSteps": self._cancel_steps,
                "DescribeCluster": self._describe,
                "DescribeStep": self._describe_step,
                "ListSteps": self._list_steps,
                "TerminateJobFlows": self._terminate,
            },
            model="emr",
        )

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {CLUSTER: _ClusterType(self)}

    def start(self, properties: Properties) -> Made:
        """Start a cluster: its node with its bootstrap actions, then Spark on the node."""
        name = properties["Name"]
        configured = _configurations(properties["Configurations"])
        id_ = f"j-{_random(13)}"
        node = Node(
            self._folder / f"{name}-{next(self._numbers)}",
            self._context,
            self._context.environment_of(self._role(properties["JobFlowRole"]), "ec2.amazonaws.com", id_),
            defaults=configured.get("spark-defaults", {}),
            exported=configured.get("spark-env", {}),
            memory_mib=int(configured["yarn-site"]["yarn.nodemanager.resource.memory-mb"]),
        )
        with ExitStack() as stack:
            for action in properties.get("BootstrapActions", []):
                script = action["ScriptBootstrapAction"]
                node.bootstrap(action["Name"], script["Path"], script.get("Args", []))
            stack.enter_context(node)
            cluster = _Cluster(id_, name, node, properties["LogUri"], stack.pop_all())
        self.tag(id_, properties)
        with self._lock:
            self._clusters[id_] = cluster
        for work, of in ((self._work, "steps"), (self._watch, "node")):
            threading.Thread(target=work, args=(cluster,), name=f"{of} of {name}", daemon=True).start()
        return Made(id_, {"MasterPublicDNS": "127.0.0.1"})

    def tag(self, id_: str, properties: Properties) -> None:
        """Store a cluster's tags, on which rights depend."""
        arn = f"arn:aws:elasticmapreduce:{self._context.region}:{self._context.account}:cluster/{id_}"
        self._context.tags[arn] = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}

    def stop(self, id_: str) -> None:
        """Terminate a cluster with its steps."""
        cluster = self._clusters.get(id_)
        if cluster is not None:
            self._end(cluster, {})

    def _end(self, cluster: _Cluster, lost: Mapping[str, str]) -> None:
        """Terminate a cluster with its steps. If ``lost`` has a reason, the cluster ends with errors."""
        with self._lock:
            if cluster.state in _GONE or (lost and cluster.state != "WAITING"):
                return
            cluster.state, cluster.reason = "TERMINATING", lost
            for step in cluster.steps:
                if step.state == "PENDING":
                    self._settle(cluster, step, "CANCELLED")
        # Outside the lock, because the end of a process settles its step under the lock.
        for process in [step.process for step in cluster.steps]:
            if process is not None and lost:
                process.kill()
            elif process is not None:
                process.stop(_PATIENCE_SECONDS)
        cluster.waiting.put(None)
        cluster.running.close()
        state = "TERMINATED_WITH_ERRORS" if lost else "TERMINATED"
        cluster.state = state
        self._tell("EMR Cluster State Change", cluster, state=state)

    def _watch(self, cluster: _Cluster) -> None:
        """Terminate a cluster whose node has ended: EMR replaces no primary node."""
        while cluster.state == "WAITING":
            if cluster.node.lost:
                self._end(cluster, _NODE_LOST)
            time.sleep(_WATCH_SECONDS)

    def close(self) -> None:
        """Terminate all clusters."""
        for id_ in list(self._clusters):
            self.stop(id_)

    def steps(self, name: str) -> Iterator[tuple[Path, str]]:
        """The folder and the state of each step of that cluster, in the order of their addition."""
        for cluster in self._clusters.values():
            if cluster.name == name:
                yield from ((cluster.node.folder / "steps" / step.id, step.state) for step in cluster.steps)

    def _role(self, profile: str) -> str:
        # The emulator passes a profile's ARN where CloudFormation passes its name.
        name = profile.rpartition("/")[2]
        found = self._context.client("iam").get_instance_profile(InstanceProfileName=name)
        return str(found["InstanceProfile"]["Roles"][0]["Arn"])

    def _find(self, id_: str) -> _Cluster:
        if id_ not in self._clusters:
            raise ApiError("InvalidRequestException", f"Cluster id '{id_}' is not valid.")
        return self._clusters[id_]

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        cluster = self._find(request["ClusterId"])
        status = {"State": self._state(cluster), "StateChangeReason": cluster.reason}
        return {"Cluster": {"Id": cluster.id, "Name": cluster.name, "Status": status, "LogUri": cluster.logs}}

    def _state(self, cluster: _Cluster) -> str:
        if cluster.state == "WAITING" and any(step.state not in _ENDED for step in cluster.steps):
            return "RUNNING"
        return cluster.state

    def _add_steps(self, request: dict[str, Any]) -> dict[str, Any]:
        cluster = self._find(request["JobFlowId"])
        if cluster.state != "WAITING":
            raise ApiError("ValidationException", f"A cluster in state {cluster.state} takes no steps.")
        added = []
        # Check all steps before the first one is queued.
        for asked in request["Steps"]:
            jar = asked["HadoopJarStep"]
            if jar["Jar"] != "command-runner.jar" or jar["Args"][0] != "spark-submit":
                raise ApiError("ValidationException", "Here command-runner.jar runs spark-submit, and nothing else.")
            action = asked.get("ActionOnFailure", "TERMINATE_CLUSTER")
            if action != "CONTINUE":
                raise ApiError("ValidationException", f"ActionOnFailure: found {action}, expected CONTINUE here.")
            added.append(_Step(f"s-{_random(13)}", asked["Name"], action, jar["Jar"], list(jar["Args"]), now()))
        with self._lock:
            for step in added:
                cluster.steps.append(step)
                cluster.waiting.put(step)
        return {"StepIds": [step.id for step in added]}

    def _cancel_steps(self, request: dict[str, Any]) -> dict[str, Any]:
        cluster = self._find(request["ClusterId"])
        answers = []
        for step in [step for step in cluster.steps if step.id in request["StepIds"]]:
            with self._lock:
                accepted = step.state in ("PENDING", "RUNNING", "CANCEL_PENDING")
                if step.state == "PENDING":
                    self._settle(cluster, step, "CANCELLED")
                elif accepted:
                    step.state = "CANCEL_PENDING"
            # The program may take a while to end. The request does not wait.
            process = step.process
            if accepted and process is not None:
                kills = request.get("StepCancellationOption") == "TERMINATE_PROCESS"
                end = process.kill if kills else partial(process.stop, _INTERRUPT_SECONDS)
                threading.Thread(target=end, name=f"end of {step.id}", daemon=True).start()
            answers.append({"StepId": step.id, "Status": "SUBMITTED" if accepted else "FAILED"})
        return {"CancelStepsInfoList": answers}

    def _list_steps(self, request: dict[str, Any]) -> dict[str, Any]:
        states, ids = request.get("StepStates"), request.get("StepIds")
        newest_first = reversed(self._find(request["ClusterId"]).steps)
        found = [step for step in newest_first if (not states or step.state in states) and (not ids or step.id in ids)]
        return {"Steps": [step.described() for step in found]}

    def _describe_step(self, request: dict[str, Any]) -> dict[str, Any]:
        for step in self._find(request["ClusterId"]).steps:
            if step.id == request["StepId"]:
                return {"Step": step.described()}
        raise ApiError("InvalidRequestException", f"Step id '{request['StepId']}' is not valid.")

    def _terminate(self, request: dict[str, Any]) -> None:
        for id_ in request["JobFlowIds"]:
            self._find(id_)
            threading.Thread(target=self.stop, args=(id_,), name=f"end of {id_}", daemon=True).start()

    def _work(self, cluster: _Cluster) -> None:
        """Run a cluster's steps one after another."""
        while (step := cluster.waiting.get()) is not None:
            with self._lock:
                if step.state != "PENDING":
                    continue
                step.state, step.started = "RUNNING", now()
            try:
                status = self._run(cluster, step)
            except Exception as error:
                step.failure = {"Reason": "Unknown Error.", "Message": str(error)}
                status = 1
            cancelled = step.state == "CANCEL_PENDING"
            self._settle(cluster, step, "CANCELLED" if cancelled else "FAILED" if status else "COMPLETED")

    def _run(self, cluster: _Cluster, step: _Step) -> int:
        folder = cluster.node.folder / "steps" / step.id
        step.process = cluster.node.submit(step.name, step.arguments[1:], folder)
        self._tell("EMR Step Status Change", cluster, step=step)
        logs = f"{cluster.logs.rstrip('/')}/{cluster.id}/steps/{step.id}"
        with step.process as process:
            status = self._delivering(process, folder, logs)
        self._keep_logs(folder, logs)
        if status:
            step.failure = {
                "Reason": "Unknown Error.",
                "Message": last_said(folder),
                "LogFile": f"{logs}/stderr.gz",
            }
        return status

    def _delivering(self, process: Process, folder: Path, uri: str) -> int:
        """Wait for a step's end, and deliver its logs meanwhile."""
        while not process.ends_within(_LOGS_SECONDS):
            # Logs that a store refuses while it is down are delivered later.
            with suppress(Exception):
                self._keep_logs(folder, uri)
        return process.wait()

    def _keep_logs(self, folder: Path, uri: str) -> None:
        """Write a step's complete logs into the log bucket, as EMR does every few minutes."""
        place = urlsplit(uri)
        s3 = self._context.client("s3")
        for name in ("stderr", "stdout"):
            body = gzip.compress((folder / name).read_bytes())
            s3.put_object(Bucket=place.netloc, Key=f"{place.path.lstrip('/')}/{name}.gz", Body=body)

    def _settle(self, cluster: _Cluster, step: _Step, state: str) -> None:
        step.process, step.state, step.ended = None, state, now()
        self._tell("EMR Step Status Change", cluster, step=step)

    def _tell(self, kind: str, cluster: _Cluster, *, state: str = "", step: _Step | None = None) -> None:
        """Send EventBridge an event of EMR."""
        detail = {"severity": "INFO", "name": cluster.name, "clusterId": cluster.id, "state": state, "message": ""}
        if step is not None:
            detail |= {"stepId": step.id, "name": step.name, "state": step.state, "actionOnFailure": step.action}
        self._context.tell("aws.emr", kind, json.dumps(detail))


class _ClusterType(ResourceType[Clusters]):
    kind = CLUSTER

    def make(self, name: str, properties: Properties) -> Made:
        if properties["StepConcurrencyLevel"] != 1:
            raise UserError(f"StepConcurrencyLevel: found {properties['StepConcurrencyLevel']}, expected 1")
        return self.service.start(properties)

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        # For any other change EMR makes another cluster, and CloudFormation deletes the former one.
        kept = {"Tags", "VisibleToAllUsers"}
        differ = {name for name in {*former, *properties} if former.get(name) != properties.get(name)}
        if differ - kept:
            return self.create("", properties)
        self.service.tag(physical_id, properties)
        return Made(physical_id)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.stop(physical_id)


def _configurations(listed: Sequence[Properties]) -> dict[str, dict[str, str]]:
    """The properties by classification. A classification includes the properties of the ``export`` within it."""
    found: dict[str, dict[str, str]] = {}
    for configuration in listed:
        name = configuration["Classification"]
        if name in IGNORED_PROPERTIES[f"{CLUSTER}.Configurations"]:
            configuration.heed()
            continue
        if name not in _CLASSIFICATIONS:
            raise UserError(
                f"{CLUSTER}: the configuration {name} would have no effect here: read it in "
                "rig/local_aws/emr.py, or name it in rig/local_aws/ignored.py"
            )
        found[name] = dict(configuration.get("ConfigurationProperties", {}))
        for inner in configuration.get("Configurations", []):
            if inner["Classification"] != "export":
                raise UserError(f"{name}: found the configuration {inner['Classification']} within, expected export")
            found[name] |= inner["ConfigurationProperties"]
    return found


def last_said(folder: Path) -> str:
    """The last error lines of a step's logs, or the last lines if none tells of an error.

    Spark writes Python's stderr to stdout.
    """
    lines = [line for name in ("stderr", "stdout") for line in tail(folder / name, _LINES_LOOKED_AT).splitlines()]
    told = [line for line in lines if _IS_ERROR.search(line)]
    return "\n".join((told or lines)[-_LINES_OF_A_REASON:])


def _random(length: int) -> str:
    return "".join(secrets.choice(_ID) for _ in range(length))

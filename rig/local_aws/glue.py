"""Glue's jobs: a run is spark-submit of the job's script, on its own node.

The run has the job's jars, packages and arguments. Glue's catalog is the emulator's.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from headwater import process_groups
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.packaging import wheels
from rig.local import spark
from rig.local.processes import Process
from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, ApiError, now
from rig.local_aws.log_delivery import LogDelivery
from rig.local_aws.node import Node
from rig.local_aws.resources import Made, Properties, ResourceType

JOB = "AWS::Glue::Job"
# The arguments that Glue itself reads. The script gets all of them too.
_LOG_GROUPS = "--custom-logGroup-prefix"
# The heap of driver and executor, in MiB, by the type of worker.
_HEAPS = {"G.025X": 1536, "G.1X": 10240}
_PATIENCE_SECONDS = 60.0
_ALIVE = ("STARTING", "RUNNING", "STOPPING")


@dataclass
class _Run:
    id: str
    job: str
    started: dt.datetime
    folder: Path
    state: str = "STARTING"
    ended: dt.datetime | None = None
    message: str = ""
    """ErrorMessage of GetJobRun."""
    process: Process | None = None

    def described(self) -> dict[str, Any]:
        """The run in the form of GetJobRun's answer."""
        until = self.ended or now()
        return {
            "Id": self.id,
            "JobName": self.job,
            "JobRunState": self.state,
            "StartedOn": self.started,
            "ExecutionTime": int((until - self.started).total_seconds()),
            **({"CompletedOn": self.ended} if self.ended else {}),
            **({"ErrorMessage": self.message} if self.message else {}),
        }


class Jobs:
    """The jobs of an account and their runs, below ``folder``."""

    def __init__(self, folder: Path, context: AccountContext) -> None:
        self._folder = folder
        self._context = context
        self._jobs: dict[str, Mapping[str, Any]] = {}
        self._runs: dict[str, list[_Run]] = {}
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self.api = Api(
            "glue",
            {
                "BatchStopJobRun": self._stop_runs,
                "GetJobRun": self._describe_run,
                "GetJobRuns": self._list_runs,
                "StartJobRun": self._start_run,
            },
        )

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {JOB: _Job(self)}

    def define(self, name: str, definition: Mapping[str, Any]) -> None:
        """Make or change a job. Its active runs keep the former definition."""
        with self._lock:
            self._jobs[name] = definition
            self._runs.setdefault(name, [])

    def remove(self, name: str) -> None:
        """Delete a job, and end its runs."""
        with self._lock:
            self._jobs.pop(name, None)
            runs = self._runs.pop(name, [])
        for run in runs:
            self._stop(run)

    def close(self) -> None:
        """End all runs."""
        for name in list(self._jobs):
            self.remove(name)
        for thread in self._threads:
            thread.join()

    def runs(self, name: str) -> list[tuple[Path, str]]:
        """The folder and the state of each run of a job, in the order of their start."""
        return [(run.folder, run.state) for run in self._runs.get(name, [])]

    def _find(self, name: str) -> list[_Run]:
        if name not in self._jobs:
            raise ApiError("EntityNotFoundException", f"Job {name} is not found")
        return self._runs[name]

    def _start_run(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["JobName"]
        with self._lock:
            runs, definition = self._find(name), self._jobs[name]
            alive = sum(run.state in _ALIVE for run in runs)
            if alive >= definition["MaxConcurrentRuns"]:
                raise ApiError("ConcurrentRunsExceededException", f"Concurrent runs exceeded for {name}")
            id_ = f"jr_{uuid4().hex}"
            run = _Run(id_, name, now(), self._folder / name / id_)
            runs.append(run)
        arguments = {**definition["DefaultArguments"], **request.get("Arguments", {})}
        thread = threading.Thread(target=self._run, args=(run, definition, arguments), name=id_)
        self._threads.append(thread)
        thread.start()
        return {"JobRunId": id_}

    def _run(self, run: _Run, definition: Mapping[str, Any], arguments: Mapping[str, str]) -> None:
        try:
            status = self._work(run, definition, arguments)
        except Exception as error:
            run.message, status = str(error), 1
        with self._lock:
            run.process, run.ended = None, now()
            stopped = run.state == "STOPPING"
            run.state = "STOPPED" if stopped else "FAILED" if status else "SUCCEEDED"
        detail = {"jobName": run.job, "jobRunId": run.id, "state": run.state, "severity": "INFO", "message": ""}
        self._context.tell("aws.glue", "Glue Job State Change", json.dumps(detail))

    def _work(self, run: _Run, definition: Mapping[str, Any], arguments: Mapping[str, str]) -> int:
        heap = _HEAPS[definition["WorkerType"]]
        memory = {"spark.driver.memory": f"{heap}m", "spark.executor.memory": f"{heap}m"}
        packages = run.folder / "packages"
        arn = f"arn:aws:glue:{self._context.region}:{self._context.account}:job/{run.job}"
        node = Node(
            run.folder,
            self._context,
            self._context.environment_of(definition["Role"], "glue.amazonaws.com", arn),
            defaults=memory,
            # On other platforms the job's wheels do not fit, so the packages of this environment serve.
            exported={"PYTHONPATH": str(packages)} if spark.shipped_python() else {},
            memory_mib=heap,
        )
        self._install(packages, arguments)
        command = ["--deploy-mode", "client", "--jars", arguments["--extra-jars"]]
        command += ["--py-files", arguments["--extra-py-files"]]
        for setting in arguments["--conf"].split("--conf"):
            command += ["--conf", setting.strip()] if setting.strip() else []
        command.append(definition["ScriptLocation"])
        command += [part for pair in arguments.items() for part in pair]
        command += ["--JOB_NAME", run.job, "--JOB_RUN_ID", run.id]
        step = run.folder / "run"
        logs = self._context.client("logs")
        role = definition["Role"].rpartition("/")[2]
        prefix = f"{arguments[_LOG_GROUPS]}/{definition['SecurityConfiguration']}-role/{role}"
        with ExitStack() as stack:
            stack.enter_context(node)
            stack.enter_context(LogDelivery(logs, step / "stdout", f"{prefix}/output", run.id))
            stack.enter_context(LogDelivery(logs, step / "stderr", f"{prefix}/error", run.id))
            with self._lock:
                if run.state == "STOPPING":
                    return 1
                run.process, run.state = node.submit(run.job, command, step), "RUNNING"
            with run.process as process:
                status = process.wait()
        if status:
            run.message = tail(step / "stderr", 3)
        return status

    def _install(self, folder: Path, arguments: Mapping[str, str]) -> None:
        """Install the wheels that the job's arguments name."""
        folder.mkdir(parents=True)
        files = []
        for uri in arguments["--additional-python-modules"].split(","):
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            path = folder / Path(key).name
            self._context.client("s3").download_file(bucket, key, str(path))
            files.append(str(path))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--only-binary", ":all:", *wheels.tags(wheels.X86_64), "--target", str(folder)]
        pip += [*arguments["--python-modules-installer-option"].split(), *files]
        log = folder.with_name("pip.log")
        if process_groups.run("pip", pip, log):
            raise UserError(f"pip refused the job's modules: {tail(log)}")

    def _stop(self, run: _Run) -> None:
        with self._lock:
            if run.state not in _ALIVE:
                return
            run.state, process = "STOPPING", run.process
        if process is not None:
            process.stop(_PATIENCE_SECONDS)

    def _stop_runs(self, request: dict[str, Any]) -> dict[str, Any]:
        runs = [run for run in self._find(request["JobName"]) if run.id in request["JobRunIds"]]
        for run in runs:
            threading.Thread(target=self._stop, args=(run,), name=f"end of {run.id}", daemon=True).start()
        # A caller that queries the runs at once sees that they are being stopped.
        time.sleep(0.1)
        return {"SuccessfulSubmissions": [{"JobName": run.job, "JobRunId": run.id} for run in runs], "Errors": []}

    def _describe_run(self, request: dict[str, Any]) -> dict[str, Any]:
        for run in self._find(request["JobName"]):
            if run.id == request["RunId"]:
                return {"JobRun": run.described()}
        raise ApiError("EntityNotFoundException", f"Job run {request['RunId']} is not found")

    def _list_runs(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"JobRuns": [run.described() for run in reversed(self._find(request["JobName"]))]}


class _Job(ResourceType[Jobs]):
    kind = JOB

    def make(self, name: str, properties: Properties) -> Made:
        if properties["Command"]["Name"] != "gluestreaming":
            raise UserError(f"Command.Name: found {properties['Command']['Name']}, expected gluestreaming")
        if properties["Command"]["PythonVersion"] != "3":
            raise UserError(f"Command.PythonVersion: found {properties['Command']['PythonVersion']}, expected 3")
        if properties["MaxRetries"] != 0:
            raise UserError(f"MaxRetries: found {properties['MaxRetries']}, expected 0")
        if properties["WorkerType"] not in _HEAPS:
            raise UserError(f"WorkerType: found {properties['WorkerType']}, expected one of {', '.join(_HEAPS)}")
        definition = {
            "DefaultArguments": dict(properties["DefaultArguments"]),
            "MaxConcurrentRuns": properties["ExecutionProperty"]["MaxConcurrentRuns"],
            "ScriptLocation": properties["Command"]["ScriptLocation"],
            **{name: properties[name] for name in ("Role", "SecurityConfiguration", "WorkerType")},
        }
        self.service.define(properties["Name"], definition)
        return Made(properties["Name"])

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.create("", properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.remove(physical_id)

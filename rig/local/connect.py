"""A Kafka Connect worker on this machine, with the plugins that MSK Connect gets."""

import hashlib
import hmac
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from headwater import private_files
from headwater.errors import UserError
from headwater.packaging import jars
from headwater.paths import BUILD
from headwater.waiting import StuckError, cpu_seconds, wait_until
from rig.local import aws, java
from rig.local.kafka import USER, Access
from rig.local.processes import Part, Process, ProcessError, Program, free_port

HEAP = "512m"
REQUEST_SECONDS = 30
SOON_SECONDS = 2
# The worker accepts a restart, and does it a moment later. If it has stood still since, it has nothing more to restart.
RESTART_PATIENCE_SECONDS = 15
_POLL_SECONDS = 0.3
_EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension"
_CLIENTS = ("", "producer.", "consumer.", "admin.")
# A user's database may have only an IPv6 address.
_FLAGS = ("-Djava.net.preferIPv4Stack=false",)
# A worker gives this answer until it learns that the leader of its group has left.
_LEADER_GONE = "IO Error trying to forward REST request"


class ConnectWorker(Part):
    """One distributed worker, alone in its group, on a free port of 127.0.0.1 that stays the same over restarts.

    ``folder`` takes its configuration and log, and ``access`` lets the worker log in to the broker. ``properties`` are
    the worker configuration, the same as on AWS (``definitions.connectors.worker_properties``). This class adds the
    settings that MSK Connect makes itself: addresses, the login to the broker, the plugin path, replication factors and
    topics' names.

    ``group`` is the worker's Connect cluster: its consumer group, and the prefix of its topics' names. ``plugins`` is
    the folder with one folder per plugin. ``environment`` has the variables by which the plugins find AWS. ``log`` is
    the worker's log.

    The REST interface asks for the user ``USER`` and a password. All workers of the group have the same password.
    """

    name = "the Kafka Connect worker"

    def __init__(
        self,
        folder: Path,
        access: Access,
        properties: Mapping[str, str],
        *,
        group: str = "headwater-connect",
        plugins: Path = BUILD / "plugins",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.access = access
        self.properties = dict(properties)
        self.group = group
        self.plugins = plugins
        self.log = self.folder / "connect.log"
        self._environment = aws.environment({}) if environment is None else environment
        self._has_port = False
        self.port = 0

    @property
    def url(self) -> str:
        """The URL of the worker's REST interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def curl_options(self) -> Path:
        """A file of options with which ``curl --config`` may use the REST interface."""
        return self.folder / "curl.options"

    @property
    def _password(self) -> str:
        # A worker forwards requests with their password to its group's leader, so both have the same. It differs from
        # the broker's password, which the holder of this one does not learn.
        return hmac.new(self.access.password.encode(), self.group.encode(), hashlib.sha256).hexdigest()

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = REQUEST_SECONDS
    ) -> requests.Response:
        """Send a request to the REST interface, and return the answer whatever its status.

        Raises ``ProcessError`` if the worker has ended or is not up yet, and requests' errors if it does not answer
        within ``timeout`` seconds.
        """
        # Another program may have taken the port of a worker that has ended. It must not get the password.
        self.check()
        if not self._has_port:
            raise ProcessError(f"{self.name} has not opened its port yet")
        with requests.Session() as session:
            # Ignore the user's proxy, and the logins of a ``.netrc``.
            session.trust_env = False
            session.auth = (USER, self._password)
            return session.request(method, self.url + path, json=body, timeout=timeout)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector or change its configuration. Raises ``UserError`` with the worker's reason on refusal."""
        self._request("PUT", f"/connectors/{quote(name)}/config", dict(config))

    def status(self, name: str) -> dict[str, Any]:
        """Return a connector's status as Connect gives it: ``connector`` and ``tasks``, each with a ``state``."""
        answer: dict[str, Any] = self._request("GET", f"/connectors/{quote(name)}/status")
        return answer

    def task_states(self, name: str) -> list[str]:
        """Return the states of a connector's tasks; none if the worker does not answer soon."""
        try:
            answer = self.request("GET", f"/connectors/{quote(name)}/status", timeout=SOON_SECONDS)
            return [str(task["state"]) for task in answer.json()["tasks"]] if answer.ok else []
        except (requests.RequestException, ProcessError):
            return []

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return a connector's committed offsets in Connect's form: each a ``partition`` and an ``offset``."""
        answer: list[dict[str, Any]] = self._request("GET", f"/connectors/{quote(name)}/offsets")["offsets"]
        return answer

    def restart(self, name: str) -> None:
        """Restart a connector with all its tasks, and wait until the failed tasks have started again.

        A task that has not started when the worker stands still has failed again.
        """
        self._request("POST", f"/connectors/{quote(name)}/restart?includeTasks=true")
        with suppress(StuckError):
            wait_until(
                f"the failed tasks of {name} to restart",
                lambda: not self._has_failed(name),
                patience=RESTART_PATIENCE_SECONDS,
                work=self._work,
            )

    def _has_failed(self, name: str) -> bool:
        status = self.status(name)
        return any(part["state"] == "FAILED" for part in (status["connector"], *status["tasks"]))

    def delete(self, name: str) -> None:
        """Delete a connector; its offsets stay."""
        self._request("DELETE", f"/connectors/{quote(name)}")

    def await_running(self, name: str) -> None:
        """Wait until a connector and at least one task run.

        Raises ``ProcessError`` with the trace if one has failed, and ``StuckError`` if the worker stands still.
        """

        def runs() -> bool:
            self.check()
            try:
                status = self.status(name)
            except UserError:  # Unknown until the worker has read its own configuration topic.
                return False
            parts = [status["connector"], *status["tasks"]]
            for part in parts:
                if part["state"] == "FAILED":
                    raise ProcessError(f"the connector {name} failed:\n{part.get('trace', '(no trace)')}")
            return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

        wait_until(f"the connector {name} to run", runs, partial(self._parts, name), work=self._work)

    def _parts(self, name: str) -> list[str]:
        """The states of a connector and its tasks; none if the worker does not know the connector yet."""
        try:
            status = self.status(name)
        except UserError:
            return []
        return [part["state"] for part in (status["connector"], *status["tasks"])]

    def _work(self) -> float:
        return cpu_seconds(self.pid) if self.running else 0.0

    def _prepare(self) -> Process:
        if not self.port:
            self.port = free_port()
        properties = self.folder / "worker.properties"
        java.write_properties(properties, {**self.properties, **self._own_properties()}.items())
        worker = java.JavaProgram(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            [str(properties)],
            jars.class_path("connect-runtime"),
            HEAP,
            properties={"java.security.auth.login.config": str(self._write_logins())},
            flags=_FLAGS,
        )
        self._has_port = False

        def answers() -> bool:
            self._has_port = True
            return self.request("GET", "/connectors", timeout=5).ok

        program = Program(
            self.name,
            java.argv(worker, self.folder),
            self.log,
            env=self._environment,
            cwd=self.folder,
        )
        return Process(program, ready=answers, port=self.port)

    def _write_logins(self) -> Path:
        """Write the REST interface's logins for the worker and for curl. Returns the worker's file."""
        users, logins = self.folder / "rest.users", self.folder / "rest.logins"
        java.write_properties(users, [(USER, self._password)])
        module = f"{_EXTENSION}.PropertyFileLoginModule"
        private_files.write(logins, f'KafkaConnect {{ {module} required file="{users}"; }};\n')
        private_files.write(self.curl_options, f'user = "{USER}:{self._password}"\n')
        return logins

    def _own_properties(self) -> dict[str, str]:
        login = self.access.for_java()
        return {
            # The worker's own Kafka clients, and the clients of its connectors.
            **{f"{of}{name}": value for of in _CLIENTS for name, value in login.items()},
            "rest.extension.classes": f"{_EXTENSION}.BasicAuthSecurityRestExtension",
            "listeners": self.url,
            "group.id": self.group,
            "config.storage.topic": f"{self.group}-config",
            "status.storage.topic": f"{self.group}-status",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "1",
            "plugin.path": str(self.plugins),
            "plugin.discovery": "service_load",
            "connector.client.config.override.policy": "All",
            # The successor of a killed worker takes over within seconds instead of five minutes.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "scheduled.rebalance.max.delay.ms": "0",
        }

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        answers: list[requests.Response] = []

        def is_answered() -> bool:
            try:
                answer = self.request(method, path, body)
            except requests.ConnectionError as error:
                raise ProcessError(f"the Kafka Connect worker does not answer: {error}") from error
            except requests.Timeout:
                return False
            answers.append(answer)
            # The worker cannot answer while its group rebalances.
            return answer.status_code != requests.codes.conflict and _LEADER_GONE not in answer.text

        wait_until(
            f"{self.name} to answer {method} {path}",
            is_answered,
            lambda: answers[-1].text if answers else None,
            poll=_POLL_SECONDS,
            work=self._work,
        )
        answer = answers[-1]
        if not answer.ok:
            raise UserError(f"Kafka Connect refused {method} {path} with {answer.status_code}: {_message(answer)}")
        return answer.json() if answer.content else None


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text

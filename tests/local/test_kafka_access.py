"""Only who knows the password uses the broker or the Connect worker; closed files alone hold passwords."""

import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from headwater.errors import UserError
from headwater.waiting import wait_until
from rig.local.connect import ConnectWorker
from rig.local.kafka import USER, Access, Broker
from rig.local.processes import ProcessError

WORKER = {
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "offset.storage.topic": "access-offsets",
}
# Whole requests, as the listener of each would answer them: all topics' metadata, and the cluster's description.
METADATA = struct.pack(">hhih", 3, 0, 7, -1) + struct.pack(">i", 0)
DESCRIBE_CLUSTER = struct.pack(">hhihb", 60, 1, 7, -1, 0) + struct.pack(">bbb", 0, 2, 0)
CONFIG = {"connector.class": "io.headwater.connect.s3.S3SinkConnector", "topics": "a"}
# Each method, and each kind of resource: connectors, plugins, loggers, and what HTTP itself knows.
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", "/connectors", None),
    ("POST", "/connectors", {"name": "other", "config": CONFIG}),
    ("PUT", "/connectors/other/config", CONFIG),
    ("DELETE", "/connectors/other", None),
    ("PUT", "/connectors/other/stop", None),
    ("PATCH", "/connectors/other/offsets", {"offsets": []}),
    ("POST", "/connectors/other/restart", None),
    ("GET", "/connector-plugins", None),
    ("PUT", "/connector-plugins/S3SinkConnector/config/validate", CONFIG),
    ("GET", "/admin/loggers", None),
    ("PUT", "/admin/loggers/root", {"level": "TRACE"}),
    ("HEAD", "/connectors", None),
    ("OPTIONS", "/connectors", None),
]


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("access"), broker.access, WORKER, group="access") as worker:
        yield worker


def controller(broker: Broker) -> str:
    return f"127.0.0.1:{(broker.folder / 'ports').read_text().split()[1]}"


def connection(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answer(listener: socket.socket, request: bytes) -> bytes:
    """The answer of a listener of Kafka to a request, without the request's number; empty if it closes."""
    listener.sendall(struct.pack(">i", len(request)) + request)
    try:
        head = listener.recv(4, socket.MSG_WAITALL)
        return listener.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)[4:] if head else b""
    except ConnectionResetError:
        return b""


def login(address: str, mechanism: str, message: bytes) -> int:
    """Kafka's number of the error with which a listener answers a login, of one message; 0 lets in."""
    name = mechanism.encode()
    with connection(address) as listener:
        refused: int
        (refused,) = struct.unpack_from(">h", answer(listener, struct.pack(">hhihh", 17, 1, 7, -1, len(name)) + name))
        if not refused:
            whole = struct.pack(">hhihi", 36, 0, 7, -1, len(message)) + message
            (refused,) = struct.unpack_from(">h", answer(listener, whole))
        return refused


def metadata(options: dict[str, Any]) -> None:
    with KafkaAdminClient(**options) as admin:
        admin.list_topics()


def create(options: dict[str, Any]) -> None:
    with KafkaAdminClient(**options) as admin:
        admin.create_topics({"intruder": {"num_partitions": 1, "replication_factor": 1}})


def produce(options: dict[str, Any]) -> None:
    with KafkaProducer(**options) as producer:
        producer.send("guarded", b"forged").get(30)


def fetch(options: dict[str, Any]) -> None:
    with KafkaConsumer("guarded", **options, auto_offset_reset="earliest") as consumer:
        consumer.poll(1000)


@pytest.mark.parametrize("use", [metadata, create, produce, fetch], ids=lambda use: use.__name__)
def test_a_broker_refuses_clients_without_its_password(broker: Broker, use: Callable[[dict[str, Any]], None]) -> None:
    broker.create_topics({"guarded": 1})
    before = broker.ends(["guarded"])
    for options in ({"bootstrap_servers": broker.bootstrap}, Access(broker.bootstrap, "wrong").for_python()):
        with pytest.raises(KafkaError, match="Unable to bootstrap"):
            use({**options, "bootstrap_timeout_ms": 3000})
    assert broker.ends(["guarded"]) == before
    assert "intruder" not in broker.topics()
    use(broker.access.for_python())
    broker.delete_topic("intruder")


def test_neither_listener_answers_who_has_not_logged_in(broker: Broker) -> None:
    for address, request in ((broker.bootstrap, METADATA), (controller(broker), DESCRIBE_CLUSTER)):
        with connection(address) as listener:
            assert answer(listener, request) == b""


def test_the_controller_wants_a_password_of_its_own(broker: Broker) -> None:
    found = re.search(r'user_headwater="([^"]+)"', (broker.folder / "server.properties").read_text())
    assert found is not None
    assert login(controller(broker), "PLAIN", f"\0{USER}\0{found[1]}".encode()) == 0
    for password in (broker.access.password, "wrong", ""):
        refused = login(controller(broker), "PLAIN", f"\0{USER}\0{password}".encode())
        assert refused == SaslAuthenticationFailedError.errno
        assert login(broker.bootstrap, "PLAIN", f"\0{USER}\0{password}".encode()) == UnsupportedSaslMechanismError.errno


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=[f"{method} {path}" for method, path, _ in REQUESTS])
def test_connect_refuses_requests_without_its_password(
    worker: ConnectWorker, method: str, path: str, body: Any
) -> None:
    origin = {"Origin": "http://evil.example"}
    for login in (None, ("headwater", "wrong"), ("headwater", ""), ("", "")):
        answer = requests.request(method, worker.url + path, json=body, auth=login, headers=origin, timeout=30)
        assert answer.status_code == requests.codes.unauthorized
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert worker.request("GET", "/connectors").json() == []


def test_connect_gives_a_website_no_leave(worker: ConnectWorker) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
    answer = requests.options(f"{worker.url}/connectors", headers=asked, timeout=30)
    assert answer.status_code == requests.codes.unauthorized
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert requests.request("TRACE", f"{worker.url}/connectors", timeout=30).status_code >= 400


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/connectors/kept/tasks", [CONFIG]), ("PUT", "/connectors/kept/fence", None)],
    ids=["tasks", "fence"],
)
def test_what_workers_ask_each_other_is_signed(worker: ConnectWorker, method: str, path: str, body: Any) -> None:
    # The extension asks these for no password: workers have none of their own.
    unsigned = requests.request(method, worker.url + path, json=body, timeout=30)
    assert (unsigned.status_code, unsigned.json()["message"]) == (
        requests.codes.bad_request,
        "Internal request missing required signature",
    )
    forged = {"X-Connect-Request-Signature-Algorithm": "HmacSHA256", "X-Connect-Authorization": "Zm9yZ2Vk"}

    def answer() -> requests.Response:
        return requests.request(method, worker.url + path, json=body, headers=forged, timeout=30)

    unavailable = requests.codes.service_unavailable
    wait_until("the worker to read the key of signatures", lambda: answer().status_code != unavailable)
    signed = answer()
    assert (signed.status_code, signed.json()["message"]) == (
        requests.codes.forbidden,
        "Internal request contained invalid signature.",
    )


def test_a_worker_with_a_wrong_password_says_so(broker: Broker, tmp_path: Path) -> None:
    worker = ConnectWorker(tmp_path, Access(broker.bootstrap, "wrong"), WORKER)
    with pytest.raises(ProcessError, match="Authentication failed during authentication due to invalid credentials"):
        worker.start()


def test_a_broker_over_its_folder_lets_its_clients_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, commands = subprocess.run, []

    def recorded(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", recorded)
    with Broker(tmp_path / "kafka") as first:
        first.create_topics({"kept": 1})
        access = first.access
    with Broker(tmp_path / "kafka") as second:
        assert second.access == access
        with KafkaAdminClient(**access.for_python()) as admin:
            assert admin.list_topics() == ["kept"]
    (formatted,) = commands
    assert "StorageTool" not in " ".join(formatted)
    assert access.password not in " ".join(formatted)
    (tmp_path / "kafka" / "password").unlink()
    with pytest.raises(UserError, match=r"password is missing: .* an earlier release has written the data: delete "):
        Broker(tmp_path / "kafka").start()


def test_the_passwords_stand_in_closed_files_only(broker: Broker, worker: ConnectWorker) -> None:
    passwords = [broker.access.password.encode(), worker.curl_options.read_text().split(":")[1].strip('"\n').encode()]
    # Who takes a worker's port and is sent a password may not read topics with it.
    assert len(set(passwords)) == 2
    commands = ["\0".join(process.info["cmdline"] or ()).encode() for process in psutil.process_iter(["cmdline"])]
    assert [command for command in commands for password in passwords if password in command] == []
    holders = [
        path
        for folder in (broker.folder, worker.folder)
        for path in folder.rglob("*")
        if path.is_file() and any(password in path.read_bytes() for password in passwords)
    ]
    assert {path.name for path in holders} == {
        "password", "arguments", "server.properties", "client.properties",
        "worker.properties", "rest.users", "curl.options",
    }  # fmt: skip
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in holders} == {path.name: "0o600" for path in holders}
    assert [oct(folder.stat().st_mode & 0o777) for folder in (broker.folder, worker.folder)] == ["0o700", "0o700"]


class Imposter(HTTPServer):
    """Another user's program on a worker's port, which lets everybody in and keeps what it is sent."""

    def __init__(self, port: int) -> None:
        self.logins: list[str] = []
        logins = self.logins

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                logins.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.end_headers()

        super().__init__(("127.0.0.1", port), Handler)

    def __enter__(self) -> "Imposter":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def test_who_takes_a_workers_port_is_sent_no_password(broker: Broker, tmp_path: Path) -> None:
    worker = ConnectWorker(tmp_path, broker.access, WORKER, group="taken")
    with worker:
        pass
    with Imposter(worker.port) as imposter:
        assert worker.task_states("any") == []
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(worker.start)
            while not started.done():
                assert worker.task_states("any") == []
        with pytest.raises(ProcessError, match="Address already in use"):
            started.result()
        with pytest.raises(ProcessError):
            worker.status("any")
        assert imposter.logins == []

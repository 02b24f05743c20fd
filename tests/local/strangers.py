"""An attack on a run by another user of this machine, and by a page in a browser.

``attack`` finds every socket on which a run listens and has an intruder try each. The intruder is a process of the user
``nobody`` without capabilities and with an empty environment:

python -m tests.local.strangers

It reads ``_Plan`` as JSON from standard input and writes what it has got. If the tests do not run as root, it has
this user's rights, and only tries to reach the run through sockets.
"""

from __future__ import annotations

import base64
import encodings.idna  # noqa: F401  # which a socket would import once nothing can be read
import json
import os
import pwd
import re
import socket
import ssl
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from headwater.paths import ROOT
from tests.listening import listening

STRANGER = "nobody"
_ORIGIN = "http://evil.example"
# As a browser sends them with a script's request to another origin.
_BROWSER = {
    "Origin": _ORIGIN,
    "Referer": f"{_ORIGIN}/",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Sec-Fetch-Mode": "no-cors",
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Dest": "empty",
}
# A server that answers takes this long at most, one that waits for more bytes is left after it.
_ANSWER_SECONDS = 10.0
_SILENCE_SECONDS = 3.0
_LARGEST_FILE = 64 << 20
_FORGED = "AWS4-HMAC-SHA256 Credential={}/20300101/eu-central-1/{}/aws4_request, SignedHeaders=host, Signature={}"

HTTP, GRPC, KAFKA, POSTGRESQL, PY4J, SPARK, PYTHON_WORKER, TLS, SILENT = (
    *("HTTP", "gRPC", "Kafka", "PostgreSQL", "Py4J", "Spark", "Python worker", "TLS", "silence"),
)
# The parts by their command lines, the first that fits, with what their ports may speak. If a port answers only
# clients that know a token, ``SILENT`` is among them.
PARTS: Mapping[str, set[str]] = {
    r"postgres -D": {POSTGRESQL},
    r"rig\.local\.tls_front": {POSTGRESQL},
    r"rig\.local\.(moto_server|s3_front)": {HTTP},
    r"DynamoDbLocal\.java": {HTTP},
    r"/weed ": {HTTP, GRPC, TLS},
    r"kafka\.Kafka": {KAFKA},
    r"ConnectDistributed": {HTTP},
    r"pyspark\.daemon": {PYTHON_WORKER},
    r"org\.apache\.spark\.deploy\.(master\.Master|worker\.Worker)": {SPARK, HTTP},
    r"org\.apache\.spark\.(deploy\.SparkSubmit|executor)": {SPARK, PY4J},
    # PySpark's accumulators. A deployed script has its asset's hash for a name.
    r"(write_hudi|glue_\w+|runner)\.py|--contract": {SILENT},
    r"emulator\.py": {HTTP},
    r"rig\.local_aws\.serve|headwater\.cli|pytest": {HTTP},
}


@dataclass(frozen=True)
class Door:
    """A socket on which a program listens: a port of TCP, or the path of a Unix socket."""

    program: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.port or self.path} of {part(self.program)}"


@dataclass(frozen=True)
class _Plan:
    doors: list[dict[str, Any]]
    folders: list[str]
    """What a stranger may not enter."""
    open_folders: list[str]
    """Folders that everybody may write to. No file there that a stranger can read shows a marker."""
    markers: list[str]
    key_id: str
    """The id of the run's access key, which is not a secret."""
    names: list[str]
    """Names of secrets, buckets, tables and streams to ask for."""


@dataclass
class Tried:
    """What an intruder got from a door: the recognized protocols, the forbidden finds, and all answers."""

    kinds: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """The run to attack."""

    pid: int
    """Its process, which is attacked with its descendants."""
    folders: Sequence[Path]
    secrets: Mapping[str, str]
    """By description."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """By description."""
    key_id: str = "headwaterlocal"
    """As in ``_Plan``."""
    names: Sequence[str] = ()
    """As in ``_Plan``."""


def attack(run: Run, spoken: set[str] | None = None) -> list[str]:
    """Attack a run, and return what should not have been possible, in sentences. ``spoken`` gets the protocols of its
    ports."""
    found = doors(run.pid)
    assert found, "nothing listens: the attack would show nothing"
    markers = {value: name for name, value in {**run.secrets, **run.rows}.items()}
    plan = _Plan(
        [asdict(door) for door in found],
        [str(folder) for folder in run.folders],
        ["/tmp", "/var/tmp", "/dev/shm"],
        list(markers),
        run.key_id,
        list(run.names),
    )
    got = _intrude(plan)
    problems = [*got["problems"]]
    for door, told in zip(found, got["doors"], strict=True):
        tried = Tried(**told)
        if spoken is not None:
            spoken |= set(tried.kinds) or {SILENT}
        problems += [f"{door}: {problem}" for problem in dict.fromkeys([*_unknown(door, tried), *tried.problems])]
        told_markers = {name for value, name in markers.items() if any(value in answer for answer in tried.answers)}
        problems += [f"{door}: an answer tells {name}" for name in sorted(told_markers)]
    for value in got["told"]:
        problems.append(f"{got['told'][value]} tells {markers[value]}")
    return [*problems, *_logged(run), *_open_folders(run)]


def doors(pid: int) -> list[Door]:
    """The sockets on which a process and its descendants listen."""
    found = {(each.port, ""): Door(each.command, each.port) for each in reversed([*listening(pid)])}
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            for connection in process.net_connections("unix"):
                if connection.laddr:
                    path = str(connection.laddr)
                    at = path if path.startswith(("/", "@")) else str(Path(process.cwd()) / path)
                    found.setdefault((0, at), Door(command, 0, at))
    return list(found.values())


def part(program: str) -> str:
    """The name of the part whose program it is; the end of its command line if it is not a part."""
    found = next((name for name in PARTS if re.search(name, program)), None)
    return found.replace("\\", "") if found else f"…{program[-120:]}"


def _unknown(door: Door, tried: Tried) -> Iterator[str]:
    expected = next((kinds for name, kinds in PARTS.items() if re.search(name, door.program)), set[str]())
    if door.port and not (set(tried.kinds) or {SILENT}) <= expected:
        yield f"unknown port: speaks {', '.join(tried.kinds) or 'nothing'}, expected of the part {sorted(expected)}"


def _logged(run: Run) -> Iterator[str]:
    """The secrets in logs, which are shown to others when somebody asks for help."""
    for folder in run.folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".log" or path.name in ("stdout", "stderr", "events.jsonl"):
                with suppress(FileNotFoundError):
                    text = path.read_bytes()
                    for name, value in run.secrets.items():
                        if value.encode() in text:
                            yield f"the log {path.relative_to(folder)} tells {name}"


def _open_folders(run: Run) -> Iterator[str]:
    for folder in run.folders:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o077:
            yield f"{folder} is open to others: {mode:o}"


def _intrude(plan: _Plan) -> dict[str, Any]:
    """Have the intruder try, and return what it says."""
    # Its modules are read before it has lost its rights: the checkout may lie where others cannot read.
    done = subprocess.run(
        [sys.executable, "-m", __name__ if __name__ != "__main__" else "tests.local.strangers"],
        input=json.dumps(asdict(plan)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    if os.geteuid() == 0:
        assert said["uid"] == pwd.getpwnam(STRANGER).pw_uid
    return said


def is_another_user() -> bool:
    """Whether the intruder is another user; otherwise it only tries to reach the run through sockets."""
    return os.geteuid() == 0


# What follows is done by the intruder.


def main() -> None:
    """Lose all rights, try everything of the plan, and say what came of it."""
    plan = _Plan(**json.load(sys.stdin))
    other = is_another_user()
    if other:
        account = pwd.getpwnam(STRANGER)
        os.chdir("/")
        os.setgroups([])
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    with ThreadPoolExecutor(8) as pool:
        tried = list(pool.map(lambda door: _try(Door(**door), plan, other), plan.doors))
    said = {
        "uid": os.getuid(),
        "doors": [asdict(each) for each in tried],
        "problems": list(_entered(plan.folders)) if other else [],
        "told": dict(_told(plan)) if other else {},
    }
    json.dump(said, sys.stdout)


def _entered(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        if os.access(folder, os.R_OK) or os.access(folder, os.X_OK):
            yield f"a stranger enters {folder}"


def _told(plan: _Plan) -> Iterator[tuple[str, str]]:
    """The markers that others can read, each with a place that holds it."""
    places = [Path(f"/proc/{name}/{what}") for name in os.listdir("/proc") if name.isdigit() for what in _OF_PROCESSES]
    for path in [*places, *(path for folder in plan.open_folders for path in _files(Path(folder)))]:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        for marker in plan.markers:
            if marker.encode() in content:
                yield marker, str(path)


_OF_PROCESSES = ("cmdline", "environ")


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST_FILE:
                    yield path


def _try(door: Door, plan: _Plan, other: bool) -> Tried:
    tried = Tried()
    if door.path:
        if other:
            _try_path(door.path, tried)
        return tried
    for encrypted in (False, True):
        if encrypted:
            if _greets_with_tls(door.port):
                tried.kinds.append(TLS)
            else:
                break
        line = _Line(door.port, tried, encrypted)
        for kind, recognized, attacked in _PROTOCOLS:
            if recognized(line):
                tried.kinds.append(kind)
                attacked(line, plan)
                break
    return tried


def _try_path(path: str, tried: Tried) -> None:
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(address)
        tried.problems.append("a stranger connects to the socket")


def _greets_with_tls(port: int) -> bool:
    """Whether a port answers TLS's first message by TLS: with its own, or with an alert."""
    hello = bytes.fromhex(
        "160301006701000063030300000000000000000000000000000000000000000000000000000000000000000000"
        "08c02bc02fc02cc030010000320005000501000000000a00080006001700180019000b00020100000d000e000c"
        "0401050106010201040305030010000500030268320000"
    )
    # The lengths above are of a whole message; a server that does not like it says so by an alert.
    answer = _Line(port, Tried()).exchange(hello)
    return len(answer) > 2 and answer[0] in (0x15, 0x16) and answer[1] == 3


class _Line:
    """Sends requests to a port, with or without TLS, and keeps every answer in ``tried``."""

    def __init__(self, port: int, tried: Tried, encrypted: bool = False) -> None:
        self.port = port
        self.tried = tried
        self.encrypted = encrypted

    def connect(self, alpn: Sequence[str] = ()) -> socket.socket:
        connection: socket.socket = socket.create_connection(("127.0.0.1", self.port), _ANSWER_SECONDS)
        if self.encrypted:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if alpn:
                context.set_alpn_protocols(list(alpn))
            try:
                return context.wrap_socket(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def exchange(
        self, *messages: bytes, enough: Callable[[bytes], bool] = lambda answer: False, alpn: Sequence[str] = ()
    ) -> bytes:
        """Send messages over one connection, each after the answer to the last. Returns the answer to the last message,
        which ends when the other end closes, is silent, or has said ``enough``."""
        answer = b""
        try:
            with self.connect(alpn) as connection:
                for message in messages:
                    connection.sendall(message)
                    answer = self._read(connection, enough)
                    self.tried.answers.append(answer.decode(errors="replace"))
        except OSError:
            return b""
        return answer

    def _read(self, connection: socket.socket, enough: Callable[[bytes], bool]) -> bytes:
        answer = b""
        connection.settimeout(_SILENCE_SECONDS)
        with suppress(OSError):
            while not enough(answer) and (chunk := connection.recv(1 << 16)):
                answer += chunk
                connection.settimeout(_ANSWER_SECONDS)
        return answer

    def wrong(self, problem: str) -> None:
        self.tried.problems.append(f"{problem}{' by TLS' if self.encrypted else ''}")


def _whole_http(answer: bytes) -> bool:
    head, ended, body = answer.partition(b"\r\n\r\n")
    if not ended:
        return False
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


@dataclass(frozen=True)
class _Asked:
    """A request over HTTP. If a page sends it, headers of a script are added."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    service: str = ""

    def sent(self, port: int, more: Mapping[str, str]) -> bytes:
        headers = {"Host": f"127.0.0.1:{port}", **self.headers, **more, "Connection": "close"}
        if self.body or self.method in ("POST", "PUT"):
            headers["Content-Length"] = str(len(self.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{lines}\r\n{self.body}".encode()


_JSON = {"Content-Type": "application/json"}
_READ = (
    "/",
    "/metrics",
    "/health",
    "/status",
    "/connectors",
    "/connectors?expand=info&expand=status",
    "/connector-plugins",
    "/admin/loggers",
    "/cluster/status",
    "/dir/status",
    "/dir/assign",
    "/vol/status",
    "/stats/health",
    "/ui/index.html",
    "/buckets/",
    "/?list-type=2",
    "/moto-api/",
    "/moto-api/data.json",
    "/_ministack/health",
    "/_localstack/health",
    "/credentials",
    "/answers",
    "/shell/",
    "/json/",
    "/2015-03-31/functions",
    "/2015-03-31/functions/",
)
_LAMBDA = json.dumps(
    {"FunctionName": "evil", "Runtime": "python3.12", "Role": "arn:aws:iam::0:role/r", "Handler": "a.b"}
)
_WRITTEN = (
    _Asked("PUT", "/connectors/evil/config", _JSON, '{"connector.class": "evil", "name": "evil"}'),
    _Asked("POST", "/connectors", _JSON, '{"name": "evil", "config": {"connector.class": "evil"}}'),
    _Asked("PUT", "/admin/loggers/evil", _JSON, '{"level": "INFO"}'),
    _Asked("PUT", "/evil-bucket"),
    _Asked("PUT", "/evil-bucket/evil", {"Content-Type": "text/plain"}, "evil"),
    _Asked("POST", "/buckets/evil", {"Content-Type": "text/plain"}, "evil"),
    _Asked("POST", "/submit", {"Content-Type": "text/plain"}, "evil"),
    _Asked("POST", "/2015-03-31/functions", _JSON, _LAMBDA),
    _Asked("POST", "/2015-03-31/functions/evil/invocations", _JSON, "{}"),
    _Asked("POST", "/apis/evil", _JSON, "{}"),
    _Asked("POST", "/driver/kill/", {"Content-Type": "application/x-www-form-urlencoded"}, "id=a&terminate=true"),
)


def _aws(names: Sequence[str]) -> Iterator[_Asked]:
    """Calls of AWS's services."""
    targets: list[tuple[str, str, dict[str, Any]]] = [
        ("secretsmanager", "secretsmanager.ListSecrets", {}),
        *(("secretsmanager", "secretsmanager.GetSecretValue", {"SecretId": name}) for name in names),
        ("dynamodb", "DynamoDB_20120810.ListTables", {}),
        *(("dynamodb", "DynamoDB_20120810.Scan", {"TableName": name}) for name in names),
        ("dynamodb", "DynamoDBStreams_20120810.ListStreams", {}),
        ("kinesis", "Kinesis_20131202.ListStreams", {}),
        ("glue", "AWSGlue.GetDatabases", {}),
        ("logs", "Logs_20140328.DescribeLogGroups", {}),
        ("ssm", "AmazonSSM.DescribeParameters", {}),
    ]
    for service, target, body in targets:
        version = "1.0" if service == "dynamodb" else "1.1"
        headers = {"Content-Type": f"application/x-amz-json-{version}", "X-Amz-Target": target}
        yield _Asked("POST", "/", headers, json.dumps(body), service)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for service, action, since in (
        ("sts", "GetCallerIdentity", "2011-06-15"),
        ("sts", "AssumeRole&RoleArn=arn:aws:iam::000000000000:role/evil&RoleSessionName=evil", "2011-06-15"),
        ("iam", "ListUsers", "2010-05-08"),
        ("cloudformation", "DescribeStacks", "2010-05-15"),
    ):
        yield _Asked("POST", "/", form, f"Action={action}&Version={since}", service)
    yield from (_Asked("GET", f"/{name}?list-type=2", service="s3") for name in names)
    yield _Asked("GET", "/", service="s3")
    yield _Asked("GET", "/2015-03-31/functions/", service="lambda")
    yield _Asked("POST", "/2015-03-31/functions", _JSON, _LAMBDA, "lambda")


def _signed(asked: _Asked, port: int, key_id: str) -> dict[str, str]:
    """The headers of a call that is signed with the id of the run's key and a guessed secret."""
    request = AWSRequest(asked.method, f"http://127.0.0.1:{port}{asked.path}", dict(asked.headers), asked.body)
    signer = S3SigV4Auth if asked.service == "s3" else SigV4Auth
    signer(Credentials(key_id, "headwaterlocal-or-a-guess"), asked.service, "eu-central-1").add_auth(request)
    return {name: value for name, value in request.headers.items() if name not in asked.headers}


def _is_http(line: _Line) -> bool:
    return line.exchange(_Asked("GET", "/").sent(line.port, {}), enough=_whole_http).startswith(b"HTTP/")


def _attack_http(line: _Line, plan: _Plan) -> None:
    calls = list(_aws(plan.names))
    reads = [_Asked("GET", path) for path in _READ]
    rebound = {"Host": "evil.example"}
    for asked in [*reads, *calls, *_WRITTEN]:
        for more in ({}, rebound, _BROWSER):
            _ask(line, asked, more)
    for asked in [*calls, *_WRITTEN]:
        # A page sends this type of content without asking first, also one that has no origin.
        _ask(line, asked, {**_BROWSER, "Origin": "null", "Content-Type": "text/plain"})
        wanted = {"Access-Control-Request-Method": asked.method, "Access-Control-Request-Headers": "x-amz-target"}
        _ask(line, _Asked("OPTIONS", asked.path), _BROWSER | wanted)
    for asked in calls:
        for key_id in (plan.key_id, "test"):
            _ask(line, asked, _signed(asked, line.port, key_id), f" signed by a wrong key of {key_id}")
        forged = _FORGED.format(plan.key_id, asked.service, "0" * 64)
        _ask(line, asked, {"Authorization": forged}, " with a forged signature")
    guessed = base64.b64encode(b"headwater:headwater").decode()
    for asked in reads:
        _ask(line, asked, {"Authorization": f"Basic {guessed}"}, " with a guessed password")


def _ask(line: _Line, asked: _Asked, more: Mapping[str, str], how: str = "") -> None:
    answer = line.exchange(asked.sent(line.port, more), enough=_whole_http)
    head = answer.partition(b"\r\n\r\n")[0].decode(errors="replace")
    of_page = " from a page" if "Origin" in more else " for another host" if "Host" in more else ""
    target = asked.headers.get("X-Amz-Target", "") or (asked.body if asked.body.startswith("Action=") else "")
    what = f"{asked.method} {asked.path}{f' {target}' if target else ''}{of_page}{how}"
    status = re.match(r"HTTP/[\d.]+ (\d+)", head)
    if status and status[1].startswith("2"):
        line.wrong(f"{what} is answered with {status[1]}")
    for allowed in re.findall(r"(?im)^access-control-allow-[\w-]+", head):
        line.wrong(f"{what} is answered with {allowed}")


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)
_GRPC = (
    "/master_pb.Seaweed/GetMasterConfiguration",
    "/master_pb.Seaweed/VolumeList",
    "/filer_pb.SeaweedFiler/GetFilerConfiguration",
    "/filer_pb.SeaweedFiler/ListEntries",
    "/volume_server_pb.VolumeServer/VolumeServerStatus",
    "/iam_pb.SeaweedIdentityAccessManagement/ListUsers",
    "/worker_pb.WorkerService/WorkerStream",
)


def _frames(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """The frames of HTTP/2: their types and payloads (https://www.rfc-editor.org/rfc/rfc9113#section-4.1)."""
    while len(answer) >= 9:
        length = int.from_bytes(answer[:3])
        yield answer[3], answer[9 : 9 + length]
        answer = answer[9 + length :]


def _is_grpc(line: _Line) -> bool:
    answer = line.exchange(_PREFACE, enough=lambda said: len(said) >= 9, alpn=["h2"])
    return any(kind == 4 for kind, _ in _frames(answer))


def _attack_grpc(line: _Line, plan: _Plan) -> None:
    for path in _GRPC:
        pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": f"127.0.0.1:{line.port}"}
        pairs |= {"content-type": "application/grpc", "te": "trailers"}
        # Literals without an index and without Huffman's code (https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2).
        block = b"".join(
            b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in pairs.items()
        )
        headers = len(block).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + block
        data = (5).to_bytes(3) + b"\x00\x01" + (1).to_bytes(4) + bytes(5)
        answer = line.exchange(_PREFACE + headers + data, alpn=["h2"])
        found = list(_frames(answer))
        # 0x88 is ":status: 200"; an error without a message has no data.
        if any(kind == 0 and payload for kind, payload in found) and any(
            kind == 1 and payload.lstrip(b"\x20\x3f")[:1] == b"\x88" for kind, payload in found
        ):
            line.wrong(f"gRPC {path} is answered")


def _kafka(key: int, version: int, body: bytes) -> bytes:
    """A request to Kafka (https://kafka.apache.org/protocol#protocol_messages)."""
    head = struct.pack(">hhi", key, version, 4711) + _text("stranger")
    return struct.pack(">i", len(head + body)) + head + body


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _whole_kafka(answer: bytes) -> bool:
    return len(answer) >= 4 and len(answer) >= 4 + int.from_bytes(answer[:4])


_CORRELATED = struct.pack(">i", 4711)


def _is_kafka(line: _Line) -> bool:
    return line.exchange(_kafka(18, 0, b""), enough=_whole_kafka)[4:8] == _CORRELATED


def _attack_kafka(line: _Line, plan: _Plan) -> None:
    partition = struct.pack(">ii", 1, 0)
    asked = {
        "Metadata": _kafka(3, 1, struct.pack(">i", -1)),
        "ListGroups": _kafka(16, 0, b""),
        "Fetch": _kafka(
            1,
            4,
            struct.pack(">iiiib", -1, 100, 0, 1 << 20, 0)
            + struct.pack(">i", 1)
            + _text("__consumer_offsets")
            + partition
            + struct.pack(">qi", 0, 1 << 20),
        ),
        "Produce": _kafka(
            0,
            3,
            struct.pack(">hhi", -1, -1, 5000) + struct.pack(">i", 1) + _text("evil") + partition + _blob(b""),
        ),
        "CreateTopics": _kafka(
            19, 0, struct.pack(">i", 1) + _text("evil") + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">i", 5000)
        ),
        # Of the controller's log.
        "FetchSnapshot": _kafka(
            1,
            4,
            struct.pack(">iiiibi", -1, 100, 0, 1 << 20, 0, 1)
            + _text("__cluster_metadata")
            + partition
            + struct.pack(">qi", 0, 1 << 20),
        ),
    }
    for name, request in asked.items():
        if line.exchange(request, enough=_whole_kafka)[4:8] == _CORRELATED:
            line.wrong(f"{name} is answered without a login")
    for mechanism, *tokens in _LOGINS:
        said = [_kafka(17, 1, _text(mechanism)), *(_kafka(36, 0, _blob(token.encode())) for token in tokens)]
        answer = line.exchange(*said, enough=_whole_kafka)
        if answer[4:8] == _CORRELATED and answer[8:10] == b"\0\0":
            line.wrong(f"a wrong login by {mechanism} is taken")
        if line.exchange(*said, asked["Metadata"], enough=_whole_kafka)[4:8] == _CORRELATED:
            line.wrong(f"Metadata is answered after a wrong login by {mechanism}")


_LOGINS = (
    ("PLAIN", "\0headwater\0headwater"),
    ("PLAIN", "\0admin\0admin"),
    ("SCRAM-SHA-256", "n,,n=headwater,r=stranger", "c=biws,r=stranger,p=AAAA"),
    ("SCRAM-SHA-512", "n,,n=headwater,r=stranger", "c=biws,r=stranger,p=AAAA"),
)


def _is_postgresql(line: _Line) -> bool:
    return line.exchange(bytes.fromhex("0000000804d2162f"), enough=bool) in (b"S", b"N")


def _attack_postgresql(line: _Line, plan: _Plan) -> None:
    for user in ("postgres", "headwater_cdc", "headwater_app", "headwater_reader", "headwater_owner"):
        for password in ("", "wrong", user):
            for mode in ("disable", "require"):
                try:
                    psycopg.connect(
                        host="127.0.0.1",
                        port=line.port,
                        dbname="postgres",
                        user=user,
                        password=password,
                        sslmode=mode,
                        connect_timeout=30,
                        passfile="/dev/null",
                    ).close()
                except psycopg.Error as error:
                    line.tried.answers.append(str(error))
                else:
                    line.wrong(f"{user} comes in with the password {password!r}")


def _is_py4j(line: _Line) -> bool:
    return line.exchange(b"r\nu\njava.lang.System\nrj\ne\n", enough=bool).startswith(b"!")


def _attack_py4j(line: _Line, plan: _Plan) -> None:
    for command in (b"r\nu\njava.lang.System\nrj\ne\n", b"A\nwrong\ne\n", b"c\np0\nhandle\ne\n", b"s\nq\n"):
        if line.exchange(command, enough=bool).startswith(b"!y"):
            line.wrong(f"{command!r} is done")


def _spark(kind: int, body: bytes) -> bytes:
    """A message of Spark's own protocol: its length, itself included, its type, and its content."""
    return struct.pack(">qb", 9 + len(body), kind) + body


_BLOCKS = (
    b"\0" + b"".join(_blob(text) for text in (b"app", b"driver")) + struct.pack(">i", 1) + _blob(b"broadcast_0_piece0")
)
_SPARK_CALLS = {
    "a call": _spark(3, struct.pack(">qi", 7, 4) + b"evil"),
    "a request for blocks": _spark(3, struct.pack(">qi", 7, len(_BLOCKS)) + _BLOCKS),
    "a message": _spark(9, struct.pack(">i", 4) + b"evil"),
    "a stream of a file": _spark(6, _blob(b"/files/headwater.zip")),
    "a stream of a jar": _spark(6, _blob(b"/jars/headwater-lake.jar")),
    "a chunk": _spark(0, struct.pack(">qi", 1, 0)),
}


def _kind_of_spark(answer: bytes) -> int | None:
    is_one = len(answer) > 9 and 9 <= int.from_bytes(answer[:8]) < 1 << 24 and answer[8] < 13
    return answer[8] if is_one else None


def _is_spark(line: _Line) -> bool:
    return _kind_of_spark(line.exchange(_SPARK_CALLS["a call"], enough=lambda said: len(said) > 9)) is not None


def _attack_spark(line: _Line, plan: _Plan) -> None:
    for name, call in _SPARK_CALLS.items():
        answer = line.exchange(call, enough=lambda said: len(said) > 9)
        # An answer to a call, a chunk, a stream. The others are failures, which must name what is demanded.
        if _kind_of_spark(answer) in (1, 4, 7):
            line.wrong(f"{name} is answered")
        if name.endswith(("call", "blocks")) and b"SaslMessage" not in answer:
            line.wrong(f"{name} is refused for another reason than that nobody has logged in")


def _is_python_worker(line: _Line) -> bool:
    return line.exchange(_blob(b"wrong"), enough=lambda said: len(said) >= 8)[4:] in (_blob(b"err"), _blob(b"ok"))


def _attack_python_worker(line: _Line, plan: _Plan) -> None:
    if line.exchange(_blob(b"wrong"), enough=lambda said: len(said) >= 8).endswith(b"ok"):
        line.wrong("a wrong secret is taken")


_PROTOCOLS: tuple[tuple[str, Callable[[_Line], bool], Callable[[_Line, _Plan], None]], ...] = (
    (HTTP, _is_http, _attack_http),
    (GRPC, _is_grpc, _attack_grpc),
    (KAFKA, _is_kafka, _attack_kafka),
    (POSTGRESQL, _is_postgresql, _attack_postgresql),
    (PY4J, _is_py4j, _attack_py4j),
    (SPARK, _is_spark, _attack_spark),
    (PYTHON_WORKER, _is_python_worker, _attack_python_worker),
)


if __name__ == "__main__":
    main()

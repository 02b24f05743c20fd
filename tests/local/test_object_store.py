"""The object store keeps what it acknowledged over a crash, decides between writers as S3 does, and serves nobody
without the run's credentials or certificate."""

import json
import os
import re
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from headwater.errors import UserError
from headwater.waiting import wait_until
from rig.local import aws
from rig.local.aws import REGION
from rig.local.certificates import Authority
from rig.local.object_store import ObjectStore
from tests.listening import listening, listening_programs

BUCKET = "headwater-objects"
KEY = aws.make_credentials()
HTTP_1 = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
# The preface of HTTP/2 and an empty frame of settings: a server of gRPC answers with its own settings.
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
REQUESTS = {"http/1.1": HTTP_1, "h2": HTTP_2}
# What Go's server says in plain text before it closes a connection without TLS.
WANTS_TLS = b"Client sent an HTTP request to an HTTPS server.\n"
NOBODY = 65534


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store"), aws.environment(KEY)) as part:
        aws.client("s3", part.endpoint, KEY).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        await_servers(part)
        yield part


def await_servers(store: ObjectStore) -> None:
    """Wait until all servers of a store listen, which they begin to one after another, and it takes objects."""

    def listen() -> int:
        return sum(str(store.folder) in command for command in listening_programs()[0])

    wait_until("every server of the store to listen", lambda: listen() == 11)
    s3 = aws.client("s3", store.endpoint, KEY)
    wait_until("the store to take objects", lambda: answer(s3, "taken") == 200)


def answer(s3: Any, key: str, **conditions: str) -> int:
    """The HTTP status of a put."""
    try:
        put = s3.put_object(Bucket=BUCKET, Key=key, Body=b"new", **conditions)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return int(put["ResponseMetadata"]["HTTPStatusCode"])


def serves(s3: Any, key: str) -> bool:
    """Whether an object can be read; a store that has just come back may answer 500."""
    try:
        s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 500:
            raise
        return False
    return True


def certificate(store: ObjectStore) -> tuple[str, tuple[str, str]]:
    """The files of a run's authority, and of its certificate and key."""
    authority, *identity = (str(store.folder / f"{name}.pem") for name in ("authority", "certificate", "key"))
    return authority, (identity[0], identity[1])


def http_ports(store: ObjectStore) -> dict[str, str]:
    """The ports of the servers, such as ``filer``, that speak HTTP."""
    return dict(re.findall(r"-(\w+)\.port=(\d+)", " ".join(psutil.Process(store.pid).cmdline())))


def ports_behind(store: ObjectStore) -> set[int]:
    """All TCP ports on which SeaweedFS listens, behind the front of S3."""
    return {each.port for each in listening(store.pid)}


def sockets(store: ObjectStore) -> list[Path]:
    """The Unix sockets on which a store listens."""
    addresses = {str(connection.laddr) for connection in psutil.Process(store.pid).net_connections(kind="unix")}
    return sorted(store.folder / address for address in addresses - {""})


def answering(ports: set[int], identity: tuple[str, str] | None = None) -> list[int]:
    """The ports that serve a client with the files of a certificate and its key, or without, by TLS or without it."""
    return [
        port
        for port in sorted(ports)
        for protocol in REQUESTS
        for context in (None, _context(protocol, identity))
        if not refused(answer_of(port, protocol, context))
    ]


def refused(answered: bytes) -> bool:
    """Whether a server has answered nothing, or that it speaks TLS."""
    return answered == b"" or answered.endswith(WANTS_TLS)


def answer_of(port: int, protocol: str, context: ssl.SSLContext | None) -> bytes:
    """The first bytes that a port answers a request with; none if it closes the connection instead."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            if context is None:
                return _ask(plain, protocol)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
                return _ask(encrypted, protocol)
    except (ssl.SSLError, ConnectionError):
        return b""


def _ask(connection: socket.socket, protocol: str) -> bytes:
    connection.sendall(REQUESTS[protocol])
    received = b""
    while len(received) < 1000 and (more := connection.recv(1000)):
        received += more
        if protocol == "h2":
            # The connection stays open.
            break
    return received


def _context(protocol: str, identity: tuple[str, str] | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # An attacker does not ask who it is that answers.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    if identity:
        context.load_cert_chain(*identity)
    return context


def opens(path: Path) -> bool:
    """Whether this process may connect to a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except PermissionError:
            return False
    return True


def as_nobody(call: Callable[[], Any]) -> Any:
    """The result of a function in a process of the user nobody, as JSON takes it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    return json.loads(text)


def test_one_of_many_writers_puts_an_absent_key(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: answer(s3, "lease", IfNoneMatch="*"), range(64)))
    assert sorted(answers) == [200] + [412] * 63


def test_a_write_on_condition_of_what_is_there_needs_that(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    etag = s3.put_object(Bucket=BUCKET, Key="state", Body=b"old")["ETag"]
    assert answer(s3, "state", IfMatch='"00000000000000000000000000000000"') == 412
    assert answer(s3, "state", IfMatch=etag) == 200
    assert answer(s3, "state", IfMatch=etag) == 412


def test_other_credentials_are_refused(store: ObjectStore) -> None:
    stranger = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name=REGION,
        aws_access_key_id="headwaterlocal",
        aws_secret_access_key="wrong",
        config=Config(s3={"addressing_style": "path"}),
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.list_objects_v2(Bucket=BUCKET)


@pytest.mark.parametrize("missing", KEY)
def test_there_is_no_store_without_credentials(tmp_path: Path, missing: str) -> None:
    with pytest.raises(UserError, match=f"{missing} is missing"):
        ObjectStore(tmp_path, {**aws.environment(KEY), missing: ""})


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["", "status", BUCKET, f"{BUCKET}/kept", f"{BUCKET}?list-type=2", f"{BUCKET}/kept?acl"]
)
def test_no_page_gets_anything_from_s3(store: ObjectStore, method: str, path: str) -> None:
    asked = {"Origin": "http://127.0.0.1:8000", "Access-Control-Request-Method": "GET"}
    given = requests.request(method, f"{store.endpoint}/{path}", headers=asked, timeout=10)
    assert given.status_code == 403
    assert [header for header in given.headers if header.startswith("Access-Control-")] == []


def test_a_signature_holds_for_one_host(store: ObjectStore) -> None:
    aws.client("s3", store.endpoint, KEY).put_object(Bucket=BUCKET, Key="signed", Body=b"row")
    url = f"{store.endpoint}/{BUCKET}/signed"
    request = AWSRequest("GET", url)
    S3SigV4Auth(Credentials(*KEY.values()), "s3", REGION).add_auth(request)
    signed = dict(request.headers)
    assert requests.get(url, headers=signed, timeout=10).content == b"row"
    for host, reason in (("pages.example:80", "Host: found"), ("localhost:80", "SignatureDoesNotMatch")):
        elsewhere = requests.get(url, headers={**signed, "Host": host}, timeout=10)
        assert (elsewhere.status_code, reason in elsewhere.text) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Origin: null",
        "Authorization : AWS4-HMAC-SHA256 x",
        "Authorization: AWS4-HMAC-SHA256 x\r\n folded: y",
        "Authorization: AWS4-HMAC-SHA256 x\r\nContent-Length: 1\r\nContent-Length: 2",
        "Authorization: AWS4-HMAC-SHA256 x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        "Authorization: AWS4-HMAC-SHA256 x\r\nTransfer-Encoding: gzip, chunked",
        "Authorization: AWS4-HMAC-SHA256 x\r\nHost: 127.0.0.1:1",
        "Authorization: AWS4-HMAC-SHA256 x\nOrigin: null",
        "X: y\n\nGET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: AWS4-HMAC-SHA256 x",
    ],
)
def test_the_front_hands_on_no_request_of_two_meanings(store: ObjectStore, headers: str) -> None:
    port = int(store.endpoint.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_a_chunked_body_comes_through_the_front(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    url = f"{store.endpoint}/{BUCKET}/chunked"
    parts = [b"x" * 70_000, b"y", b"z" * 200_000]
    with requests.Session() as session:
        for _ in range(2):
            request = AWSRequest("PUT", url, data=b"".join(parts))
            S3SigV4Auth(Credentials(*KEY.values()), "s3", REGION).add_auth(request)
            # A body without a length is sent in chunks.
            assert session.put(url, headers=dict(request.headers), data=iter(parts), timeout=10).status_code == 200
    assert s3.get_object(Bucket=BUCKET, Key="chunked")["Body"].read() == b"".join(parts)


def test_objects_are_not_there_beside_s3(store: ObjectStore) -> None:
    rows = b"row" * 10_000
    s3, ports = aws.client("s3", store.endpoint, KEY), http_ports(store)
    s3.put_object(Bucket=BUCKET, Key="rows", Body=rows)
    authority, identity = certificate(store)
    filer = f"127.0.0.1:{ports['filer']}/buckets/{BUCKET}/rows"
    own = partial(requests.get, timeout=10, verify=authority, cert=identity)
    (chunk,) = own(f"https://{filer}?metadata=true").json()["chunks"]
    contents = {
        filer: "rowrow",
        f"127.0.0.1:{ports['volume']}/{chunk['file_id']}": "rowrow",
        f"127.0.0.1:{ports['master']}/dir/assign": '"fid"',
        f"127.0.0.1:{ports['admin']}/metrics": f'bucket="{BUCKET}"',
    }
    for address, content in contents.items():
        # With the certificate it is there, so the address is right.
        assert content in own(f"https://{address}").text
        for method in ("GET", "POST", "PUT", "DELETE"):
            with suppress(requests.ConnectionError):
                assert requests.request(method, f"http://{address}", timeout=10).content == WANTS_TLS
            with pytest.raises(requests.ConnectionError):
                requests.request(method, f"https://{address}", timeout=10, verify=authority)
    assert s3.get_object(Bucket=BUCKET, Key="rows")["Body"].read() == rows


def test_all_ports_behind_the_front_want_the_certificate(store: ObjectStore) -> None:
    ports = ports_behind(store)
    assert set(answering(ports, certificate(store)[1])) == ports
    assert answering(ports) == []


def test_a_certificate_of_another_run_opens_nothing(store: ObjectStore, tmp_path: Path) -> None:
    other = Authority.make().issue("127.0.0.1")
    (tmp_path / "certificate").write_text(other.certificate)
    (tmp_path / "key").write_text(other.key)
    assert answering(ports_behind(store), (str(tmp_path / "certificate"), str(tmp_path / "key"))) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_is_served_nowhere_beside_s3(store: ObjectStore) -> None:
    ports, paths = ports_behind(store), sockets(store)
    assert as_nobody(lambda: answering(ports)) == []
    assert as_nobody(lambda: [str(path) for path in paths if opens(path)]) == []
    # The user does reach a port: the front of S3 refuses the request, and not the connection.
    assert as_nobody(lambda: requests.get(f"{store.endpoint}/{BUCKET}", timeout=10).status_code) == 403


def test_no_setting_of_the_user_opens_the_store(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with ObjectStore(
            tmp_path / "store", {**aws.environment(KEY), "WEED_HTTPS_FILER_DISABLE_TLS_VERIFY_CLIENT_CERT": "true"}
        ) as store:
            paths = [store.folder, *store.folder.glob("*.pem"), *sockets(store)]
            assert len(paths) == 11
            assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
            assert answering(ports_behind(store)) == []
    finally:
        os.umask(umask)


def test_it_listens_on_the_loopback_only(store: ObjectStore) -> None:
    _, reachable = listening_programs()
    assert reachable == []


def test_it_counts_what_is_asked_of_it_by_what_s3_is_paid_for(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    before = store.requests()
    for number in range(3):
        s3.put_object(Bucket=BUCKET, Key=f"counted/{number}", Body=b"x")
    s3.get_object(Bucket=BUCKET, Key="counted/0")
    s3.head_object(Bucket=BUCKET, Key="counted/1")
    s3.list_objects_v2(Bucket=BUCKET, Prefix="counted/")
    s3.delete_object(Bucket=BUCKET, Key="counted/0")
    assert store.requests() - before == {"PUT": 3, "GET": 2, "LIST": 1, "DELETE": 1}


def test_objects_outlive_a_crash_at_the_same_address(store: ObjectStore) -> None:
    s3 = aws.client("s3", store.endpoint, KEY)
    bodies = {f"kept/{number}": bytes([number]) * 10_000 for number in range(50)}
    for key, body in bodies.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    endpoint, pid = store.endpoint, store.pid
    store.kill()
    assert not psutil.pid_exists(pid)
    store.start()
    assert (store.endpoint, store.pid != pid) == (endpoint, True)
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="kept/")["Contents"]
    assert {entry["Key"] for entry in listed} == set(bodies)
    for key, body in bodies.items():
        wait_until(f"the store to serve {key}", partial(serves, s3, key))
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body
    await_servers(store)


def test_how_many_buckets_there_may_be_does_not_depend_on_the_disk(store: ObjectStore) -> None:
    (allowed,) = re.findall(r"Topology .* hdd\(volume:\d+/(\d+) ", store.administer("volume.list"))
    assert int(allowed) > 10_000

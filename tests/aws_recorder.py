"""Records the requests of programs to AWS in a local run: a proxy in front of the local API keeps every request."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar
from urllib.parse import urlsplit

from rig.local.aws import AwsApi

# Headers of a single hop, which a proxy does not pass on. It passes on the host, because the signature covers it.
_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([a-z0-9-]+)/")


@dataclass(frozen=True)
class Request:
    """One request to AWS with the status of its answer."""

    service: str
    """The service that the request was signed for."""
    method: str
    """The HTTP method."""
    path: str
    """The path, as the client has escaped it."""
    query: str
    """The query string."""
    headers: dict[str, str]
    """The headers, by their names in lower case."""
    body: bytes
    """The body."""
    status: int
    """The status of the answer."""


class Recorder:
    """Listens on a free port of 127.0.0.1 within its context, and passes requests on to ``target``.

    It keeps the requests in a list of its own, or in ``requests``, which may be another recorder's list.
    """

    def __init__(self, target: str, requests: list[Request] | None = None) -> None:
        self.target = target
        self.requests: list[Request] = [] if requests is None else requests
        address = urlsplit(target)
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Otherwise, the body of each answer waits 40 ms for the client to acknowledge the headers.
            disable_nagle_algorithm = True

            def _pass_on(self) -> None:
                body = self._body()
                headers = {name.lower(): value for name, value in self.headers.items()}
                refusal = recorder.refusal(self.command, self.path)
                if refusal is not None:
                    self._refuse(refusal)
                    return
                # Send the request to the target, and record it.
                passed = {name: value for name, value in headers.items() if name not in _OWN}
                connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
                try:
                    # The path goes on byte by byte: a library would escape it differently.
                    connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in {**passed, "content-length": str(len(body))}.items():
                        connection.putheader(name, value)
                    connection.endheaders(body)
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                recorder._keep(self.command, self.path, headers, body, answer.status)
                if not recorder.answers(self.command, self.path):
                    self.close_connection = True
                    return
                # Pass the answer on.
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in _OWN:
                        self.send_header(name, value)
                # The answer to a HEAD states the length of a body that it does not send.
                length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
                if length is not None:
                    self.send_header("content-length", length)
                self.end_headers()
                self.wfile.write(content)

            def _refuse(self, status: HTTPStatus) -> None:
                self.send_response_only(status, status.phrase)
                self.send_header("content-length", "0")
                self.end_headers()

            do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _pass_on  # noqa: N815  # names of http.server

            def _body(self) -> bytes:
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    return b"".join(iter(self._chunk, b""))
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def _chunk(self) -> bytes:
                content = self.rfile.read(int(self.rfile.readline().split(b";")[0], 16))
                self.rfile.readline()
                return content

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """The URL that programs use instead of the API's."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def refusal(self, method: str, path: str) -> HTTPStatus | None:
        """The status with which a request is refused; None if it is passed on."""
        return None

    def answers(self, method: str, path: str) -> bool:
        """Whether the answer to a request reaches its client. If not, the connection ends."""
        return True

    def _keep(self, method: str, target: str, headers: dict[str, str], body: bytes, status: int) -> None:
        parts = urlsplit(target)
        scope = _SCOPE.search(headers.get("authorization", ""))
        service = scope.group(1) if scope is not None else ""
        self.requests.append(Request(service, method, parts.path, parts.query, headers, body, status))


Before = TypeVar("Before", bound=Recorder)


class ApiWithS3Behind(AwsApi, Generic[Before]):
    """The AWS API with a recorder before S3, which the tests' own clients bypass. ``make`` makes it from S3's URL."""

    s3_recorder: Before
    """The recorder before S3."""

    def __init__(self, folder: Path, make: Callable[[str], Before]) -> None:
        super().__init__(folder)
        self._make = make

    def start(self) -> None:
        super().start()
        self.s3_recorder = self._make(super().s3_endpoint)
        self.s3_recorder.__enter__()

    def stop(self) -> None:
        self.s3_recorder.__exit__(None, None, None)
        super().stop()

    @property
    def s3_endpoint(self) -> str:
        return self.s3_recorder.endpoint

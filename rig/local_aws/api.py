"""Operations of AWS's APIs: requests are parsed and answers written by botocore's models of the services."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.loaders import Loader
from botocore.model import ListShape, ServiceModel, Shape, StructureShape
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

_FORWARDED_SECONDS = 600
_OF_CONNECTION = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}
_OF_SIGNATURE = {"authorization", "x-amz-date", "x-amz-security-token"}

Operation = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""An operation: takes its arguments by boto3's names, and returns its result by boto3's names."""


def now() -> dt.datetime:
    """The present time, as services report it."""
    return dt.datetime.now(dt.UTC)


class ApiError(Exception):
    """An error of a service: its ``code``, such as NotFoundException, and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotAnswered(Exception):
    """Raised to leave a request or a resource to the emulator."""


@dataclass(frozen=True)
class Request:
    """An HTTP request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """The headers, by their names in lower case."""
    query: Mapping[str, list[str]]
    body: bytes


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Api:
    """Some operations of a service whose protocol is JSON or REST with JSON."""

    def __init__(self, service: str, operations: Mapping[str, Operation], *, model: str = "") -> None:
        """Serve ``operations`` of ``service``, whose requests are signed with that name.

        ``model`` is the name of botocore's model, if it differs.
        """
        self.service = service
        self.operations = dict(operations)
        self._name = model or service
        self._model = _model(self._name)
        self._is_rest = self._model.protocol == "rest-json"

    def answer(self, request: Request) -> Response:
        """Run an operation. An operation that is not here is an error of the service."""
        try:
            name, arguments = self._read(request)
            if name not in self.operations:
                raise ApiError("UnknownOperationException", f"The local AWS does not answer {self.service}:{name}")
            result = self.operations[name](arguments) or {}
        except ApiError as error:
            body = {"__type": error.code, "message": str(error)}
            return Response(400, {"Content-Type": "application/json", "x-amzn-errortype": error.code}, _json(body))
        shape = self._model.operation_model(name).output_shape
        return Response(200, {"Content-Type": "application/json"}, _json(_written(result, shape)))

    def _read(self, request: Request) -> tuple[str, dict[str, Any]]:
        body = json.loads(request.body or b"{}")
        if not self._is_rest:
            name = request.headers["x-amz-target"].rpartition(".")[2]
            return name, _taken(body, self._model.operation_model(name).input_shape)
        # An ARN in a path has its slashes as %2F. werkzeug would take decoded slashes for separators.
        path = "/".join(part.replace("/", "%2F") for part in request.path.split("/"))
        try:
            name, found = _routes(self._name).bind("").match(path, method=request.method)
        except HTTPException:
            raise ApiError("UnknownOperationException", f"{request.method} {request.path}") from None
        shape = self._model.operation_model(name).input_shape
        arguments = _taken(body, shape)
        members = {} if shape is None else shape.members
        for member, inner in members.items():
            place, wire = inner.serialization.get("location"), inner.serialization.get("name", member)
            if place == "uri":
                arguments[member] = unquote(found[_variable(wire)])
            elif place == "querystring" and wire in request.query:
                values = request.query[wire]
                arguments[member] = values if isinstance(inner, ListShape) else values[0]
        return name, arguments


class Forwarded:
    """A service whose operations a program at ``endpoint`` answers, except for the operations in ``own``.

    The program gets each request with a signature by ``credentials`` for the region ``region``.
    """

    def __init__(
        self,
        service: str,
        endpoint: Callable[[], str],
        own: Mapping[str, Operation],
        credentials: Mapping[str, str],
        region: str,
    ) -> None:
        self.service = service
        key = Credentials(credentials["AWS_ACCESS_KEY_ID"], credentials["AWS_SECRET_ACCESS_KEY"])
        self._signer = SigV4Auth(key, service, region)
        self.operations = dict.fromkeys(_model(service).operation_names)
        self._own = Api(service, own)
        self._endpoint = endpoint
        # A pool of connections, each for one request at a time.
        self._session = requests.Session()
        # Ignore the user's proxies.
        self._session.trust_env = False

    def answer(self, request: Request) -> Response:
        """Forward a request, or answer it if its operation is in ``own``."""
        if request.headers.get("x-amz-target", "").rpartition(".")[2] in self._own.operations:
            return self._own.answer(request)
        left = _OF_CONNECTION | _OF_SIGNATURE
        kept = {name: value for name, value in request.headers.items() if name not in left}
        url = self._endpoint() + request.path
        signed = AWSRequest(request.method, url, kept, request.body, dict(request.query))
        self._signer.add_auth(signed)
        answer = self._session.request(
            request.method,
            url,
            params=dict(request.query),
            headers=dict(signed.headers.items()),
            data=request.body,
            timeout=_FORWARDED_SECONDS,
        )
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_CONNECTION}
        return Response(answer.status_code, headers, answer.content)


@functools.cache
def _model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


@functools.cache
def _routes(service: str) -> Map:
    model = _model(service)
    rules = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = http["requestUri"].partition("?")[0]
        for variable in _variables(path):
            path = path.replace(f"{{{variable}}}", f"<path:{_variable(variable)}>")
        rules.append(Rule(path, endpoint=name, methods=[http["method"]]))
    return Map(rules, strict_slashes=False, merge_slashes=False)


def _variables(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


def _variable(name: str) -> str:
    """A variable name in a form that werkzeug accepts."""
    return name.rstrip("+").replace("-", "_")


def _taken(value: Any, shape: Shape | None) -> Any:
    """A value from the wire, with boto3's names."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        names = {inner.serialization.get("name", name): (name, inner) for name, inner in shape.members.items()}
        return {names[key][0]: _taken(inner, names[key][1]) for key, inner in value.items() if key in names}
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [_taken(inner, shape.member) for inner in value]
    if shape is not None and shape.type_name == "blob" and isinstance(value, str):
        return base64.b64decode(value)
    return value


def _written(value: Any, shape: Shape | None) -> Any:
    """A value for the wire, from a value with boto3's names."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        members = shape.members
        return {
            members[key].serialization.get("name", key): _written(inner, members[key]) for key, inner in value.items()
        }
    if isinstance(shape, ListShape):
        return [_written(inner, shape.member) for inner in value]
    if isinstance(value, dt.datetime):
        format_ = shape.serialization.get("timestampFormat") if shape is not None else None
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if format_ == "iso8601" else value.timestamp()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()

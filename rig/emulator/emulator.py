"""The emulator of AWS's control plane, ministack, with Headwater's handlers for services that it lacks or only mimics.

It runs in its own environment (``requirements.txt`` beside this file), so it imports nothing of Headwater.
``HEADWATER_HANDLERS`` is the URL of the process that has the handlers (``rig.local_aws.handlers``). That process
answers requests that carry ``HEADWATER_HANDLERS_TOKEN``:

- resource types of CloudFormation, created, updated and deleted there;
- operations of APIs, answered there;
- objects of S3, kept by the object store; buckets and their settings stay here.

The hooks replace functions of ministack that are not a public interface. If one is missing, this program ends at once
and names it.
"""

import asyncio
import base64
import json
import os
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Set
from http import HTTPStatus
from importlib.metadata import version
from typing import Any
from xml.sax.saxutils import escape

import door
import metrics
import rights
from botocore.auth import UNSIGNED_PAYLOAD, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session
from ministack import app
from ministack.core import concurrency
from ministack.services import eventbridge, kinesis, s3
from ministack.services.cloudformation import custom_resource, engine, provisioners, stacks
from watched import Watched

VERSION = "1.5.33"
HOOKS = (
    (app, "SERVICE_HANDLERS"),
    (app, "_RDS_DATA_PATHS"),
    (app, "detect_service"),
    (app, "main"),
    (concurrency, "run_reentrant"),
    (custom_resource, "deliver_response"),
    (custom_resource, "invoke_custom_resource"),
    (engine, "declared_transforms"),
    (eventbridge, "_put_events"),
    (kinesis, "_next_sequence_number"),
    (provisioners, "_RESOURCE_HANDLERS"),
    (s3, "_dispatch"),
    (s3, "_get_object_data"),
    (stacks, "_runs_on_worker_thread"),
    *door.HOOKS,
    *metrics.HOOKS,
    *rights.HOOKS,
)
"""The functions and attributes of ministack that this module and its hooks call or replace."""

_OBJECTS_OF_A_BUCKET = {"delete", "list-type", "prefix", "uploads", "versions"}
"""The query parameters that mark an unsigned request as one about objects."""
_BUCKET_TYPE = "AWS::S3::Bucket"
_SECRET_TYPE = "AWS::SecretsManager::Secret"  # noqa: S105  # a type
_SERVERLESS = "AWS::Serverless-2016-10-31"
_BUCKET_ATTRIBUTES = {"versioning"}
"""The bucket settings that the store needs, too."""
# Headers that belong to one connection, to the caller's signature or to a chunked body. Encryption is left out too:
# SeaweedFS could not read encrypted objects again, since it queries its volumes without the TLS that they require.
_NOT_FORWARDED = {
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "transfer-encoding",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-server-side-encryption-context",
    "x-amz-trailer",
}
_CONNECTIONS = 32
# Ignore the user's proxies.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Longer than any part takes to start.
_PART_SECONDS = 600

Answer = tuple[int, dict[str, str], bytes]


class OwnHandlers:
    """The process that has Headwater's handlers; it accepts requests with ``token``."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": token, "Content-Type": "application/json"}

    def ask(self, path: str, question: Mapping[str, Any] | None = None) -> Any:
        """Send a request, and return the answer. Raises ValueError with the handler's message if it refuses."""
        body = None if question is None else json.dumps(question).encode()
        request = urllib.request.Request(f"{self._url}{path}", body, self._headers)
        try:
            with _DIRECTLY.open(request, timeout=_PART_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode(errors="replace")) from None

    def resource_handlers(self, kind: str, original: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """The functions that ministack calls for the resources of a type.

        ``original`` are ministack's own handlers, for the resources that ours leave to them.
        """

        def ask(request: str, *arguments: Any, **question: Any) -> Any:
            answer = self.ask(f"/resources/{request}", {"type": kind, **question})
            if not answer["answered"]:
                return original[request](*arguments)
            return answer["physical_id"], answer["attributes"]

        def create(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
            of = {"logical_id": logical_id, "properties": properties, "stack": stack}
            return ask("create", logical_id, properties, stack, **of)

        def update(physical_id: str, former: dict[str, Any], properties: dict[str, Any], stack: str) -> Any:
            of = {"physical_id": physical_id, "former": former, "properties": properties, "stack": stack}
            return ask("update", physical_id, former, properties, stack, **of)

        def delete(physical_id: str, properties: dict[str, Any]) -> None:
            ask("delete", physical_id, properties, physical_id=physical_id, properties=properties)

        return {"create": create, "update": update, "delete": delete}

    def watch(self, kind: str, create: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a handler of ministack's that makes a resource.

        The new handler fails if the template sets a property that nothing has read and that must have an effect.
        """

        def watched(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
            seen = Watched(properties)
            made = create(logical_id, seen, stack)
            self._refuse_unseen(kind, seen, properties.keys())
            return made

        return watched

    def watch_update(self, kind: str, update: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a handler that changes a resource; it fails if nothing read a property that changed or disappeared."""

        def watched(physical_id: str, former: dict[str, Any], properties: dict[str, Any], *of: Any) -> Any:
            seen = Watched(properties)
            updated = update(physical_id, former, seen, *of)
            changed = {name for name in {*former, *properties} if former.get(name) != properties.get(name)}
            self._refuse_unseen(kind, seen, changed)
            return updated

        return watched

    def _refuse_unseen(self, kind: str, seen: Watched, names: Set[str]) -> None:
        unseen = sorted(names - seen.seen)
        if unseen:
            self.ask("/unread", {"type": kind, "names": unseen})

    async def call(
        self, service: str, method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Answer | None:
        """Let Headwater's handlers answer an API request; None if they leave it to the emulator."""
        question = {
            "method": method,
            "path": path,
            "headers": headers,
            "query": query,
            "body": base64.b64encode(body).decode(),
        }
        answer = await concurrency.run_reentrant(self.ask, f"/apis/{service}", question)
        if not answer["answered"]:
            return None
        return answer["status"], answer["headers"], base64.b64decode(answer["body"])


class _Signer(S3SigV4Auth):
    """Signs requests with a key of the object store. Nothing changes them on the way to the store."""

    def payload(self, request: Any) -> str:
        return UNSIGNED_PAYLOAD


class Objects:
    """The S3 objects, which the object store at ``endpoint`` keeps.

    Requests are signed with ``key`` and ``secret``.
    """

    def __init__(self, endpoint: str, key: str, secret: str, region: str) -> None:
        self._endpoint = endpoint
        self._signer = _Signer(Credentials(key, secret), "s3", region)
        # A pool of connections, each for one request at a time.
        self._session = URLLib3Session(
            timeout=_PART_SECONDS,
            max_pool_connections=_CONNECTIONS,
            # Otherwise a body waits 40 ms for the answer to its headers.
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )

    def dispatch(
        self, method: str, bucket: str, key: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Answer:
        """Let the store answer an S3 request about objects, and ministack any other request."""
        if bucket not in s3._buckets and not (method == "PUT" and not key):
            return _dispatch(method, bucket, key, headers, body, query)
        if key or query.keys() & _OBJECTS_OF_A_BUCKET or (method == "GET" and not query.keys() - {"x-id"}):
            return self._send(method, bucket, key, headers, body, query)
        if method == "DELETE" and not query.keys() - {"x-id"}:
            refusal = self._send(method, bucket, "", headers, body, {})
            if refusal[0] not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
                return refusal
        answer = _dispatch(method, bucket, key, headers, body, query)
        if method == "PUT" and answer[0] == HTTPStatus.OK and not query.keys() - {"x-id"} - _BUCKET_ATTRIBUTES:
            self._send(method, bucket, "", {}, body if query.keys() & _BUCKET_ATTRIBUTES else b"", query)
        return answer

    def read(self, bucket: str, key: str, version_id: str | None = None) -> bytes | None:
        """An object's content; None if the object does not exist."""
        query = {"versionId": [version_id]} if version_id else {}
        status, _, body = self._send("GET", bucket, key, {}, b"", query)
        return body if status == HTTPStatus.OK else None

    def bucket_handlers(self, original: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """ministack's handlers of buckets, extended to make and delete the store's bucket too."""

        def create(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
            name, attributes = original["create"](logical_id, properties, stack)
            self._send("PUT", name, "", {}, b"", {})
            if properties.get("VersioningConfiguration", {}).get("Status") == "Enabled":
                body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
                self._send("PUT", name, "", {}, body, {"versioning": [""]})
            # ministack drops these tags, but CDK's function empties only buckets that have one of them.
            tags = "".join(
                f"<Tag><Key>{escape(tag['Key'])}</Key><Value>{escape(tag['Value'])}</Value></Tag>"
                for tag in properties.get("Tags", [])
            )
            body = f"<Tagging><TagSet>{tags}</TagSet></Tagging>".encode()
            _dispatch("PUT", name, "", {}, body, {"tagging": [""]})
            return name, attributes

        def delete(name: str, properties: dict[str, Any]) -> None:
            status, _, body = self._send("DELETE", name, "", {}, b"", {})
            if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
                raise ValueError(f"{name}: {body.decode(errors='replace')}")
            original["delete"](name, properties)

        return {**original, "create": create, "delete": delete}

    def _send(
        self, method: str, bucket: str, key: str, headers: Mapping[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Answer:
        path = urllib.parse.quote(f"/{bucket}/{key}" if key else f"/{bucket}")
        text = urllib.parse.urlencode(query, doseq=True, quote_via=urllib.parse.quote)
        url = f"{self._endpoint}{path}?{text}" if text else f"{self._endpoint}{path}"
        kept = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
        request = AWSRequest(method, url, kept, body)
        self._signer.add_auth(request)
        answer = self._session.send(request.prepare())
        return answer.status_code, _kept(answer.headers), answer.content


def secret_handlers(original: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """ministack's handlers of secrets, changed so that ``Ref`` returns the ARN, because policies name it."""

    def name_of(arn: str) -> str:
        return arn.partition(":secret:")[2].rpartition("-")[0]

    def create(*arguments: Any, **named: Any) -> Any:
        _, attributes = original["create"](*arguments, **named)
        return attributes["Arn"], attributes

    def update(arn: str, *arguments: Any, **named: Any) -> Any:
        _, attributes = original["update"](name_of(arn), *arguments, **named)
        return attributes["Arn"], attributes

    def delete(arn: str, *arguments: Any, **named: Any) -> None:
        original["delete"](name_of(arn), *arguments, **named)

    return {**original, "create": create, "update": update, "delete": delete}


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in ("connection", "transfer-encoding")}


_dispatch = s3._dispatch


def check_hooks() -> None:
    """Raise SystemExit if the installed ministack does not match these hooks."""
    missing = [f"{module.__name__}.{name}" for module, name in HOOKS if not hasattr(module, name)]
    found = version("ministack")
    if missing or found != VERSION:
        sys.exit(
            f"ministack: found {found}, expected {VERSION}, which the hooks are written for. Missing names: "
            f"{', '.join(missing) or 'none'}. Run `headwater dev assets`"
        )


def hook(own: OwnHandlers) -> None:
    """Pass requests to our handlers and to the object store, if these answer them."""
    answered = own.ask("/answers")
    types = set(answered["resource_types"])
    handlers = provisioners._RESOURCE_HANDLERS
    for kind, handler in handlers.items():
        if kind not in types and "create" in handler:
            handlers[kind] = {**handler, "create": own.watch(kind, handler["create"])}
            # Without this, an update would be a creation.
            if "update" in handler:
                handlers[kind]["update"] = own.watch_update(kind, handler["update"])
    for kind in types:
        handlers[kind] = own.resource_handlers(kind, handlers.get(kind, {}))
    blocks = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda kind: kind in types or blocks(kind)

    # Templates that ministack would expand by the serverless transform stay as they are.
    declared = engine.declared_transforms
    engine.declared_transforms = lambda template: [name for name in declared(template) if name != _SERVERLESS]

    objects = Objects(**answered["store"])
    s3._dispatch = objects.dispatch
    s3._get_object_data = objects.read
    handlers[_BUCKET_TYPE] = objects.bucket_handlers(handlers[_BUCKET_TYPE])

    handlers[_SECRET_TYPE] = secret_handlers(handlers[_SECRET_TYPE])

    # Only an AWS service may send an event of aws.emr. Our handlers sign their events by this secret.
    put_events = eventbridge._put_events

    def signed(data: dict[str, Any], allow_aws_source: bool = False) -> Any:
        is_ours = all(entry.get("TraceHeader") == answered["signature"] for entry in data["Entries"])
        return put_events(data, allow_aws_source=allow_aws_source or is_ours)

    eventbridge._put_events = signed

    operations: dict[str, list[str]] = answered["operations"]
    for service, names in operations.items():
        original = app.SERVICE_HANDLERS.get(service)
        app.SERVICE_HANDLERS[service] = _handler(own, service, set(names), original)
    detect = app.detect_service

    def detect_service(method: str, path: str, headers: dict[str, str], query: dict[str, list[str]]) -> str:
        scope = headers.get("authorization", "").partition("Credential=")[2].partition(",")[0].split("/")
        return scope[3] if len(scope) > 3 and scope[3] in operations else detect(method, path, headers, query)

    app.detect_service = detect_service
    # ministack would answer these before it calls the service.
    app._RDS_DATA_PATHS = frozenset()


def undo_failed_creations() -> None:
    """Delete a custom resource whose creation failed, as CloudFormation does in its rollback.

    ministack would forget the resource, with everything that it had created by then.
    """
    invoke, deliver = custom_resource.invoke_custom_resource, custom_resource.deliver_response
    failed: dict[tuple[str, str], str] = {}

    def deliver_response(token: str, response: dict[str, Any]) -> bool:
        if response.get("Status") == "FAILED":
            failed[response.get("StackId", ""), response.get("LogicalResourceId", "")] = response.get(
                "PhysicalResourceId", ""
            )
        return bool(deliver(token, response))

    def invoke_custom_resource(
        request: str,
        logical_id: str,
        properties: dict[str, Any],
        stack: str,
        stack_id: str,
        kind: str,
        **former: Any,
    ) -> Any:
        try:
            return invoke(request, logical_id, properties, stack, stack_id, kind, **former)
        except RuntimeError as error:
            made = failed.pop((stack_id, logical_id), "")
            if request == "Create" and made:
                try:
                    invoke("Delete", logical_id, properties, stack, stack_id, kind, physical_id=made)
                except (RuntimeError, TimeoutError, ValueError) as left:
                    raise RuntimeError(f"{error} Its deletion failed too: {left}") from None
            raise

    custom_resource.deliver_response = deliver_response
    custom_resource.invoke_custom_resource = invoke_custom_resource


def number_records_as_kinesis_does() -> None:
    """Give Kinesis's records sequence numbers without leading zeros, as AWS does.

    ministack compares the numbers as texts. A reader that drops the zeros of a number and goes on after it would skip
    all records.
    """
    following = kinesis._next_sequence_number
    kinesis._next_sequence_number = lambda: f"4{following()}"


def _handler(
    own: OwnHandlers, service: str, names: set[str], original: Callable[..., Any] | None
) -> Callable[..., Any]:
    """A handler for an API's operations with one of these names, or with none, in ``X-Amz-Target``.

    All operations of an API that ministack does not know are forwarded.
    """

    async def handle(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Answer:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        answer = None
        if original is None or not operation or operation in names:
            answer = await own.call(service, method, path, headers, body, query)
        if answer is None:
            answer = await original(method, path, headers, body, query)
        return answer

    return handle


if __name__ == "__main__":
    check_hooks()
    # The functions inherit the remaining variables.
    own = OwnHandlers(os.environ.pop("HEADWATER_HANDLERS"), os.environ.pop("HEADWATER_HANDLERS_TOKEN"))
    hook(own)
    undo_failed_creations()
    number_records_as_kinesis_does()
    metrics.hook()
    rights.hook(lambda arn: own.ask("/tags", {"arn": arn}))
    door.hook(os.environ["GATEWAY_PORT"])
    # ministack makes its own event loop.
    asyncio.set_event_loop(None)
    app.main()

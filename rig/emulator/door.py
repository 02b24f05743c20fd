"""The emulator's access check: it admits programs with a key of the account, and refuses pages in browsers.

ministack does not check signatures of the account's own key. It accepts unsigned requests, also from pages. This module
checks each request before ministack gets it, with ministack's own evaluator.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from ministack import app
from ministack.core import iam_evaluator, lambda_runtime
from ministack.core.sigv4 import decode_header_value
from ministack.services import lambda_svc, sts
from ministack.services.cloudformation import custom_resource

HOOKS = (
    (app, "_credential_failure"),
    (app, "_request_account_scope"),
    (app, "app"),
    (app, "detect_service"),
    (app, "pin_signed_request"),
    (custom_resource, "_pending"),
    (iam_evaluator, "AuthError"),
    (iam_evaluator, "ResolvedCredential"),
    (iam_evaluator, "SignedRequest"),
    (iam_evaluator, "_signed_request"),
    (iam_evaluator, "authenticate"),
    (lambda_runtime, "_account_region_from_function_config"),
    (lambda_runtime, "execution_credentials"),
    (lambda_svc, "execution_credentials"),
    (sts, "register_session"),
)
"""The functions and attributes of ministack that this module calls or replaces."""

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/[^/,\s]+/[^/,\s]+/([^/,\s]+)/[^,\s]+"
    r",\s*SignedHeaders=([^,\s]+),\s*Signature=\w+"
)
_CONTENT_HASH = "x-amz-content-sha256"
# The query parameters of signatures, because a page could make a browser open a signed URL.
_IN_QUERY = {"awsaccesskeyid", "signature", "x-amz-algorithm", "x-amz-credential", "x-amz-signature"}
_HASH = re.compile("[0-9a-f]{64}")
_RESPONSE_PATH = "/_ministack/cfn-response/"
_OF_THE_EMULATOR = "/_"
_CORS = b"access-control-"
_UNESCAPED = "/-_.~"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def hook(port: str) -> None:
    """Refuse each request from a page, for another host, or without a signature by a key of the account."""
    served = app.app
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    # ministack need not repeat the check.
    app.pin_signed_request = lambda *request, **more: None

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await served(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif _is_foreign(scope, hosts):
            await _answer(send, HTTPStatus.FORBIDDEN, {"content-type": "text/plain"}, b"Not for pages of a browser")
        else:
            read, receive = _read_again(receive)
            refusal = None if _is_response(scope) else await _refusal(scope, read)
            if refusal:
                await _answer(send, *refusal)
            else:
                await served(scope, receive, _without_cors(send))

    app.app = guarded
    lambda_runtime.execution_credentials = lambda_svc.execution_credentials = _execution_credentials(
        secrets.token_bytes()
    )


def _is_foreign(scope: Scope, hosts: set[str]) -> bool:
    """Whether a request may come from a browser's page.

    Such a request has an origin, names another host, or is a browser's preflight request.
    """
    found = [value.decode("latin-1").lower() for name, value in scope["headers"] if name.lower() == b"host"]
    is_from_a_page = any(name.lower() == b"origin" for name, _ in scope["headers"])
    return is_from_a_page or scope["method"] == "OPTIONS" or len(found) != 1 or found[0] not in hosts


def _is_response(scope: Scope) -> bool:
    """Whether a function answers CloudFormation for its custom resource.

    On AWS, too, such an answer has no signature, and goes to an address that nobody can guess.
    """
    token = scope["path"].removeprefix(_RESPONSE_PATH)
    return scope["method"] == "PUT" and token != scope["path"] and token in custom_resource._pending


async def _refusal(scope: Scope, read: Callable[[], Awaitable[bytes]]) -> tuple[int, dict[str, str], bytes] | None:
    """The answer to a request that the emulator must refuse; None if the request may pass.

    A request passes if a key of the account signed it. For the emulator's own paths, a role's key does not count.
    """
    method, path = scope["method"], scope["path"]
    query = parse_qs(scope.get("query_string", b"").decode(), keep_blank_values=True)
    headers = _headers(scope)
    signature = _SIGNED.fullmatch(headers.get("authorization", ""))
    if signature is None or {name.lower() for name in query} & _IN_QUERY:
        failure = iam_evaluator.AuthError(
            "MissingAuthenticationToken", "Each request has to have one signature, in its header Authorization"
        )
    else:
        key, service, names = signature.groups()
        body = await read()
        failure = _unsigned_part(headers, names.split(";"), service, body)
        sent = (scope.get("raw_path") or quote(path).encode()).decode("latin-1")
        request = iam_evaluator.SignedRequest(key, method, _signed_path(sent, headers), query, headers, body)
        iam_evaluator._signed_request.set(request)
        checked = failure or iam_evaluator.authenticate(key, app._request_account_scope(key))
        if isinstance(checked, iam_evaluator.ResolvedCredential):
            if checked.principal_type == "Root" or not path.startswith(_OF_THE_EMULATOR):
                return None
            failure = iam_evaluator.AuthError("AccessDenied", "Only the account's own key may do this")
        else:
            failure = checked
    service = app.detect_service(method, path, headers, query)
    refusal: tuple[int, dict[str, str], bytes] = app._credential_failure(service, "", "", failure, headers)
    return refusal


def _unsigned_part(headers: dict[str, str], signed: list[str], service: str, body: bytes) -> Any:
    """The failure of a signature that does not cover all parts that AWS requires; None if it does.

    ministack itself accepts such a signature.
    """
    left = {name for name in headers if name == "host" or name.startswith("x-amz-")} - set(signed)
    told = headers.get(_CONTENT_HASH)
    is_body_signed = told is None or told == hashlib.sha256(body).hexdigest()
    if left or not (is_body_signed or (service == "s3" and not _HASH.fullmatch(str(told)))):
        return iam_evaluator.AuthError("SignatureDoesNotMatch", "The signature does not cover the whole request")
    return None


def _headers(scope: Scope) -> dict[str, str]:
    """The headers in their signed form: several values of one header are joined."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1").lower(), decode_header_value(value)
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


def _signed_path(path: str, headers: dict[str, str]) -> str:
    """Return the path that the client signed.

    ``rig.local.spark`` makes Spark's S3 client sign as for any other service: the client escapes the escaped path once
    more.
    """
    if "aws-sdk-java/1." in headers.get("user-agent", ""):
        return quote(quote(unquote(path), safe=_UNESCAPED), safe=_UNESCAPED)
    return path


def _read_again(receive: Receive) -> tuple[Callable[[], Awaitable[bytes]], Receive]:
    """A function that reads the body of a request, and one that gives the body to ministack again."""
    messages: list[Message] = []

    async def read() -> bytes:
        while not messages or (messages[-1]["type"] == "http.request" and messages[-1].get("more_body", False)):
            messages.append(await receive())
        return b"".join(message.get("body", b"") for message in messages)

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return read, again


def _without_cors(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if "headers" in message:
            kept = [(name, value) for name, value in message["headers"] if not name.lower().startswith(_CORS)]
            message = {**message, "headers": kept}
        await send(message)

    return sent


async def _answer(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _execution_credentials(run: bytes) -> Callable[[dict[str, Any]], dict[str, str]]:
    """The credentials of a function's role.

    ministack derives them from names that anybody knows. Here they also depend on ``run``, which nobody else knows.
    """

    def made(config: dict[str, Any]) -> dict[str, str]:
        account, _ = lambda_runtime._account_region_from_function_config(config)
        role = config.get("Role", "")

        def drawn(part: str) -> str:
            return hmac.new(run, f"{part}:{config['FunctionArn']}:{role}".encode(), hashlib.sha256).hexdigest()

        key, secret, token = f"ASIA{drawn('key')[:16].upper()}", drawn("secret"), drawn("token")
        name, session = role.rpartition("/")[2], config.get("FunctionName", "")[:64]
        sts.register_session(
            key,
            {
                "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
                "UserId": f"{name}:{session}",
                "SecretAccessKey": secret,
                "SessionToken": token,
            },
        )
        return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}

    return made

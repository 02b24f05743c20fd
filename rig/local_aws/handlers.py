"""The HTTP server through which the emulator reaches the handlers of resource types and APIs."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from werkzeug.exceptions import BadRequest, Forbidden
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request as HttpRequest
from werkzeug.wrappers import Response as HttpResponse

from rig.local_aws.account_context import AccountContext
from rig.local_aws.api import Api, Forwarded, NotAnswered, Request
from rig.local_aws.resources import Made, Properties, ResourceType, refuse

_HOSTS = ("127.0.0.1", "localhost")


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:
        """Log nothing: the emulator logs each request."""


class HandlerServer:
    """Serves resource types and APIs on a free port of 127.0.0.1, each request in its own thread.

    It answers the emulator, which knows ``token``. A program with a role gets its credentials by its own token.
    """

    def __init__(
        self,
        context: AccountContext,
        types: Mapping[str, ResourceType[Any]],
        apis: Iterable[Api | Forwarded],
    ) -> None:
        self._context = context
        self._types = dict(types)
        self._made: dict[tuple[str, str], Made] = {}
        self._apis = {api.service: api for api in apis}
        self.token = secrets.token_urlsafe()
        self._server = make_server(
            "127.0.0.1", 0, HttpRequest.application(self._answer), threaded=True, request_handler=_Quiet
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="handlers of the local AWS")

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> HandlerServer:
        self._thread.start()
        self._context.credentials_url = f"{self.url}/credentials"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: HttpRequest) -> HttpResponse:
        path = request.path.strip("/").split("/")
        if not self._is_allowed(path, request):
            return HttpResponse("Only for programs of this machine that know a token", status=Forbidden.code)
        try:
            result = self._route(path, request)
        except Exception as error:
            # Any error: the deployment shows it.
            text = str(error) or repr(error)
            return HttpResponse(f"{type(error).__name__}: {text}", status=BadRequest.code)
        return HttpResponse(json.dumps(result), content_type="application/json")

    def _is_allowed(self, path: list[str], request: HttpRequest) -> bool:
        """Whether a request comes from a program of this account, and not from a browser's page."""
        hosts = {f"{name}:{self._server.port}" for name in _HOSTS}
        if "Origin" in request.headers or request.headers.get("Host") not in hosts:
            return False
        given = request.headers.get("Authorization", "")
        if path == ["credentials"]:
            return self._context.knows(given)
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _route(self, path: list[str], request: HttpRequest) -> dict[str, Any]:
        if path == ["answers"]:
            return {
                "resource_types": sorted(self._types),
                "operations": {name: sorted(api.operations) for name, api in self._apis.items()},
                "store": {
                    "endpoint": self._context.store.endpoint,
                    "key": self._context.store_credentials["AWS_ACCESS_KEY_ID"],
                    "secret": self._context.store_credentials["AWS_SECRET_ACCESS_KEY"],
                    "region": self._context.region,
                },
                "signature": self._context.signature,
            }
        if path == ["credentials"]:
            return self._context.credentials_of(request.headers["Authorization"])
        question = request.get_json()
        if path == ["tags"]:
            return self._context.tags.get(question["arn"], {})
        if path == ["unread"]:
            refuse(question["type"], question["names"])
            return {}
        if path[0] == "apis":
            asked = Request(
                question["method"],
                question["path"],
                question["headers"],
                question["query"],
                base64.b64decode(question["body"]),
            )
            try:
                answer = self._apis[path[1]].answer(asked)
            except NotAnswered:
                return {"answered": False}
            body = base64.b64encode(answer.body).decode()
            return {"answered": True, "status": answer.status, "headers": dict(answer.headers), "body": body}
        # All other paths name a resource.
        try:
            made = self._resource(path[1], question)
        except NotAnswered:
            return {"answered": False}
        return {"answered": True, "physical_id": made.physical_id, "attributes": dict(made.attributes)}

    def _resource(self, request: str, question: Mapping[str, Any]) -> Made:
        name, properties = question["type"], Properties(question["properties"])
        kind = self._types[name]
        if request == "delete":
            kind.delete(question["physical_id"], properties)
            return self._made.pop((name, question["physical_id"]), Made(question["physical_id"]))
        if request == "create":
            made = kind.create(f"{question['stack']}-{question['logical_id']}", properties)
        else:
            made = kind.update(question["physical_id"], Properties(question["former"]), properties)
            # A resource that is changed in place keeps its attributes.
            former = self._made.get((name, made.physical_id), made)
            made = Made(made.physical_id, {**former.attributes, **made.attributes})
        self._made[name, made.physical_id] = made
        return made

"""Requests to the writer of a table: an operator requests work, and the writer answers.

A table has only one writer, so both sides exchange objects in S3, below the lake. The operator's command writes the
request to ``_requests/<table>/<kind>/<name>.json``. The writer writes its status beside the request, to
``<name>.status.json``. A request's id is ``<kind>/<name>``. The module of each kind describes its details.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.errors import UserError
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.lake.base.s3_versions import delete_object

RUNNING, DONE, REFUSED = "running", "done", "refused"
ANSWER_SECONDS = 180.0
"""A running writer answers within this time: twice its longest pause, a long commit, or its start."""
POLL_SECONDS = 1.0

_FOLDER = "_requests"
_SUFFIX, _STATUS_SUFFIX = ".json", ".status.json"


@dataclass(frozen=True)
class Request:
    """A request."""

    token: str
    """Distinguishes two requests with the same id."""
    details: Mapping[str, Any]
    """The requested work, as a JSON object."""


@dataclass(frozen=True)
class Status:
    """The writer's answer to a request."""

    token: str
    """The request's token."""
    state: str
    """``RUNNING``, ``DONE`` or ``REFUSED``."""
    parts: int = 0
    """The number of parts of the work."""
    parts_done: int = 0
    """The number of finished parts."""
    records: int = 0
    """The number of records in the finished parts, bad ones included."""
    kept: int = 0
    """The number of bad records among them that are still in the quarantine."""
    reason: str = ""
    """Why the request was refused."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """Further results of some kinds of requests."""

    def settles(self, token: str) -> bool:
        """Whether the request with that token is done or refused."""
        return self.token == token and self.state != RUNNING

    def document(self) -> dict[str, Any]:
        """The answer as a JSON object. An empty ``told`` is left out, because earlier releases do not know it."""
        document = asdict(self)
        if not self.told:
            del document["told"]
        return document


class Requests:
    """The requests to the writer of one table and their statuses, below ``lake`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, lake: str, table: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(lake)
        self._folder = key_below(prefix, f"{_FOLDER}/{table}/")

    def ask(self, id_: str, details: Mapping[str, Any]) -> None:
        """Store a new request, in place of an earlier one with the same id.

        A repeated request is harmless, and makes a running writer answer again.
        """
        self.put(id_, Request(uuid.uuid4().hex, details))

    def put(self, id_: str, request: Request) -> None:
        """Store a request."""
        self._put(id_ + _SUFFIX, asdict(request))

    def delete(self, id_: str) -> None:
        """Withdraw a request. The writer stops after its current commit."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._folder + id_ + _SUFFIX)

    def remove(self, id_: str) -> None:
        """Remove a request with all its versions, so that the bucket no longer has its content."""
        delete_object(self._s3, self._bucket, self._folder + id_ + _SUFFIX)

    def get(self, id_: str) -> Request | None:
        """The request with that id, or None. Raises UserError if the object is not a request."""
        body = self._get(id_ + _SUFFIX)
        try:
            request = None if body is None else Request(**json.loads(body))
            if request is not None and not isinstance(request.details, dict):
                raise TypeError(f"{request.details!r} as details")
        except (ValueError, TypeError) as error:
            where = object_uri(self._bucket, f"{self._folder}{id_}{_SUFFIX}")
            raise UserError(f"{where}: found {error}, expected a request of a headwater command") from None
        return request

    def answer(self, id_: str, status: Status) -> None:
        """Answer a request."""
        self._put(id_ + _STATUS_SUFFIX, status.document())

    def status(self, id_: str) -> Status | None:
        """The last answer to a request with that id, or None."""
        body = self._get(id_ + _STATUS_SUFFIX)
        return None if body is None else Status(**json.loads(body))

    def is_answered(self, id_: str) -> bool:
        """Whether the writer has done or refused the request with that id, even if the request is removed.

        Raises UserError as ``get`` does.
        """
        request, status = self.get(id_), self.status(id_)
        return status is not None and status.settles(status.token if request is None else request.token)

    def listed(self) -> list[tuple[str, str]]:
        """Id and version of every request, the oldest first."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._folder)
        entries = [
            entry
            for page in pages
            for entry in page.get("Contents", ())
            if entry["Key"].endswith(_SUFFIX) and not entry["Key"].endswith(_STATUS_SUFFIX)
        ]
        entries.sort(key=lambda entry: (entry["LastModified"], entry["Key"]))
        return [(entry["Key"][len(self._folder) : -len(_SUFFIX)], entry["ETag"]) for entry in entries]

    def _put(self, name: str, document: dict[str, Any]) -> None:
        body = json.dumps(document, ensure_ascii=False, sort_keys=True).encode("utf-8")
        self._s3.put_object(Bucket=self._bucket, Key=self._folder + name, Body=body)

    def _get(self, name: str) -> bytes | None:
        try:
            body: bytes = self._s3.get_object(Bucket=self._bucket, Key=self._folder + name)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None
        return body


# --- The operator's side ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class News:
    """The progress of a request."""

    status: Status | None
    """The writer's last status; None before its first answer."""
    quiet: float
    """The seconds since that answer; without an answer, since the request."""


def withdraw(requests: Requests, id_: str) -> Status | None:
    """Withdraw a request. Returns the writer's last status; None if it has not answered.

    Raises UserError if there is no such request.
    """
    request = requests.get(id_)
    if request is None:
        raise UserError(f"No {_spoken(id_)} is requested: there is nothing to withdraw.")
    requests.delete(id_)
    status = requests.status(id_)
    return status if status is not None and status.token == request.token else None


def follow(
    requests: Requests,
    id_: str,
    patience: float = ANSWER_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    token: str = "",
) -> Iterator[News]:
    """Yield the progress of a request every ``POLL_SECONDS`` until it is done.

    Raises UserError if the writer refuses it, if no writer answers, or if it is withdrawn.

    - ``patience``: the seconds that the writer has for its first answer.
    - ``token``: the request's token, if its writer removes the request once it is done or refused.
    """
    asked = newest = clock()
    last: Status | None = None
    while True:
        # Read the request before its answer: the writer answers before it removes the request.
        request = requests.get(id_)
        status = requests.status(id_)
        its_token = token if request is None else request.token
        is_answered = status is not None and status.token == its_token
        if request is None and (status is None or not status.settles(its_token)):
            raise UserError(f"The {_spoken(id_)} was withdrawn. Run the same command again to go on with it.")
        # A status with another token answers an earlier request.
        if status is not None and is_answered and status != last:
            last, newest = status, clock()
        if last is not None and last.state == REFUSED:
            raise UserError(f"The job refuses the {_spoken(id_)}. {last.reason}")
        if last is None and clock() - asked > patience:
            raise UserError(
                f"No job has answered for {patience:.0f} s: none seems to be running for this table. The request "
                "stays, and a job that starts takes it up; run the same command again to watch it."
            )
        yield News(last, clock() - newest)
        if last is not None and last.state == DONE:
            return
        sleep(POLL_SECONDS)


def _spoken(id_: str) -> str:
    kind, _, name = id_.partition("/")
    return f"{kind} of {name}"

"""Requests for backfills: how an operator's laptop asks the job of a table to load an export, and how the job answers.

The job stays the only writer of its table, so the two meet in S3, below the lake. The laptop puts the request at
``_backfill/<table>/<export>.json``, the job its status beside it, at ``<export>.status.json``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headwater.contract.model import DYNAMODB, Contract
from headwater.errors import UserError
from headwater.lake.dynamodb_export import Export, locate
from headwater.lake.s3_uri import key_below, object_uri, split_uri

RUNNING, DONE, REFUSED = "running", "done", "refused"
ANSWER_SECONDS = 180.0
"""How long a running job may take to answer: its window, a long commit, or its start."""
POLL_SECONDS = 1.0

_FOLDER = "_backfill"
_SUFFIX, _STATUS_SUFFIX = ".json", ".status.json"


@dataclass(frozen=True)
class BackfillRequest:
    """The address of the export to load. ``token`` distinguishes two requests for the same export."""

    export: str
    token: str


@dataclass(frozen=True)
class BackfillStatus:
    """The job's answer to the request of that ``token``. ``items`` is the number of items in the first ``files_done``
    files, bad ones included; ``reason`` says why the request was refused."""

    token: str
    state: str
    files: int = 0
    files_done: int = 0
    items: int = 0
    reason: str = ""


class BackfillRequests:
    """The requests for one table and their statuses, below ``lake`` (``s3://bucket/prefix``)."""

    def __init__(self, s3: Any, lake: str, table: str) -> None:
        self._s3 = s3
        self._bucket, prefix = split_uri(lake)
        self._folder = key_below(prefix, f"{_FOLDER}/{table}/")

    def put(self, export_id: str, request: BackfillRequest) -> None:
        """Ask for an export, in place of an earlier request for it."""
        self._put(export_id + _SUFFIX, asdict(request))

    def delete(self, export_id: str) -> None:
        """Take a request back: the job stops after its current commit."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._folder + export_id + _SUFFIX)

    def get(self, export_id: str) -> BackfillRequest | None:
        """The request for an export, or None. Raises UserError where the object is not one that ``put`` wrote."""
        body = self._get(export_id + _SUFFIX)
        try:
            return None if body is None else BackfillRequest(**json.loads(body))
        except (ValueError, TypeError) as error:
            where = object_uri(self._bucket, f"{self._folder}{export_id}{_SUFFIX}")
            raise UserError(f"{where}: found {error}, expected a request of `headwater backfill`") from None

    def answer(self, export_id: str, status: BackfillStatus) -> None:
        """Answer a request."""
        self._put(export_id + _STATUS_SUFFIX, asdict(status))

    def status(self, export_id: str) -> BackfillStatus | None:
        """The last answer to a request for an export, or None."""
        body = self._get(export_id + _STATUS_SUFFIX)
        return None if body is None else BackfillStatus(**json.loads(body))

    def listed(self) -> list[tuple[str, str]]:
        """Export and version of every request, the oldest first."""
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
    """What is known of a backfill: the job's last status (None before its first answer), and for how many seconds
    there has been nothing newer."""

    status: BackfillStatus | None
    quiet: float


def check_contract(contract: Contract) -> None:
    """Raise UserError unless the contract's table can be loaded from a DynamoDB export."""
    if contract.source.database != DYNAMODB:
        raise UserError(
            f"contract {contract.table}: source.database: found {contract.source.database!r}, expected {DYNAMODB!r}: "
            "only a DynamoDB table is loaded from an export"
        )


def ask(s3: Any, requests: BackfillRequests, uri: str) -> Export:
    """Read the manifests of the export at ``uri`` and ask for it. Asking again is harmless, and makes a running job
    answer anew. Raises UserError where the export cannot be loaded."""
    export = Export.open(s3, uri)
    requests.put(export.id, BackfillRequest(export.uri, uuid.uuid4().hex))
    return export


def withdraw(requests: BackfillRequests, uri: str) -> BackfillStatus | None:
    """Take back the request for the export at ``uri``, and return the job's last status, or None where it has not
    answered. The export itself may be gone. Raises UserError where nothing is requested."""
    export_id = locate(uri)[1].rpartition("/")[2]
    request = requests.get(export_id)
    if request is None:
        raise UserError(f"No backfill of the export {export_id} is requested: there is nothing to withdraw.")
    requests.delete(export_id)
    status = requests.status(export_id)
    return status if status is not None and status.token == request.token else None


def follow(
    requests: BackfillRequests,
    export_id: str,
    patience: float = ANSWER_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[News]:
    """Yield what is known every ``POLL_SECONDS`` until the backfill is done. The job has ``patience`` seconds for its
    first answer. Raises UserError when the job refuses, when no job answers, or when the request is withdrawn."""
    asked = newest = clock()
    last: BackfillStatus | None = None
    while True:
        request = requests.get(export_id)
        if request is None:
            raise UserError(f"The backfill of {export_id} was withdrawn. Run the same command again to go on with it.")
        status = requests.status(export_id)
        # A status of another token answers an earlier request.
        if status is not None and status.token == request.token and status != last:
            last, newest = status, clock()
        if last is not None and last.state == REFUSED:
            raise UserError(f"The job refuses the backfill of {export_id}. {last.reason}")
        if last is None and clock() - asked > patience:
            raise UserError(
                f"No job has answered for {patience:.0f} s: none seems to be running for this table. The request "
                "stays, and a job that starts takes it up; run the same command again to watch it."
            )
        yield News(last, clock() - newest)
        if last is not None and last.state == DONE:
            return
        sleep(POLL_SECONDS)

"""Requests to load copies of PostgreSQL's tables."""

from __future__ import annotations

from headwater.lake.requests.protocol import Requests
from headwater.lake.sources.table_copy import TableCopy

COPY = "copy"
"""The kind of these requests. A request's name is the copy's id. In its details, ``copy`` is the copy's address."""


def request_id(uri: str) -> str:
    """The id of the request for the copy at that address."""
    return f"{COPY}/{uri.rpartition('/')[2]}"


def ask(requests: Requests, copy: TableCopy) -> str:
    """Request the load of a copy, and return the id of the request."""
    id_ = request_id(copy.uri)
    requests.ask(id_, {"copy": copy.uri})
    return id_


def open_copies(requests: Requests) -> dict[str, str]:
    """The addresses of the copies with unfinished requests, by the ids of the requests, the oldest first."""
    ids = [id_ for id_, _ in requests.listed() if id_.startswith(f"{COPY}/") and not requests.is_answered(id_)]
    found = {id_: requests.get(id_) for id_ in ids}
    return {id_: str(request.details.get("copy")) for id_, request in found.items() if request is not None}

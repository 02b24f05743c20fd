"""Requests to delete the former values of a table at once."""

from __future__ import annotations

from headwater.lake.requests.protocol import Requests

EXPIRE = "expire"
"""The kind of these requests. All have the same name and no details, because a request is about a whole table."""
REQUEST = f"{EXPIRE}/all"


def ask(requests: Requests) -> str:
    """Request the deletion of a table's former values, and return the request's id."""
    requests.ask(REQUEST, {})
    return REQUEST

"""Requests to delete at once what a table keeps for a time only."""

from __future__ import annotations

from headwater.lake.requests.protocol import Requests

EXPIRE = "expire"
"""The kind of these requests. They have one name, since they mean a table as a whole, and no details."""
REQUEST = f"{EXPIRE}/all"


def ask(requests: Requests) -> str:
    """Ask for all that a table keeps for a time to be deleted, and return the request's id."""
    requests.ask(REQUEST, {})
    return REQUEST

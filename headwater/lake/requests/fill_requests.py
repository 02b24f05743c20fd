"""Requests to fill a table's columns from ``_rest``."""

from __future__ import annotations

from headwater.lake.requests.protocol import Requests

FILL = "fill"
"""The kind of these requests. All have the same name and no details, because a request is about a whole table."""
REQUEST = f"{FILL}/rest"


def ask(requests: Requests) -> str:
    """Request the filling of a table, and return the request's id."""
    requests.ask(REQUEST, {})
    return REQUEST

"""Requests for backfills from exports: how the export to load is asked for."""

from __future__ import annotations

from typing import Any

from headwater.lake.requests.protocol import Requests
from headwater.lake.sources.dynamodb_export import Export, locate

BACKFILL = "backfill"
"""The kind of these requests. Their name is the export's id; in their details, ``export`` is its address, and ``whole``
is false where it holds some of the table's items alone."""


def request_id(uri: str) -> str:
    """The id of the request for the export at ``uri``, which itself may be gone. Raises UserError."""
    return f"{BACKFILL}/{locate(uri)[1].rpartition('/')[2]}"


def ask(s3: Any, requests: Requests, uri: str, *, whole: bool = True) -> Export:
    """Read the manifests of the export at ``uri`` and ask for it. Unless it is ``whole``, no item ends that it does not
    have. Raises UserError where it cannot be loaded."""
    export = Export.open(s3, uri)
    requests.ask(request_id(export.uri), {"export": export.uri, **({} if whole else {"whole": False})})
    return export

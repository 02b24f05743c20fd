"""Requests to load exports of DynamoDB tables."""

from __future__ import annotations

from typing import Any

from headwater.lake.requests.protocol import Requests
from headwater.lake.sources.dynamodb_export import Export, locate

BACKFILL = "backfill"
"""The kind of these requests. Their name is the export's id. In their details, ``export`` is its address, and ``whole``
is false if it has only some of the table's items."""


def request_id(uri: str) -> str:
    """The id of the request for the export at ``uri``. The export itself may be gone. Raises UserError."""
    return f"{BACKFILL}/{locate(uri)[1].rpartition('/')[2]}"


def ask(s3: Any, requests: Requests, uri: str, *, whole: bool = True) -> Export:
    """Read the manifests of the export at ``uri``, and request its loading. Raises UserError if it cannot be loaded.

    If it is ``whole``, the loading deletes older rows that it does not have.
    """
    export = Export.open(s3, uri)
    requests.ask(request_id(export.uri), {"export": export.uri, **({} if whole else {"whole": False})})
    return export

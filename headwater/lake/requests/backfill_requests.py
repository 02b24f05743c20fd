"""Requests to load exports of DynamoDB tables."""

from __future__ import annotations

from typing import Any

from headwater.lake.requests.protocol import Requests
from headwater.lake.sources.dynamodb_export import Export, locate

BACKFILL = "backfill"
"""The kind of these requests. A request's name is the export's id. In its details, ``export`` is the export's address,
and ``whole`` is false if the export has only some of the table's items."""


def request_id(uri: str) -> str:
    """The id of the request for the export at ``uri``, even if the export is gone. Raises UserError."""
    return f"{BACKFILL}/{locate(uri)[1].rpartition('/')[2]}"


def ask(s3: Any, requests: Requests, uri: str, *, whole: bool = True) -> Export:
    """Read the manifests of the export at ``uri``, and request a load. Raises UserError if the export cannot be loaded.

    If it is ``whole``, the load deletes older rows that the export does not have.
    """
    export = Export.open(s3, uri)
    requests.ask(request_id(export.uri), {"export": export.uri, **({} if whole else {"whole": False})})
    return export

"""The exports of a DynamoDB table that lie beside the lake: nothing else deletes them, and they hold items that may be
forgotten."""

from __future__ import annotations

import json
from typing import Any

from headwater.lake.s3_uri import object_uri, split_uri
from headwater.lake.s3_versions import delete_former

_SUMMARY = "/manifest-summary.json"
_STARTED = "/_started"


def exports_of(s3: Any, folder: str, table: str) -> list[str]:
    """The addresses of the exports of a DynamoDB table below ``folder`` (``s3://bucket/prefix``), complete or not: of
    one that is not complete nobody can say of which table it is."""
    bucket, prefix = split_uri(folder)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    keys = {entry["Key"] for page in pages for entry in page.get("Contents", ())}
    found = {key.partition("/data/")[0].removesuffix(_SUMMARY).removesuffix(_STARTED) for key in keys}
    exports = sorted(each for each in found if each.split("/")[-2:-1] == ["AWSDynamoDB"])
    return [object_uri(bucket, each) for each in exports if _table(s3, bucket, each, keys) in (None, table)]


def _table(s3: Any, bucket: str, export: str, keys: set[str]) -> str | None:
    if export + _SUMMARY not in keys:
        return None
    body = s3.get_object(Bucket=bucket, Key=export + _SUMMARY)["Body"].read()
    return str(json.loads(body)["tableArn"]).rpartition("/")[2]


def delete_former_versions(s3: Any, folder: str) -> int:
    """Delete what a versioned bucket keeps of exports that were deleted, and return the number of versions."""
    bucket, prefix = split_uri(folder)
    return delete_former(s3, bucket, f"{prefix}/")

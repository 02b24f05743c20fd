"""The exports of a DynamoDB table that are still beside the lake.

No other code deletes them, and they may hold items of a key that is to be forgotten.
"""

from __future__ import annotations

import json
from typing import Any

from headwater.errors import UserError
from headwater.lake.base.s3_uri import object_uri, split_uri
from headwater.lake.base.s3_versions import delete_former

_SUMMARY = "/manifest-summary.json"
_STARTED = "/_started"


def exports_of(s3: Any, folder: str, table: str) -> list[str]:
    """The addresses of a DynamoDB table's exports below ``folder`` (``s3://bucket/prefix``).

    Raises UserError if an export is not complete: then its table is unknown, and a command may still write it.
    """
    bucket, prefix = split_uri(folder)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    keys = {entry["Key"] for page in pages for entry in page.get("Contents", ())}
    found = {key.partition("/data/")[0].removesuffix(_SUMMARY).removesuffix(_STARTED) for key in keys}
    exports = sorted(each for each in found if each.split("/")[-2:-1] == ["AWSDynamoDB"])
    for each in exports:
        if each + _SUMMARY not in keys:
            raise UserError(
                f"{object_uri(bucket, each)}: found an export that is not complete, expected none: it may have the "
                "row's item. Wait until it is complete, or delete it."
            )
    return [object_uri(bucket, each) for each in exports if _table(s3, bucket, each) == table]


def _table(s3: Any, bucket: str, export: str) -> str:
    body = s3.get_object(Bucket=bucket, Key=export + _SUMMARY)["Body"].read()
    return str(json.loads(body)["tableArn"]).rpartition("/")[2]


def delete_former_versions(s3: Any, export: str) -> int:
    """Delete the former versions of a deleted export in a versioned bucket, and return their number."""
    bucket, prefix = split_uri(export)
    return delete_former(s3, bucket, f"{prefix}/")

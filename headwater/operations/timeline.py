"""The last commits of a lake table, as its timeline in S3 tells them: without Spark, without Hudi."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any

from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.s3_uri import split_uri

# Hudi's instants that change what readers see; those that are requested or in flight have another ending.
_COMPLETED = re.compile(r"/(\d+)\.(commit|deltacommit|replacecommit)$")


@dataclass(frozen=True)
class LastCommit:
    """The newest commit that tells its progress: its instant, when it was complete, and how far it has come."""

    instant: str
    completed: dt.datetime
    progress: Progress


def last_commit(s3: Any, table_uri: str) -> LastCommit | None:
    """The last commit of the table at ``s3://bucket/prefix``, and None before the first. ``s3`` is boto3's client."""
    bucket, table = split_uri(table_uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{table}/.hoodie/", Delimiter="/")
    listed = [entry for page in pages for entry in page.get("Contents", ()) if _COMPLETED.search(entry["Key"])]
    for entry in sorted(listed, key=lambda entry: str(entry["Key"]), reverse=True):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        noted = (json.loads(body or b"{}").get("extraMetadata") or {}).get(NOTED_AS)
        # Compactions tell none.
        if noted is not None:
            instant = entry["Key"].rpartition("/")[2].partition(".")[0]
            return LastCommit(instant, entry["LastModified"], Progress.from_json(noted))
    return None

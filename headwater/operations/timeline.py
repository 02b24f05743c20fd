"""The last commits of a lake table, read from its timeline in S3 without Spark and without Hudi."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any

from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.s3_uri import split_uri

# Completed instants of Hudi that change the rows that readers see. Requested and inflight ones have other suffixes.
_COMPLETED = re.compile(r"/(\d+)\.(commit|deltacommit|replacecommit)$")


@dataclass(frozen=True)
class LastCommit:
    """The newest commit that carries progress."""

    instant: str
    """The commit's instant on Hudi's timeline."""
    completed: dt.datetime
    """When the commit was complete."""
    progress: Progress
    """The progress that the commit carries."""


def last_commit(s3: Any, table_uri: str) -> LastCommit | None:
    """The last commit of the table at ``s3://bucket/prefix``; None before the first. ``s3`` is boto3's client."""
    bucket, table = split_uri(table_uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{table}/.hoodie/", Delimiter="/")
    listed = [entry for page in pages for entry in page.get("Contents", ()) if _COMPLETED.search(entry["Key"])]
    for entry in sorted(listed, key=lambda entry: str(entry["Key"]), reverse=True):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        noted = (json.loads(body or b"{}").get("extraMetadata") or {}).get(NOTED_AS)
        # Compactions carry no progress.
        if noted is not None:
            instant = entry["Key"].rpartition("/")[2].partition(".")[0]
            return LastCommit(instant, entry["LastModified"], Progress.from_json(noted))
    return None

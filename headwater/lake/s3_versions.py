"""Removing what a versioned bucket keeps of objects that were replaced or deleted. Where the bucket has no versions,
only current objects are there, and nothing is removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.lake.s3_deletion import delete_versions

Version = dict[str, str]
"""``Key`` and ``VersionId``, as DeleteObjects takes them."""


def delete_former(s3: Any, bucket: str, prefix: str) -> int:
    """Delete every version of the objects below a prefix that is not the current one, with the marks of deletions, and
    return their number. Raises ClientError, and then may have deleted some."""
    former = [version for version, is_current in _versions(s3, bucket, prefix) if not is_current]
    delete_versions(s3, bucket, former)
    return len(former)


def delete_object(s3: Any, bucket: str, key: str) -> None:
    """Delete an object with all its versions."""
    versions = [version for version, _ in _versions(s3, bucket, key) if version["Key"] == key]
    delete_versions(s3, bucket, versions)


def _versions(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[Version, bool]]:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Versions", ()):
            yield {"Key": entry["Key"], "VersionId": entry["VersionId"]}, entry["IsLatest"]
        for mark in page.get("DeleteMarkers", ()):
            yield {"Key": mark["Key"], "VersionId": mark["VersionId"]}, False

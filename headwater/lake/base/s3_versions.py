"""Versions of objects: whether a write met another one than it was to replace, and removing what a versioned bucket
keeps of objects that were replaced or deleted. Where the bucket has no versions, only current objects are there, and
nothing is removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from headwater.lake.base.s3_deletion import delete_versions

_OTHER_VERSION = (404, 409, 412)


class _Version(NamedTuple):
    """A version of an object, or the mark of its deletion."""

    key: str
    id: str
    is_current: bool
    is_mark: bool


def met_another(error: ClientError) -> bool:
    """Whether a write under a condition was refused because another version is there by now, or none: somebody else's,
    or this writer's own, where the answer was lost."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"] in _OTHER_VERSION


def delete_former(s3: Any, bucket: str, prefix: str) -> int:
    """Delete every version of the objects below a prefix that is not the current one, with the marks of deletions, and
    return their number. Raises ClientError, and then may have deleted some."""
    former = [version for version in _versions(s3, bucket, prefix) if not version.is_current]
    _delete(s3, bucket, former)
    return len(former)


def delete_object(s3: Any, bucket: str, key: str) -> None:
    """Delete an object with all its versions."""
    _delete(s3, bucket, [version for version in _versions(s3, bucket, key) if version.key == key])


def _delete(s3: Any, bucket: str, versions: Sequence[_Version]) -> None:
    """Delete versions: the marks when all else is gone, since what lies behind a mark would be there again."""
    for is_mark in (False, True):
        chosen = [{"Key": each.key, "VersionId": each.id} for each in versions if each.is_mark == is_mark]
        delete_versions(s3, bucket, chosen)


def _versions(s3: Any, bucket: str, prefix: str) -> Iterator[_Version]:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Versions", ()):
            yield _Version(entry["Key"], entry["VersionId"], is_current=entry["IsLatest"], is_mark=False)
        for mark in page.get("DeleteMarkers", ()):
            yield _Version(mark["Key"], mark["VersionId"], is_current=False, is_mark=True)

"""Versions of objects in S3: recognizes conditional writes that failed, and deletes former versions.

A bucket without versioning has only current objects, so nothing is deleted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from headwater.lake.base.s3_deletion import delete_versions

_OTHER_VERSION = (404, 409, 412)


class _Version(NamedTuple):
    """A version of an object, or a delete marker."""

    key: str
    """The object's key."""
    id: str
    """The version's id."""
    is_current: bool
    """Whether readers get this version."""
    is_mark: bool
    """Whether it is a delete marker."""


def met_another(error: ClientError) -> bool:
    """Whether S3 refused a conditional write because another version is there now, or no version.

    The other version may be this writer's own, if the answer to an earlier write was lost.
    """
    return error.response["ResponseMetadata"]["HTTPStatusCode"] in _OTHER_VERSION


def delete_former(s3: Any, bucket: str, prefix: str) -> int:
    """Delete all former versions and delete markers below a prefix, and return their number.

    Raises ClientError, and then may have deleted some.
    """
    former = [version for version in _versions(s3, bucket, prefix) if not version.is_current]
    _delete(s3, bucket, former)
    return len(former)


def delete_object(s3: Any, bucket: str, key: str) -> None:
    """Delete an object with all its versions."""
    _delete(s3, bucket, [version for version in _versions(s3, bucket, key) if version.key == key])


def _delete(s3: Any, bucket: str, versions: Sequence[_Version]) -> None:
    """Delete versions, the delete markers last: without its marker, an older version would be current again."""
    for is_mark in (False, True):
        chosen = [{"Key": each.key, "VersionId": each.id} for each in versions if each.is_mark == is_mark]
        delete_versions(s3, bucket, chosen)


def _versions(s3: Any, bucket: str, prefix: str) -> Iterator[_Version]:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Versions", ()):
            yield _Version(entry["Key"], entry["VersionId"], is_current=entry["IsLatest"], is_mark=False)
        for mark in page.get("DeleteMarkers", ()):
            yield _Version(mark["Key"], mark["VersionId"], is_current=False, is_mark=True)

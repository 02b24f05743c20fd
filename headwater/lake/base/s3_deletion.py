"""Deletes many objects of S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

_MOST = 1000
"""One request deletes at most this many objects."""


def delete_all(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    """Delete objects, in order. An object that is already gone is not an error.

    Raises ClientError, and then may have deleted some.
    """
    delete_versions(s3, bucket, [{"Key": key} for key in keys])


def delete_below(s3: Any, bucket: str, prefix: str) -> None:
    """Delete all objects below a prefix, as ``delete_all`` does. Raises ClientError also if they cannot be listed."""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        delete_all(s3, bucket, [entry["Key"] for entry in page.get("Contents", ())])


def delete_versions(s3: Any, bucket: str, objects: Sequence[Mapping[str, str]]) -> None:
    """Delete objects, as ``delete_all`` does. Each has a ``Key`` and, to delete one version, a ``VersionId``."""
    for start in range(0, len(objects), _MOST):
        answer = s3.delete_objects(
            Bucket=bucket, Delete={"Objects": list(objects[start : start + _MOST]), "Quiet": True}
        )
        # S3 answers with status 200 even if it could not delete some objects.
        for error in answer.get("Errors", ()):
            message = f"{error['Key']}: {error.get('Message', '')}"
            raise ClientError({"Error": {"Code": error["Code"], "Message": message}}, "DeleteObjects")

"""Deleting many objects of S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

_MOST = 1000
"""How many objects one request may delete."""


def delete_all(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    """Delete objects, the first ones first. Those that are gone already are no error. Raises ClientError, and then may
    have deleted some."""
    delete_versions(s3, bucket, [{"Key": key} for key in keys])


def delete_below(s3: Any, bucket: str, prefix: str) -> None:
    """As ``delete_all``, of all objects below a prefix. Raises ClientError where they cannot be listed, too."""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        delete_all(s3, bucket, [entry["Key"] for entry in page.get("Contents", ())])


def delete_versions(s3: Any, bucket: str, objects: Sequence[Mapping[str, str]]) -> None:
    """As ``delete_all``, of objects by ``Key`` and, where a version is meant, ``VersionId``."""
    for start in range(0, len(objects), _MOST):
        answer = s3.delete_objects(
            Bucket=bucket, Delete={"Objects": list(objects[start : start + _MOST]), "Quiet": True}
        )
        # S3 says with 200 that it has not deleted some.
        for error in answer.get("Errors", ()):
            message = f"{error['Key']}: {error.get('Message', '')}"
            raise ClientError({"Error": {"Code": error["Code"], "Message": message}}, "DeleteObjects")

"""Deleting many objects of S3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

_MOST = 1000
"""How many objects one request may delete."""


def delete_all(s3: Any, bucket: str, keys: Sequence[str]) -> None:
    """Delete objects, the first ones first. Those that are gone already are no error. Raises ClientError, and then may
    have deleted some."""
    for start in range(0, len(keys), _MOST):
        objects = [{"Key": key} for key in keys[start : start + _MOST]]
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        # S3 says with 200 that it has not deleted some.
        for error in answer.get("Errors", ()):
            message = f"{error['Key']}: {error.get('Message', '')}"
            raise ClientError({"Error": {"Code": error["Code"], "Message": message}}, "DeleteObjects")

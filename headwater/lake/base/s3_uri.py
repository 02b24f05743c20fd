"""Addresses of objects in S3: ``s3://bucket/key``."""

from __future__ import annotations


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and prefix of ``s3://bucket/prefix``, without slashes at the prefix's ends. Raises ValueError."""
    scheme, separator, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("s3", "s3a") or not separator or not bucket:
        raise ValueError(f"found {uri!r}, expected s3://bucket/prefix")
    return bucket, prefix.strip("/")


def object_uri(bucket: str, key: str) -> str:
    """The address of an object, or of all objects whose keys begin with ``key``."""
    return f"s3://{bucket}/{key}"


def key_below(prefix: str, name: str) -> str:
    """The key of ``name`` below a prefix, which may be empty."""
    return f"{prefix}/{name}" if prefix else name

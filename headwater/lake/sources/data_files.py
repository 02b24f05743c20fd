"""Data files in S3: lines in gzip, which a manifest lists and describes."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from botocore.exceptions import ClientError

from headwater.errors import UserError
from headwater.lake.base.s3_uri import object_uri

_CHUNK = 1024 * 1024
_NOT_THERE = ("403", "404", "AccessDenied", "NoSuchBucket", "NoSuchKey")


@dataclass(frozen=True)
class DataFile:
    """A data file, as the manifest describes it."""

    bucket: str
    """The bucket of its object."""
    key: str
    """The key of its object."""
    items: int
    """The number of its lines."""
    md5: str
    """The MD5 of the object's bytes, in base64."""
    size: int
    """The number of the object's bytes."""

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.key.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The object's address."""
        return object_uri(self.bucket, self.key)


def defect(file: DataFile, s3: Any) -> str | None:
    """The first difference between a data file and its manifest (bytes, compression, number of lines), or None."""
    try:
        with _download(file, s3) as body:
            altered = _altered(file, body)
            if altered is not None:
                return altered
            body.seek(0)
            items = sum(1 for _ in _lines(body))
    except UserError as error:
        return str(error)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"{file.uri}: found {error}, expected gzip"
    if items != file.items:
        return f"{file.uri}: found {items} lines, expected {file.items}, as in the manifest"
    return None


def alteration(file: DataFile, s3: Any) -> str | None:
    """The difference between a data file that Headwater wrote and its manifest, or None. Only bytes are compared."""
    try:
        with _download(file, s3) as body:
            return _altered(file, body)
    except UserError as error:
        return str(error)


def _altered(file: DataFile, body: IO[bytes]) -> str | None:
    md5 = md5_of(body)
    return None if md5 == file.md5 else f"{file.uri}: MD5: found {md5}, expected {file.md5}, the manifest's"


def md5_of(body: IO[bytes]) -> str:
    """The MD5 of a local file in base64. The file is read from its beginning to its end."""
    body.seek(0)
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := body.read(_CHUNK):
        digest.update(chunk)
    return base64.b64encode(digest.digest()).decode("ascii")


def lines(file: DataFile, s3: Any) -> Iterator[bytes]:
    """The lines of a data file, which must not be damaged. ``defect`` checks that."""
    with _download(file, s3) as body:
        yield from _lines(body)


def first_of(files: Sequence[DataFile], most_bytes: int) -> list[DataFile]:
    """The first files until their sizes reach ``most_bytes``; at least one."""
    taken: list[DataFile] = []
    total = 0
    for file in files:
        if taken and total + file.size > most_bytes:
            break
        taken.append(file)
        total += file.size
    return taken


def sizes(s3: Any, bucket: str, prefix: str) -> dict[str, int]:
    """The size of each object below a prefix in bytes, by key. Raises UserError if the objects cannot be listed."""
    try:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
    except ClientError as error:
        raise _unreadable(error, object_uri(bucket, prefix)) from None


def read_text(s3: Any, bucket: str, key: str) -> str:
    """An object's text. Raises UserError if the object cannot be read, or is not UTF-8."""
    uri = object_uri(bucket, key)
    try:
        body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode("utf-8")
    except ClientError as error:
        raise _unreadable(error, uri) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{uri}: found {error}, expected UTF-8") from None


def _lines(body: IO[bytes]) -> Iterator[bytes]:
    """The lines of a compressed data file. The file of an empty partition may have no bytes."""
    with gzip.GzipFile(fileobj=body) as unpacked:
        for line in unpacked:
            if stripped := line.strip():
                yield stripped


@contextlib.contextmanager
def _download(file: DataFile, s3: Any) -> Iterator[IO[bytes]]:
    """The object as a local file. Decoding is slower than reading, so S3 would close an idle connection."""
    with tempfile.TemporaryFile() as body:
        try:
            s3.download_fileobj(file.bucket, file.key, body)
        except ClientError as error:
            raise _unreadable(error, file.uri) from None
        body.seek(0)
        yield body


def _unreadable(error: ClientError, uri: str) -> Exception:
    """Return the error to raise for an error of S3.

    This is a UserError if S3 does not give the object out, else the same error.
    """
    code = error.response["Error"]["Code"]
    if code not in _NOT_THERE:
        return error
    return UserError(
        f"{uri}: found no readable object ({code}), expected a part of the data to load. Check the address, that "
        "the data is complete there, and that this role may read it."
    )

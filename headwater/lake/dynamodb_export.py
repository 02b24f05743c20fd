"""A full export of a DynamoDB table in S3, as ``ExportTableToPointInTime`` writes it in DynamoDB JSON.

``<prefix>/AWSDynamoDB/<export>/`` holds ``manifest-summary.json``, which is written last, ``manifest-files.json`` with
a line a data file, and ``data/*.json.gz`` with a line an item. Format: Amazon DynamoDB Developer Guide, "DynamoDB
table export output format".
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import gzip
import hashlib
import json
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from botocore.exceptions import ClientError

from headwater.errors import UserError
from headwater.lake.changes import BadRecord, epoch_digits
from headwater.lake.dynamodb_decoder import DynamoDecoder
from headwater.lake.landing import split_uri

_SUMMARY = "manifest-summary.json"
_TABLE_ARN = re.compile(r"arn:[^:]+:dynamodb:[^:]+:\d{12}:table/([a-zA-Z0-9_.-]{3,255})\Z")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_TIE_DIGITS = 56
_CHUNK = 1024 * 1024
_NOT_THERE = ("403", "404", "AccessDenied", "NoSuchBucket", "NoSuchKey")


@dataclass(frozen=True)
class DataFile:
    """A data file: its object, how many items it holds, the MD5 of the object's bytes in base64, and their number."""

    bucket: str
    key: str
    items: int
    md5: str
    size: int

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.key.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The object's address."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True)
class Export:
    """An export that is complete as far as its manifests tell. ``time`` is the moment whose state it holds, in
    microseconds; ``files`` are in the order of their names, which is always the same."""

    uri: str
    id: str
    table: str
    time: int
    files: tuple[DataFile, ...]

    @property
    def items(self) -> int:
        """How many items all files hold."""
        return sum(found.items for found in self.files)

    @staticmethod
    def open(s3: Any, uri: str) -> Export:
        """Read the manifests of the export at ``uri``, the address of its folder or of its summary, and look whether
        its data files are there. Their content is left to ``defect``. Raises UserError."""
        bucket, folder = locate(uri)
        export_id = folder.rpartition("/")[2]
        where = f"s3://{bucket}/{folder}"
        summary = _Document(f"{where}/{_SUMMARY}", _read(s3, bucket, f"{folder}/{_SUMMARY}"))
        # The first version of the format, which knew only full exports, names no type.
        summary.expect("exportType", "FULL_EXPORT", "of a full export", absent=True)
        summary.expect("outputFormat", "DYNAMODB_JSON", "of an export in DynamoDB JSON")
        if summary.text("exportArn").rpartition("/")[2] != export_id:
            raise summary.fail("exportArn", f"…/export/{export_id}, as the folder is called")
        table = _TABLE_ARN.match(summary.text("tableArn"))
        if table is None:
            raise summary.fail("tableArn", "arn:aws:dynamodb:REGION:ACCOUNT:table/NAME")
        # An export may have been copied: its files are looked for beside its summary, not where they first were.
        listed = summary.text("manifestFilesS3Key").rpartition("/")[2]
        files = _files(s3, bucket, folder, listed)
        items = sum(found.items for found in files)
        if summary.number("itemCount") != items:
            raise summary.fail("itemCount", f"{items}, the sum of {listed}")
        return Export(where, export_id, table.group(1), summary.moment("exportTime"), files)


def locate(uri: str) -> tuple[str, str]:
    """Bucket and folder of the export at ``uri``; the folder's last part is the export's id. Raises UserError."""
    try:
        bucket, folder = split_uri(uri)
    except ValueError as error:
        raise UserError(f"Address of the export: {error}") from None
    folder = folder[: -len(_SUMMARY)].rstrip("/") if folder.endswith(f"/{_SUMMARY}") else folder
    if folder.split("/")[-2:-1] != ["AWSDynamoDB"]:
        raise UserError(f"Address of the export: found {uri!r}, expected s3://bucket/prefix/AWSDynamoDB/EXPORT-ID")
    return bucket, folder


def defect(file: DataFile, s3: Any) -> str | None:
    """What of a data file's content is not as its manifest says (bytes, compression, number of items), or None."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with _download(file, s3) as body:
            while chunk := body.read(_CHUNK):
                digest.update(chunk)
            found = base64.b64encode(digest.digest()).decode("ascii")
            if found != file.md5:
                return f"{file.uri}: MD5: found {found}, expected {file.md5}, the manifest's md5Checksum"
            body.seek(0)
            items = sum(1 for _ in _lines(body))
    except UserError as error:
        return str(error)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"{file.uri}: found {error}, expected gzip"
    if items != file.items:
        return f"{file.uri}: found {items} items, expected {file.items}, the manifest's itemCount"
    return None


def floor(epoch: int, time: int) -> str:
    """The ``_order`` just below the items of an export of ``time``, in microseconds, as DynamoDecoder orders them. When
    the export is complete, nothing older than it that it did not show is alive: what an earlier export showed and the
    stream has not touched, and all of an epoch before."""
    return f"{epoch_digits(epoch)}0{time - 1:020d}{'9' * _TIE_DIGITS}"


def decode_items(
    files: Iterator[DataFile], decoder: DynamoDecoder, export_id: str, time: int, s3: Any
) -> Iterator[tuple[Any, ...]]:
    """The items of data files to rows of ``columns_tagged``, as the state at ``time``, the export's. ``_position`` is
    ``export/file/line``, lines from 0; ``_raw`` of a bad item is a JSON object of the line and what replays it."""
    nothing = (None,) * decoder.width
    for file in files:
        with _download(file, s3) as body:
            for number, line in enumerate(_lines(body)):
                position = f"{export_id}/{file.name}/{number}"
                try:
                    decoded = decoder.item(line, time, position)
                except BadRecord as bad:
                    yield (*nothing, None, str(bad), _raw(line, time, position))
                    continue
                for row in decoded.rows:
                    yield (*row, None, None, None)


def _raw(line: bytes, time: int, position: str) -> str:
    document: dict[str, Any] = {"exported_at": time, "position": position}
    try:
        document["item"] = line.decode("utf-8")
    except UnicodeDecodeError:
        document["item_base64"] = base64.b64encode(line).decode("ascii")
    return json.dumps(document, ensure_ascii=False)


def _lines(body: IO[bytes]) -> Iterator[bytes]:
    """The lines of a compressed data file. The one of an empty partition may be empty itself."""
    with gzip.GzipFile(fileobj=body) as unpacked:
        for line in unpacked:
            if stripped := line.strip():
                yield stripped


@contextlib.contextmanager
def _download(file: DataFile, s3: Any) -> Iterator[IO[bytes]]:
    """The object as a local file: decoding is slower than reading, and S3 ends connections that stand still."""
    with tempfile.TemporaryFile() as body:
        try:
            s3.download_fileobj(file.bucket, file.key, body)
        except ClientError as error:
            raise _unreadable(error, file.uri) from None
        body.seek(0)
        yield body


def _read(s3: Any, bucket: str, key: str) -> str:
    uri = f"s3://{bucket}/{key}"
    try:
        body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode("utf-8")
    except ClientError as error:
        raise _unreadable(error, uri) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{uri}: found {error}, expected UTF-8") from None


def _unreadable(error: ClientError, uri: str) -> Exception:
    """The error to raise for one of S3's: what may be a passing fault stays as it is."""
    code = error.response["Error"]["Code"]
    if code not in _NOT_THERE:
        return error
    return UserError(
        f"{uri}: found nothing that can be read ({code}), expected a part of the export. Is the address right, is the "
        "export complete, and may this role read it?"
    )


def _files(s3: Any, bucket: str, folder: str, manifest: str) -> tuple[DataFile, ...]:
    """The data files that the manifest lists, which must all be there. Raises UserError."""
    sizes = _sizes(s3, bucket, f"{folder}/data/")
    found: dict[str, DataFile] = {}
    for number, line in enumerate(_read(s3, bucket, f"{folder}/{manifest}").splitlines(), 1):
        if not line.strip():
            continue
        entry = _Document(f"s3://{bucket}/{folder}/{manifest} line {number}", line)
        key = f"{folder}/data/{entry.text('dataFileS3Key').rpartition('/')[2]}"
        if key not in sizes:
            raise entry.fail("dataFileS3Key", f"an object: s3://{bucket}/{key} is not there")
        if key in found:
            raise entry.fail("dataFileS3Key", "every data file once")
        found[key] = DataFile(bucket, key, entry.number("itemCount"), entry.text("md5Checksum"), sizes[key])
    return tuple(found[key] for key in sorted(found))


def _sizes(s3: Any, bucket: str, prefix: str) -> dict[str, int]:
    try:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
    except ClientError as error:
        raise _unreadable(error, f"s3://{bucket}/{prefix}") from None


class _Document:
    """A JSON object of a manifest, whose errors name file, field, found and expected."""

    def __init__(self, where: str, text: str) -> None:
        self._where = where
        try:
            self._fields = json.loads(text)
        except ValueError as error:
            raise UserError(f"{where}: found {error}, expected JSON") from None
        if not isinstance(self._fields, dict):
            raise UserError(f"{where}: found {type(self._fields).__name__}, expected a JSON object")

    def fail(self, field: str, expected: str) -> UserError:
        return UserError(f"{self._where}: {field}: found {self._fields.get(field)!r}, expected {expected}")

    def expect(self, field: str, value: str, why: str, absent: bool = False) -> None:
        if self._fields.get(field) != value and not (absent and field not in self._fields):
            raise self.fail(field, f"{value!r}, {why}")

    def text(self, field: str) -> str:
        value = self._fields.get(field)
        if not isinstance(value, str) or not value:
            raise self.fail(field, "a text")
        return value

    def number(self, field: str) -> int:
        value = self._fields.get(field)
        if type(value) is not int or value < 0:
            raise self.fail(field, "a number")
        return value

    def moment(self, field: str) -> int:
        """An ISO time in UTC as microseconds since 1970."""
        text = self.text(field)
        try:
            found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise self.fail(field, "a time such as 2026-01-31T12:00:00.000Z") from None
        if found.tzinfo is None:
            raise self.fail(field, "a time in UTC, such as 2026-01-31T12:00:00.000Z")
        return (found - _EPOCH) // _MICROSECOND

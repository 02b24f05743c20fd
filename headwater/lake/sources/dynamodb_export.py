"""A full export of a DynamoDB table in S3, as ``ExportTableToPointInTime`` writes it in DynamoDB JSON.

``<prefix>/AWSDynamoDB/<export>/`` holds ``manifest-summary.json``, which is written last, ``manifest-files.json`` with
a line per data file, and ``data/*.json.gz`` with a line per item. Format: Amazon DynamoDB Developer Guide, "DynamoDB
table export output format".
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from headwater.errors import UserError
from headwater.lake.base.s3_uri import object_uri, split_uri
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_item
from headwater.lake.sources import data_files
from headwater.lake.sources.data_files import DataFile

_SUMMARY = "manifest-summary.json"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Export:
    """An export that is complete, according to its manifests."""

    uri: str
    """The address of the export's folder."""
    id: str
    """The export's id: the last part of its address."""
    table: str
    """The name of the exported DynamoDB table."""
    time: int
    """The time of the exported state, in microseconds since 1970. For an export of a Scan, it is before the reading."""
    until: int
    """For an export of a Scan, a time after the reading; otherwise the same as ``time``."""
    files: tuple[DataFile, ...]
    """The data files, in the order of their names, which never changes."""

    @property
    def items(self) -> int:
        """The number of items in all files."""
        return sum(file.items for file in self.files)

    @staticmethod
    def open(s3: Any, uri: str) -> Export:
        """Read the manifests of an export, and check that its data files exist. Raises UserError.

        ``uri`` is the address of the export's folder or of its summary. ``data_files.defect`` checks the files'
        content.
        """
        bucket, folder = locate(uri)
        export_id = folder.rpartition("/")[2]
        uri = object_uri(bucket, folder)
        where = f"{uri}/{_SUMMARY}"
        summary = _parse(data_files.read_text(s3, bucket, f"{folder}/{_SUMMARY}"), _Summary, where)
        if _last_part(summary.export_arn) != export_id:
            raise _misfit(where, "exportArn", summary.export_arn, f"…/export/{export_id}, as the folder is called")
        # An export may have been copied. So look for the files beside the summary, not at the manifest's addresses.
        manifest = _last_part(summary.manifest_files_s3_key)
        files = _files(s3, bucket, folder, manifest)
        items = sum(file.items for file in files)
        if summary.item_count != items:
            raise _misfit(where, "itemCount", summary.item_count, f"{items}, the sum of {manifest}")
        time = _micros(summary.export_time)
        until = max(time, _micros(summary.read_until))
        return Export(uri, export_id, _last_part(summary.table_arn), time, until, files)


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


def decode_items(
    files: Iterable[DataFile], decoder: DynamoDecoder, export: Export, s3: Any, purged: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Decode the items of an export's data files to rows of ``columns_tagged``.

    ``_position`` is ``export/file/line``; the first line is 0.
    """
    for file in files:
        for number, line in enumerate(data_files.lines(file, s3)):
            position = f"{export.id}/{file.name}/{number}"
            yield from decode_item(line, (export.time, export.until), position, decoder, purged)


def _files(s3: Any, bucket: str, folder: str, manifest: str) -> tuple[DataFile, ...]:
    """The data files that the manifest lists. Raises UserError if one of them does not exist."""
    sizes = data_files.sizes(s3, bucket, f"{folder}/data/")
    files: dict[str, DataFile] = {}
    for number, line in enumerate(data_files.read_text(s3, bucket, f"{folder}/{manifest}").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{object_uri(bucket, folder)}/{manifest} line {number}"
        entry = _parse(line, _Entry, where)
        key = f"{folder}/data/{_last_part(entry.data_file_s3_key)}"
        if key not in sizes:
            expected = f"an object: {object_uri(bucket, key)} is not there"
            raise _misfit(where, "dataFileS3Key", entry.data_file_s3_key, expected)
        if key in files:
            raise _misfit(where, "dataFileS3Key", entry.data_file_s3_key, "every data file once")
        files[key] = DataFile(bucket, key, entry.item_count, entry.md5_checksum, sizes[key])
    return tuple(files[key] for key in sorted(files))


# --- Manifests --------------------------------------------------------------------------------------------------------

# The description of a field names the allowed values. The error about a wrong value repeats this description.
_Text = Annotated[str, msgspec.Meta(min_length=1, description="a text")]
_Count = Annotated[int, msgspec.Meta(ge=0, description="a number")]
_TableArn = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\Aarn:[^:]+:dynamodb:[^:]+:[0-9]{12}:table/[a-zA-Z0-9_.-]{3,255}\Z",
        description="arn:aws:dynamodb:REGION:ACCOUNT:table/NAME",
    ),
]
_Moment = Annotated[dt.datetime, msgspec.Meta(tz=True, description="a time in UTC, such as 2026-01-31T12:00:00.000Z")]
_Full = Annotated[Literal["FULL_EXPORT"], msgspec.Meta(description="'FULL_EXPORT', of a full export")]
_Json = Annotated[Literal["DYNAMODB_JSON"], msgspec.Meta(description="'DYNAMODB_JSON', of an export in DynamoDB JSON")]


class _Summary(msgspec.Struct, rename="camel"):
    """The fields of ``manifest-summary.json`` that the loading needs."""

    output_format: _Json
    """The format of the data files."""
    export_arn: _Text
    """The export's ARN."""
    table_arn: _TableArn
    """The ARN of the exported table."""
    manifest_files_s3_key: _Text
    """The key of the list of data files."""
    item_count: _Count
    """The number of items in all data files."""
    export_time: _Moment
    """The time of the exported state."""
    export_type: _Full = "FULL_EXPORT"
    """The type of the export. The first version of the format, which knew only full exports, names none."""
    read_until: _Moment = _EPOCH
    """A moment after the reading. Only exports of a Scan have it: AWS's exports have the state of one moment."""


class _Entry(msgspec.Struct, rename="camel"):
    """A line of ``manifest-files.json``."""

    data_file_s3_key: _Text
    """The key of the data file."""
    item_count: _Count
    """The number of items in the file."""
    md5_checksum: _Text
    """The MD5 of the file's bytes, in base64."""


_Manifest = TypeVar("_Manifest", _Summary, _Entry)
_FIELD = re.compile(r"at `\$\.(\w+)`|missing required field `(\w+)`")
"""Finds the name of the wrong field in msgspec's message."""


def _parse(text: str, type_: type[_Manifest], where: str) -> _Manifest:
    """Parse the JSON object of a manifest at ``where``. Raises UserError, naming file, field, found and expected."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UserError(f"{where}: found {error}, expected JSON") from None
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        named = _FIELD.search(str(error))
        if named is None:
            raise UserError(f"{where}: found {type(document).__name__}, expected a JSON object") from None
        name = named.group(1) or named.group(2)
        (expected,) = (
            field.type.__metadata__[0].description
            for field in msgspec.structs.fields(type_)
            if field.encode_name == name
        )
        raise _misfit(where, name, document.get(name), expected) from None


def _misfit(where: str, field: str, found: object, expected: str) -> UserError:
    return UserError(f"{where}: {field}: found {found!r}, expected {expected}")


def _micros(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]

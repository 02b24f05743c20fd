"""Exports of a DynamoDB table as ``ExportTableToPointInTime`` writes them, which DynamoDB Local does not have."""

import base64
import datetime as dt
import gzip
import hashlib
import json
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.lake.s3_uri import key_below, object_uri, split_uri

Item = Mapping[str, Mapping[str, Any]]
"""An item as boto3's DynamoDB client gives it: attribute → {type: value}, binary values as bytes."""


def export_table(dynamodb: Any, s3: Any, table: str, target: str, files: int = 2) -> str:
    """Export a table with boto3's clients below ``target`` (``s3://bucket/prefix``) and return the export's address.
    With few items, some of the ``files`` data files are empty, as in AWS.

    The table is scanned, so what is written to it meanwhile may be in the export or not. The export's time is the
    moment before the scan: every such write came later and is in the stream.
    """
    arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
    time = dt.datetime.now(dt.UTC)
    return write_export(s3, arn, [_scan(dynamodb, table, part, files) for part in range(files)], time, target)


def write_export(s3: Any, table_arn: str, files: Sequence[Iterable[Item]], time: dt.datetime, target: str) -> str:
    """Write the items of each data file as an export of the state at ``time`` (UTC) below ``target``
    (``s3://bucket/prefix``), and return the export's address."""
    bucket, prefix = split_uri(target)
    export_id = f"{int(time.timestamp() * 1000):014d}-{secrets.token_hex(4)}"
    folder = key_below(prefix, f"AWSDynamoDB/{export_id}")
    started = dt.datetime.now(dt.UTC)
    s3.put_object(Bucket=bucket, Key=f"{folder}/_started", Body=b"")
    entries = [_data_file(s3, items, bucket, f"{folder}/data/{secrets.token_hex(13)}.json.gz") for items in files]
    _manifest(s3, bucket, f"{folder}/manifest-files", "".join(json.dumps(entry) + "\n" for entry in entries))
    summary = {
        "version": "2020-06-30",
        "exportArn": f"{table_arn}/export/{export_id}",
        "startTime": _iso(started),
        "endTime": _iso(dt.datetime.now(dt.UTC)),
        "tableArn": table_arn,
        "tableId": str(uuid.uuid4()),
        "exportTime": _iso(time),
        "s3Bucket": bucket,
        "s3Prefix": prefix or None,
        "s3SseAlgorithm": "AES256",
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": f"{folder}/manifest-files.json",
        "billedSizeBytes": 0,
        "itemCount": sum(entry["itemCount"] for entry in entries),
        "outputFormat": "DYNAMODB_JSON",
        "exportType": "FULL_EXPORT",
    }
    _manifest(s3, bucket, f"{folder}/manifest-summary", json.dumps(summary))
    return object_uri(bucket, folder)


def _scan(dynamodb: Any, table: str, segment: int, segments: int) -> Iterator[Item]:
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table, Segment=segment, TotalSegments=segments, ConsistentRead=True
    )
    for page in pages:
        yield from page["Items"]


def _data_file(s3: Any, items: Iterable[Item], bucket: str, key: str) -> dict[str, Any]:
    """Write one data file and return its entry in the manifest."""
    lines = [
        json.dumps(
            {"Item": {name: _json(value) for name, value in item.items()}}, ensure_ascii=False, separators=(",", ":")
        )
        for item in items
    ]
    body = gzip.compress("".join(line + "\n" for line in lines).encode("utf-8"))
    stored = s3.put_object(Bucket=bucket, Key=key, Body=body)
    return {
        "itemCount": len(lines),
        "md5Checksum": _md5(body),
        "etag": stored["ETag"].strip('"'),
        "dataFileS3Key": key,
    }


def _json(value: Mapping[str, Any]) -> dict[str, Any]:
    """A typed value with its bytes in base64, as JSON has none."""
    ((kind, inner),) = value.items()
    if kind == "B":
        return {kind: base64.b64encode(inner).decode("ascii")}
    if kind == "BS":
        return {kind: [base64.b64encode(member).decode("ascii") for member in inner]}
    if kind == "L":
        return {kind: [_json(member) for member in inner]}
    if kind == "M":
        return {kind: {name: _json(member) for name, member in inner.items()}}
    return {kind: inner}


def _manifest(s3: Any, bucket: str, name: str, text: str) -> None:
    body = text.encode("utf-8")
    s3.put_object(Bucket=bucket, Key=f"{name}.json", Body=body)
    s3.put_object(Bucket=bucket, Key=f"{name}.checksum", Body=_md5(body).encode("ascii"))


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


def _iso(time: dt.datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

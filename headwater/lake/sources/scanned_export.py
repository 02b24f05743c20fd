"""An operator's own export of a DynamoDB table by a Scan, in the format of ``ExportTableToPointInTime``.

The table changes while it is read, so concurrent changes may be in the export or not. The export's time is a moment
before the reading, by DynamoDB's clock: the stream has all later changes. Its summary also has ``readUntil``, a moment
after the reading, which AWS's exports do not have. Since that moment, items without changes in the stream are as in the
export.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import secrets
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import msgspec

from headwater.lake.base.s3_deletion import delete_below
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.lake.sources.data_files import md5_of

Item = Mapping[str, Mapping[str, Any]]
"""An item as boto3's DynamoDB client gives it: attribute → {type: value}, binary values as bytes."""
ItemsRead = Callable[[int, float], None]
"""Called after each page with the number of its items, and with the read units that the page took."""
Clean = Callable[[Item], Item]
"""Removes the values that may not be stored from an item."""

_FILE_BYTES = 256 * 1024 * 1024
_MOST_FILES = 1_000
_READERS = 4


def export_table(
    dynamodb: Any,
    s3: Any,
    table: str,
    target: str,
    report: ItemsRead = lambda items, units: None,
    clean: Clean = lambda item: item,
    files: int = 0,
) -> str:
    """Export a table by strongly consistent reads, and return the export's address.

    - ``dynamodb``, ``s3``: boto3's clients.
    - ``table``: the table's name.
    - ``target``: the export is written below it (``s3://bucket/prefix``).
    - ``report``: called after each page.
    - ``clean``: removes values that may not be stored from each item.
    - ``files``: the number of data files; by default one per 256 MiB of the table. With few items some are empty, as in
      AWS.
    """
    described = _begun(dynamodb, table)
    parts = files or min(described["bytes"] // _FILE_BYTES + 1, _MOST_FILES)
    scans = [map(clean, _scan(dynamodb, table, part, parts, report)) for part in range(parts)]
    return write_export(s3, described["arn"], scans, described["time"], target, partial(_read_until, dynamodb, table))


def export_rows(
    dynamodb: Any,
    s3: Any,
    table: str,
    where: str,
    target: str,
    report: ItemsRead = lambda items, units: None,
    clean: Clean = lambda item: item,
) -> str:
    """Export the items of a table that fulfil the PartiQL condition ``where``, as ``export_table`` does."""
    described = _begun(dynamodb, table)
    selected = _selected(dynamodb, f'SELECT * FROM "{table}" WHERE {where}', report)
    read = [map(clean, selected)]
    return write_export(s3, described["arn"], read, described["time"], target, partial(_read_until, dynamodb, table))


def write_export(
    s3: Any,
    table_arn: str,
    files: Sequence[Iterable[Item]],
    time: dt.datetime,
    target: str,
    read_until: Callable[[], dt.datetime] | None = None,
) -> str:
    """Write items as an export of the state at ``time`` (UTC), and return the export's address.

    - ``table_arn``: the ARN of the exported table.
    - ``files``: the items of each data file.
    - ``target``: the export is written below it (``s3://bucket/prefix``).
    - ``read_until``: for a table that changes while it is read. It is called after the reading, and returns a moment
      after the reading.
    """
    bucket, prefix = split_uri(target)
    export_id = f"{int(time.timestamp() * 1000):014d}-{secrets.token_hex(4)}"
    folder = key_below(prefix, f"AWSDynamoDB/{export_id}")
    started = dt.datetime.now(dt.UTC)
    s3.put_object(Bucket=bucket, Key=f"{folder}/_started", Body=b"")
    # Write the data files at the same time, then the manifests.
    with ThreadPoolExecutor(_READERS) as pool:
        written = [
            pool.submit(_data_file, s3, items, bucket, f"{folder}/data/{secrets.token_hex(13)}.json.gz")
            for items in files
        ]
        try:
            entries = [future.result() for future in written]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
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
    if read_until is not None:
        summary["readUntil"] = _iso(read_until())
    _manifest(s3, bucket, f"{folder}/manifest-summary", json.dumps(summary))
    return object_uri(bucket, folder)


def delete_export(s3: Any, uri: str) -> None:
    """Delete the objects of the export at ``uri``."""
    bucket, folder = split_uri(uri)
    delete_below(s3, bucket, f"{folder}/")


def _begun(dynamodb: Any, table: str) -> dict[str, Any]:
    """Describe a table one second later.

    The time in DynamoDB's answers has whole seconds, and the job refuses an export from before its streaming began.
    """
    time.sleep(1)
    return _described(dynamodb, table)


def _described(dynamodb: Any, table: str) -> dict[str, Any]:
    """A table's ARN, its size in bytes, and the time by DynamoDB's clock.

    DynamoDB updates the size every six hours.
    """
    answer = dynamodb.describe_table(TableName=table)
    time = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    return {"arn": answer["Table"]["TableArn"], "bytes": answer["Table"].get("TableSizeBytes", 0), "time": time}


def _read_until(dynamodb: Any, table: str) -> dt.datetime:
    """A moment after all reads up to now, by DynamoDB's clock in whole seconds."""
    time: dt.datetime = _described(dynamodb, table)["time"]
    return time + dt.timedelta(seconds=1)


def _scan(dynamodb: Any, table: str, segment: int, segments: int, report: ItemsRead) -> Iterator[Item]:
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table,
        Segment=segment,
        TotalSegments=segments,
        ConsistentRead=True,
        ReturnConsumedCapacity="TOTAL",
    )
    for page in pages:
        report(len(page["Items"]), _units(page))
        yield from page["Items"]


def _selected(dynamodb: Any, statement: str, report: ItemsRead) -> Iterator[Item]:
    further: dict[str, str] = {}
    while True:
        page = dynamodb.execute_statement(
            Statement=statement, ConsistentRead=True, ReturnConsumedCapacity="TOTAL", **further
        )
        report(len(page["Items"]), _units(page))
        yield from page["Items"]
        if "NextToken" not in page:
            return
        further = {"NextToken": page["NextToken"]}


def _units(page: Mapping[str, Any]) -> float:
    return float(page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))


def _data_file(s3: Any, items: Iterable[Item], bucket: str, key: str) -> dict[str, Any]:
    """Write one data file and return its entry in the manifest."""
    count = 0
    with tempfile.TemporaryFile() as body:
        with gzip.GzipFile(fileobj=body, mode="wb", compresslevel=6) as packed:
            for item in items:
                count += 1
                packed.write(msgspec.json.encode({"Item": item}) + b"\n")
        md5 = md5_of(body)
        body.seek(0)
        stored = s3.put_object(Bucket=bucket, Key=key, Body=body)
    return {
        "itemCount": count,
        "md5Checksum": md5,
        "etag": stored["ETag"].strip('"'),
        "dataFileS3Key": key,
    }


def _manifest(s3: Any, bucket: str, name: str, text: str) -> None:
    body = text.encode("utf-8")
    s3.put_object(Bucket=bucket, Key=f"{name}.json", Body=body)
    s3.put_object(Bucket=bucket, Key=f"{name}.checksum", Body=md5_of(io.BytesIO(body)).encode())


def _iso(time: dt.datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Warming up a writer: synthetic changes are decoded and committed to a scratch table, by the code that real changes go
through. A JVM loads, links and compiles what it runs for the first time, and the first real change should not wait for
that.

The scratch table lies below ``LAKE/_warm_up/``, and is deleted at the end. The next writer deletes what a killed one
has left.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, from_json
from headwater.lake.catalog import Catalog
from headwater.lake.job import Job
from headwater.lake.kinesis import TRIM_HORIZON, KinesisStream, Record
from headwater.lake.landed_changes import LandedChanges
from headwater.lake.landing import Landing
from headwater.lake.lease import Leases
from headwater.lake.s3_deletion import delete_all, delete_below
from headwater.lake.s3_uri import split_uri
from headwater.lake.streamed_changes import StreamedChanges
from headwater.lake.table import HudiTable
from headwater.lake.writer import TableWriter

COMMITS = 4
"""The first one makes the table, the others write log files. From the fifth on, a commit's time falls slowly."""
_KEYS = 50
"""Changes of a batch: as many as a table of a usual application has in a second or two."""
_LEFT_BEHIND = dt.timedelta(hours=1)
"""A warm-up takes seconds. What is older belongs to a writer that was killed."""
_SOURCE_TABLE = "warm_up"
_COLUMNS: dict[str, list[tuple[str, str, str | None]]] = {
    POSTGRESQL: [
        ("id", "bigint", "bigint"),
        ("note", "string", "text"),
        ("number", "int", "integer"),
        ("amount", "decimal(12,2)", "numeric(12,2)"),
        ("ratio", "double", "double precision"),
        ("is_open", "boolean", "boolean"),
        ("day", "date", "date"),
        ("at", "timestamp", "timestamp with time zone"),
        ("lines", "array<struct<price:decimal(12,4),note:string>>", None),
    ],
    DYNAMODB: [
        ("id", "string", "S"),
        ("note", "string", "S"),
        ("amount", "decimal(12,2)", "N"),
        ("is_open", "boolean", "BOOL"),
        ("tags", "array<string>", "SS"),
    ],
}


def contract(database: str) -> Contract:
    """The contract of the scratch table of one kind of source."""
    columns: list[dict[str, Any]] = []
    for name, type_, source_type in _COLUMNS[database]:
        origin = {"from": f"document.{name}"} if source_type is None else {"source_type": source_type}
        columns.append({"name": name, "type": type_, **origin})
    document = {
        "table": "warm_up",
        "description": "A scratch table.",
        "source": {"database": database, "table": f"public.{_SOURCE_TABLE}"},
        "key": ["id"],
        "partition_by": [],
        "buckets": 2,
        "columns": columns,
    }
    return from_json(json.dumps(document), "the scratch table's contract")


@dataclass(frozen=True)
class Scratch:
    """A scratch table of a running job: its writer, and the ``s3://`` address of its folder."""

    writer: TableWriter
    uri: str


def landed(running: Job) -> None:
    """Warm up a job that commits landing objects. Raises what boto3 and Spark raise."""
    with _scratch(running, POSTGRESQL) as scratch:
        topic = f"warm_up.{scratch.writer.contract.source.table}"
        changes = LandedChanges(scratch.writer, Landing(running.services.s3, f"{scratch.uri}/landing", topic))
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            _land(running.services.s3, f"{scratch.uri}/landing/{topic}/0", number)
            changes.commit_next()


def read(running: Job) -> None:
    """Warm up a job that reads streams through the Kinesis API. Raises what boto3 and Spark raise."""
    with _scratch(running, DYNAMODB) as scratch:
        changes = StreamedChanges(scratch.writer, _SOURCE_TABLE)
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            changes.commit_read(_Stream(number))


def streamed(running: Job) -> None:
    """Warm up a job that gets micro-batches of Structured Streaming. Raises what boto3 and Spark raise."""
    with _scratch(running, DYNAMODB) as scratch:
        changes = StreamedChanges(scratch.writer, _SOURCE_TABLE)
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            records = [(record.data, record.sequence, record.shard) for record in _records(number)]
            frame = running.spark.createDataFrame(records, "data binary, sequenceNumber string, shardId string")
            changes.commit_frame(frame, number)


@contextmanager
def _scratch(running: Job, database: str) -> Iterator[Scratch]:
    """A scratch table, deleted at the end. What it reports and registers goes nowhere."""
    s3 = running.services.s3
    uri = f"{running.options.lake}/_warm_up/{uuid.uuid4().hex}"
    bucket, prefix = split_uri(uri)
    services = replace(running.services, catalog=_NoCatalog(None, ""), report=lambda event: None)
    leases = Leases(s3, uri, "the warm-up", running.options.lease_seconds, running.stop)
    try:
        lease = leases.take(_SOURCE_TABLE)
        table = HudiTable(running.spark, contract(database), uri, running.settings.parallelism)
        strict = {"epoch": None, "max_bad_share": 0.0, "max_unfit_share": 0.0}
        settings = replace(running.settings, quarantine=f"{uri}/_quarantine", **strict)
        writer = TableWriter(table, lease, services, settings)
        try:
            yield Scratch(writer, uri)
        finally:
            writer.close()
    finally:
        leases.release()
        delete_below(s3, bucket, f"{prefix}/")
        _delete_left_behind(s3, bucket, prefix.rpartition("/")[0])


def _delete_left_behind(s3: Any, bucket: str, folder: str) -> None:
    """Delete what writers have left that were killed while they warmed up."""
    oldest = dt.datetime.now(dt.UTC) - _LEFT_BEHIND
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/"):
        left = [entry["Key"] for entry in page.get("Contents", ()) if entry["LastModified"] < oldest]
        delete_all(s3, bucket, left)


class _NoCatalog(Catalog):
    """No query knows a scratch table."""

    def register(self, table: str, paths: list[str], *, again: bool = False) -> int:
        return 0


def _land(s3: Any, folder: str, number: int) -> None:
    """Put a landing object with the ``number``-th batch of changes, from 0."""
    first = number * _KEYS
    lines = [
        json.dumps({"offset": first + id_, "timestamp": 0, "key": None, "value": _encoded(event), "headers": []})
        for id_, event in enumerate(_events(number))
    ]
    bucket, prefix = split_uri(folder)
    s3.put_object(
        Bucket=bucket,
        Key=f"{prefix}/{first:020d}.jsonl.gz",
        Body=gzip.compress("\n".join([*lines, ""]).encode()),
        Metadata={"next-offset": str(first + _KEYS)},
    )


def _encoded(event: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(event).encode()).decode()


def _events(number: int) -> Iterator[dict[str, Any]]:
    """A batch of Debezium's events: a snapshot's rows first, then inserts, updates and deletes in turn."""
    for id_ in range(_KEYS):
        op = "r" if number == 0 else "cud"[(id_ + number) % 3]
        row = {
            "id": id_,
            "note": f"note {number}",
            "number": number,
            "amount": f"{number}.50",
            "ratio": 0.5,
            "is_open": True,
            "day": 19_000,
            "at": "2024-02-29T12:00:00.000000Z",
            "document": json.dumps({"lines": [{"price": 12.5, "note": "a line"}, None]}),
        }
        source = {
            "schema": "public",
            "table": _SOURCE_TABLE,
            "lsn": 1000 * number + id_ + 1,
            "ts_us": 1_700_000_000_000_000,
            "snapshot": "true" if op == "r" else "false",
        }
        before = row if op in "ud" else None
        yield {"op": op, "before": before, "after": None if op == "d" else row, "source": source}


class _Stream(KinesisStream):
    """A stream whose only shard holds the ``number``-th batch."""

    def __init__(self, number: int) -> None:
        super().__init__(None, _SOURCE_TABLE, TRIM_HORIZON)
        self._number = number

    def read(self, cursor: object, most_bytes: int) -> tuple[list[Record], dict[str, int]]:
        """The batch, and the cursor after it."""
        records = _records(self._number)
        return records, {records[-1].shard: int(records[-1].sequence)}


def _records(number: int) -> list[Record]:
    """A batch of records as DynamoDB writes them: new items first, then new, changed and removed ones in turn."""
    return [Record(_record(number, id_), str(1000 * number + id_ + 1), "shardId-0") for id_ in range(_KEYS)]


def _record(number: int, id_: int) -> bytes:
    event = "INSERT" if number == 0 else ("INSERT", "MODIFY", "REMOVE")[(id_ + number) % 3]
    item = {
        "id": {"S": str(id_)},
        "note": {"S": f"note {number}"},
        "amount": {"N": f"{number}.5"},
        "is_open": {"BOOL": True},
        "tags": {"SS": ["one", "two"]},
        "more": {"M": {"of": {"L": [{"N": "1"}]}}},
    }
    images = {"NewImage": item} if event == "INSERT" else {"OldImage": item, "NewImage": item}
    if event == "REMOVE":
        del images["NewImage"]
    record = {
        "awsRegion": "",
        "eventID": f"{number}-{id_}",
        "eventName": event,
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": _SOURCE_TABLE,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000_000_000 + 1000 * number + id_,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
            "Keys": {"id": item["id"]},
            "SizeBytes": 100,
            **images,
        },
        "eventSource": "aws:dynamodb",
    }
    return json.dumps(record).encode()

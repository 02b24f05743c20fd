"""Warming up a writer of landing objects."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

from headwater.contract.model import POSTGRESQL
from headwater.lake.job import Job
from headwater.lake.landed_changes import LandedChanges
from headwater.lake.landing import Landing
from headwater.lake.s3_uri import split_uri
from headwater.lake.warm_up import COMMITS, KEYS, contract, scratch_table

_SCHEMA, _TABLE = "public", "warm_up"
_COLUMNS = {
    "id": ("bigint", "bigint"),
    "note": ("string", "text"),
    "number": ("int", "integer"),
    "amount": ("decimal(12,2)", "numeric(12,2)"),
    "ratio": ("double", "double precision"),
    "is_open": ("boolean", "boolean"),
    "day": ("date", "date"),
    "at": ("timestamp", "timestamp with time zone"),
    "lines": ("array<struct<price:decimal(12,4),note:string>>", "from document.lines"),
}


def warm_up(running: Job) -> None:
    """Warm up a job that commits landing objects. Raises what boto3 and Spark raise."""
    s3 = running.services.s3
    with scratch_table(running, contract(POSTGRESQL, f"{_SCHEMA}.{_TABLE}", _COLUMNS)) as scratch:
        landing = f"{scratch.uri}/landing"
        changes = LandedChanges(scratch.writer, Landing(s3, landing, _TABLE))
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            _land(s3, f"{landing}/{_TABLE}/0", number)
            changes.commit_next()


def _land(s3: Any, folder: str, number: int) -> None:
    """Put a landing object with the ``number``-th batch of changes, from 0."""
    first = number * KEYS
    lines = [
        json.dumps({"offset": first + id_, "timestamp": 0, "key": None, "value": _encoded(event), "headers": []})
        for id_, event in enumerate(_events(number))
    ]
    bucket, prefix = split_uri(folder)
    s3.put_object(
        Bucket=bucket,
        Key=f"{prefix}/{first:020d}.jsonl.gz",
        Body=gzip.compress("\n".join([*lines, ""]).encode()),
        Metadata={"next-offset": str(first + KEYS)},
    )


def _encoded(event: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(event).encode()).decode()


def _events(number: int) -> Iterator[dict[str, Any]]:
    """A batch of Debezium's events: a snapshot's rows first, then inserts, updates and deletes in turn."""
    for id_ in range(KEYS):
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
            "schema": _SCHEMA,
            "table": _TABLE,
            "lsn": 1000 * number + id_ + 1,
            "ts_us": 1_700_000_000_000_000,
            "snapshot": "true" if op == "r" else "false",
        }
        before = row if op in "ud" else None
        yield {"op": op, "before": before, "after": None if op == "d" else row, "source": source}

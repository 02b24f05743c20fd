"""Warms up a writer of landing objects."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

from headwater.contract.model import POSTGRESQL
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.job.loop import Job
from headwater.lake.job.warm_up import KEYS, TABLE, Scratch, commit_batches, scratch_contract
from headwater.lake.sources.landing import Landing

_SCHEMA = "public"
_COLUMNS = [
    {"name": "id", "type": "bigint", "source_type": "bigint"},
    {"name": "part", "type": "string", "source_type": "text"},
    {"name": "number", "type": "int", "source_type": "integer"},
    {"name": "amount", "type": "decimal(12,2)", "source_type": "numeric(12,2)"},
    {"name": "ratio", "type": "double", "source_type": "double precision"},
    {"name": "is_open", "type": "boolean", "source_type": "boolean"},
    {"name": "day", "type": "date", "source_type": "date"},
    {"name": "at", "type": "timestamp", "source_type": "timestamp with time zone"},
    {"name": "lines", "type": "array<struct<price:decimal(12,4),note:string>>", "from": "document.lines"},
]


def warm_up(running: Job) -> None:
    """Warm up a job that commits landing objects. Raises as ``commit_batches`` does."""

    def commit(scratch: Scratch, number: int) -> None:
        landing = f"{scratch.uri}/landing"
        _land(running.services.s3, f"{landing}/{TABLE}/0", number)
        LandedChanges(scratch.writer, Landing(running.services.s3, landing, TABLE)).commit_next()

    commit_batches(running, scratch_contract(POSTGRESQL, f"{_SCHEMA}.{TABLE}", _COLUMNS), commit)


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
            "part": f"part {id_ % 2}",
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
            "table": TABLE,
            "lsn": 1000 * number + id_ + 1,
            "ts_us": 1_700_000_000_000_000,
            "snapshot": "true" if op == "r" else "false",
        }
        before = row if op in "ud" else None
        yield {"op": op, "before": before, "after": None if op == "d" else row, "source": source}

"""Warms up a writer of a stream's records."""

from __future__ import annotations

import json
from typing import Any

from headwater.contract.model import DYNAMODB
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.job.warm_up import KEYS, TABLE, Scratch, commit_batches, scratch_contract
from headwater.lake.sources.kinesis import KinesisStream, Record

_CONTRACT = scratch_contract(
    DYNAMODB,
    TABLE,
    [
        {"name": "id", "type": "string", "source_type": "S"},
        {"name": "part", "type": "string", "source_type": "S"},
        {"name": "amount", "type": "decimal(12,2)", "source_type": "N"},
        {"name": "is_open", "type": "boolean", "source_type": "BOOL"},
        {"name": "tags", "type": "array<string>", "source_type": "SS"},
    ],
)


def warm_up(running: Job) -> None:
    """Warm up a job that reads streams. Raises as ``commit_batches`` does."""

    def commit(scratch: Scratch, number: int) -> None:
        StreamedChanges(scratch.writer, _Stream(number), TABLE).commit_next()

    commit_batches(running, _CONTRACT, commit)


class _Stream(KinesisStream):
    """A stream whose only shard has the ``number``-th batch."""

    def __init__(self, number: int) -> None:
        super().__init__(None, TABLE)
        self._number = number

    def read(self, cursor: object, most_bytes: int) -> tuple[list[Record], dict[str, int]]:
        """The batch, and the cursor after it."""
        records = _records(self._number)
        return records, {records[-1].shard: int(records[-1].sequence)}


def _records(number: int) -> list[Record]:
    """A batch of records as DynamoDB writes them: new items first, then new, changed and removed ones in turn."""
    return [Record(_record(number, id_), str(1000 * number + id_ + 1), "shardId-0") for id_ in range(KEYS)]


def _record(number: int, id_: int) -> bytes:
    event = "INSERT" if number == 0 else ("INSERT", "MODIFY", "REMOVE")[(id_ + number) % 3]
    item: dict[str, Any] = {
        "id": {"S": str(id_)},
        "part": {"S": f"part {id_ % 2}"},
        "amount": {"N": f"{number}.5"},
        "is_open": {"BOOL": True},
        "tags": {"SS": ["one", "two"]},
        "more": {"M": {"of": {"L": [{"N": "1"}]}}},
    }
    images = {"OldImage": event != "INSERT", "NewImage": event != "REMOVE"}
    record = {
        "awsRegion": "",
        "eventID": f"{number}-{id_}",
        "eventName": event,
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": TABLE,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000_000_000 + 1000 * number + id_,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
            "Keys": {"id": item["id"]},
            "SizeBytes": 100,
            **{name: item for name, is_there in images.items() if is_there},
        },
        "eventSource": "aws:dynamodb",
    }
    return json.dumps(record).encode()

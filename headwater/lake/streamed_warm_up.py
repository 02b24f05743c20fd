"""Warming up a writer of a stream's records."""

from __future__ import annotations

import json

from headwater.contract.model import DYNAMODB
from headwater.lake.job import Job
from headwater.lake.kinesis import TRIM_HORIZON, KinesisStream, Record
from headwater.lake.streamed_changes import StreamedChanges
from headwater.lake.warm_up import COMMITS, KEYS, contract, scratch_table

_TABLE = "warm_up"
_COLUMNS = {
    "id": ("string", "S"),
    "note": ("string", "S"),
    "amount": ("decimal(12,2)", "N"),
    "is_open": ("boolean", "BOOL"),
    "tags": ("array<string>", "SS"),
}


def of_api(running: Job) -> None:
    """Warm up a job that reads streams through the Kinesis API. Raises what boto3 and Spark raise."""
    with scratch_table(running, contract(DYNAMODB, _TABLE, _COLUMNS)) as scratch:
        changes = StreamedChanges(scratch.writer, _TABLE)
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            changes.commit_read(_Stream(number))


def of_glue(running: Job) -> None:
    """Warm up a job that gets micro-batches of Structured Streaming. Raises what boto3 and Spark raise."""
    with scratch_table(running, contract(DYNAMODB, _TABLE, _COLUMNS)) as scratch:
        changes = StreamedChanges(scratch.writer, _TABLE)
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            records = [(record.data, record.sequence, record.shard) for record in _records(number)]
            frame = running.spark.createDataFrame(records, "data binary, sequenceNumber string, shardId string")
            changes.commit_frame(frame, number)


class _Stream(KinesisStream):
    """A stream whose only shard holds the ``number``-th batch."""

    def __init__(self, number: int) -> None:
        super().__init__(None, _TABLE, TRIM_HORIZON)
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
        "tableName": _TABLE,
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

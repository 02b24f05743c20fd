"""A process that relays a table's stream in DynamoDB Local to Kinesis, like DynamoDB's own Kinesis destination.

DynamoDB Local has no such destination. This process reads the table's stream and puts the same JSON records to Kinesis:

- the same fields in the same order; UTF-8 unescaped; binary values as base64;
- ``SizeBytes`` over keys and images;
- ``userIdentity`` null, or the identity of DynamoDB's time to live;
- no record above Kinesis's limit of 1 MB.

It is test equipment. It differs from the real destination in these points:

- ``ApproximateCreationDateTime``: the stream of DynamoDB Local has only the minute of a change, but the real
  destination has its moment. The relay gives a record the latest of three times. They are the minute, the moment of
  its last request that found the stream's end, and one microsecond after the record before. So times grow strictly
  in the stream's order and are never later than the change. They are early by the time between two requests, about a
  tenth of a second. For changes made while the relay was not running, they are early by up to a minute. Freshness that
  is computed from them looks worse than it is, never better.
- The partition key is the MD5 of the item's key, as 32 hexadecimal digits. The real key has as many digits and is also
  the same for each record of an item. AWS does not publish its algorithm.
- The relay keeps the order of changes and puts each record once, unless it is killed. Two options make it misbehave as
  the real destination may. ``--repeated`` is the share of records that it puts twice. ``--delayed`` is the share that
  it puts late, after other changes of their item and in another batch.
- The relay performs DynamoDB's time to live too, because DynamoDB Local needs minutes for a table of a thousand items.
  Its deletes carry the same user identity as DynamoDB Local's.
- Numbers are as the client wrote them; DynamoDB normalizes them.

**Nothing is lost, and a repeated record is the same record.** The relay saves the records that it has read before it
puts them, with their times and the position in the stream. After the put it removes them from the file. After a kill it
puts again the records that may not have been put: the same bytes, with the same ``eventID``.
"""

import argparse
import base64
import hashlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import ClientError

from headwater.waiting import PATIENCE_SECONDS, wait_until
from rig.local import aws
from rig.local.dynamodb_local import DynamoDbLocal
from rig.local.processes import Part, Process, Program, occurrences

POLL_SECONDS = 0.1
SWEEP_SECONDS = 2.0
# The longest time for which a record is held back, to be put late or a second time.
DISORDER_SECONDS = 2.0
# One GetRecords of DynamoDB Streams returns at most this many records. DynamoDB Local does not limit their bytes.
READ_LIMIT = 1000
# Limits of Kinesis's PutRecords: records in a request, bytes of a request, bytes of a record with its partition key.
PUT_RECORDS = 500
PUT_BYTES = 5 * 2**20
RECORD_BYTES = 2**20
# DynamoDB does not delete an item that expired longer ago, because it takes such a time for a mistake.
OLDEST_EXPIRY_SECONDS = 5 * 365 * 24 * 3600
TTL_IDENTITY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}
READY = b"carrying the changes of"
DROPPED = b"dropped a record"

logger = logging.getLogger("relay")


@dataclass(frozen=True)
class Misbehaviour:
    """The misbehaviour of a relay; the default is none."""

    repeated: float = 0
    """The share of records that it puts twice, 0 to 1."""
    delayed: float = 0
    """The share of records that it puts late, 0 to 1."""


ORDERLY = Misbehaviour()


@dataclass(frozen=True)
class Outgoing:
    """A Kinesis record that has not been put yet."""

    due: float
    """The earliest time of its put, in epoch seconds."""
    key: str
    """The partition key."""
    data: str
    """The record's JSON."""


@dataclass
class Checkpoint:
    """The state from which a relay resumes after a crash."""

    last: int = 0
    """The newest record's time in microseconds."""
    positions: dict[str, str] = field(default_factory=dict)
    """The last sequence number read, by shard."""
    finished: list[str] = field(default_factory=list)
    """The shards that are read to their ends."""
    outbox: list[Outgoing] = field(default_factory=list)
    """The records that were read and may not have been put."""
    expiring: dict[str, str] = field(default_factory=dict)
    """The expiry of each item that the relay has deleted and whose deletion it has not read yet, by partition key."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a checkpoint from its file; without the file, return the checkpoint of the stream's beginning."""
        if not path.exists():
            return cls()
        saved = json.loads(path.read_text())
        return cls(**{**saved, "outbox": [Outgoing(**record) for record in saved["outbox"]]})

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(path)


class Relay(Part):
    """A process that relays a table to a Kinesis stream, by default the stream with the table's name.

    Both exist already.

    ``folder`` takes the checkpoint and the log: a relay that is started again over the same folder resumes there. The
    table has a stream of new and old images. ``kinesis`` is the URL of the Kinesis API, which accepts the credentials
    of ``dynamodb`` too.
    """

    def __init__(
        self,
        folder: Path,
        dynamodb: DynamoDbLocal,
        kinesis: str,
        table: str,
        misbehaviour: Misbehaviour = ORDERLY,
        stream: str | None = None,
    ) -> None:
        super().__init__(folder)
        self.name = f"the relay of {table} from DynamoDB to Kinesis"
        self.dynamodb = dynamodb
        self.kinesis = kinesis
        self.table = table
        self.stream = stream or table
        self.misbehaviour = misbehaviour
        self._told = occurrences(self._log, DROPPED)

    def age(self) -> float:
        """Return the age in seconds of the oldest change that is not in the Kinesis stream.

        The age is as exact as the change's known time; 0 without such a change.
        """
        checkpoint = Checkpoint.read(self._checkpoint)
        times = [json.loads(record.data)["dynamodb"]["ApproximateCreationDateTime"] for record in checkpoint.outbox]
        times += [micros for _, micros in self._unread(checkpoint)]
        return max(0.0, time.time() - min(times) / 1_000_000) if times else 0.0

    def newly_dropped(self) -> int:
        """Return how many records were dropped since the last call."""
        dropped = occurrences(self._log, DROPPED)
        newly, self._told = dropped - self._told, dropped
        return newly

    def behind(self) -> int:
        """Return a lower bound of the remaining records: expired items, unread changes, and records not put yet."""
        # In the order in which a change passes these places, so that none is missed on its way.
        waiting = len(expired(self._tables, self.table))
        checkpoint = Checkpoint.read(self._checkpoint)
        return waiting + len(self._unread(checkpoint)) + len(checkpoint.outbox)

    def _unread(self, checkpoint: Checkpoint) -> list[tuple[dict[str, Any], int]]:
        """The next changes after a checkpoint, each with its time."""
        return Reader(self._streams, stream_arn(self._tables, self.table), checkpoint).read()

    def await_caught_up(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until every change made so far is in the Kinesis stream, and every item expired so far is deleted.

        Raises ``ProcessError`` if the relay has died. ``patience`` means the same as in ``wait_until``, which raises
        ``StuckError``.
        """

        def caught_up() -> bool:
            self.check()
            return self.behind() == 0

        wait_until(f"{self.name} to relay all changes", caught_up, self._progress, patience=patience)

    def _progress(self) -> dict[str, object]:
        return {"left": self.behind(), "read up to": Checkpoint.read(self._checkpoint).positions}

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    @property
    def _log(self) -> Path:
        return self.folder / "relay.log"

    @cached_property
    def _tables(self) -> Any:
        return self.dynamodb.client("dynamodb")

    @cached_property
    def _streams(self) -> Any:
        return self.dynamodb.client("dynamodbstreams")

    def _prepare(self) -> Process:
        begun = occurrences(self._log, READY)
        options = {
            "--dynamodb": self.dynamodb.endpoint,
            "--kinesis": self.kinesis,
            "--table": self.table,
            "--stream": self.stream,
            "--checkpoint": str(self._checkpoint),
            "--repeated": str(self.misbehaviour.repeated),
            "--delayed": str(self.misbehaviour.delayed),
        }
        program = Program(
            self.name,
            [sys.executable, "-m", "rig.local.relay", *(part for pair in options.items() for part in pair)],
            self._log,
            env=aws.environment(self.dynamodb.credentials),
        )
        return Process(program, ready=lambda: occurrences(self._log, READY) > begun)


class Reader:
    """Reads a table's stream from a checkpoint on, parents before their children, and gives each record its time."""

    def __init__(self, streams: Any, arn: str, checkpoint: Checkpoint, clock: Callable[[], float] = time.time) -> None:
        self._streams = streams
        self._arn = arn
        self._checkpoint = checkpoint
        self._clock = clock
        self._open: list[str] | None = None
        self._iterators: dict[str, str] = {}
        # The moment of the last request that found a shard's end, by shard, in microseconds.
        self._seen: dict[str, int] = {}

    def read(self) -> list[tuple[dict[str, Any], int]]:
        """Return the next records of DynamoDB Streams, each with its time, and advance the checkpoint."""
        while True:
            if self._open is None:
                self._open = self._readable()
            shards = self._open
            records = [record for shard in shards for record in self._read(shard)]
            # When a shard has ended, its children may hold records.
            if records or not shards or self._open is not None:
                return records

    def _readable(self) -> list[str]:
        """Return the unfinished shards whose parent is finished or gone."""
        shards: list[dict[str, Any]] = []
        request: dict[str, str] = {"StreamArn": self._arn}
        while True:
            description = self._streams.describe_stream(**request)["StreamDescription"]
            shards += description["Shards"]
            if "LastEvaluatedShardId" not in description:
                break
            request["ExclusiveStartShardId"] = description["LastEvaluatedShardId"]
        unfinished = {shard["ShardId"] for shard in shards} - set(self._checkpoint.finished)
        return [
            shard["ShardId"]
            for shard in shards
            if shard["ShardId"] in unfinished and shard.get("ParentShardId") not in unfinished
        ]

    def _read(self, shard: str) -> list[tuple[dict[str, Any], int]]:
        asked = int(self._clock() * 1_000_000)
        try:
            answer = self._streams.get_records(ShardIterator=self._iterator(shard), Limit=READ_LIMIT)
        except ClientError as error:
            if not self._can_begin_anew(error, shard):
                raise
            del self._iterators[shard]
            return []
        records = [(record, self._time(record, shard)) for record in answer["Records"]]
        if records:
            self._checkpoint.positions[shard] = records[-1][0]["dynamodb"]["SequenceNumber"]
        # A short answer shows that the shard had no more records at the time of the request.
        if len(records) < READ_LIMIT:
            self._seen[shard] = asked
        if "NextShardIterator" in answer:
            self._iterators[shard] = answer["NextShardIterator"]
        else:
            self._checkpoint.finished.append(shard)
            self._open = None
        return records

    def _can_begin_anew(self, error: ClientError, shard: str) -> bool:
        """Whether a new iterator of a shard can read on after this error.

        Sequence numbers of DynamoDB Local grow over all tables. So an iterator of an empty shard lies before the
        shard's oldest record once another table has changed, and counts as trimmed.
        """
        code = error.response["Error"]["Code"]
        unread = shard not in self._checkpoint.positions
        return code == "ExpiredIteratorException" or (code == "TrimmedDataAccessException" and unread)

    def _iterator(self, shard: str) -> str:
        if shard not in self._iterators:
            position = self._checkpoint.positions.get(shard)
            start = (
                {"ShardIteratorType": "TRIM_HORIZON"}
                if position is None
                else {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position}
            )
            answer = self._streams.get_shard_iterator(StreamArn=self._arn, ShardId=shard, **start)
            self._iterators[shard] = answer["ShardIterator"]
        return self._iterators[shard]

    def _time(self, record: Mapping[str, Any], shard: str) -> int:
        told = int(record["dynamodb"]["ApproximateCreationDateTime"].timestamp()) * 1_000_000
        self._checkpoint.last = max(self._checkpoint.last + 1, told, self._seen.get(shard, 0))
        return self._checkpoint.last


@dataclass(frozen=True)
class Route:
    """Source and target of the records."""

    dynamodb: Any
    """The boto3 client of DynamoDB."""
    kinesis: Any
    """The boto3 client of Kinesis."""
    table: str
    """The name of the table."""
    stream: str
    """The name of the Kinesis stream."""


class Carrier:
    """A relay at work: it reads records, saves them, puts them and removes them from the checkpoint.

    ``reader`` reads the table's stream into ``checkpoint``, which is saved in the file ``path``.
    """

    def __init__(
        self,
        reader: Reader,
        route: Route,
        checkpoint: Checkpoint,
        path: Path,
        misbehaviour: Misbehaviour = ORDERLY,
    ) -> None:
        self._reader = reader
        self._dynamodb = route.dynamodb
        self._kinesis = route.kinesis
        self._table = route.table
        self._stream = route.stream
        self._checkpoint = checkpoint
        self._path = path
        self._misbehaviour = misbehaviour
        self._rng = random.Random()  # noqa: S311 - disorder, not a secret
        # The partition keys of items that ``sweep`` has deleted, until their deletions are read from the stream. A new
        # item with such a key waits.
        self._begun: set[str] = set()

    def carry(self) -> int:
        """Relay the present records. Return how many were read, and how many were put."""
        checkpoint = self._checkpoint
        records = self._reader.read()
        # Save the records that were read before any is put.
        for record, micros in records:
            key = partition_key(record["dynamodb"]["Keys"])
            data = kinesis_data(record, self._table, micros, by_ttl=self._by_ttl(record, key))
            if len(data.encode()) + len(key) > RECORD_BYTES:
                logger.warning("%s above Kinesis's limit, as DynamoDB does: %s", DROPPED.decode(), record["eventID"])
            else:
                checkpoint.outbox.append(Outgoing(self._due(self._misbehaviour.delayed), key, data))
        if records:
            checkpoint.write(self._path)
        # Put the records that are due, and keep those that Kinesis refused.
        now = time.time()
        due = sorted((record for record in checkpoint.outbox if record.due <= now), key=lambda record: record.due)
        if due:
            checkpoint.outbox = [record for record in checkpoint.outbox if record.due > now] + self._put(due)
            checkpoint.write(self._path)
        return len(records) + len(due)

    def sweep(self) -> None:
        """Delete the items that have expired, as DynamoDB's time to live does."""
        items = {partition_key(item.key): item for item in expired(self._dynamodb, self._table)}
        items = {key: item for key, item in items.items() if key not in self._begun}
        if not items:
            return
        # Saved before the deletion, so that its record is recognized even after a crash in between.
        self._checkpoint.expiring.update({key: item.expiry for key, item in items.items()})
        self._checkpoint.write(self._path)
        for key, item in items.items():
            try:
                self._dynamodb.delete_item(
                    TableName=self._table,
                    Key=item.key,
                    ConditionExpression="#expiry = :expiry",
                    ExpressionAttributeNames={"#expiry": item.attribute},
                    ExpressionAttributeValues={":expiry": {"N": item.expiry}},
                )
                self._begun.add(key)
            except self._dynamodb.exceptions.ConditionalCheckFailedException:
                # A client was faster: it deleted the item or changed its expiry.
                del self._checkpoint.expiring[key]
        self._checkpoint.write(self._path)

    def _by_ttl(self, record: Mapping[str, Any], key: str) -> bool:
        """Return whether a record is a deletion by ``sweep``, and remove that deletion from the checkpoint."""
        if record["eventName"] != "REMOVE":
            return False
        self._begun.discard(key)
        return self._checkpoint.expiring.pop(key, None) is not None

    def _due(self, share: float) -> float:
        """The earliest time of a record's put: 0 for most records, within the next seconds for the late share."""
        return time.time() + self._rng.uniform(0, DISORDER_SECONDS) if self._rng.random() < share else 0.0

    def _put(self, records: Sequence[Outgoing]) -> list[Outgoing]:
        """Put records, and return those that Kinesis refused."""
        again: list[Outgoing] = []
        for batch in batches(records):
            entries = [{"Data": record.data.encode(), "PartitionKey": record.key} for record in batch]
            answer = self._kinesis.put_records(StreamName=self._stream, Records=entries)
            for record, result in zip(batch, answer["Records"], strict=True):
                due = 0.0 if "ErrorCode" in result else self._due(self._misbehaviour.repeated)
                if due or "ErrorCode" in result:
                    again.append(Outgoing(due, record.key, record.data))
        return again


def stream_arn(dynamodb: Any, table: str) -> str:
    """Return the ARN of a table's stream."""
    return str(dynamodb.describe_table(TableName=table)["Table"]["LatestStreamArn"])


@dataclass(frozen=True)
class ExpiredItem:
    """An expired item to delete."""

    key: dict[str, Any]
    """The item's key, in DynamoDB's JSON."""
    attribute: str
    """The attribute that holds its expiry."""
    expiry: str
    """The number in that attribute."""


def expired(dynamodb: Any, table: str) -> list[ExpiredItem]:
    """Return the expired items of a table; none if the table has no time to live."""
    ttl = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    if ttl["TimeToLiveStatus"] != "ENABLED":
        return []
    attribute = ttl["AttributeName"]
    schema = [key["AttributeName"] for key in dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]]
    names = {f"#k{number}": name for number, name in enumerate(schema)} | {"#expiry": attribute}
    now = int(time.time())
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table,
        ProjectionExpression=", ".join(names),
        # Like DynamoDB, a comparison with a number skips items whose attribute is not a number.
        FilterExpression="#expiry BETWEEN :oldest AND :newest",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues={":oldest": {"N": str(now - OLDEST_EXPIRY_SECONDS)}, ":newest": {"N": str(now - 1)}},
    )
    return [
        ExpiredItem({name: item[name] for name in schema}, attribute, item[attribute]["N"])
        for page in pages
        for item in page["Items"]
    ]


def partition_key(keys: Mapping[str, Any]) -> str:
    """Return the Kinesis partition key of an item's records, from its key attributes."""
    return hashlib.md5(_json(dict(sorted(keys.items()))).encode(), usedforsecurity=False).hexdigest().upper()


def kinesis_data(record: Mapping[str, Any], table: str, micros: int, *, by_ttl: bool = False) -> str:
    """Return the data of the Kinesis record for a change.

    ``record`` is the change as boto3 returns it from DynamoDB Streams, ``micros`` its time in microseconds since 1970.
    ``by_ttl`` gives it the user identity of DynamoDB's time to live, whatever the stream says.
    """
    change = record["dynamodb"]
    images = {name: change[name] for name in ("NewImage", "OldImage") if name in change}
    return _json(
        {
            "awsRegion": aws.REGION,
            "eventID": record["eventID"],
            "eventName": record["eventName"],
            "userIdentity": TTL_IDENTITY if by_ttl else _identity(record),
            "recordFormat": "application/json",
            "tableName": table,
            "dynamodb": {
                "ApproximateCreationDateTime": micros,
                "Keys": change["Keys"],
                **images,
                "SizeBytes": change["SizeBytes"],
                "ApproximateCreationDateTimePrecision": "MICROSECOND",
            },
            "eventSource": "aws:dynamodb",
        }
    )


def batches(records: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Divide records into requests within the limits of PutRecords."""
    requests: list[list[Outgoing]] = []
    room = 0
    for record in records:
        size = len(record.data.encode()) + len(record.key)
        if size > room or len(requests[-1]) == PUT_RECORDS:
            requests.append([])
            room = PUT_BYTES
        requests[-1].append(record)
        room -= size
    return requests


def main(arguments: Sequence[str] | None = None) -> None:
    """Relay records until the process is ended."""
    parser = argparse.ArgumentParser(description="Relay a table's stream to a Kinesis stream")
    for option in ("--dynamodb", "--kinesis", "--table", "--stream"):
        parser.add_argument(option, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--repeated", type=float, default=0)
    parser.add_argument("--delayed", type=float, default=0)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)

    route = Route(
        aws.client("dynamodb", options.dynamodb, os.environ),
        aws.client("kinesis", options.kinesis, os.environ),
        options.table,
        options.stream,
    )
    checkpoint = Checkpoint.read(options.checkpoint)
    arn = stream_arn(route.dynamodb, route.table)
    reader = Reader(aws.client("dynamodbstreams", options.dynamodb, os.environ), arn, checkpoint)
    misbehaviour = Misbehaviour(options.repeated, options.delayed)
    carrier = Carrier(reader, route, checkpoint, options.checkpoint, misbehaviour)
    logger.info("%s %s", READY.decode(), route.table)
    next_sweep = 0.0
    while True:
        begun = time.monotonic()
        if begun >= next_sweep:
            carrier.sweep()
            # A scan of a large table takes long, so scans get at most a twentieth of the time.
            next_sweep = begun + max(SWEEP_SECONDS, 20 * (time.monotonic() - begun))
        if carrier.carry() < READ_LIMIT:
            time.sleep(POLL_SECONDS)


def _identity(record: Mapping[str, Any]) -> dict[str, str] | None:
    identity = record.get("userIdentity")
    return identity and {"principalId": identity["PrincipalId"], "type": identity["Type"]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_text)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"found {type(value).__name__}, expected a DynamoDB value")


if __name__ == "__main__":
    main()

"""Carries the stream of a table in DynamoDB Local to a Kinesis stream, as DynamoDB's own Kinesis destination does.

DynamoDB Local has no such destination. This process reads the table's stream and puts the same JSON records to Kinesis:
the same fields in the same order, UTF-8 as it is, binary values as base64, ``SizeBytes`` over keys and images,
``userIdentity`` null or that of DynamoDB's time to live, and no record above Kinesis's limit of 1 MB. It is test
equipment. What differs from the real destination:

- ``ApproximateCreationDateTime``: the stream of DynamoDB Local tells the minute of a change. A record gets the latest
  microsecond at which it is known not to have happened yet: when the last request that found the stream's end was
  sent, or the minute, or one microsecond after the record before it, whichever is latest. So times grow strictly in the
  stream's order, and lie before the change by as much as two requests are apart: about a tenth of a second, and up to a
  minute for what happened while the relay was not running. Freshness that is reckoned from them looks worse than it is,
  never better. The real destination tells when the change was made.
- The partition key is the MD5 of the item's key, as 32 digits. The real one also has 32 hexadecimal digits, the same
  for each record of an item, but how they are made is not published.
- It keeps the order of changes and puts each record once, unless it is killed, or told to misbehave as the real one
  may: ``--repeated`` and ``--delayed`` are the shares of records that are put twice, and that come late, after other
  changes of their item and in another batch.
- It plays DynamoDB's time to live too, because DynamoDB Local needs minutes for a table of a thousand items. What it
  deletes itself carries the same user identity as what DynamoDB Local deletes.
- Numbers are as the client wrote them; DynamoDB brings them to one form.

**Nothing is lost, and nothing changes when it is repeated.** Records read are saved, with their times, together with
the position in the stream before they are put, and crossed out after. A relay that was killed puts again what it
cannot know to have been put: the same bytes, with the same ``eventID``.
"""

import argparse
import base64
import hashlib
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import ClientError

from headwater.local import aws
from headwater.local.dynamodb_local import DynamoDb
from headwater.local.processes import Part, Process, occurrences, wait_until

POLL_SECONDS = 0.1
SWEEP_SECONDS = 2.0
# The longest that a record is held back to be late, or to be put again.
DISORDER_SECONDS = 2.0
# As many records as one GetRecords of DynamoDB Streams returns at most. DynamoDB Local has no limit by bytes.
READ_LIMIT = 1000
# Limits of Kinesis's PutRecords: records in a request, bytes of a request, bytes of a record with its partition key.
PUT_RECORDS = 500
PUT_BYTES = 5 * 2**20
RECORD_BYTES = 2**20
# DynamoDB lets an item live that expired longer ago, taking its time for a mistake.
OLDEST_EXPIRY_SECONDS = 5 * 365 * 24 * 3600
TTL_IDENTITY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}
READY = b"carrying the changes of"

logger = logging.getLogger("relay")


@dataclass(frozen=True)
class Outgoing:
    """A Kinesis record that is still to be put: not before `due`, in epoch seconds."""

    due: float
    key: str
    data: str


@dataclass
class Checkpoint:
    """What a relay must know after a crash.

    `last` is the newest record's time in microseconds, `positions` the last sequence number read of each shard,
    `finished` names shards that are read to their ends, `outbox` are records read and not surely put, and `expiring`
    holds, by partition key, the expiry of each item whose deletion was begun here and is not yet read from the stream.
    """

    last: int = 0
    positions: dict[str, str] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    outbox: list[Outgoing] = field(default_factory=list)
    expiring: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file; without one, it is the beginning."""
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
    """A relay between a table and a Kinesis stream, both of which exist, as a process of its own.

    Parameters
    ----------
    folder
        Takes its checkpoint and log. A relay that is started again over the same folder goes on where it was.
    dynamodb
        Where the table is; it has a stream of new and old images.
    kinesis
        The URL of the Kinesis API.
    table, stream
        Their names.
    repeated, delayed
        The shares of records, 0 to 1, that are put twice and that are put late.
    """

    name = "the relay from DynamoDB to Kinesis"

    def __init__(
        self,
        folder: Path,
        dynamodb: DynamoDb,
        kinesis: str,
        table: str,
        stream: str,
        *,
        repeated: float = 0,
        delayed: float = 0,
    ) -> None:
        super().__init__(folder)
        self.dynamodb = dynamodb
        self.kinesis = kinesis
        self.table = table
        self.stream = stream
        self.repeated = repeated
        self.delayed = delayed

    def behind(self) -> int:
        """Return how many records are at least still to come: changes not read, records not put, items expired."""
        # In the order of their way, so that none is missed on its move from one to the next.
        waiting = len(expired(self._tables, self.table))
        checkpoint = Checkpoint.read(self._checkpoint)
        arn = stream_arn(self._tables, self.table)
        return waiting + len(Reader(self._streams, arn, checkpoint).read()) + len(checkpoint.outbox)

    def await_caught_up(self, timeout: float = 60) -> None:
        """Wait until every change made so far is in the Kinesis stream, and every item expired so far is deleted.

        Raises `ProcessError` when the relay has died, or after `timeout` seconds.
        """

        def caught_up() -> bool:
            self.check()
            return self.behind() == 0

        wait_until("the relay to carry all changes", caught_up, timeout)

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    @cached_property
    def _tables(self) -> Any:
        return self.dynamodb.client("dynamodb")

    @cached_property
    def _streams(self) -> Any:
        return self.dynamodb.client("dynamodbstreams")

    def _prepare(self) -> Process:
        log = self.folder / "relay.log"
        begun = occurrences(log, READY)
        options = {
            "--dynamodb": self.dynamodb.endpoint,
            "--kinesis": self.kinesis,
            "--table": self.table,
            "--stream": self.stream,
            "--checkpoint": str(self._checkpoint),
            "--repeated": str(self.repeated),
            "--delayed": str(self.delayed),
        }
        return Process(
            self.name,
            [sys.executable, "-m", "headwater.local.relay", *(part for pair in options.items() for part in pair)],
            log,
            env=aws.environment(),
            ready=lambda: occurrences(log, READY) > begun,
        )


class Reader:
    """Reads a table's stream on from a checkpoint, parents before their children, and gives each record its time."""

    def __init__(self, streams: Any, arn: str, checkpoint: Checkpoint, clock: Callable[[], float] = time.time) -> None:
        self._streams = streams
        self._arn = arn
        self._checkpoint = checkpoint
        self._clock = clock
        self._open: list[str] | None = None
        self._iterators: dict[str, str] = {}
        # When a shard was last seen to its end: in microseconds, the moment at which that was asked.
        self._seen: dict[str, int] = {}

    def read(self) -> list[tuple[dict[str, Any], int]]:
        """Return the next records as DynamoDB Streams gives them, each with its time, and move the checkpoint on."""
        while True:
            if self._open is None:
                self._open = self._readable()
            shards = self._open
            records = [record for shard in shards for record in self._read(shard)]
            # A shard at its end may have left records to its children.
            if records or not shards or self._open is not None:
                return records

    def _readable(self) -> list[str]:
        """Return the shards that are not finished and whose parent is, or is gone."""
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
            if error.response["Error"]["Code"] != "ExpiredIteratorException":
                raise
            del self._iterators[shard]
            return []
        records = [(record, self._time(record, shard)) for record in answer["Records"]]
        if records:
            self._checkpoint.positions[shard] = records[-1][0]["dynamodb"]["SequenceNumber"]
        if len(records) < READ_LIMIT:
            self._seen[shard] = asked
        if "NextShardIterator" in answer:
            self._iterators[shard] = answer["NextShardIterator"]
        else:
            self._checkpoint.finished.append(shard)
            self._open = None
        return records

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


class Carrier:
    """One relay at work: reads, saves, puts, crosses out.

    Parameters
    ----------
    reader
        Reads the table's stream into `checkpoint`.
    dynamodb, kinesis
        boto3 clients.
    table, stream
        Their names.
    checkpoint, path
        Where the relay is, and the file that it is saved in.
    repeated, delayed
        As in `Relay`.
    """

    def __init__(
        self,
        reader: Reader,
        dynamodb: Any,
        kinesis: Any,
        table: str,
        stream: str,
        checkpoint: Checkpoint,
        path: Path,
        *,
        repeated: float = 0,
        delayed: float = 0,
    ) -> None:
        self._reader = reader
        self._dynamodb = dynamodb
        self._kinesis = kinesis
        self._table = table
        self._stream = stream
        self._checkpoint = checkpoint
        self._path = path
        self._repeated = repeated
        self._delayed = delayed
        self._rng = random.Random()  # noqa: S311 - disorder, not a secret
        # Items deleted by `sweep` whose deletion is not read yet: one of the same key that is there again can wait.
        self._begun: set[str] = set()

    def carry(self) -> int:
        """Carry what is there now, and return how many records were read and put."""
        checkpoint = self._checkpoint
        records = self._reader.read()
        for record, micros in records:
            key = partition_key(record["dynamodb"]["Keys"])
            data = kinesis_data(record, self._table, micros, by_ttl=self._by_ttl(record, key))
            if len(data.encode()) + len(key) > RECORD_BYTES:
                logger.warning("dropped a record above Kinesis's limit, as DynamoDB does: %s", record["eventID"])
            else:
                checkpoint.outbox.append(Outgoing(self._due(self._delayed), key, data))
        if records:
            checkpoint.write(self._path)
        now = time.time()
        due = sorted((record for record in checkpoint.outbox if record.due <= now), key=lambda record: record.due)
        if due:
            checkpoint.outbox = [record for record in checkpoint.outbox if record.due > now] + self._put(due)
            checkpoint.write(self._path)
        return len(records) + len(due)

    def sweep(self) -> None:
        """Delete the items that have expired, as DynamoDB's time to live does."""
        found = {partition_key(item.key): item for item in expired(self._dynamodb, self._table)}
        found = {key: item for key, item in found.items() if key not in self._begun}
        if not found:
            return
        # Before the deletion, so that its record is recognized even after a crash in between.
        self._checkpoint.expiring.update({key: item.expiry for key, item in found.items()})
        self._checkpoint.write(self._path)
        for key, item in found.items():
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
                # A client was faster: it deleted the item, or gave it more time.
                del self._checkpoint.expiring[key]
        self._checkpoint.write(self._path)

    def _by_ttl(self, record: Mapping[str, Any], key: str) -> bool:
        """Return whether a record is a deletion of `sweep`'s, and forget that one."""
        if record["eventName"] != "REMOVE":
            return False
        self._begun.discard(key)
        return self._checkpoint.expiring.pop(key, None) is not None

    def _due(self, share: float) -> float:
        """Return 0 or, for a share of records, a moment in the next seconds."""
        return time.time() + self._rng.uniform(0, DISORDER_SECONDS) if self._rng.random() < share else 0.0

    def _put(self, records: Sequence[Outgoing]) -> list[Outgoing]:
        """Put records, and return those that are to be put again."""
        again: list[Outgoing] = []
        for batch in batches(records):
            entries = [{"Data": record.data.encode(), "PartitionKey": record.key} for record in batch]
            answer = self._kinesis.put_records(StreamName=self._stream, Records=entries)
            for record, result in zip(batch, answer["Records"], strict=True):
                due = 0.0 if "ErrorCode" in result else self._due(self._repeated)
                if due or "ErrorCode" in result:
                    again.append(Outgoing(due, record.key, record.data))
        return again


def stream_arn(dynamodb: Any, table: str) -> str:
    """Return the ARN of a table's stream."""
    return str(dynamodb.describe_table(TableName=table)["Table"]["LatestStreamArn"])


@dataclass(frozen=True)
class ExpiredItem:
    """An item to be deleted: its key, and the attribute that holds its expiry, with the number there."""

    key: dict[str, Any]
    attribute: str
    expiry: str


def expired(dynamodb: Any, table: str) -> list[ExpiredItem]:
    """Return the items of a table that have expired; none when it has no time to live."""
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
        # A comparison with a number passes over items whose attribute is none, as DynamoDB does.
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
    """Return a Kinesis record's data.

    Parameters
    ----------
    record
        A record as boto3 returns it from DynamoDB Streams.
    table
        The table's name.
    micros
        The change's time in microseconds since 1970.
    by_ttl
        Give it the user identity of DynamoDB's time to live, whatever the stream says.
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
    """Cut records into requests that PutRecords takes."""
    found: list[list[Outgoing]] = []
    room = 0
    for record in records:
        size = len(record.data.encode()) + len(record.key)
        if size > room or len(found[-1]) == PUT_RECORDS:
            found.append([])
            room = PUT_BYTES
        found[-1].append(record)
        room -= size
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry until the process is ended."""
    parser = argparse.ArgumentParser(description="Carry a table's stream to a Kinesis stream")
    for option in ("--dynamodb", "--kinesis", "--table", "--stream"):
        parser.add_argument(option, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--repeated", type=float, default=0)
    parser.add_argument("--delayed", type=float, default=0)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)

    dynamodb = aws.client("dynamodb", options.dynamodb)
    arn = stream_arn(dynamodb, options.table)
    checkpoint = Checkpoint.read(options.checkpoint)
    carrier = Carrier(
        Reader(aws.client("dynamodbstreams", options.dynamodb), arn, checkpoint),
        dynamodb,
        aws.client("kinesis", options.kinesis),
        options.table,
        options.stream,
        checkpoint,
        options.checkpoint,
        repeated=options.repeated,
        delayed=options.delayed,
    )
    logger.info("%s %s to %s", READY.decode(), options.table, options.stream)
    next_sweep = 0.0
    while True:
        begun = time.monotonic()
        if begun >= next_sweep:
            carrier.sweep()
            # A large table takes long to look through: not more than a twentieth of the time.
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

"""A DynamoDB table's stream and exports, and the writer of its lake table, for tests that speak in items."""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import io
import itertools
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headwater.contract.reading import parse_contract
from headwater.lake.base.progress import Progress
from headwater.lake.decoding.decoded_frame import decoded_frame, spread
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records, kept_decoder
from headwater.lake.decoding.usual_items import UsualItems
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.requests import backfill, replay
from headwater.lake.requests.protocol import Request, Requests, Status
from headwater.lake.requests.requested_work import MakeWork, RequestedWork
from headwater.lake.sources.kinesis import KinesisStream, Record, ShardCursor
from headwater.lake.sources.scanned_export import Item, write_export
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake.table.writer import TableWriter, WriterServices, WriterSettings
from headwater.verify import read_lake, s3_options
from rig.local.aws import REGION, AwsApi
from tests.lake.pipeline import BUCKET, HASH_KEY, Leases

SOURCE = "headwater-test-accounts"
MASK_KEY = b"0123456789abcdef0123456789abcdef"
ARN = f"arn:aws:dynamodb:{REGION}:123456789012:table/{SOURCE}"
CONTRACT = """
table: accounts
description: A table of the tests.
source: {database: dynamodb, table: headwater-accounts}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: string, source_type: S}
  - {name: month, type: string, source_type: S, from: registered, transform: month}
  - {name: name, type: string, source_type: S}
  - {name: balance, type: "decimal(12,2)", source_type: N}
"""


def item(
    id_: str, registered: str = "2024-01-31", name: str = "Ann", balance: str = "1.5"
) -> dict[str, dict[str, str]]:
    """An item of the source table."""
    return {"id": {"S": id_}, "registered": {"S": registered}, "name": {"S": name}, "balance": {"N": balance}}


def change(micros: int, old: Item | None, new: Item | None) -> str:
    """A change as DynamoDB's Kinesis destination writes it: INSERT without an old image, REMOVE without a new one."""
    image = new or old
    assert image is not None
    images = {name: value for name, value in (("NewImage", new), ("OldImage", old)) if value is not None}
    event = "MODIFY" if len(images) == 2 else "INSERT" if old is None else "REMOVE"
    return json.dumps(
        {
            "awsRegion": REGION,
            "eventID": f"{micros}-{image['id']['S']}",
            "eventName": event,
            "userIdentity": None,
            "recordFormat": "application/json",
            "tableName": SOURCE,
            "dynamodb": {
                "ApproximateCreationDateTime": micros,
                "Keys": {"id": image["id"]},
                **images,
                "SizeBytes": 100,
                "ApproximateCreationDateTimePrecision": "MICROSECOND",
            },
            "eventSource": "aws:dynamodb",
        }
    )


class _Given(KinesisStream):
    """A stream that holds these records, and keeps the cursor as it is."""

    def __init__(self, records: Sequence[tuple[str, str]]) -> None:
        super().__init__(None, "given")
        self._records = [Record(data.encode(), sequence, "shard") for data, sequence in records]

    def read(self, cursor: ShardCursor, most_bytes: int) -> tuple[list[Record], dict[str, int]]:
        return self._records, dict(cursor)


class Accounts:
    """One lake table, the changes streamed to it and the exports that it has requests to load."""

    writer: TableWriter

    def __init__(self, spark: SparkSession, aws: AwsApi, prefix: str, contract: str = CONTRACT, epoch: int = 1) -> None:
        self.s3 = aws.client("s3")
        self.lake = f"s3://{BUCKET}/{prefix}/lake"
        self.requests = Requests(self.s3, self.lake, "accounts")
        self.events: list[dict[str, Any]] = []
        self.leases = Leases(self.s3, f"{self.lake}/_leases/accounts.json")
        self._spark = spark
        self.contract = parse_contract(contract, "accounts.yaml")
        self._glue = aws.client("glue")
        self.storage = s3_options(REGION, aws.s3_endpoint, *aws.credentials.values())
        self._prefix = prefix
        self._tokens = itertools.count()
        self._sequence = itertools.count()
        self._database = prefix.replace("-", "_")
        self._glue.create_database(DatabaseInput={"Name": self._database})
        self._glue.create_table(
            DatabaseName=self._database,
            TableInput={
                "Name": "accounts",
                "PartitionKeys": [{"Name": "month", "Type": "string"}],
                "StorageDescriptor": {"Location": f"{self.lake}/accounts", "Columns": []},
            },
        )
        self.start(epoch)

    def start(
        self, epoch: int = 1, batch_bytes: int = 1, *, is_streaming: bool = False, max_bad_share: float = 0.01
    ) -> None:
        """Start a new job, whose state comes from the lake. By default every data file is a commit of its own.
        ``is_streaming`` notes that streaming began, as the job does."""
        settings = WriterSettings(
            f"{self.lake}/_quarantine",
            epoch=epoch,
            batch_bytes=batch_bytes,
            max_bad_share=max_bad_share,
            mask_key=MASK_KEY,
            hash_key=lambda: HASH_KEY,
        )
        table = HudiTable(self._spark, self.contract, self.lake, 2)
        if hasattr(self, "writer"):
            self.writer.close()
        self._epoch = epoch
        self.writer = TableWriter(table, self.leases.take(), self._services(), settings)
        if is_streaming:
            self.writer.note_streaming_start()
        kept = partial(kept_decoder, self.contract, SOURCE, MASK_KEY)
        kinds: dict[str, MakeWork] = {
            "backfill": partial(backfill.work, self.writer, SOURCE),
            "replay": partial(replay.work, self.writer, kept),
        }
        self._requested = RequestedWork(self.writer, self.requests, kinds, poll_seconds=0)

    def job(self, options: argparse.Namespace, epoch: int = 1) -> Job:
        """A new job of the table for the shipped script."""
        settings = WriterSettings(f"{self.lake}/_quarantine", epoch=epoch, mask_key=MASK_KEY, hash_key=lambda: HASH_KEY)
        leases: Any = self.leases
        return Job([self.contract], leases, self._spark, self._services(), settings, options, threading.Event())

    def _services(self) -> WriterServices:
        return WriterServices(self.s3, Catalog(self._glue, self._database), self.events.append)

    def changes(self, stream: KinesisStream) -> StreamedChanges:
        """The part of the job that commits a stream's records."""
        return StreamedChanges(self.writer, stream, SOURCE)

    def progress(self) -> Progress:
        """The progress of the last commit."""
        return self.writer.progress

    def commit(self, records: Sequence[tuple[str, str]], *, by_executors: bool = False) -> None:
        """Commit records, each its data and its sequence number, as one batch of the driver or of executors."""
        if not by_executors:
            self.changes(_Given(records)).commit_next()
            return
        streamed = [(data.encode(), sequence, f"shard/{sequence}") for data, sequence in records]
        progress = self.progress()
        usual = UsualItems(self._spark, self.contract, progress.epoch, progress.purged, SOURCE, MASK_KEY)
        batch = usual.frame(spread(self._spark, streamed, 2))
        self.writer.commit(batch, "shard", lambda last: last, usual.careful_frame)

    def stream(self, *changes: str, since: int | None = None) -> None:
        """Commit changes of the stream. ``since`` is when streaming began, if the job records that with this commit."""
        decoder = DynamoDecoder(self.contract, self._epoch, SOURCE, MASK_KEY)
        records = [(data, f"{next(self._sequence):056d}", "shard/0") for data in changes]
        rows = spread(self._spark, list(decode_records(iter(records), decoder)), 1)
        batch = decoded_frame(self._spark, self.contract, rows)
        self.writer.commit(batch, "stream", lambda last: last if since is None else replace(last, since=since))

    def export(self, time: int, *files: Sequence[Item], arn: str = ARN) -> str:
        """Write an export of the state at a time, in microseconds, and return its address."""
        moment = dt.datetime.fromtimestamp(time / 10**6, dt.UTC)
        return write_export(self.s3, arn, files, moment, f"s3://{BUCKET}/{self._prefix}")

    def ask(self, uri: str, **details: Any) -> str:
        """Request an export, and return its id."""
        export_id = uri.rpartition("/")[2]
        request = Request(f"token {next(self._tokens)}", {"export": uri, **details})
        self.requests.put(f"backfill/{export_id}", request)
        return export_id

    def commit_next(self) -> bool:
        """Let the job commit the next part of the requested work. Returns whether there was any."""
        return self._requested.commit_next()

    def drain(self) -> None:
        """Let the job do all requested work."""
        while self.commit_next():
            pass

    def load(self, uri: str, **details: Any) -> Status:
        """Request an export, drain, and return the job's answer."""
        export_id = self.ask(uri, **details)
        self.drain()
        return self.status(export_id)

    def status(self, export_id: str) -> Status:
        """The job's answer to the request of an export."""
        status = self.requests.status(f"backfill/{export_id}")
        assert status is not None, "the job has not answered"
        return status

    def commits(self) -> int:
        """How many commits were made."""
        return len([event for event in self.events if event["event"] == "commit"])

    def stored(self) -> list[dict[str, Any]]:
        """All rows of the table with tombstones, read by hudi-rs."""
        batches = list(read_lake(f"{self.lake}/accounts", self.storage))
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist() if batches else []
        (partition,) = self.contract.partition_by
        return sorted(rows, key=lambda row: (row["id"], row[partition] or ""))

    def contents(self) -> list[bytes]:
        """The objects of the lake, also those beside the table; Parquet as its rows' text."""
        found = []
        prefix = self.lake.removeprefix(f"s3://{BUCKET}/") + "/"
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            for entry in page.get("Contents", ()):
                body = self.s3.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
                found.append(gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body)
                if entry["Key"].endswith(".parquet"):
                    found.append(repr(pq.read_table(io.BytesIO(body)).to_pylist()).encode())
        return found

    def alive(self) -> list[tuple[str, str, str]]:
        """Id, month and name of the rows that are not tombstones."""
        return [(row["id"], row["month"], row["name"]) for row in self.stored() if not row["_deleted"]]

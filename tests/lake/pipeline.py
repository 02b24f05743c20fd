"""A landing bucket and a writer of one table, for tests that speak in changes."""

from __future__ import annotations

import argparse
import base64
import gzip
import itertools
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.contract.reading import parse_contract
from headwater.lake.base.lease import Lease
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.job.loop import Job
from headwater.lake.sources.landing import Landing
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake.table.writer import TableWriter, WriterServices, WriterSettings
from headwater.verify import read_lake, s3_options
from rig.local.aws import REGION, AwsApi

BUCKET = "headwater-test"
HASH_KEY = b"a key of hashes, which is for tests only"

CONTRACT = """
table: accounts
description: A table of the tests.
source: {database: postgresql, table: shop.accounts}
key: [id]
partition_by: [month]
buckets: 2
columns:
  - {name: id, type: int, source_type: integer}
  - {name: month, type: string, source_type: text}
  - {name: name, type: string, source_type: text}
  - {name: balance, type: "decimal(12,2)", source_type: "numeric(12,2)"}
  - {name: lines, type: "array<struct<price:decimal(12,4),note:string>>", from: payload.lines}
"""


def event(
    op: str,
    lsn: int,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    snapshot: str = "false",
) -> dict[str, Any]:
    """A change event as Debezium writes it without schemas."""
    source = {"schema": "shop", "table": "accounts", "lsn": lsn, "ts_us": 1_700_000_000_000_000 + lsn}
    return {"op": op, "before": before, "after": after, "source": {**source, "snapshot": snapshot}}


def account(id_: int, name: str = "Ann", month: str = "2024-01", balance: str = "1.50") -> dict[str, Any]:
    """A row of the source table."""
    lines = [{"price": 12.5, "note": name}, None, {"price": None, "note": None}]
    return {"id": id_, "month": month, "name": name, "balance": balance, "payload": json.dumps({"lines": lines})}


class Landed(NamedTuple):
    """A record of the topic."""

    value: Any
    """An event, bytes as they are, or None for a tombstone."""
    key: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int = 0


class Leases:
    """The lease of a table, held by its newest writer. A new writer begins when the last one has ended."""

    _TTL = 3600.0

    def __init__(self, s3: Any, uri: str) -> None:
        self._s3 = s3
        self._uri = uri
        self._writers = itertools.count()
        self._passed = 0.0
        self._held: Lease | None = None

    def take(self, _table: str = "accounts") -> Lease:
        """The lease of a new writer."""
        if self._held is not None:
            self._held.release()
        return self._new()

    def take_over(self) -> None:
        """Let time pass until the lease has run out, and another writer take it."""
        self._passed += self._TTL + 1
        self._new()

    def _new(self) -> Lease:
        lease = Lease(self._s3, self._uri, f"test {next(self._writers)}", self._TTL, lambda: time.time() + self._passed)
        lease.acquire(0, threading.Event())
        self._held = lease
        return lease


class Pipeline:
    """Lands events as the sink would and runs the writer over them."""

    def __init__(self, spark: SparkSession, aws: AwsApi, prefix: str, bucket: str = BUCKET) -> None:
        self.spark = spark
        self.s3 = aws.client("s3")
        glue = self.glue = aws.client("glue")
        self.contract = parse_contract(CONTRACT, "accounts.yaml")
        self.landing = f"s3://{bucket}/{prefix}/landing"
        self.lake = f"s3://{bucket}/{prefix}/lake"
        self.database = prefix.replace("-", "_")
        self.events: list[dict[str, Any]] = []
        self.storage = s3_options(REGION, aws.s3_endpoint, *aws.credentials.values())
        self._bucket = bucket
        self.prefix = prefix
        self._next: dict[int, int] = {}
        self._writer: TableWriter | None = None
        self.leases = Leases(self.s3, f"{self.lake}/_leases/accounts.json")
        glue.create_database(DatabaseInput={"Name": self.database})
        glue.create_table(
            DatabaseName=self.database,
            TableInput={
                "Name": "accounts",
                "PartitionKeys": [{"Name": "month", "Type": "string"}],
                "StorageDescriptor": {"Location": f"{self.lake}/accounts", "Columns": []},
            },
        )

    def land(self, *values: Any, partition: int = 0) -> str:
        """Land values (events, or bytes as they are) as one object of the topic's partition; returns its key."""
        return self.land_records([Landed(value) for value in values], partition)

    def land_records(self, records: Sequence[Landed], partition: int) -> str:
        """Land records as one object of the topic's partition; returns its key."""
        first = self._next.get(partition, 0)
        lines = []
        for offset, record in enumerate(records, first):
            value = record.value
            raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            line = {"offset": offset, "timestamp": 0, "key": _encoded(record.key), "value": _encoded(raw)}
            lines.append(json.dumps({**line, "headers": record.headers}, separators=(",", ":")))
        self._next[partition] = first + len(records)
        key = f"{self.prefix}/landing/headwater.shop.accounts/{partition}/{first:020d}.jsonl.gz"
        self.s3.put_object(
            Bucket=self._bucket,
            Key=key,
            Body=gzip.compress("".join(line + "\n" for line in lines).encode()),
            Metadata={"next-offset": str(first + len(records))},
        )
        return key

    def next_offset(self, offset: int, partition: int = 0) -> None:
        """Let what lands next begin at that offset."""
        self._next[partition] = offset

    def writer(self, lease: Lease | None = None, **settings: Any) -> LandedChanges:
        """A writer as a new process has it: all that it knows comes from the lake. It takes the lease from the writer
        before, unless a lease is passed in."""
        chosen = WriterSettings(**{"quarantine": f"{self.lake}/_quarantine", "hash_key": lambda: HASH_KEY, **settings})
        landing = Landing(self.s3, self.landing, "headwater.shop.accounts")
        if self._writer is not None:
            self._writer.close()
        self._writer = TableWriter(self.table(), lease or self.leases.take(), self._services(), chosen)
        return LandedChanges(self._writer, landing)

    def job(self, options: argparse.Namespace, **chosen: Any) -> Job:
        """A new job of the table for the shipped script."""
        settings = WriterSettings(**{"quarantine": f"{self.lake}/_quarantine", "hash_key": lambda: HASH_KEY, **chosen})
        leases: Any = self.leases
        return Job([self.contract], leases, self.spark, self._services(), settings, options, threading.Event())

    def _services(self) -> WriterServices:
        return WriterServices(self.s3, Catalog(self.glue, self.database), self.events.append)

    def table(self) -> HudiTable:
        """The table as a writer opens it."""
        return HudiTable(self.spark, self.contract, self.lake, 2)

    def drain(self, **settings: Any) -> None:
        """Start a writer and let it commit all that has landed, to the end of its last compaction."""
        changes = self.writer(**settings)
        while changes.commit_next():
            pass
        changes.writer.settle()

    def stored(self) -> list[dict[str, Any]]:
        """All rows of the table with tombstones, read by hudi-rs."""
        batches = list(read_lake(f"{self.lake}/accounts", self.storage))
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist() if batches else []
        return sorted(rows, key=lambda row: (row["id"], row["month"] or ""))

    def alive(self) -> list[dict[str, Any]]:
        """The rows that are not tombstones, in the form of the source's rows."""
        rows = [row for row in self.stored() if not row["_deleted"]]
        for row in rows:
            first = {"price": Decimal("12.5000"), "note": row["name"]}
            assert row["lines"] == [first, None, {"price": None, "note": None}]
        return [account(row["id"], row["name"], row["month"], str(row["balance"])) for row in rows]


def in_epoch(number: int) -> tuple[tuple[str, str], ...]:
    """The headers of records that the source connector reads in that epoch."""
    return () if number == 1 else (("headwater.epoch", base64.b64encode(str(number).encode()).decode()),)


def _encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def partitions(glue: Any, database: str) -> set[str]:
    """The partition values that the catalog holds."""
    pages: Iterable[Any] = glue.get_paginator("get_partitions").paginate(DatabaseName=database, TableName="accounts")
    return {partition["Values"][0] for page in pages for partition in page["Partitions"]}

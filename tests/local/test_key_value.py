"""The key-value pipeline on real local parts, with records repeated and late, a reshard and kills in mid-batch."""

from __future__ import annotations

import itertools
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.contract.model import History, lake_tables
from headwater.contract.reading import parse_contract, read_contract
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.local.aws import REGION, AwsApi
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import LAKE, LAKE_BUCKET, create_lake
from rig.local.relay import Misbehaviour
from rig.samples import dynamodb_tables, items_workload
from rig.samples.paced_workers import WorkloadPlan, WorkloadProgress
from tests.background import going_on
from tests.commits_in_flight import kill_within
from tests.lake_folders import lake_folder

ACCOUNTS = "headwater-accounts"
CHANGES = 3_000
SECONDS = 200.0
# A second table, of another shape: its key has a number, and it is partitioned by an attribute as it is.
DEVICES = """
table: devices
description: One row per device.
source: {database: dynamodb, table: headwater-devices}
key: [owner, number]
partition_by: [kind]
buckets: 1
columns:
  - {name: owner, type: string, source_type: S, from: ownerId}
  - {name: number, type: bigint, source_type: N}
  - {name: kind, type: string, source_type: S}
  - {name: position, type: "struct<lat:decimal(9,6),lon:decimal(9,6)>", source_type: M}
  - {name: city, type: string, source_type: S, from: home.city}
  - {name: readings, type: "array<decimal(12,4)>", source_type: NS}
  - {name: seen_at, type: timestamp, source_type: S, from: seenAt}
  - {name: seen_month, type: string, source_type: S, from: seenAt, transform: month}
  - {name: seen_hour, type: string, source_type: S, from: seenAt, transform: hour}
  - {name: shelf, type: int, source_type: N, from: number, transform: bucket(3)}
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyValuePipeline]:
    folder = tmp_path_factory.mktemp("key_value")
    with_history = replace(read_contract(EXAMPLE.contracts / "accounts.yaml"), history=History(keep_days=1))
    contracts = [with_history, parse_contract(DEVICES, "devices.yaml")]
    with AwsApi(folder / "aws") as aws_api:
        create_lake(aws_api, contracts)
        with KeyValuePipeline(folder, contracts, aws_api, Misbehaviour(repeated=0.2, delayed=0.2)) as pipeline:
            pipeline.start_source()
            for contract, scale in zip(contracts, (0.2, 0.04), strict=True):
                dynamodb_tables.fill(pipeline.client(), contract, scale, seed=7)
            pipeline.start_writer()
            pipeline.drain()
            yield pipeline


def split(pipeline: KeyValuePipeline) -> None:
    """Split the stream's first open shard in the middle."""
    kinesis = pipeline.aws.client("kinesis")
    shards = kinesis.list_shards(StreamName=ACCOUNTS)["Shards"]
    shard = next(shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"])
    first, last = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    middle = str((first + last) // 2)
    kinesis.split_shard(StreamName=ACCOUNTS, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)


def test_the_lake_equals_the_table_after_kills_and_a_reshard_with_records_repeated_and_late(
    pipeline: KeyValuePipeline,
) -> None:
    former = made = 0
    # What a repair has ended or read again, no change has.
    repaired = unlike_history(pipeline)

    def count(now: WorkloadProgress) -> None:
        nonlocal made
        made = former + now.changes

    def change(stop: threading.Event) -> None:
        """Change items in one round after another."""
        nonlocal former
        for seed in itertools.count(3):
            if stop.is_set():
                return
            plan = WorkloadPlan(SECONDS, CHANGES, workers=2, seed=seed)
            former += items_workload.run(pipeline.client, pipeline.contracts[0], plan, count, stop).changes

    def await_more() -> None:
        enough = made + 50
        wait_until("more changes", lambda: made >= enough, lambda: made)

    with going_on(change):
        await_more()
        kill_within(pipeline, "accounts")
        split(pipeline)
        await_more()
        kill_within(pipeline, "accounts")
    pipeline.drain()
    assert [table for table in pipeline.verify() if not table.equal] == []
    shards = [source for source in pipeline.events.cursor() if source.startswith(f"{ACCOUNTS}/")]
    assert len(shards) == 4, "the new shards were not read"
    assert unlike_history(pipeline) <= repaired
    changes = orders_by_item(pipeline, "accounts_changes")
    assert [item for item, orders in changes.items() if len(set(orders)) < len(orders)] == []
    assert sum(map(len, changes.values())) > len(changes) + former // 2


def unlike_history(pipeline: KeyValuePipeline) -> set[tuple[tuple[str, str], str | None, str | None]]:
    """The items whose newest row is another one in the table than in its history, each with the orders of both."""
    tables = (orders_by_item(pipeline, table) for table in ("accounts", "accounts_changes"))
    table, history = ({item: max(orders) for item, orders in of.items()} for of in tables)
    newest = {(item, table.get(item), history.get(item)) for item in table.keys() | history.keys()}
    return {(item, in_table, in_history) for item, in_table, in_history in newest if in_table != in_history}


def orders_by_item(pipeline: KeyValuePipeline, table: str) -> dict[tuple[str, str], list[str]]:
    """The orders of an item's rows in a table of the lake."""
    (contract,) = (each for each in lake_tables(pipeline.contracts) if each.table == table)
    orders: dict[tuple[str, str], list[str]] = {}
    for batch in pipeline.lake().table(contract):
        for row in batch.select(["id", "cust_name", "_order"]).to_pylist():
            orders.setdefault((row["id"], row["cust_name"]), []).append(row["_order"])
    return orders


def test_each_contract_has_a_table_of_its_own_that_changes_reach(pipeline: KeyValuePipeline) -> None:
    _, devices = pipeline.contracts
    described = pipeline.client().describe_table(TableName="headwater-devices")["Table"]
    assert described["KeySchema"] == [
        {"AttributeName": "ownerId", "KeyType": "HASH"},
        {"AttributeName": "number", "KeyType": "RANGE"},
    ]
    summary = items_workload.run(pipeline.client, devices, WorkloadPlan(seconds=2, changes=60, workers=2, seed=5))
    assert set(summary.by_kind) == set(items_workload.kinds_of(devices))
    pipeline.drain()
    accounts_table, devices_table = pipeline.verify()
    assert accounts_table.equal
    assert devices_table.equal
    of = summary.by_kind
    assert devices_table.source_rows == 40 + of["put"] - of["delete"] + (8 - 4) * of["batch_write"]
    quarantined = [event for event in pipeline.events.update() if event["event"] == "quarantine"]
    assert quarantined == []


def test_a_row_that_the_source_does_not_have_goes_by_a_repair(
    pipeline: KeyValuePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pipeline.aws.credentials.items():
        monkeypatch.setenv(name, value)
    for name, text in (("accounts", (EXAMPLE.contracts / "accounts.yaml").read_text()), ("devices", DEVICES)):
        (tmp_path / f"{name}.yaml").write_text(text)
    (item,) = pipeline.client().scan(TableName=ACCOUNTS, Limit=1)["Items"]
    put_change(pipeline, ACCOUNTS, {**item, "id": {"S": "a ghost"}}, int(time.time()) - 3600)
    pipeline.drain()
    assert [table.extra for table in pipeline.verify()] == [1, 0]
    verify = [
        "verify",
        "--lake",
        LAKE,
        "--folder",
        str(lake_folder(tmp_path / "lake", tmp_path).root),
        "--endpoint",
        pipeline.aws.s3_endpoint,
    ]
    verify += ["--dynamodb-endpoint", pipeline.dynamodb.endpoint, "--region", REGION, "--repair"]
    repaired = CliRunner().invoke(app, verify)
    assert repaired.exit_code == 1, repaired.output
    assert re.search(r"accounts id = a ghost, cust_name = .*: extra", repaired.stdout)
    assert "Requested: " in repaired.stdout
    assert "headwater-devices" not in repaired.stdout
    assert [table for table in pipeline.verify() if not table.equal] == []
    s3 = pipeline.aws.client("s3")
    assert "Contents" not in s3.list_objects_v2(Bucket=LAKE_BUCKET, Prefix="exports/_resync/")


def put_change(pipeline: KeyValuePipeline, table: str, item: dict[str, Any], seconds: int) -> None:
    """Put an item's first change of that time, in seconds since 1970, into the stream of a table that does not have the
    item."""
    described = pipeline.client().describe_table(TableName=table)["Table"]
    change = {
        "ApproximateCreationDateTime": seconds * 1_000_000,
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
        "Keys": {key["AttributeName"]: item[key["AttributeName"]] for key in described["KeySchema"]},
        "NewImage": item,
        "SizeBytes": 100,
    }
    record = {
        "awsRegion": REGION,
        "eventID": str(uuid.uuid4()),
        "eventName": "INSERT",
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": table,
        "dynamodb": change,
        "eventSource": "aws:dynamodb",
    }
    pipeline.aws.client("kinesis").put_record(StreamName=table, Data=msgspec.json.encode(record), PartitionKey="ghost")

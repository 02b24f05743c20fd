"""Both pipelines lose their lake, their landing objects, and all records in Kafka and Kinesis: one command reads all
tables into empty buckets."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.console import say
from headwater.contract.model import of_database
from headwater.contract.reading import read_contracts
from headwater.definitions import connectors
from headwater.lake_folder import EXAMPLE
from headwater.waiting import wait_until
from rig.local.aws import REGION
from rig.local.key_value import KeyValuePipeline
from rig.local.pipeline import DATABASE, LAKE, LAKE_BUCKET, LANDING_BUCKET, Pipeline
from rig.samples import dynamodb_tables, orders
from rig.samples.loading import load_folder
from tests.kafka_groups import delete_before

pytestmark = pytest.mark.drill
SCALE = 2.0


def test_a_lake_is_read_into_empty_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contracts = read_contracts(EXAMPLE.contracts)
    orders.generate(SCALE, 1, tmp_path / "data")
    with Pipeline(tmp_path / "relational", contracts) as relational:
        relational.start(lambda text: nullcontext(), lambda owner: _load(owner, tmp_path / "data"))
        with KeyValuePipeline(tmp_path / "key_value", contracts, relational.aws) as key_value:
            key_value.start_source()
            for contract in key_value.contracts:
                dynamodb_tables.fill(key_value.client(), contract, SCALE, 1)
            key_value.start_writer()
            relational.drain()
            key_value.drain()

            def differing() -> list[str]:
                return [table.name for table in [*relational.verify(), *key_value.verify()] if not table.equal]

            assert differing() == []
            lose_all(relational, key_value)
            assert sorted(differing()) == sorted(contract.table for contract in contracts)
            started = time.monotonic()
            restart(relational, key_value)
            read_all(relational, key_value, monkeypatch)
            wait_until("the lake to be as the sources", lambda: differing() == [], differing, poll=2)
            rows = sum(table.lake_rows for table in [*relational.verify(), *key_value.verify()])
            with capsys.disabled():
                say(f"{rows:,} rows of {len(contracts)} tables in {time.monotonic() - started:.0f} s")


def _load(owner: psycopg.Connection, folder: Path) -> None:
    load_folder(owner, folder)


def lose_all(relational: Pipeline, key_value: KeyValuePipeline) -> None:
    """End the writers and the sink, and empty the buckets, but for the contracts, the topics and the streams."""
    relational.writer.kill()
    key_value.writer.kill()
    relational.connect.delete(connectors.sink_name(relational.settings))
    s3 = relational.aws.client("s3")
    for bucket, prefix in ((LANDING_BUCKET, ""), (LAKE_BUCKET, "lake/")):
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for entry in page.get("Contents", ()):
                s3.delete_object(Bucket=bucket, Key=entry["Key"])
    topics = connectors.table_topics(relational.contracts, relational.settings)
    for (topic, partition), end in relational.broker.ends(topics).items():
        delete_before(relational.broker, topic, partition, end)
    kinesis = relational.aws.client("kinesis")
    for source in key_value.tables.values():
        kinesis.delete_stream(StreamName=source.name)
        kinesis.create_stream(StreamName=source.name, ShardCount=1)
        kinesis.get_waiter("stream_exists").wait(StreamName=source.name, WaiterConfig={"Delay": 1})


def restart(relational: Pipeline, key_value: KeyValuePipeline) -> None:
    """Start what ``lose_all`` ended."""
    relational.connect.put(*connectors.sink_connector(relational.contracts, relational.settings))
    relational.start_writer()
    before = len(key_value.events.update())
    key_value.start_writer()
    # What is read earlier than the job streams, the job refuses.
    wait_until("the job to stream", lambda: "idle" in {event["event"] for event in key_value.events.update()[before:]})


def read_all(relational: Pipeline, key_value: KeyValuePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``headwater resync --all``."""
    monkeypatch.setenv("HEADWATER_DB_PASSWORD", relational.postgres.password)
    for name, value in relational.aws.credentials.items():
        monkeypatch.setenv(name, value)
    database = ["--host", relational.postgres.host, "--port", str(relational.postgres.port), "--database", DATABASE]
    lake = ["--lake", LAKE, "--endpoint", relational.aws.s3_endpoint, "--region", REGION]
    given = ["resync", "--all", *database, *lake, "--dynamodb-endpoint", key_value.dynamodb.endpoint]
    asked = CliRunner().invoke(app, given)
    assert asked.exit_code == 0, (asked.output, asked.exception)
    assert len(of_database(read_contracts(EXAMPLE.contracts), "dynamodb")) == asked.stdout.count("Done: ")

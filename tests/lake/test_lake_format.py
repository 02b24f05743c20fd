"""What the shipped code stores has the form that ``reviewed/lake_format.yaml`` gives the lake's format."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from pyspark.sql import SparkSession

from headwater.lake.decoding.debezium_decoder import order
from headwater.lake.requests import (
    backfill_requests,
    copy_requests,
    expire_requests,
    fill_requests,
    forget_requests,
    replay_requests,
)
from headwater.lake.requests.forget_requests import Forgotten
from headwater.lake.requests.replay_requests import Choice
from headwater.lake.sources.kinesis import KinesisStream
from headwater.lake.sources.scanned_export import write_export
from headwater.lake.table import writer
from rig.local.aws import AwsApi
from tests.kinesis_api import ARN, Kinesis
from tests.lake import accounts
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import BUCKET, Pipeline, account, event
from tests.lake.test_copy_backfill import Copies
from tests.lake.test_replay import Aside, drain, step_options, step_work
from tests.lake_format import GATE, collected, merged, reviewed

NOW = 1_769_860_800_000_000


def test_a_relational_table_is_stored_in_the_reviewed_form(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2)), b"no json")
    pipeline.land(event("t", 12), event("c", 13, after=account(3)), event("c", 14, after=account(4)))
    step = step_work(pipeline.job(step_options(pipeline)), pipeline.contract)
    drain(step)
    aside, copies = Aside(pipeline.s3, pipeline.lake), Copies(pipeline)
    requests = copies.requests
    copy_requests.ask(requests, copies.make([account(3)], lsn=20))
    replay_requests.ask(requests, Choice(tuple(aside.names())))
    fill_requests.ask(requests)
    expire_requests.ask(requests)
    drain(step)
    forget_requests.ask(requests, Forgotten({"id": "3"}, order(1, 20, 20, snapshot=False)))
    # The writer removes this request when it answers.
    asked = collected(pipeline.s3, BUCKET, pipeline.prefix)
    drain(step)
    # The next commit is Spark's, as those of many rows are.
    monkeypatch.setattr(writer, "_FEW_ROWS", 0)
    pipeline.land(event("c", 30, after=account(5)))
    pipeline.drain(held_bytes=0)
    assert merged(asked, collected(pipeline.s3, BUCKET, pipeline.prefix)) == reviewed("relational"), GATE


def test_a_key_value_table_is_stored_in_the_reviewed_form(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> None:
    prefix = f"k-{uuid.uuid4().hex[:8]}"
    table = Accounts(spark, aws_api, prefix)
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", change(NOW, None, item("1")), "no json")
    table.changes(KinesisStream(kinesis, ARN)).commit_next()
    moment = dt.datetime.fromtimestamp(NOW // 10**6 + 1, dt.UTC)
    target = f"s3://{BUCKET}/{prefix}"
    export = write_export(table.s3, accounts.ARN, [[{"id": {"S": "2"}}]], moment, target, lambda: moment)
    backfill_requests.ask(table.s3, table.requests, export, whole=False)
    table.drain()
    assert collected(table.s3, BUCKET, prefix) == reviewed("key-value"), GATE

"""The Glue job's script over a stream of four shards, on two executors in processes of their own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.contract.reading import parse_contract
from headwater.paths import ROOT
from headwater.verify import read_lake
from rig.local import spark
from rig.local.aws import AwsApi
from rig.local.pipeline import GLUE_DATABASE, LAKE, LAKE_BUCKET, create_lake, local_lake
from rig.local.spark import SparkJob
from tests.lake.accounts import CONTRACT, SOURCE, change, item

START = 1_769_860_800_000_000
ITEMS = 4_000
NAME_BYTES = 3_000
"""With these two the stream holds more than the driver decodes."""


@pytest.fixture
def aws_api(tmp_path: Path) -> Iterator[AwsApi]:
    with AwsApi(tmp_path / "aws") as aws_api:
        create_lake(aws_api, [parse_contract(CONTRACT, "accounts.yaml")])
        aws_api.client("kinesis").create_stream(StreamName=SOURCE, ShardCount=4)
        yield aws_api


def fill(aws_api: AwsApi) -> None:
    """Put a change of each item into the stream."""
    kinesis = aws_api.client("kinesis")
    for first in range(0, ITEMS, 400):
        records = [
            {"Data": change(START + at, None, item(f"{at:04d}", name="n" * NAME_BYTES)), "PartitionKey": str(at)}
            for at in range(first, first + 400)
        ]
        assert kinesis.put_records(StreamName=SOURCE, Records=records)["FailedRecordCount"] == 0


def drain(aws_api: AwsApi, folder: Path) -> list[dict[str, Any]]:
    """Run the job on two executors until the stream is read, and return Spark's events of its tasks."""
    arguments = [
        f"--contract=s3://{LAKE_BUCKET}/contracts/accounts.json",
        f"--stream-arn=accounts=arn:aws:kinesis:eu-central-1:123456789012:stream/{SOURCE}",
        f"--source-table=accounts={SOURCE}",
        f"--lake={LAKE}",
        f"--database={GLUE_DATABASE}",
        "--once",
    ]
    (folder / "spark-events").mkdir()
    script = ROOT / "glue_scripts" / "write_hudi.py"
    job = SparkJob(script, arguments, "the Glue job's script", "1g", executors=2, events=folder / "spark-events")
    with spark.submit(job, folder / "run", aws_api) as run:
        assert run.wait() == 0
    (log,) = (folder / "spark-events").iterdir()
    events = map(json.loads, log.read_text().splitlines())
    return [event for event in events if event["Event"] == "SparkListenerTaskEnd"]


def rows_of(task: dict[str, Any]) -> list[int]:
    """How many rows the operators of a task's plan gave."""
    counted = task["Task Info"]["Accumulables"]
    return [int(metric["Update"]) for metric in counted if metric["Name"] == "number of output rows"]


def test_four_shards_are_read_and_decoded_by_both_executors(aws_api: AwsApi, tmp_path: Path) -> None:
    fill(aws_api)
    tasks = drain(aws_api, tmp_path)
    rows = pa.Table.from_batches(list(read_lake(f"{LAKE}/accounts", local_lake(aws_api).storage)))
    assert rows.num_rows == ITEMS
    of_shards = [task for task in tasks if task["Stage ID"] == 0]
    assert len(of_shards) == 4
    by_executor: Counter[str] = Counter()
    for task in of_shards:
        # What the task read from its shard, and what it decoded.
        read, decoded = rows_of(task)
        assert read == decoded > 0
        by_executor[task["Task Info"]["Executor ID"]] += decoded
        assert task["Task Metrics"]["Executor CPU Time"] > 0
    assert set(by_executor) == {"0", "1"}
    assert by_executor.total() == ITEMS

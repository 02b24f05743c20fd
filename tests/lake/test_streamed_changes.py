"""Structured Streaming's way into a table, as on Glue: micro-batches of raw records with a checkpoint."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import UserError
from headwater.local.aws import AwsApi
from tests.lake.accounts import SOURCE, Accounts, change, item

RAW = "$json$data_infer_schema$_temporary$"
START = 1_769_860_800_000_000


@pytest.fixture
def accounts(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Accounts:
    return Accounts(spark, aws_api, f"s-{uuid.uuid4().hex[:8]}")


def batch(spark: SparkSession, *changes: str) -> DataFrame:
    """Records as Glue's Kinesis source hands them over when it is not to parse them."""
    return spark.createDataFrame([(data,) for data in changes], f"`{RAW}` string")


FIRST = change(START, None, item("1"))
MOVED = change(START + 1, item("1"), item("1", "2024-06-30", name="Bea"))
GONE = change(START + 3, item("2"), None)


def test_a_repeated_batch_changes_nothing_even_with_more_records_than_before(
    spark: SparkSession, accounts: Accounts
) -> None:
    changes = accounts.changes()
    changes.commit_frame(batch(spark, FIRST, MOVED), 0)
    before = accounts.alive()
    changes.commit_frame(batch(spark, MOVED, FIRST), 0)
    assert accounts.alive() == before == [("1", "2024-06", "Bea")]
    second = change(START + 2, None, item("2"))
    changes.commit_frame(batch(spark, GONE, FIRST, second, MOVED), 0)
    changes.commit_frame(batch(spark, second, FIRST), 1)
    assert accounts.alive() == before
    assert [(row["id"], row["month"]) for row in accounts.stored() if row["_deleted"]] == [
        ("1", "2024-01"),
        ("2", "2024-01"),
    ]


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, accounts: Accounts, tmp_path: Path) -> None:
    source = tmp_path / "records"
    source.mkdir()

    def follow() -> None:
        frame = spark.readStream.text(str(source)).withColumnRenamed("value", RAW)
        stream = frame.writeStream.foreachBatch(accounts.changes().commit_frame)
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    (source / "1.txt").write_text(FIRST + "\n")
    follow()
    commits = accounts.commits()
    (source / "2.txt").write_text(MOVED + "\n")
    follow()
    assert accounts.alive() == [("1", "2024-06", "Bea")]
    assert accounts.commits() == commits + 1


def test_a_source_without_the_record_is_refused(spark: SparkSession, accounts: Accounts) -> None:
    with pytest.raises(UserError, match="found the columns id, expected"):
        accounts.changes().commit_frame(spark.createDataFrame([("1",)], "id string"), 0)


def test_the_start_of_streaming_is_noted_once(spark: SparkSession, accounts: Accounts) -> None:
    changes = accounts.changes()
    changes.commit_frame(batch(spark, FIRST), 0)
    noted = accounts.progress().since
    changes.commit_frame(batch(spark, MOVED), 1)
    assert 0 < noted == accounts.progress().since


def test_an_undecodable_record_is_kept_as_it_came(spark: SparkSession, accounts: Accounts) -> None:
    accounts.changes().commit_frame(batch(spark, FIRST, json.dumps({"tableName": SOURCE})), 0)
    assert accounts.alive() == [("1", "2024-01", "Ann")]
    assert [event["records"] for event in accounts.events if event["event"] == "quarantine"] == [1]

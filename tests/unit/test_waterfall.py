"""The stages at which changes wait on their way, read from landing objects and commits made by hand."""

from __future__ import annotations

import base64
import gzip
import json
import time
from dataclasses import replace
from typing import Any

import boto3
import pytest

from headwater.lake.sources.kinesis import NOTHING_READ, READ_TO_END
from rig.demo.freshness import PublishedInstants
from rig.demo.waterfall import (
    STAGES_TO_KINESIS,
    STAGES_TO_S3,
    AtWriter,
    PassedKinesis,
    PassedS3,
    passed_kinesis,
    passed_s3,
    profile,
    stages_of_writer,
)
from tests.unit.conftest import BUCKET

TOPIC = "headwater.shop.goods"
TOPICS = {"things": TOPIC}
STREAM = "goods"
(OF_LAKE,) = stages_of_writer("S3", told=False)


def land(s3: Any, partition: int, first: int, *events: dict[str, Any] | None, prefix: str) -> float:
    """Land an object of these events, and give the second in which it landed."""
    lines = []
    for offset, event in enumerate(events, first):
        value = None if event is None else base64.b64encode(json.dumps(event).encode()).decode()
        lines.append(json.dumps({"offset": offset, "timestamp": 1_000_500 + offset, "key": "e30=", "value": value}))
    key = f"{prefix}/{TOPIC}/{partition}/{first:020d}.jsonl.gz"
    s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress("\n".join(lines).encode()))
    return float(s3.head_object(Bucket=BUCKET, Key=key)["LastModified"].timestamp())


def change(op: str, second: float) -> dict[str, Any]:
    return {
        "op": op,
        "ts_us": int((second + 0.25) * 1e6),
        "source": {"ts_us": int(second * 1e6), "lsn": 5},
        "after": {},
    }


def test_every_change_is_told_with_the_first_commit_that_holds_it(s3: Any) -> None:
    landed = land(s3, 0, 0, change("c", 999), change("u", 1000), None, change("t", 1000), prefix="every")
    later = land(s3, 0, 4, change("d", 1001), change("u", 1002), prefix="every")
    land(s3, 2, 0, {"op": "t", "source": {"lsn": 5, "snapshot": "last"}}, {"op": "m"}, prefix="every")
    other = land(s3, 1, 0, change("r", 1000), change("c", 1000), prefix="every")
    instants = PublishedInstants(None, "s3://lake/tables", [])
    instants.seen = {"things": {"1": 2e9, "2": 3e9, "3": 3.5e9}}
    # The third is a compaction's, which carries no cursor; the last change is in no commit that has been seen.
    instants.cursors = {"things": {"2": {f"{TOPIC}/0": 5, f"{TOPIC}/1": 9, f"{TOPIC}/2": 9}, "1": {f"{TOPIC}/0": 4}}}
    found = passed_s3(s3, f"s3://{BUCKET}/every", TOPICS, instants, since=1000)
    assert found == {
        "things": [
            PassedS3(1000, 1000.25, 1000.501, landed, readable=2e9),
            PassedS3(1001, 1001.25, 1000.504, later, readable=3e9),
            PassedS3(1000, 1000.25, 1000.501, other, readable=3e9),
        ]
    }


def test_a_change_is_told_with_what_the_writer_of_its_commit_tells(s3: Any) -> None:
    land(s3, 0, 0, change("c", 1000), change("u", 1000), prefix="told")
    instants = PublishedInstants(None, "s3://lake/tables", [])
    instants.seen = {"things": {"1": 2e9, "2": 3e9}}
    instants.cursors = {"things": {"1": {f"{TOPIC}/0": 1}, "2": {f"{TOPIC}/0": 2}}}
    event = {"table": "things", "instant": "2", "taken_at": 10.0, "completed_at": 13.0, "seconds": 2.0}
    of_another = event | {"table": "others", "instant": "1"}
    first, second = passed_s3(s3, f"s3://{BUCKET}/told", TOPICS, instants, 0, [event, of_another])["things"]
    assert first.writer is None
    assert second.writer == AtWriter(taken=10, decoded=11, committed=13)


def put(kinesis: Any, place: str, time: float, precision: str | None) -> int:
    """Put a change of that time to the shard of that hash key, and give its sequence number."""
    record: dict[str, Any] = {"eventName": "MODIFY", "dynamodb": {"ApproximateCreationDateTime": time}}
    if precision is not None:
        record["dynamodb"]["ApproximateCreationDateTimePrecision"] = precision
    data = json.dumps(record).encode()
    answer = kinesis.put_record(StreamName=STREAM, Data=data, PartitionKey="p", ExplicitHashKey=place)
    return int(answer["SequenceNumber"])


def test_every_change_of_a_stream_is_told_with_the_first_commit_whose_cursor_has_it(s3: Any) -> None:
    del s3
    kinesis = boto3.client("kinesis", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    kinesis.create_stream(StreamName=STREAM, ShardCount=2)
    first, second = (f"{STREAM}/{shard['ShardId']}" for shard in kinesis.list_shards(StreamName=STREAM)["Shards"])
    put(kinesis, "0", 999_000_000, "MICROSECOND")
    one = put(kinesis, "0", 1_000_250_000, "MICROSECOND")
    two = put(kinesis, "0", 1_001_000, "MILLISECOND")
    put(kinesis, str(2**127), 1_002_000, None)
    last = put(kinesis, "0", 1_003_000, None)
    instants = PublishedInstants(None, "s3://lake/tables", [])
    instants.seen = {"things": {"1": 2e9, "2": 3e9, "3": 4e9}}
    instants.cursors = {
        "things": {
            "1": {first: one, second: NOTHING_READ},
            "3": {first: last - 1, second: READ_TO_END},
            "2": {first: two, second: NOTHING_READ},
        }
    }
    event = {"table": "things", "instant": "2", "taken_at": 10.0, "completed_at": 13.0, "seconds": 2.0}
    found = passed_kinesis(kinesis, {"things": STREAM}, instants, 1000, [event])["things"]
    assert [(change.source, change.readable) for change in found] == [(1000.25, 2e9), (1001, 3e9), (1002, 4e9)]
    assert [change.writer for change in found] == [None, AtWriter(taken=10, decoded=11, committed=13), None]
    assert all(0 <= time.time() - change.arrived < 60 for change in found)
    assert list(found[1].stages) == [*STAGES_TO_KINESIS, *stages_of_writer("Kinesis")]


def test_a_clock_that_tells_less_makes_no_stage_negative() -> None:
    change = PassedS3(source=10.4, debezium=10.6, kafka=10.5, landed=10.0, readable=12.6)
    assert change.seconds == pytest.approx(2.2)
    assert list(change.stages) == [*STAGES_TO_S3, OF_LAKE]
    assert list(change.stages.values()) == pytest.approx([0.2, 0, 0, 2.0])
    told = replace(change, writer=AtWriter(taken=11.0, decoded=11.5, committed=12.5))
    assert list(told.stages) == [*STAGES_TO_S3, *stages_of_writer("S3")]
    assert list(told.stages.values()) == pytest.approx([0.2, 0, 0, 0.4, 0.5, 1.0, 0.1])
    streamed = PassedKinesis(source=10.4, arrived=10.5, readable=12.6)
    assert list(streamed.stages) == ["source to Kinesis", "Kinesis to the lake"]
    assert list(streamed.stages.values()) == pytest.approx([0.1, 2.1])
    for each in (change, told, streamed):
        assert sum(each.stages.values()) == pytest.approx(each.seconds)


def test_a_profile_tells_of_the_median_and_of_the_slowest() -> None:
    changes = [PassedS3(0, 1, 2, 3, readable=3 + second) for second in range(100)]
    told = profile(changes)
    assert [list(stages) for stages in told.values()] == [[*STAGES_TO_S3, OF_LAKE]] * 2
    assert told["about the median"][OF_LAKE] == pytest.approx(49.5)
    assert told["the slowest 5 %"][OF_LAKE] == pytest.approx(97)
    assert told["the slowest 5 %"]["source to Debezium"] == 1
    assert profile(changes[:1]) == {name: dict.fromkeys(STAGES_TO_S3, 1.0) | {OF_LAKE: 0.0} for name in told}
    assert profile([]) == {}

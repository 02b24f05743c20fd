"""The reader of a Kinesis stream, against the local run's Kinesis API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.lake.sources.kinesis import READ_TO_END, KinesisStream
from rig.local.aws import AwsApi

MOST = 1 << 20


@pytest.fixture(scope="module")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with AwsApi(tmp_path_factory.mktemp("aws")) as aws_api:
        yield aws_api.client("kinesis")


@pytest.fixture
def stream(kinesis: Any, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    kinesis.create_stream(StreamName=name, ShardCount=1)
    return str(name)


def arn(name: str) -> str:
    return f"arn:aws:kinesis:eu-central-1:123456789012:stream/{name}"


def put(kinesis: Any, stream: str, *texts: str) -> None:
    for text in texts:
        kinesis.put_record(StreamName=stream, Data=text.encode(), PartitionKey=text)


def drained(reader: KinesisStream, cursor: dict[str, int], most: int = MOST) -> tuple[list[str], dict[str, int]]:
    """All that a reader reads, and the cursor after it."""
    texts: list[str] = []
    while True:
        records, cursor = reader.read(cursor, most)
        if not records:
            return texts, cursor
        texts += [record.data.decode() for record in records]


def test_a_reader_goes_on_after_its_cursor(kinesis: Any, stream: str) -> None:
    put(kinesis, stream, "a", "b")
    texts, cursor = drained(KinesisStream(kinesis, arn(stream)), {})
    assert texts == ["a", "b"]
    put(kinesis, stream, "c")
    assert drained(KinesisStream(kinesis, arn(stream)), cursor)[0] == ["c"]


def test_shards_that_come_of_a_split_are_read_after_their_parent(kinesis: Any, stream: str) -> None:
    put(kinesis, stream, "a", "b")
    (parent,) = kinesis.list_shards(StreamName=stream)["Shards"]
    kinesis.split_shard(StreamName=stream, ShardToSplit=parent["ShardId"], NewStartingHashKey=str(2**127))
    put(kinesis, stream, "c", "d", "e", "f")
    reader = KinesisStream(kinesis, arn(stream))
    texts, cursor = drained(KinesisStream(kinesis, arn(stream)), {})
    assert texts[:2] == ["a", "b"]
    assert sorted(texts) == ["a", "b", "c", "d", "e", "f"]
    assert cursor[f"{stream}/{parent['ShardId']}"] == READ_TO_END
    assert drained(reader, cursor)[0] == []


def test_reading_ends_at_its_bytes_and_nothing_is_left_out(kinesis: Any, stream: str) -> None:
    for text in ("a", "b", "c"):
        put(kinesis, stream, text)
        time.sleep(0.01)  # the stand-in tells how far a reader is behind in milliseconds
    assert drained(KinesisStream(kinesis, arn(stream)), {}, most=1)[0] == ["a", "b", "c"]

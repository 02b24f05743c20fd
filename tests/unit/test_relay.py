"""The relay gives each record its place and time once, and repeats rather than loses."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from botocore.exceptions import ClientError

from rig.local import relay
from rig.local.relay import (
    DROPPED,
    ORDERLY,
    Carrier,
    Checkpoint,
    Misbehaviour,
    Outgoing,
    Reader,
    Relay,
    Route,
    kinesis_data,
    partition_key,
)

MINUTE = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)
START = int(MINUTE.timestamp())
MICROS = 1_000_000


def record(number: int, name: str = "INSERT", item: str = "a", **images: Any) -> dict[str, Any]:
    return {
        "eventID": f"event-{number}",
        "eventName": name,
        "dynamodb": {
            "ApproximateCreationDateTime": MINUTE,
            "Keys": {"id": {"S": item}},
            "SequenceNumber": f"{number:021d}",
            "SizeBytes": 7,
            **(images or {"NewImage": {"id": {"S": item}}}),
        },
    }


class Streams:
    """DynamoDB Streams: shards with their parents, records and whether they are closed. An iterator is shard/place."""

    def __init__(self, **shards: tuple[str | None, list[dict[str, Any]], bool]) -> None:
        self.shards = shards
        self.refusal = ""

    def describe_stream(self, **request: str) -> dict[str, Any]:
        names = list(self.shards)
        at = names.index(request["ExclusiveStartShardId"]) + 1 if "ExclusiveStartShardId" in request else 0
        parent = self.shards[names[at]][0]
        page = {"ShardId": names[at], **({"ParentShardId": parent} if parent else {})}
        more = {"LastEvaluatedShardId": names[at]} if at + 1 < len(names) else {}
        return {"StreamDescription": {"Shards": [page], **more}}

    def get_shard_iterator(self, **request: str) -> dict[str, str]:
        numbers = [record["dynamodb"]["SequenceNumber"] for record in self.shards[request["ShardId"]][1]]
        after = request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
        return {"ShardIterator": f"{request['ShardId']}/{numbers.index(request['SequenceNumber']) + 1 if after else 0}"}

    def get_records(self, **request: Any) -> dict[str, Any]:
        if self.refusal:
            refusal, self.refusal = self.refusal, ""
            raise ClientError({"Error": {"Code": refusal}}, "GetRecords")
        shard, at = request["ShardIterator"].split("/")
        _, records, closed = self.shards[shard]
        page = records[int(at) : int(at) + request["Limit"]]
        end = int(at) + len(page)
        more = {} if closed and end == len(records) else {"NextShardIterator": f"{shard}/{end}"}
        return {"Records": page, **more}


def clock(*seconds: float) -> Iterator[float]:
    return iter([START + second for second in seconds])


def reader(streams: Streams, checkpoint: Checkpoint | None = None, times: Iterator[float] | None = None) -> Reader:
    ticks = times or itertools.repeat(START + 1.0)
    return Reader(streams, "arn", checkpoint or Checkpoint(), lambda: next(ticks))


def read_all(source: Reader) -> list[tuple[str, int]]:
    events: list[tuple[str, int]] = []
    while records := source.read():
        events += [(record["eventID"], micros - START * MICROS) for record, micros in records]
    return events


def test_a_shard_is_read_after_its_parent() -> None:
    streams = Streams(
        child=("parent", [record(3)], False),
        other=("parent", [record(4)], True),
        parent=("gone", [record(1), record(2)], True),
        grandchild=("other", [record(5)], False),
        empty=(None, [], False),
    )
    assert [event for event, _ in read_all(reader(streams))] == [f"event-{number}" for number in (1, 2, 3, 4, 5)]


def test_times_grow_by_a_microsecond_where_nothing_more_is_known() -> None:
    streams = Streams(only=(None, [record(1), record(2), record(3)], False))
    assert [micros for _, micros in read_all(reader(streams))] == [0, 1, 2]


def test_a_record_happened_after_the_last_request_that_did_not_find_it() -> None:
    streams = Streams(only=(None, [record(1)], False))
    source = reader(streams, times=clock(10.0, 10.5, 11.0))
    source.read()
    streams.shards["only"][1].append(record(2))
    assert [micros for _, micros in source.read()] == [(START + 10) * MICROS]
    streams.shards["only"][1].append(record(3))
    assert [micros for _, micros in source.read()] == [START * MICROS + 10_500_000]


def test_a_full_answer_says_nothing_of_what_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "READ_LIMIT", 2)
    streams = Streams(only=(None, [record(number) for number in range(5)], False))
    source = reader(streams, times=clock(10, 11, 12, 13))
    assert [micros for _, micros in read_all(source)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("refusal", ["ExpiredIteratorException", "TrimmedDataAccessException"])
def test_an_iterator_that_has_expired_or_was_made_in_an_empty_shard_is_replaced(refusal: str) -> None:
    streams = Streams(only=(None, [record(1), record(2)], False))
    source = reader(streams)
    streams.refusal = refusal
    assert source.read() == []
    assert len(source.read()) == 2


def test_records_that_were_trimmed_behind_the_position_are_an_error() -> None:
    streams = Streams(only=(None, [record(1)], False))
    source = reader(streams)
    assert len(source.read()) == 1
    streams.refusal = "TrimmedDataAccessException"
    with pytest.raises(ClientError, match="TrimmedDataAccessException"):
        source.read()


def test_a_checkpoint_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    assert Checkpoint.read(path) == Checkpoint()
    checkpoint = Checkpoint(7, {"shard": "12"}, ["old"], [Outgoing(1.5, "KEY", '{"ü":1}')], {"KEY": "1700000000"})
    checkpoint.write(path)
    assert Checkpoint.read(path) == checkpoint


class Kinesis:
    """Takes records. Refuses the records of the next request at the positions in ``refuse``; with ``crash`` is gone
    once it has taken them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.refuse: set[int] = set()
        self.crash = False

    def put_records(self, **request: Any) -> dict[str, Any]:
        results = []
        for at, record in enumerate(request["Records"]):
            if at in self.refuse:
                results.append({"ErrorCode": "ProvisionedThroughputExceededException"})
            else:
                self.taken.append((record["PartitionKey"], record["Data"]))
                results.append({"SequenceNumber": "1"})
        self.refuse = set()
        if self.crash:
            raise ConnectionError("killed")
        return {"Records": results}


def carrier(
    streams: Streams,
    kinesis: Kinesis,
    folder: Path,
    dynamodb: Any = None,
    misbehaviour: Misbehaviour = ORDERLY,
) -> Carrier:
    path = folder / "checkpoint.json"
    checkpoint = Checkpoint.read(path)
    return Carrier(
        reader(streams, checkpoint), Route(dynamodb, kinesis, "accounts", "changes"), checkpoint, path, misbehaviour
    )


def test_what_was_put_when_it_was_killed_is_put_again_with_the_same_bytes(tmp_path: Path) -> None:
    streams = Streams(only=(None, [], False))
    kinesis = Kinesis()
    kinesis.crash = True
    killed = carrier(streams, kinesis, tmp_path)
    killed.carry()
    streams.shards["only"][1].extend([record(1), record(2)])
    with pytest.raises(ConnectionError):
        killed.carry()
    kinesis.crash = False
    streams.shards["only"][1].append(record(3))
    again = carrier(streams, kinesis, tmp_path)
    while again.carry():
        pass
    assert kinesis.taken[0:2] == kinesis.taken[2:4]
    data = [json.loads(data) for _, data in kinesis.taken[2:]]
    assert [change["eventID"] for change in data] == ["event-1", "event-2", "event-3"]
    times = [change["dynamodb"]["ApproximateCreationDateTime"] for change in data]
    assert times == sorted(set(times))
    assert not carrier(streams, kinesis, tmp_path).carry()


def test_a_refused_record_is_put_again(tmp_path: Path) -> None:
    kinesis = Kinesis()
    kinesis.refuse = {1}
    relayed = carrier(Streams(only=(None, [record(number) for number in range(3)], False)), kinesis, tmp_path)
    while relayed.carry():
        pass
    assert [json.loads(data)["eventID"] for _, data in kinesis.taken] == ["event-0", "event-2", "event-1"]


def test_a_record_above_the_limit_of_kinesis_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    large: dict[str, Any] = {"NewImage": {"text": {"S": "ü" * 2**19}}}
    kinesis = Kinesis()
    relayed = carrier(Streams(only=(None, [record(1, **large), record(2)], False)), kinesis, tmp_path)
    while relayed.carry():
        pass
    assert [json.loads(data)["eventID"] for _, data in kinesis.taken] == ["event-2"]
    assert "event-1" in caplog.text


def test_what_was_dropped_is_told_once_and_not_that_of_a_former_relay(tmp_path: Path) -> None:
    log = tmp_path / "relay.log"
    log.write_text(f"{DROPPED.decode()} above the limit: 1\n")
    carrying = Relay(tmp_path, MagicMock(), "http://127.0.0.1:1", "accounts")
    assert carrying.newly_dropped() == 0
    with log.open("a") as file:
        file.write(f"{DROPPED.decode()} above the limit: 2\n" * 2)
    assert [carrying.newly_dropped(), carrying.newly_dropped()] == [2, 0]


def test_records_are_repeated_and_delayed_when_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "DISORDER_SECONDS", 0.05)
    kinesis = Kinesis()
    records = [record(number) for number in range(200)]
    disorderly = Misbehaviour(repeated=0.2, delayed=0.2)
    relayed = carrier(Streams(only=(None, records, False)), kinesis, tmp_path, misbehaviour=disorderly)
    while relayed.carry() or Checkpoint.read(tmp_path / "checkpoint.json").outbox:
        pass
    events = [json.loads(data)["eventID"] for _, data in kinesis.taken]
    assert set(events) == {f"event-{number}" for number in range(200)}
    assert len(events) > 200
    firsts = list(dict.fromkeys(events))
    assert firsts != [f"event-{number}" for number in range(200)]
    assert len(set(kinesis.taken)) == 200


def test_a_sweep_deletes_what_has_expired_and_its_record_tells_so_even_after_a_crash(tmp_path: Path) -> None:
    dynamodb = MagicMock()
    dynamodb.exceptions.ConditionalCheckFailedException = KeyError
    dynamodb.describe_time_to_live.return_value = {
        "TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "until"}
    }
    dynamodb.describe_table.return_value = {"Table": {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}}
    items = [{"id": {"S": item}, "until": {"N": "1700000000"}} for item in ("expired", "renewed")]
    dynamodb.get_paginator.return_value.paginate.return_value = [{"Items": items}]
    dynamodb.delete_item.side_effect = [{}, KeyError]
    path = tmp_path / "checkpoint.json"
    streams = Streams(only=(None, [], False))
    first = carrier(streams, Kinesis(), tmp_path, dynamodb)
    first.sweep()
    assert [call.kwargs["Key"] for call in dynamodb.delete_item.call_args_list] == [
        {"id": {"S": "expired"}},
        {"id": {"S": "renewed"}},
    ]
    assert list(Checkpoint.read(path).expiring) == [partition_key({"id": {"S": "expired"}})]

    image = {"OldImage": {"id": {"S": "?"}}}
    streams.shards["only"][1].extend(
        [
            record(1, "REMOVE", "renewed", **image),
            record(2, "REMOVE", "expired", **image),
            record(3, "REMOVE", "expired", **image),
        ]
    )
    kinesis = Kinesis()
    carrier(streams, kinesis, tmp_path, dynamodb).carry()
    by_ttl = [json.loads(data)["userIdentity"] is not None for _, data in kinesis.taken]
    assert by_ttl == [False, True, False]


def test_requests_keep_the_limits_of_kinesis() -> None:
    small = [Outgoing(0, "K", "x") for _ in range(1001)]
    assert [len(batch) for batch in relay.batches(small)] == [500, 500, 1]
    large = [Outgoing(0, "K", "ü" * (2**18)) for _ in range(20)]
    assert [len(batch) for batch in relay.batches(large)] == [9, 9, 2]
    assert relay.batches([]) == []


def test_the_partition_key_is_the_items_whole_key() -> None:
    key = {"id": {"B": b"\x00\xff"}, "name": {"N": "1"}}
    assert partition_key(key) == partition_key(dict(reversed(key.items())))
    assert partition_key(key) != partition_key({**key, "name": {"N": "2"}})
    assert len(partition_key(key)) == 32


def test_the_data_is_what_dynamodb_writes() -> None:
    images = {
        "NewImage": {
            "id": {"S": "ü"},
            "b": {"B": b"\x00\xff"},
            "bs": {"BS": [b"a"]},
            "m": {"M": {"a.b": {"NULL": True}}},
        },
        "OldImage": {"id": {"S": "ü"}},
    }
    data = kinesis_data(record(1, "MODIFY", "ü", **images), "accounts", 1_715_000_000_123_456)
    assert data == (
        '{"awsRegion":"eu-central-1","eventID":"event-1","eventName":"MODIFY","userIdentity":null,'
        '"recordFormat":"application/json","tableName":"accounts","dynamodb":{'
        '"ApproximateCreationDateTime":1715000000123456,"Keys":{"id":{"S":"ü"}},'
        '"NewImage":{"id":{"S":"ü"},"b":{"B":"AP8="},"bs":{"BS":["YQ=="]},"m":{"M":{"a.b":{"NULL":true}}}},'
        '"OldImage":{"id":{"S":"ü"}},"SizeBytes":7,"ApproximateCreationDateTimePrecision":"MICROSECOND"},'
        '"eventSource":"aws:dynamodb"}'
    )


def test_a_deletion_by_time_to_live_is_told_apart() -> None:
    removed = record(1, "REMOVE", OldImage={"id": {"S": "a"}})
    assert json.loads(kinesis_data(removed, "accounts", 1))["userIdentity"] is None
    service = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}
    assert json.loads(kinesis_data(removed, "accounts", 1, by_ttl=True))["userIdentity"] == service
    by_dynamodb = {**removed, "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}}
    assert json.loads(kinesis_data(by_dynamodb, "accounts", 1))["userIdentity"] == service

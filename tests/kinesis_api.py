"""A Kinesis stream that tests read through its API, with behaviour of AWS that local stand-ins lack.

Iterators expire, shards are listed in pages, and an answer may have fewer records than the request wants.
"""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/accounts"
SHARDS_PER_PAGE = 2
_FIRST = 10**55
_MOST_BYTES_PER_CALL = 10 * 1024 * 1024


class ExpiredIterator(Exception):
    """The iterator has expired. It is valid for five minutes."""


class InvalidArgument(Exception):
    """The sequence number does not come from this stream."""


class Shard:
    """A shard: its records by sequence number, and its parents. It is ``closed`` once it was split or merged."""

    def __init__(self, *parents: str) -> None:
        self.parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), parents, strict=False))
        self.records: list[tuple[int, bytes]] = []
        self.closed = False


class Kinesis:
    """A stream with the part of Kinesis' API that reads it.

    A call returns at most ``per_call`` records, even if it asks for more.
    """

    class exceptions:  # noqa: N801 - boto3's name
        ExpiredIteratorException = ExpiredIterator
        InvalidArgumentException = InvalidArgument

    meta = SimpleNamespace(endpoint_url="http://127.0.0.1", region_name="eu-central-1")

    def __init__(self, per_call: int = 10_000) -> None:
        self.shards: dict[str, Shard] = {}
        self.now = 0.0
        """The arrival time of records that are put, in epoch seconds."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._per_call = per_call
        self._stale = 0
        self._gaps = 0
        self._sequence = _FIRST
        self._iterators: dict[str, tuple[str, int]] = {}
        self._arrived: dict[int, dt.datetime] = {}

    def open(self, name: str, *parents: str) -> None:
        """Add a shard, and close its parents."""
        self.shards[name] = Shard(*parents)
        for parent in parents:
            if parent in self.shards:
                self.shards[parent].closed = True

    def put(self, shard: str, *texts: str) -> None:
        for text in texts:
            self._sequence += 1
            self._arrived[self._sequence] = dt.datetime.fromtimestamp(self.now, dt.UTC)
            self.shards[shard].records.append((self._sequence, text.encode()))

    def list_stale(self, answers: int) -> None:
        """Let this many listings leave out the newest shard, as during a reshard."""
        self._stale = answers

    def leave_gaps(self, answers: int) -> None:
        """Let this many answers have no record although some wait."""
        self._gaps = answers

    def expire_iterators(self) -> None:
        self._iterators.clear()

    def list_shards(self, **request: Any) -> dict[str, Any]:
        self.calls.append(("list_shards", request))
        assert set(request) in ({"StreamName"}, {"NextToken"}), "Kinesis refuses a stream's name beside a token"
        assert request.get("StreamName", "accounts") == "accounts"
        start = int(request.get("NextToken", "0"))
        listed = list(self.shards)
        if self._stale:
            self._stale -= 1
            del listed[-1]
        names = listed[start : start + SHARDS_PER_PAGE]
        answer: dict[str, Any] = {"Shards": [{"ShardId": name, **self.shards[name].parents} for name in names]}
        if start + SHARDS_PER_PAGE < len(listed):
            answer["NextToken"] = str(start + SHARDS_PER_PAGE)
        return answer

    def get_shard_iterator(self, **request: Any) -> dict[str, str]:
        self.calls.append(("get_shard_iterator", request))
        assert request["StreamName"] == "accounts"
        records = self.shards[request["ShardId"]].records
        kind = request["ShardIteratorType"]
        if kind == "AFTER_SEQUENCE_NUMBER":
            after = int(request["StartingSequenceNumber"])
            if not _FIRST < after <= self._sequence:
                raise InvalidArgument(f"StartingSequenceNumber {after} is invalid: it did not come from this stream")
            at = sum(sequence <= after for sequence, _ in records)
        else:
            assert "StartingSequenceNumber" not in request
            assert kind == "TRIM_HORIZON"
            at = 0
        return {"ShardIterator": self._iterator(request["ShardId"], at)}

    def get_records(self, **request: Any) -> dict[str, Any]:
        self.calls.append(("get_records", request))
        if request["ShardIterator"] not in self._iterators:
            raise ExpiredIterator
        name, at = self._iterators[request["ShardIterator"]]
        shard = self.shards[name]
        assert 1 <= request["Limit"] <= 10_000, "the most that Kinesis takes"
        most = min(request["Limit"], self._per_call)
        if self._gaps and at < len(shard.records):
            self._gaps -= 1
            most = 0
        read = shard.records[at : at + most]
        while sum(len(data) for _, data in read) > _MOST_BYTES_PER_CALL:
            del read[-1]
        end = at + len(read)
        answer: dict[str, Any] = {
            "Records": [
                {
                    "SequenceNumber": str(sequence),
                    "Data": data,
                    "ApproximateArrivalTimestamp": self._arrived[sequence],
                }
                for sequence, data in read
            ],
            "MillisBehindLatest": 1_000 * (len(shard.records) - end),
        }
        # At the end of a closed shard there is no next iterator. Some answers of AWS give it as null.
        answer["NextShardIterator"] = None if shard.closed and end == len(shard.records) else self._iterator(name, end)
        return answer

    def asked(self, operation: str) -> list[dict[str, Any]]:
        return [request for name, request in self.calls if name == operation]

    def _iterator(self, shard: str, at: int) -> str:
        iterator = f"{shard}@{at}#{len(self.calls)}"
        self._iterators[iterator] = (shard, at)
        return iterator

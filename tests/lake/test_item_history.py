"""The change history of a DynamoDB table gives the table as of any instant, as its items were then.

The rows that the shipped job makes of stream and exports are compared with a replay of the source's own log. The replay
knows nothing of decoders, orders or Hudi.
"""

from __future__ import annotations

import argparse
import datetime as dt
import email.utils
import itertools
import json
import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import boto3
import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.commands.backfill import load
from headwater.contract.masks import KEY_FIELD
from headwater.contract.model import HMAC, Column, Contract, History, Mask, lake_tables
from headwater.contract.types import parse_type
from headwater.lake.base.lease import Leases
from headwater.lake.base.quarantine import Quarantine
from headwater.lake.decoding.left_out import LeftOut
from headwater.lake.job import entry
from headwater.lake.job.entry import TableWork
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_source import StreamedSource
from headwater.lake.requests import backfill_requests, replay_requests
from headwater.lake.requests.protocol import DONE, REFUSED, RUNNING, Requests, Status
from headwater.lake.requests.replay_requests import Choice
from headwater.lake.sources.scanned_export import export_table
from headwater.verify import compare, read_lake
from headwater.verify.dynamodb_source import DynamoDbTable
from headwater.verify.forms import Row
from headwater.waiting import wait_until
from rig.local.aws import AwsApi
from tests.history_analyst import DATABASE, Analyst
from tests.kinesis_api import ARN, Kinesis
from tests.lake.accounts import ARN as TABLE_ARN
from tests.lake.accounts import MASK_KEY, SOURCE, Accounts, change, item

INSTANTS = 1000
MILLISECOND, SECOND = 1_000, 10**6
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY = 24 * HOUR
SHARDS = 3
Item = dict[str, dict[str, str]]
State = dict[str, tuple[str, str]]
"""Month and name of each item, by its id."""


def instant_of(micros: int) -> dt.datetime:
    """A time as Athena reads it of Hudi's tables: to the millisecond that is nearest."""
    return dt.datetime.fromtimestamp((micros + MILLISECOND // 2) // MILLISECOND / 1000, dt.UTC)


def shown(image: Item) -> tuple[str, str]:
    return image["registered"]["S"][:7], image["name"]["S"]


class Logged(NamedTuple):
    """A change in the source's own log: its time in microseconds since 1970, and the item after it."""

    at: int
    op: str
    id: str
    image: Item | None


@dataclass
class Source:
    """A DynamoDB table: the changes of its items, their records, and its contents at each instant."""

    random: Random
    now: int
    unit: int = 1
    """The precision of its records' times in microseconds."""
    ties: bool = False
    """Whether several changes of an item may have the same time."""
    items: dict[str, Item] = field(default_factory=dict)
    log: list[Logged] = field(default_factory=list)
    records: list[tuple[str, str]] = field(default_factory=list)
    """Of each record the id of its item and its text, in the order of the log."""

    def as_of(self, instant: dt.datetime) -> State:
        """The table at an instant: all changes until then, in the order of the log."""
        return next(self.as_of_each([instant]))

    def as_of_each(self, instants: Sequence[dt.datetime]) -> Iterator[State]:
        """The table at each of these instants, which are sorted."""
        state: State = {}
        log = iter([*self.log, None])
        logged = next(log)
        for instant in instants:
            while logged is not None and instant_of(logged.at) <= instant:
                if logged.image is None:
                    del state[logged.id]
                else:
                    state[logged.id] = shown(logged.image)
                logged = next(log)
            yield dict(state)

    def take(self) -> list[tuple[str, str]]:
        """The records since the last call."""
        taken, self.records = self.records, []
        return taken

    def happens(self) -> None:
        """Something happens to an item: now and then to the one before at once."""
        again = bool(self.log) and self.random.random() < 0.4
        id_ = self.log[-1].id if again else f"k{self.random.randint(1, 12)}"
        leaps = [1, 300, MILLISECOND, *([0] if self.ties else [])] if again else [20 * SECOND, 10 * MINUTE, HOUR]
        self.now += max(self.random.choice(leaps) // self.unit, 0 if self.ties else 1) * self.unit
        known = self.items.get(id_)
        if known is not None and self.random.random() < 0.35:
            self.delete(id_, by_ttl=self.random.random() < 0.5)
            return
        registered = known["registered"]["S"] if known else "2024-01-31"
        if self.random.random() < 0.3:
            registered = self.random.choice(["2024-01-31", "2024-02-01"])
        self.put(id_, registered, f"name {len(self.log)}")

    def put(self, id_: str, registered: str = "2024-01-31", name: str = "Ann", **more: Any) -> None:
        before, self.items[id_] = self.items.get(id_), item(id_, registered, name) | more
        self._log("c" if before is None else "u", id_, before, self.items[id_])

    def delete(self, id_: str, *, by_ttl: bool = False) -> None:
        self._log("d", id_, self.items.pop(id_), None, by_ttl=by_ttl)

    def _log(self, op: str, id_: str, old: Item | None, new: Item | None, *, by_ttl: bool = False) -> None:
        self.log.append(Logged(self.now, op, id_, new))
        document = json.loads(change(self.now, old, new))
        document["eventID"] = str(uuid.UUID(int=self.random.getrandbits(128)))
        if by_ttl:
            document["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        if self.unit == MILLISECOND:
            # As records were before their precision could be chosen.
            document["dynamodb"]["ApproximateCreationDateTime"] = self.now // MILLISECOND
            del document["dynamodb"]["ApproximateCreationDateTimePrecision"]
        self.records.append((id_, json.dumps(document)))


def arrivals(source: Source, unseen: int = 0) -> list[tuple[str, str]]:
    """The records as they come from several shards, each faster or slower than the others: some late, some twice.

    Of changes at one time the sequence number is all that tells the order, so these come once and in turn."""
    random = source.random
    times = Counter((logged.id, logged.at) for logged in source.log)
    came: list[tuple[float, str, str]] = []
    delays: dict[tuple[str, int], float] = {}
    for place, ((id_, text), logged) in enumerate(zip(source.records, source.log[unseen:], strict=True)):
        moment = (id_, logged.at)
        late = 0 if random.random() < 0.8 else random.randint(1, 80)
        delay = delays.setdefault(moment, late + 15 * (shard(id_) % 2))
        came.append((place + delay, id_, text))
        if times[moment] == 1 and random.random() < 0.2:
            came.append((place + delay + random.randint(0, 120), id_, text))
    return [(id_, text) for _, id_, text in sorted(came, key=lambda record: record[0])]


def shard(id_: str) -> int:
    return zlib.crc32(id_.encode()) % SHARDS


class Lake:
    """The lake table of a DynamoDB table with a history, and the shipped job that writes both. Each ``run`` is a job of
    its own, until it has done all there is."""

    def __init__(self, spark: SparkSession, aws: AwsApi, keep_days: int = 60) -> None:
        self.kinesis = Kinesis(per_call=40)
        for number in range(SHARDS):
            self.kinesis.open(f"shard-{number}")
        prefix = f"h-{uuid.uuid4().hex[:8]}"
        self.accounts = Accounts(spark, aws, prefix)
        self.accounts.writer.close()
        self.accounts.leases.take().release()
        self.contract = replace(self.accounts.contract, history=History(keep_days))
        self.tables = lake_tables([self.contract])
        _, history = self.tables
        aws.client("glue").create_table(
            DatabaseName=prefix.replace("-", "_"),
            TableInput={
                "Name": history.table,
                "PartitionKeys": [{"Name": name, "Type": "string"} for name in history.partitions],
                "StorageDescriptor": {"Location": f"{self.accounts.lake}/{history.table}", "Columns": []},
            },
        )
        self.options: list[str] = []

    def stream(self, records: Sequence[tuple[str, str]]) -> None:
        """Let records come, each with its item's id."""
        for id_, text in records:
            self.kinesis.put(f"shard-{shard(id_)}", text)

    def run(self) -> None:
        """Let a new job do all there is for both tables."""
        with self._job() as (job, options):
            entry.write(StreamedSource(), job, options)

    @contextmanager
    def history_work(self) -> Iterator[TableWork]:
        """The work of a new job for the history, to be done part by part."""
        with self._job() as (job, options):
            yield entry.table_work(StreamedSource(), job, self.tables[1], options)
            job.writers[self.tables[1].table].close()

    def expire(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a new job do the upkeep of the history, which is due ten minutes after its start."""
        with monkeypatch.context() as patch:
            patch.setattr("headwater.lake.job.upkeep._SOON", 0.0)
            with self.history_work() as work:
                for _ in range(2):
                    work.upkeep.do_next()

    @contextmanager
    def _job(self) -> Iterator[tuple[Job, argparse.Namespace]]:
        names = [each.table for each in self.tables]
        by_table = {"stream-arn": ARN, "source-table": SOURCE}
        argv = [f"--{name}={','.join(f'{table}={value}' for table in names)}" for name, value in by_table.items()]
        argv += [f"--lake={self.accounts.lake}", "--database=lake", "--contract=none", "--once"]
        argv += ["--tombstone-days=1", *self.options]
        options = StreamedSource().arguments(argv)
        leases = Leases(self.accounts.s3, f"{self.accounts.lake}/_leases", "test", 3600.0, threading.Event())
        job = replace(self.accounts.job(options), contracts=self.tables, leases=leases)
        try:
            # Each data file of an export is a commit of its own.
            yield replace(job, settings=replace(job.settings, batch_bytes=1)), options
        finally:
            leases.release()

    def requests(self) -> list[Requests]:
        """The requests to the writers of the table and of its history."""
        return [Requests(self.accounts.s3, self.accounts.lake, table.table) for table in self.tables]

    def ask(self, uri: str) -> None:
        """Ask for an export to be loaded into the table and its history, as ``headwater backfill`` does."""
        for requests in self.requests():
            backfill_requests.ask(self.accounts.s3, requests, uri)

    def answers(self, uri: str) -> list[Status]:
        """The job's answers to that, for the table and for its history."""
        found = [requests.status(backfill_requests.request_id(uri)) for requests in self.requests()]
        return [status for status in found if status is not None]

    def backfill(self, uri: str) -> None:
        """Have an export loaded as ``headwater backfill`` does, which watches a job until it is."""

        def asked() -> bool:
            return all(requests.get(backfill_requests.request_id(uri)) is not None for requests in self.requests())

        with ThreadPoolExecutor(1) as pool:
            s3, lake = self.accounts.s3, self.accounts.lake
            loaded = pool.submit(load, s3, lake, self.contract, uri, lambda export: "of a test")
            wait_until("the requests", lambda: asked() or loaded.done(), poll=0.1)
            self.run()
            loaded.result()

    def alive(self) -> State:
        """The table as it is now."""
        return {id_: (month, name) for id_, month, name in self.accounts.alive()}

    def analyst(self) -> Analyst:
        """An analyst of the history as it is now."""
        uri = f"{self.accounts.lake}/{self.tables[1].table}"
        return Analyst(self.contract, pa.Table.from_batches(list(read_lake(uri, self.accounts.storage))))


@pytest.fixture
def streaming_since(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> int:
    """When streaming began, as the job notes it, in microseconds since 1970: thirty days ago. Nobody waits."""
    since = (time.time_ns() // 1000 - 30 * DAY) // SECOND * SECOND
    clock = SimpleNamespace(time_ns=lambda: since * 1000)
    monkeypatch.setattr("headwater.lake.base.progress.time", clock)
    monkeypatch.setattr("headwater.lake.requests.protocol.POLL_SECONDS", 0.1)
    return since


@pytest.fixture
def kept(
    spark: SparkSession, aws_api: AwsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming_since: int
) -> Callable[..., Lake]:
    """The work that makes the lake table and its history."""

    def make(keep_days: int = 60) -> Lake:
        lake = Lake(spark, aws_api, keep_days)
        client = boto3.client
        monkeypatch.setattr(
            boto3, "client", lambda name, **more: lake.kinesis if name == "kinesis" else client(name, **more)
        )
        return lake

    return make


def state_of(rows: list[dict[str, Any]]) -> State:
    return {row["id"]: (row["month"], row["name"]) for row in rows}


def instants(source: Source, begins: dt.datetime) -> list[dt.datetime]:
    """Instants at random, sorted; half of them are instants of changes."""
    times = [instant_of(logged.at) for logged in source.log if instant_of(logged.at) >= begins]
    span = (max(times) - begins) // dt.timedelta(milliseconds=1)
    between = [begins + dt.timedelta(milliseconds=source.random.randint(0, span)) for _ in range(INSTANTS // 2)]
    return sorted(source.random.choices(times, k=INSTANTS // 2) + between)


def complete_until(log: Sequence[Logged]) -> dt.datetime:
    """Until when all is known of every shard."""
    return min({shard(logged.id): instant_of(logged.at) for logged in log}.values())


def assert_as_of(analyst: Analyst, source: Source, begins: dt.datetime) -> None:
    """The table is as its source was at instants at random since a history begins, and refused before."""
    asked_for = instants(source, begins)
    of_source = list(source.as_of_each(asked_for))
    for instant, rows, state in zip(asked_for, analyst.as_of_each(asked_for), of_source, strict=True):
        assert state_of(rows) == state, instant
    assert state_of(analyst.as_of(asked_for[-1])) == of_source[-1]
    for before in (dt.timedelta(milliseconds=1), dt.timedelta(seconds=source.random.randint(1, 10**6))):
        with pytest.raises(duckdb.ConversionException, match="expected an instant from"):
            analyst.as_of(begins - before)


def assert_versions(analyst: Analyst, source: Source) -> None:
    """Check that versions of an item do not overlap, and leave a gap only while the source had no item."""
    found = analyst.connection.execute(
        f"SELECT id, month, name, valid_from, valid_to, _op FROM {DATABASE}.accounts_versions ORDER BY id, valid_from"
    ).fetchall()
    known = source.as_of(instant_of(source.now))
    assert {id_: (month, name) for id_, month, name, _, until, _ in found if until is None} == known
    for (id_, month, name, since, until, _), following in itertools.pairwise([*found, (None,) * 6]):
        assert until is None or since < until
        if following[0] != id_:
            assert until is None or id_ not in known
            continue
        if until != following[3]:
            assert until < following[3]
            assert id_ not in source.as_of(until.replace(tzinfo=dt.UTC)), (id_, until)
        # A version begins with what has changed, or where the item was read.
        assert (month, name) != following[1:3] or following[5] == "r" or until != following[3]


def assert_between(analyst: Analyst, source: Source, after: dt.datetime, last: dt.datetime) -> None:
    """The changes between two instants are those in the source's log, each item's in their order."""
    found = analyst.asks("accounts_changes_between", after, last)
    assert [row["changed_at"] for row in found] == sorted(row["changed_at"] for row in found)
    changes = [(row["id"], row["_op"], row["changed_at"], row["name"]) for row in found if row["_op"] in "cud"]
    expected = [
        (logged.id, logged.op, instant_of(logged.at).replace(tzinfo=None), logged.image and shown(logged.image)[1])
        for logged in source.log
        if after < instant_of(logged.at) <= last
    ]
    by_item = partial(sorted, key=itemgetter(0))
    assert by_item(changes) == by_item(expected)


@pytest.mark.parametrize(
    ("seed", "unit", "ties", "early"),
    [(1, 1, False, True), (2, MILLISECOND, True, False)],
)
def test_the_table_as_of_any_instant_is_as_its_source_was(
    kept: Callable[..., Lake], streaming_since: int, seed: int, unit: int, ties: bool, early: bool
) -> None:
    lake = kept()
    source = Source(Random(seed), streaming_since - DAY, unit, ties)
    for _ in range(10):
        source.happens()
    # Of what was there before the stream, the export alone tells.
    source.take()
    unseen = len(source.log)
    source.now = streaming_since + HOUR
    for _ in range(60):
        source.happens()
    source.now += SECOND - source.now % SECOND
    exported = instant_of(source.now)
    items = list(source.items.values())
    uri = lake.accounts.export(source.now, items[::2], items[1::2])
    for _ in range(150):
        source.happens()
    came = arrivals(source, unseen)
    parts = [came[start : start + 100] for start in range(0, len(came), 100)]
    for number, part in enumerate(parts):
        if number == (0 if early else len(parts) - 1):
            lake.ask(uri)
        lake.stream(part)
        lake.run()
    assert [status.state for status in lake.answers(uri)] == [DONE, DONE]
    assert lake.alive() == source.as_of(instant_of(source.now))
    analyst = lake.analyst()
    begins, until = analyst.span()
    assert begins == exported
    assert until == complete_until(source.log[unseen:])
    assert_as_of(analyst, source, begins)
    assert_versions(analyst, source)
    for after, last in itertools.pairwise(instants(source, begins)[::50]):
        assert_between(analyst, source, after, last)


@pytest.mark.parametrize("loaded", ["before the changes after it", "after them"])
def test_a_backfill_begins_a_history_at_the_time_of_its_export(
    kept: Callable[..., Lake], streaming_since: int, loaded: str
) -> None:
    lake = kept()
    source = Source(Random(4), streaming_since - DAY)
    for id_ in ("changed", "during", "early", "goes", "untouched"):
        source.put(id_)
    source.take()
    at = streaming_since + HOUR
    source.now = at - 10 * MINUTE
    source.put("changed", name="Bea")
    source.delete("early")
    source.now = at - 30 * SECOND
    source.delete("during")
    # By a clock that is a minute behind, the export still has what was deleted just before.
    uri = lake.accounts.export(at, [*source.items.values()], [item("during")])
    lake.stream(source.take())
    lake.run()
    assert len({shard(logged.id) for logged in source.log[5:]}) > 1
    if loaded == "before the changes after it":
        lake.backfill(uri)
        assert lake.analyst().span() == (instant_of(at), complete_until(source.log[5:]))
    source.now = at + 10 * MINUTE
    source.put("changed", name="Cleo")
    source.put("new")
    source.delete("goes")
    lake.stream(source.take())
    lake.run()
    if loaded == "after them":
        with pytest.raises(duckdb.ConversionException, match="expected an instant from the end of a first snapshot"):
            lake.analyst().as_of(instant_of(source.now))
        lake.backfill(uri)
    analyst = lake.analyst()
    assert analyst.span() == (instant_of(at), complete_until(source.log[5:]))
    for micros in (at, source.now - MILLISECOND, source.now):
        assert state_of(analyst.as_of(instant_of(micros))) == source.as_of(instant_of(micros))
    with pytest.raises(duckdb.ConversionException, match="expected an instant from"):
        analyst.as_of(instant_of(at - MILLISECOND))
    assert lake.alive() == source.as_of(instant_of(source.now))
    assert_versions(analyst, source)
    changes = analyst.connection.execute(
        f"SELECT id, _op, _source_ts, name FROM {DATABASE}.accounts_changes ORDER BY _order, id"
    ).fetchall()
    deleted, read, later = (instant_of(micros).replace(tzinfo=None) for micros in (at - 10 * MINUTE, at, source.now))
    assert changes == [
        ("changed", "u", deleted, "Bea"),
        ("early", "d", deleted, None),
        (None, "t", read, None),
        ("changed", "r", read, "Bea"),
        ("during", "r", read, "Ann"),
        ("goes", "r", read, "Ann"),
        ("untouched", "r", read, "Ann"),
        ("during", "d", read - dt.timedelta(seconds=30), None),
        ("changed", "u", later, "Cleo"),
        ("new", "c", later, "Ann"),
        ("goes", "d", later, None),
    ]
    commits = lake.accounts.commits()
    lake.backfill(uri)
    assert lake.accounts.commits() == commits
    assert lake.analyst().rows == len(changes)


def test_half_an_export_begins_no_history(kept: Callable[..., Lake], streaming_since: int) -> None:
    lake = kept()
    source = Source(Random(5), streaming_since + HOUR)
    source.put("a")
    lake.stream(source.take())
    lake.run()
    source.now += HOUR
    uri = lake.accounts.export(source.now, [item("a")], [item("b")])
    lake.ask(uri)
    with lake.history_work() as work:
        assert work.requested.commit_next()
    (_, status) = [requests.status(backfill_requests.request_id(uri)) for requests in lake.requests()]
    assert status is not None
    assert (status.state, status.parts_done) == (RUNNING, 1)
    with pytest.raises(duckdb.ConversionException, match="expected an instant from the end of a first snapshot"):
        lake.analyst().as_of(instant_of(source.now))
    lake.run()
    analyst = lake.analyst()
    assert analyst.span()[0] == instant_of(source.now)
    assert sorted(state_of(analyst.as_of(instant_of(source.now)))) == ["a", "b"]


def test_an_older_export_after_a_newer_one_has_the_history_begin_earlier(
    kept: Callable[..., Lake], streaming_since: int
) -> None:
    lake = kept()
    source = Source(Random(6), streaming_since - DAY)
    for _ in range(10):
        source.happens()
    source.take()
    source.now = streaming_since + HOUR
    exports = []

    def export() -> None:
        exports.append((instant_of(source.now), lake.accounts.export(source.now, list(source.items.values()))))

    for _ in range(30):
        source.happens()
    source.now += 2 * MINUTE - source.now % SECOND
    export()
    # Of a delete whose record is lost, the export that lacks the item tells the time.
    source.now += 2 * MINUTE
    source.delete(next(iter(source.items)))
    source.records.pop()
    export()
    for _ in range(30):
        source.happens()
    lake.stream(source.take())
    lake.run()
    for begins, uri in reversed(exports):
        lake.backfill(uri)
        analyst = lake.analyst()
        assert analyst.span()[0] == begins
        assert_as_of(analyst, source, begins)
        assert_versions(analyst, source)


def test_an_instant_is_refused_of_which_changes_have_expired(
    kept: Callable[..., Lake], streaming_since: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = kept(keep_days=20)
    source = Source(Random(8), streaming_since - DAY)
    for _ in range(10):
        source.happens()
    source.take()
    source.now = streaming_since + HOUR
    uri = lake.accounts.export(source.now, list(source.items.values()))
    for days in (1, 2, 4, 6, 4, 8):
        for _ in range(15):
            source.happens()
        source.now += days * DAY
    lake.stream(source.take())
    lake.ask(uri)
    lake.run()
    before = lake.analyst()
    lake.expire(monkeypatch)
    after = lake.analyst()
    assert after.rows < before.rows
    horizon = dt.datetime.now(dt.UTC) - dt.timedelta(20)
    for analyst in (before, after):
        begins, _ = analyst.span()
        assert dt.timedelta() <= begins - horizon + dt.timedelta(minutes=5) < dt.timedelta(minutes=6)
        assert_as_of(analyst, source, begins)
        assert_versions(analyst, source)
    # Nor is it shown where more days are to be kept later.
    lake.contract = replace(lake.contract, history=History(60))
    begins, _ = lake.analyst().span()
    assert horizon - begins < dt.timedelta(minutes=5)
    with pytest.raises(duckdb.ConversionException, match="expected an instant from"):
        lake.analyst().as_of(begins - dt.timedelta(milliseconds=1))


def test_what_is_older_than_an_expired_delete_does_not_come_back(
    kept: Callable[..., Lake], streaming_since: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = kept(keep_days=20)
    source = Source(Random(9), streaming_since + HOUR)
    source.put("gone")
    source.put("stays")
    uri = lake.accounts.export(source.now, list(source.items.values()))
    source.now += HOUR
    late = [change(source.now, item(id_), item(id_, name="late")) for id_ in ("gone", "stays")]
    source.now += DAY
    source.delete("gone")
    source.put("stays", name="Bea")
    lake.stream(source.take())
    lake.run()
    lake.expire(monkeypatch)
    assert lake.analyst().rows == 2
    lake.ask(uri)
    lake.stream([("gone", late[0]), ("stays", late[1])])
    lake.run()
    (_, of_history) = lake.answers(uri)
    assert (of_history.state, "younger tombstones of accounts_changes are purged" in of_history.reason) == (
        REFUSED,
        True,
    )
    changes = lake.analyst().connection.execute(
        f"SELECT id, _op, name FROM {DATABASE}.accounts_changes WHERE id IS NOT NULL ORDER BY _order"
    )
    # Of the one that is there a late change is one more, of the other nobody can tell.
    assert changes.fetchall() == [("stays", "u", "late"), ("stays", "u", "Bea")]
    aside = Quarantine(lake.accounts.s3, f"{lake.accounts.lake}/_quarantine", "accounts_changes")
    ((reason,),) = [[entry.reason for entry in aside.read(each.name) or []] for each in aside.listed()]
    assert reason.startswith("_order: found")


class Scanned:
    """DynamoDB's client of a table that changes while it is read. Its first item comes, then something happens, then
    the others come."""

    def __init__(self, source: Source, happens: Callable[[], None]) -> None:
        self._source = source
        self._happens = happens

    def describe_table(self, **request: Any) -> dict[str, Any]:
        date = email.utils.formatdate(self._source.now // SECOND, usegmt=True)
        headers = {"HTTPHeaders": {"date": date}}
        return {"Table": {"TableArn": TABLE_ARN, "TableSizeBytes": 1}, "ResponseMetadata": headers}

    def get_paginator(self, operation: str) -> Scanned:
        assert operation == "scan"
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        assert request["ConsistentRead"]
        first = min(self._source.items)
        yield {"Items": [self._source.items[first]]}
        self._happens()
        yield {"Items": [image for id_, image in sorted(self._source.items.items()) if id_ != first]}


class Given(DynamoDbTable):
    """A source's items, for a comparison."""

    def __init__(self, contract: Contract, items: Sequence[Item]) -> None:
        super().__init__(contract, None, SOURCE, MASK_KEY)
        self._items = items

    def rows(self) -> Iterator[Row]:
        return map(self.row, self._items)


def test_an_attribute_without_maps_to_what_is_hidden_is_nowhere(
    kept: Callable[..., Lake], streaming_since: int, aws_api: AwsApi
) -> None:
    lake = kept()
    secret, key = f"mask-{uuid.uuid4().hex[:8]}", json.dumps({KEY_FIELD: MASK_KEY.decode()})
    aws_api.client("secretsmanager").create_secret(Name=secret, SecretString=key)
    lake.options = [f"--mask-secret={secret}"]
    nick = Column("nick", parse_type("string"), "S", ("users", "nick"))
    lake.contract = replace(
        lake.contract,
        columns=(*lake.contract.columns, nick),
        exclude=(("users", "ssn"),),
        masks=(Mask(("users", "old", "ssn"), HMAC), Mask(("users", "pin"), None)),
    )
    lake.tables = lake_tables([lake.contract])
    person = {"M": {"nick": {"S": "Bob"}, "ssn": {"S": "swordfish"}}}
    hiding: list[Any] = [
        {"L": [person]},
        {"L": [{"L": [person]}]},
        {"S": '{"ssn":"swordfish"}'},
        {"SS": ["swordfish"]},
        {"M": {"nick": {"S": "Bob"}, "old": {"L": [person]}}},
    ]
    shown_too: dict[str, Any] = {"note": {"S": "in clear"}}
    source = Source(Random(11), streaming_since + HOUR)
    for number, users in enumerate(hiding):
        source.put(f"k{number}", **shown_too, users=users)
        source.now += SECOND
    source.put("k1", registered="2024-02-01", **shown_too, users=person)
    source.put("map", **shown_too, users=person)
    source.delete("k2")
    source.put("map", **shown_too, users={"L": [person]})
    bad = json.loads(source.records[0][1])
    bad["dynamodb"] |= {"Keys": {"id": {"N": "1"}}, "OldImage": bad["dynamodb"]["NewImage"], "users": person}
    bad["dynamodb"]["NewImage"] = bad["dynamodb"]["NewImage"] | {"id": {"N": "1"}}
    other = {"Records": [json.loads(source.records[0][1])]}
    lake.stream([*source.take(), ("bad", json.dumps(bad)), ("other", json.dumps(other))])
    lake.run()
    source.now += HOUR
    clean = LeftOut(lake.contract, hmac_later=True).of_item
    s3, uri = lake.accounts.s3, lake.accounts.lake
    scanned = export_table(Scanned(source, lambda: None), s3, SOURCE, f"{uri}/exports", clean=clean)
    lake.backfill(scanned)
    asides = [Quarantine(s3, f"{uri}/_quarantine", table.table) for table in lake.tables]
    for aside, requests in zip(asides, lake.requests(), strict=True):
        names = tuple(each.name for each in aside.listed())
        replay_requests.ask(requests, Choice(names))
    lake.run()
    contents = lake.accounts.contents()
    assert not [content[:1000] for content in contents if b"swordfish" in content]
    assert len([content for content in contents if b"in clear" in content]) > len(lake.tables) * 3
    for table, aside in zip(lake.tables, asides, strict=True):
        kept_records = [entry.record for each in aside.listed() for entry in aside.read(each.name) or []]
        assert '"users": {"LEFT_OUT": true}' in repr(kept_records)
        counted = [event for event in lake.accounts.events if event["event"] == "commit"]
        # Of the stream five, and one more later; of the Scan all four that it found.
        assert sum(event["left_out"] for event in counted if event["table"] == table.table) == 6 + 4
    rows = [row for row in lake.accounts.stored() if not row["_deleted"]]
    assert {row["id"]: (row["nick"], row["_unfit"]) for row in rows} == {
        "k0": (None, ["nick"]),
        "k1": ("Bob", None),
        "k3": (None, ["nick"]),
        "k4": (None, ["nick"]),
        "map": (None, ["nick"]),
    }
    compared = compare(
        Given(lake.contract, list(source.items.values())), read_lake(f"{uri}/accounts", lake.accounts.storage)
    )
    assert (compared.missing, compared.extra, compared.different, compared.unfit) == (0, 0, 0, 4), compared.examples


def test_what_happens_while_a_table_is_scanned_counts_from_when_it_happened(
    kept: Callable[..., Lake], streaming_since: int
) -> None:
    lake = kept()
    source = Source(Random(10), streaming_since + HOUR)
    for id_ in ("a first", "changed", "goes", "stays"):
        source.put(id_)
    source.now += HOUR

    def happens() -> None:
        source.now += 20 * SECOND
        source.put("a first", name="changed behind the reader")
        source.put("changed", name="Bea")
        source.delete("goes")
        source.put("new")
        source.now += 20 * SECOND + 300 * MILLISECOND

    begun = lake.accounts.export(source.now, list(source.items.values()))
    source.now += HOUR
    scanned = export_table(Scanned(source, happens), lake.accounts.s3, SOURCE, f"{lake.accounts.lake}/exports")
    read_until = source.now
    source.now += MINUTE
    source.put("stays", name="Cleo")
    lake.stream(source.take())
    lake.run()
    lake.backfill(scanned)
    analyst = lake.analyst()
    begins, _ = analyst.span()
    assert_as_of(analyst, source, begins)
    assert instant_of(read_until) < begins <= instant_of(read_until + SECOND)
    lake.backfill(begun)
    analyst = lake.analyst()
    assert_as_of(analyst, source, analyst.span()[0])
    assert_versions(analyst, source)

"""The Glue job's way into a table: batches of the driver and of executors, and the cursor."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.base.lease import Leases
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.job import entry, streamed_changes
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.job.streamed_source import StreamedSource
from headwater.lake.sources.kinesis import KinesisStream, Record, ShardRange
from headwater.lake.sources.shard_ranges import ReadRanges
from headwater.verify import read_lake
from headwater.waiting import wait_until
from rig.local.aws import AwsApi
from tests.kinesis_api import ARN, Kinesis
from tests.lake.accounts import SOURCE, Accounts, change, item

START = 1_769_860_800_000_000


@pytest.fixture
def accounts(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Accounts:
    return Accounts(spark, aws_api, f"s-{uuid.uuid4().hex[:8]}")


class Shards:
    """A stream with one shard, and what commits it to a table."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.kinesis = Kinesis()
        self.kinesis.open("shard-0")
        self.start()

    def start(self) -> None:
        """Start a new writer, whose state comes from the lake."""
        self.accounts.start()
        self.changes = self.accounts.changes(KinesisStream(self.kinesis, ARN))

    def commit(self, *changes: str) -> bool:
        """Let changes come, and commit all that have come."""
        self.kinesis.put("shard-0", *changes)
        return self.changes.commit_next()


@pytest.fixture
def shards(accounts: Accounts) -> Shards:
    return Shards(accounts)


FIRST = change(START, None, item("1"))
MOVED = change(START + 1, item("1"), item("1", "2024-06-30", name="Bea"))
GONE = change(START + 3, item("2"), None)


def test_repeated_records_in_any_order_change_nothing(shards: Shards) -> None:
    shards.commit(FIRST, MOVED)
    before = shards.accounts.alive()
    shards.commit(MOVED, FIRST)
    assert shards.accounts.alive() == before == [("1", "2024-06", "Bea")]
    second = change(START + 2, None, item("2"))
    shards.commit(GONE, FIRST, second, MOVED)
    shards.commit(second, FIRST)
    assert shards.accounts.alive() == before
    assert [(row["id"], row["month"]) for row in shards.accounts.stored() if row["_deleted"]] == [
        ("1", "2024-01"),
        ("2", "2024-01"),
    ]


def test_a_new_writer_goes_on_after_the_last_commit(shards: Shards) -> None:
    shards.commit(FIRST)
    shards.start()
    assert not shards.commit()
    assert shards.commit(MOVED)
    assert shards.accounts.alive() == [("1", "2024-06", "Bea")]
    assert shards.accounts.commits() == 2


def test_a_stream_without_records_makes_no_commit_and_no_table(shards: Shards) -> None:
    assert not shards.commit()
    assert shards.accounts.commits() == 0
    shards.commit(FIRST)
    for _ in range(2):
        assert not shards.commit()
    assert shards.accounts.commits() == 1


def quarantined(accounts: Accounts) -> list[str]:
    """The quarantine objects that were reported."""
    return [event["object"] for event in accounts.events if event["event"] == "quarantine"]


def test_each_batch_names_its_quarantine_object(shards: Shards) -> None:
    for _ in range(2):
        shards.commit("no JSON")
    first = int(shards.kinesis.shards["shard-0"].records[0][0])
    names = [address.rpartition("/")[2].rpartition("-")[0] for address in quarantined(shards.accounts)]
    assert names == [f"shard-0-{first}", f"shard-0-{first + 1}"]


def test_a_batch_that_comes_again_writes_the_same_quarantine_object(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError("S3 refused")

    with monkeypatch.context() as patch:
        patch.setattr("headwater.lake.table.writer.TableWriter._commit", refused)
        with pytest.raises(OSError, match="S3 refused"):
            shards.commit("no JSON")
    assert shards.commit()
    objects = quarantined(shards.accounts)
    assert len(objects) == 2
    assert len(set(objects)) == 1


def test_a_record_without_json_is_quarantined(shards: Shards) -> None:
    shards.commit("", FIRST)
    assert shards.accounts.alive() == [("1", "2024-01", "Ann")]
    assert [event["records"] for event in shards.accounts.events if event["event"] == "quarantine"] == [1]


def test_an_undecodable_record_is_kept_as_it_came(shards: Shards) -> None:
    shards.commit(FIRST, json.dumps({"tableName": SOURCE}))
    assert shards.accounts.alive() == [("1", "2024-01", "Ann")]
    assert [event["records"] for event in shards.accounts.events if event["event"] == "quarantine"] == [1]


def tied(id_: str, name: str, micros: int = START) -> str:
    """A change at the same microsecond as others of its item, told apart by its sequence number alone."""
    document = json.loads(change(micros, item(id_, name="before"), item(id_, name=name)))
    return json.dumps({**document, "eventID": f"{name} {id_}"})


IDS = [f"{number:02d}" for number in range(16)]


def test_sequence_numbers_decide_between_changes_of_one_moment(shards: Shards) -> None:
    shards.commit(*(tied(id_, name) for id_ in IDS for name in ("earlier", "later")))
    rows = shards.accounts.stored()
    assert [(row["id"], row["name"]) for row in rows] == [(id_, "later") for id_ in IDS]
    first = int(shards.kinesis.shards["shard-0"].records[0][0])
    assert [row["_position"] for row in rows] == [f"shard-0/{first + 2 * number + 1}" for number in range(len(IDS))]
    shards.start()
    assert shards.accounts.progress().cursor == {"accounts/shard-0": first + 2 * len(IDS) - 1}


@pytest.fixture
def stream(endpoint: str, aws_api: AwsApi) -> tuple[Any, str]:
    """A client of Kinesis, and a stream of two shards that executors reach too."""
    name = f"stream-{uuid.uuid4().hex[:8]}"
    client = aws_api.client("kinesis")
    client.create_stream(StreamName=name, ShardCount=2)
    return client, name


def put(client: Any, name: str, *texts: str) -> None:
    """Put records into a stream, each by its own partition key."""
    records = [{"Data": text.encode(), "PartitionKey": str(number)} for number, text in enumerate(texts)]
    client.put_records(StreamName=name, Records=records)


class Backlogged:
    """A table whose stream holds more than the driver takes."""

    def __init__(self, accounts: Accounts, client: Any, name: str) -> None:
        self.accounts = accounts
        self._client = client
        self._name = name
        self.start()

    def start(self, batch_bytes: int = 1 << 30) -> None:
        """Start a new writer, whose state comes from the lake."""
        self.accounts.start(batch_bytes=batch_bytes, max_bad_share=0.5)
        arn = f"arn:aws:kinesis:eu-central-1:123456789012:stream/{self._name}"
        self.changes = self.accounts.changes(KinesisStream(self._client, arn))

    def put(self, *texts: str) -> None:
        """Let records come."""
        put(self._client, self._name, *texts)

    def drain(self) -> None:
        """Commit all that has come."""
        while self.changes.commit_next():
            pass


@pytest.fixture
def backlogged(accounts: Accounts, stream: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> Backlogged:
    monkeypatch.setattr(streamed_changes, "_DRIVER_BYTES", 2000)
    return Backlogged(accounts, *stream)


def people(count: int, name: str = "Ann", at: int = START) -> list[str]:
    """Changes that give so many items a name."""
    return [change(at + number, item(f"{number:03d}"), item(f"{number:03d}", name=name)) for number in range(count)]


def test_executors_commit_what_is_too_large_for_the_driver(backlogged: Backlogged) -> None:
    backlogged.put(*people(40), "no JSON")
    backlogged.drain()
    assert [(id_, name) for id_, _, name in backlogged.accounts.alive()] == [(f"{n:03d}", "Ann") for n in range(40)]
    assert backlogged.accounts.commits() == 1
    (aside,) = quarantined(backlogged.accounts)
    assert aside.rpartition("/")[2].startswith("shardId-000000000000-0-")
    backlogged.start()
    assert len(backlogged.accounts.progress().cursor) == 2
    assert not backlogged.changes.commit_next()
    backlogged.put(change(START + 1000, item("000"), item("000", name="Bea")))
    backlogged.drain()
    assert backlogged.accounts.alive()[0] == ("000", "2024-01", "Bea")


def test_executors_end_a_batch_at_its_bytes_and_go_on(backlogged: Backlogged, monkeypatch: pytest.MonkeyPatch) -> None:
    backlogged.put(*people(40))
    records = [len(text) for text in people(40)]
    monkeypatch.setattr(streamed_changes, "_RANGE_BYTES", 7 * max(records))
    backlogged.drain()
    assert len(backlogged.accounts.alive()) == 40
    # Of about twenty records of a shard, eight at once.
    assert backlogged.accounts.commits() == 3


def test_executors_go_on_while_the_stream_brings_much(backlogged: Backlogged, monkeypatch: pytest.MonkeyPatch) -> None:
    backlogged.put(*people(40))
    assert backlogged.changes.commit_next()

    def read(*_: Any) -> None:
        raise AssertionError("the driver reads in vain")

    with monkeypatch.context() as patch:
        patch.setattr(KinesisStream, "read", read)
        backlogged.put(*people(2, "Bea", START + 1000))
        assert backlogged.changes.commit_next()
    assert not backlogged.changes.commit_next()
    assert backlogged.accounts.commits() == 2


def test_a_batch_of_executors_is_read_and_decoded_once(
    spark: SparkSession, backlogged: Backlogged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts, the quarantined records and the written rows agree, even if a second read would give others."""
    read = spark.sparkContext.accumulator(0)

    class Counted(ReadRanges):
        def __init__(self, spark: SparkSession, ranges: list[ShardRange], most_bytes: int) -> None:
            super().__init__(spark, ranges, most_bytes)

            def counted(record: Record) -> Record:
                read.add(1)
                return record

            self.records = self.records.map(counted)

    monkeypatch.setattr(streamed_changes, "ReadRanges", Counted)
    backlogged.put(*people(40), "no JSON")
    backlogged.drain()
    assert read.value == 41


def test_of_two_ends_of_a_range_that_was_read_twice_the_first_counts(
    spark: SparkSession, stream: tuple[Any, str]
) -> None:
    client, name = stream
    arn = f"arn:aws:kinesis:eu-central-1:123456789012:stream/{name}"
    put(client, name, *people(5))
    read = ReadRanges(spark, KinesisStream(client, arn).ranges({})[0], 1 << 20)
    assert read.records.count() == 5
    first = read.cursor
    put(client, name, *people(5, "Bea"))
    # As after the loss of an executor whose part of the batch was stored there.
    assert read.records.count() == 10
    assert read.cursor == first


def test_a_range_ends_at_the_same_record_whatever_a_call_gives(spark: SparkSession, stream: tuple[Any, str]) -> None:
    client, name = stream
    for _ in range(5):
        put(client, name, *people(10))
        time.sleep(0.01)  # the stand-in tells how far a reader is behind in milliseconds
    ranges, _ = KinesisStream(client, f"arn:aws:kinesis:eu-central-1:123456789012:stream/{name}").ranges({})
    ends = []
    for most_records in (20, 6):
        read = ReadRanges(spark, ranges, 7 * len(people(1)[0]), most_records)
        ends.append((read.records.count(), read.cursor))
        assert read.is_behind
    assert ends[0] == ends[1]


class TwoTables:
    """The shipped job over two tables, each with a stream of its own. Each run is a job of its own, until it has done
    all there is."""

    def __init__(self, spark: SparkSession, aws_api: AwsApi) -> None:
        self.accounts = Accounts(spark, aws_api, f"t-{uuid.uuid4().hex[:8]}")
        self.accounts.writer.close()
        self.accounts.leases.take().release()
        # Not partitioned, so that no catalog is needed.
        contract = replace(self.accounts.contract, partition_by=())
        self.contracts = [replace(contract, table=name) for name in ("one", "two")]
        self._kinesis = aws_api.client("kinesis")
        self._streams = {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in ("one", "two")}
        for stream in self._streams.values():
            self._kinesis.create_stream(StreamName=stream, ShardCount=1)

    def arrive(self, table: str, *changes: str) -> None:
        """Let changes arrive in a table's stream."""
        put(self._kinesis, self._streams[table], *changes)

    def run(self, *, once: bool = True, until: Callable[[], None] | None = None) -> None:
        """Run a job, and tell it to stop when ``until`` has returned."""
        arn = "arn:aws:kinesis:eu-central-1:123456789012:stream"
        argv = [f"--stream-arn={','.join(f'{name}={arn}/{stream}' for name, stream in self._streams.items())}"]
        argv += [f"--source-table=one={SOURCE},two={SOURCE}", "--window-seconds=0.1", "--contract=none"]
        argv += [f"--lake={self.accounts.lake}", "--database=lake", *(["--once"] if once else [])]
        options = StreamedSource().arguments(argv)
        leases = Leases(self.accounts.s3, f"{self.accounts.lake}/_leases", "test", 3600.0, threading.Event())
        job = replace(self.accounts.job(options), contracts=self.contracts, leases=leases)

        def watch(until: Callable[[], None]) -> None:
            try:
                until()
            finally:
                job.stop.set()

        if until is not None:
            threading.Thread(target=watch, args=(until,)).start()
        try:
            entry.write(StreamedSource(), job, options)
        finally:
            leases.release()

    def rows(self, table: str) -> list[tuple[str, str]]:
        """Id and name of a table's rows that are not tombstones."""
        batches = list(read_lake(f"{self.accounts.lake}/{table}", self.accounts.storage))
        rows = pa.Table.from_batches(batches).to_pylist() if batches else []
        return sorted((row["id"], row["name"]) for row in rows if not row["_deleted"])

    def of(self, event: str) -> list[str]:
        """The tables that the job reported such an event for."""
        return [each["table"] for each in self.accounts.events if each["event"] == event]


@pytest.fixture
def two_tables(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> TwoTables:
    return TwoTables(spark, aws_api)


def test_two_tables_in_one_job_go_on_from_cursors_of_their_own(two_tables: TwoTables) -> None:
    two_tables.arrive("one", FIRST)
    two_tables.arrive("two", FIRST, MOVED)
    two_tables.run()
    assert (two_tables.rows("one"), two_tables.rows("two")) == ([("1", "Ann")], [("1", "Bea")])
    two_tables.arrive("one", MOVED)
    two_tables.run()
    assert two_tables.rows("one") == two_tables.rows("two") == [("1", "Bea")]
    assert two_tables.of("commit") == ["one", "two", "one"] or two_tables.of("commit") == ["two", "one", "one"]


def test_a_table_that_fails_begins_anew_while_the_others_go_on(
    two_tables: TwoTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.lake.job.loop.PASSING_PAUSE", IdlePause(0.5, 0.5))
    commit = StreamedChanges.commit_next
    refusals = iter(["S3 refused"] * 4)

    def refused(changes: StreamedChanges) -> bool:
        if changes._writer.contract.table == "two":
            for refusal in refusals:
                raise OSError(refusal)
        return commit(changes)

    def later() -> None:
        wait_until("two failures", lambda: len(two_tables.of("failed")) >= 2)
        two_tables.arrive("one", MOVED)
        wait_until("both tables' commits", lambda: sorted(two_tables.of("commit")) == ["one", "one", "two"])
        wait_until("the other table's recovery", lambda: "two" in two_tables.of("recovered"))

    monkeypatch.setattr(StreamedChanges, "commit_next", refused)
    two_tables.arrive("two", FIRST)
    two_tables.arrive("one", FIRST)
    two_tables.run(once=False, until=later)
    assert two_tables.of("failed") == ["two"] * 4
    assert (two_tables.rows("one"), two_tables.rows("two")) == ([("1", "Bea")], [("1", "Ann")])


def test_a_table_with_too_many_bad_records_leaves_the_others_to_drain(two_tables: TwoTables) -> None:
    two_tables.arrive("two", *["no JSON"] * 20)
    two_tables.arrive("one", FIRST, MOVED)
    with pytest.raises(TooManyBadRecords, match="20 of 20 records cannot be decoded"):
        two_tables.run()
    assert two_tables.of("failed") == ["two"]
    assert two_tables.rows("one") == [("1", "Bea")]

"""Structured Streaming's way into a table, as on Glue: micro-batches of raw records with a checkpoint."""

from __future__ import annotations

import argparse
import json
import runpy
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import UserError
from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.job.upkeep import Upkeep
from headwater.lake.sources.decoding_ahead import DecodingAhead
from headwater.lake.sources.kinesis import TRIM_HORIZON, KinesisStream
from headwater.paths import ROOT
from headwater.waiting import wait_until
from rig.local.aws import AwsApi
from tests.kinesis_api import ARN, Kinesis
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


class TwoTables:
    """The shipped script's way with two tables in one job; each one's records come from files of a folder."""

    def __init__(self, spark: SparkSession, aws_api: AwsApi, folder: Path) -> None:
        self.tables = {name: Accounts(spark, aws_api, f"{name}-{uuid.uuid4().hex[:8]}") for name in ("one", "two")}
        self.events: list[dict[str, Any]] = []
        self._spark = spark
        self._others = [query.id for query in spark.streams.active]
        self._folder = folder
        for name in self.tables:
            (folder / name / "records").mkdir(parents=True)

    def arrive(self, table: str, file: str, *changes: str) -> None:
        """Let changes arrive in a table's stream."""
        (self._folder / table / "records" / file).write_text("".join(change + "\n" for change in changes))

    def follow(self, *, once: bool, files_per_batch: int = 100, until: Callable[[], None] | None = None) -> None:
        """Follow both streams as the job does, and tell it to stop when ``until`` has returned."""
        script = runpy.run_path(str(ROOT / "glue_scripts" / "write_hudi.py"))
        options = argparse.Namespace(once=once, window_seconds=0.1)
        work = {
            name: partial(self._work, script["TableWork"], name, accounts) for name, accounts in self.tables.items()
        }
        services: Any = SimpleNamespace(report=self.events.append, decoding=DecodingAhead())
        settings: Any = None
        stop = threading.Event()
        leases: Any = None
        running = Job([], leases, self._spark, services, settings, options, stop)

        def records(table: Any) -> DataFrame:
            folder = str(self._folder / table.table / "records")
            stream = self._spark.readStream.option("maxFilesPerTrigger", files_per_batch)
            return stream.text(folder).withColumnRenamed("value", RAW)

        def watch(until: Callable[[], None]) -> None:
            try:
                until()
            finally:
                stop.set()

        if until is not None:
            threading.Thread(target=watch, args=(until,)).start()
        script["follow"](running, work, records, options)

    def _work(self, make: Any, name: str, accounts: Accounts) -> Any:
        accounts.start()
        upkeep = Upkeep(name, self.events.append, [], Counter())
        return make(name, accounts.changes(), accounts, upkeep, "arn", str(self._folder / name / "checkpoint"))

    def failed(self) -> list[tuple[str, str]]:
        """Each table that was reported as failed, with its error."""
        return [(event["table"], event["error"]) for event in self.events if event["event"] == "failed"]

    def running_queries(self) -> list[str | None]:
        """The names of those of its queries that still run."""
        return [query.name for query in self._spark.streams.active if query.id not in self._others]


@pytest.fixture
def two_tables(spark: SparkSession, endpoint: str, aws_api: AwsApi, tmp_path: Path) -> TwoTables:
    return TwoTables(spark, aws_api, tmp_path)


def test_two_tables_in_one_job_go_on_from_checkpoints_of_their_own(two_tables: TwoTables) -> None:
    two_tables.arrive("one", "1.txt", FIRST)
    two_tables.arrive("two", "1.txt", FIRST, MOVED)
    two_tables.follow(once=True)
    one, two = two_tables.tables.values()
    assert (one.alive(), two.alive()) == ([("1", "2024-01", "Ann")], [("1", "2024-06", "Bea")])
    commits = two.commits()
    two_tables.arrive("one", "2.txt", MOVED)
    two_tables.follow(once=True)
    assert one.alive() == two.alive()
    assert two.commits() == commits


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.lake.base.idle_pause.REQUESTS_PAUSE", IdlePause(0.1, 0.1))
    monkeypatch.setattr("headwater.lake.job.loop.PASSING_PAUSE", IdlePause(0.5, 0.5))


def test_a_table_that_fails_begins_anew_while_the_others_go_on(
    two_tables: TwoTables, monkeypatch: pytest.MonkeyPatch, short_pauses: None
) -> None:
    one, two = two_tables.tables.values()
    commit = StreamedChanges.commit_frame
    refusals = iter(("S3 refused", "S3 refused", "S3 refused", "S3 refused"))

    def refused(changes: StreamedChanges, frame: DataFrame, batch_id: int) -> None:
        if changes._writer.settings.quarantine.startswith(two.lake):
            for refusal in refusals:
                raise OSError(refusal)
        commit(changes, frame, batch_id)

    def later() -> None:
        wait_until("two failures", lambda: len(two_tables.failed()) >= 2)
        two_tables.arrive("one", "2.txt", MOVED)
        wait_until("both tables' commits", lambda: (one.commits(), two.commits()) == (2, 1))
        wait_until("the other table's recovery", lambda: {"event": "recovered", "table": "two"} in two_tables.events)

    monkeypatch.setattr(StreamedChanges, "commit_frame", refused)
    two_tables.arrive("two", "1.txt", FIRST)
    two_tables.arrive("one", "1.txt", FIRST)
    two_tables.follow(once=False, until=later)
    assert two_tables.failed() == [("two", "OSError")] * 4
    assert two_tables.running_queries() == []
    assert (one.alive(), two.alive()) == ([("1", "2024-06", "Bea")], [("1", "2024-01", "Ann")])


def test_a_table_whose_export_fails_has_one_query_when_it_begins_anew(
    two_tables: TwoTables, monkeypatch: pytest.MonkeyPatch, short_pauses: None
) -> None:
    two = two_tables.tables["two"]
    refusals = iter(("S3 refused", "S3 refused"))
    running: list[list[str | None]] = []

    def load(accounts: Accounts) -> bool:
        running.append(sorted(two_tables.running_queries(), key=str))
        if accounts is two:
            for refusal in refusals:
                raise OSError(refusal)
        return False

    def later() -> None:
        wait_until("two failures", lambda: len(two_tables.failed()) >= 2)
        two_tables.arrive("two", "1.txt", FIRST)
        wait_until("a commit", lambda: two.commits() == 1)
        wait_until("the table's recovery", lambda: {"event": "recovered", "table": "two"} in two_tables.events)

    monkeypatch.setattr(Accounts, "commit_next", load)
    two_tables.follow(once=False, until=later)
    assert two_tables.failed() == [("two", "OSError")] * 2
    assert max(map(len, running)) == 2
    assert two.alive() == [("1", "2024-01", "Ann")]


def test_a_table_with_too_many_bad_records_stops_alone(two_tables: TwoTables, short_pauses: None) -> None:
    one, two = two_tables.tables.values()
    two_tables.arrive("two", "1.txt", *["no JSON"] * 20)
    two_tables.arrive("one", "1.txt", FIRST)

    def later() -> None:
        wait_until("the failure of a table", lambda: bool(two_tables.failed()))
        time.sleep(2)
        two_tables.arrive("one", "2.txt", MOVED)
        wait_until("the other table's next commit", lambda: one.commits() == 2)

    with pytest.raises(TooManyBadRecords, match="20 of 20 records cannot be decoded"):
        two_tables.follow(once=False, until=later)
    assert two_tables.failed() == [("two", "TooManyBadRecords")]
    assert one.alive() == [("1", "2024-06", "Bea")]
    assert two.commits() == 0
    assert two_tables.running_queries() == []


def test_a_table_with_too_many_bad_records_leaves_the_others_to_drain(two_tables: TwoTables) -> None:
    one = two_tables.tables["one"]
    two_tables.arrive("two", "1.txt", *["no JSON"] * 20)
    two_tables.arrive("one", "1.txt", FIRST)
    two_tables.arrive("one", "2.txt", MOVED)
    with pytest.raises(TooManyBadRecords):
        two_tables.follow(once=True, files_per_batch=1)
    assert two_tables.failed() == [("two", "TooManyBadRecords")]
    assert one.alive() == [("1", "2024-06", "Bea")]


def test_a_batch_that_hangs_is_not_told_as_idle(
    two_tables: TwoTables, monkeypatch: pytest.MonkeyPatch, short_pauses: None
) -> None:
    hung: list[str] = []

    def hang(changes: StreamedChanges, frame: DataFrame, batch_id: int) -> None:
        time.sleep(4)
        hung.extend(event["table"] for event in two_tables.events if event["event"] == "idle")
        raise RuntimeError("it was hung")

    monkeypatch.setattr(StreamedChanges, "commit_frame", hang)
    two_tables.arrive("one", "1.txt", FIRST)

    def later() -> None:
        wait_until("the failure of a table", lambda: bool(two_tables.failed()))

    with pytest.raises(RuntimeError, match="it was hung"):
        two_tables.follow(once=False, until=later)
    assert hung == ["two"]


def test_an_empty_batch_makes_no_commit_and_no_table(spark: SparkSession, accounts: Accounts) -> None:
    changes = accounts.changes()
    changes.commit_frame(batch(spark), 0)
    assert accounts.commits() == 0
    changes.commit_frame(batch(spark, FIRST), 1)
    noted = accounts.progress().since
    for number in (2, 3):
        changes.commit_frame(batch(spark), number)
    assert accounts.commits() == 1
    accounts.start()
    assert accounts.progress().since == noted > 0


def test_a_new_checkpoint_overwrites_no_quarantined_record(spark: SparkSession, accounts: Accounts) -> None:
    for bad in ("no JSON", "nor this", "nor this"):
        accounts.changes().commit_frame(batch(spark, bad), 0)
    objects = [event["object"] for event in accounts.events if event["event"] == "quarantine"]
    assert len(set(objects)) == 2
    assert objects[1] == objects[2]


def tied(id_: str, name: str, micros: int = START) -> str:
    """A change at the same microsecond as others of its item, told apart by its sequence number alone."""
    document = json.loads(change(micros, item(id_, name="before"), item(id_, name=name)))
    return json.dumps({**document, "eventID": f"{name} {id_}"})


IDS = [f"{number:02d}" for number in range(16)]
SEQUENCES = (10**55 + 7, 10**55 + 10)


def test_sequence_numbers_decide_between_changes_of_one_moment_and_tell_where_a_record_was(
    spark: SparkSession, accounts: Accounts
) -> None:
    records = [
        (tied(id_, name), str(sequence), "shardId-000000000003")
        for id_ in IDS
        for name, sequence in zip(("earlier", "later"), SEQUENCES, strict=True)
    ]
    frame = spark.createDataFrame(records, f"`{RAW}` string, sequenceNumber string, shardId string")
    accounts.changes().commit_frame(frame, 0)
    rows = accounts.stored()
    assert [(row["id"], row["name"]) for row in rows] == [(id_, "later") for id_ in IDS]
    assert {row["_position"] for row in rows} == {f"shardId-000000000003/{SEQUENCES[1]}"}


def test_what_the_kinesis_api_gives_is_ordered_by_its_sequence_numbers(accounts: Accounts) -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", *(tied(id_, name) for id_ in IDS for name in ("earlier", "later")))
    stream = KinesisStream(kinesis, ARN, TRIM_HORIZON)
    assert accounts.changes().commit_read(stream)
    rows = accounts.stored()
    assert [(row["id"], row["name"]) for row in rows] == [(id_, "later") for id_ in IDS]
    first = int(kinesis.shards["shard-0"].records[0][0])
    assert [row["_position"] for row in rows] == [f"shard-0/{first + 2 * number + 1}" for number in range(len(IDS))]
    accounts.start()
    assert accounts.progress().cursor == {"accounts/shard-0": first + 2 * len(IDS) - 1}
    assert accounts.progress().since > 0
    assert not accounts.changes().commit_read(stream)
    kinesis.put("shard-0", "no JSON")
    assert accounts.changes().commit_read(stream)
    (quarantined,) = [event["object"] for event in accounts.events if event["event"] == "quarantine"]
    assert quarantined.rpartition("/")[2].startswith(f"shard-0-{first + 2 * len(IDS)}-")


def test_each_batch_names_its_quarantine_object(spark: SparkSession, accounts: Accounts) -> None:
    for number in (3, 12):
        accounts.changes().commit_frame(batch(spark, "no JSON"), number)
    objects = [event["object"] for event in accounts.events if event["event"] == "quarantine"]
    assert [address.rpartition("/")[2].rpartition("-")[0] for address in objects] == [
        "batch-00000000000000000003",
        "batch-00000000000000000012",
    ]


def test_a_batch_is_read_and_decoded_once(spark: SparkSession, accounts: Accounts) -> None:
    """What is counted, quarantined and written is the same then, even where the source gives something else if it is
    read again."""
    accounts.changes().commit_frame(batch(spark, change(START, None, item("0"))), 0)
    read = spark.sparkContext.accumulator(0)

    def record(number: int) -> tuple[str]:
        read.add(1)
        return (change(START + number, None, item(str(number))) if number else "no JSON",)

    rows = spark.sparkContext.parallelize(range(5), 2).map(record)
    accounts.changes().commit_frame(spark.createDataFrame(rows, f"`{RAW}` string", verifySchema=False), 1)
    assert read.value == 5
    assert len(accounts.alive()) == 5


def test_a_record_without_data_is_quarantined(spark: SparkSession, accounts: Accounts) -> None:
    frame = spark.createDataFrame([(None,), (FIRST,)], f"`{RAW}` string")
    accounts.changes().commit_frame(frame, 0)
    assert accounts.alive() == [("1", "2024-01", "Ann")]
    assert [event["records"] for event in accounts.events if event["event"] == "quarantine"] == [1]


@pytest.mark.parametrize("name", ["$json$data_infer_schema$_temporary$", "$json$data_infer_schema$.temporary$", "data"])
def test_the_record_is_found_under_every_name_that_sources_give_it(
    spark: SparkSession, accounts: Accounts, name: str
) -> None:
    accounts.changes().commit_frame(spark.createDataFrame([(FIRST,)], f"`{name}` string"), 0)
    (row,) = accounts.stored()
    assert row["_position"] == f"event/{START}-1"


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

"""What ends after its time, by what the shipped scripts do for a table, over real Spark, Hudi and an S3 API."""

from __future__ import annotations

import datetime as dt
import time
import uuid

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession

from headwater.lake.base.s3_uri import split_uri
from headwater.lake.requests.protocol import DONE, REFUSED, Status
from headwater.lake.table import hudi_table as table
from headwater.lake.table.purge import Purge
from headwater.lake.table.replaced_files import ReplacedFiles
from headwater.lake.table.writer import TableWriter, WriterSettings
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import BUCKET, Pipeline, account, event, partitions
from tests.lake.readers import comparable, read_by_writer
from tests.lake.test_replay import START, Aside, Killed, drain, key_value, killed, relational

SECOND = 10**6


def test_a_purged_row_is_not_brought_back_by_what_arrives_late(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = event("c", 10, after=account(1))
    moved = event("u", 20, account(2), account(2, month="2024-02"))
    pipeline.land(first, event("c", 11, after=account(2)), event("c", 12, after=account(3)))
    pipeline.land(moved, event("d", 21, before=account(1)), event("c", 22, after=account(4)))
    drain(relational(pipeline, tombstone_days=1))
    assert [row["id"] for row in pipeline.stored() if row["_deleted"]] == [1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_done", killed)
        with pytest.raises(Killed):
            drain(relational(pipeline, tombstone_days=0))
    kept = [account(2, month="2024-02"), account(3), account(4)]
    assert [row["id"] for row in pipeline.stored()] == [2, 3, 4]
    commit = pipeline.table().last_commit()
    assert commit is not None
    assert commit.progress.cursor == {"headwater.shop.accounts/0": 6}

    pipeline.land(first, event("c", 11, after=account(2)), event("c", 12, after=account(3)))
    drain(relational(pipeline))
    assert pipeline.alive() == kept
    aside = Aside(pipeline.s3, pipeline.lake)
    assert [reason[:13] for reason in aside.reasons()] == ["_order: found"] * 2
    request = aside.ask()
    drain(relational(pipeline))
    assert aside.status(request) == Status("", DONE, parts=1, parts_done=1, records=2, kept=2)
    # A late tombstone does not vouch for what comes after it.
    pipeline.land(event("d", 13, before=account(1)))
    drain(relational(pipeline))
    pipeline.land(event("c", 14, after=account(1)))
    drain(relational(pipeline))
    assert pipeline.alive() == kept
    assert len(aside.reasons()) == 3
    # What the batch itself tells of a place needs no tombstone, and what is new is taken.
    pipeline.land(moved, event("c", 11, after=account(2)), first, event("c", 30, after=account(1, "New")))
    drain(relational(pipeline))
    assert pipeline.alive() == [account(1, "New"), *kept]
    assert len(aside.reasons()) == 3
    assert read_by_writer(pipeline.spark, pipeline.table().uri) == [comparable(row) for row in pipeline.stored()]


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_what_a_floor_has_ended_vouches_for_nothing_that_was_deleted_since(pipeline: Pipeline, held_bytes: int) -> None:
    ended, deleted = event("c", 10, after=account(1)), event("c", 30, after=account(1))
    pipeline.land(ended, event("t", 20), event("c", 21, after=account(2)))
    pipeline.land(deleted, event("d", 40, before=account(1)), event("c", 41, after=account(3)))
    pipeline.drain(held_bytes=held_bytes)
    purge = Purge(pipeline.writer().writer, dt.timedelta(0))
    while purge.do_next():
        pass
    for again in (ended, deleted):
        pipeline.land(again)
        pipeline.drain(held_bytes=held_bytes, max_bad_share=1.0)
    assert [row["id"] for row in pipeline.stored()] == [2, 3]
    assert [event["records"] for event in pipeline.events if event["event"] == "quarantine"] == [1]


def test_a_row_that_is_back_stays_when_the_tombstone_of_before_is_purged(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2, month="2024-02")))
    pipeline.land(event("d", 20, before=account(1)), event("d", 21, before=account(2, month="2024-02")))
    pipeline.drain()
    changes = pipeline.writer()
    purge = Purge(changes.writer, dt.timedelta(0))
    assert purge.do_next()
    pipeline.land(event("c", 30, after=account(1)), event("c", 31, after=account(2, month="2024-02")))
    assert changes.commit_next()
    assert not purge.do_next()
    assert pipeline.alive() == [account(1), account(2, month="2024-02")]


def test_a_purged_item_is_not_brought_back_by_a_late_record_or_an_older_export(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    accounts = Accounts(spark, aws_api, f"p-{uuid.uuid4().hex[:8]}")
    early = change(START, None, item("a"))
    accounts.stream(early, change(START, None, item("b")), since=START)
    accounts.stream(change(START + 2 * SECOND, item("a"), None))
    job = key_value(accounts, tombstone_days=0)
    drain(job.upkeep.do_next)
    assert [row["id"] for row in accounts.stored()] == ["b"]

    accounts.start()
    accounts.commit([(early, f"{0:056d}"), (change(START + 3 * SECOND, None, item("c")), f"{9:056d}")])
    assert [row["id"] for row in accounts.stored()] == ["b", "c"]
    (reason,) = Aside(accounts.s3, accounts.lake).reasons()
    assert reason.startswith("_order: found")
    older = accounts.load(accounts.export(START + SECOND, [item("a"), item("b")]))
    assert older.state == REFUSED
    assert "tombstones" in older.reason
    newer = accounts.load(accounts.export(START + 120 * SECOND, [item("b"), item("c")]))
    assert newer.state == DONE
    assert [row["id"] for row in accounts.stored()] == ["b", "c"]


def test_landing_objects_expire_behind_the_cursor_and_a_table_that_begins_without_them_says_so(
    pipeline: Pipeline,
) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.land(event("c", 11, after=account(2)))
    step = relational(pipeline, landing_days=0)
    drain(step)
    pipeline.land(event("u", 20, account(1), account(1, "Bea")))
    folder = f"{pipeline.prefix}/landing/headwater.shop.accounts/0/"

    def offsets() -> list[int]:
        listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=folder)["Contents"]
        return [int(entry["Key"][len(folder) :].partition(".")[0]) for entry in listed]

    assert offsets() == [1, 2]
    drain(step)
    assert offsets() == [2]
    assert pipeline.alive() == [account(1, "Bea"), account(2)]
    assert [event for event in pipeline.events if event["event"] == "begins late"] == []
    pipeline.lake += "/another"
    pipeline.drain()
    (late,) = [event for event in pipeline.events if event["event"] == "begins late"]
    assert (late["partition"], late["first_offset"]) == ("headwater.shop.accounts/0", 2)


HASTY = {"hoodie.compact.inline.max.delta.commits": "1", "hoodie.compaction.logfile.num.threshold": "1"}


class Renamed:
    """A row that gets one name after another, each compacted."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.number = 0
        self.uri = f"{pipeline.lake}/accounts"

    def rename(self, times: int) -> None:
        for _ in range(times):
            self.number += 1
            self.pipeline.land(event("u", 10 + self.number, account(1), account(1, f"n{self.number}")))
            self.pipeline.drain()

    def name(self) -> str:
        (row,) = self.pipeline.alive()
        return str(row["name"])

    def bases(self) -> list[str]:
        """The instants of the base files."""
        _, folder = split_uri(self.uri)
        listed = self.pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/month=")["Contents"]
        return sorted(e["Key"].rpartition("_")[2][:17] for e in listed if e["Key"].endswith(".parquet"))

    def delete(self, before: dt.datetime) -> int:
        return ReplacedFiles(self.pipeline.s3, self.pipeline.table()).delete(before)


@pytest.fixture
def renamed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Renamed:
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **HASTY})
    renamed = Renamed(pipeline)
    renamed.rename(2)
    return renamed


def test_replaced_files_stay_for_queries_that_began_before_and_go_then(renamed: Renamed) -> None:
    query = HudiTableBuilder.from_base_uri(renamed.uri).with_storage_options(renamed.pipeline.storage).build()
    (slice_,) = query.get_file_slices()
    time.sleep(1)  # S3 tells whole seconds
    began = dt.datetime.now(dt.UTC)
    time.sleep(1)
    renamed.rename(2)
    assert renamed.delete(began) > 0
    batch = query.create_file_group_reader_with_options().read_file_slice(slice_)
    assert pa.table(batch).column("name").to_pylist() == ["n2"]
    assert len(renamed.bases()) == 1 + 2
    drain(relational(renamed.pipeline, file_version_hours=0))
    assert len(renamed.bases()) == 1
    assert read_by_writer(renamed.pipeline.spark, renamed.uri) == [comparable(row) for row in renamed.pipeline.stored()]
    renamed.rename(1)
    assert renamed.name() == "n5"


def test_a_table_that_was_deleted_in_the_catalog_is_written_and_gets_its_partitions_back(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.lake.job.upkeep._SOON", 0.0)
    known = {"DatabaseName": pipeline.database, "Name": "accounts"}
    definition = pipeline.glue.get_table(**known)["Table"]
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2, month="2024-02")))
    commit_next = relational(pipeline)
    commit_next()
    pipeline.glue.delete_table(**known)
    # A chore each.
    for _ in range(2):
        commit_next()
    assert [event["chore"] for event in pipeline.events if event["event"] == "upkeep failed"] == [
        "partitions of the catalog"
    ]
    pipeline.land(event("c", 12, after=account(3, month="2024-02")))
    commit_next()
    assert pipeline.alive() == [account(1), account(2, month="2024-02"), account(3, month="2024-02")]
    again = {name: definition[name] for name in ("Name", "PartitionKeys", "StorageDescriptor")}
    pipeline.glue.create_table(DatabaseName=pipeline.database, TableInput=again)
    commit_next = relational(pipeline)
    for _ in range(2):
        commit_next()
    assert partitions(pipeline.glue, pipeline.database) == {"2024-01", "2024-02"}


def test_a_tombstone_has_its_age_behind_compactions_too(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **HASTY})
    ids = range(1, 5)
    pipeline.land(*[event("c", 10 + id_, after=account(id_)) for id_ in (*ids, 5, 6, 7, 8)])
    pipeline.drain()
    pipeline.land(*[event("d", 20 + id_, before=account(id_)) for id_ in ids])
    pipeline.drain()
    deleted = dt.datetime.now(dt.UTC)
    pipeline.land(*[event("u", 30 + id_, account(id_), account(id_, "Bea")) for id_ in (5, 6, 7, 8)])
    pipeline.drain()
    assert pipeline.table().tombstones(deleted).count() == len(ids)
    assert pipeline.table().tombstones(deleted - dt.timedelta(hours=1)).count() == 0


def test_nothing_that_an_open_compaction_reads_is_deleted(renamed: Renamed) -> None:
    bucket, folder = split_uri(f"{renamed.uri}/.hoodie")
    instant = renamed.bases()[-1]
    # A crash before the end of a compaction leaves its base file and no commit.
    renamed.pipeline.s3.delete_object(Bucket=bucket, Key=f"{folder}/{instant}.commit")
    kept = renamed.bases()[-2:]
    renamed.delete(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1))
    assert renamed.bases() == kept
    assert renamed.name() == "n2"
    renamed.rename(1)
    renamed.delete(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1))
    assert len(renamed.bases()) == 1
    assert renamed.name() == "n3"

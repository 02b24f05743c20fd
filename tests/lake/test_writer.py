"""The writer over real Spark, Hudi and an S3 API; every table is read back by hudi-rs."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from headwater.contract.model import QUARANTINE
from headwater.contract.types import parse_type
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.progress import Progress
from headwater.lake.base.quarantine import TooManyBadRecords
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.sources.landing import LandingGap
from headwater.lake.table import hudi_table as table
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.hudi_table import HudiTable, ProgressMissing
from headwater.lake.table.writer import TableWriter, WriterSettings
from tests.lake.pipeline import BUCKET, Landed, Pipeline, account, event, in_epoch, partitions


def test_changes_over_several_commits_give_the_latest_rows(pipeline: Pipeline) -> None:
    pipeline.land(event("r", 10, after=account(1), snapshot="first"), event("r", 10, after=account(2), snapshot="last"))
    pipeline.drain()
    pipeline.land(
        event("u", 20, before=account(1), after=account(1, name="Bea")),
        event("d", 30, before=account(2)),
        event("c", 40, after=account(3, month="2024-02")),
    )
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="Bea"), account(3, month="2024-02")]
    assert [row["id"] for row in pipeline.stored() if row["_deleted"]] == [2]
    assert partitions(pipeline.glue, pipeline.database) == {"2024-01", "2024-02"}


def test_any_order_and_repetition_of_the_same_changes_gives_the_same_table(pipeline: Pipeline) -> None:
    disorder = random.Random(7)
    for id_ in (1, 11, 21):
        changes = [
            event("c", 20, after=account(id_)),
            event("u", 30, before=account(id_), after=account(id_, month="2024-02")),
            event("u", 40, before=account(id_, month="2024-02"), after=account(id_, name="Cid")),
            event("d", 50, before=account(id_, name="Cid")),
            event("c", 60, after=account(id_, name="Dora", month="2024-03")),
            event("c", 25, after=account(id_ + 1)),
            event("d", 35, before=account(id_ + 1)),
        ]
        disorder.shuffle(changes)
        pipeline.land(*changes[:4])
        pipeline.drain()
        pipeline.land(*changes[2:], changes[0])
        pipeline.drain()
        pipeline.land(*changes)
        pipeline.drain()
        assert pipeline.alive()[-1] == account(id_, name="Dora", month="2024-03")
    assert [row["id"] for row in pipeline.alive()] == [1, 11, 21]


def test_truncate_ends_all_rows_before_it_and_late_ones_too(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2)))
    pipeline.drain()
    pipeline.land(event("t", 20), event("c", 30, after=account(3)))
    pipeline.drain()
    assert pipeline.alive() == [account(3)]
    pipeline.land(event("c", 12, after=account(4)), event("u", 13, before=account(1), after=account(1, name="late")))
    pipeline.drain()
    assert pipeline.alive() == [account(3)]


def test_a_second_snapshot_leaves_no_ghosts_of_an_interrupted_one(pipeline: Pipeline) -> None:
    pipeline.land(event("r", 10, after=account(1), snapshot="first"), event("r", 10, after=account(2), snapshot="true"))
    pipeline.drain()
    pipeline.land(event("r", 50, after=account(2), snapshot="first"), event("r", 50, after=account(3), snapshot="last"))
    pipeline.drain()
    assert pipeline.alive() == [account(2), account(3)]


def test_a_refused_last_row_of_a_snapshot_still_ends_it(pipeline: Pipeline) -> None:
    pipeline.contract = replace(pipeline.contract, on_unfit=QUARANTINE)
    pipeline.land(event("r", 10, after=account(1), snapshot="first"), event("r", 10, after=account(2), snapshot="true"))
    pipeline.drain()
    pipeline.land(event("r", 50, after=account(2)), event("r", 50, after=account(3, balance="NAN"), snapshot="last"))
    pipeline.drain()
    assert pipeline.alive() == [account(2)]


def test_a_changed_layout_is_refused(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    pipeline.contract = replace(pipeline.contract, buckets=4)
    with pytest.raises(ValueError, match="describe a new table"):
        pipeline.writer()


def test_a_raised_epoch_wins_over_a_history_with_higher_lsns(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 900, after=account(1)), event("c", 901, after=account(2)))
    pipeline.drain()
    before, rebuilt = (
        event("u", 950, after=account(2)),
        event("r", 5, after=account(1, name="rebuilt"), snapshot="last"),
    )
    # What was captured before the cut may come after it.
    pipeline.land_records([Landed(rebuilt, headers=in_epoch(2)), Landed(before)], 0)
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="rebuilt")]


def test_records_that_say_no_epoch_are_of_the_one_in_which_an_earlier_release_wrote_the_table(
    pipeline: Pipeline,
) -> None:
    pipeline.land(event("c", 900, after=account(1)))
    pipeline.drain(epoch=2)
    pipeline.land(event("u", 901, before=account(1), after=account(1, name="Bea")))
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="Bea")]
    with pytest.raises(ValueError, match="An epoch is never lowered"):
        pipeline.writer(epoch=1)


def test_a_restarted_writer_goes_on_where_the_last_commit_ended(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    pipeline.land(event("c", 20, after=account(2)), partition=1)
    pipeline.drain()
    pipeline.drain()
    assert [event["changes"] for event in pipeline.events if event["event"] == "commit"] == [1, 1]


def test_a_writer_whose_table_another_has_taken_commits_nothing(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    writer = pipeline.writer()
    before = pipeline.table().last_commit()
    pipeline.land(event("u", 20, before=account(1), after=account(1, name="late")))
    pipeline.leases.take_over()
    for _ in range(2):
        with pytest.raises(LeaseLost, match="another writer took the table"):
            writer.commit_next()
    assert pipeline.table().last_commit() == before
    assert pipeline.alive() == [account(1)]
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="late")]


def test_a_writer_whose_table_another_has_taken_makes_no_table(pipeline: Pipeline) -> None:
    writer = pipeline.writer()
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.leases.take_over()
    with pytest.raises(LeaseLost, match="another writer took the table"):
        writer.commit_next()
    listed = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{pipeline.lake.partition(BUCKET + '/')[2]}/accounts/")
    assert "Contents" not in listed
    assert pipeline.table().last_commit() is None


def test_a_writer_that_has_lost_its_table_makes_it_ready_for_no_other_contract(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    before = pipeline.table().last_commit()
    lease = pipeline.leases.take()
    pipeline.leases.take_over()
    wide = parse_type("decimal(14,2)")
    columns = (
        replace(column, type=wide) if column.name == "balance" else column for column in pipeline.contract.columns
    )
    pipeline.contract = replace(pipeline.contract, columns=tuple(columns))
    with pytest.raises(LeaseLost, match="another writer took the table"):
        pipeline.writer(lease=lease)
    assert pipeline.table().last_commit() == before
    pipeline.writer()
    assert pipeline.table().last_commit() != before


@pytest.mark.parametrize("write", [HudiTable.insert, HudiTable.upsert])
def test_nothing_of_a_commit_that_fails_is_written_once_its_error_is_told(
    pipeline: Pipeline, write: Callable[..., Any]
) -> None:
    """One task fails at once, and the other one does not end when Spark cancels it."""
    spark = pipeline.spark
    told = F.when(F.col("id") == 0, F.raise_error(F.lit("broken"))).otherwise(
        F.expr("reflect('java.lang.Thread', 'sleep', 3000L)")
    )
    given = {"id": F.col("id"), "month": F.lit("2024-01"), "name": told, "_key": F.concat(F.col("id"), F.lit(""))}
    columns = [
        given.get(name, F.lit(None)).cast(type_.ddl()).alias(name) for name, type_ in pipeline.contract.lake_columns()
    ]
    rows = spark.range(2, numPartitions=2).select(columns).withColumn("_order", F.lit("1"))
    with pytest.raises(Py4JJavaError, match="broken"):
        write(pipeline.table(), rows, Progress())
    executors: Any = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    assert [executor.numRunningTasks() for executor in executors] == [0]


def test_a_partition_that_was_committed_and_not_registered_is_registered_at_the_next_start(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    pipeline.land(event("c", 10, after=account(1)), event("c", 11, after=account(2, month="2024-02")))
    writer = pipeline.writer()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "register", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.commit_next()
    assert partitions(pipeline.glue, pipeline.database) == set()
    pipeline.writer()
    assert partitions(pipeline.glue, pipeline.database) == {"2024-01", "2024-02"}
    assert pipeline.alive() == [account(1), account(2, month="2024-02")]


def test_a_first_batch_without_a_row_is_a_commit_too(pipeline: Pipeline) -> None:
    pipeline.land(event("t", 20))
    pipeline.drain()
    assert pipeline.alive() == []
    pipeline.land(event("c", 10, after=account(1)), event("c", 30, after=account(2)))
    pipeline.drain()
    assert pipeline.alive() == [account(2)]


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_a_missing_landing_object_stops_the_writer_until_an_empty_one_takes_its_place(
    pipeline: Pipeline, held_bytes: int
) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    missing = pipeline.land(event("c", 20, after=account(2)))
    pipeline.land(event("c", 30, after=account(3)))
    pipeline.s3.delete_object(Bucket=BUCKET, Key=missing)
    with pytest.raises(LandingGap, match="found 2 as first offset, expected 1"):
        pipeline.drain(held_bytes=held_bytes)

    def put_empty(key: str, until: int) -> None:
        metadata = {"next-offset": str(until)}
        pipeline.s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress(b""), Metadata=metadata)

    put_empty(missing, 2)
    pipeline.drain(held_bytes=held_bytes)
    assert pipeline.alive() == [account(1), account(3)]
    # Alone in a batch it moves the cursor, too.
    put_empty(missing.replace(f"{1:020d}", f"{3:020d}"), 5)
    pipeline.drain(held_bytes=held_bytes)
    pipeline.next_offset(5)
    pipeline.land(event("c", 40, after=account(4)))
    pipeline.drain(held_bytes=held_bytes)
    assert pipeline.alive() == [account(1), account(3), account(4)]


def test_a_record_that_cannot_be_decoded_is_kept_and_the_rest_is_written(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)), b"no json", event("c", 11, after={**account(2), "id": None}))
    pipeline.drain()
    assert pipeline.alive() == [account(1)]
    assert [event["records"] for event in pipeline.events if event["event"] == "quarantine"] == [2]


def test_a_writer_that_has_lost_its_lease_puts_nothing_aside(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds may have been forgotten since."""
    pipeline.land(event("c", 10, after=account(1)), b"no json")
    changes = pipeline.writer()
    monkeypatch.setattr(TableWriter, "_check_unfit", lambda *_: pipeline.leases.take_over())
    with pytest.raises(LeaseLost):
        changes.commit_next()
    bucket, folder = split_uri(f"{pipeline.lake}/_quarantine")
    assert pipeline.s3.list_objects_v2(Bucket=bucket, Prefix=f"{folder}/")["KeyCount"] == 0


def test_too_many_bad_records_stop_the_batch_before_its_commit(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)), *[b"no json"] * 20)
    with pytest.raises(TooManyBadRecords, match="20 of 21 records"):
        pipeline.drain()
    assert not [event for event in pipeline.events if event["event"] == "commit"]


SOON = {"hoodie.compact.inline.max.delta.commits": "2", "hoodie.compaction.logfile.num.threshold": "1"}


@pytest.mark.parametrize(
    ("settings", "commits"),
    [pytest.param(SOON, 5, id="soon"), pytest.param({}, 23, id="as shipped", marks=pytest.mark.drill)],
)
def test_the_next_commit_finds_its_cursor_behind_compactions(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], commits: int
) -> None:
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **settings})
    for number in range(commits):
        pipeline.land(event("u", 100 + number, before=account(1), after=account(1, name=f"n{number}")))
        pipeline.drain()
    assert pipeline.alive() == [account(1, name=f"n{commits - 1}")]
    # Hudi 1.1.1 leaves out what comes after a compaction that seems to have ended before it began.
    ends = pipeline.table()._meta_client().getActiveTimeline().getCommitTimeline().filterCompletedInstants()
    compactions = [(instant.requestedTime(), instant.getCompletionTime()) for instant in ends.getInstants()]
    assert compactions
    assert [began for began, ended in compactions if ended < began] == []
    timeline = pipeline.s3.list_objects_v2(
        Bucket=BUCKET, Prefix=f"{pipeline.lake.partition(BUCKET + '/')[2]}/accounts/.hoodie/"
    )
    assert [entry for entry in timeline["Contents"] if entry["Key"].endswith(".commit")], "no compaction took place"


class BehindClock:
    """The module ``time`` with a clock that is an hour behind until it has been waited for three times."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.waits = 0

    def time(self) -> float:
        return time.time() - (3600 if self.waits < 3 else 0)

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        time.sleep(seconds / 10)


def test_a_clock_behind_the_last_commit_is_waited_for(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    clock = BehindClock()
    monkeypatch.setattr(table, "time", clock)
    pipeline.land(event("u", 20, account(1), account(1, "Bea")))
    pipeline.drain()
    assert pipeline.alive() == [account(1, "Bea")]
    assert clock.waits == 3


def test_a_clock_that_stays_behind_is_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    with monkeypatch.context() as patched:
        patched.setattr(table, "time", BehindClock())
        patched.setattr(table, "_CLOCK_SECONDS", 0.0)
        pipeline.land(event("u", 30, account(1), account(1, "Cid")))
        with pytest.raises(table.ClockBehind, match="expected a later one than"):
            pipeline.drain()
    pipeline.drain()
    assert pipeline.alive() == [account(1, "Cid")]


def test_a_compaction_that_seems_to_end_before_it_began_is_waited_for_and_then_refused(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose writer's clock was ahead of S3's."""
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **SOON})
    for number in range(4):
        pipeline.land(event("u", 100 + number, before=account(1), after=account(1, name=f"n{number}")))
        pipeline.drain()
    bucket, folder = split_uri(f"{pipeline.lake}/accounts/.hoodie")
    keys = [entry["Key"] for entry in pipeline.s3.list_objects_v2(Bucket=bucket, Prefix=f"{folder}/")["Contents"]]
    instant = max(key.rpartition("/")[2].partition(".")[0] for key in keys if key.endswith(".commit"))

    def copied(seconds: float) -> tuple[str, list[str]]:
        """That compaction again, so far ahead of the clock: its instant and its files."""
        ahead = pipeline.table()._instant(time.time() + seconds)
        copies = {key: key.replace(instant, ahead) for key in keys if f"/{instant}." in key}
        for key, copy in copies.items():
            pipeline.s3.copy_object(Bucket=bucket, Key=copy, CopySource={"Bucket": bucket, "Key": key})
        return ahead, list(copies.values())

    pipeline.land(event("u", 200, before=account(1), after=account(1, name="behind an hour")))
    hour, files = copied(3600)
    with monkeypatch.context() as patched:
        patched.setattr(table, "_CLOCK_SECONDS", 0.0)
        with pytest.raises(table.ClockAhead, match=f"the compaction {hour} was complete at .* is past {hour}"):
            pipeline.drain()
    for file in files:
        pipeline.s3.delete_object(Bucket=bucket, Key=file)
    copied(3)
    pipeline.drain()
    assert pipeline.alive() == [account(1, name="behind an hour")]


def test_a_crash_within_the_creation_of_the_table_costs_nothing(pipeline: Pipeline) -> None:
    bucket, folder = split_uri(f"{pipeline.lake}/accounts/.hoodie")
    for name in ("", "archived/", ".temp/"):
        pipeline.s3.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=b"")
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    assert pipeline.alive() == [account(1)]


def test_a_crash_while_the_tables_properties_are_replaced_costs_nothing(pipeline: Pipeline) -> None:
    """Hudi writes a backup, removes the file, and writes it anew."""
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    properties = move_properties(pipeline, ".backup")
    pipeline.land(event("c", 20, after=account(2)))
    pipeline.drain()
    assert pipeline.alive() == [account(1), account(2)]
    commits = [entry["changes"] for entry in pipeline.events if entry["event"] == "commit"]
    assert commits == [1, 1], "the landed changes were read again"
    assert pipeline.s3.get_object(Bucket=BUCKET, Key=properties)


def test_a_table_that_has_lost_its_properties_is_left_alone(pipeline: Pipeline) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    move_properties(pipeline, ".elsewhere")
    bucket, folder = split_uri(f"{pipeline.lake}/accounts")
    before = pipeline.s3.list_objects_v2(Bucket=bucket, Prefix=folder)["KeyCount"]
    with pytest.raises(ProgressMissing, match=r"found a timeline without hoodie\.properties"):
        pipeline.writer()
    assert pipeline.s3.list_objects_v2(Bucket=bucket, Prefix=folder)["KeyCount"] == before


def move_properties(pipeline: Pipeline, suffix: str) -> str:
    """Give hoodie.properties another name, and return the key that it had."""
    bucket, folder = split_uri(f"{pipeline.lake}/accounts/.hoodie")
    key = f"{folder}/hoodie.properties"
    pipeline.s3.copy_object(Bucket=bucket, Key=key + suffix, CopySource={"Bucket": bucket, "Key": key})
    pipeline.s3.delete_object(Bucket=bucket, Key=key)
    return key

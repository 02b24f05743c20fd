"""Small batches are committed by the driver (``SmallUpserts``): it puts the same rows at the same locations as Hudi's
upsert. Nothing stays of a commit that a crash ended."""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.contract.reading import parse_contract
from headwater.errors import UserError
from headwater.lake.base.jvm_classes import java_class
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.progress import Progress
from headwater.lake.decoding.batches import Counts, HeldBatch, SpreadBatch
from headwater.lake.decoding.changes import columns_tagged, record_key
from headwater.lake.decoding.decoded_frame import tagged_ddl
from headwater.lake.decoding.late_changes import ended, latest
from headwater.lake.job import landed_changes
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.job.loop import PASSING_PAUSE
from headwater.lake.sources.landing import Landing, LandingObject
from headwater.lake.table import hudi_table as table
from headwater.lake.table import writer as writer_module
from headwater.lake.table.hudi_table import Commit, HudiTable
from headwater.lake.table.writer import TableWriter, WriterSettings
from headwater.verify import lake_reader
from headwater.waiting import wait_until
from tests.lake.pipeline import BUCKET, Pipeline, account, event
from tests.lake.readers import Hudi015, assert_same_to_every_reader

# Keys and partitions that Hudi has rules of its own for.
KEYS = ["plain", "a:b,c:d", "09:00:00,b", "urn:x:y", "a:b,_key:c:d", "_key:x", "", "ü ß/%20", "__null__"]
PARTITIONS = {
    "string": ["plain", "a b/c=d%20", "ü:ß", None],
    "date": ["2024-02-29", "0001-01-01", "1969-12-31", None],
    "int": ["0", "-7", "2147483647", None],
    "bigint": ["0", "-9223372036854775808", "9223372036854775807", None],
}
SOURCE_TYPES = {"string": "text", "date": "date", "int": "integer", "bigint": "bigint"}
PLACES = """
table: accounts
description: A table of the tests.
source: {{database: postgresql, table: shop.accounts}}
key: [key]
partition_by: [part]
buckets: 3
columns:
  - {{name: key, type: string, source_type: text}}
  - {{name: part, type: "{type}", source_type: {source_type}}}
  - {{name: flag, type: boolean, source_type: boolean}}
  - {{name: ratio, type: double, source_type: double precision}}
  - {{name: content, type: binary, source_type: bytea}}
  - {{name: amount, type: "decimal(38,10)", source_type: "numeric(38,10)"}}
  - {{name: day, type: date, source_type: date}}
  - {{name: moment, type: timestamp, source_type: timestamp with time zone}}
  - {{name: lines, type: "array<struct<price:decimal(12,4),notes:array<string>>>", from: payload.lines}}
"""


class Watched(HudiTable):
    """A table that knows which of its commits, after the first one, were made by the driver."""

    few: list[bool]

    def upsert_few(self, rows: Any, progress: Progress) -> Commit | None:
        return self._noted(lambda: super(Watched, self).upsert_few(rows, progress))

    def upsert_held(self, held: Any, progress: Progress, **floor: Any) -> Commit | None:
        return self._noted(lambda: super(Watched, self).upsert_held(held, progress, **floor))

    def _noted(self, upsert: Callable[[], Commit | None]) -> Commit | None:
        is_first = self._has_commit is False
        commit = upsert()
        if not is_first:
            self.few.append(commit is not None)
        return commit


@pytest.fixture
def few(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the driver committed each batch that was small enough."""
    found: list[bool] = []
    make = pipeline.table

    def watched() -> HudiTable:
        made = make()
        made.__class__ = Watched
        made.few = found  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(pipeline, "table", watched)
    return found


@pytest.mark.parametrize("type_", PARTITIONS)
def test_rows_lie_where_hudis_upsert_puts_them(spark: SparkSession, endpoint: str, tmp_path: Path, type_: str) -> None:
    del endpoint
    contract = parse_contract(PLACES.format(type=type_, source_type=SOURCE_TYPES[type_]), "accounts.yaml")
    # What a floor's tombstones keep; DynamoDB's keys are of these types too.
    contract = replace(contract, key=("key", "amount", "content"))
    values = [(key, part) for key in KEYS for part in PARTITIONS[type_]]

    def rows(number: int, places: Sequence[tuple[str, str | None]]) -> Any:
        given = {
            "key": F.col("_1"),
            "part": F.col("_2").cast(type_),
            "flag": F.length("_1") > number,
            "ratio": F.lit(number / 3),
            "content": F.unhex(F.lit("00ff")),
            "amount": F.lit(f"-1234567890123456789012345678.{number:010d}"),
            "day": F.to_date(F.lit("0001-01-01")),
            "moment": F.lit("1883-11-18T12:03:58.123456Z"),
            "lines": F.expr("array(named_struct('price', 12.5, 'notes', array('a', null)), null)"),
            "_key": F.col("_3"),
            "_order": F.lit(f"{number:010d}"),
            "_deleted": F.col("_1") == "plain",
        }
        # Any column may be null, as in a table of the writer's.
        columns = [
            F.when(F.col("_1").isNotNull(), given.get(name, F.lit(None)).cast(type_.ddl())).alias(name)
            for name, type_ in contract.lake_columns()
        ]
        return spark.createDataFrame(
            [(*place, record_key(place[:1])) for place in places], "_1 string, _2 string, _3 string"
        ).select(columns)

    found, partitions = [], []
    for by_driver in (False, True):
        written = HudiTable(spark, contract, f"file://{tmp_path}/{by_driver}", 2)
        written.insert(rows(1, values[:1]), Progress())
        commits = []
        # Places of new file groups, of known ones, and of both.
        for number, places in enumerate((values[::2], values[::2], values), 2):
            if by_driver:
                # The later one counts where both have a place.
                both = rows(number, places).unionByName(rows(0, places))
                commit = written.upsert_few(both, Progress(floor=str(number)))
                assert commit is not None
                assert written.last_commit() is not None
                assert written.last_commit().progress == commit.progress  # type: ignore[union-attr]
            else:
                commit = written.upsert(rows(number, places), Progress())
            commits.append(sorted(commit.partitions))
        floor = "3" * 10
        if by_driver:
            nothing = java_class(spark, "io.headwater.lake.HeldRows")(tagged_ddl(contract), list(contract.place))
            commit = written.upsert_held(nothing, Progress(floor=floor), may_end=True, most_ended=len(values))
            assert commit is not None
        else:
            commit = written.upsert(latest(ended(written.read(), contract, floor), contract), Progress())
        commits.append(sorted(commit.partitions))
        stored = spark.read.format("hudi").load(written.uri)
        columns = [
            F.substring("_hoodie_file_name", 1, 8).alias("_bucket"),
            F.struct(*stored.columns[2:4]).alias("_place"),
        ]
        found.append({str(row) for row in stored.select(*stored.columns[5:], *columns).collect()})
        assert stored.select("_hoodie_commit_seqno").distinct().count() == len(values)
        partitions.append(commits)
        # What reads the log files does not look for positions.
        assert "RECORD_POSITIONS" not in headers(spark, tmp_path / str(by_driver))
    assert found[0] == found[1]
    assert all("_deleted=True" in row for row in found[0])
    assert partitions[0] == partitions[1]
    assert len(found[0]) == len(values)


def headers(spark: SparkSession, folder: Path) -> set[str]:
    """The headers of the blocks of the log files below a folder."""
    jvm: Any = spark._jvm
    hudi = jvm.org.apache.hudi
    configuration: Any = spark._jsc.hadoopConfiguration()
    found: set[str] = set()
    for path in folder.rglob(".*.log.*[0-9]"):
        place = hudi.storage.StoragePath(f"file://{path}")
        store = hudi.storage.hadoop.HoodieHadoopStorage(
            place, hudi.hadoop.fs.HadoopFSUtils.getStorageConf(configuration)
        )
        read = hudi.common.table.log.HoodieLogFormat.newReader(store, hudi.common.model.HoodieLogFile(place), None)
        while read.hasNext():
            found.update(str(name) for name in read.next().getLogBlockHeader().keySet())
        read.close()
    assert found, "there is no log file"
    return found


@pytest.mark.parametrize("by_spark", [False, True])
def test_new_partitions_compactions_and_archived_commits_come_between(
    pipeline: Pipeline, hudi_015: Hudi015, few: list[bool], monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    if by_spark:
        monkeypatch.setattr(table, "_FEW_MEGABYTES", -1)
    settings = {"hoodie.compact.inline.max.delta.commits": "4", "hoodie.compaction.logfile.num.threshold": "1"}
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **settings, **ARCHIVE_SOON})
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(8)))
    pipeline.drain()
    changes = pipeline.writer(held_bytes=0) if by_spark else pipeline.writer()
    for number in range(12):
        pipeline.land(
            *(
                event("u", 100 + 10 * number + id_, account(id_), account(id_, f"n{number}"))
                for id_ in range(number % 3, 8)
            ),
            # The first row of its partition.
            *([event("c", 109 + 10 * number, after=account(99, month="2024-07"))] if number == 6 else []),
        )
        assert changes.commit_next()
    rest(changes.writer)
    # Which waits for what is being archived.
    changes.writer.close()
    assert few == [True] * 12
    assert [row["name"] for row in pipeline.alive()] == ["n9", "n10", *["n11"] * 6, "Ann"]
    assert len(base_files(pipeline)) > len({name.split("_")[0] for name in base_files(pipeline)}), "none was compacted"
    active = pipeline.table()._meta_client().getActiveTimeline()
    assert active.countInstants() < 13, "nothing was archived"
    assert_same_to_every_reader(pipeline, hudi_015)


ARCHIVE_SOON = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "5", "hoodie.cleaner.commits.retained": "2"}


def test_nothing_of_a_commit_that_a_crash_ended_is_ever_read(
    pipeline: Pipeline, hudi_015: Hudi015, few: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hudi archives what the next compaction does not need.
    settings = {"hoodie.compact.inline.max.delta.commits": "3", "hoodie.compaction.logfile.num.threshold": "16"}
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **settings, **ARCHIVE_SOON})
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(4)))
    pipeline.drain()
    before = [account(id_) for id_ in range(4)]
    crashed = crash(pipeline)
    assert pipeline.alive() == before
    assert_same_to_every_reader(pipeline, hudi_015)
    changes = pipeline.writer()
    for number in range(18):
        # Until the commit that crashed is from before the timeline.
        pipeline.land(event("u", 100 + number, account(1), account(1, f"n{number}")))
        assert changes.commit_next()
    rest(changes.writer)
    changes.writer.close()
    assert few == [True] * 18
    first = pipeline.table()._meta_client().getActiveTimeline().getCommitsTimeline().firstInstant().get()
    assert first.requestedTime() > crashed
    # The sixteenth log file of a file group is compacted, however many commits were archived before.
    bases = base_files(pipeline)
    assert len(bases) > len({name.split("_")[0] for name in bases})
    assert pipeline.alive() == [account(1, "n17") if row["id"] == 1 else row for row in before]
    assert_same_to_every_reader(pipeline, hudi_015)


def test_a_writer_that_missed_anothers_commit_writes_nothing(pipeline: Pipeline, few: list[bool]) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    late = pipeline.table()
    rows = late.read().withColumn("name", F.lit("late")).withColumn("_order", F.lit("9" * 46))
    new = rows.withColumn("month", F.lit("2031-01"))
    last = late.last_commit()
    assert last is not None
    assert late.upsert_few(rows.limit(0), last.progress) is not None
    pipeline.land(event("c", 20, after=account(2)), event("c", 21, after=account(3, month="2031-01")))
    pipeline.drain()
    before = pipeline.stored()
    with pytest.raises(Exception, match="another writer has committed"):
        late.upsert_few(new, last.progress)
    assert pipeline.stored() == before
    active = pipeline.table()._meta_client().getActiveTimeline()
    assert active.filterInflightsAndRequested().empty()
    pipeline.land(event("u", 30, account(1), account(1, "Bea")))
    pipeline.drain()
    assert pipeline.alive() == [account(1, "Bea"), account(2), account(3, month="2031-01")]
    assert few == [True] * 3


def rest(writer: TableWriter) -> None:
    """Compact and archive until nothing of it is due: on a slow machine the commits get ahead of both."""

    def nothing_is_due() -> bool:
        writer.maintain()
        return not writer.table.is_maintenance_due()

    wait_until("compactions and archiving", nothing_is_due)


def crash(pipeline: Pipeline) -> str:
    """End a commit of another order and name for each row after its files are written. Returns its instant."""
    written = pipeline.table()
    written.last_commit()
    changed = written.read().withColumn("name", F.lit("crashed")).withColumn("_order", F.lit("9" * 46))
    rows = changed.unionByName(changed.withColumn("month", F.lit("2031-01")))
    spark: Any = pipeline.spark.sparkContext
    options = {**written._options, "hoodie.datasource.write.operation": "upsert"}
    small = spark._jvm.io.headwater.hudi.SmallUpserts(
        spark._jsc, written.uri, options, list(pipeline.contract.place), 1, None
    )
    # What a commit carries is text: Hudi cannot write this, and only finds out when it completes the commit.
    with pytest.raises(Exception, match="ClassCastException"):
        small.commit(rows._jdf, 1 << 20, {"headwater.progress": 1})
    assert written.read().where("name = 'crashed'").count() == 0
    (left,) = written._meta_client().getActiveTimeline().filterInflights().getInstants()
    return str(left.requestedTime())


def test_a_compaction_that_was_left_is_run_when_a_writer_starts(
    pipeline: Pipeline, hudi_015: Hudi015, few: list[bool]
) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(4)))
    pipeline.drain()
    pipeline.land(*(event("u", 20 + id_, account(id_), account(id_, "log")) for id_ in range(4)))
    pipeline.drain()
    written = pipeline.table()
    spark: Any = pipeline.spark.sparkContext
    options = {**written._options, **table._COMPACT_ALL}
    schema = spark._jvm.org.apache.hudi.common.table.TableSchemaResolver(written._meta_client())
    client = spark._jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark._jsc, schema.getTableAvroSchema(False).toString(), written.uri, "accounts", options
    )
    assert client.scheduleCompaction(spark._jvm.org.apache.hudi.common.util.Option.empty()).isPresent()
    pipeline.writer()
    active = pipeline.table()._meta_client().getActiveTimeline()
    assert active.filterPendingCompactionTimeline().empty()
    assert_same_to_every_reader(pipeline, hudi_015)
    for number in range(2):
        pipeline.land(event("u", 30 + number, account(1), account(1, f"n{number}")))
        pipeline.drain()
    assert few == [True] * 3
    expected = [account(id_, "n1" if id_ == 1 else "log") for id_ in range(4)]
    assert pipeline.alive() == expected
    assert_same_to_every_reader(pipeline, hudi_015)


def test_too_many_bytes_are_left_to_hudis_upsert(
    pipeline: Pipeline, few: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(4)))
    pipeline.drain()
    monkeypatch.setattr(table, "_FEW_BYTES", 100_000)
    changes = pipeline.writer(held_bytes=0)
    for number, name in enumerate(("n" * 100_000, "n" * 10_000)):
        pipeline.land(*(event("u", 20 + number, account(id_), account(id_, name)) for id_ in range(4)))
        assert changes.commit_next()
        assert [row["name"] for row in pipeline.alive()] == [name] * 4
    assert few == [False, True]


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_rows_that_a_floor_ends_are_looked_for_only_where_one_may_be_older(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    looked: list[bool] = []
    upsert_held = HudiTable.upsert_held

    def noted_held(written: HudiTable, *given: Any, may_end: bool, **others: Any) -> Any:
        looked.append(may_end)
        return upsert_held(written, *given, may_end=may_end, **others)

    def noted(*given: Any) -> Any:
        looked.append(True)
        return ended(*given)

    monkeypatch.setattr(HudiTable, "upsert_held", noted_held)
    monkeypatch.setattr(writer_module, "ended", noted)
    pipeline.land(event("c", 20, after=account(1)))
    pipeline.drain()
    # The end of a first snapshot, whose rows are all as old as it or younger.
    pipeline.land(event("t", 20), event("c", 30, after=account(2)))
    pipeline.drain(held_bytes=held_bytes)
    assert not any(looked)
    assert [row["id"] for row in pipeline.alive()] == [1, 2]
    pipeline.land(event("t", 25), event("c", 40, after=account(3)))
    pipeline.drain(held_bytes=held_bytes)
    assert any(looked)
    assert [row["id"] for row in pipeline.alive()] == [2, 3]


@pytest.mark.parametrize("held_bytes", [0, WriterSettings.held_bytes])
def test_a_floor_ends_a_row_that_came_late_or_before_the_lowest_order_was_noted(
    pipeline: Pipeline, held_bytes: int
) -> None:
    pipeline.land(event("c", 20, after=account(1)))
    pipeline.drain()
    pipeline.land(event("c", 10, after=account(2)))
    pipeline.drain(held_bytes=held_bytes)
    pipeline.land(event("t", 15), event("c", 40, after=account(3)))
    pipeline.drain(held_bytes=held_bytes)
    assert [row["id"] for row in pipeline.alive()] == [1, 3]
    # As a release before this one has left it.
    writer = pipeline.writer(held_bytes=held_bytes).writer
    older = replace(writer.progress, lowest="")
    writer.table.upsert(writer.read().where("false"), older)
    pipeline.land(event("c", 50, after=account(4)))
    pipeline.drain(held_bytes=held_bytes)
    pipeline.land(event("t", 45), event("c", 60, after=account(5)))
    pipeline.drain(held_bytes=held_bytes)
    assert [row["id"] for row in pipeline.alive()] == [4, 5]


@pytest.mark.parametrize(
    ("held_bytes", "most_read"), [(0, 64), (WriterSettings.held_bytes, -1), (WriterSettings.held_bytes, 64)]
)
def test_a_floor_ends_whatever_was_written_before(
    pipeline: Pipeline,
    hudi_015: Hudi015,
    few: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    held_bytes: int,
    most_read: int,
) -> None:
    monkeypatch.setattr(table, "_FEW_MEGABYTES", most_read)
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(3)))
    pipeline.drain()
    changes = pipeline.writer(held_bytes=held_bytes)
    # What one writer commits after the other: log files of a known file group, a new one, and a tombstone.
    for landed in (
        [event("u", 20, account(1), account(1, "Bea"))],
        [event("c", 30, after=account(4, month="2031-01")), event("d", 31, before=account(2))],
        [event("c", 40, after=account(5)), event("t", 50), event("c", 60, after=account(1, "new"))],
        # It arrives late.
        [event("u", 45, account(0), account(0, "late")), event("c", 46, after=account(6, month="2031-02"))],
    ):
        pipeline.land(*landed)
        assert changes.commit_next()
    assert few[:4] == [held_bytes == 0 or most_read > 0 or number != 2 for number in range(4)]
    assert pipeline.alive() == [account(1, "new")]
    stored = pipeline.stored()
    floors = {row["_order"] for row in stored if row["_deleted"] and row["id"] != 2}
    assert [row["id"] for row in stored] == [0, 1, 2, 4, 5, 6]
    assert len(floors) == 1
    assert all(row["name"] is None and row["lines"] is None for row in stored if row["_deleted"])
    assert [row["month"] for row in stored] == ["2024-01"] * 3 + ["2031-01", "2024-01", "2031-02"]
    assert_same_to_every_reader(pipeline, hudi_015)


@pytest.fixture
def compacts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compactions after two commits each."""
    settings = {"hoodie.compact.inline.max.delta.commits": "2", "hoodie.compaction.logfile.num.threshold": "1"}
    monkeypatch.setattr(table, "_OPTIONS", {**table._OPTIONS, **settings})


@pytest.mark.usefixtures("compacts_soon")
def test_commits_go_on_while_a_compaction_is_under_way(pipeline: Pipeline, hudi_015: Hudi015, few: list[bool]) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(4)))
    pipeline.drain()
    changes = pipeline.writer()
    commit = updates(pipeline, changes)

    def compactions() -> int:
        timeline = pipeline.table()._meta_client().getActiveTimeline()
        return int(timeline.getCommitTimeline().filterCompletedInstants().countInstants())

    commit_until_compacting(changes, commit)
    assert compactions() == 0
    newest = commit()

    # Nothing lands any more: the look for it completes the compaction.
    def is_complete() -> bool:
        assert not changes.commit_next()
        return not changes.writer.table.is_compacting()

    wait_until("the compaction to be complete", is_complete)
    assert compactions() == 1
    assert pipeline.alive() == [account(id_, newest if id_ == 1 else "Ann") for id_ in range(4)]
    assert_same_to_every_reader(pipeline, hudi_015)
    newest = commit_until_compacting(changes, commit)
    done = compactions()
    # The writer ends there. The next one has to run the compaction again, and to know what came after it.
    pipeline.land(event("u", 900, account(2), account(2, "next")))
    pipeline.drain()
    assert compactions() == done + 1
    assert set(few) == {True}
    assert pipeline.alive() == [account(id_, {1: newest, 2: "next"}.get(id_, "Ann")) for id_ in range(4)]
    assert_same_to_every_reader(pipeline, hudi_015)


@pytest.mark.usefixtures("compacts_soon")
def test_a_commit_is_told_before_what_is_due_behind_it_is_begun(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = begun(pipeline)
    told: list[bool] = []

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "commit":
            told.append(changes.writer.table.is_compacting())

    monkeypatch.setattr(changes.writer, "services", replace(changes.writer.services, report=report))
    # A first one that is complete, so that none is under way when the next one is planned.
    commit = updates(pipeline, changes)
    commit_until_compacting(changes, commit)
    assert told
    assert not any(told)


@pytest.mark.usefixtures("compacts_soon")
def test_what_fails_behind_a_commit_takes_nothing_of_it_back(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, few: list[bool]
) -> None:
    changes = begun(pipeline)
    commit = updates(pipeline, changes)
    told: list[int] = []

    def report(event: dict[str, Any]) -> None:
        told.extend([event["changes"]] if event["event"] == "commit" else [])

    def fail(table: HudiTable) -> None:
        table.close()
        raise OSError("S3 does not answer")

    monkeypatch.setattr(changes.writer, "services", replace(changes.writer.services, report=report))
    with monkeypatch.context() as failing:
        failing.setattr(HudiTable, "maintain", fail)
        with pytest.raises(OSError, match="S3 does not answer"):
            commit_until_compacting(changes, commit)
    committed = changes.writer.progress
    assert told
    assert set(told) == {1}
    assert pipeline.table().last_commit().progress == committed  # type: ignore[union-attr]
    # The next one reads nothing twice, and goes on with what is due.
    changes = pipeline.writer()
    assert changes.writer.progress == committed
    assert not changes.commit_next()
    newest = commit_until_compacting(changes, updates(pipeline, changes, 500))
    changes.writer.settle()
    assert pipeline.alive() == [account(1, newest)]
    assert set(few) == {True}


@pytest.mark.usefixtures("compacts_soon")
def test_nothing_is_maintained_without_the_lease(pipeline: Pipeline) -> None:
    changes = begun(pipeline)
    commit_until_compacting(changes, updates(pipeline, changes))
    instants = list_instants(pipeline.table())
    pipeline.leases.take_over()
    with pytest.raises(LeaseLost, match="another writer took the table"):
        changes.writer.maintain()
    assert list_instants(pipeline.table()) == instants


@pytest.mark.usefixtures("compacts_soon")
def test_a_compaction_has_what_the_driver_has_just_written(pipeline: Pipeline) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_)) for id_ in range(2)))
    pipeline.drain()
    changes = pipeline.writer()
    pipeline.land(event("u", 20, account(0), account(0, "Bob")))
    assert changes.commit_next()
    folder = f"{pipeline.prefix}/lake/accounts/"
    files = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=folder)["Contents"]
    (log_file,) = (file for file in files if ".log." in file["Key"])
    # Whoever reads it from there fails.
    pipeline.s3.put_object(Bucket=BUCKET, Key=log_file["Key"], Body=bytes(log_file["Size"]))
    commit_until_compacting(changes, updates(pipeline, changes))
    changes.writer.table.settle()
    assert {row["id"]: row["name"] for row in pipeline.alive()}[0] == "Bob"


@pytest.mark.usefixtures("compacts_soon")
def test_a_plan_that_is_full_is_followed_by_the_next_one(pipeline: Pipeline, few: list[bool]) -> None:
    groups = 70
    accounts = [account(id_, month=f"m{id_}") for id_ in range(groups)]
    pipeline.land(*(event("c", 10 + row["id"], after=row) for row in accounts))
    pipeline.drain()
    changes = pipeline.writer()
    compacted = []
    for number in range(3):
        changed = accounts if number == 0 else accounts[:1]
        pipeline.land(*(event("u", 100 * number + 100 + row["id"], row, {**row, "balance": "2.50"}) for row in changed))
        assert changes.commit_next()
        if changes.writer.table.is_compacting():
            changes.writer.settle()
            timeline = pipeline.table()._meta_client().getActiveTimeline().getCommitTimeline()
            done = timeline.filterCompletedInstants().lastInstant().get()
            compacted.append((number, timeline.readCommitMetadata(done).getWriteStats().size()))
    # After two commits, the table's first one among them; after the one that follows, where the first account's may be
    # among those left; and after the next.
    assert compacted[0] == (0, 64)
    assert compacted[1] in [(1, groups - 64), (1, groups - 64 + 1)]
    assert compacted[2:] == [(2, 1)]
    assert set(few) == {True}
    assert {row["balance"] for row in pipeline.alive()} == {"2.50"}


@pytest.mark.usefixtures("compacts_soon")
def test_rows_that_came_while_a_compaction_is_under_way_are_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = begun(pipeline)
    commit = updates(pipeline, changes)

    commit_until_compacting(changes, commit)
    changes.writer.settle()
    compaction = str(pipeline.table()._meta_client().getActiveTimeline().lastInstant().get().requestedTime())
    newest = commit()
    changes.writer.settle()
    assert pipeline.alive() == [account(1, newest)]
    completed = {"Bucket": BUCKET, "Key": f"{pipeline.prefix}/lake/accounts/.hoodie/{compaction}.commit"}
    content = pipeline.s3.get_object(**completed)["Body"].read()
    pipeline.s3.delete_object(**completed)
    with monkeypatch.context() as impatient:
        impatient.setattr(lake_reader, "_COMPACTION_SECONDS", 0)
        with pytest.raises(UserError, match=f"while the compaction {compaction} is under way"):
            pipeline.alive()
    later = threading.Timer(2, lambda: pipeline.s3.put_object(**completed, Body=content))
    later.start()
    assert pipeline.alive() == [account(1, newest)]
    later.join()


@pytest.mark.usefixtures("compacts_soon")
def test_a_compaction_is_not_completed_where_another_writer_has_the_table(pipeline: Pipeline, few: list[bool]) -> None:
    asleep = begun(pipeline)
    commit = updates(pipeline, asleep)

    newest = commit_until_compacting(asleep, commit)
    successor = pipeline.table()
    last = successor.last_commit()
    assert last is not None
    assert successor.upsert_few(successor.read().limit(0), last.progress) is not None
    before = list_instants(successor)
    with pytest.raises(Exception, match="another writer has committed"):
        asleep.writer.table.settle()
    assert list_instants(successor) == before
    assert not asleep.writer.table.is_compacting()
    pipeline.drain()
    assert pipeline.alive() == [account(1, newest)]
    assert set(few) == {True}


def base_files(pipeline: Pipeline) -> list[str]:
    """The names of the first month's base files, old ones included."""
    prefix = f"{pipeline.lake.partition(BUCKET + '/')[2]}/accounts/month=2024-01/"
    stored = pipeline.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"].split("/")[-1] for entry in stored["Contents"] if entry["Key"].endswith(".parquet")]


@pytest.mark.usefixtures("compacts_soon", "few")
def test_who_loses_the_table_while_a_commit_by_spark_waits_for_a_compaction_commits_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = begun(pipeline, held_bytes=0)
    newest = commit_until_compacting(changes, updates(pipeline, changes))
    settle = HudiTable.settle

    def settle_for_long(waiting: HudiTable) -> None:
        settle(waiting)
        monkeypatch.setattr(HudiTable, "settle", settle)
        pipeline.leases.take_over()

    monkeypatch.setattr(HudiTable, "settle", settle_for_long)
    monkeypatch.setattr(writer_module, "_FEW_ROWS", -1)
    before = pipeline.table().last_commit()
    pipeline.land(event("u", 900, account(1), account(1, "late")))
    with pytest.raises(LeaseLost, match="another writer took the table"):
        changes.commit_next()
    assert pipeline.table().last_commit() == before
    assert pipeline.alive() == [account(1, newest)]


def begun(pipeline: Pipeline, **settings: Any) -> LandedChanges:
    """The writer, anew, of a table that has account 1."""
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    return pipeline.writer(**settings)


def updates(pipeline: Pipeline, changes: LandedChanges, first: int = 20) -> Callable[[], str]:
    """A function that commits another name of the first account each time, and returns it."""
    numbers = itertools.count(first)

    def commit() -> str:
        number = next(numbers)
        name = f"n{number}"
        pipeline.land(event("u", number, account(1), account(1, name)))
        assert changes.commit_next()
        return name

    return commit


def commit_until_compacting(changes: LandedChanges, commit: Callable[[], str]) -> str:
    """The last of the commits: the first one after which a compaction is under way. Hudi counts the commits since the
    last one by the times of S3's objects, which are whole seconds, and may see fewer than there were."""
    for _ in range(10):
        name = commit()
        if changes.writer.table.is_compacting():
            return name
    raise AssertionError("no compaction began")


def list_instants(written: HudiTable) -> list[tuple[str, str, bool]]:
    """Each instant's time and action, and whether it is completed. A compaction goes on in its own thread, from
    requested to inflight: that difference is left out."""
    instants = written._meta_client().getActiveTimeline().getInstants()
    return [(str(one.requestedTime()), str(one.getAction()), bool(one.isCompleted())) for one in instants]


def test_what_waits_is_committed_in_parts_that_the_driver_holds(
    pipeline: Pipeline, few: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landed_changes, "_AHEAD_BYTES", 0)
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    for number in range(3):
        pipeline.land(event("u", 20 + number, account(1), account(1, f"n{number}" * 2000)))
    listed: list[object] = []
    after = Landing.after

    def counted(landing: Landing, *given: Any) -> Any:
        listed.append(given)
        return after(landing, *given)

    monkeypatch.setattr(Landing, "after", counted)
    # Another table of the job decodes ahead, so that this one holds no more than each may.
    changes = pipeline.writer(held_bytes=15_000)
    decoding = changes.writer.services.decoding
    assert decoding.take_turn("another")
    while changes.commit_next():
        assert changes.writer.progress.cursor == {"headwater.shop.accounts/0": 1 + len(few)}
    decoding.rest("another")
    assert few == [True] * 3
    assert len(listed) == 2
    assert pipeline.alive() == [account(1, "n2" * 2000)]
    for number in range(5):
        pipeline.land(event("c", 30 + number, after=account(10 + number, f"m{number}" * 2500)))
    cursors = []
    while changes.commit_next():
        cursors.append(changes.writer.progress.cursor["headwater.shop.accounts/0"])
    assert cursors == [8, 9]
    assert few == [True] * 5
    assert decoding.take_turn("another")
    assert [row["id"] for row in pipeline.alive()] == [1, 10, 11, 12, 13, 14]


def test_a_long_backlog_is_committed_by_spark_in_one_go(
    pipeline: Pipeline, few: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    for number in range(4):
        pipeline.land(event("c", 30 + number, after=account(10 + number, f"m{number}" * 2500)))
    monkeypatch.setattr(landed_changes, "_BACKLOG_OBJECTS", 3)
    changes = pipeline.writer(held_bytes=4_000)
    assert changes.commit_next()
    assert changes.writer.progress.cursor == {"headwater.shop.accounts/0": 5}
    assert not changes.commit_next()
    assert len(few) == 1
    assert [row["id"] for row in pipeline.alive()] == [1, 10, 11, 12, 13]


def with_backlog(pipeline: Pipeline, objects: int, monkeypatch: pytest.MonkeyPatch) -> LandedChanges:
    """A writer of a table of one row, and so many objects of a row each. A batch takes four of them."""
    monkeypatch.setattr(landed_changes, "_AHEAD_BYTES", 0)
    pipeline.land(event("c", 10, after=account(0)))
    pipeline.drain()
    for number in range(1, objects + 1):
        pipeline.land(event("c", 10 + number, after=account(number, f"m{number}" * 2500)))
    return pipeline.writer(held_bytes=15_000)


def test_a_download_or_a_commit_that_fails_loses_nothing_of_a_backlog(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = with_backlog(pipeline, 5, monkeypatch)
    body, commit_held = Landing.body, TableWriter.commit_held
    fails = {"download", "commit"}

    def failing_body(landing: Landing, landed: LandingObject) -> bytes:
        if landed.first == 3 and "download" in fails:
            raise OSError("S3 does not answer")
        return body(landing, landed)

    def failing_commit(to: TableWriter, *given: Any) -> None:
        if "commit" in fails:
            raise OSError("the commit fails")
        commit_held(to, *given)

    monkeypatch.setattr(Landing, "body", failing_body)
    monkeypatch.setattr(TableWriter, "commit_held", failing_commit)
    with pytest.raises(OSError, match="S3 does not answer"):
        changes.commit_next()
    fails.remove("download")
    with pytest.raises(OSError, match="the commit fails"):
        changes.commit_next()
    fails.remove("commit")
    while changes.commit_next():
        pass
    assert [row["id"] for row in pipeline.alive()] == [0, 1, 2, 3, 4, 5]


def test_what_is_decoded_ahead_goes_by_the_epoch_of_its_commit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = with_backlog(pipeline, 6, monkeypatch)
    assert changes.commit_next()
    ahead = changes.writer.services.decoding
    assert ahead._ahead
    changes.writer._progress = replace(changes.writer.progress, epoch=2)
    assert changes.commit_next()
    epochs = {row["id"]: row["_order"][:5] for row in pipeline.stored()}
    assert len(set(epochs.values())) == 2
    assert epochs[1] == epochs[0] != epochs[6]


def test_a_table_that_fails_gives_its_turn_back(pipeline: Pipeline) -> None:
    job = pipeline.job(argparse.Namespace(lake=pipeline.lake, once=True))

    def prepare() -> Callable[[], bool]:
        assert job.services.decoding.take_turn("accounts")

        def fail() -> bool:
            raise OSError("what follows a commit fails")

        return fail

    with pytest.raises(OSError, match="what follows a commit fails"):
        job.run({"accounts": prepare}, PASSING_PAUSE)
    assert job.services.decoding.take_turn("another")


def test_a_job_ends_what_a_tables_former_writer_does(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[TableWriter] = []
    monkeypatch.setattr(TableWriter, "close", lambda self: ended.append(self))
    job = pipeline.job(argparse.Namespace(lake=pipeline.lake, once=True))
    first = job.writer(pipeline.contract)
    assert ended == []
    second = job.writer(pipeline.contract)
    assert ended == [first]
    job.run({}, PASSING_PAUSE)
    assert ended == [first, second]


def test_a_batch_is_counted_alike_wherever_it_is(pipeline: Pipeline) -> None:
    contract = pipeline.contract
    names = [name for name, _ in columns_tagged(contract)]
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

    def row(**values: Any) -> tuple[Any, ...]:
        return tuple(values.get(name) for name in names)

    def changed(order: int, **values: Any) -> tuple[Any, ...]:
        at = moment + dt.timedelta(microseconds=order)
        return row(**{"_order": str(order), "_deleted": False, "_op": "u", "_source_ts": at, **values})

    rows = [
        changed(15),
        changed(16, _unfit=["name", "balance"]),
        changed(25, _unfit=["name"], _raw="{}"),
        changed(26),
        changed(35, _deleted=True, _op="d"),
        changed(36, _deleted=True),
        row(_floor="20"),
        row(_floor="10"),
        row(_reason="bad", _raw="{}"),
    ]
    expected = Counts(
        rows=6,
        live_rows=4,
        records=6,
        bad=1,
        unfit_rows=2,
        unfit_values=3,
        floor="20",
        oldest=moment.timestamp() + 15e-6,
        late=4,
        late_untold=1,
        lowest="15",
    )
    held = HeldBatch(pipeline.spark, contract)
    held.add(rows)
    spread = SpreadBatch(held.frame())
    nothing = HeldBatch(pipeline.spark, contract)
    for batch in (held, spread):
        assert batch.counts("30", "20") == expected
        assert batch.counts("", "").late == 0
        assert batch.bad() == batch.bad(1) == [("bad", "{}")]
        assert batch.unfit_columns() == ["balance", "name"]
    for none in (nothing, SpreadBatch(nothing.frame())):
        assert none.counts("30", "20") == Counts()

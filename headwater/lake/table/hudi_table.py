"""A Hudi table: Headwater's way to write the table, and the progress in the table's commits."""

from __future__ import annotations

import datetime as dt
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.contract.evolution import NARROWER, OTHER, TYPE_RULE, WIDER, type_change
from headwater.contract.model import Contract
from headwater.contract.types import parse_type
from headwater.lake.base.jvm_classes import elements, java_class, struct_type
from headwater.lake.base.progress import NOTED_AS, Progress
from headwater.lake.base.spark_jobs import no_task_left_behind
from headwater.lake.decoding.late_changes import kept_by_floor

_SECOND = 1.0
_CLOCK_SECONDS = 30.0
"""S3's clock may be this far behind the writer's, and the writer's clock behind the former writer's."""
_FEW_BYTES = 32 * 1024 * 1024
"""The driver itself writes up to this many bytes of rows. Several tables may do so at the same time."""
_FEW_MEGABYTES = 64
"""The driver itself compacts up to this many megabytes of base and log files. So may several tables."""
_ORDERING_IN_015 = "hoodie.table.precombine.field"

# Reasons and measurements: docs/decisions/hudi-settings.md.
_READ_OPTIONS = {
    # Hudi makes a buffer of this size for each log file, even a small one. The default is 16 MB.
    "hoodie.memory.dfs.buffer.max.size": str(1024 * 1024),
    # Log files of table version 6 have no positions. With this option, Spark's reader would still copy each record to
    # add an empty column.
    "hoodie.merge.use.record.positions": "false",
}
_OPTIONS = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "_key",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.datasource.write.precombine.field": "_order",
    "hoodie.payload.ordering.field": "_order",
    "hoodie.payload.event.time.field": "_order",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.combine.before.upsert": "false",
    # Athena uses Hudi 0.15, which reads tables up to this version.
    "hoodie.write.table.version": "6",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.hash.field": "_key",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    # ``SmallUpserts`` makes no markers. A rollback finds the files by the commit's plan.
    "hoodie.rollback.using.markers": "false",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "20",
    # Compact only file groups with this many log files, so that a compaction stays as small as the changes.
    "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.LogFileNumBasedCompactionStrategy",
    "hoodie.compaction.logfile.num.threshold": "10",
    # ``replaced_files`` deletes replaced files in place of Hudi's cleaner.
    "hoodie.clean.automatic": "false",
    "hoodie.keep.min.commits": "40",
    "hoodie.keep.max.commits": "60",
    "hoodie.parquet.compression.codec": "zstd",
    # A bucket index needs no Bloom filters, but bulk_insert always writes them: keep them as small as possible.
    "hoodie.parquet.bloom.filter.enabled": "false",
    "hoodie.index.bloom.num_entries": "1",
    "hoodie.index.bloom.fpp": "0.1",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.write.commitmeta.key.prefix": NOTED_AS.partition(".")[0] + ".",
    **_READ_OPTIONS,
}

# The table properties that Hudi's Spark writer derives from these options when it creates a table.
_TABLE_PROPERTIES = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "6",
    "hoodie.table.format": "native",
    "hoodie.timeline.layout.version": "1",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.archivelog.folder": "history",
    "hoodie.table.recordkey.fields": "_key",
    "hoodie.table.ordering.fields": "_order",
    "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.table.timeline.timezone": "LOCAL",
}

# Hudi 1.1.1 refuses wider decimals, which every reader of Parquet accepts. Both settings together switch off Hudi's
# check of schemas. No column is dropped, because ``evolve`` writes the columns that a contract no longer has.
_WIDER_TYPES = {
    "hoodie.avro.schema.validate": "false",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}
_COMPACT_ALL = {
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.UnBoundedCompactionStrategy",
}


@dataclass(frozen=True)
class Commit:
    """A completed commit."""

    instant: str
    """The commit's instant on Hudi's timeline."""
    partitions: list[str]
    """The partitions of the commit's rows (``column=value``; "" for a table without partitions)."""
    progress: Progress
    """The progress that the commit carries."""


class ClockBehind(RuntimeError):
    """The clock is behind the table's latest commit, so the next commit would count as older."""


class ClockAhead(RuntimeError):
    """The clock was ahead of S3's when a compaction began, so Hudi would ignore the commits after it."""


class ProgressMissing(RuntimeError):
    """A table has commits but no cursor, or its properties are lost.

    If the writer went on, it would read all changes again, or skip changes.
    """


class HudiTable:
    """The Hudi table of a contract below ``lake`` (``s3://bucket/prefix``)."""

    def __init__(self, spark: SparkSession, contract: Contract, lake: str, parallelism: int) -> None:
        self.spark = spark
        self.contract = contract
        self.uri = f"{lake.rstrip('/')}/{contract.table}"
        self._options = {**_OPTIONS, **_table_options(contract, parallelism)}
        self._columns = [(name, F.col(name)) for name, _ in contract.lake_columns()]
        self.has_contracts_columns = True
        self._latest = ""
        self._has_commit: bool | None = None
        self._small_upserts: Any = None

    def last_commit(self) -> Commit | None:
        """The newest completed commit that carries progress; None for a new table.

        Raises ProgressMissing and ClockAhead.
        """
        self._has_commit = None
        client = self._meta_client()
        if client is None:
            self._has_commit = False
            return None
        self._declare_ordering(client)
        client = self._with_ordered_compactions(client)
        latest = client.getActiveTimeline().lastInstant()
        self._latest = latest.get().requestedTime() if latest.isPresent() else ""
        # Find the newest completed commit with progress.
        timeline = client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
        instants = timeline.getReverseOrderedInstants().iterator()
        while instants.hasNext():
            instant = instants.next()
            metadata = timeline.readCommitMetadata(instant)
            progress = metadata.getExtraMetadata().get(NOTED_AS)
            if progress is not None:
                self._has_commit = True
                partitions = [str(path) for path in elements(metadata.getPartitionToWriteStats().keySet())]
                return Commit(instant.requestedTime(), partitions, self._read_progress(progress))
        if timeline.countInstants():
            raise ProgressMissing(
                f"{self.uri}: the table has commits but none carries a cursor. Was it written by another program? "
                "Restore its timeline, or move the table away and start again with a raised epoch."
            )
        self._has_commit = False
        return None

    def _read_progress(self, text: str) -> Progress:
        try:
            return Progress.from_json(text)
        except ValueError as error:
            raise ValueError(f"{self.contract.table}: {error}") from error

    def completed(self) -> Callable[[str], bool]:
        """A function that returns whether the commit or compaction of an instant is complete now.

        Instants from before the active timeline are complete.
        """
        client = self._meta_client()
        if client is None:
            return lambda instant: False
        active = client.getActiveTimeline()
        # If older instants are archived, an open one may be older than all complete ones of the active timeline.
        is_open = {instant.requestedTime() for instant in elements(active.filterInflightsAndRequested().getInstants())}
        done = active.getCommitsTimeline().filterCompletedInstants()
        return lambda instant: instant not in is_open and bool(done.containsOrBeforeTimelineStarts(instant))

    def evolve(self, progress: Progress) -> None:
        """Prepare the table for a contract that has changed since the table's last commit.

        ``progress`` is the progress of that commit.

        Columns that the contract no longer has are written as null. A decimal keeps the wider of both types. Raises
        ValueError if a type has changed in another way; nothing is written then.

        If a column is new or has a wider type, all log files are compacted first. In log files, Hudi 0.15 does not read
        values of the former, narrower type as wide ones. And hudi-rs fails on a key with two rows that lack the new
        column.
        """
        schema = self._stored_type()
        stored = {field.name: field.dataType for field in schema}
        self._columns = []
        is_added = grows = False
        refused = []
        # Compare each column's type with the stored type.
        for name, type_ in self.contract.lake_columns():
            column = F.col(name)
            is_added |= name not in stored
            if name in stored and stored[name].simpleString() != type_.ddl():
                old = parse_type(stored[name].simpleString())
                change = type_change(old, type_)
                if change == NARROWER:
                    column = column.cast(stored[name])
                    self.has_contracts_columns = False
                elif change == WIDER:
                    grows = True
                elif change == OTHER:
                    refused.append(f"{name} is {old.ddl()} in the table and {type_.ddl()} in the contract")
            self._columns.append((name, column))
        if refused:
            raise ValueError(
                f"{self.contract.table}: changed types: {', '.join(refused)}. {TYPE_RULE} "
                "Give these columns the table's types, or describe a new table."
            )
        lake = {name for name, _ in self.contract.lake_columns()}
        # Write columns that the contract no longer has as null.
        former = [(name, F.lit(None).cast(type_)) for name, type_ in stored.items() if name not in lake]
        self._columns += former
        self.has_contracts_columns &= not former
        # An empty commit compacts all log files.
        if is_added or grows:
            nothing = self.spark.createDataFrame([], schema)
            self._commit(nothing, progress, {"hoodie.datasource.write.operation": "upsert", **_COMPACT_ALL})
        if grows:
            self._options |= _WIDER_TYPES

    def _stored_type(self) -> StructType:
        """The type of the table's rows, without Hudi's own columns.

        It comes from the last commit's schema, because Spark's reader would add a second to the start.
        """
        schema = self._java("org.apache.hudi.common.table.TableSchemaResolver")(self._meta_client())
        utilities = self._java("org.apache.hudi.AvroConversionUtils")
        type_ = utilities.convertAvroSchemaToStructType(schema.getTableAvroSchema(False))
        return StructType.fromJson(json.loads(type_.json()))

    def _stored(self) -> DataFrame:
        return self.spark.read.format("hudi").options(**_READ_OPTIONS).load(self.uri)

    def read(self) -> DataFrame:
        """The newest state, tombstones included, in the columns of the contract's ``lake_columns``."""
        stored = self._stored()
        return stored.select(
            [
                (F.col(name) if name in stored.columns else F.lit(None)).cast(type_.ddl()).alias(name)
                for name, type_ in self.contract.lake_columns()
            ]
        )

    def insert(self, rows: DataFrame, progress: Progress) -> Commit:
        """Commit rows (at most one per partition and key) and the progress into an empty table, as one atomic step.

        This is cheaper than ``upsert``, which searches for rows to merge with. For few rows, ``upsert_few`` is much
        cheaper than both.
        """
        self._ensure_created()
        return self._commit(rows, progress, {"hoodie.datasource.write.operation": "bulk_insert"})

    def upsert(self, rows: DataFrame, progress: Progress) -> Commit:
        """Commit rows (at most one per partition and key) together with the progress, as one atomic step."""
        rows = rows.select([column.alias(name) for name, column in self._columns])
        return self._commit(rows, progress, {"hoodie.datasource.write.operation": "upsert"})

    def upsert_few(self, rows: DataFrame, progress: Progress) -> Commit | None:
        """Commit few rows in a fraction of the time of ``upsert``. For each partition and key, the latest row counts.

        Returns None and writes nothing if only ``upsert`` can write the rows. They then have too many bytes, or a
        column that the table does not have yet. The caller calls ``maintain`` now and then.
        """
        rows = rows.select([column.alias(name) for name, column in self._columns])
        return self._upsert_small(
            rows._jdf.schema(), lambda small, recorded: small.commit(rows._jdf, _FEW_BYTES, recorded), progress
        )

    def upsert_held(
        self, held: Any, progress: Progress, *, may_end: bool = False, most_ended: int = 0
    ) -> Commit | None:
        """Commit the rows of Java's ``HeldRows`` without a Spark job, in the same way as ``upsert_few``.

        Rows below the truncate marker of the progress become tombstones. Returns None and writes nothing if the table
        has other columns than the contract, or if the marker deletes too many rows.

        - ``may_end``: whether the marker may also delete rows that are in the table.
        - ``most_ended``: the marker may delete at most this many rows of the table.
        """
        if not self.has_contracts_columns:
            return None
        floor = None
        if progress.floor:
            made = self._java("io.headwater.hudi.SmallUpserts$Floor")
            floor = made(progress.floor, sorted(kept_by_floor(self.contract)), may_end, most_ended)
        return self._upsert_small(
            self._lake_type, lambda small, recorded: small.commit(held, floor, recorded), progress
        )

    @functools.cached_property
    def _lake_type(self) -> Any:
        """Spark's type of the contract's lake columns."""
        columns = ", ".join(f"`{name}` {type_.ddl()}" for name, type_ in self.contract.lake_columns())
        return struct_type(self.spark, columns)

    def _java(self, name: str) -> Any:
        return java_class(self.spark, name)

    def _upsert_small(
        self, schema: Any, commit: Callable[[Any, dict[str, str]], Any], progress: Progress
    ) -> Commit | None:
        """Commit rows of this schema by ``commit``, which gets Java's ``SmallUpserts`` and the commit's metadata."""
        self._await_clock()
        small = self._opened()
        try:
            written = commit(small, {NOTED_AS: progress.to_json()}) if small.fits(schema) else None
        except BaseException:
            # The next commit rolls this one back, unless this one is complete despite the error.
            self._has_commit = None
            self.close()
            raise
        if written is None:
            return None
        instant, *partitions = (str(part) for part in elements(written))
        self._latest = instant
        self._has_commit = True
        return Commit(instant, partitions, progress)

    def _opened(self) -> Any:
        """Java's ``SmallUpserts`` of the table, which is created if there is none."""
        if self._small_upserts is None:
            self._ensure_created()
            first_type = None if self._has_commit else self._lake_type
            options = {**self._options, "hoodie.datasource.write.operation": "upsert"}
            spark: Any = self.spark.sparkContext
            made = self._java("io.headwater.hudi.SmallUpserts")
            place = list(self.contract.place)
            self._small_upserts = made(spark._jsc, self.uri, options, place, _FEW_MEGABYTES, first_type)
        return self._small_upserts

    def _ensure_created(self) -> None:
        """Create the table, if it does not exist, with the properties that Hudi's Spark writer would set.

        Raises ValueError if a killed writer created the table for another contract and did not commit. Raises
        RuntimeError if another writer has committed meanwhile.
        """
        if self._has_commit is None:
            self.last_commit()
        if self._has_commit:
            return
        expected = {**_TABLE_PROPERTIES, **_table_properties(self.contract)}
        client = self._meta_client()
        # A table without a commit must have the expected properties.
        if client is not None:
            if not client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants().empty():
                raise RuntimeError(f"{self.uri}: found a commit, expected none: another writer has committed")
            stored = client.getTableConfig().getProps()
            differing = {
                name: stored.getProperty(name) for name in expected if stored.getProperty(name, "") != expected[name]
            }
            if differing:
                raise ValueError(
                    f"{self.uri}: found a table without a commit and with {differing}, expected "
                    f"{ {name: expected[name] for name in differing} }. Delete the table's folder, and start again."
                )
            return
        properties = self._java("java.util.Properties")()
        properties.putAll(expected)
        builder = self._java("org.apache.hudi.common.table.HoodieTableMetaClient").newTableBuilder()
        configuration = self.spark.sparkContext._jsc.hadoopConfiguration()
        storage = self._java("org.apache.hudi.storage.hadoop.HadoopStorageConfiguration")(configuration)
        self._declare_ordering(builder.fromProperties(properties).initTable(storage, self.uri))

    def run_open_compaction(self) -> None:
        """Run the compaction that a killed writer has left open, if there is one. The caller holds the table's lease.

        Otherwise only the next commit would run the compaction, and hudi-rs ignores commits after an open one.
        """
        client = self._meta_client()
        if client is None or client.getActiveTimeline().filterPendingCompactionTimeline().empty():
            return
        self._await_clock()
        try:
            if self._opened().runOpenCompaction():
                self.last_commit()
        except BaseException:
            self.close()
            raise

    def is_maintenance_due(self) -> bool:
        """Whether ``maintain`` may have something to do. Hudi's own commits compact and archive by themselves."""
        return self._small_upserts is not None and bool(self._small_upserts.isMaintenanceDue())

    def maintain(self) -> None:
        """Begin or complete the compactions and the archiving that are due beside the driver's commits.

        The caller holds the table's lease.
        """
        if not self.is_maintenance_due():
            return
        try:
            if self._small_upserts.maintain():
                self.last_commit()
        except BaseException:
            # When the table is opened next, the begun work goes on.
            self.close()
            raise

    def is_compacting(self) -> bool:
        """Whether a compaction runs beside the commits; ``maintain`` or ``settle`` completes it."""
        return self._small_upserts is not None and bool(self._small_upserts.isCompacting())

    def settle(self) -> None:
        """Wait until the files of the running compaction are written, and complete it.

        The caller holds the table's lease, as for a commit.
        """
        if not self.is_compacting():
            return
        try:
            if self._small_upserts.settle(True):
                self.last_commit()
        except BaseException:
            # When the table is opened next, the compaction runs again.
            self.close()
            raise

    def tombstones(self, before: dt.datetime) -> DataFrame:
        """Location (partition and ``_key``) and ``_order`` of the tombstones that were committed before a moment."""
        instant = self._instant(before.timestamp())
        rows = self._stored().where(F.col("_deleted"))
        return rows.where(F.col("_hoodie_commit_time") < instant).select(*self.contract.place, "_order")

    def delete(self, rows: DataFrame, progress: Progress) -> Commit:
        """Remove the rows at these locations, whatever their order, and commit the progress, as one atomic step."""
        return self._commit(rows, progress, self._delete_options())

    def _delete_options(self) -> dict[str, str]:
        resolver = self._java("org.apache.hudi.common.table.TableSchemaResolver")(self._meta_client())
        # If the last commit was the table's first, Hudi does not find the schema for a delete by itself.
        schema = resolver.getTableAvroSchema(False).toString()
        return {"hoodie.datasource.write.operation": "delete", "hoodie.write.schema": schema}

    def erase(self, rows: DataFrame, progress: Progress) -> Commit:
        """Remove rows as ``delete`` does, and compact all log files, also if there is no row to remove.

        Then the newest file slices have only values of current rows.
        """
        if not rows.isEmpty():
            return self._commit(rows, progress, {**self._delete_options(), **_COMPACT_ALL})
        stored = self._stored()
        names = [name for name in stored.columns if not name.startswith("_hoodie_")]
        nothing = stored.select(*names).limit(0)
        return self._commit(nothing, progress, {"hoodie.datasource.write.operation": "upsert", **_COMPACT_ALL})

    def _commit(self, rows: DataFrame, progress: Progress, options: Mapping[str, str]) -> Commit:
        self._await_clock()
        self.settle()
        self.close()
        writer = rows.write.format("hudi").options(**self._options).options(**options)
        # The next commit rolls a failed commit back. After that, no task of the failed commit may write any more.
        with no_task_left_behind(self.spark):
            writer.option(NOTED_AS, progress.to_json()).mode("append").save(self.uri)
        commit = self.last_commit()
        if commit is None or commit.progress != progress:
            raise ProgressMissing(
                f"{self.uri}: the newest commit does not carry the progress just written. Another writer may have "
                "written the table: stop that writer. The job starts again from the newest commit."
            )
        return commit

    def close(self) -> None:
        """Stop the work beside the commits. When this method returns, no thread writes to the table any more.

        When the table is opened next, a compaction that was running is completed.
        """
        small, self._small_upserts = self._small_upserts, None
        if small is not None:
            small.close()

    def _await_clock(self) -> None:
        """Wait until the clock is past the latest instant of the timeline. Raises ClockBehind.

        Hudi takes a commit's instant from the clock, and readers apply commits in the order of their instants.
        """
        deadline = time.monotonic() + _CLOCK_SECONDS
        while (now := self._instant(time.time())) <= self._latest:
            if time.monotonic() > deadline:
                raise ClockBehind(
                    f"{self.contract.table}: found {now} as the time, expected a later one than {self._latest}, the "
                    "table's latest commit. Correct the clock of the writer's node."
                )
            time.sleep(_SECOND)

    def _instant(self, seconds: float) -> str:
        """A time, in seconds since 1970, as Hudi writes it in an instant."""
        moment = self._java("java.util.Date")(int(seconds * 1000))
        return str(self._java("org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator").formatDate(moment))

    def _declare_ordering(self, client: Any) -> None:
        """Write the property for the ordering field that Hudi 0.15 reads.

        Hudi 1.1.1 writes only the property's newer name. Without the old name, Athena would use the order of log files
        as the order of changes.
        """
        if client.getTableConfig().getProps().getProperty(_ORDERING_IN_015) == "_order":
            return
        properties = self._java("java.util.Properties")()
        properties.setProperty(_ORDERING_IN_015, "_order")
        config = self._java("org.apache.hudi.common.table.HoodieTableConfig")
        config.update(client.getStorage(), client.getMetaPath(), properties)

    def _with_ordered_compactions(self, client: Any) -> Any:
        """The client, as soon as no compaction seems to have ended before it began. Raises ClockAhead.

        Hudi 1.1.1 uses the modification time of a commit's file as the commit's end, and S3 gives whole seconds. If a
        compaction begins and ends within one second, Hudi ignores the log files after it. So this method writes the
        file again, unchanged, in the next second. Then the file has a later time.
        """
        deadline = time.monotonic() + _CLOCK_SECONDS
        while True:
            timeline = client.getActiveTimeline().getCommitTimeline()
            early = [
                instant
                for instant in elements(timeline.filterCompletedInstants().getInstants())
                if instant.getCompletionTime() < instant.requestedTime()
            ]
            if not early:
                return client
            if time.monotonic() > deadline:
                raise ClockAhead(
                    f"{self.contract.table}: S3 says that the compaction {early[0].requestedTime()} was complete at "
                    f"{early[0].getCompletionTime()}, before it began. Correct the clock of the writer's node; the "
                    f"table goes on once S3's clock is past {early[0].requestedTime()}."
                )
            time.sleep(_SECOND - time.time() % _SECOND)
            for instant in early:
                self._write_again(client, instant)
            client = client.reload(client)

    def _write_again(self, client: Any, instant: Any) -> None:
        path = self._java("org.apache.hadoop.fs.Path")(
            f"{self.uri}/.hoodie/{client.getInstantFileNameGenerator().getFileName(instant)}"
        )
        files = path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())
        stored = files.open(path)
        content = self._java("org.apache.commons.io.IOUtils").toByteArray(stored)
        stored.close()
        again = files.create(path, True)
        again.write(content)
        again.close()

    def _meta_client(self) -> Any:
        """Hudi's client of the table's metadata; None if there is no table yet. Raises ProgressMissing."""
        configuration = self.spark.sparkContext._jsc.hadoopConfiguration()
        path = self._java("org.apache.hadoop.fs.Path")
        folder = path(f"{self.uri}/.hoodie")
        files = folder.getFileSystem(configuration)
        has_properties = files.exists(path(folder, "hoodie.properties"))
        # While Hudi replaces its properties, only their backup exists for a moment.
        if not has_properties and not files.exists(path(folder, "hoodie.properties.backup")):
            self._clear(files, folder)
            return None
        storage = self._java("org.apache.hudi.storage.hadoop.HadoopStorageConfiguration")(configuration)
        builder = self._java("org.apache.hudi.common.table.HoodieTableMetaClient").builder()
        client = builder.setConf(storage).setBasePath(self.uri).setLoadActiveTimelineOnLoad(True).build()
        if not has_properties:
            # Readers such as Athena do not read the backup.
            config = self._java("org.apache.hudi.common.table.HoodieTableConfig")
            config.recover(client.getStorage(), client.getMetaPath())
        return client

    def _clear(self, files: Any, folder: Any) -> None:
        """Delete the empty folder that a crash has left during the table's creation. Hudi would treat it as a table.

        Raises ProgressMissing if the folder is not empty.
        """
        if not files.exists(folder):
            return
        if files.listFiles(folder, True).hasNext():
            raise ProgressMissing(
                f"{self.uri}/.hoodie: found a timeline without hoodie.properties. Restore that file; or move the table "
                "away and start again with a raised epoch."
            )
        self._delete_empty(files, folder)

    def _delete_empty(self, files: Any, folder: Any) -> None:
        """Delete a folder without files, the innermost first.

        A store that has real folders, such as SeaweedFS, keeps a folder that contains another one.
        """
        for entry in files.listStatus(folder):
            self._delete_empty(files, entry.getPath())
        files.delete(folder, True)


def is_in(partition: Mapping[str, Any]) -> Column:
    """A condition that a row is in a partition. With this condition, Hudi skips the files of other partitions."""
    condition = F.lit(True)
    for name, value in partition.items():
        condition &= F.col(name).isNull() if value is None else F.col(name) == F.lit(value)
    return condition


def _table_properties(contract: Contract) -> dict[str, str]:
    """The properties of a contract's table in ``hoodie.properties``."""
    return {
        "hoodie.table.name": contract.table,
        "hoodie.table.keygenerator.type": "SIMPLE" if contract.partitions else "NON_PARTITION",
        "hoodie.table.partition.fields": ",".join(contract.partitions),
    }


def _table_options(contract: Contract, parallelism: int) -> dict[str, str]:
    partitioned = bool(contract.partitions)
    generator = "SimpleKeyGenerator" if partitioned else "NonpartitionedKeyGenerator"
    return {
        "hoodie.table.name": contract.table,
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}",
        "hoodie.datasource.write.partitionpath.field": ",".join(contract.partitions),
        "hoodie.bucket.index.num.buckets": str(contract.buckets),
        "hoodie.bulkinsert.shuffle.parallelism": str(parallelism),
        "hoodie.upsert.shuffle.parallelism": str(parallelism),
    }

"""A Spark job that applies a change log to a table by another system's own writer.

A system's class names the settings that differ from its defaults.

``spark-submit peers.py --system SYSTEM --log LOG.json --table s3a://… --buckets N --result FOLDER``. ``LOG.json`` holds
a list per commit, with the ``s3a://`` addresses of its objects. The job prints an event per commit, as the shipped
writer does. In the end it writes ``id`` and ``version`` of all rows to a local folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

_ROW = (
    "id BIGINT, account_id BIGINT, region STRING, status STRING, amount STRING, placed_at STRING, updated_at STRING, "
    "version BIGINT, note STRING"
)
_EVENT = f"before STRUCT<{_ROW}>, after STRUCT<{_ROW}>, op STRING, source STRUCT<lsn: BIGINT>"
# The number of commits between two maintenance runs: as many as the shipped writer makes between plans of compaction.
_MAINTAINED = 20
_UNPARTITIONED = {
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}


class _System(ABC):
    """A table that takes changes. A frame of changes has the last change of each key, with its LSN and ``deleted``."""

    def __init__(self, spark: SparkSession, table: str, buckets: int) -> None:
        self.spark = spark
        self.table = table
        self.buckets = buckets

    def changes(self, objects: list[str]) -> DataFrame:
        """The last change of each key in some landing objects."""
        return _changes(self.spark, objects)

    @abstractmethod
    def create(self, rows: DataFrame) -> None:
        """Create the table with its first rows."""

    @abstractmethod
    def apply(self, changes: DataFrame) -> None:
        """Commit changes."""

    def maintain(self) -> None:  # noqa: B027 - some need none
        """Run the regular maintenance that the documentation advises. It counts in a commit's time."""

    def rows(self) -> DataFrame:
        """All rows of the table."""
        return self.spark.table(self.table)


class _Hudi(_System):
    """Hudi's upsert by Spark's data source, with the defaults of 1.1 except for ``options``."""

    options: ClassVar[dict[str, str]] = {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        # Its writers by Spark's data source compact only if configured so.
        "hoodie.compact.inline": "true",
    }

    def create(self, rows: DataFrame) -> None:
        self._write(rows, "bulk_insert")

    def apply(self, changes: DataFrame) -> None:
        self._write(changes, "upsert")

    def rows(self) -> DataFrame:
        return self.spark.read.format("hudi").load(self.table)

    def _write(self, frame: DataFrame, operation: str) -> None:
        options = {
            "hoodie.table.name": "payments",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "lsn",
            "hoodie.datasource.write.operation": operation,
            # Only a bucket index reads this setting.
            "hoodie.bucket.index.num.buckets": str(self.buckets),
            **self.options,
        }
        named = frame.withColumnRenamed("deleted", "_hoodie_is_deleted")
        named.write.format("hudi").options(**options).mode("append").save(self.table)


class _Posts(_Hudi):
    """Hudi as blog posts of 2021 configure it: copy on write, bloom filters, and no later feature."""

    options: ClassVar[dict[str, str]] = {
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.index.type": "BLOOM",
        "hoodie.metadata.enable": "false",
        **_UNPARTITIONED,
    }


class _Bucket(_Hudi):
    """Hudi's own writer, with the settings that make most of Headwater's difference."""

    options: ClassVar[dict[str, str]] = {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        **_UNPARTITIONED,
        "hoodie.index.type": "BUCKET",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": str(_MAINTAINED),
    }


class _Merged(_System):
    """A table that takes changes by SQL's MERGE."""

    @property
    @abstractmethod
    def definition(self) -> str:
        """The SQL after the columns in CREATE TABLE."""

    def create(self, rows: DataFrame) -> None:
        columns = ", ".join(f"{name} {type_}" for name, type_ in rows.drop("deleted").dtypes)
        self.spark.sql(f"CREATE TABLE {self.table} ({columns}) {self.definition}")
        rows.drop("deleted").createOrReplaceTempView("first_rows")
        self.spark.sql(f"INSERT INTO {self.table} SELECT * FROM first_rows")

    def apply(self, changes: DataFrame) -> None:
        changes.createOrReplaceTempView("changes")
        self.spark.sql(
            f"MERGE INTO {self.table} AS t USING changes AS c ON t.id = c.id "
            "WHEN MATCHED AND c.deleted THEN DELETE WHEN MATCHED AND c.lsn > t.lsn THEN UPDATE SET * "
            "WHEN NOT MATCHED AND NOT c.deleted THEN INSERT *"
        )


class _Iceberg(_Merged):
    """Iceberg, merge-on-read, with its procedures for maintenance."""

    definition = (
        "USING iceberg TBLPROPERTIES ('format-version'='2', 'write.merge.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read')"
    )

    def maintain(self) -> None:
        name = self.table.removeprefix("peer.")
        options = "map('delete-file-threshold', '5')"
        self.spark.sql(f"CALL peer.system.rewrite_data_files(table => '{name}', options => {options})")
        self.spark.sql(f"CALL peer.system.rewrite_position_delete_files(table => '{name}')")
        self.spark.sql(f"CALL peer.system.expire_snapshots(table => '{name}', retain_last => {_MAINTAINED})")


class _Delta(_Merged):
    """Delta with deletion vectors and automatic compaction."""

    definition = (
        "USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'delta.autoOptimize.autoCompact'='true')"
    )

    def maintain(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.table}")


class _Parquet(_System):
    """A lower limit, no peer: the same changes as Parquet files, which nobody merges."""

    def create(self, rows: DataFrame) -> None:
        rows.write.mode("append").parquet(self.table)

    def apply(self, changes: DataFrame) -> None:
        self.create(changes)

    def rows(self) -> DataFrame:
        changes = self.spark.read.parquet(self.table)
        return _last(changes, "lsn").filter("NOT deleted")


class _Read(_System):
    """A lower limit, no peer: the job only reads the objects' lines."""

    def changes(self, objects: list[str]) -> DataFrame:
        return self.spark.read.text(objects)

    def create(self, rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()

    def apply(self, changes: DataFrame) -> None:
        self.create(changes)

    def rows(self) -> DataFrame:
        return self.spark.createDataFrame([], "id BIGINT, version BIGINT")


_SYSTEMS: dict[str, type[_System]] = {
    "posts": _Posts,
    "hudi": _Hudi,
    "bucket": _Bucket,
    "iceberg": _Iceberg,
    "delta": _Delta,
    "parquet": _Parquet,
    "read": _Read,
}


def _changes(spark: SparkSession, objects: list[str]) -> DataFrame:
    """The last change of each key in some landing objects."""
    lines = spark.read.text(objects).select(F.from_json("value", "value STRING").alias("line"))
    decoded = lines.select(F.from_json(F.unbase64("line.value").cast("string"), _EVENT).alias("event"))
    deleted = F.col("event.op") == "d"
    rows = decoded.select(
        F.when(deleted, F.col("event.before")).otherwise(F.col("event.after")).alias("row"),
        F.col("event.source.lsn").alias("lsn"),
        deleted.alias("deleted"),
    )
    typed = (
        rows.select("row.*", "lsn", "deleted")
        .withColumn("amount", F.col("amount").cast("decimal(12,2)"))
        .withColumn("placed_at", F.col("placed_at").cast("timestamp"))
        .withColumn("updated_at", F.col("updated_at").cast("timestamp"))
    )
    return _last(typed, "lsn")


def _last(frame: DataFrame, order: str) -> DataFrame:
    newest = Window.partitionBy("id").orderBy(F.col(order).desc())
    return frame.withColumn("_n", F.row_number().over(newest)).filter("_n = 1").drop("_n")


def _report(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    """Apply the change log."""
    parser = argparse.ArgumentParser(description="Apply a change log by another system's writer.", allow_abbrev=False)
    parser.add_argument("--system", choices=sorted(_SYSTEMS), required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--buckets", type=int, required=True)
    options = parser.parse_args(argv)
    first, *commits = json.loads(options.log.read_text())
    spark = SparkSession.builder.appName(options.system).getOrCreate()
    system = _SYSTEMS[options.system](spark, options.table, options.buckets)
    started = time.time()
    system.create(system.changes(first))
    _report({"event": "created", "seconds": round(time.time() - started, 3)})
    for number, objects in enumerate(commits, 1):
        started = time.time()
        system.apply(system.changes(objects))
        if number % _MAINTAINED == 0:
            system.maintain()
        completed = time.time()
        _report({"event": "commit", "seconds": round(completed - started, 3), "completed_at": completed})
    system.rows().select("id", "version").coalesce(1).write.mode("overwrite").parquet(options.result)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

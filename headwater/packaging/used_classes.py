"""A Spark program that does a little of everything that the writers do, so that its classes can be archived.

spark-submit used_classes.py FOLDER
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

# Hudi can write with no other serializer.
_SERIALIZER = "org.apache.spark.serializer.KryoSerializer"
_OPTIONS = {
    "hoodie.table.name": "used",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "_key",
    "hoodie.datasource.write.precombine.field": "_order",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}


def main(folder: Path) -> None:
    """Write a small table below a folder and read it. Then open a store that does not answer."""
    builder = SparkSession.builder.appName("used classes").config("spark.serializer", _SERIALIZER)
    with builder.getOrCreate() as spark:
        records = spark.sparkContext.parallelize(range(100), 2)
        rows = records.mapPartitions(lambda part: ((str(number), number, "a") for number in part))
        frame = spark.createDataFrame(rows, "_key string, _order long, part string").persist()
        frame.agg(F.count("*"), F.max("_order")).collect()
        for operation in ("bulk_insert", "upsert", "upsert"):
            options = {**_OPTIONS, "hoodie.datasource.write.operation": operation}
            frame.write.format("hudi").options(**options).mode("append").save(f"{folder}/table")
        spark.read.format("hudi").load(f"{folder}/table").filter("_order > 1").collect()
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in {
            "endpoint": "http://127.0.0.1:9",
            "access.key": "none",
            "secret.key": "none",
            "attempts.maximum": "1",
            "retry.limit": "0",
            "path.style.access": "true",
        }.items():
            configuration.set(f"fs.s3a.{name}", value)
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path("s3a://none/object")
        # No server listens at this address.
        with suppress(Exception):
            path.getFileSystem(configuration).exists(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The Spark settings that EMR, Glue and the local run share. This module imports nothing, so the CDK app can use it."""


def shared() -> dict[str, str]:
    """Return the Spark settings of every Headwater job. EMR, Glue and the local run add their addresses and sizes."""
    return {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        # Each table commits in a thread of one driver. With FAIR, no table waits for another table's whole job.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # A cached batch is read twice and dropped, so compression would cost more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # With the old structure, Hudi's Parquet writer fails on an array with a null element.
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",
        # Old dates stay unchanged: Spark neither refuses them nor shifts them to the hybrid calendar.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        # S3A is the S3 client everywhere. It keeps directory markers, because deleting them costs requests.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
    }

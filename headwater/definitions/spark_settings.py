"""The Spark settings that EMR, Glue and the local run share. Imports nothing, so that the CDK app can use it."""


def shared() -> dict[str, str]:
    """Return the settings a Headwater job needs wherever it runs; addresses and sizes are the place's own."""
    return {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        # One thread a table commits in the same driver; none waits for another's whole job.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # A batch is cached to be read twice and dropped: compressing it costs more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Hudi's Parquet writer otherwise fails on an array with a null element.
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",
        # Old dates are written as they are, not refused and not shifted to the hybrid calendar.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    }


def s3a() -> dict[str, str]:
    """Return the settings of Hadoop's S3 client; EMR's and Glue's own file systems ignore them."""
    return {
        # Keeping directory markers spares the deletes that would follow every new file.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
    }

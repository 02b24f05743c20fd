"""The Spark settings that EMR, Glue and the local run share. It imports nothing, so that the CDK app can use it."""


def shared() -> dict[str, str]:
    """Return the settings that a Headwater job needs wherever it runs. Each place adds its own addresses and sizes."""
    return {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        # In one driver, one thread per table commits; with FAIR none waits for the whole job of another.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # A batch is cached, read twice and dropped: compressing it would cost more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # With the old structure, Hudi's Parquet writer fails on an array with a null element.
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",
        # Old dates are written as they are, neither refused nor shifted to the hybrid calendar.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        # S3A is the S3 client everywhere. Keeping its directory markers spares the deletes after every new file.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
    }

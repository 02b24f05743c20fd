"""Glue's Kinesis source as its documentation describes it: one column with the text of each record, and nothing else.

The records of a stream are the lines of the files in the folder of its name, below ``HEADWATER_TEST_STREAMS``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

_COLUMN = "$json$data_infer_schema$_temporary$"


class GlueContext:
    """The session's context, with Glue's way to a streaming DataFrame."""

    def __init__(self, spark_context: SparkContext) -> None:
        self.create_data_frame = _Sources(SparkSession(spark_context))


class _Sources:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def from_options(self, connection_type: str, connection_options: dict[str, Any]) -> DataFrame:
        """Read a stream as lines of text. Fails on options that would give something else on Glue."""
        assert connection_type == "kinesis"
        expected = {"typeOfData": "kinesis", "classification": "json", "inferSchema": "true"}
        assert expected.items() <= connection_options.items(), connection_options
        stream = connection_options["streamARN"].rpartition("/")[2]
        folder = Path(os.environ["HEADWATER_TEST_STREAMS"]) / stream
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        return lines.withColumnRenamed("value", _COLUMN)

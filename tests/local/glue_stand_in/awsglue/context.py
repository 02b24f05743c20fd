"""Glue's Kinesis source as its documentation describes it: one column with the text of each record, and nothing else.

The records of a stream are the lines of the files in the folder of its name, below ``HEADWATER_TEST_STREAMS``. The
options of the last read of a stream stand beside that folder, in ``<stream>.options.json``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

_COLUMN = "$json$data_infer_schema$_temporary$"
_NUMBER = r"\d+"
_FLAG = r"(?i:true|false)"
_TEXT = r".+"
# "Kinesis connection option reference" of the AWS Glue developer guide, as far as it is about reading. Jobs give all of
# them as texts; classification and inferSchema are those that give the column of this source.
_ALLOWED = {
    "typeOfData": "kinesis",
    "streamARN": r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{12}:stream/[A-Za-z0-9_.-]+",
    "classification": "json",
    "inferSchema": "true",
    "startingPosition": r"(?i:latest|trim_horizon|earliest)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)",
    "failOnDataLoss": _FLAG,
    "awsSTSRoleARN": _TEXT,
    "awsSTSSessionName": _TEXT,
    "awsSTSEndpoint": _TEXT,
    "endpointUrl": _TEXT,
    "maxFetchTimeInMs": _NUMBER,
    "maxFetchRecordsPerShard": _NUMBER,
    "maxRecordPerRead": _NUMBER,
    "addIdleTimeBetweenReads": _FLAG,
    "idleTimeBetweenReadsInMs": _NUMBER,
    "describeShardInterval": r"\d+(ms|s|m|h)",
    "numRetries": _NUMBER,
    "retryIntervalMs": _NUMBER,
    "maxRetryIntervalMs": _NUMBER,
    "avoidEmptyBatches": _FLAG,
    "addRecordTimestamp": _FLAG,
    "emitConsumerLagMetrics": _FLAG,
    "fanoutConsumerARN": _TEXT,
}
_REQUIRED = ("typeOfData", "streamARN", "classification", "inferSchema")


class GlueContext:
    """The session's context, with Glue's way to a streaming DataFrame."""

    def __init__(self, spark_context: SparkContext) -> None:
        self.create_data_frame = _Sources(SparkSession(spark_context))


class _Sources:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def from_options(self, connection_type: str, connection_options: dict[str, Any]) -> DataFrame:
        """Read a stream as lines of text. Raises ValueError as ``check`` does."""
        if connection_type != "kinesis":
            raise ValueError(f"connection_type: found {connection_type!r}, expected 'kinesis'")
        check(connection_options)
        stream = connection_options["streamARN"].rpartition("/")[2]
        folder = Path(os.environ["HEADWATER_TEST_STREAMS"]) / stream
        folder.with_name(f"{stream}.options.json").write_text(json.dumps(connection_options))
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        return lines.withColumnRenamed("value", _COLUMN)


def check(options: Mapping[str, Any]) -> None:
    """Raise ValueError where an option is missing, or where the documentation does not know its name or its value, or
    says that the source would give something else."""
    for name in _REQUIRED:
        if name not in options:
            raise ValueError(f"{name}: missing")
    for name, value in options.items():
        if name not in _ALLOWED:
            raise ValueError(f"{name}: found an option that is not documented")
        if not isinstance(value, str) or not re.fullmatch(_ALLOWED[name], value):
            raise ValueError(f"{name}: found {value!r}, expected {_ALLOWED[name]}")

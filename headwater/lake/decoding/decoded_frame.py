"""A batch of decoded rows as a DataFrame, for every source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import Contract
from headwater.lake.decoding.changes import columns_tagged

Part = TypeVar("Part")


def spread(spark: SparkSession, parts: Sequence[Part], parallelism: int) -> RDD[Part]:
    """Distribute the parts of a batch (at least one) over the executors, in at most ``parallelism`` tasks."""
    return spark.sparkContext.parallelize(parts, min(len(parts), parallelism))


def tagged_ddl(contract: Contract) -> str:
    """Spark's DDL of ``columns_tagged``."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))


def decoded_frame(spark: SparkSession, contract: Contract, rows: RDD[tuple[Any, ...]]) -> DataFrame:
    """A decoder's rows as a DataFrame with the columns of ``columns_tagged``."""
    return spark.createDataFrame(rows, tagged_ddl(contract), verifySchema=False)


def few_rows_frame(spark: SparkSession, contract: Contract, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """A few rows of the driver as a DataFrame, as ``decoded_frame`` makes it."""
    return decoded_frame(spark, contract, spread(spark, rows, 1))

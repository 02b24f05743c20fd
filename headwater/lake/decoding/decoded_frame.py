"""A batch of decoded rows as a DataFrame, wherever the rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import Contract
from headwater.lake.decoding.changes import columns_tagged

Part = TypeVar("Part")


def spread(spark: SparkSession, parts: Sequence[Part], parallelism: int) -> RDD[Part]:
    """The parts of a batch (one at least) on the executors, in at most ``parallelism`` tasks."""
    return spark.sparkContext.parallelize(parts, min(len(parts), parallelism))


def tagged_ddl(contract: Contract) -> str:
    """Spark's DDL of ``columns_tagged``."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))


def decoded_frame(spark: SparkSession, contract: Contract, rows: RDD[tuple[Any, ...]]) -> DataFrame:
    """The rows, which a decoder gave, in the columns of ``columns_tagged``."""
    return spark.createDataFrame(rows, tagged_ddl(contract), verifySchema=False)


def few_rows_frame(spark: SparkSession, contract: Contract, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """As ``decoded_frame``, of a few rows that the driver has."""
    return decoded_frame(spark, contract, spread(spark, rows, 1))

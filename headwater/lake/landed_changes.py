"""Landed changes: from landing objects to a table's commits."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import Contract
from headwater.lake.changes import columns_tagged
from headwater.lake.debezium_decoder import PostgresDecoder, decode_lines
from headwater.lake.landing import Landing, LandingObject, advance, read_lines
from headwater.lake.table import Progress
from headwater.lake.writer import TableWriter, WriterSettings


class LandedChanges:
    """Hands a topic's landing objects to the writer of its table, in the order of offsets."""

    def __init__(
        self, spark: SparkSession, contract: Contract, landing: Landing, writer: TableWriter, settings: WriterSettings
    ) -> None:
        self._spark = spark
        self._contract = contract
        self._landing = landing
        self._writer = writer
        self._settings = settings

    def step(self) -> bool:
        """Commit what has landed since the last commit, and say whether there was anything. Raises LandingGap."""
        objects = self._landing.after(self._writer.progress.cursor, self._settings.batch_bytes)
        if not objects:
            return False

        def progress(last: Progress) -> Progress:
            return replace(last, cursor=advance(last.cursor, objects))

        name = f"{objects[0].source.replace('/', '-')}-{objects[0].first:020d}"
        self._writer.commit(self._decode(objects), name, progress)
        return True

    def _decode(self, objects: list[LandingObject]) -> DataFrame:
        contract, epoch = self._contract, self._settings.epoch
        slices = min(len(objects), self._settings.parallelism)

        def decode(part: Iterable[LandingObject]) -> Iterator[tuple[Any, ...]]:
            return decode_lines(read_lines(iter(part)), PostgresDecoder(contract, epoch), binascii.a2b_base64)

        schema = ", ".join(f"`{name}` {type_}" for name, type_ in columns_tagged(contract))
        rows = self._spark.sparkContext.parallelize(objects, slices).mapPartitions(decode)
        return self._spark.createDataFrame(rows, schema, verifySchema=False)

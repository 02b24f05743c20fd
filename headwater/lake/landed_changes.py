"""Commits a topic's landing objects to its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from headwater.lake.debezium_decoder import PostgresDecoder, decode_lines
from headwater.lake.decoded_frame import decoded_frame, spread
from headwater.lake.landing import Landing, LandingObject, cursor_after, read_lines
from headwater.lake.progress import Progress
from headwater.lake.writer import TableWriter


class LandedChanges:
    """Hands a topic's landing objects to the writer of its table, in the order of offsets."""

    def __init__(self, writer: TableWriter, landing: Landing) -> None:
        self._writer = writer
        self._landing = landing

    def commit_next(self) -> bool:
        """Commit what has landed since the last commit, and say whether there was anything. Raises LandingGap."""
        objects = self._landing.after(self._writer.progress.cursor, self._writer.settings.batch_bytes)
        if not objects:
            return False

        def advance(last: Progress) -> Progress:
            return replace(last, cursor=cursor_after(last.cursor, objects))

        name = f"{objects[0].source.replace('/', '-')}-{objects[0].first:020d}"
        self._writer.commit(self._decode(objects), name, advance)
        return True

    def _decode(self, objects: list[LandingObject]) -> DataFrame:
        spark, contract, settings = self._writer.spark, self._writer.contract, self._writer.settings
        epoch, purged = self._writer.progress.epoch, self._writer.progress.purged

        def decode(part: Iterable[LandingObject]) -> Iterator[tuple[Any, ...]]:
            return decode_lines(read_lines(iter(part)), PostgresDecoder(contract, epoch), purged)

        rows = spread(spark, objects, settings.parallelism).mapPartitions(decode)
        return decoded_frame(spark, contract, rows)

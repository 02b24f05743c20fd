"""Decoded batches: distributed over Spark's executors, or held in the driver.

A batch counts its rows and shows its bad records. Its rows have the columns of ``columns_tagged``.
"""

from __future__ import annotations

import functools
import json
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.contract.model import Contract
from headwater.lake.base.jvm_classes import java_class
from headwater.lake.decoding.decoded_frame import tagged_ddl
from headwater.lake.decoding.late_changes import is_late

IS_ROW = "_order IS NOT NULL"
IS_LEFT = "_order IS NULL AND _reason IS NULL AND _raw IS NOT NULL"
"""A condition that the JVM has left a record to the reference decoder: it is neither a row nor bad yet."""
_IS_BAD = "_reason IS NOT NULL"


@dataclass(frozen=True)
class Counts:
    """The counts of a batch."""

    rows: int = 0
    """Rows, tombstones included."""
    live_rows: int = 0
    """Rows that are not tombstones."""
    records: int = 0
    """Records from the source."""
    bad: int = 0
    """Records that cannot be decoded."""
    unfit_rows: int = 0
    """Rows with conversion errors."""
    unfit_values: int = 0
    """Conversion errors in all rows."""
    floor: str = ""
    """The highest truncate marker that a record sets; "" if none does."""
    oldest: float | None = None
    """The time of the earliest change, in seconds since 1970; None without a change."""
    late: int = 0
    """Late-arriving rows: they are older than a purged tombstone."""
    late_untold: int = 0
    """Late-arriving live rows above the truncate marker that do not carry their record for the quarantine."""
    careful: int = 0
    """Records that the JVM has left to the reference decoder."""
    lowest: str = ""
    """The lowest order of the rows; "" without a row."""
    left_out: int = 0
    """Attributes that are not stored. The path to a hidden value in them leads through a value that is not a map."""

    def with_those(self, others: Counts) -> Counts:
        """These counts, plus the rows and records that ``others`` counts beside the batch."""
        return replace(
            self,
            rows=self.rows + others.rows,
            live_rows=self.live_rows + others.live_rows,
            records=self.records + others.records,
            oldest=min((each for each in (self.oldest, others.oldest) if each is not None), default=None),
            careful=max(self.careful, others.careful),
            lowest=min((each for each in (self.lowest, others.lowest) if each), default=""),
        )


class Batch(Protocol):
    """The counts and the bad records of a batch, whether Spark or the driver holds it."""

    def counts(self, purged: str, floor: str) -> Counts:
        """The counts of the batch. ``purged`` and ``floor`` are the orders of the table's ``Progress``."""

    def bad(self, most: int | None = None) -> list[tuple[str, str]]:
        """``_reason`` and ``_raw`` of the bad records, at most ``most`` of them if given."""

    def unfit_columns(self) -> list[str]:
        """The columns that have conversion errors, sorted."""


class SpreadBatch:
    """A distributed batch: its rows are on the executors."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def counts(self, purged: str, floor: str) -> Counts:
        """As ``Batch.counts``, by one action."""
        is_row, is_bad = F.expr(IS_ROW), F.expr(_IS_BAD)
        is_live = is_row & ~F.col("_deleted")
        late = is_late(purged)
        counted = {
            "rows": F.count(F.when(is_row, 1)),
            "live_rows": F.count(F.when(is_live, 1)),
            # A record is one live row, one delete, or bad. It may have further tombstones beside these.
            "records": F.count(F.when(is_live | (is_row & (F.col("_op") == "d")) | is_bad, 1)),
            "bad": F.count(F.when(is_bad, 1)),
            "unfit_rows": F.count("_unfit"),
            "unfit_values": F.coalesce(F.sum(F.when(F.col("_unfit").isNotNull(), F.size("_unfit"))), F.lit(0)),
            "floor": F.coalesce(F.max("_floor"), F.lit("")),
            "oldest": F.min("_source_ts").cast("double"),
            "late": F.count(F.when(late, 1)),
            "late_untold": F.count(
                F.when(late & (F.col("_order") >= floor) & ~F.col("_deleted") & F.col("_raw").isNull(), 1)
            ),
            "careful": F.count(F.when(F.expr(IS_LEFT), 1)),
            "lowest": F.coalesce(F.min("_order"), F.lit("")),
            "left_out": F.coalesce(F.sum("_left_out"), F.lit(0)),
        }
        (row,) = self._frame.agg(*(counted[field.name].alias(field.name) for field in fields(Counts))).collect()
        return Counts(**row.asDict())

    def bad(self, most: int | None = None) -> list[tuple[str, str]]:
        """As ``Batch.bad``."""
        shown = self._frame.filter(_IS_BAD).select("_reason", "_raw")
        return [(row["_reason"], row["_raw"]) for row in (shown if most is None else shown.limit(most)).collect()]

    def unfit_columns(self) -> list[str]:
        """As ``Batch.unfit_columns``."""
        return sorted({row[0] for row in self._frame.select(F.explode("_unfit")).distinct().collect()})


class HeldBatch:
    """A driver batch: its rows are in the driver's JVM. It is empty at first.

    It is for few rows: a Spark job would cost many times as much as their decoding.
    """

    def __init__(self, spark: SparkSession, contract: Contract) -> None:
        self.taken_at = time.time()
        """When the batch was begun, before its first record was decoded, in seconds since 1970."""
        self._spark = spark
        self.rows = java_class(spark, "io.headwater.lake.HeldRows")(tagged_ddl(contract), list(contract.place))
        """Java's ``HeldRows``."""

    def add(self, tagged: Iterable[tuple[Any, ...]]) -> None:
        """Add rows in the columns of ``columns_tagged``."""
        rows = list(tagged)
        if rows:
            to_internal = _row_type(self.rows.type()).toInternal
            self.rows.add(pickle.dumps([to_internal(row) for row in rows]))

    def add_decoded(self, decoded: Any, most_bytes: int) -> bool:
        """Add Java's ``DecodedRows``, unless the batch's records would then have more than ``most_bytes`` bytes.

        Returns whether the rows are added.
        """
        return bool(self.rows.add(decoded, most_bytes))

    def add_all(self, decoded: Any) -> None:
        """Add Java's ``DecodedRows``, whatever their size."""
        self.rows.add(decoded, 2**63 - 1)

    def take(self, other: HeldBatch, most_bytes: int, most_bytes_of_others: int) -> bool:
        """Add another batch if both together are not too large. Returns whether the other batch is added.

        After that, the other batch must not be used any more.

        - ``most_bytes``: all records of both batches have at most this many bytes.
        - ``most_bytes_of_others``: the records of both batches that are not rows have at most this many bytes.
        """
        taken = bool(self.rows.take(other.rows, most_bytes, most_bytes_of_others))
        if taken:
            self.taken_at = min(self.taken_at, other.taken_at)
        return taken

    def take_left(self) -> list[str]:
        """Take the records that the JVM has left to the reference decoder out of the batch, and return them."""
        left = bytes(self.rows.takeLeft()).decode()
        return left.split("\n") if left else []

    def counts(self, purged: str, floor: str) -> Counts:
        """As ``Batch.counts``."""
        return Counts(**json.loads(self.rows.counts(purged, floor)))

    def bad(self, most: int | None = None) -> list[tuple[str, str]]:
        """As ``Batch.bad``."""
        found = json.loads(self.rows.bad(2**31 - 1 if most is None else most))
        return [(reason, raw) for reason, raw in found]

    def unfit_columns(self) -> list[str]:
        """As ``Batch.unfit_columns``."""
        names: list[str] = json.loads(self.rows.unfitColumns())
        return names

    def counts_beside(self) -> Counts:
        """The counts of rows and records that are no longer in the batch.

        A newer row of the same location has replaced the rows. The records were passed to the reference decoder.
        """
        return Counts(**json.loads(self.rows.countsBeside()))

    def frame(self) -> DataFrame:
        """The batch as a DataFrame."""
        return DataFrame(self.rows.frame(self._spark._jsparkSession), self._spark)


@functools.cache
def _row_type(text: str) -> StructType:
    """The type of rows, as Spark writes it in JSON."""
    return StructType.fromJson(json.loads(text))


@contextmanager
def undecodable_passes(contract: Contract) -> Iterator[None]:
    """Raise a ValueError of a decoder as a RuntimeError, so that the writer tries the batch again.

    ``failures`` treats a ValueError as a lasting error. Spark, too, wraps the error of a task in another type.
    """
    try:
        yield
    except ValueError as error:
        raise RuntimeError(f"{contract.table}: a batch could not be decoded: {error}") from error

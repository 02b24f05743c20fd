"""A decoded batch where its rows are, spread over Spark's executors or in the driver: what it holds, counted, and its
bad records. Its rows have the columns of ``columns_tagged``."""

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
"""Of a record that the JVM has left to the careful decoder: it is neither a row nor bad yet."""
_IS_BAD = "_reason IS NOT NULL"


@dataclass(frozen=True)
class Counts:
    """What a batch holds. ``rows`` are those of all changes, ``live_rows`` those without tombstones; ``records`` came
    from the source, ``bad`` of them cannot be decoded. ``unfit_rows`` lack values, ``unfit_values`` in all;
    ``left_out`` attributes are not in rows, because no maps led to what the contract hides in them. ``floor`` is the
    highest that a record sets, "" for none; ``oldest`` the time of the earliest change in epoch seconds, None
    without one. ``late`` rows are from before a purged tombstone; of those alive above the floor, ``late_untold`` do
    not bring along what quarantine would keep of them. ``careful`` records are those that the JVM has left to the
    careful decoder. ``lowest`` is the lowest order of the rows, "" without one."""

    rows: int = 0
    live_rows: int = 0
    records: int = 0
    bad: int = 0
    unfit_rows: int = 0
    unfit_values: int = 0
    floor: str = ""
    oldest: float | None = None
    late: int = 0
    late_untold: int = 0
    careful: int = 0
    lowest: str = ""
    left_out: int = 0

    def with_those(self, others: Counts) -> Counts:
        """These and what else there is: rows that are not to be written any more, and records by the careful way."""
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
    """What both kinds of a batch tell of themselves."""

    def counts(self, purged: str, floor: str) -> Counts:
        """What the batch holds, seen from a table with these two orders."""

    def bad(self, most: int | None = None) -> list[tuple[str, str]]:
        """``_reason`` and ``_raw`` of the bad records, of ``most`` of them where it is given."""

    def unfit_columns(self) -> list[str]:
        """The columns that lack values, sorted."""


class SpreadBatch:
    """A batch on the executors."""

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
            # Each gives a row that lives, or is a delete, or is bad. Other tombstones lie where a row or a bad one was.
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
    """A batch in the driver's JVM, empty at first: few rows, for which a job of Spark would cost many times what they
    do."""

    def __init__(self, spark: SparkSession, contract: Contract) -> None:
        self.taken_at = time.time()
        """When it was begun, before its first record was decoded, in epoch seconds."""
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
        """Add Java's ``DecodedRows``, unless the records of what is held would have more than so many bytes then; say
        whether they are added."""
        return bool(self.rows.add(decoded, most_bytes))

    def add_all(self, decoded: Any) -> None:
        """Add Java's ``DecodedRows``, however much they are."""
        self.rows.add(decoded, 2**63 - 1)

    def take(self, other: HeldBatch, most_bytes: int, most_bytes_of_others: int) -> bool:
        """Add what another batch holds, unless the records of both, or those of them that are no rows, would have more
        than so many bytes; say whether it is added. The other one is not used any more then."""
        taken = bool(self.rows.take(other.rows, most_bytes, most_bytes_of_others))
        if taken:
            self.taken_at = min(self.taken_at, other.taken_at)
        return taken

    def take_left(self) -> list[str]:
        """What the JVM's decoder has left: it is not in the batch any more."""
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
        """Those of the counts that are not those of what is held: of rows that a later one of their place has replaced,
        and of what was left."""
        return Counts(**json.loads(self.rows.countsBeside()))

    def frame(self) -> DataFrame:
        """What is held, for Spark."""
        return DataFrame(self.rows.frame(self._spark._jsparkSession), self._spark)


@functools.cache
def _row_type(text: str) -> StructType:
    """The type of rows, as Spark writes it in JSON."""
    return StructType.fromJson(json.loads(text))


@contextmanager
def undecodable_passes(contract: Contract) -> Iterator[None]:
    """Raise an unexpected error of decoding as one that may pass, as Spark does with that of a task: ``failures`` takes
    a ValueError for one that lasts."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError(f"{contract.table}: a batch could not be decoded: {error}") from error

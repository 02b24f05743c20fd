"""A decoded batch where its rows are, spread over Spark's executors or in the driver: what it holds, counted, and its
bad records. Its rows have the columns of ``columns_tagged``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.lake.changes import columns_tagged
from headwater.lake.decoded_frame import decoded_frame
from headwater.lake.late_changes import is_late

IS_ROW = "_order IS NOT NULL"
_IS_BAD = "_reason IS NOT NULL"


@dataclass(frozen=True)
class Counts:
    """What a batch holds. ``rows`` are to be written, ``live_rows`` those without tombstones; ``records`` came from the
    source, ``bad`` of them cannot be decoded. ``unfit_rows`` lack values, ``unfit_values`` in all. ``floor`` is the
    highest that a record sets, "" for none; ``oldest`` the time of the earliest change in epoch seconds, None without
    one. ``late`` rows are from before a purged tombstone; of those alive, ``late_untold`` do not bring along what
    quarantine would keep of them."""

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
        late = is_late(purged, floor)
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
            "late_untold": F.count(F.when(late & ~F.col("_deleted") & F.col("_raw").isNull(), 1)),
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
    """A batch in the driver: few rows, for which a job of Spark would cost many times what they do."""

    def __init__(self, contract: Contract, tagged: Sequence[tuple[Any, ...]]) -> None:
        self._contract = contract
        self._tagged = tagged
        self._at = {name: at for at, (name, _) in enumerate(columns_tagged(contract))}
        order = self._at["_order"]
        self._rows = [row for row in tagged if row[order] is not None]

    def counts(self, purged: str, floor: str) -> Counts:
        """As ``Batch.counts``."""
        value, rows = self._value, self._rows
        living = [row for row in rows if not value(row, "_deleted")]
        late = [row for row in rows if floor <= value(row, "_order") < purged]
        bad = sum(value(row, "_reason") is not None for row in self._tagged)
        deletes = sum(value(row, "_deleted") and value(row, "_op") == "d" for row in rows)
        unfit = [value(row, "_unfit") for row in rows if value(row, "_unfit") is not None]
        times: list[dt.datetime] = [value(row, "_source_ts") for row in rows]
        return Counts(
            rows=len(rows),
            live_rows=len(living),
            records=len(living) + deletes + bad,
            bad=bad,
            unfit_rows=len(unfit),
            unfit_values=sum(map(len, unfit)),
            floor=max((value(row, "_floor") or "" for row in self._tagged), default=""),
            oldest=min(times).timestamp() if times else None,
            late=len(late),
            late_untold=sum(not value(row, "_deleted") and value(row, "_raw") is None for row in late),
        )

    def bad(self, most: int | None = None) -> list[tuple[str, str]]:
        """As ``Batch.bad``."""
        value = self._value
        bad = [(value(row, "_reason"), value(row, "_raw")) for row in self._tagged if value(row, "_reason") is not None]
        return bad[:most]

    def unfit_columns(self) -> list[str]:
        """As ``Batch.unfit_columns``."""
        return sorted({name for row in self._rows for name in self._value(row, "_unfit") or ()})

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows in the columns of ``lake_columns``."""
        width = len(self._contract.lake_columns())
        return [row[:width] for row in self._rows]

    def frame(self, spark: SparkSession) -> DataFrame:
        """The batch for Spark."""
        return decoded_frame(spark, self._contract, spark.sparkContext.parallelize(self._tagged, 1))

    def _value(self, row: tuple[Any, ...], name: str) -> Any:
        return row[self._at[name]]


@contextmanager
def undecodable_passes(contract: Contract) -> Iterator[None]:
    """Raise an unexpected error of decoding as one that may pass, as Spark does with that of a task: ``failures`` takes
    a ValueError for one that lasts."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError(f"{contract.table}: a batch could not be decoded: {error}") from error

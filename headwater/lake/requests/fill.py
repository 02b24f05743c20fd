"""Fills (backfills) columns that a contract has gained, in old rows, from their ``_rest``.

Each commit fills one partition. A filled row keeps its ``_order``. It wins over the stored row: if two rows have the
same ``_order``, the later commit counts. A later change wins over both. A filled row has nothing left to fill, so a
restarted writer goes on where the last commit ended.

This is one of the kinds of ``requested_work``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from headwater.contract.model import Contract
from headwater.lake.decoding.changes import columns_tagged
from headwater.lake.decoding.exact_values import DEFECTS
from headwater.lake.decoding.rest_values import Filler, RestForm, RowRest
from headwater.lake.requests.protocol import DONE, RUNNING, Status
from headwater.lake.table.hudi_table import is_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.lake.table.writer import TableWriter


def work(
    writer: TableWriter, form: Callable[[Contract], RestForm], name: str, details: Mapping[str, Any]
) -> TableToFill:
    """The work of a request to fill the table of ``writer``. ``form`` gives the format of ``_rest``."""
    return TableToFill(writer, form)


class TableToFill:
    """A table that is filled partition by partition."""

    def __init__(self, writer: TableWriter, form: Callable[[Contract], RestForm]) -> None:
        self._writer = writer
        self._form = form
        self._partitions = self._with_rest()
        self._parts = len(self._partitions)
        self._rows = 0

    def status(self) -> Status:
        """The progress. ``records`` counts the filled rows."""
        state = RUNNING if self._partitions else DONE
        return Status("", state, self._parts, self._parts - len(self._partitions), self._rows)

    def commit_next(self) -> None:
        """Fill the next partition."""
        rows = self._live_rows().where(is_in(self._partitions[0]))
        self._rows += self._writer.rewrite(filled(rows, self._writer.contract, self._form))
        self._partitions = self._partitions[1:]

    def _with_rest(self) -> list[dict[str, Any]]:
        """The partitions that have rows with a ``_rest``, by the values of their columns."""
        names = self._writer.contract.partitions
        if not self._writer.has_rows:
            return []
        return [row.asDict() for row in self._live_rows().select(*names).distinct().collect()] if names else [{}]

    def _live_rows(self) -> DataFrame:
        return self._writer.read().where("_rest IS NOT NULL AND NOT _deleted")


def filled(rows: DataFrame, contract: Contract, form: Callable[[Contract], RestForm]) -> DataFrame:
    """The rows that gain a value from their ``_rest``, in the columns of ``columns_tagged``."""
    names = [column.name for column in contract.columns]
    fields = ", ".join(f"`{column.name}`: {column.type.ddl()}" for column in contract.columns)
    fillers: list[Filler] = []

    # Runs on the executors, for each row.
    def fill(rest: str, unfit: list[str] | None, op: str, absent: list[str | None]) -> Any:
        if not fillers:
            fillers.append(Filler(contract, form(contract)))
        try:
            row = RowRest(rest, unfit or [], op, [name for name in absent if name is not None])
            new = fillers[0].fill(row)
        except DEFECTS:
            return None
        if new is None:
            return None
        return (sorted(new.values), tuple(new.values.get(name) for name in names), new.rest, new.unfit)

    # Compute the new values of each row, and keep the rows that gain some.
    schema = f"names: array<string>, new: struct<{fields}>, rest: string, unfit: array<string>"
    absent = F.array(*[F.when(_is_absent(contract, name), F.lit(name)) for name in names])
    by_rest = F.udf(fill, f"struct<{schema}>")(F.col("_rest"), F.col("_unfit"), F.col("_op"), absent)
    with_new = rows.withColumn("_new", by_rest).where("_new IS NOT NULL")

    # Takes the new value of a filled column, and the stored value of any other.
    def column(name: str, type_: str) -> SparkColumn:
        if name in ("_left_out", "_floor", "_reason", "_raw"):
            return F.lit(None).cast(type_)
        if name in ("_rest", "_unfit"):
            return F.col(f"_new.{name[1:]}")
        if name not in names:
            return F.col(name)
        is_new = F.array_contains("_new.names", name)
        return F.when(is_new, F.col(f"_new.new.`{name}`")).otherwise(F.col(name))

    return with_new.select([column(name, type_).alias(name) for name, type_ in columns_tagged(contract)])


def _is_absent(contract: Contract, name: str) -> SparkColumn:
    is_null = F.col(name).isNull()
    absent = contract.column(name).absent
    return is_null if absent is None else is_null | (F.col(name) == absent)

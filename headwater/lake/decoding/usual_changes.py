"""The fast path for PostgreSQL's changes: the JVM's ``DebeziumDecoder``, and the plan that it needs.

It is many times as fast as ``debezium_decoder``, the reference decoder, and gives the same rows. It leaves unusual
records to the reference decoder.

The plan of a contract says which source column goes to which positions of a row, by which conversion of
``exact_values``. The JVM leaves each record with a value whose conversion is ``other``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import DROP, Column, Contract
from headwater.contract.types import SourceType, Type
from headwater.lake.base.jvm_classes import java_class, struct_type
from headwater.lake.decoding.changes import Identity, own_columns_plan
from headwater.lake.decoding.debezium_decoder import PostgresDecoder, decode_lines, is_inside
from headwater.lake.decoding.decoded_frame import decoded_frame, tagged_ddl
from headwater.lake.decoding.exact_values import (
    DAY_MICROS,
    EPOCH_DAY,
    FIRST_DAY,
    FIRST_UNSHIFTED,
    LAST_DAY,
    MILLI_DIGITS,
)
from headwater.lake.decoding.transformed_values import transforming_plan

_Plan = dict[str, Any]

_OTHER: _Plan = {"kind": "other"}
_AS_THEY_ARE = frozenset({"int", "bigint", "float", "double", "boolean", "string", "binary"})


class StoredObject(NamedTuple):
    """An object to read."""

    name: str
    """``topic/partition``, with which the rows' positions begin."""
    uri: str
    """The object's address, ``s3://bucket/key``."""


class UsualChanges:
    """Decodes a contract's topic by the fast path, and by the reference decoder for records that the fast path leaves.

    - ``epoch``: the epoch of records without its header.
    - ``purged``: the latest order of a purged tombstone. Rows with an older order also have their record, for the
      quarantine.
    """

    def __init__(self, spark: SparkSession, contract: Contract, epoch: int, purged: str) -> None:
        self._spark = spark
        self._contract = contract
        self._epoch = epoch
        self._purged = purged
        self.decoder = java_class(spark, "io.headwater.debezium.DebeziumDecoder")(plan(contract, epoch, purged))
        """Java's ``DebeziumDecoder``."""

    def frame(self, objects: Iterable[StoredObject], parallelism: int) -> DataFrame:
        """Read and decode landing objects in at most ``parallelism`` tasks. Gives the columns of ``columns_tagged``.

        Records for ``careful_frame`` are among the rows.
        """
        return self._frame(self.decoder.decode, objects, parallelism)

    def images_frame(self, files: Iterable[StoredObject], parallelism: int, head: str, tail: str) -> DataFrame:
        """Read and decode the data files of a copy, as ``frame`` does with landing objects.

        Each line is the image of a row. The decoder puts it between ``head`` and ``tail`` to get the event of a
        snapshot.
        """
        return self._frame(self.decoder.decodeImages, files, parallelism, head, tail, self._epoch)

    def _frame(
        self, decode: Callable[..., Any], objects: Iterable[StoredObject], parallelism: int, *more: Any
    ) -> DataFrame:
        type_ = struct_type(self._spark, tagged_ddl(self._contract))
        # One text is faster than a list, because each element of a list costs a call to Java.
        listed = json.dumps(list(objects))
        return DataFrame(decode(self._spark._jsparkSession, listed, parallelism, type_, *more), self._spark)

    def careful_frame(self, left: DataFrame) -> DataFrame:
        """Decode the records that the fast path has left, by the reference decoder."""
        contract, epoch, purged = self._contract, self._epoch, self._purged

        def decode(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
            lines = (_line(row["_raw"]) for row in rows)
            return decode_lines(lines, PostgresDecoder(contract, epoch), purged)

        return decoded_frame(self._spark, contract, left.select("_raw").rdd.mapPartitions(decode))

    def careful_rows(self, left: Iterable[str]) -> list[tuple[Any, ...]]:
        """Decode the records that the fast path has left, in the driver."""
        decoder = PostgresDecoder(self._contract, self._epoch)
        return list(decode_lines(map(_line, left), decoder, self._purged))


def _line(raw: str) -> tuple[str, str]:
    """``topic/partition`` and line of a record that the fast path has left."""
    source, _, line = raw.partition(" ")
    return source, line


def plan(contract: Contract, epoch: int, purged: str) -> str:
    """The JVM's plan of a contract, as JSON."""
    whole = [(at, column) for at, column in enumerate(contract.columns) if not is_inside(column)]
    documents: dict[str, list[tuple[int, Column]]] = {}
    for at, column in enumerate(contract.columns):
        if is_inside(column):
            documents.setdefault(column.path[0], []).append((at, column))
    return json.dumps(
        {
            "schema": contract.source.schema,
            "table": contract.source.name,
            "epoch": epoch,
            "drops": contract.unnamed == DROP,
            **own_columns_plan(contract, purged),
            "masked": {name.lower(): mask.how is not None for mask in contract.masks for name in mask.path},
            "excluded": [name for (name,) in contract.exclude],
            "columns": [{"at": at, "source": column.path[0], "convert": _whole(column)} for at, column in whole],
            "documents": {source: _document(inside, 1) for source, inside in documents.items()},
            "places": _places(contract),
        }
    )


def _places(contract: Contract) -> list[_Plan]:
    """The plans of the columns that decide a row's location."""
    identity = Identity(contract)
    columns = [(at, contract.columns[at]) for at in identity.kept_at]
    return [
        {
            "at": at,
            "source": column.path[0],
            "convert": _whole(column),
            "key": at in identity.key_at,
            "partition": at in identity.partition_at,
        }
        for at, column in columns
    ]


def _whole(column: Column) -> _Plan:
    """The plan of a whole source column's conversion, as ``column_converter`` does it.

    Some dates do not fit in a snapshot's rows. The JVM leaves such dates to the reference decoder in every change.
    """
    if column.transform is not None:
        return transforming_plan(_whole(column.before_transform()), column.transform)
    source = SourceType.parse(column.source_type or "")
    if source.array:
        element = column.type.element
        return _OTHER if element is None else {"kind": "array", "element": _of_source(source, element)}
    return _of_source(source, column.type)


def _of_source(source: SourceType, target: Type) -> _Plan:
    base = source.base
    first = FIRST_UNSHIFTED.toordinal() - EPOCH_DAY
    if base in ("smallint", "integer", "bigint") and target.kind == "string":
        return {"kind": "integer text"}
    if base == "numeric" and target.kind == "string":
        return {"kind": "numeric text"}
    if base == "time without time zone":
        return {"kind": "time text"}
    if base == "timestamp with time zone":
        kind = "instant text" if target.kind == "string" else "instant"
        return {"kind": kind, "lowest": first * DAY_MICROS, "highest": (LAST_DAY + 1) * DAY_MICROS - 1}
    if base in ("date", "timestamp without time zone"):
        text = " text" if target.kind == "string" else ""
        if base == "date":
            return {"kind": f"days{text}", "lowest": first, "highest": LAST_DAY}
        unit = 1000 if source.precision is not None and source.precision <= MILLI_DIGITS else 1
        highest = (LAST_DAY + 1) * DAY_MICROS // unit - 1
        lowest = first * DAY_MICROS // unit
        return {"kind": f"moment{text}", "unit": unit, "lowest": lowest, "highest": highest}
    return _scalar(target, numbers=False)


def _scalar(target: Type, *, numbers: bool) -> _Plan:
    """The plan of ``scalar_converter``. ``numbers``: whether decimals may be JSON numbers with a point."""
    if target.kind == "decimal":
        return {"kind": "decimal", "precision": target.precision, "scale": target.scale, "numbers": numbers}
    return {"kind": target.kind} if target.kind in _AS_THEY_ARE else _OTHER


def _in_json(target: Type) -> _Plan:
    """The plan of ``json_converter``."""
    if target.kind == "struct":
        return {"kind": "struct", "fields": [[name, _in_json(field)] for name, field in target.fields]}
    if target.kind == "array" and target.element is not None:
        return {"kind": "array", "element": _in_json(target.element)}
    if target.kind == "double":
        return {"kind": "exact double"}
    if target.kind == "date":
        return {"kind": "date"}
    if target.kind == "timestamp":
        return {"kind": "instant", "lowest": FIRST_DAY * DAY_MICROS, "highest": (LAST_DAY + 1) * DAY_MICROS - 1}
    return _scalar(target, numbers=True)


def _document(columns: Sequence[tuple[int, Column]], depth: int) -> Mapping[str, Any]:
    """The plan of the columns that take a value of a document, or members of it.

    ``depth`` is the number of names in the value's path.
    """
    ((first_at, first), *more) = columns
    if len(first.path) == depth and not more:
        return {"at": first_at, "convert": _in_json(first.type)}
    if any(len(column.path) == depth for _, column in columns):
        # Several columns take the same value: only the reference decoder finds the parts that no column takes.
        return {"at": first_at, "convert": _OTHER}
    members: dict[str, list[tuple[int, Column]]] = {}
    for at, column in columns:
        members.setdefault(column.path[depth], []).append((at, column))
    return {"members": {name: _document(inside, depth + 1) for name, inside in members.items()}}

"""Usual changes of a DynamoDB table's items are decoded by the JVM (``DynamoDecoder``), many times as fast as
``dynamodb_decoder`` does it, which says what is right and decodes what the JVM leaves to it.

The JVM knows a contract by a plan: which attribute goes to which places of a row, by which tag and which conversion, as
``dynamodb_values`` has them. A conversion that the plan calls ``other`` leaves each record with such a value, and where
the contract masks values, or excludes what is within one, all records are left.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import DROP, UNKNOWN_MONTH, Column, Contract
from headwater.contract.types import Type
from headwater.lake.changes import Identity, columns_tagged
from headwater.lake.decoded_frame import decoded_frame, tagged_ddl
from headwater.lake.dynamodb_decoder import kept_decoder
from headwater.lake.dynamodb_values import DOCUMENTS, TAGS_INSIDE
from headwater.lake.exact_values import DAY_MICROS, FIRST_DAY, LAST_DAY, dotted

_Plan = dict[str, Any]

_OTHER: _Plan = {"kind": "other"}
_LENGTHS = struct.Struct(">iii").pack

StreamedRecord = tuple[bytes | None, str | None, str]
"""A record of a stream: its data, its sequence number, and its position."""


class UsualItems:
    """The JVM's decoder of a contract's stream, whose DynamoDB table is called ``table``. ``epoch`` is that of the
    records; what is older than ``purged`` takes along what quarantine keeps of it."""

    def __init__(
        self,
        spark: SparkSession,
        contract: Contract,
        epoch: int,
        purged: str,
        table: str,
        mask_key: bytes | None,
    ) -> None:
        self._spark = spark
        self._contract = contract
        self._careful = (contract, table, mask_key, epoch, purged)
        jvm: Any = spark.sparkContext._jvm
        self._decoder = jvm.io.headwater.dynamodb.DynamoDecoder(plan(contract, epoch, purged, table))
        self._type = jvm.org.apache.spark.sql.types.StructType.fromDDL(tagged_ddl(contract))

    def held(self, records: Iterable[StreamedRecord]) -> Any:
        """Java's ``DecodedRows`` of records; what is left to ``careful_rows`` is among them."""
        with self._stored(records) as path:
            return self._decoder.decode(path)

    def spread(self, records: Iterable[StreamedRecord], parts: int) -> DataFrame:
        """Records in the columns of ``columns_tagged``, spread over so many parts; what is left to ``careful_frame`` is
        among them."""
        with self._stored(records) as path:
            return self._frame(self._decoder.decode(self._spark._jsparkSession, path, parts, self._type))

    def frame(self, records: DataFrame) -> DataFrame:
        """As ``spread``, of records that Spark has: data as bytes, sequence number and position."""
        return self._frame(self._decoder.decode(self._spark._jsparkSession, records._jdf, self._type))

    def careful_frame(self, left: DataFrame) -> DataFrame:
        """What ``dynamodb_decoder`` makes of the rows that are left to it."""
        careful = self._careful

        def decode(rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
            return _carefully((row["_raw"] for row in rows), *careful)

        return decoded_frame(self._spark, self._contract, left.select("_raw").rdd.mapPartitions(decode))

    def careful_rows(self, left: Iterable[str]) -> list[tuple[Any, ...]]:
        """As ``careful_frame``, in the driver."""
        return list(_carefully(left, *self._careful))

    def _frame(self, frame: Any) -> DataFrame:
        return DataFrame(frame, self._spark)

    @contextmanager
    def _stored(self, records: Iterable[StreamedRecord]) -> Iterator[str]:
        """Records in a file, which the JVM reads many times as fast as arguments."""
        folder: Any = self._spark.sparkContext._temp_dir
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                file.write(written(records))
                file.close()
                yield file.name
            finally:
                Path(file.name).unlink()


def written(records: Iterable[StreamedRecord]) -> bytes:
    """Records as Java's ``StreamRecord`` reads them: of each the lengths of its data, its sequence number and its
    position, -1 for None, then the three."""
    parts: list[bytes] = []
    for data, sequence, position in records:
        number, where = (sequence or "").encode(), position.encode()
        parts += (
            _LENGTHS(-1 if data is None else len(data), -1 if sequence is None else len(number), len(where)),
            data or b"",
            number,
            where,
        )
    return b"".join(parts)


def _carefully(
    left: Iterable[str], contract: Contract, table: str, mask_key: bytes | None, epoch: int, purged: str
) -> Iterator[tuple[Any, ...]]:
    decode = kept_decoder(contract, table, mask_key, epoch, purged)
    for raw in left:
        yield from decode(json.loads(raw), "")


def plan(contract: Contract, epoch: int, purged: str, table: str) -> str:
    """What the JVM knows of a contract, as JSON."""
    names = [name for name, _ in contract.lake_columns()]
    identity = Identity(contract)
    columns = list(enumerate(contract.columns))
    attributes = _by_name(columns, 0)
    # A number in a key or a partition that becomes text is written in one way.
    plain = frozenset(identity.kept_at)
    places = [(at, contract.columns[at]) for at in identity.kept_at]
    return json.dumps(
        {
            "table": table,
            "epoch": epoch,
            "purged": purged,
            "usual": not contract.masks and all(len(path) == 1 for path in contract.exclude),
            "drops": contract.unnamed == DROP,
            "first_own": names.index("_key"),
            "width": len(columns_tagged(contract)),
            "absent": [{"at": at, "text": UNKNOWN_MONTH} for at, column in columns if column.transform == "month"],
            "excluded": [path[0] for path in contract.exclude],
            "attributes": {name: _attribute(inside, (name,), plain) for name, inside in attributes.items()},
            "reserved": [f"{name}." for name, inside in attributes.items() if _has_parts(inside)],
            "places": [
                {
                    "at": at,
                    "attribute": column.path[0],
                    "tag": column.source_type,
                    "convert": _conversion(column, plain=True),
                    "key": at in identity.key_at,
                    "partition": at in identity.partition_at,
                }
                for at, column in places
            ],
            "key": [{"at": at, "kind": contract.columns[at].type.kind} for at in identity.key_at],
        }
    )


def _by_name(columns: Sequence[tuple[int, Column]], depth: int) -> dict[str, list[tuple[int, Column]]]:
    found: dict[str, list[tuple[int, Column]]] = {}
    for at, column in columns:
        found.setdefault(column.path[depth], []).append((at, column))
    return found


def _has_parts(columns: Sequence[tuple[int, Column]]) -> bool:
    """Whether names within an attribute can stand in ``_rest``: paths lead into it, or a type names parts of it."""
    return any(len(column.path) > 1 or _is_in_parts(column) for _, column in columns)


def _is_in_parts(column: Column) -> bool:
    element = column.type.element
    return column.type.kind == "struct" or (element is not None and element.kind in ("struct", "array"))


def _attribute(columns: Sequence[tuple[int, Column]], path: tuple[str, ...], plain: Container[int]) -> _Plan:
    """What columns take of the attribute at a path: all of it, or members. Those at ``plain`` places are identity's."""
    ending = [(at, column) for at, column in columns if column.path == path]
    leading = [(at, column) for at, column in columns if column.path != path]
    converts = [_conversion(column, plain=at in plain) for at, column in ending]
    if ending and (leading or (len(ending) > 1 and any(_is_read_once(column) for _, column in ending))):
        # What several columns together take of it, and what they leave, is not easy to tell.
        converts, leading = [_OTHER] * len(ending), []
    members = _by_name(leading, len(path))
    return {
        "opening": f"{encode_basestring(dotted(path))}:",
        "path": dotted(path),
        "in_parts": any(_is_in_parts(column) for _, column in ending),
        "columns": [
            {"at": at, "tag": column.source_type, "convert": convert}
            for (at, column), convert in zip(ending, converts, strict=True)
        ],
        "members": {name: _attribute(inside, (*path, name), plain) for name, inside in members.items()},
    }


def _is_read_once(column: Column) -> bool:
    return (column.source_type or "") not in ("S", "N", "B", "BOOL")


def _conversion(column: Column, *, plain: bool) -> _Plan:
    """As ``AttributeColumn`` has it."""
    tag = column.source_type or ""
    if column.transform == "month":
        return {"kind": "month"}
    if column.type.kind == "string" and tag in DOCUMENTS:
        return {"kind": "document", "tag": tag}
    return _typed(tag, column.type, plain=plain)


def _typed(tag: str, type_: Type, *, plain: bool = False) -> _Plan:
    """The conversion of what stands beside a tag."""
    if type_.kind == "struct":
        fields = [
            {"name": name, "tag": TAGS_INSIDE[field.kind], "convert": _typed(TAGS_INSIDE[field.kind], field)}
            for name, field in type_.fields
        ]
        return {"kind": "struct", "fields": fields}
    element = type_.element
    if element is not None:
        if tag != "L":
            return {"kind": "set", "element": _scalar(tag[0], element, plain=plain)}
        inside = TAGS_INSIDE[element.kind]
        in_parts = element.kind in ("struct", "array")
        return {"kind": "list", "tag": inside, "element": _typed(inside, element), "in_parts": in_parts}
    return _scalar(tag, type_, plain=plain)


def _scalar(tag: str, type_: Type, *, plain: bool) -> _Plan:
    kind = type_.kind
    if tag == "N" and kind == "string":
        return {"kind": "plain number text" if plain else "number text"}
    if kind == "decimal":
        return {"kind": "decimal", "precision": type_.precision, "scale": type_.scale}
    if kind == "timestamp":
        return {"kind": "instant", "lowest": FIRST_DAY * DAY_MICROS, "highest": (LAST_DAY + 1) * DAY_MICROS - 1}
    return {"kind": kind} if kind in ("int", "bigint", "string", "binary", "boolean", "date") else _OTHER

"""The fast path for DynamoDB's changes: the JVM's ``DynamoDecoder``, and the plan that it needs.

It is many times as fast as ``dynamodb_decoder``, the reference decoder, and gives the same rows. It leaves unusual
records to the reference decoder. If the contract masks values, or excludes values inside attributes, the reference
decoder decodes all records.

The plan of a contract says which attribute goes to which positions of a row, by which type tag and which conversion of
``dynamodb_values``. The JVM leaves each record with a value whose conversion is ``other``.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from headwater.contract.model import DROP, Column, Contract
from headwater.contract.types import Type
from headwater.lake.base.jvm_classes import java_class, struct_type
from headwater.lake.decoding.batches import HeldBatch
from headwater.lake.decoding.changes import Identity, own_columns_plan
from headwater.lake.decoding.decoded_frame import decoded_frame, tagged_ddl
from headwater.lake.decoding.dynamodb_decoder import DynamoDecoder, decode_records
from headwater.lake.decoding.dynamodb_values import DOCUMENTS, TAGS_INSIDE
from headwater.lake.decoding.exact_values import DAY_MICROS, FIRST_DAY, LAST_DAY, dotted
from headwater.lake.decoding.transformed_values import transforming_plan

_Plan = dict[str, Any]

_OTHER: _Plan = {"kind": "other"}
_LENGTHS = struct.Struct(">iii").pack

StreamedRecord = tuple[bytes | None, str | None, str]
"""A record of a stream: its data, its sequence number, and its position."""
_STORED = "data binary, sequence string, position string"


class UsualItems:
    """Decodes a contract's stream by the fast path, and by the reference decoder for records that the fast path leaves.

    - ``epoch``: the epoch of the records.
    - ``purged``: the latest order of a purged tombstone. Rows with an older order also have their record, for the
      quarantine.
    - ``table``: the DynamoDB table's name.
    - ``mask_key``: the key of masks by HMAC.
    """

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
        self._careful: Any = (contract, epoch, table, mask_key, purged)
        self._is_usual = not contract.masks and not contract.hidden_inside
        self._decoder = java_class(spark, "io.headwater.dynamodb.DynamoDecoder")(plan(contract, epoch, purged, table))
        self._type = struct_type(spark, tagged_ddl(contract))

    def hold(self, records: Sequence[StreamedRecord], held: HeldBatch) -> None:
        """Decode records in the driver, and add their rows to a driver batch."""
        if not self._is_usual:
            held.add(_carefully(records, *self._careful))
            return
        with self._stored(records) as path:
            held.add_all(self._decoder.decode(path))
        left = held.take_left()
        if left:
            held.add(_carefully(map(_record, left), *self._careful))

    def frame(self, records: RDD[StreamedRecord]) -> DataFrame:
        """Decode records on the executors. Gives the columns of ``columns_tagged``.

        Records for ``careful_frame`` are among the rows.
        """
        if not self._is_usual:
            return self._carefully_decoded(records)
        stored = self._spark.createDataFrame(records, _STORED, verifySchema=False)
        return DataFrame(self._decoder.decode(self._spark._jsparkSession, stored._jdf, self._type), self._spark)

    def careful_frame(self, left: DataFrame) -> DataFrame:
        """Decode the records that the fast path has left, by the reference decoder."""
        return self._carefully_decoded(left.select("_raw").rdd.map(lambda row: _record(row["_raw"])))

    def _carefully_decoded(self, records: RDD[StreamedRecord]) -> DataFrame:
        careful = self._careful
        rows = records.mapPartitions(lambda part: _carefully(part, *careful))
        return decoded_frame(self._spark, self._contract, rows)

    @contextmanager
    def _stored(self, records: Iterable[StreamedRecord]) -> Iterator[str]:
        """Write records to a file, which the JVM reads many times as fast as arguments. Yields the file's path."""
        folder: Any = self._spark.sparkContext._temp_dir
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                file.writelines(written(records))
                file.close()
                yield file.name
            finally:
                Path(file.name).unlink()


def written(records: Iterable[StreamedRecord]) -> Iterator[bytes]:
    """Records in the format that Java's ``StreamRecord`` reads.

    Each record begins with the lengths of its data, its sequence number and its position (-1 for None). Then these
    three values follow.
    """
    for data, sequence, position in records:
        number, where = (sequence or "").encode(), position.encode()
        lengths = (-1 if data is None else len(data), -1 if sequence is None else len(number), len(where))
        yield b"".join((_LENGTHS(*lengths), data or b"", number, where))


def _record(raw: str) -> StreamedRecord:
    """The stream's record from a record that the fast path has left."""
    kept = json.loads(raw)
    data: bytes | None = None
    if "data_base64" in kept:
        data = base64.b64decode(kept["data_base64"])
    elif kept["data"] is not None:
        data = kept["data"].encode()
    return data, kept["sequence"], kept["position"]


def _carefully(
    records: Iterable[StreamedRecord],
    contract: Contract,
    epoch: int,
    table: str,
    mask_key: bytes | None,
    purged: str,
) -> Iterator[tuple[Any, ...]]:
    return decode_records(iter(records), DynamoDecoder(contract, epoch, table, mask_key), purged)


def plan(contract: Contract, epoch: int, purged: str, table: str) -> str:
    """The JVM's plan of a contract, as JSON."""
    identity = Identity(contract)
    columns = list(enumerate(contract.columns))
    attributes = _by_name(columns, 0)
    # In keys and partitions, equal numbers must become equal texts.
    plain = frozenset(identity.kept_at)
    places = [(at, contract.columns[at]) for at in identity.kept_at]
    return json.dumps(
        {
            "table": table,
            "epoch": epoch,
            "drops": contract.unnamed == DROP,
            **own_columns_plan(contract, purged),
            "absent": [{"at": at, "text": column.absent} for at, column in columns if column.absent is not None],
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
        }
    )


def _by_name(columns: Sequence[tuple[int, Column]], depth: int) -> dict[str, list[tuple[int, Column]]]:
    found: dict[str, list[tuple[int, Column]]] = {}
    for at, column in columns:
        found.setdefault(column.path[depth], []).append((at, column))
    return found


def _has_parts(columns: Sequence[tuple[int, Column]]) -> bool:
    """Whether ``_rest`` can have paths into an attribute: a column's path leads into it, or its type has parts."""
    return any(len(column.path) > 1 or _is_in_parts(column) for _, column in columns)


def _is_in_parts(column: Column) -> bool:
    element = column.type.element
    return column.type.kind == "struct" or (element is not None and element.kind in ("struct", "array"))


def _attribute(columns: Sequence[tuple[int, Column]], path: tuple[str, ...], plain: Container[int]) -> _Plan:
    """The plan of the columns that take the attribute at a path, or members of it.

    ``plain``: the positions of the columns of the key and of the partition.
    """
    ending = [(at, column) for at, column in columns if column.path == path]
    leading = [(at, column) for at, column in columns if column.path != path]
    converts = [_conversion(column, plain=at in plain) for at, column in ending]
    if ending and (leading or (len(ending) > 1 and not all(_is_scalar(column) for _, column in ending))):
        # Several columns share the value: only the reference decoder finds the parts that no column takes.
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


def _is_scalar(column: Column) -> bool:
    return column.source_type in ("S", "N", "B", "BOOL")


def _conversion(column: Column, *, plain: bool) -> _Plan:
    """The plan of a column's conversion, as ``AttributeColumn`` does it."""
    tag = column.source_type or ""
    if column.transform is not None:
        # Equal numbers must become equal texts, so that they have the same bucket.
        before = _typed(tag, column.before_transform().type, plain=True)
        return transforming_plan(before, column.transform)
    if column.type.kind == "string" and tag in DOCUMENTS:
        return {"kind": "document", "tag": tag}
    return _typed(tag, column.type, plain=plain)


def _typed(tag: str, type_: Type, *, plain: bool = False) -> _Plan:
    """The plan of converting the value behind a type tag."""
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

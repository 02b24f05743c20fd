"""Contracts: the one description of a lake table, read by CDK, the writers and ``headwater verify``.

This module runs on EMR and Glue as well, so it needs the standard library only (Python 3.9 and later); PyYAML is
imported when a YAML file is read, which happens on the laptop. The cluster reads the same contract as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import UserError

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_SCALARS = ("int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp")
_MAX_DECIMAL_PRECISION = 38  # Spark's and Hive's limit

POSTGRESQL = "postgresql"
DYNAMODB = "dynamodb"
UNKNOWN_MONTH = "unknown"
"""What ``transform: month`` gives for an item without the attribute."""

_PARTITION_KINDS = ("int", "bigint", "string", "date")
_KEY_KINDS = {POSTGRESQL: _PARTITION_KINDS, DYNAMODB: (*_PARTITION_KINDS, "decimal", "binary")}
_SOURCE_TABLES = {
    POSTGRESQL: (re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\Z"), "schema.table"),
    DYNAMODB: (re.compile(r"[a-zA-Z0-9_.-]{3,255}\Z"), "a DynamoDB table's name"),
}


@dataclass(frozen=True)
class Type:
    """A lake type: a scalar kind, ``decimal``, ``array`` or ``struct``."""

    kind: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()

    def ddl(self) -> str:
        """The type as Spark's ``simpleString``, e.g. ``array<struct<a:int>>``."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "array" and self.element is not None:
            return f"array<{self.element.ddl()}>"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{field.ddl()}" for name, field in self.fields) + ">"
        return self.kind

    def glue(self) -> str:
        """The type as the Glue Data Catalog spells it; Hive's names are Spark's for all that a contract may hold."""
        return self.ddl()


class _TypeParser:
    """Recursive descent over a DDL type string."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = re.findall(r"[a-z0-9_]+|[<>(),:]|\S", text.lower())
        self._at = 0

    def parse(self) -> Type:
        parsed = self._type()
        if self._at != len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at]!r} in type {self._text!r}")
        return parsed

    def _next(self, expected: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise ValueError(f"type {self._text!r} ends too early")
        token = self._tokens[self._at]
        if expected is not None and token != expected:
            raise ValueError(f"expected {expected!r} but found {token!r} in type {self._text!r}")
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _type(self) -> Type:
        kind = self._next()
        if kind in _SCALARS:
            return Type(kind)
        if kind == "decimal":
            self._next("(")
            precision = self._number()
            self._next(",")
            scale = self._number()
            self._next(")")
            if not (1 <= precision <= _MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
                raise ValueError(f"decimal({precision},{scale}) is outside decimal(1..38, 0..precision)")
            return Type("decimal", precision=precision, scale=scale)
        if kind == "array":
            self._next("<")
            element = self._type()
            self._next(">")
            return Type("array", element=element)
        if kind == "struct":
            self._next("<")
            fields: list[tuple[str, Type]] = []
            while True:
                name = self._next()
                if not _NAME.match(name):
                    raise ValueError(f"field name {name!r} is not lower-case letters, digits and _")
                if any(name == other for other, _ in fields):
                    raise ValueError(f"field {name!r} appears twice")
                self._next(":")
                fields.append((name, self._type()))
                if self._peek() != ",":
                    break
                self._next(",")
            self._next(">")
            return Type("struct", fields=tuple(fields))
        raise ValueError(
            f"unknown type {kind!r} in {self._text!r}; known: {', '.join(_SCALARS)}, decimal(p,s), array<>, struct<>"
        )

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise ValueError(f"expected a number but found {token!r} in type {self._text!r}")
        return int(token)


def parse_type(text: str) -> Type:
    """Parse a Spark DDL type. Raises ValueError that says what was found."""
    return _TypeParser(text).parse()


_TIME_TYPES = re.compile(r"(time|timestamp)( ?\(\d\))?( (with|without) time zone)?\Z|timestamptz\Z|timetz\Z")
_RANGES = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
_ARRAY_ELEMENTS = (
    "smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "character", "character varying",
    "text", "uuid", "date", "timestamp with time zone",
)  # fmt: skip
_TEXT_ONLY = ("interval", "uuid", "enum", "character", "character varying", "text", *_RANGES)
_SYNONYMS = {
    "int2": "smallint", "int": "integer", "int4": "integer", "int8": "bigint", "bool": "boolean",
    "float4": "real", "float8": "double precision", "double": "double precision", "decimal": "numeric",
    "varchar": "character varying", "char": "character", "bpchar": "character",
    "timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone",
    "time": "time without time zone", "timetz": "time with time zone",
}  # fmt: skip


@dataclass(frozen=True)
class SourceType:
    """A PostgreSQL type: its base name without length, precision and scale of a numeric that has them, and the digits
    after the second of a timestamp that tells them as its precision."""

    base: str
    precision: int | None = None
    scale: int | None = None
    array: bool = False

    @staticmethod
    def parse(text: str) -> SourceType:
        """Parse a name as PostgreSQL's ``format_type`` prints it, or its usual synonym."""
        name = " ".join(text.lower().split())
        array = name.endswith("[]")
        name = name[:-2].strip() if array else name
        arguments = re.search(r" ?\(([\d, ]+)\)", name)
        base = name[: arguments.start()] + name[arguments.end() :] if arguments else name
        base = _SYNONYMS.get(base, base)
        if arguments and base.startswith("timestamp"):
            return SourceType(base, int(arguments.group(1)), None, array)
        if base == "numeric" and arguments:
            numbers = [int(number) for number in arguments.group(1).split(",")]
            return SourceType(base, numbers[0], numbers[1] if len(numbers) > 1 else 0, array)
        return SourceType(base, None, None, array)


def check_conversion(source_type: str, target: Type) -> str | None:
    """Why ``source_type`` cannot reach ``target`` with its exact value, or None where it can.

    Only conversions that keep every value are allowed; a single value that has no counterpart in the target (NaN or
    an infinity in a decimal or a date) is quarantined when it arrives.
    """
    source = SourceType.parse(source_type)
    if source.array:
        if source.base not in _ARRAY_ELEMENTS:
            return f"arrays of {source.base} are not supported"
        if target.kind != "array" or target.element is None:
            return f"{source_type} needs an array type"
        element = SourceType(source.base, source.precision, source.scale)
        return _check_scalar(element, source_type, target.element)
    return _check_scalar(source, source_type, target)


def _check_scalar(source: SourceType, text: str, target: Type) -> str | None:
    allowed: tuple[str, ...]
    if source.base == "numeric":
        if target.kind == "string":
            return None
        if source.precision is None or source.scale is None:
            return "numeric without precision and scale has no exact decimal: use string"
        if target.kind != "decimal":
            return f"{text} needs decimal or string"
        if target.scale < source.scale or target.precision - target.scale < source.precision - source.scale:
            return f"{text} does not fit {target.ddl()}"
        return None
    if source.base in ("json", "jsonb"):
        return None if target.kind in ("string", "struct", "array") else f"{text} needs string, struct or array"
    if source.base in _TEXT_ONLY:
        allowed = ("string",)
    elif source.base == "time with time zone":
        # Debezium brings it to UTC and loses its offset.
        return f"PostgreSQL type {text!r} does not arrive as it was"
    elif _TIME_TYPES.match(source.base):
        allowed = ("string",) if source.base.startswith("time ") else ("timestamp", "string")
    else:
        exact: dict[str, tuple[str, ...]] = {
            "smallint": ("int", "bigint", "string"),
            "integer": ("int", "bigint", "string"),
            "bigint": ("bigint", "string"),
            "real": ("float",),
            "double precision": ("double",),
            "boolean": ("boolean",),
            "date": ("date", "string"),
            "bytea": ("binary",),
        }
        if source.base not in exact:
            return f"PostgreSQL type {text!r} is not supported"
        allowed = exact[source.base]
    return None if target.kind in allowed else f"{text} needs {' or '.join(allowed)}, not {target.ddl()}"


_NUMBERS = ("decimal", "int", "bigint")
_DYNAMODB_TARGETS = {
    "S": ("string", "date", "timestamp"),
    "N": (*_NUMBERS, "string"),
    "B": ("binary",),
    "BOOL": ("boolean",),
    "M": ("struct", "string"),
    "L": ("array", "string"),
    "SS": ("array",),
    "NS": ("array",),
    "BS": ("array",),
}
_DYNAMODB_ELEMENTS = {"SS": ("string",), "NS": (*_NUMBERS, "string"), "BS": ("binary",)}
_DYNAMODB_KEYS = ("S", "N", "B")


def check_dynamodb_conversion(source_type: str, target: Type) -> str | None:
    """Why DynamoDB's ``source_type`` cannot reach ``target`` with its exact value, or None where it can.

    A number that needs more digits than the target has, and a text that is no date, are quarantined when they arrive.
    """
    allowed = _DYNAMODB_TARGETS.get(source_type)
    if allowed is None:
        return f"DynamoDB type {source_type!r} is not supported, expected one of {', '.join(_DYNAMODB_TARGETS)}"
    if target.kind not in allowed:
        return f"{source_type} needs {' or '.join(allowed)}"
    if target.element is not None and source_type in _DYNAMODB_ELEMENTS:
        elements = _DYNAMODB_ELEMENTS[source_type]
        if target.element.kind not in elements:
            return f"{source_type} needs an array of {' or '.join(elements)}"
    if _holds(target, "float") or _holds(target, "double"):
        return "DynamoDB's numbers are decimal: a float or a double does not hold them exactly"
    return None


@dataclass(frozen=True)
class Source:
    """Where a table's changes come from: the kind of database and the table's full name in it."""

    database: str
    table: str

    @property
    def schema(self) -> str:
        """The schema of a PostgreSQL table."""
        return self.table.partition(".")[0]

    @property
    def name(self) -> str:
        """The table's name without its schema."""
        return self.table.rpartition(".")[2]


@dataclass(frozen=True)
class Column:
    """A lake column. ``path`` is (source column,) or (source column, JSON key, …); for DynamoDB (attribute,) or
    (attribute, key of its map, …). ``transform`` is None or ``month``."""

    name: str
    type: Type
    source_type: str | None
    path: tuple[str, ...]
    transform: str | None = None


@dataclass(frozen=True)
class Contract:
    """One lake table. Fields as in the reference, ``docs/reference/contracts.md``."""

    table: str
    description: str
    source: Source
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    buckets: int
    columns: tuple[Column, ...]
    verify_with: str | None = None

    def column(self, name: str) -> Column:
        """The column of that name; raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def lake_columns(self) -> list[tuple[str, Type]]:
        """Name and type of all columns that the writer stores, in order; Hudi's own ``_hoodie_*`` come before them."""
        own = ("_key", "_op", "_order")
        deleted_by = [("_deleted_by", Type("string"))] if self.source.database == DYNAMODB else []
        return [
            *((column.name, column.type) for column in self.columns),
            *((name, Type("string")) for name in own),
            ("_source_ts", Type("timestamp")),
            ("_position", Type("string")),
            ("_deleted", Type("boolean")),
            *deleted_by,
            ("_rest", Type("string")),
        ]

    def to_json(self) -> str:
        """The contract as the JSON that ships to the cluster; ``load`` reads it back to an equal contract."""
        document: dict[str, Any] = {
            "table": self.table,
            "description": self.description,
            "source": {"database": self.source.database, "table": self.source.table},
            "key": list(self.key),
            "partition_by": list(self.partition_by),
            "buckets": self.buckets,
            "columns": [_column_document(column) for column in self.columns],
        }
        if self.verify_with is not None:
            document["verify_with"] = self.verify_with
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _column_document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"name": column.name, "type": column.type.ddl()}
    if column.source_type is not None:
        document["source_type"] = column.source_type
    if column.path != (column.name,):
        dots = any("." in name for name in column.path)
        document["from"] = list(column.path) if dots else ".".join(column.path)
    if column.transform is not None:
        document["transform"] = column.transform
    return document


class _Reader:
    """Reads a mapping field by field and reports file, field, found and expected."""

    def __init__(self, where: str, document: Any, known: tuple[str, ...]) -> None:
        self.where = where
        if not isinstance(document, Mapping):
            raise UserError(f"{where}: found {document!r}, expected a mapping with {', '.join(known)}")
        self._document = document
        for name in document:
            if name not in known:
                raise UserError(f"{where}: unknown field {name!r}, expected one of {', '.join(known)}")

    def fail(self, field: str, expected: str) -> UserError:
        return UserError(f"{self.where}: {field}: found {self._document.get(field)!r}, expected {expected}")

    def text(self, field: str) -> str:
        value = self._document.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(field, "a text")
        return value

    def has(self, field: str) -> bool:
        return field in self._document

    def get(self, field: str) -> Any:
        return self._document.get(field)

    def name(self, field: str) -> str:
        value = self.text(field)
        if not _NAME.match(value):
            raise self.fail(field, "lower-case letters, digits and _, starting with a letter")
        return value

    def names(self, field: str, known: tuple[str, ...]) -> tuple[str, ...]:
        value = self._document.get(field)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(field, "a list of column names")
        if len(set(value)) != len(value) or any(item not in known for item in value):
            raise self.fail(field, f"different names out of: {', '.join(known)}")
        return tuple(value)


def parse(document: Any, where: str) -> Contract:
    """Build a contract from its document; ``where`` names the file in errors. Raises UserError."""
    reader = _Reader(
        where,
        document,
        ("table", "description", "source", "key", "partition_by", "buckets", "columns", "verify_with"),
    )
    source = _Reader(f"{where}: source", reader.get("source"), ("database", "table"))
    database = source.text("database")
    if database not in _SOURCE_TABLES:
        raise source.fail("database", " or ".join(_SOURCE_TABLES))
    pattern, expected = _SOURCE_TABLES[database]
    if not pattern.match(source.text("table")):
        raise source.fail("table", expected)
    if database == DYNAMODB and reader.has("verify_with"):
        raise reader.fail("verify_with", "none: DynamoDB answers no SQL")
    entries = reader.get("columns")
    if not isinstance(entries, list) or not entries:
        raise reader.fail("columns", "a list of columns")
    read_column = _dynamodb_column if database == DYNAMODB else _postgresql_column
    columns = tuple(read_column(entry, f"{where}: columns[{index}]") for index, entry in enumerate(entries))
    names = tuple(column.name for column in columns)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: columns: {name!r} appears twice, expected once")
    key = reader.names("key", names)
    if not key:
        raise reader.fail("key", "at least one column")
    partition_by = reader.names("partition_by", names)
    buckets = reader.get("buckets")
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 1 <= buckets <= 10_000:
        raise reader.fail("buckets", "a number from 1 to 10000")
    contract = Contract(
        table=reader.name("table"),
        description=reader.text("description"),
        source=Source(database, source.text("table")),
        key=key,
        partition_by=partition_by,
        buckets=buckets,
        columns=columns,
        verify_with=reader.text("verify_with") if reader.has("verify_with") else None,
    )
    for field, chosen, kinds in (("key", key, _KEY_KINDS[database]), ("partition_by", partition_by, _PARTITION_KINDS)):
        for name in chosen:
            _check_identity(contract.column(name), kinds, database, f"{where}: {field}: {name}")
    for name in key:
        if contract.column(name).transform is not None:
            raise UserError(f"{where}: key: {name} has a transform, expected the attribute as it is")
    if len(partition_by) > 1:
        raise reader.fail("partition_by", "no column or one")
    return contract


def _check_identity(column: Column, kinds: tuple[str, ...], database: str, where: str) -> None:
    """Refuse a column that cannot be part of a key or a partition. ``where`` names file, field and column."""
    if column.type.kind not in kinds:
        raise UserError(f"{where} is {column.type.kind}, expected {', '.join(kinds)}")
    if database == DYNAMODB and column.source_type not in _DYNAMODB_KEYS:
        raise UserError(f"{where} has source_type {column.source_type}, expected {', '.join(_DYNAMODB_KEYS)}")
    if len(column.path) > 1:
        inside, whole = ("a map", "an attribute") if database == DYNAMODB else ("JSON", "a column")
        raise UserError(f"{where} comes from inside {inside}, expected {whole} of the source")


def _postgresql_column(document: Any, where: str) -> Column:
    reader = _Reader(where, document, ("name", "type", "source_type", "from"))
    name, type_ = reader.name("name"), _column_type(reader)
    path = tuple(reader.text("from").split(".")) if reader.has("from") else (name,)
    if not all(path):
        raise reader.fail("from", "a source column, or a path such as payload.customer")
    in_json = len(path) > 1 or SourceType.parse(str(reader.get("source_type"))).base in ("json", "jsonb")
    if in_json and _holds(type_, "float"):
        raise UserError(f"{where}: type: found a float inside JSON in {type_.ddl()}, expected double or decimal")
    if len(path) > 1:
        if reader.has("source_type"):
            raise UserError(f"{where}: source_type: found {reader.get('source_type')!r}, expected none beside a path")
        return Column(name, type_, None, path)
    source_type = reader.text("source_type")
    problem = check_conversion(source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: type: found {type_.ddl()} from {source_type}, but {problem}")
    return Column(name, type_, source_type, path)


def _dynamodb_column(document: Any, where: str) -> Column:
    reader = _Reader(where, document, ("name", "type", "source_type", "from", "transform"))
    name, type_ = reader.name("name"), _column_type(reader)
    given = reader.get("from") if reader.has("from") else [name]
    path = given.split(".") if isinstance(given, str) else given
    if not isinstance(path, list) or not path or not all(isinstance(part, str) and part for part in path):
        raise reader.fail("from", "an attribute, a path such as address.city, or a list of names that may hold dots")
    source_type = reader.text("source_type")
    problem = check_dynamodb_conversion(source_type, type_)
    if problem is not None:
        raise UserError(f"{where}: type: found {type_.ddl()} from {source_type}, but {problem}")
    transform = None
    if reader.has("transform"):
        transform = reader.text("transform")
        if transform != "month":
            raise reader.fail("transform", "month")
        if (source_type, type_.kind) != ("S", "string"):
            raise reader.fail("transform", f"none on {type_.ddl()} from {source_type}: month makes a string of an S")
    return Column(name, type_, source_type, tuple(path), transform)


def _column_type(reader: _Reader) -> Type:
    try:
        type_ = parse_type(reader.text("type"))
    except ValueError as error:
        raise UserError(f"{reader.where}: type: {error}") from None
    if type_.kind != "timestamp" and _holds(type_, "timestamp"):
        # hudi-rs 0.5 cannot reconcile such a column between a base and a log file.
        raise UserError(f"{reader.where}: type: found a timestamp inside {type_.ddl()}, expected string in its place")
    return type_


def _holds(type_: Type, kind: str) -> bool:
    inner = [field for _, field in type_.fields] + ([type_.element] if type_.element is not None else [])
    return type_.kind == kind or any(_holds(part, kind) for part in inner)


def load(path: Path) -> Contract:
    """Read one contract, YAML or JSON. Raises UserError naming file, field, found and expected."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return loads(text, str(path))


def loads(text: str, where: str) -> Contract:
    """Read one contract from text; ``where`` is the file's name or URI and decides by its ending: YAML or JSON."""
    if where.endswith(".json"):
        try:
            return parse(json.loads(text), where)
        except ValueError as error:
            raise UserError(f"{where}: not JSON: {error}") from None
    from headwater.documents import load_yaml

    return parse(load_yaml(text, where), where)


def load_all(folder: Path) -> list[Contract]:
    """All contracts of a folder by table name. Raises UserError on an empty folder or a table described twice."""
    contracts = sorted(_contracts(folder), key=lambda contract: contract.table)
    if not contracts:
        raise UserError(f"{folder}: found no contract, expected at least one .yaml file")
    for field in ("table", "source"):
        values = [getattr(contract, field) for contract in contracts]
        for value in values:
            if values.count(value) > 1:
                raise UserError(f"{folder}: {field} {value!r} is described by two contracts, expected one")
    return contracts


def of_database(contracts: Iterable[Contract], database: str) -> list[Contract]:
    """Those contracts whose source is a database of that kind (``POSTGRESQL`` or ``DYNAMODB``), in their order."""
    return [contract for contract in contracts if contract.source.database == database]


def _contracts(folder: Path) -> Iterator[Contract]:
    for path in sorted(folder.glob("*.yaml")) + sorted(folder.glob("*.json")):
        contract = load(path)
        if path.stem != contract.table:
            raise UserError(f"{path}: table: found {contract.table!r}, expected the file's name {path.stem!r}")
        yield contract

"""The conversions from source types to lake types that keep every value unchanged."""

from __future__ import annotations

import re

from headwater.contract.model import DYNAMODB
from headwater.contract.transforms import HOUR, Transform
from headwater.contract.types import SourceType, Type

_TIME_TYPES = re.compile(r"(time|timestamp)( ?\(\d\))?( (with|without) time zone)?\Z|timestamptz\Z|timetz\Z")
_RANGES = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
_ARRAY_ELEMENTS = (
    "smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "character", "character varying",
    "text", "uuid", "date", "timestamp with time zone", "json", "jsonb",
)  # fmt: skip
_ADDRESSES = ("inet", "cidr", "macaddr", "macaddr8")
_SERIAL = {"smallserial": "smallint", "serial": "integer", "bigserial": "bigint"}
_SERIAL |= {"serial2": "smallint", "serial4": "integer", "serial8": "bigint"}
_REFUSED = (
    "bit", "bit varying", "varbit", "box", "circle", "hstore", "line", "lseg", "money", "path", "pg_lsn", "point",
    "polygon", "tsquery", "tsvector", "xml",
)  # fmt: skip
"""Types of PostgreSQL and its extension hstore that contracts cannot name."""
_TEXT_ONLY = ("interval", "uuid", "enum", "character", "character varying", "text", *_RANGES, *_ADDRESSES)


def check_conversion(source_type: str, target: Type) -> str | None:
    """Return why values of ``source_type`` cannot reach ``target`` unchanged; None if they can.

    A few values are not counted here, such as NaN or an infinity for a decimal or a date. Such a value is quarantined
    when it arrives.
    """
    source = SourceType.parse(source_type)
    if source.array:
        if source.base not in _ARRAY_ELEMENTS:
            return f"arrays of {source.base} are not supported"
        if target.kind != "array" or target.element is None:
            return f"{source_type} needs an array type"
        if source.base in ("json", "jsonb") and target.element.kind != "string":
            return f"{source_type} needs array<string>"
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
        # Debezium converts it to UTC and loses its offset.
        return f"Debezium does not deliver PostgreSQL type {text!r} unchanged"
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
            return _unsupported(source.base, text)
        allowed = exact[source.base]
    return None if target.kind in allowed else f"{text} needs {' or '.join(allowed)}, not {target.ddl()}"


def _unsupported(base: str, text: str) -> str:
    """Return why a type without a conversion cannot be a source type, and what to write in its place."""
    if base in _SERIAL:
        return f"a column made as {base} has the type {_SERIAL[base]}: write source_type: {_SERIAL[base]}"
    if base == "string":
        return "PostgreSQL has no type 'string': write source_type: text"
    if base in _REFUSED or not re.fullmatch(r"[\w.\"]+", base):
        return f"PostgreSQL type {text!r} is not supported"
    return f"{text!r} is not a type that contracts know: write source_type: enum if it is an enum's name"


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


def check_dynamodb_conversion(source_type: str, target: Type) -> str | None:
    """Return why values of DynamoDB's ``source_type`` cannot reach ``target`` unchanged; None if they can.

    A few values are not counted here: a number with more digits than the target holds, or a text that is not a date.
    Such a value is quarantined when it arrives.
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
    if holds(target, "float") or holds(target, "double"):
        return "DynamoDB's numbers are decimal: a float or a double does not hold them exactly"
    return None


_TIMES = ("date", "timestamp with time zone", "timestamp without time zone", "S")
_NUMBERS_SINCE_1970 = ("integer", "bigint", "N")
_BUCKETED = ("smallint", "integer", "bigint", "text", "character varying", "uuid", "enum", "S", "N")


def check_transform(database: str, source_type: str, target: Type, transform: Transform) -> str | None:
    """Return why a column of the type ``target`` cannot hold a transform's results; None if it can.

    The transform gets values of the type ``source_type`` in ``database``.
    """
    sources: tuple[str, ...]
    if transform.is_bucket:
        sources = _BUCKETED
    elif transform.unit is not None:
        sources = _NUMBERS_SINCE_1970
    else:
        sources = _TIMES[1:] if transform.part == HOUR else _TIMES
    named = [name for name in sources if (name in _DYNAMODB_TARGETS) == (database == DYNAMODB)]
    source = SourceType(source_type) if database == DYNAMODB else SourceType.parse(source_type)
    if source.array or source.base not in named:
        way_out = f", or a unit as in {transform.part}(seconds)" if source.base in _NUMBERS_SINCE_1970 else ""
        return f"{transform} needs {', '.join(named)}{way_out}"
    return None if target == transform.type else f"{transform} makes {transform.type.ddl()}, not {target.ddl()}"


def holds(type_: Type, kind: str) -> bool:
    """Return whether a type is of the kind ``kind``, or has a part of that kind at any depth."""
    inner = [field for _, field in type_.fields] + ([type_.element] if type_.element is not None else [])
    return type_.kind == kind or any(holds(part, kind) for part in inner)

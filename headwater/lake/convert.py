"""Source values to lake values, exactly or not at all.

Two sources of values share this module: a column as Debezium's JSON envelope writes it, and a value inside a
json/jsonb column. Both give the Python object that PySpark stores for the contract's type. A value that has no exact
counterpart raises ``Unfit`` and its record is quarantined.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from headwater.contract import Column, SourceType, Type

Converter = Callable[[Any], Any]

# Debezium's default marker for a TOASTed value that an update did not touch.
TOAST_PLACEHOLDER = "__debezium_unavailable_value"

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)Z?\Z")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?\Z"
)
_INT32 = 2**31
_INT64 = 2**63
_UTC = dt.timezone.utc
_WIDE = Context(prec=2000)  # the default context would round or refuse beyond 28 digits


class Unfit(ValueError):
    """A value that the contract's type cannot hold exactly; the text says what was found and what was expected."""


def _unfit(value: Any, expected: str) -> Unfit:
    shown = json.dumps(value, default=str)
    return Unfit(f"found {shown if len(shown) <= 80 else shown[:77] + '...'}, expected {expected}")


def _integer(limit: int) -> Converter:
    def convert(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise _unfit(value, f"an integer of {limit.bit_length()} bits")
        return value

    return convert


def _float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise _unfit(value, "a floating-point number")


def _float32(value: Any) -> float:
    number = _float(value)
    if math.isfinite(number):
        try:
            return float(struct.unpack("f", struct.pack("f", number))[0])
        except OverflowError:
            raise _unfit(value, "a single-precision number") from None
    return number


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _unfit(value, "true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(value, "a text")
    return value


def _integer_text(value: Any) -> str:
    if type(value) is not int:
        raise _unfit(value, "an integer")
    return str(value)


def _numeric_text(value: Any) -> str:
    """A numeric as PostgreSQL prints it; Debezium spells its NaN in capitals and may use an exponent."""
    text = _text(value)
    special = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
    if text.upper() in special:
        return special[text.upper()]
    try:
        return format(Decimal(text), "f")
    except ArithmeticError:
        raise _unfit(value, "a numeric") from None


def _decimal(precision: int, scale: int) -> Converter:
    expected = f"a number that fits decimal({precision},{scale}) exactly"
    largest = Decimal(10) ** (precision - scale)
    quantum = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) is bool or not isinstance(value, (str, int, Decimal)):
            raise _unfit(value, expected)
        try:
            number = Decimal(value)
        except ArithmeticError:
            raise _unfit(value, expected) from None
        if not number.is_finite() or number.copy_abs() >= largest:
            raise _unfit(value, expected)
        exponent = number.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= -scale:
            return number
        # More digits than the scale are fine only where they are zeros.
        trimmed = number.quantize(quantum, context=_WIDE)
        if trimmed != number:
            raise _unfit(value, expected)
        return trimmed

    return convert


def _date(value: Any) -> dt.date:
    found = _DATE.match(value) if isinstance(value, str) else None
    try:
        if found is not None:
            return dt.date(*(int(part) for part in found.groups()))
    except ValueError:
        pass
    raise _unfit(value, "a date from 0001-01-01 to 9999-12-31")


def _timestamp(value: Any) -> dt.datetime:
    expected = "a timestamp from 0001-01-01 to 9999-12-31 of at most microseconds"
    found = _TIMESTAMP.match(value) if isinstance(value, str) else None
    if found is None:
        raise _unfit(value, expected)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise _unfit(value, expected)
    try:
        moment = dt.datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), int(digits[:6]), _UTC
        )
        return moment - _offset(zone)
    except (ValueError, OverflowError):
        raise _unfit(value, expected) from None


def _offset(zone: str | None) -> dt.timedelta:
    if zone is None or zone == "Z":
        return dt.timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset


def _bytes_from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(_text(value))
    except ValueError:
        raise _unfit(value, "bytes in hexadecimal") from None


# PostgreSQL's infinities as Debezium writes them: the ends of the driver's own calendar.
_INFINITE = re.compile(r"([+-])\d{5,}-")


def _calendar_text(suffix: str) -> Converter:
    """A date or time as text: without the ``Z`` that Debezium's ISO form adds to types that know no zone, and with
    PostgreSQL's word for an infinity."""

    def convert(value: Any) -> str:
        text = _text(value)
        found = _INFINITE.match(text)
        if found is not None:
            raise _unfit(value, "a date or time of the years 1 to 9999")
        return text[: -len(suffix)] if suffix and text.endswith(suffix) else text

    return convert


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _unfit(value, "an array")
        return [None if item is None else element(item) for item in value]

    return convert


def _scalar(kind: Type) -> Converter:
    if kind.kind == "decimal":
        return _decimal(kind.precision, kind.scale)
    return {
        "int": _integer(_INT32),
        "bigint": _integer(_INT64),
        "float": _float32,
        "double": _float,
        "boolean": _boolean,
        "string": _text,
        "binary": _bytes_from_hex,
        "date": _date,
        "timestamp": _timestamp,
    }[kind.kind]


def json_converter(target: Type) -> Callable[[Any, list[str], dict[str, Any]], Any]:
    """A converter for values inside json: ``(value, path, rest)``. Keys of objects that the type does not name are put
    into ``rest`` under their dotted path, so that nothing is lost."""
    if target.kind == "struct":
        fields = [(name, json_converter(field)) for name, field in target.fields]
        known = {name for name, _ in target.fields}

        def convert_struct(value: Any, path: list[str], rest: dict[str, Any]) -> Any:
            if not isinstance(value, Mapping):
                raise _unfit(value, "an object")
            for name in value.keys() - known:
                rest[".".join([*path, name])] = value[name]
            return tuple(
                None if value.get(name) is None else convert(value[name], [*path, name], rest)
                for name, convert in fields
            )

        return convert_struct
    if target.kind == "array" and target.element is not None:
        element = json_converter(target.element)

        def convert_array(value: Any, path: list[str], rest: dict[str, Any]) -> Any:
            if not isinstance(value, list):
                raise _unfit(value, "an array")
            return [
                None if item is None else element(item, [*path, str(index)], rest) for index, item in enumerate(value)
            ]

        return convert_array
    scalar = _json_double if target.kind in ("double", "float") else _scalar(target)
    return lambda value, path, rest: scalar(value)


def _json_double(value: Any) -> float:
    """A JSON number as a double; json numbers are decimals, so the nearest double is taken only if it prints back."""
    if type(value) is bool or not isinstance(value, (int, Decimal)):
        raise _unfit(value, "a number")
    number = float(value)
    if Decimal(repr(number)) != Decimal(value):
        raise _unfit(value, "a number that a double holds exactly")
    return number


def parse_json(text: str) -> Any:
    """Parse JSON with exact numbers. Raises Unfit."""
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        raise _unfit(text, "JSON") from None


def dump_json(value: Any) -> str:
    """Write JSON with the digits of Decimals as they came, which ``json.dumps`` cannot."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{dump_json(str(key))}:{dump_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(dump_json(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def column_converter(column: Column) -> Converter:
    """A converter for a whole source column as it stands in Debezium's envelope (paths into JSON excepted)."""
    source = SourceType.parse(column.source_type or "")
    if source.array and column.type.element is not None:
        return _array(_envelope_converter(source.base, column.type.element))
    return _envelope_converter(source.base, column.type)


def _envelope_converter(base: str, target: Type) -> Converter:
    if target.kind == "string":
        if base in ("smallint", "integer", "bigint"):
            return _integer_text
        if base == "numeric":
            return _numeric_text
        if base == "date" or base.endswith("without time zone"):
            return _calendar_text("Z")
        if base.endswith("with time zone"):
            return _calendar_text("")
        return _text
    return _scalar(target)

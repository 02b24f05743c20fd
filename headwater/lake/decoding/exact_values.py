"""Converts source values to lake values, exactly or not at all.

It converts columns of Debezium's JSON envelope, and values inside json/jsonb columns. Both give the Python object that
PySpark stores for the contract's type. A value without an exact counterpart raises ``Unfit`` (a conversion error); the
contract's ``on_unfit`` decides what the writer does with it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from headwater.contract.model import Column
from headwater.contract.types import SourceType, Type

Converter = Callable[[Any], Any]

# Debezium's default marker for a TOASTed value that an update did not touch.
TOAST_PLACEHOLDER = "__debezium_unavailable_value"

_DATE_LENGTH = len("2024-02-29")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?\Z"
)
# The usual form of a timestamp. fromisoformat reads this form several times as fast.
_USUAL_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?Z\Z", re.ASCII).match
_INT32 = 2**31
_INT64 = 2**63
_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=_UTC)
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
FIRST_DAY = dt.date.min.toordinal() - EPOCH_DAY
LAST_DAY = dt.date.max.toordinal() - EPOCH_DAY
DAY_MICROS = 86_400_000_000
FIRST_UNSHIFTED = dt.date(1582, 10, 26)  # from this date on, the Julian calendar shifts no date, in any time zone
MILLI_DIGITS = 3  # Debezium counts timestamps with at most this many digits in milliseconds, others in microseconds
_parse_exactly = json.JSONDecoder(parse_float=Decimal).decode
_INT_DIGITS = 4_000  # fewer than Python's limit (4300), and more than any column type holds
_MAX_LEVELS = 100  # functions on documents recurse at least once per level, and Python allows about 1000 nested calls
# An escape of a surrogate. If a document has one, each of its texts is checked for half a pair.
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]").search

# Converting a value that does not have its column's type or form raises one of these exceptions.
DEFECTS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class Unfit(ValueError):
    """A value that the contract's type cannot hold exactly. The text names the found and the expected value."""


class NoUnicode:
    """A JSON text with half a surrogate pair. It is not a ``str``, so no column takes it.

    PostgreSQL's ``json`` stores such an escape, but UTF-8 cannot encode the character.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def reason_of(error: BaseException) -> str:
    """The reason that an error gives for refusing a value or a record."""
    return str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"


def unfit(value: Any, expected: str) -> Unfit:
    """The error that refuses a value; ``expected`` describes the values that fit."""
    shown = json.dumps(value, default=str)
    return Unfit(f"found {shown if len(shown) <= 80 else shown[:77] + '...'}, expected {expected}")


def _integer(limit: int) -> Converter:
    def convert(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise unfit(value, f"an integer of {limit.bit_length()} bits")
        return value

    return convert


def _float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise unfit(value, "a floating-point number")


def _float32(value: Any) -> float:
    number = _float(value)
    if math.isfinite(number):
        try:
            return float(struct.unpack("<f", struct.pack("<f", number))[0])
        except OverflowError:
            raise unfit(value, "a single-precision number") from None
    return number


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise unfit(value, "true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise unfit(value, "a text")
    return value


def _integer_text(value: Any) -> str:
    if type(value) is not int:
        raise unfit(value, "an integer")
    return str(value)


def _numeric_text(value: Any) -> str:
    """A numeric as PostgreSQL prints it. Debezium writes NaN in capitals, and may use an exponent."""
    text = _text(value)
    special = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
    if text.upper() in special:
        return special[text.upper()]
    try:
        return format(Decimal(text), "f")
    except ArithmeticError:
        raise unfit(value, "a numeric") from None


def _decimal(precision: int, scale: int) -> Converter:
    quantum = Decimal(1).scaleb(-scale)
    # Digits beyond the scale must be zeros. Digits beyond the precision are refused.
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Decimal:
        try:
            if type(value) in (str, int, Decimal):
                number = Decimal(value).quantize(quantum, context=exact)
                if number == number:  # it is not NaN
                    return number
        except ArithmeticError:
            pass
        raise unfit(value, f"a number that fits decimal({precision},{scale}) exactly")

    return convert


def _date(value: Any) -> dt.date:
    # Python 3.11's fromisoformat reads other forms of a date too, but none of them has dashes at these places.
    if isinstance(value, str) and len(value) == _DATE_LENGTH and value[4] == value[7] == "-":
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    raise unfit(value, "a date from 0001-01-01 to 9999-12-31")


def _timestamp(value: Any) -> dt.datetime:
    expected = "a timestamp from 0001-01-01 to 9999-12-31 of at most microseconds"
    if isinstance(value, str) and _USUAL_TIMESTAMP(value):
        try:
            return dt.datetime.fromisoformat(value[:-1] + "+00:00")
        except ValueError:
            raise unfit(value, expected) from None
    matched = _TIMESTAMP.match(value) if isinstance(value, str) else None
    if matched is None:
        raise unfit(value, expected)
    year, month, day, hour, minute, second, fraction, zone = matched.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise unfit(value, expected)
    try:
        moment = dt.datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), int(digits[:6]), _UTC
        )
        return moment - _offset(zone)
    except (ValueError, OverflowError):
        raise unfit(value, expected) from None


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
        raise unfit(value, "bytes in hexadecimal") from None


def _days(first: dt.date) -> Converter:
    """A converter of days since 1970-01-01, Debezium's form of a date.

    Infinities and years beyond 9999 do not fit.
    """
    lowest = first.toordinal() - EPOCH_DAY

    def convert(value: Any) -> dt.date:
        if type(value) is not int or not lowest <= value <= LAST_DAY:
            raise unfit(value, f"the days from 1970-01-01 to a date from {first} to 9999-12-31")
        return dt.date.fromordinal(value + EPOCH_DAY)

    return convert


def _moment(first: dt.date, unit: int) -> Converter:
    """A converter of a timestamp without time zone, in units of ``unit`` microseconds since 1970-01-01.

    The timestamp is taken as UTC.
    """
    lowest = (first.toordinal() - EPOCH_DAY) * DAY_MICROS
    highest = (LAST_DAY + 1) * DAY_MICROS

    def convert(value: Any) -> dt.datetime:
        if type(value) is not int or not lowest <= value * unit < highest:
            raise unfit(value, f"the time from 1970-01-01 to a timestamp from {first} to 9999-12-31")
        return _EPOCH + dt.timedelta(microseconds=value * unit)

    return convert


def _instant(first: dt.date) -> Converter:
    """A converter of a timestamp with time zone, which Debezium writes as text in UTC."""

    def convert(value: Any) -> dt.datetime:
        moment = _timestamp(value)
        if moment.date() < first:
            raise unfit(value, f"a timestamp from {first} to 9999-12-31")
        return moment

    return convert


def _instant_text(first: dt.date) -> Converter:
    check = _instant(first)

    def convert(value: Any) -> str:
        if value not in ("infinity", "-infinity"):
            check(value)
        return _text(value)

    return convert


def _time_text(value: Any) -> str:
    """A time of day in microseconds, as PostgreSQL prints it. 24:00:00 is a valid time."""
    if type(value) is not int or not 0 <= value <= DAY_MICROS:
        raise unfit(value, "the microseconds of a day")
    seconds, micros = divmod(value, 1_000_000)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _then_text(converter: Converter) -> Converter:
    """A converter to the text of a date or timestamp as PostgreSQL prints it."""

    def convert(value: Any) -> str:
        known = converter(value)
        if isinstance(known, dt.datetime):
            text = known.replace(tzinfo=None).isoformat(" ")
            return text.rstrip("0") if known.microsecond else text
        return str(known.isoformat())

    return convert


def _array(element: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise unfit(value, "an array")
        return [None if item is None else element(item) for item in value]

    return convert


def scalar_converter(kind: Type) -> Converter:
    """A converter of JSON values, and of decimals as text, to a scalar type."""
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


def json_converter(target: Type) -> Callable[[Any, tuple[str, ...], dict[str, Any]], Any]:
    """A converter for values inside json. Its arguments are the value, its path, and the entries for ``_rest``.

    It puts unmapped fields into ``rest`` under their dotted paths, so that nothing is lost.
    """
    if target.kind == "struct":
        return _json_struct(target)
    if target.kind == "array" and target.element is not None:
        element = json_converter(target.element)

        def convert_array(value: Any, path: tuple[str, ...], rest: dict[str, Any]) -> Any:
            if not isinstance(value, list):
                raise unfit(value, "an array")
            return [
                None if item is None else element(item, (*path, str(index)), rest) for index, item in enumerate(value)
            ]

        return convert_array
    scalar = _json_scalar(target)
    return lambda value, path, rest: scalar(value)


def _json_struct(target: Type) -> Callable[[Any, tuple[str, ...], dict[str, Any]], Any]:
    fields = [(name, json_converter(field)) for name, field in target.fields]
    known = frozenset(name for name, _ in fields)

    def convert_struct(value: Any, path: tuple[str, ...], rest: dict[str, Any]) -> Any:
        if type(value) is not dict:
            raise unfit(value, "an object")
        for name in value.keys() - known:
            rest[dotted([*path, name])] = value[name]
        return tuple(
            None if value.get(name) is None else convert(value[name], (*path, name), rest) for name, convert in fields
        )

    return convert_struct


def _json_scalar(target: Type) -> Converter:
    return _json_double if target.kind == "double" else scalar_converter(target)


def _json_double(value: Any) -> float:
    """A JSON number as a double. It fits only if the double prints as the same number.

    JSON numbers are decimals.
    """
    if type(value) is bool or not isinstance(value, (int, Decimal)):
        raise unfit(value, "a number")
    number = float(value)
    if Decimal(repr(number)) != Decimal(value):
        raise unfit(value, "a number that a double holds exactly")
    return number


def dotted(path: Sequence[str]) -> str:
    """A path as text. A name with a dot or a quote is a JSON string, so different paths have different texts."""
    return ".".join(json.dumps(name) if "." in name or '"' in name else name for name in path)


def parse_json(text: str) -> Any:
    """Parse JSON with exact numbers. Raises Unfit if the text is not JSON, or has more than 100 levels.

    An integer with more than 4000 digits becomes a Decimal. A text with half a surrogate pair becomes ``NoUnicode``.
    """
    try:
        value = _parsed(text)
    except (TypeError, ValueError):
        raise unfit(text, "JSON") from None
    except RecursionError:
        raise _too_deep(text) from None
    if text.count("[") + text.count("{") > _MAX_LEVELS and _is_too_deep(value):
        raise _too_deep(text)
    return _in_unicode(value) if _HALF_PAIR(text) else value


def _parsed(text: str) -> Any:
    try:
        return _parse_exactly(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer beyond Python's limit
        return _parse_long_integers(text)


def _int_or_decimal(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _INT_DIGITS else Decimal(digits)


_parse_long_integers = json.JSONDecoder(parse_float=Decimal, parse_int=_int_or_decimal).decode


def _too_deep(text: str) -> Unfit:
    return unfit(text, f"JSON of at most {_MAX_LEVELS} levels")


def _is_too_deep(value: Any) -> bool:
    """Whether a parsed document has more levels of arrays and objects than allowed."""
    level = [value]
    for _ in range(_MAX_LEVELS + 1):
        level = [item for item in level if type(item) in (dict, list)]
        if not level:
            return False
        level = [inner for item in level for inner in (item.values() if type(item) is dict else item)]
    return True


def _in_unicode(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_unicode(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_in_unicode(inner) for inner in value]
    return NoUnicode(value) if isinstance(value, str) and not _encodes(value) else value


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def dump_json(value: Any) -> str:
    """Write JSON. Decimals keep their digits, which ``json.dumps`` cannot do, and ``NoUnicode`` keeps its escape."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, NoUnicode):
        return json.dumps(value.text)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{dump_json(str(key))}:{dump_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(dump_json(item) for item in value) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return text if _encodes(text) else json.dumps(value)


def column_converter(column: Column, snapshot: bool) -> Converter:
    """A converter for a whole source column, as Debezium's envelope has its value.

    ``snapshot``: whether Debezium read the rows by a query. These rows, and all arrays, come through the JDBC driver.
    The driver loses the era, and shifts dates before 1582-10-15 to the Julian calendar (seen with Debezium 3.6.1). So
    dates in these rows that may have been shifted do not fit. Dates in streamed changes are right.
    """
    source = SourceType.parse(column.source_type or "")
    first = FIRST_UNSHIFTED if snapshot or source.array else dt.date.min
    if source.array and column.type.element is not None:
        return _array(_envelope_converter(source, column.type.element, first))
    return _envelope_converter(source, column.type, first)


def _envelope_converter(source: SourceType, target: Type, first: dt.date) -> Converter:
    base = source.base
    if base in ("smallint", "integer", "bigint") and target.kind == "string":
        return _integer_text
    if base == "numeric" and target.kind == "string":
        return _numeric_text
    if base == "time without time zone":
        return _time_text
    if base == "timestamp with time zone":
        return _instant_text(first) if target.kind == "string" else _instant(first)
    if base in ("date", "timestamp without time zone"):
        short = source.precision is not None and source.precision <= MILLI_DIGITS
        known = _days(first) if base == "date" else _moment(first, 1000 if short else 1)
        return _then_text(known) if target.kind == "string" else known
    return scalar_converter(target)

"""DynamoDB's attribute values as forms, from both sides.

The source's values come from boto3's own TypeDeserializer; the lake's values that are DynamoDB JSON are parsed here.
Both become the same form: the type's tag and the value. Each number has one spelling, and the members of sets and maps
have one order.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

from boto3.dynamodb.types import Binary, TypeDeserializer

from headwater.verify.forms import Form, ToForm, plain_text

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
# DynamoDB's numbers have 38 digits and reach from 1E-130 to 9.9E+125. A number beyond that comes from elsewhere;
# without its exponent it could be longer than memory.
_MAX_DIGITS = 200
_MAX_EXPONENT = 200
_WIDE = Context(prec=_MAX_DIGITS)


class _Deserializer(TypeDeserializer):
    """boto3's deserializer that also takes numbers of more than 38 digits.

    DynamoDB Local pads numbers with zeros beyond 38 digits, which boto3 refuses.
    """

    def _deserialize_n(self, value: str) -> Decimal:
        return Decimal(value)


_DESERIALIZER = _Deserializer()


def deserialized(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of boto3's low-level client as boto3's Python values.

    Raises TypeError or ArithmeticError for a value that boto3 does not know.
    """
    return {name: _DESERIALIZER.deserialize(value) for name, value in item.items()}


def number(value: Any) -> str:
    """A number's shortest spelling without an exponent: ``1.5`` for 1.50, ``100`` for 1E+2. Raises ValueError."""
    if not isinstance(value, (str, Decimal)) or _NUMBER.match(str(value)) is None:
        raise ValueError(value)
    exact = Decimal(value)
    if len(exact.as_tuple().digits) > _MAX_DIGITS or abs(exact.adjusted()) > _MAX_EXPONENT:
        raise ValueError(value)
    return format(exact.normalize(_WIDE), "f") if exact else "0"


def binary(value: Any) -> str:
    """Return bytes as base64. ``value`` is boto3's Binary or base64 text. Raises ValueError."""
    raw = raw_bytes(value) if isinstance(value, Binary) else base64.b64decode(plain_text(value), validate=True)
    return base64.b64encode(raw).decode()


def raw_bytes(value: Any) -> bytes:
    """The bytes of boto3's Binary."""
    return bytes(value.value)


def of_value(value: Any) -> Form:
    """The form of one of boto3's Python values. Raises ValueError for an empty set, which does not tell its type."""
    if value is None:
        return ("NULL", True)
    if isinstance(value, bool):
        return ("BOOL", value)
    if isinstance(value, str):
        return ("S", value)
    if isinstance(value, Decimal):
        return ("N", number(value))
    if isinstance(value, Binary):
        return ("B", binary(value))
    if isinstance(value, Mapping):
        return ("M", tuple((name, of_value(value[name])) for name in sorted(value)))
    if isinstance(value, list):
        return ("L", tuple(of_value(member) for member in value))
    if isinstance(value, set) and value:
        members = sorted(of_value(member) for member in value)
        return (members[0][0] + "S", tuple(form for _, form in members))
    raise ValueError(value)


def of_json(value: Any) -> Form:
    """The form of a value in parsed DynamoDB JSON, e.g. ``{"S": "a"}``. Raises ValueError if it is not one."""
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(value)
    ((tag, inner),) = value.items()
    if tag in _SCALARS:
        return (tag, _SCALARS[tag](inner))
    if tag in _SETS:
        return (tag, tuple(sorted(map(_SETS[tag], _list(inner)))))
    if tag == "M" and isinstance(inner, Mapping):
        return ("M", tuple((name, of_json(inner[name])) for name in sorted(inner)))
    if tag == "L":
        return ("L", tuple(map(of_json, _list(inner))))
    raise ValueError(value)


def _list(value: Any) -> Iterable[Any]:
    if not isinstance(value, list):
        raise ValueError(value)
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _true(value: Any) -> bool:
    if value is not True:
        raise ValueError(value)
    return value


_SCALARS: dict[str, ToForm] = {
    "S": plain_text,
    "N": lambda value: number(plain_text(value)),
    "B": binary,
    "BOOL": _boolean,
    "NULL": _true,
}
_SETS: dict[str, ToForm] = {"SS": plain_text, "NS": _SCALARS["N"], "BS": binary}


def parse_json(document: str) -> Any:
    """Parse JSON. Raises ValueError, also if an object has a name twice."""
    return json.loads(document, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError(f"a name appears twice among {[name for name, _ in pairs]}")
    return fields


def to_json(form: Form) -> dict[str, Any]:
    """A form of ``of_value`` or ``of_json`` as DynamoDB JSON again, for people."""
    tag, inner = form
    if tag == "M":
        return {tag: {name: to_json(value) for name, value in inner}}
    if tag == "L":
        return {tag: [to_json(value) for value in inner]}
    return {tag: list(inner) if tag in _SETS else inner}


def split_path(path: str) -> tuple[str, ...]:
    """The names of a path in ``_rest``. Dots separate them; a name with a dot or a quote is a JSON string.

    Raises ValueError.
    """
    names: list[str] = []
    at = 0
    while True:
        if path[at : at + 1] == '"':
            name, at = json.JSONDecoder().raw_decode(path, at)
        else:
            end = path.find(".", at)
            end = len(path) if end < 0 else end
            name, at = path[at:end], end
        names.append(plain_text(name))
        if at == len(path):
            return tuple(names)
        if path[at] != ".":
            raise ValueError(path)
        at += 1


def join_path(names: Iterable[str]) -> str:
    """A path as ``_rest`` writes it, for people."""
    return ".".join(json.dumps(name) if "." in name or '"' in name else name for name in names)

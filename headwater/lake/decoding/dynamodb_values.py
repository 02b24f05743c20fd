"""Converts DynamoDB's typed attribute values, such as ``{"N": "1.5"}``, to the values of a lake table's columns.

Each type has one conversion, with a fast and a full way that give the same value. In the fast way msgspec checks and
builds the value; it works only if no part of the value is left over. The full way reads parsed JSON. It also finds
unmapped fields (for ``_rest``) and names the defect (for the quarantine); see docs/decisions/dynamodb-decoding.md.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Container, Iterator, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from headwater.contract.model import Column
from headwater.contract.transforms import HOUR, Transform
from headwater.contract.types import Type
from headwater.lake.decoding import exact_values
from headwater.lake.decoding.changes import plain_digits
from headwater.lake.decoding.exact_values import Converter, Unfit, dotted, scalar_converter, unfit
from headwater.lake.decoding.transformed_values import part_of, transforming

# A defective record raises one of these exceptions while it is parsed and converted.
DEFECTS = (msgspec.MsgspecError, *exact_values.DEFECTS)
NULL_TEXT = Raw(b'{"NULL":true}')
"""DynamoDB's null, byte for byte."""

_NULL = {"NULL": True}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_DATE_LENGTH = len("2024-02-29")
_HOUR_OF_DAY = re.compile(r"(?:[01]\d|2[0-3])(?!\d)", re.ASCII)
DOCUMENTS: dict[str, type] = {"M": dict, "L": list}
"""The Python types of a parsed map and list."""
TAGS_INSIDE = {
    "string": "S",
    "date": "S",
    "int": "N",
    "bigint": "N",
    "decimal": "N",
    "binary": "B",
    "boolean": "BOOL",
    "array": "L",
    "struct": "M",
}
"""The type tag that a value inside a map or a list must have, by the lake type."""

Path = tuple[Any, Any]
"""The path of a value: the path of its map or list (None for the item itself), and its name or index there."""
Leftovers = list[tuple[Path, Any]]
"""Values that no lake type names, with their paths."""
Fast = tuple[int, Callable[[Raw], Any], "Converter | None"]
"""The fast way of a column.

1. The column's position in a row.
2. A decoder that checks the type tag and returns the value behind the tag, as ``value``.
3. A converter from that value to the column's value; None if both are the same.
"""
_InParts = Callable[[Any, Path, Leftovers], Any]
"""Converts the value behind a tag, at a path. Parts that no type names go to the leftovers."""

parse = msgspec.json.Decoder().decode
dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class AttributeColumn:
    """A column of the lake: its path in an item, and its conversion.

    ``fast`` converts a value if no part of it is left over, and ``take`` converts every value. If ``plain``, equal
    numbers become equal texts, which keys and partitions need.
    """

    def __init__(self, at: int, column: Column, *, plain: bool) -> None:
        self.at = at
        """The column's position in a row."""
        self.path = column.path
        """The path of its value in an item."""
        self.name = column.path[0]
        """The attribute's name."""
        self.absent = column.absent
        """Its value if the item has no such attribute."""
        self.column = column.name
        """The column's name."""
        self.type = column.type
        """The column's type."""
        self._tag = column.source_type or ""
        self._conversion = _column_conversion(self._tag, column, plain)
        self.has_parts = self._conversion.in_parts is not None
        """Whether parts of its value may be left over."""
        self.fast: Fast = (at, _decoder(self._tag, self._conversion.beside), self._conversion.fast)

    def of(self, raw: Raw | None) -> Any:
        """The value of a column of the key or of the partition. Raises Unfit."""
        value = None if raw is None else parse(raw)
        if value is None or is_null(value):
            return self.absent
        try:
            return self.take(value, path_of(self.path), [])
        except DEFECTS as error:
            raise Unfit(f"{self.column}: {self.reason(value, error)}") from None

    def take(self, value: Any, path: Path, leftovers: Leftovers) -> Any:
        """Convert the value at a path in the full way. Raises the exceptions of ``DEFECTS``."""
        return self._conversion.full(_beside(value, self._tag), path, leftovers)

    def reason(self, value: Any, error: BaseException) -> str:
        """The reason why a value does not fit; ``error`` is the exception of its conversion."""
        return str(error if isinstance(error, Unfit) else unfit(value, f"type {self._tag}"))


def is_null(value: Any) -> bool:
    """Whether a parsed value is DynamoDB's null."""
    return bool(value == _NULL) and value["NULL"] is True


def path_of(names: Sequence[str]) -> Any:
    """The path of an attribute, by the names on the way to it."""
    path: Path | None = None
    for name in names:
        path = (path, name)
    return path


def spell(path: Path) -> str:
    """A path as text."""
    names: list[str] = []
    holder: Any = path
    while holder is not None:
        holder, name = holder
        names.append(str(name))
    return dotted(names[::-1])


def in_unicode(text: str) -> str:
    """The unchanged JSON. Raises UnicodeError if an escape stands for half a surrogate pair."""
    if "\\u" in text:
        dump(json.loads(text, parse_float=str)).encode("utf-8")
    return text


class Claims:
    """Records which parts of one attribute's value columns take, and finds the parts that no column takes."""

    def __init__(self) -> None:
        self._held = False
        self._whole = False
        self._parts: dict[str, Claims] = {}
        self._element: Claims | None = None

    def add(self, path: Sequence[str], type_: Type) -> None:
        """Add a column of this type that reads its value at ``path`` inside this value."""
        if path:
            self._parts.setdefault(path[0], Claims()).add(path[1:], type_)
            return
        self._held = True
        if type_.kind == "struct":
            for name, part in type_.fields:
                self._parts.setdefault(name, Claims()).add((), part)
        elif type_.element is not None and type_.element.kind in ("struct", "array"):
            self._element = self._element or Claims()
            self._element.add((), type_.element)
        else:
            self._whole = True

    def left(self, value: Any, path: Path, refused: Container[Path]) -> Iterator[tuple[Path, Any]]:
        """The parts of the parsed value at the path that no column takes, except within a ``refused`` value.

        A refused value is kept as a whole elsewhere.
        """
        if path in refused:
            return
        if is_null(value):
            yield path, value
        elif self._whole:
            return
        elif isinstance(members := value.get("M"), dict):
            if not members and not self._held:
                yield path, value
            for name, inner in members.items():
                part = self._parts.get(name)
                if part is None:
                    yield (path, name), inner
                else:
                    yield from part.left(inner, (path, name), refused)
        elif isinstance(members := value.get("L"), list) and self._element is not None:
            for index, inner in enumerate(members):
                yield from self._element.left(inner, (path, index), refused)


# --- Conversions ------------------------------------------------------------------------------------------------------


class _Conversion(NamedTuple):
    """The conversion of the value behind a type tag to the lake's value. Either ``whole`` or ``in_parts`` is None."""

    beside: Any
    """Fast way: the type of the value that msgspec builds."""
    fast: Converter | None
    """Fast way: makes the lake's value from that value; None if both are the same."""
    whole: Converter | None
    """Full way if no part can be left over: converts the parsed value."""
    in_parts: _InParts | None = None
    """Full way if parts may be left over: converts the parsed value, and collects the leftovers."""

    def full(self, raw: Any, path: Path, leftovers: Leftovers) -> Any:
        """The value in the full way."""
        return self.whole(raw) if self.in_parts is None else self.in_parts(raw, path, leftovers)  # type: ignore[misc]


def _column_conversion(tag: str, column: Column, plain: bool) -> _Conversion:
    if column.transform is not None:
        return _transforming(tag, column, column.transform)
    if column.type.kind == "string" and tag in DOCUMENTS:
        return _Conversion(Raw, functools.partial(_document_of_text, tag), functools.partial(_document, tag))
    return _conversion(tag, column.type, plain)


def _conversion(tag: str, type_: Type, plain: bool = False) -> _Conversion:
    if type_.kind == "struct":
        return _struct(type_)
    if type_.element is not None:
        return _list(type_.element) if tag == "L" else _set(_scalar(tag[0], type_.element, plain))
    return _scalar(tag, type_, plain)


def _scalar(tag: str, type_: Type, plain: bool) -> _Conversion:
    if tag == "N":
        number = _number(type_, plain)
        return _Conversion(str, number, number)
    if tag == "B":
        return _Conversion(bytes, None, _bytes)  # msgspec reads base64
    if tag == "BOOL":
        return _Conversion(bool, None, scalar_converter(type_))
    if type_.kind == "string":
        return _Conversion(str, None, _text)
    convert = scalar_converter(type_)
    return _Conversion(str, convert, convert)


def _set(member: _Conversion) -> _Conversion:
    """The conversion of a set of scalars, whose members have no tags of their own."""
    convert: Any = member.whole

    def whole(raw: Any) -> list[Any]:
        return [convert(value) for value in _members(raw)]

    return _Conversion(list[member.beside], None if member.fast is None else whole, whole)  # type: ignore[name-defined]


def _list(element: Type) -> _Conversion:
    """The conversion of a list.

    A NULL in the list is null. In a list of maps or lists it is also a leftover.
    """
    tag = TAGS_INSIDE[element.kind]
    member = _conversion(tag, element)
    beside: Any = list[_tagged(tag, member.beside)]  # type: ignore[misc]
    fast = _values if member.fast is None else _converted_values(member.fast)
    if element.kind not in ("struct", "array"):
        scalar: Any = member.whole

        def whole(raw: Any) -> list[Any]:
            return [None if is_null(value) else scalar(_beside(value, tag)) for value in _members(raw)]

        return _Conversion(beside, fast, whole)

    def in_parts(raw: Any, path: Path, leftovers: Leftovers) -> list[Any]:
        values: list[Any] = []
        for index, value in enumerate(_members(raw)):
            if is_null(value):
                values.append(None)
                leftovers.append(((path, index), value))
            else:
                values.append(member.full(_beside(value, tag), (path, index), leftovers))
        return values

    return _Conversion(beside, fast, None, in_parts)


def _struct(type_: Type) -> _Conversion:
    """The conversion of a map whose members the type names.

    Other members, and members that are NULL, are leftovers.
    """
    names = [name for name, _ in type_.fields]
    tags = [TAGS_INSIDE[member.kind] for _, member in type_.fields]
    conversions = [_conversion(tag, member) for tag, (_, member) in zip(tags, type_.fields, strict=True)]
    return _Conversion(*_fast_struct(names, tags, conversions), None, _struct_in_parts(names, tags, conversions))


def _fast_struct(names: list[str], tags: list[str], conversions: list[_Conversion]) -> tuple[Any, Converter]:
    """``beside`` and ``fast`` of a map's conversion."""
    # Build a msgspec type with a field per member, and remember which members need a further conversion.
    fields, paths, converters = [], [], []
    for at, (name, tag, member) in enumerate(zip(names, tags, conversions, strict=True)):
        tagged = _tagged(tag, member.beside)
        fields.append((f"member_{at}", tagged, msgspec.field(name=name, default=tagged(None))))
        paths.append(f"member_{at}.value")
        if member.fast is not None:
            converters.append((at, member.fast))
    beside = msgspec.defstruct("M", fields, forbid_unknown_fields=True, frozen=True, gc=False)
    get: Any = attrgetter(*paths) if len(paths) > 1 else lambda members, get=attrgetter(*paths): (get(members),)
    if not converters:
        return beside, get

    def convert(members: Any) -> tuple[Any, ...]:
        values = [*get(members)]
        for at, convert_member in converters:
            if values[at] is not None:
                values[at] = convert_member(values[at])
        return tuple(values)

    return beside, convert


def _struct_in_parts(names: list[str], tags: list[str], conversions: list[_Conversion]) -> _InParts:
    known = frozenset(names)
    members: list[tuple[str, str, Any, Any]] = [
        (name, tag, member.whole, member.in_parts) for name, tag, member in zip(names, tags, conversions, strict=True)
    ]

    def convert(raw: Any, path: Path, leftovers: Leftovers) -> tuple[Any, ...]:
        if type(raw) is not dict:
            raise unfit(raw, "a map")
        values: list[Any] = []
        present = 0
        # Convert the members that the type names. Count them, to find out whether there are others.
        for name, tag, whole, in_parts in members:
            value = raw.get(name)
            if value is None:
                values.append(None)
                continue
            present += 1
            if tag in value and len(value) == 1:
                inside = value[tag]
                values.append(whole(inside) if in_parts is None else in_parts(inside, (path, name), leftovers))
            elif is_null(value):
                values.append(None)
                leftovers.append(((path, name), value))
            else:
                raise unfit(value, f"type {tag}")
        if present != len(raw):
            leftovers.extend(((path, name), raw[name]) for name in raw if name not in known)
        return tuple(values)

    return convert


def _tagged(tag: str, beside: Any) -> Any:
    """The msgspec type of a typed value: an object whose only member is the tag, with its content as ``value``."""
    members = [("value", beside, msgspec.field(name=tag))]
    return msgspec.defstruct(tag, members, forbid_unknown_fields=True, frozen=True, gc=False)


def _decoder(tag: str, beside: Any) -> Callable[[Raw], Any]:
    return msgspec.json.Decoder(_tagged(tag, beside)).decode


map_members = _decoder("M", dict[str, Raw])
"""The members of a map, by name, as ``value``."""


def _beside(value: Any, tag: str) -> Any:
    """The content behind the tag of a typed value. Raises Unfit if it has another type."""
    if type(value) is not dict or len(value) != 1 or tag not in value:
        raise unfit(value, f"type {tag}")
    return value[tag]


def _values(tagged: list[Any]) -> list[Any]:
    return [member.value for member in tagged]


def _converted_values(convert: Converter) -> Converter:
    return lambda tagged: [convert(member.value) for member in tagged]


def _members(raw: Any) -> list[Any]:
    if type(raw) is not list:
        raise unfit(raw, "a list")
    return raw


# --- Rules of single values -------------------------------------------------------------------------------------------

# This slot of C refuses everything but str, and costs less than a function.
_text: Converter = str.__str__
_date = scalar_converter(Type("date"))


def _number(type_: Type, plain: bool) -> Converter:
    """A converter of a number's digits. It never rounds."""
    if type_.kind == "string":
        return _plain_text if plain else _number_text
    exact = scalar_converter(type_)
    if type_.kind != "decimal":
        digits = 9 if type_.kind == "int" else 18  # so few digits always fit
        short = re.compile(rf"-?\d{{1,{digits}}}\Z", re.ASCII).match
        return lambda raw: int(raw) if short(raw) else exact(_integer(raw))
    whole, scale = type_.precision - type_.scale, type_.scale
    fraction = rf"(?:\.\d{{1,{scale}}})?" if scale else ""
    fits = re.compile(rf"-?\d{{1,{whole}}}{fraction}\Z" if whole else rf"-?0{fraction}\Z", re.ASCII).match
    return lambda raw: Decimal(raw) if fits(raw) else exact(_number_text(raw))


def _number_text(raw: Any) -> str:
    text = str.__str__(raw)
    if not _NUMBER.match(text):
        raise unfit(text, "a number")
    return text


def _plain_text(raw: Any) -> str:
    return plain_digits(Decimal(_number_text(raw)))


def _integer(raw: Any) -> int:
    number = Decimal(_number_text(raw))
    whole = int(number)
    if whole != number:
        raise unfit(raw, "an integer")
    return whole


def _bytes(raw: Any) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except ValueError:
        raise unfit(raw, "bytes in base64") from None


def _document_of_text(tag: str, inside: Raw) -> str:
    """The DynamoDB JSON of a map or a list, made from the text behind its tag."""
    text = msgspec.json.format(inside, indent=-1).decode()
    if text[0] != ("{" if tag == "M" else "["):
        raise unfit(text, f"type {tag}")
    return f'{{"{tag}":{in_unicode(text)}}}'


def _document(tag: str, inside: Any) -> str:
    """The DynamoDB JSON of a map or a list, made from the parsed content behind its tag."""
    value = {tag: inside}
    if not isinstance(inside, DOCUMENTS[tag]):
        raise unfit(value, f"type {tag}")
    return dump(value)


# --- Transforms -------------------------------------------------------------------------------------------------------


def _transforming(tag: str, column: Column, transform: Transform) -> _Conversion:
    if tag == "S" and not transform.is_bucket:
        part = functools.partial(_part_of_written, transform=transform)
        return _Conversion(str, part, part)
    # Each number is written in only one way, so that it has one bucket.
    whole: Any = _conversion(tag, column.before_transform().type, plain=True).whole
    convert = transforming(whole, transform)
    return _Conversion(str, convert, convert)


def _part_of_written(raw: Any, transform: Transform) -> str:
    """The month, day or hour of a date or timestamp in ISO 8601, from its text; the offset is ignored."""
    _date(raw[:_DATE_LENGTH])
    behind = raw[_DATE_LENGTH : _DATE_LENGTH + 1]
    if transform.part == HOUR:
        if behind not in ("T", " ") or _HOUR_OF_DAY.match(raw, _DATE_LENGTH + 1) is None:
            raise unfit(raw, "a timestamp")
    elif behind not in ("", "T", " "):
        raise unfit(raw, "a date or a timestamp")
    return part_of(str.__str__(raw), transform)

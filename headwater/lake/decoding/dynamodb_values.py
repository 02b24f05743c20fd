"""DynamoDB's typed attribute values, such as ``{"N": "1.5"}``, to the values of a lake table's columns.

Each type has one conversion, with a fast and a full way that give the same value. The fast way lets msgspec check and
build the value, and is taken if nothing of the value is left over. The full way goes through parsed JSON, finds what no
column names (for ``_rest``) and says what is wrong (for quarantine); docs/decisions/dynamodb-decoding.md.
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

# What a defect of a record raises while it is taken apart.
DEFECTS = (msgspec.MsgspecError, *exact_values.DEFECTS)
NULL_TEXT = Raw(b'{"NULL":true}')
"""DynamoDB's null, as it writes it."""

_NULL = {"NULL": True}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_DATE_LENGTH = len("2024-02-29")
_HOUR_OF_DAY = re.compile(r"(?:[01]\d|2[0-3])(?!\d)", re.ASCII)
DOCUMENTS: dict[str, type] = {"M": dict, "L": list}
"""What a map and a list are in JSON."""
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
"""The type that a value inside a map or a list must have, by the lake's."""

Path = tuple[Any, Any]
"""Where a value lies: the path of what holds it, None for the item itself, and its name or index there."""
Leftovers = list[tuple[Path, Any]]
"""What no type names, by its path."""
Fast = tuple[int, Callable[[Raw], Any], "Converter | None"]
"""The fast way of a column: where its value goes; what checks the type and gives what stands beside the tag, as
``value``; what makes the column's value of that, None where it is one."""
_InParts = Callable[[Any, Path, Leftovers], Any]
"""Converts what stands beside a tag, at that path; what no type names goes to the leftovers."""

parse = msgspec.json.Decoder().decode
dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class AttributeColumn:
    """Where a column's value stands in an item, and how it is converted: by ``fast`` if it leaves nothing over, else by
    ``take``. ``at`` is the column's place in a row, ``column`` its name and ``type`` its type; ``name`` is the
    attribute's; ``absent`` is the value where there is no attribute; ``plain``: a number that becomes text is written
    in one way only, as keys and partitions need it."""

    def __init__(self, at: int, column: Column, *, plain: bool) -> None:
        self.at = at
        self.path = column.path
        self.name = column.path[0]
        self.absent = column.absent
        self.column = column.name
        self.type = column.type
        self._tag = column.source_type or ""
        self._conversion = _column_conversion(self._tag, column, plain)
        self.has_parts = self._conversion.in_parts is not None
        self.fast: Fast = (at, _decoder(self._tag, self._conversion.beside), self._conversion.fast)

    def of(self, raw: Raw | None) -> Any:
        """The column's value, for a column of a key or a partition. Raises Unfit."""
        value = None if raw is None else parse(raw)
        if value is None or is_null(value):
            return self.absent
        try:
            return self.take(value, path_of(self.path), [])
        except DEFECTS as error:
            raise Unfit(f"{self.column}: {self.reason(value, error)}") from None

    def take(self, value: Any, path: Path, leftovers: Leftovers) -> Any:
        """The column's value in the full way; ``value`` stands at that path. Raises what ``DEFECTS`` names."""
        return self._conversion.full(_beside(value, self._tag), path, leftovers)

    def reason(self, value: Any, error: BaseException) -> str:
        """Why a value of this attribute does not fit, by what its conversion raised."""
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
    """The JSON as it is. Raises UnicodeError for half a surrogate pair, which an escape can hold and nothing else."""
    if "\\u" in text:
        dump(json.loads(text, parse_float=str)).encode("utf-8")
    return text


class Claims:
    """What several columns together take of one attribute's value, for what they leave over. A part that one of them
    takes is no leftover, even if another leaves it."""

    def __init__(self) -> None:
        self._held = False
        self._whole = False
        self._parts: dict[str, Claims] = {}
        self._element: Claims | None = None

    def add(self, path: Sequence[str], type_: Type) -> None:
        """Add a column of that type, whose value lies at the path inside this one."""
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
        """What no column takes of the parsed value at the path. What lies in a ``refused`` value is kept with it."""
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
    """How what stands beside a tag becomes the lake's value. Fast: msgspec makes a ``beside`` of it, and ``fast`` the
    value of that; None where it is one. In full, of parsed JSON: ``whole`` where nothing can be left over, otherwise
    ``in_parts``; the other is None."""

    beside: Any
    fast: Converter | None
    whole: Converter | None
    in_parts: _InParts | None = None

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
    """A set of scalars, whose members have no tags of their own."""
    convert: Any = member.whole

    def whole(raw: Any) -> list[Any]:
        return [convert(value) for value in _members(raw)]

    return _Conversion(list[member.beside], None if member.fast is None else whole, whole)  # type: ignore[name-defined]


def _list(element: Type) -> _Conversion:
    """A list. A NULL in it is null; in a list of maps or lists it is a leftover too, like any other NULL among
    parts."""
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
    """A map whose members the type names; other members are leftovers, and so is a NULL."""
    names = [name for name, _ in type_.fields]
    tags = [TAGS_INSIDE[member.kind] for _, member in type_.fields]
    conversions = [_conversion(tag, member) for tag, (_, member) in zip(tags, type_.fields, strict=True)]
    return _Conversion(*_fast_struct(names, tags, conversions), None, _struct_in_parts(names, tags, conversions))


def _fast_struct(names: list[str], tags: list[str], conversions: list[_Conversion]) -> tuple[Any, Converter]:
    """``beside`` and ``fast`` of a map's conversion."""
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
    """The type of a value: an object of nothing but the tag, with what stands beside it as ``value``."""
    members = [("value", beside, msgspec.field(name=tag))]
    return msgspec.defstruct(tag, members, forbid_unknown_fields=True, frozen=True, gc=False)


def _decoder(tag: str, beside: Any) -> Callable[[Raw], Any]:
    return msgspec.json.Decoder(_tagged(tag, beside)).decode


map_members = _decoder("M", dict[str, Raw])
"""The members of a map, by name, as ``value``."""


def _beside(value: Any, tag: str) -> Any:
    """What stands beside the tag of a value of that type. Raises Unfit."""
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

# A slot of C: it refuses everything that is no str, and costs less than a function.
_text: Converter = str.__str__
_date = scalar_converter(Type("date"))


def _number(type_: Type, plain: bool) -> Converter:
    """A number's digits, exactly: nothing here rounds."""
    if type_.kind == "string":
        return _plain_text if plain else _number_text
    exact = scalar_converter(type_)
    if type_.kind != "decimal":
        digits = 9 if type_.kind == "int" else 18  # so few always fit
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
    """A map's or a list's DynamoDB JSON, of the text that stands beside its tag."""
    text = msgspec.json.format(inside, indent=-1).decode()
    if text[0] != ("{" if tag == "M" else "["):
        raise unfit(text, f"type {tag}")
    return f'{{"{tag}":{in_unicode(text)}}}'


def _document(tag: str, inside: Any) -> str:
    """A map's or a list's DynamoDB JSON, of what stands beside its tag when it is parsed."""
    value = {tag: inside}
    if not isinstance(inside, DOCUMENTS[tag]):
        raise unfit(value, f"type {tag}")
    return dump(value)


# --- Transforms -------------------------------------------------------------------------------------------------------


def _transforming(tag: str, column: Column, transform: Transform) -> _Conversion:
    if tag == "S" and not transform.is_bucket:
        part = functools.partial(_part_of_written, transform=transform)
        return _Conversion(str, part, part)
    # A number is written in one way, so that it has one bucket.
    whole: Any = _conversion(tag, column.before_transform().type, plain=True).whole
    convert = transforming(whole, transform)
    return _Conversion(str, convert, convert)


def _part_of_written(raw: Any, transform: Transform) -> str:
    """The month, the day or the hour of a date or a timestamp in ISO 8601, as it is written, whatever its offset."""
    _date(raw[:_DATE_LENGTH])
    behind = raw[_DATE_LENGTH : _DATE_LENGTH + 1]
    if transform.part == HOUR:
        if behind not in ("T", " ") or _HOUR_OF_DAY.match(raw, _DATE_LENGTH + 1) is None:
            raise unfit(raw, "a timestamp")
    elif behind not in ("", "T", " "):
        raise unfit(raw, "a date or a timestamp")
    return part_of(str.__str__(raw), transform)

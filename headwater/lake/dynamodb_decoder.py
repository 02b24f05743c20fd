"""DynamoDB's changes, in the JSON of its Kinesis destination, and its exported items to rows of a lake table.

Decoding costs what Python objects are made, and most of a record needs none: attributes that no column names go to
``_rest`` as the text they are, and of the old image only the partition matters. So msgspec takes a record apart into
the text of each attribute, and checks the types of those that columns name; docs/decisions/dynamodb-decoding.md.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw

from headwater.contract.model import UNKNOWN_MONTH, Column, Contract
from headwater.contract.types import Type
from headwater.lake.changes import BadRecord, Decoded, Identity, epoch_digits, plain_digits
from headwater.lake.convert import Converter, Unfit, dotted, scalar_converter, unfit

_OPS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d"}
_MICROS = {"MILLISECOND": 1000, "MICROSECOND": 1}
_NULL = {"NULL": True}
_NULL_TEXT = Raw(b'{"NULL":true}')
_TIE_DIGITS = 56  # as many as a Kinesis sequence number has at most
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_DATE_LENGTH, _MONTH_LENGTH = len("2024-02-29"), len("2024-02")

# What a defect of a record raises while it is taken apart.
_DEFECTS = (
    msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError,
)  # fmt: skip

_parse = msgspec.json.Decoder().decode
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_date = scalar_converter(Type("date"))
_Image = Mapping[str, Raw]
"""An item: the JSON text of each attribute by its name."""


class DynamoDecoder:
    """Decodes the changes and the exported items of one table. ``table`` is the table's actual name where the contract
    calls it otherwise. An operator raises ``epoch`` when the source's history was cut."""

    def __init__(self, contract: Contract, epoch: int = 1, table: str | None = None) -> None:
        self.width = len(contract.lake_columns())
        self._table = contract.source.table if table is None else table
        self._epoch = epoch_digits(epoch)
        self._identity = Identity(contract)
        self._columns = _Columns(contract)
        self._take_apart = msgspec.json.Decoder(_record_type(self._columns)).decode
        self._take_item_apart = msgspec.json.Decoder(_Exported).decode

    def decode(self, data: str | bytes, sequence: str | None, position: str) -> Decoded:
        """Decode the data of one Kinesis record. ``sequence`` is its sequence number, None where the source does not
        tell it; ``position`` is kept as it is. Raises BadRecord."""
        try:
            return Decoded(self._rows(self._take_apart(_unicode(data)), sequence, position))
        except _DEFECTS as error:
            raise _bad(error) from None

    def item(self, line: str | bytes, exported_at_micros: int, position: str) -> Decoded:
        """Decode a line of an export, ``{"Item": {…}}`` with an image in DynamoDB JSON, as the item was at that time,
        in microseconds since 1970. Raises BadRecord."""
        try:
            image = self._take_item_apart(_unicode(line)).Item
            order = self._order(0, exported_at_micros, "0" * _TIE_DIGITS)
            tail = ("r", order, _moment(exported_at_micros), position)
            return Decoded((self._row(image, tail),))
        except _DEFECTS as error:
            raise _bad(error) from None

    def _rows(self, record: Any, sequence: str | None, position: str) -> tuple[tuple[Any, ...], ...]:
        if record.tableName != self._table:
            raise BadRecord(f"tableName: found {record.tableName!r}, expected {self._table!r}")
        op = _OPS.get(record.eventName)
        if op is None:
            raise BadRecord(f"eventName: found {record.eventName!r}, expected {', '.join(_OPS)}")
        change = record.dynamodb
        micros = _micros(change.ApproximateCreationDateTime, change.ApproximateCreationDateTimePrecision)
        tie = _event_digits(record.eventID) if sequence is None else _sequence_digits(sequence)
        tail = (op, self._order(1, micros, tie), _moment(micros), position)
        partition = self._columns.partition
        if partition and op != "c" and change.OldImage is None:
            raise BadRecord(f"{record.eventName} without OldImage: it would tell the partition")
        if op == "d":
            values: list[Any] = [None] * self._columns.width
            for column in self._columns.key:
                values[column.at] = column.of(_member(change.Keys, column))
            for column in partition:
                values[column.at] = column.of(_member(change.OldImage, column))
            return (self._tombstone(values, tail, "ttl" if _is_time_to_live(record.userIdentity) else "client"),)
        image = change.NewImage
        if image is None:
            raise BadRecord(f"{record.eventName} without NewImage")
        row = self._row(image, tail)
        if op == "u" and partition:
            old = [(column, _member(change.OldImage, column)) for column in partition]
            moved = [(column, raw) for column, raw in old if raw != image.get(column.name)]
            if moved:
                values = [None] * self._columns.width
                for at in self._identity.kept_at:
                    values[at] = row[at]
                for column, raw in moved:
                    try:
                        values[column.at] = column.of(raw)
                    except Unfit:
                        values[column.at] = None  # the item was refused then, so it left no copy
                if self._identity.leaves_copy(values, row):
                    # Nobody deleted the item, only its copy there.
                    return row, self._tombstone(values, tail, None)
        return (row,)

    def _order(self, kind: int, micros: int, tie: str) -> str:
        """The text that compares two changes of an item: epoch, 0 for an exported item or 1 for a change, the time,
        and what decides between two of one time. 81 digits."""
        return f"{self._epoch}{kind}{micros:020d}{tie}"

    def _row(self, image: _Image, tail: tuple[Any, ...]) -> tuple[Any, ...]:
        values, rest = self._columns.read(image)
        return (*values, self._identity.record_key(values), *tail, False, None, rest)

    def _tombstone(self, values: list[Any], tail: tuple[Any, ...], deleted_by: str | None) -> tuple[Any, ...]:
        return (*values, self._identity.record_key(values), *tail, True, deleted_by, None)


# --- Records ----------------------------------------------------------------------------------------------------------


class _Exported(msgspec.Struct):
    """A line of an export."""

    Item: dict[str, Raw]


def _record_type(columns: _Columns) -> Any:
    """The type of a Kinesis record: of Keys and OldImage only what tells key and partition, of NewImage everything.
    What has no type here is checked where it is used."""
    text = msgspec.field(default=None)
    change = msgspec.defstruct(
        "Change",
        [
            ("ApproximateCreationDateTime", Any, text),
            ("ApproximateCreationDateTimePrecision", Any, text),
            ("Keys", _members_type("Keys", columns.key) | None, text),
            ("NewImage", dict[str, Raw] | None, text),
            ("OldImage", _members_type("OldImage", columns.partition) | None, text),
        ],
    )
    names = ("tableName", "eventName", "eventID", "userIdentity")
    return msgspec.defstruct("Record", [("dynamodb", change), *((name, Any, text) for name in names)])


def _members_type(name: str, columns: Sequence[_Attribute]) -> Any:
    """The type of an image of which only the attributes of these columns are wanted, as text."""
    if any(encode_basestring(column.name) != f'"{column.name}"' for column in columns):
        return dict[str, Raw]  # a type's members cannot be called so
    names = {column.member: column.name for column in columns}
    members = [(member, Raw, msgspec.field(default=None, name=name)) for member, name in names.items()]
    return msgspec.defstruct(name, members)


def _member(image: Any, column: _Attribute) -> Raw | None:
    """The text of a column's attribute in such an image."""
    return image.get(column.name) if isinstance(image, dict) else getattr(image, column.member, None)


def _unicode(data: str | bytes) -> str | bytes:
    """The data, where it is UTF-8: not everything in it is going to be read. Raises UnicodeError."""
    if isinstance(data, bytes) and not data.isascii():
        data.decode("utf-8")
    return data


def _bad(error: BaseException) -> BadRecord:
    known = isinstance(error, (BadRecord, Unfit, msgspec.MsgspecError))
    return BadRecord(str(error) if known else f"{type(error).__name__}: {error}")


def _micros(time: Any, precision: Any) -> int:
    """ApproximateCreationDateTime in microseconds since 1970."""
    # Records tell the precision since it can be chosen; until then there were only milliseconds.
    unit = _MICROS.get("MILLISECOND" if precision is None else precision)
    if unit is None:
        raise BadRecord(f"ApproximateCreationDateTimePrecision: found {precision!r}, expected {' or '.join(_MICROS)}")
    if type(time) is not int or time < 0:
        raise BadRecord(f"ApproximateCreationDateTime: found {time!r}, expected a number")
    return time * unit


def _moment(micros: int) -> dt.datetime:
    return _EPOCH_START + dt.timedelta(microseconds=micros)


def _sequence_digits(sequence: str) -> str:
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= _TIE_DIGITS):
        raise BadRecord(f"sequence number: found {sequence!r}, expected at most {_TIE_DIGITS} digits")
    return sequence.zfill(_TIE_DIGITS)


def _event_digits(event_id: Any) -> str:
    """Digits that are the same for each repetition of an event, and others for another event."""
    if not isinstance(event_id, str) or not event_id:
        raise BadRecord(f"eventID: found {event_id!r}, expected a text, since the source tells no sequence number")
    digest = int.from_bytes(hashlib.sha256(event_id.encode()).digest(), "big")
    return f"{digest % 10**_TIE_DIGITS:0{_TIE_DIGITS}d}"


def _is_time_to_live(identity: Any) -> bool:
    return (
        isinstance(identity, dict)
        and identity.get("type") == "Service"
        and identity.get("principalId") == "dynamodb.amazonaws.com"
    )


# --- Images -----------------------------------------------------------------------------------------------------------

_Path = tuple[Any, Any]
"""Where a value lies: the path of what holds it, None for the item itself, and its name or index there."""
_Leftovers = list[tuple[_Path, Any]]
_Inner = Callable[[Any, _Path, _Leftovers], Any]
"""Converts what stands beside a tag, at that path; what no type names goes to the leftovers."""
_Fast = tuple[int, Callable[[Raw], Any], "Converter | None"]
"""Where a value goes; what checks its type and gives what stands beside the tag, as ``value``; what makes the column's
value of that, None where it is one."""


class _Columns:
    """A contract's columns. ``key`` and ``partition`` are those of both."""

    def __init__(self, contract: Contract) -> None:
        identity = Identity(contract)
        columns = [_Attribute(at, column, plain=at in identity.kept_at) for at, column in enumerate(contract.columns)]
        self.width = len(columns)
        self.key = [columns[at] for at in identity.key_at]
        self.partition = [columns[at] for at in identity.partition_at]
        self._blank = [column.absent for column in columns]
        self._attributes = _Attributes(columns)

    def read(self, image: _Image) -> tuple[list[Any], str | None]:
        """The columns' values, and ``_rest``. Raises Unfit."""
        values = self._blank.copy()
        rest: list[Any] = []
        leftovers: _Leftovers = []
        self._attributes.read(image, values, rest, leftovers)
        if leftovers:
            rest += (b",", _dump({_spell(path): value for path, value in leftovers})[1:-1].encode())
        if not rest:
            return values, None
        text = f"{{{b''.join(rest)[1:].decode()}}}"
        return values, _in_unicode(text)


class _Attributes:
    """The attributes of an item, or of a map that paths lead into; ``where`` is the map's own path."""

    def __init__(self, columns: Sequence[_Attribute], where: tuple[str, ...] = ()) -> None:
        self._where = where
        self._ending: dict[str, list[_Attribute]] = {}
        leading: dict[str, list[_Attribute]] = {}
        for column in columns:
            name, *further = column.path[len(where) :]
            (leading if further else self._ending).setdefault(name, []).append(column)
        self._inside = {name: _Attributes(found, (*where, name)) for name, found in leading.items()}
        self._first_inside = {name: found[0] for name, found in leading.items()}
        self._known = self._ending.keys() | leading.keys()
        # What most are: one column's, and nothing else's.
        self._fast = {
            name: found[0].fast for name, found in self._ending.items() if len(found) == 1 and name not in leading
        }
        divided = (name for name in self._known if name in leading or any(one.has_parts for one in self._ending[name]))
        self._reserved = ('"', *(f"{name}." for name in divided))
        self._opening = functools.lru_cache(maxsize=10_000)(self._opening_of)

    def _opening_of(self, name: str) -> bytes:
        """What stands before an attribute's text in ``_rest``: a comma, the name, a colon. The name is as it is, unless
        that could be read as a path."""
        is_plain = not self._where and name not in self._known and not name.startswith(self._reserved)
        return f",{encode_basestring(name if is_plain else dotted((*self._where, name)))}:".encode()

    def read(self, image: _Image, values: list[Any], rest: list[Any], leftovers: _Leftovers) -> None:
        """Set the columns' values; what no column names goes to the rest, as openings and texts, or to the leftovers.
        Raises Unfit."""
        for name, raw in image.items():
            fast = self._fast.get(name)
            if raw == _NULL_TEXT or (fast is None and name not in self._known):
                rest += (self._opening(name), raw)
                continue
            if fast is not None:
                at, decode, convert = fast
                try:
                    value = decode(raw).value
                    values[at] = value if convert is None else convert(value)
                    continue
                except _DEFECTS:
                    pass  # the slower way says what is wrong, or finds that there are leftovers
            self._take(name, raw, values, rest, leftovers)

    def _take(self, name: str, raw: Raw, values: list[Any], rest: list[Any], leftovers: _Leftovers) -> None:
        """Read an attribute that columns name, in the way that can tell everything."""
        ending, inside = self._ending.get(name), self._inside.get(name)
        if inside is not None:
            try:
                members = _map(raw).value
            except msgspec.MsgspecError:
                value = _parse(raw)
                if value is not None and not _is_null(value):
                    raise self._first_inside[name].unfit(value, unfit(value, "type M")) from None
            else:
                if ending is not None:
                    inside.read(members, values, [], [])  # nothing is left of what a column holds as a whole
                elif members:
                    inside.read(members, values, rest, leftovers)
                    return
        value = _parse(raw)
        if value is None:
            return
        if _is_null(value) or ending is None:
            rest += (self._opening(name), raw)  # a map on the way of a path that is NULL, or empty, leaves its trace
            return
        path = _path((*self._where, name))
        for column in ending:
            try:
                values[column.at] = column.take(value, path, leftovers)
            except _DEFECTS as error:
                raise column.unfit(value, error) from None


def _path(names: Sequence[str]) -> Any:
    where: _Path | None = None
    for name in names:
        where = (where, name)
    return where


def _spell(path: _Path) -> str:
    names: list[str] = []
    holder: Any = path
    while holder is not None:
        holder, name = holder
        names.append(str(name))
    return dotted(names[::-1])


def _in_unicode(text: str) -> str:
    """The JSON as it is. Raises UnicodeError for half a surrogate pair, which an escape can hold and nothing else."""
    if "\\u" in text:
        _dump(json.loads(text, parse_float=str)).encode("utf-8")
    return text


class _Attribute:
    """Where a column's value stands in an item, and how it is converted: by ``fast`` if it leaves nothing over, else by
    ``take``."""

    def __init__(self, at: int, column: Column, *, plain: bool) -> None:
        self.at = at
        self.path = column.path
        self.name = column.path[0]
        self.member = f"name_{self.name.encode().hex()}"
        self.tag = column.source_type or ""
        self.absent = UNKNOWN_MONTH if column.transform == "month" else None
        self.has_parts = _has_parts(column.type)
        self._column = column.name
        self._convert: Converter | None = None
        self._inner: _Inner | None = None
        beside: Any
        convert: Converter | None
        if column.transform == "month":
            self._convert = _month
            beside, convert = str, _month
        elif column.type.kind == "string" and self.tag in _DOCUMENTS:
            beside, convert = Raw, functools.partial(_document, self.tag)
        elif self.has_parts:
            self._inner = _with_parts(column.type)
            beside, convert = _typed(self.tag, column.type)
        else:
            self._convert = _flat(self.tag, column.type, plain)
            beside, convert = _typed(self.tag, column.type, plain)
        self.fast: _Fast = (at, _decoder(self.tag, beside), convert)

    def of(self, raw: Raw | None) -> Any:
        """The column's value, for a column of a key or a partition. Raises Unfit."""
        value = None if raw is None else _parse(raw)
        if value is None or _is_null(value):
            return self.absent
        try:
            return self.take(value, _path(self.path), [])
        except _DEFECTS as error:
            raise self.unfit(value, error) from None

    def take(self, value: Any, path: _Path, leftovers: _Leftovers) -> Any:
        """The column's value, which stands at that path. Raises what ``_DEFECTS`` names."""
        inside = _only(value, self.tag)
        if self._convert is not None:
            return self._convert(inside)
        if self._inner is not None:
            return self._inner(inside, path, leftovers)
        if not isinstance(inside, _DOCUMENTS[self.tag]):
            raise unfit(value, f"type {self.tag}")
        return _dump(value)

    def unfit(self, value: Any, error: BaseException) -> Unfit:
        """The refusal of a value of this attribute, by what its conversion raised."""
        return Unfit(f"{self._column}: {error if isinstance(error, Unfit) else unfit(value, f'type {self.tag}')}")


# --- Values -----------------------------------------------------------------------------------------------------------


def _is_null(value: Any) -> bool:
    return bool(value == _NULL) and value["NULL"] is True


def _only(value: Any, tag: str) -> Any:
    """What stands beside the tag of a value of that type. Raises Unfit."""
    if type(value) is not dict or len(value) != 1 or tag not in value:
        raise unfit(value, f"type {tag}")
    return value[tag]


_BESIDE: dict[str, Any] = {
    "S": str,
    "N": str,
    "B": bytes,
    "BOOL": bool,
    "SS": list[str],
    "NS": list[str],
    "BS": list[bytes],
}
"""What stands beside the tag of a value of a type without parts."""


_INNER_TAGS = {
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


def _has_parts(type_: Type) -> bool:
    """Whether something of a value can be left over: not of a scalar, nor of a list or set of scalars."""
    return type_.kind == "struct" or (type_.element is not None and type_.element.kind in ("struct", "array"))


def _inner(type_: Type) -> tuple[Converter, None] | tuple[None, _Inner]:
    """The converter of what stands beside the tag of a value inside a map or a list: of one without parts, or of one
    with."""
    return (None, _with_parts(type_)) if _has_parts(type_) else (_flat(_INNER_TAGS[type_.kind], type_, False), None)


def _with_parts(type_: Type) -> _Inner:
    return _struct(type_) if type_.element is None else _array(type_.element)


def _struct(type_: Type) -> _Inner:
    members = [(name, _INNER_TAGS[member.kind], *_inner(member)) for name, member in type_.fields]
    known = {name for name, _ in type_.fields}

    def convert(raw: Any, path: _Path, leftovers: _Leftovers) -> tuple[Any, ...]:
        if type(raw) is not dict:
            raise unfit(raw, "a map")
        found: list[Any] = []
        present = 0
        for name, tag, flat, inner in members:
            value = raw.get(name)
            if value is None:
                found.append(None)
                continue
            present += 1
            if tag in value and len(value) == 1:
                found.append(inner(value[tag], (path, name), leftovers) if flat is None else flat(value[tag]))
            elif _is_null(value):
                found.append(None)
                leftovers.append(((path, name), value))
            else:
                raise unfit(value, f"type {tag}")
        if present != len(raw):
            leftovers.extend(((path, name), raw[name]) for name in raw if name not in known)
        return tuple(found)

    return convert


def _array(element: Type) -> _Inner:
    """A list of what has parts. A NULL among them is null, and a leftover like any other NULL among parts."""
    tag, inner = _INNER_TAGS[element.kind], _with_parts(element)

    def convert(raw: Any, path: _Path, leftovers: _Leftovers) -> list[Any]:
        found: list[Any] = []
        for index, value in enumerate(_members(raw)):
            if _is_null(value):
                found.append(None)
                leftovers.append(((path, index), value))
            else:
                found.append(inner(_only(value, tag), (path, index), leftovers))
        return found

    return convert


def _flat(tag: str, type_: Type, plain: bool) -> Converter:
    """The converter of what stands beside ``tag`` where nothing can be left over. ``plain``: a number that becomes
    text is written in one way only."""
    if type_.element is not None:
        inside = tag[0] if tag in ("SS", "NS", "BS") else _INNER_TAGS[type_.element.kind]
        member = _flat(inside, type_.element, plain)
        return _list(inside, member) if tag == "L" else _set(member)
    if tag == "N":
        return _number(type_, plain)
    if tag == "B":
        return _bytes
    return _text if type_.kind == "string" else scalar_converter(type_)


# A slot of C: it refuses everything that is no str, and costs less than a function.
_text: Converter = str.__str__


def _tagged(tag: str, beside: Any) -> Any:
    """The type of a value: an object of nothing but the tag, with what stands beside it as ``value``."""
    members = [("value", beside, msgspec.field(name=tag))]
    return msgspec.defstruct(tag, members, forbid_unknown_fields=True, frozen=True, gc=False)


def _decoder(tag: str, beside: Any) -> Callable[[Raw], Any]:
    return msgspec.json.Decoder(_tagged(tag, beside)).decode


_map = _decoder("M", dict[str, Raw])


def _typed(tag: str, type_: Type, plain: bool = False) -> tuple[Any, Converter | None]:
    """The type of what stands beside the tag of a value that leaves nothing over, and what makes the lake's value of
    it; None where it is one."""
    if type_.kind == "struct":
        return _typed_struct(type_)
    if tag == "L" and type_.element is not None:
        inner = _INNER_TAGS[type_.element.kind]
        beside, convert = _typed(inner, type_.element)
        return list[_tagged(inner, beside)], _values if convert is None else _converted_values(convert)  # type: ignore[misc]
    convert = None if tag in ("B", "BOOL", "SS", "BS") else _flat(tag, type_, plain)
    return _BESIDE[tag], None if convert is _text else convert


def _typed_struct(type_: Type) -> tuple[Any, Converter | None]:
    members, paths, converters = [], [], []
    for number, (name, member) in enumerate(type_.fields):
        tag = _INNER_TAGS[member.kind]
        beside, convert = _typed(tag, member)
        tagged = _tagged(tag, beside)
        members.append((f"member_{number}", tagged, msgspec.field(name=name, default=tagged(None))))
        paths.append(f"member_{number}.value")
        if convert is not None:
            converters.append((number, convert))
    get: Any = attrgetter(*paths) if len(paths) > 1 else lambda found, one=attrgetter(*paths): (one(found),)
    beside = msgspec.defstruct("M", members, forbid_unknown_fields=True, frozen=True, gc=False)
    if not converters:
        return beside, get

    def convert_members(found: Any) -> tuple[Any, ...]:
        values = [*get(found)]
        for at, convert in converters:
            if values[at] is not None:
                values[at] = convert(values[at])
        return tuple(values)

    return beside, convert_members


def _values(found: list[Any]) -> list[Any]:
    return [one.value for one in found]


def _converted_values(convert: Converter) -> Converter:
    return lambda found: [convert(one.value) for one in found]


def _members(raw: Any) -> list[Any]:
    if type(raw) is not list:
        raise unfit(raw, "a list")
    return raw


def _list(tag: str, member: Converter) -> Converter:
    return lambda raw: [None if _is_null(value) else member(_only(value, tag)) for value in _members(raw)]


def _set(member: Converter) -> Converter:
    return lambda raw: [member(value) for value in _members(raw)]


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


_DOCUMENTS: dict[str, type] = {"M": dict, "L": list}
"""What a map and a list are in JSON."""


def _document(tag: str, inside: Raw) -> str:
    """A map's or a list's DynamoDB JSON, of what stands beside its tag."""
    text = msgspec.json.format(inside, indent=-1).decode()
    if text[0] != ("{" if tag == "M" else "["):
        raise unfit(text, f"type {tag}")
    return f'{{"{tag}":{_in_unicode(text)}}}'


def _month(raw: Any) -> str:
    """The month of a date or a timestamp in ISO 8601."""
    _date(raw[:_DATE_LENGTH])
    if raw[_DATE_LENGTH : _DATE_LENGTH + 1] not in ("", "T", " "):
        raise unfit(raw, "a date or a timestamp")
    return str.__str__(raw)[:_MONTH_LENGTH]


# --- Batches ----------------------------------------------------------------------------------------------------------


def decode_records(
    records: Iterator[tuple[str | bytes, str | None, str]], decoder: DynamoDecoder
) -> Iterator[tuple[Any, ...]]:
    """Kinesis records, each its data, its sequence number or None, and its position, to rows of ``columns_tagged``. A
    bad record is kept as JSON: ``data``, or ``data_base64`` where it is not UTF-8, ``sequence`` and ``position``."""
    nothing = (None,) * decoder.width
    for data, sequence, position in records:
        try:
            decoded = decoder.decode(data, sequence, position)
        except BadRecord as bad:
            yield (*nothing, None, str(bad), _kept(data, sequence, position))
            continue
        for row in decoded.rows:
            yield (*row, None, None, None)


def _kept(data: str | bytes, sequence: str | None, position: str) -> str:
    document: dict[str, str | None] = {"sequence": sequence, "position": position}
    try:
        document["data"] = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(data).decode("ascii")  # type: ignore[arg-type]
    return json.dumps(document)

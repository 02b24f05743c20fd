"""DynamoDB's changes, in the JSON of its Kinesis destination, and its exported items to rows of a lake table.

Decoding costs what Python objects are made, so a record is not parsed as a whole. The new image is parsed attribute by
attribute, and one that no column names is copied as text; of the old image only what differs from the new one is
parsed. A record that is not written in DynamoDB's order or has other spacing is parsed as a whole, and means the same.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from json.scanner import make_scanner
from typing import Any

from headwater.contract import UNKNOWN_MONTH, Column, Contract, Type
from headwater.lake.changes import BadRecord, Decoded, Identity, epoch_digits, plain_digits
from headwater.lake.convert import Converter, Unfit, dotted, scalar_converter, unfit

_OPS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d"}
_MICROS = {"MILLISECOND": 1000, "MICROSECOND": 1}
_NULL = {"NULL": True}
_TIE_DIGITS = 56  # as many as a Kinesis sequence number has at most
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

# In the two spacings that are read by parts: DynamoDB's own, and one space after each colon and comma.
_NEW_IMAGE = '"NewImage":'
_COMMAS = (',"', ', "')
_OLD_IMAGES = (',"OldImage":{', ', "OldImage": {')

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_DATE_LENGTH, _MONTH_LENGTH = len("2024-02-29"), len("2024-02")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_scan: Callable[[str, int], tuple[Any, int]] = make_scanner(_DECODER)  # type: ignore[arg-type]
_date = scalar_converter(Type("date"))
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

# What a defect of a record raises while it is taken apart; the scanner raises StopIteration.
_DEFECTS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, StopIteration)


class DynamoDecoder:
    """Decodes the changes and the exported items of one table. ``table`` is the table's actual name where the contract
    calls it otherwise. An operator raises ``epoch`` when the source's history was cut."""

    def __init__(self, contract: Contract, epoch: int = 1, table: str | None = None) -> None:
        self.width = len(contract.lake_columns())
        self._table = contract.source.table if table is None else table
        self._epoch = epoch_digits(epoch)
        self._identity = Identity(contract)
        self._images = _ImageReader(contract)
        self._key = [_Attribute(at, contract.columns[at], plain=True) for at in self._identity.key_at]
        self._partition = [_Attribute(at, contract.columns[at], plain=True) for at in self._identity.partition_at]

    def decode(self, data: str | bytes, sequence: str | None, position: str) -> Decoded:
        """Decode the data of one Kinesis record. ``sequence`` is its sequence number, None where the source does not
        tell it; ``position`` is kept as it is. Raises BadRecord."""
        try:
            text = data if isinstance(data, str) else data.decode("utf-8")
            if "\\" in text and ("\\ud" in text or "\\uD" in text):
                _check_unicode(text)
            return Decoded(self._rows(*(self._parts(text) or self._whole(text)), sequence, position))
        except _DEFECTS as error:
            raise _bad(error) from None

    def item(self, item: Mapping[str, Any], exported_at_micros: int, position: str) -> Decoded:
        """Decode an exported item, an image in DynamoDB JSON, as it was at that time, in microseconds since 1970.
        Raises BadRecord."""
        try:
            text = _dump(item)
            if not text.isascii():
                _check_unicode(text)
            order = self._order(0, exported_at_micros, "0" * _TIE_DIGITS)
            tail = ("r", order, _moment(exported_at_micros), position)
            return Decoded((self._row(self._images.read(text, 0, 0), tail),))
        except _DEFECTS as error:
            raise _bad(error) from None

    def _parts(self, text: str) -> tuple[Any, Any, _Image, Any] | None:
        """Take an INSERT or MODIFY apart without parsing it as a whole: the record without its images, its
        ``dynamodb``, the new image, and the old one as ``_rows`` wants it. None for anything else, defects included."""
        start = text.find(_NEW_IMAGE) + len(_NEW_IMAGE)
        if start < len(_NEW_IMAGE):
            return None
        gap = 1 if text.startswith(" ", start) else 0
        start += gap
        try:
            image = self._images.read(text, start, gap)
            old, end = None, image.end
            if text.startswith(_OLD_IMAGES[gap], end):
                wanted = self._partition[0].name if self._partition else ""
                old, end = image.compare(text, end + len(_OLD_IMAGES[gap]), wanted)
            frame = f"{text[:start]}null{text[end:]}"
            record, length = _scan(frame, 0)
            change = record["dynamodb"]
            if length != len(frame) or change["NewImage"] is not None:
                return None  # what was found is not the record's NewImage
            return record, change, image, change.get("OldImage") if old is None else old
        except _DEFECTS:
            return None

    def _whole(self, text: str) -> tuple[Any, Any, _Image | None, Any]:
        """As ``_parts``, of any record, by parsing it as a whole. Raises what ``_DEFECTS`` names."""
        record = _DECODER.decode(text)
        change = record.get("dynamodb") if isinstance(record, dict) else None
        if not isinstance(change, dict):
            raise BadRecord("no record of DynamoDB: tableName, eventName and dynamodb expected")
        images = [change.get(name) for name in ("NewImage", "OldImage")]
        if not all(image is None or isinstance(image, dict) for image in images):
            raise BadRecord("NewImage, OldImage: found something else than objects")
        new, old = images
        return record, change, None if new is None else self._images.read(_dump(new), 0, 0), old

    def _rows(
        self,
        record: dict[str, Any],
        change: dict[str, Any],
        image: _Image | None,
        old: Any,
        sequence: str | None,
        position: str,
    ) -> tuple[tuple[Any, ...], ...]:
        """The rows of a change. ``old`` is None, ``_REPEATED``, or has at least the partition's attribute."""
        if record.get("tableName") != self._table:
            raise BadRecord(f"tableName: found {record.get('tableName')!r}, expected {self._table!r}")
        event = record.get("eventName")
        op = _OPS.get(event)  # type: ignore[arg-type]
        if op is None:
            raise BadRecord(f"eventName: found {event!r}, expected {', '.join(_OPS)}")
        micros = _created(change)
        tie = _event_digits(record) if sequence is None else _sequence_digits(sequence)
        tail = (op, self._order(1, micros, tie), _moment(micros), position)
        if old is None and self._partition and op != "c":
            raise BadRecord(f"{event} without OldImage: it would tell the partition")
        if op == "d":
            if not isinstance(change.get("Keys"), dict):
                raise BadRecord("REMOVE without Keys")
            values = self._identified({column.at: column.of(change["Keys"]) for column in self._key}, old)
            return (self._tombstone(values, tail, "ttl" if _is_time_to_live(record) else "client"),)
        if image is None:
            raise BadRecord(f"{event} without NewImage")
        row = self._row(image, tail)
        if op == "u" and self._partition and old is not _REPEATED:
            values = self._identified({at: row[at] for at in self._identity.key_at}, old)
            if self._identity.leaves_copy(values, row):
                # Nobody deleted the item, only its copy there.
                return row, self._tombstone(values, tail, None)
        return (row,)

    def _order(self, kind: int, micros: int, tie: str) -> str:
        """The text that compares two changes of an item: epoch, 0 for an exported item or 1 for a change, the time,
        and what decides between two of one time. 81 digits."""
        return f"{self._epoch}{kind}{micros:020d}{tie}"

    def _row(self, image: _Image, tail: tuple[Any, ...]) -> tuple[Any, ...]:
        values = image.values
        return (*values, self._identity.record_key(values), *tail, False, None, image.rest)

    def _identified(self, key: Mapping[int, Any], old: Mapping[str, Any]) -> list[Any]:
        """A row's values with the key and the partition that the old image tells, all else None."""
        values: list[Any] = [None] * self._images.width
        for column in self._partition:
            values[column.at] = column.of(old)
        for at, value in key.items():
            values[at] = value
        return values

    def _tombstone(self, values: list[Any], tail: tuple[Any, ...], deleted_by: str | None) -> tuple[Any, ...]:
        return (*values, self._identity.record_key(values), *tail, True, deleted_by, None)


# --- Records ----------------------------------------------------------------------------------------------------------


def _bad(error: BaseException) -> BadRecord:
    known = isinstance(error, (BadRecord, Unfit))
    return BadRecord(str(error) if known else f"{type(error).__name__}: {error}")


def _check_unicode(text: str) -> None:
    """Refuse half a surrogate pair, which JSON can escape and nothing else can hold."""
    _dump(_DECODER.decode(text)).encode("utf-8")


def _created(change: Mapping[str, Any]) -> int:
    """When DynamoDB made the change, in microseconds since 1970."""
    time, precision = change.get("ApproximateCreationDateTime"), change.get("ApproximateCreationDateTimePrecision")
    # Records say their precision since it can be chosen; until then there were only milliseconds.
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


def _event_digits(record: Mapping[str, Any]) -> str:
    """Digits that are the same for each repetition of an event, and others for another event."""
    event = record.get("eventID")
    if not isinstance(event, str) or not event:
        raise BadRecord(f"eventID: found {event!r}, expected a text, since the record has no sequence number")
    digest = int.from_bytes(hashlib.sha256(event.encode()).digest(), "big")
    return f"{digest % 10**_TIE_DIGITS:0{_TIE_DIGITS}d}"


def _is_time_to_live(record: Mapping[str, Any]) -> bool:
    identity = record.get("userIdentity")
    return (
        isinstance(identity, dict)
        and identity.get("type") == "Service"
        and identity.get("principalId") == "dynamodb.amazonaws.com"
    )


# --- Images -----------------------------------------------------------------------------------------------------------

_REPEATED: Any = object()
"""In place of an old image: it repeats the new one's attribute of the partition."""

_Path = tuple[Any, Any]
"""Where a value lies: the path of what holds it, None for the item itself, and its name or index there."""
_Leftovers = list[tuple[_Path, Any]]
_Inner = Callable[[Any, _Path, _Leftovers], Any]
"""Converts what stands beside a tag, at that path; what no type names goes to the leftovers."""


class _Image:
    """What was read of an item: the values of the contract's columns, ``_rest``, and where its attributes lie."""

    __slots__ = ("_ends", "_first", "_gap", "_names", "end", "rest", "values")

    def __init__(
        self,
        values: list[Any],
        rest: list[str],
        names: list[str],
        ends: list[int],
        first: int,
        gap: int,
    ) -> None:
        self.values = values
        self.rest = "{" + ",".join(rest) + "}" if rest else None
        self.end = (ends[-1] if ends else first) + 1
        self._names = names
        self._ends = ends
        self._first = first
        self._gap = gap

    def compare(self, text: str, at: int, wanted: str) -> tuple[Any, int]:
        """Go through the image whose first attribute stands at ``at``, parsing only what differs from this one.

        Returns ``_REPEATED`` where both have the same attribute ``wanted``, else a mapping that has it if the image
        does; and where the image ends. Raises what ``_DEFECTS`` names.
        """
        names, ends, gap = self._names, self._ends, self._gap
        comma, step = _COMMAS[gap], 1 + gap
        found: Any = {}
        if text[at] == "}":
            return found, at + 1
        near = 0  # the attribute of this image that may come next
        differs = False  # whether it is known not to come as it is
        while True:
            begin = ends[near - 1] + step if near else self._first
            same = near if differs else self._repeated(text, at, near, begin)
            if same > near:
                at += ends[same - 1] - begin
                if wanted in names[near:same]:
                    found = _REPEATED
                near, differs = same, True
            else:
                name, after = scanstring(text, at + 1)
                if text[at] != '"' or text[after] != ":":
                    raise ValueError("expected an attribute's name and a colon")
                value, at = _scan(text, after + step)
                if name == wanted:
                    found = {name: value}
                if name in names:
                    near = names.index(name) + 1
                differs = False
            if text.startswith(comma, at):
                at += step
            elif text[at] == "}":
                return found, at + 1
            else:
                raise ValueError("expected a comma between attributes")

    def _repeated(self, text: str, at: int, near: int, begin: int) -> int:
        """Up to which attribute of this image ``text`` repeats them from ``at`` on, beginning with ``near``."""
        ends = self._ends
        known = len(ends)
        if near == known or text.startswith(text[begin : ends[-1]], at):
            return known
        same, differs = near, known
        while differs - same > 1:
            middle = (same + differs) // 2
            if text.startswith(text[begin : ends[middle - 1]], at):
                same = middle
            else:
                differs = middle
        return same


class _ImageReader:
    """Reads items in DynamoDB JSON for a contract."""

    def __init__(self, contract: Contract) -> None:
        identity = {*contract.key, *contract.partition_by}
        attributes: dict[str, list[_Attribute]] = {}
        for at, column in enumerate(contract.columns):
            attribute = _Attribute(at, column, plain=column.name in identity)
            attributes.setdefault(attribute.name, []).append(attribute)
        self.width = len(contract.columns)
        self._blank = [_absent(column) for column in contract.columns]
        self._named = frozenset(attributes)
        # What most attributes are: one column, of a type without parts.
        self._flat = {
            name: (one.at, one.tag, one.convert, one)
            for name, (one, *others) in attributes.items()
            if not others and not one.path and one.convert is not None
        }
        self._shared = {name: _Parts(name, found) for name, found in attributes.items() if name not in self._flat}

    def read(self, text: str, start: int, gap: int) -> _Image:
        """Read the item whose JSON begins at ``start``, with ``gap`` spaces after each colon and comma. Raises what
        ``_DEFECTS`` names."""
        values = self._blank.copy()
        names: list[str] = []
        ends: list[int] = []
        rest: list[str] = []
        leftovers: _Leftovers = []
        flat, shared, scan = self._flat.get, self._shared.get, _scan
        comma, step = _COMMAS[gap], 1 + gap
        at = start + 1
        if text.startswith("{}", start):
            return _Image(values, rest, names, ends, at, gap)
        if not text.startswith('{"', start):
            raise ValueError("expected an item")
        while True:
            name, after = scanstring(text, at + 1)
            if text[after] != ":":
                raise ValueError("expected a colon after an attribute's name")
            value, end = scan(text, after + step)
            names.append(name)
            ends.append(end)
            column = flat(name)
            if column is not None:
                place, tag, convert, attribute = column
                try:
                    if len(value) != 1:
                        raise KeyError(tag)
                    values[place] = convert(value[tag])
                except _DEFECTS as error:
                    if value != _NULL:
                        raise attribute.unfit(value, error) from None
                    leftovers.append(((None, name), value))
            elif (parts := shared(name)) is not None:
                parts.take(value, text[after + step : end], values, leftovers)
            else:
                if type(value) is not dict or len(value) != 1:
                    raise Unfit(f"{name}: {unfit(value, 'a value with its type')}")
                if "." in name or name.startswith('"'):
                    rest.append(f"{self._spelled(name)}:{text[after + step : end]}")
                else:
                    rest.append(text[at:end])
            if text[end : end + step + 1] == comma:
                at = end + step
            elif text[end] == "}":
                break
            else:
                raise ValueError("expected a comma between attributes")
        if leftovers:
            rest.append(_dump({_spell(path): value for path, value in leftovers})[1:-1])
        return _Image(values, rest, names, ends, start + 1, gap)

    def _spelled(self, name: str) -> str:
        """How ``_rest`` writes the name of an attribute that no column names: as it is, unless that could be read as a
        path into one that has a column."""
        plain = name.partition(".")[0] not in self._named and not name.startswith('"')
        return encode_basestring(name if plain else dotted((name,)))


def _spell(path: _Path) -> str:
    names: list[str] = []
    holder: Any = path
    while holder is not None:
        holder, name = holder
        names.append(str(name))
    return dotted(names[::-1])


def _absent(column: Column) -> Any:
    """What a column holds where the item has no such attribute."""
    return UNKNOWN_MONTH if column.transform == "month" else None


class _Attribute:
    """Where a column's value stands in an item, and how it is converted. ``convert`` takes what stands beside the
    type's tag; it is None for a type with parts, which ``inner`` converts, and for a document kept as text."""

    def __init__(self, at: int, column: Column, *, plain: bool) -> None:
        self.at = at
        self.name, *self.path = column.path
        self.tag = column.source_type or ""
        self.convert: Any = None
        self.inner: _Inner | None = None
        self._column = column.name
        self._absent = _absent(column)
        if column.transform == "month":
            self.convert = _month
        elif self.tag in ("M", "L") and column.type.kind == "string":
            pass
        elif _has_parts(column.type):
            self.inner = _with_parts(column.type)
        else:
            self.convert = _flat(self.tag, column.type, plain)

    def of(self, image: Mapping[str, Any]) -> Any:
        """The column's value out of a parsed image, for a column of a key or a partition. Raises Unfit."""
        value = image.get(self.name)
        if value is None or value == _NULL:
            return self._absent
        try:
            return self.convert(_only(value, self.tag))
        except _DEFECTS as error:
            raise self.unfit(value, error) from None

    def unfit(self, value: Any, error: BaseException) -> Unfit:
        """The refusal of a value of this attribute, by what its conversion raised."""
        return Unfit(f"{self._column}: {error if isinstance(error, Unfit) else unfit(value, f'type {self.tag}')}")


class _Parts:
    """An attribute that several columns share, or whose type has parts."""

    def __init__(self, name: str, columns: list[_Attribute]) -> None:
        self._columns = [(column, _path((None, name), column.path)) for column in columns]
        self._name = name
        self._taken = frozenset(tuple(column.path) for column in columns)

    def take(self, value: Any, source: str, values: list[Any], leftovers: _Leftovers) -> None:
        """Set the columns' values from the attribute's, whose JSON is ``source``. Raises Unfit."""
        for column, path in self._columns:
            try:
                found = value
                for name in column.path:
                    if found is None or found == _NULL:
                        break
                    found = _only(found, "M").get(name)
                if found is None or found == _NULL:
                    continue
                inside = _only(found, column.tag)
                if column.convert is not None:
                    values[column.at] = column.convert(inside)
                elif column.inner is not None:
                    values[column.at] = column.inner(inside, path, leftovers)
                else:
                    values[column.at] = _dump(found) if column.path else source
            except _DEFECTS as error:
                raise column.unfit(value, error) from None
        self._leave(value, (), (None, self._name), leftovers)

    def _leave(self, value: Any, path: tuple[str, ...], where: _Path, leftovers: _Leftovers) -> None:
        """Put what no column takes to the leftovers, and a NULL that one does: null is an absent attribute's too."""
        if path in self._taken:
            if value == _NULL:
                leftovers.append((where, value))
        elif "M" in value and any(other[: len(path)] == path for other in self._taken):
            for name, inner in value["M"].items():
                self._leave(inner, (*path, name), (where, name), leftovers)
        else:
            leftovers.append((where, value))


def _path(where: _Path, names: Sequence[str]) -> _Path:
    for name in names:
        where = (where, name)
    return where


# --- Values -----------------------------------------------------------------------------------------------------------


def _only(value: Any, tag: str) -> Any:
    """What stands beside the tag of a value of that type. Raises Unfit."""
    if type(value) is not dict or len(value) != 1 or tag not in value:
        raise unfit(value, f"type {tag}")
    return value[tag]


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
            elif value == _NULL:
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
            if value == _NULL:
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
    # A slot of C: it refuses everything that is no str, and costs less than a function.
    return str.__str__ if type_.kind == "string" else scalar_converter(type_)


def _members(raw: Any) -> list[Any]:
    if type(raw) is not list:
        raise unfit(raw, "a list")
    return raw


def _list(tag: str, member: Converter) -> Converter:
    return lambda raw: [None if value == _NULL else member(_only(value, tag)) for value in _members(raw)]


def _set(member: Converter) -> Converter:
    return lambda raw: [member(value) for value in _members(raw)]


def _number(type_: Type, plain: bool) -> Converter:
    """A number's digits, exactly: nothing here rounds."""
    if type_.kind == "string":
        return _plain_text if plain else _number_text
    exact = scalar_converter(type_)
    if type_.kind != "decimal":
        short = re.compile(r"-?\d{1,9}\Z", re.ASCII).match
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

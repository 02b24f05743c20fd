"""DynamoDB's changes, in the JSON of its Kinesis destination, and its exported items to rows of a lake table.

Decoding costs what Python objects are made, and most of a record needs none: attributes that no column names go to
``_rest`` as text, and of the old image only the partition matters. So SQLite's JSON functions, which make no objects,
take a record apart, and Python parses what they pick. Where they cannot, the whole record is parsed; the rows are the
same. See docs/decisions/dynamodb-decoding.md.
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
from typing import Any, NamedTuple

from headwater.contract import UNKNOWN_MONTH, Column, Contract, Type
from headwater.lake.changes import BadRecord, Decoded, Identity, epoch_digits, plain_digits
from headwater.lake.convert import Converter, Unfit, dotted, scalar_converter, unfit

_OPS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d"}
_MICROS = {"MILLISECOND": 1000, "MICROSECOND": 1}
_NULL = {"NULL": True}
_NULL_TEXT = '{"NULL":true}'
_TIE_DIGITS = 56  # as many as a Kinesis sequence number has at most
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_DATE_LENGTH, _MONTH_LENGTH = len("2024-02-29"), len("2024-02")

# What a defect of a record raises while it is taken apart.
_DEFECTS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_parse = json.JSONDecoder(parse_constant=_no_constant).decode
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_date = scalar_converter(Type("date"))


class _Image(NamedTuple):
    """An item taken apart: the JSON of the named attributes in the order of ``_Columns.names``, None where there is
    none; the text of those in ``_Columns.documents``; and ``_rest`` without what is left over of the named ones."""

    named: Sequence[Any]
    documents: Sequence[str | None]
    rest: str


class _Change(NamedTuple):
    """A record taken apart. ``keys`` are the JSON of the key's attributes out of Keys; ``old`` that of the
    partition's attribute out of OldImage."""

    table: Any
    event: Any
    event_id: Any
    identity: Any
    time: Any
    precision: Any
    keys: Sequence[Any]
    has_old: bool
    old: Sequence[Any]
    image: _Image | None


class DynamoDecoder:
    """Decodes the changes and the exported items of one table. ``table`` is the table's actual name where the contract
    calls it otherwise. An operator raises ``epoch`` when the source's history was cut."""

    def __init__(self, contract: Contract, epoch: int = 1, table: str | None = None) -> None:
        self.width = len(contract.lake_columns())
        self._table = contract.source.table if table is None else table
        self._epoch = epoch_digits(epoch)
        self._identity = Identity(contract)
        self._columns = _Columns(contract)
        self._query = _query(self._columns)

    def decode(self, data: str | bytes, sequence: str | None, position: str) -> Decoded:
        """Decode the data of one Kinesis record. ``sequence`` is its sequence number, None where the source does not
        tell it; ``position`` is kept as it is. Raises BadRecord."""
        try:
            text = data if isinstance(data, str) else data.decode("utf-8")
            return Decoded(self._rows(self._picked(text) or self._parsed(text), sequence, position))
        except _DEFECTS as error:
            raise _bad(error) from None

    def item(self, item: Mapping[str, Any], exported_at_micros: int, position: str) -> Decoded:
        """Decode an exported item, an image in DynamoDB JSON, as it was at that time, in microseconds since 1970.
        Raises BadRecord."""
        try:
            _check_unicode(item)
            order = self._order(0, exported_at_micros, "0" * _TIE_DIGITS)
            tail = ("r", order, _moment(exported_at_micros), position)
            return Decoded((self._row(self._columns.image(item), tail),))
        except _DEFECTS as error:
            raise _bad(error) from None

    def _picked(self, text: str) -> _Change | None:
        """Take a record apart by SQLite; None where that could differ from parsing it."""
        # SQLite compares names as they are written, with their escapes, and ends a text at a NUL.
        if self._query is None or "\0" in text or ("\\" in text and ("\\u" in text or "\\/" in text)):
            return None
        return self._query.change(text)

    def _parsed(self, text: str) -> _Change:
        """Take a record apart by parsing it. Raises what ``_DEFECTS`` names."""
        record = _parse(text)
        if "\\u" in text or not text.isascii():
            _check_unicode(record)
        change = _object(_object(record).get("dynamodb"))
        new, old = change.get("NewImage"), change.get("OldImage")
        for name, image in (("NewImage", new), ("OldImage", old)):
            if not isinstance(image, (dict, type(None))):
                raise BadRecord(f"{name}: found {type(image).__name__}, expected an object")
        table, event, event_id, identity = (
            _object(record).get(name) for name in ("tableName", "eventName", "eventID", "userIdentity")
        )
        return _Change(
            table,
            event,
            event_id,
            identity,
            change.get("ApproximateCreationDateTime"),
            change.get("ApproximateCreationDateTimePrecision"),
            [_object(change.get("Keys")).get(column.name) for column in self._columns.key],
            old is not None,
            [_object(old).get(column.name) for column in self._columns.partition],
            None if new is None else self._columns.image(new),
        )

    def _rows(self, change: _Change, sequence: str | None, position: str) -> tuple[tuple[Any, ...], ...]:
        if change.table != self._table:
            raise BadRecord(f"tableName: found {change.table!r}, expected {self._table!r}")
        op = _OPS.get(change.event)
        if op is None:
            raise BadRecord(f"eventName: found {change.event!r}, expected {', '.join(_OPS)}")
        micros = _micros(change.time, change.precision)
        tie = _event_digits(change.event_id) if sequence is None else _sequence_digits(sequence)
        tail = (op, self._order(1, micros, tie), _moment(micros), position)
        partition = self._columns.partition
        if partition and op != "c" and not change.has_old:
            raise BadRecord(f"{change.event} without OldImage: it would tell the partition")
        if op == "d":
            values: list[Any] = [None] * self._columns.width
            for column, value in zip([*self._columns.key, *partition], [*change.keys, *change.old]):
                values[column.at] = column.of(value)
            return (self._tombstone(values, tail, "ttl" if _is_time_to_live(change.identity) else "client"),)
        if change.image is None:
            raise BadRecord(f"{change.event} without NewImage")
        row = self._row(change.image, tail)
        if op == "u" and partition:
            values = [None] * self._columns.width
            for at in self._identity.key_at:
                values[at] = row[at]
            for column, value in zip(partition, change.old):
                values[column.at] = column.of(value)
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


def _bad(error: BaseException) -> BadRecord:
    known = isinstance(error, (BadRecord, Unfit))
    return BadRecord(str(error) if known else f"{type(error).__name__}: {error}")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_unicode(document: Any) -> None:
    """Refuse half a surrogate pair, which JSON can escape and nothing else can hold."""
    _dump(document).encode("utf-8")


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


# --- Taking apart by SQLite -------------------------------------------------------------------------------------------

_MAX_PATHS = 100  # SQLite's functions take 127 arguments at most


@functools.lru_cache(maxsize=1)
def _sqlite() -> Any:
    """A connection to no database, or None where this Python has no SQLite with JSON functions."""
    try:
        import sqlite3

        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.execute("SELECT json_extract('{}', '$.a')")
    except (ImportError, sqlite3.Error):
        return None
    return connection


def _query(columns: _Columns) -> _Query | None:
    """The query for a contract's columns, or None where SQLite cannot tell their names."""
    attributes = [*columns.names, *columns.documents, *(column.name for column in (*columns.key, *columns.partition))]
    fits = len(attributes) <= _MAX_PATHS and all(encode_basestring(name) == f'"{name}"' for name in attributes)
    return _Query(columns) if fits and _sqlite() is not None else None


class _Query:
    """The statement that takes a record apart for a contract. It gives one JSON array of all that is to be parsed, the
    kinds of both images, ``_rest``, and the text of each document."""

    def __init__(self, columns: _Columns) -> None:
        paths = [
            *(_sql_path(name) for name in ("tableName", "eventName", "eventID", "userIdentity")),
            _sql_path("dynamodb", "ApproximateCreationDateTime"),
            _sql_path("dynamodb", "ApproximateCreationDateTimePrecision"),
            *(_sql_path("dynamodb", "Keys", column.name) for column in columns.key),
            *(_sql_path("dynamodb", "OldImage", column.name) for column in columns.partition),
            *(_sql_path("dynamodb", "NewImage", name) for name in columns.names),
        ]
        new, old = _sql_path("dynamodb", "NewImage"), _sql_path("dynamodb", "OldImage")
        named = ", ".join(_sql_path(name) for name in (*columns.names, *columns.documents))
        selected = [
            f"json_extract(?1, {', '.join(paths)})",
            f"json_type(?1, {old})",
            f"json_type(?1, {new})",
            f"json_remove(json_extract(?1, {new}), {named})",
            *(f"json_extract(?1, {_sql_path('dynamodb', 'NewImage', name)})" for name in columns.documents),
        ]
        self._sql = f"SELECT {', '.join(selected)}"
        self._key_from = 6
        self._old_from = self._key_from + len(columns.key)
        self._named_from = self._old_from + len(columns.partition)
        self._ambiguous = tuple(f'"{name}.' for name in columns.divided)

    def change(self, text: str) -> _Change | None:
        """Take a record apart; None where it has to be parsed, defects included."""
        connection = _sqlite()
        try:
            picked, old, new, rest, *documents = connection.execute(self._sql, (text,)).fetchone()
            found = _parse(picked)
        except (connection.Error, ValueError, RecursionError):
            return None
        kinds = ("object", "null", None)
        if old not in kinds or new not in kinds:
            return None
        image = None
        if new == "object":
            if ("\\" in rest and '"\\"' in rest) or any(mark in rest for mark in self._ambiguous):
                return None  # perhaps a name that ``_rest`` writes in another way
            image = _Image(found[self._named_from :], documents, rest)
        keys, before = found[self._key_from : self._old_from], found[self._old_from : self._named_from]
        table, event, event_id, identity, time, precision = found[: self._key_from]
        return _Change(table, event, event_id, identity, time, precision, keys, old == "object", before, image)


def _sql_path(*names: str) -> str:
    path = "".join(f'."{name}"' for name in names).replace("'", "''")
    return f"'${path}'"


# --- Images -----------------------------------------------------------------------------------------------------------

_Path = tuple[Any, Any]
"""Where a value lies: the path of what holds it, None for the item itself, and its name or index there."""
_Leftovers = list[tuple[_Path, Any]]
_Inner = Callable[[Any, _Path, _Leftovers], Any]
"""Converts what stands beside a tag, at that path; what no type names goes to the leftovers."""
_Taker = Callable[[Any, list[Any], _Leftovers], None]
"""Sets the columns' values from an attribute's. Raises Unfit."""


class _Columns:
    """A contract's columns by the attributes that they come from.

    ``names`` are the attributes that are parsed, ``documents`` those that are kept as text, ``divided`` those whose
    parts can be left over. ``key`` and ``partition`` are the columns of both.
    """

    def __init__(self, contract: Contract) -> None:
        identity = Identity(contract)
        columns = [_Attribute(at, column, plain=at in identity.kept_at) for at, column in enumerate(contract.columns)]
        attributes: dict[str, list[_Attribute]] = {}
        for column in columns:
            attributes.setdefault(column.name, []).append(column)
        whole = {name: found[0] for name, found in attributes.items() if len(found) == 1 and not found[0].path}
        # What most attributes are: one column, of a type without parts.
        flat = {name: column for name, column in whole.items() if column.convert is not None}
        documents = {name: column for name, column in whole.items() if column.is_document}
        others = {name: found for name, found in attributes.items() if name not in flat and name not in documents}
        self.width = len(columns)
        self.key = [columns[at] for at in identity.key_at]
        self.partition = [columns[at] for at in identity.partition_at]
        self.names = [*flat, *others]
        self.documents = list(documents)
        self.divided = [name for name, found in attributes.items() if any(column.is_divided for column in found)]
        self._blank = [column.absent for column in columns]
        self._flat = [(column.at, column.tag, column.convert, column) for column in flat.values()]
        self._takers = [_taker(name, found) for name, found in others.items()]
        self._documents = [(column, f'{{"{column.tag}":') for column in documents.values()]
        self._known = frozenset(attributes)
        self._reserved = ('"', *(f"{name}." for name in self.divided))

    def image(self, item: Mapping[str, Any]) -> _Image:
        """Take a parsed item apart."""
        texts = [None if item.get(name) is None else _dump(item[name]) for name in self.documents]
        rest = {self._spelled(name): value for name, value in item.items() if name not in self._known}
        return _Image([item.get(name) for name in self.names], texts, _dump(rest))

    def _spelled(self, name: str) -> str:
        """How ``_rest`` writes an attribute that no column names: as it is, unless that could be read as a path."""
        return dotted((name,)) if name.startswith(self._reserved) else name

    def read(self, image: _Image) -> tuple[list[Any], str | None]:
        """The columns' values, and ``_rest``. Raises Unfit."""
        values = self._blank.copy()
        leftovers: _Leftovers = []
        for value, (at, tag, convert, column) in zip(image.named, self._flat):
            if value is None:
                continue
            try:
                if len(value) != 1:
                    raise KeyError(tag)
                values[at] = convert(value[tag])
            except _DEFECTS as error:
                if value != _NULL:
                    raise column.unfit(value, error) from None
                leftovers.append(((None, column.name), value))
        for value, take in zip(image.named[len(self._flat) :], self._takers):
            if value is not None:
                take(value, values, leftovers)
        for text, (column, opening) in zip(image.documents, self._documents):
            if text == _NULL_TEXT:
                leftovers.append(((None, column.name), _NULL))
            elif text is not None:
                if not text.startswith(opening):
                    raise column.unfit(_parse(text), KeyError(column.tag))
                values[column.at] = text
        rest = image.rest
        if leftovers:
            more = _dump({_spell(path): value for path, value in leftovers})
            rest = more if rest == "{}" else f"{rest[:-1]},{more[1:]}"
        return values, None if rest == "{}" else rest


def _spell(path: _Path) -> str:
    names: list[str] = []
    holder: Any = path
    while holder is not None:
        holder, name = holder
        names.append(str(name))
    return dotted(names[::-1])


class _Attribute:
    """Where a column's value stands in an item, and how it is converted. ``convert`` takes what stands beside the
    type's tag; it is None for a type with parts, which ``_inner`` converts, and for a document, which is kept as
    text."""

    def __init__(self, at: int, column: Column, *, plain: bool) -> None:
        self.at = at
        self.name, *self.path = column.path
        self.tag = column.source_type or ""
        self.absent = UNKNOWN_MONTH if column.transform == "month" else None
        self.is_document = column.type.kind == "string" and self.tag in ("M", "L")
        self.convert: Any = None
        self._inner: _Inner | None = None
        self._column = column.name
        if column.transform == "month":
            self.convert = _month
        elif _has_parts(column.type):
            self._inner = _with_parts(column.type)
        elif not self.is_document:
            self.convert = _flat(self.tag, column.type, plain)
        self.is_divided = bool(self.path) or self._inner is not None

    def of(self, value: Any) -> Any:
        """The column's value, for a column of a key or a partition. Raises Unfit."""
        if value is None or value == _NULL:
            return self.absent
        try:
            return self.convert(_only(value, self.tag))
        except _DEFECTS as error:
            raise self.unfit(value, error) from None

    def take(self, value: Any, path: _Path, leftovers: _Leftovers) -> Any:
        """The column's value, which stands at that path. Raises what ``_DEFECTS`` names."""
        inside = _only(value, self.tag)
        if self.convert is not None:
            return self.convert(inside)
        return _dump(value) if self._inner is None else self._inner(inside, path, leftovers)

    def unfit(self, value: Any, error: BaseException) -> Unfit:
        """The refusal of a value of this attribute, by what its conversion raised."""
        return Unfit(f"{self._column}: {error if isinstance(error, Unfit) else unfit(value, f'type {self.tag}')}")


def _taker(name: str, columns: list[_Attribute]) -> _Taker:
    """The taker of an attribute that several columns share, or whose type has parts."""
    return _take_inside(name, columns) if any(column.path for column in columns) else _take_whole(name, columns)


def _take_whole(name: str, columns: list[_Attribute]) -> _Taker:
    path = (None, name)

    def take(value: Any, values: list[Any], leftovers: _Leftovers) -> None:
        if value == _NULL:
            leftovers.append((path, value))
            return
        for column in columns:
            try:
                values[column.at] = column.take(value, path, leftovers)
            except _DEFECTS as error:
                raise column.unfit(value, error) from None

    return take


def _take_inside(name: str, columns: list[_Attribute]) -> _Taker:
    """The taker for columns at paths into the attribute's maps: it leaves over what they do not take."""
    paths = [(column, _path((None, name), column.path)) for column in columns]
    taken = frozenset(tuple(column.path) for column in columns)

    def take(value: Any, values: list[Any], leftovers: _Leftovers) -> None:
        for column, path in paths:
            found = value
            try:
                for key in column.path:
                    if found is None or found == _NULL:
                        break
                    found = _only(found, "M").get(key)
                if found is not None and found != _NULL:
                    values[column.at] = column.take(found, path, leftovers)
            except _DEFECTS as error:
                raise column.unfit(found, error) from None
        leave(value, (), (None, name), leftovers)

    def leave(value: Any, path: tuple[str, ...], where: _Path, leftovers: _Leftovers) -> None:
        if path in taken:
            if value == _NULL:
                leftovers.append((where, value))
        elif "M" in value and any(other[: len(path)] == path for other in taken):
            for key, inner in value["M"].items():
                leave(inner, (*path, key), (where, key), leftovers)
        else:
            leftovers.append((where, value))

    return take


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

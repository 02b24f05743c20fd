"""The reference decoder of DynamoDB's changes and exported items: turns them into rows of a lake table.

Decoding takes as long as making the Python objects, and most parts of a record need no object. Unmapped attributes go
to ``_rest`` as text, and of the old image only the partition matters. So msgspec splits a record into the text of each
attribute, and ``dynamodb_values`` converts the attributes that columns name. Changes have the JSON of DynamoDB's
Kinesis destination; see docs/decisions/dynamodb-decoding.md.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring
from typing import Any

import msgspec
from msgspec import Raw

from headwater.contract.model import DROP, QUARANTINE, Column, Contract
from headwater.lake.decoding.changes import (
    ROW_TAGS,
    BadRecord,
    Decoded,
    Identity,
    epoch_digits,
    order_at,
    partition_defect,
    tagged,
    without_row,
)
from headwater.lake.decoding.dynamodb_values import (
    DEFECTS,
    NULL_TEXT,
    AttributeColumn,
    Claims,
    Leftovers,
    Path,
    dump,
    in_unicode,
    is_null,
    map_members,
    parse,
    path_of,
    spell,
)
from headwater.lake.decoding.exact_values import Unfit, dotted, unfit
from headwater.lake.decoding.left_out import LeftOut
from headwater.lake.decoding.rest_values import Read, RestForm, RowRest, nested

_OPS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d"}
_MICROS = {"MILLISECOND": 1000, "MICROSECOND": 1}
_TIE_DIGITS = 56  # the most digits of a Kinesis sequence number
_EXPORTED, _CHANGED = 0, 1  # an exported item is older than a change of the same time
_MARGIN_MICROS = 60 * 10**6
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMES = ("ApproximateCreationDateTime", "ApproximateCreationDateTimePrecision")

_Image = Mapping[str, Raw]
"""An item: the JSON text of each attribute by its name."""


class DynamoDecoder:
    """Decodes the changes and the exported items of one table.

    Raises UserError if the contract needs a key of masks and there is none.

    - ``epoch``: the epoch of the changes. An operator raises it when the source has lost changes.
    - ``table``: the table's actual name, if the contract has another one.
    - ``mask_key``: the key of masks by HMAC.
    """

    def __init__(
        self, contract: Contract, epoch: int = 1, table: str | None = None, mask_key: bytes | None = None
    ) -> None:
        self.width = len(contract.lake_columns())
        self.order_at = order_at(contract)
        self._table = contract.source.table if table is None else table
        self._epoch = epoch_digits(epoch)
        self._refuses = contract.on_unfit == QUARANTINE
        self._identity = Identity(contract)
        self._is_history = contract.is_history
        self._columns = _Columns(contract)
        self._left_out = LeftOut(contract, mask_key)
        self._take_apart = msgspec.json.Decoder(_Record).decode
        self._take_item_apart = msgspec.json.Decoder(_Exported).decode

    def decode(self, data: str | bytes | None, sequence: str | None, position: str) -> Decoded:
        """Decode one Kinesis record. Raises BadRecord.

        - ``data``: the record's data, JSON.
        - ``sequence``: its sequence number; None if the source gives none.
        - ``position``: goes to ``_position``; if it is empty, the record's eventID goes there.
        """
        if data is None:
            raise BadRecord("record: found no data, expected JSON")
        try:
            return self._decoded(self._take_apart(_unicode(data)), sequence, position)
        except BadRecord:
            raise
        except DEFECTS as error:
            raise _bad(error) from None

    def item(
        self, line: str | bytes, exported_at_micros: int, position: str, read_until_micros: int | None = None
    ) -> Decoded:
        """Decode a line of an export. Raises BadRecord.

        - ``line``: ``{"Item": {…}}`` with an image in DynamoDB JSON.
        - ``exported_at_micros``: the time of the export, in microseconds since 1970. It decides the row's order.
        - ``position``: goes to ``_position``.
        - ``read_until_micros``: when the reading ended, if the table changed while it was read (a Scan). Then this is
          the row's time in the source.
        """
        try:
            image, lost = self._left_out.of_image(self._take_item_apart(_unicode(line)).Item)
            order = _order(self._epoch, _place(exported_at_micros), _EXPORTED, "0" * _TIE_DIGITS)
            tail = ("r", order, moment(read_until_micros or exported_at_micros), position)
            return Decoded((self._row(image, lost, tail),), left_out=len(lost))
        except DEFECTS as error:
            raise _bad(error) from None

    def told(self, data: str | bytes, sequence: str | None) -> tuple[list[str], str | None]:
        """The record keys of the items in a change, and its order; None for the order if the change lacks a part of it.

        Raises the exceptions of ``DEFECTS`` if the data is not a change.
        """
        record = _members(_unicode(data))
        change = _members(record["dynamodb"])
        keys = self._row_keys(change.get(name) for name in ("Keys", "NewImage", "OldImage"))
        try:
            micros = _micros(*(_plain(change.get(name)) for name in _TIMES))
            tie = _event_digits(_plain(record.get("eventID"))) if sequence is None else _sequence_digits(sequence)
        except DEFECTS:
            return keys, None
        return keys, _order(self._epoch, micros, _CHANGED, tie)

    def item_told(self, line: str | bytes, exported_at_micros: int) -> tuple[list[str], str]:
        """The record keys of the item in a line of an export, and its order."""
        order = _order(self._epoch, _place(exported_at_micros), _EXPORTED, "0" * _TIE_DIGITS)
        return self._row_keys([_members(_unicode(line))["Item"]]), order

    def _row_keys(self, images: Iterable[Raw | None]) -> list[str]:
        """The record keys of the images that have a complete key."""
        found = []
        for image in images:
            try:
                values: list[Any] = [None] * self._columns.width
                members = {} if image is None else _members(image)
                for column in self._columns.key:
                    values[column.at] = column.of(members.get(column.name))
                found.append(self._identity.record_key(values))
            except DEFECTS:
                continue
        return found

    def kept(self, text: str | bytes | None) -> str | bytes | None:
        """A record's data or an item's line for the quarantine, without the contract's hidden values.

        Returns None if the text cannot be parsed, because a hidden value in it cannot be found.
        """
        return self._left_out.of_text(text)

    def _decoded(self, record: Any, sequence: str | None, position: str) -> Decoded:
        if record.table_name != self._table:
            raise BadRecord(f"tableName: found {record.table_name!r}, expected {self._table!r}")
        op = _OPS.get(record.event_name)
        if op is None:
            raise BadRecord(f"eventName: found {record.event_name!r}, expected {', '.join(_OPS)}")
        change = record.dynamodb
        micros = _micros(change.ApproximateCreationDateTime, change.ApproximateCreationDateTimePrecision)
        tie = _event_digits(record.event_id) if sequence is None else _sequence_digits(sequence)
        order = _order(self._epoch, micros, _CHANGED, tie)
        # A repeated record has another sequence number, and the same eventID.
        change_id = _order(self._epoch, micros, _CHANGED, _event_digits(record.event_id)) if self._is_history else None
        tail = (op, order, moment(micros), position or f"event/{record.event_id}")
        # Make the row of a change; for a removed item, only a tombstone.
        partition = self._columns.partition
        if partition and op != "c" and change.OldImage is None:
            raise BadRecord(f"{record.event_name} without OldImage, expected one: it has the partition")
        if op == "d":
            by = "ttl" if _is_time_to_live(record.user_identity) else "client"
            return Decoded((self._tombstone(self._columns.place(change), tail, by, change_id),))
        image = change.NewImage
        try:
            if image is None:
                raise BadRecord(f"{record.event_name} without NewImage")
            image, lost = self._left_out.of_image(image)
            row = self._row(image, lost, tail, change_id)
        except DEFECTS as error:
            if op != "u":
                raise
            buried = self._tombstone(self._columns.place(change), tail, None, change_id)
            raise BadRecord(str(_bad(error)), buried=(buried,)) from None
        # If the partition has changed, a tombstone goes to the item's former location.
        if op == "u" and any(_member(change.OldImage, column) != image.get(column.name) for column in partition):
            old = self._columns.place(change)
            if self._identity.moved(old, row):
                # Nobody deleted the item, only its row in the former partition. So the tombstone has no deleted_by.
                return Decoded((row, self._tombstone(old, tail, None, change_id)), left_out=len(lost))
        return Decoded((row,), left_out=len(lost))

    def _row(
        self, image: _Image, lost: Sequence[str], tail: tuple[Any, ...], change_id: str | None = None
    ) -> tuple[Any, ...]:
        values, rest, unfit_columns = self._columns.read(image, lost)
        if unfit_columns and self._refuses:
            raise BadRecord("; ".join(unfit_columns.values()))
        names = sorted(unfit_columns) if unfit_columns else None
        return self._identity.row(values, (*tail, False, None, rest, names), change_id)

    def _tombstone(
        self, values: list[Any], tail: tuple[Any, ...], deleted_by: str | None, change_id: str | None = None
    ) -> tuple[Any, ...]:
        return self._identity.row(values, (*tail, True, deleted_by, None, None), change_id)


# --- Order ------------------------------------------------------------------------------------------------------------


def _order(epoch: str, micros: int, kind: int, tie: str) -> str:
    """The ``_order`` of a change, by which two changes of an item compare.

    It has 81 digits:

    - ``epoch`` (4 digits);
    - ``micros``: the time in microseconds since 1970 (20 digits);
    - ``kind``: 0 for an exported item, or 1 for a change;
    - ``tie``: decides between two changes of the same time (56 digits).
    """
    return f"{epoch}{micros:020d}{kind}{tie}"


def _place(exported_at_micros: int) -> int:
    """The time in the order of an export's items, in microseconds since 1970: a minute before the export's time.

    The time of a change is approximate, and an exported item must not win over a later change.
    """
    return max(exported_at_micros - _MARGIN_MICROS, 1)


def floor_of_export(epoch: int, exported_at_micros: int) -> str:
    """The truncate marker of a complete export: the ``_order`` just below its items.

    ``exported_at_micros`` is in microseconds since 1970. The marker deletes every older row that the export did not
    show. Such rows come from an earlier export, from a former epoch, or were deleted without a record in the stream.
    """
    return order_at_moment(epoch, _place(exported_at_micros) - 1)


def order_at_moment(epoch: int, micros: int) -> str:
    """The highest ``_order`` of a change at that time, in microseconds since 1970."""
    return _order(epoch_digits(epoch), micros, _CHANGED, "9" * _TIE_DIGITS)


def _sequence_digits(sequence: str) -> str:
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= _TIE_DIGITS):
        raise BadRecord(f"sequence number: found {sequence!r}, expected at most {_TIE_DIGITS} digits")
    return sequence.zfill(_TIE_DIGITS)


def _event_digits(event_id: Any) -> str:
    """Digits that are the same for a repeated event, and different for different events."""
    if not isinstance(event_id, str) or not event_id:
        raise BadRecord(f"eventID: found {event_id!r}, expected a text, which identifies repeated records")
    digest = int.from_bytes(hashlib.sha256(event_id.encode()).digest(), "big")
    return f"{digest % 10**_TIE_DIGITS:0{_TIE_DIGITS}d}"


# --- Records ----------------------------------------------------------------------------------------------------------


class _Exported(msgspec.Struct):
    """A line of an export."""

    Item: dict[str, Raw]
    """The item's attributes, as JSON texts."""


class _Change(msgspec.Struct):
    """The change in a record. Members of type ``Any`` are checked where they are used."""

    ApproximateCreationDateTime: Any = None
    """The time of the change."""
    ApproximateCreationDateTimePrecision: Any = None
    """The unit of that time."""
    Keys: dict[str, Raw] | None = None
    """The item's key."""
    NewImage: dict[str, Raw] | None = None
    """The item after the change."""
    OldImage: dict[str, Raw] | None = None
    """The item before the change."""


class _Record(msgspec.Struct, rename="camel"):
    """A Kinesis record."""

    dynamodb: _Change
    """The change."""
    table_name: Any = None
    """The table's name."""
    event_name: Any = None
    """The kind of the change: INSERT, MODIFY or REMOVE."""
    event_id: Any = msgspec.field(default=None, name="eventID")
    """The event's id, which repeated records share."""
    user_identity: Any = None
    """The identity that made the change; only DynamoDB's TTL sets it."""


def _member(image: _Image | None, column: AttributeColumn) -> Raw | None:
    """The text of a column's attribute in an image."""
    return None if image is None else image.get(column.name)


_members = msgspec.json.Decoder(dict[str, Raw]).decode


def _plain(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _unicode(data: str | bytes) -> str | bytes:
    """The unchanged data. Raises UnicodeError if it is not UTF-8: msgspec checks only the parts that it reads."""
    if isinstance(data, bytes) and not data.isascii():
        data.decode("utf-8")
    return data


def _bad(error: BaseException) -> BadRecord:
    known = isinstance(error, (BadRecord, Unfit, msgspec.MsgspecError))
    return BadRecord(str(error) if known else f"{type(error).__name__}: {error}")


def _micros(time: Any, precision: Any) -> int:
    """ApproximateCreationDateTime in microseconds since 1970."""
    # Newer records name the precision. Before users could choose it, all times were in milliseconds.
    unit = _MICROS.get("MILLISECOND" if precision is None else precision)
    if unit is None:
        raise BadRecord(f"ApproximateCreationDateTimePrecision: found {precision!r}, expected {' or '.join(_MICROS)}")
    if type(time) is not int or time < 0:
        raise BadRecord(f"ApproximateCreationDateTime: found {time!r}, expected a number")
    return time * unit


def moment(micros: int) -> dt.datetime:
    """A time in microseconds since 1970."""
    return _EPOCH_START + dt.timedelta(microseconds=micros)


def _is_time_to_live(identity: Any) -> bool:
    return (
        isinstance(identity, dict)
        and identity.get("type") == "Service"
        and identity.get("principalId") == "dynamodb.amazonaws.com"
    )


# --- Images -----------------------------------------------------------------------------------------------------------


class _Columns:
    """A contract's columns; ``key`` and ``partition`` are the columns of the key and of the partition."""

    def __init__(self, contract: Contract) -> None:
        identity = Identity(contract)
        columns = [
            AttributeColumn(at, column, plain=at in identity.kept_at) for at, column in enumerate(contract.columns)
        ]
        self.width = len(columns)
        self.key = [columns[at] for at in identity.key_at]
        self.partition = [columns[at] for at in identity.partition_at]
        self._columns = columns
        self._blank = [column.absent for column in columns]
        self._attributes = _Attributes(columns)
        self._drops = contract.unnamed == DROP

    def read(self, image: _Image, lost: Sequence[str] = ()) -> tuple[list[Any], str | None, dict[str, str]]:
        """Read an image. Returns the columns' values, ``_rest``, and why a column has no value, by the column's name.

        ``lost`` are the attributes that were removed from the image. The path to a hidden value in them leads through a
        value that is not a map. Raises BadRecord if a column of the key has no value.
        """
        reading = _Reading(self._blank.copy())
        self._attributes.read(image, reading)
        for column in (each for each in self._columns if each.name in lost) if lost else ():
            reading.unfit[column.column] = (
                f"{column.column}: found {column.name} without a map on the way to what the contract excludes or masks "
                "in it, expected maps"
            )
        for column in self.partition:
            defect = partition_defect(reading.values[column.at])
            if defect is not None:
                self._attributes.refuse(column, defect, image[column.name], reading)
        # Put _rest together: unmapped attributes (unless the contract drops them), values that do not fit, leftovers.
        if self._drops:
            reading.rest, reading.leftovers = [], []
        rest = reading.rest
        if reading.unfit:
            for column in self.key:
                if column.column in reading.unfit:
                    raise BadRecord(reading.unfit[column.column])
            for entry in reading.refused.values():
                rest += entry
        if reading.leftovers:
            rest += (b",", dump({spell(path): value for path, value in reading.leftovers})[1:-1].encode())
        text = in_unicode(f"{{{b''.join(rest)[1:].decode()}}}") if rest else None
        return reading.values, text, reading.unfit

    def place(self, change: Any) -> list[Any]:
        """The key and partition values of the item before a change; its other values are None.

        A partition value that does not fit counts as absent, as it does in the row itself. Raises Unfit if the key does
        not fit.
        """
        values: list[Any] = [None] * self.width
        for column in self.partition:
            try:
                value = column.of(_member(change.OldImage, column))
            except Unfit:
                value = column.absent
            values[column.at] = value if partition_defect(value) is None else column.absent
        for column in self.key:
            values[column.at] = column.of(_member(change.Keys, column))
            defect = partition_defect(values[column.at]) if column in self.partition else None
            if defect is not None:
                raise Unfit(f"{column.column}: {defect}")
        return values


class _Reading:
    """The result of reading an image, while it is read."""

    __slots__ = ("leftovers", "refused", "rest", "unfit", "values")

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        """The columns' values."""
        self.rest: list[Any] = []
        """The unmapped attributes as pieces of JSON: for each its opening (``,"name":``) and its text."""
        self.leftovers: Leftovers = []
        """The unmapped parts inside values that columns take."""
        self.unfit: dict[str, str] = {}
        """Why a column has no value, by the column's name."""
        self.refused: dict[Path, tuple[bytes, Raw]] = {}
        """The values that do not fit, as opening and text, by their paths."""

    def without_rest(self) -> _Reading:
        """The same reading with an empty rest, for columns inside a value. ``Claims`` finds the value's leftovers."""
        inner = _Reading(self.values)
        inner.unfit, inner.refused = self.unfit, self.refused
        return inner


class _Attributes:
    """The attributes of an item, or of a map that paths lead into; ``where`` is the map's own path."""

    def __init__(self, columns: Sequence[AttributeColumn], where: tuple[str, ...] = ()) -> None:
        self._where = where
        self._ending: dict[str, list[AttributeColumn]] = {}
        leading: dict[str, list[AttributeColumn]] = {}
        for column in columns:
            name, *further = column.path[len(where) :]
            (leading if further else self._ending).setdefault(name, []).append(column)
        self._inside = {name: _Attributes(inner, (*where, name)) for name, inner in leading.items()}
        self._columns_inside = leading
        shared = {name for name, ending in self._ending.items() if len(ending) > 1 or name in leading}
        self._claims = {name: Claims() for name in shared}
        for column in columns:
            if column.path[len(where)] in shared:
                self._claims[column.path[len(where)]].add(column.path[len(where) + 1 :], column.type)
        self._known = self._ending.keys() | leading.keys()
        # Most attributes belong to one column, and no path leads into them.
        self._fast = {
            name: ending[0].fast for name, ending in self._ending.items() if len(ending) == 1 and name not in leading
        }
        with_parts = {name for name, ending in self._ending.items() if any(column.has_parts for column in ending)}
        self._reserved = ('"', *(f"{name}." for name in leading.keys() | with_parts))
        self._opening = functools.lru_cache(maxsize=10_000)(self._opening_of)

    def _opening_of(self, name: str) -> bytes:
        """The JSON before an attribute's text in ``_rest``: a comma, the name, a colon.

        A name that could be read as a path is quoted.
        """
        is_plain = not self._where and name not in self._known and not name.startswith(self._reserved)
        return f",{encode_basestring(name if is_plain else dotted((*self._where, name)))}:".encode()

    def read(self, image: _Image, reading: _Reading) -> None:
        """Read the attributes of an image into ``reading``."""
        values, rest = reading.values, reading.rest
        for name, raw in image.items():
            fast = self._fast.get(name)
            if raw == NULL_TEXT or (fast is None and name not in self._known):
                rest += (self._opening(name), raw)
                continue
            if fast is not None:
                at, decode, convert = fast
                try:
                    value = decode(raw).value
                    values[at] = value if convert is None else convert(value)
                    continue
                except DEFECTS:
                    pass  # the value does not fit or has leftovers: _take decides which
            self._take(name, raw, reading)

    def refuse(self, column: AttributeColumn, reason: str, raw: Raw, reading: _Reading) -> None:
        """Record that an attribute of this map does not fit the column. The column then counts as absent."""
        name = column.path[len(self._where)]
        reading.values[column.at] = column.absent
        reading.unfit[column.column] = f"{column.column}: {reason}"
        reading.refused[path_of((*self._where, name))] = (self._opening(name), raw)

    def _take(self, name: str, raw: Raw, reading: _Reading) -> None:
        """Read an attribute that columns name, from its parsed JSON."""
        value = parse(raw)
        if value is None:
            return
        # Read the columns inside the value first, then the columns that take all of it.
        ending, inside = self._ending.get(name, ()), self._inside.get(name)
        if is_null(value):
            reading.rest += (self._opening(name), raw)
            return
        if inside is not None:
            try:
                members = map_members(raw).value
            except msgspec.MsgspecError:
                for column in self._columns_inside[name]:
                    self.refuse(column, str(unfit(value, "type M")), raw, reading)
            else:
                if members or ending:
                    inside.read(members, reading.without_rest() if ending else reading)
                else:
                    reading.rest += (self._opening(name), raw)
        path = path_of((*self._where, name))
        claims = self._claims.get(name)
        for column in ending:
            left: Leftovers = []
            try:
                reading.values[column.at] = column.take(value, path, left)
            except DEFECTS as error:
                self.refuse(column, column.reason(value, error), raw, reading)
            else:
                reading.leftovers += left if claims is None else []
        if claims is not None:
            reading.leftovers += claims.left(value, path, reading.refused)


# --- Batches ----------------------------------------------------------------------------------------------------------


def decode_records(
    records: Iterator[tuple[str | bytes | None, str | None, str]], decoder: DynamoDecoder, purged: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Decode Kinesis records to rows of ``columns_tagged``.

    Bad records, and rows older than ``purged``, carry their record as JSON for the quarantine. It has ``sequence``,
    ``position``, and ``data`` (null if there was none), or ``data_base64`` if the data is not UTF-8.

    - ``records``: data, sequence number or None, and position of each.
    - ``purged``: the latest order of a purged tombstone.
    """

    def kept(data: str | bytes | None, sequence: str | None, position: str) -> str:
        return json.dumps({"sequence": sequence, "position": position, **_text("data", decoder.kept(data))})

    for data, sequence, position in records:
        try:
            decoded = decoder.decode(data, sequence, position)
        except BadRecord as bad:
            for row in bad.buried:
                yield row + ROW_TAGS
            yield without_row(decoder.width, reason=str(bad), raw=kept(data, sequence, position))
            continue
        for row, left_out in zip(decoded.rows, (decoded.left_out, 0), strict=False):
            yield tagged(row, row[decoder.order_at], purged, partial(kept, data, sequence, position), left_out)


def kept_decoder(
    contract: Contract, table: str, mask_key: bytes | None, epoch: int, purged: str = ""
) -> Callable[[Any, str], Iterator[tuple[Any, ...]]]:
    """A function that decodes a record or an exported item of the quarantine.

    - ``table``: the DynamoDB table's name.
    - ``mask_key``: the key of masks by HMAC.
    - ``epoch``: the epoch in which the record was read first.
    - ``purged``: the latest order of a purged tombstone.
    """
    decoder = DynamoDecoder(contract, epoch, table, mask_key)

    def decode(record: Any, _: str) -> Iterator[tuple[Any, ...]]:
        if "exported_at" in record:
            times = record["exported_at"], record.get("read_until", record["exported_at"])
            return decode_item(content(record, "item"), times, record["position"], decoder, purged)
        data = content(record, "data")
        return decode_records(iter([(data, record["sequence"], record["position"])]), decoder, purged)

    return decode


def decode_item(
    line: str | bytes | None, times: tuple[int, int], position: str, decoder: DynamoDecoder, purged: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Decode a line of an export to rows of ``columns_tagged``; ``times`` are the export's ``time`` and ``until``.

    A bad item, and one older than ``purged``, carries its line as JSON for the quarantine. It has ``item``, or
    ``item_base64`` if the line is not UTF-8, and the times and the position that a replay needs.
    """
    time, until = times

    def kept() -> str:
        read = {} if until == time else {"read_until": until}
        document = {"exported_at": time, **read, "position": position, **_text("item", decoder.kept(line))}
        return json.dumps(document, ensure_ascii=False)

    try:
        decoded = decoder.item(line or b"", time, position, until)
    except BadRecord as bad:
        yield without_row(decoder.width, reason=str(bad), raw=kept())
        return
    for row in decoded.rows:
        yield tagged(row, row[decoder.order_at], purged, kept, decoded.left_out)


def _text(name: str, content: str | bytes | None) -> dict[str, str | None]:
    """Bytes as a member of a JSON document: ``name`` for UTF-8, ``name_base64`` for other bytes."""
    try:
        return {name: content.decode("utf-8") if isinstance(content, bytes) else content}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}  # type: ignore[arg-type]


def content(record: Mapping[str, Any], name: str) -> str | bytes | None:
    """The content that ``_text`` wrote under that name."""
    encoded = record.get(f"{name}_base64")
    content: str | None = record.get(name)
    return content if encoded is None else base64.b64decode(encoded)


# --- Entries of _rest -------------------------------------------------------------------------------------------------


def rest_form(contract: Contract) -> RestForm:
    """The format of this source's values in ``_rest``, for ``rest_values``."""

    @functools.cache
    def reader(columns: tuple[Column, ...]) -> _Columns:
        return _Columns(replace(contract, columns=columns, key=(), partition_by=()))

    def read(columns: tuple[Column, ...], entries: Mapping[tuple[str, ...], Any], row: RowRest) -> Read:
        values, rest, unfit_columns = reader(columns).read(nested(entries, _map_of))
        given = {
            column.name: value
            for column, value in zip(columns, values, strict=True)
            if value is not None and value != column.absent
        }
        return Read(given, {} if rest is None else _split(rest), unfit_columns)

    return RestForm(_split, _join, read)


_split = msgspec.json.Decoder(dict[str, Raw]).decode


def _join(entries: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{encode_basestring(name)}:{bytes(raw).decode()}" for name, raw in entries.items()) + "}"


def _map_of(attributes: dict[str, Any]) -> Raw:
    """A map's text in DynamoDB's JSON."""
    return Raw(f'{{"M":{_join(attributes)}}}'.encode())

"""Debezium's change events of a PostgreSQL table to rows of a lake table."""

from __future__ import annotations

import datetime as dt
import json
import re
from binascii import a2b_base64
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.contract.model import Column, Contract
from headwater.contract.types import SourceType
from headwater.lake.changes import ROW_TAGS, BadRecord, Decoded, Identity, epoch_digits, without_row
from headwater.lake.exact_values import (
    TOAST_PLACEHOLDER,
    Converter,
    Unfit,
    column_converter,
    dotted,
    dump_json,
    json_converter,
    parse_json,
)

_AFTER_SNAPSHOTS = 10**20 - 1
_LSN = re.compile(r"\d{1,20}\Z", re.ASCII).match
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def order(epoch: int, commit: int, lsn: int, snapshot: bool) -> str:
    """The text that compares two changes of one key, in 46 digits: the epoch, 0 for a snapshot's row or 1 for a change,
    the LSN of the commit before the change's transaction, the change's own LSN, and a last digit that is lower in a
    floor than in the rows that came with it."""
    return f"{epoch_digits(epoch)}{0 if snapshot else 1}{commit:020d}{lsn:020d}1"


def _floor_below(order_: str) -> str:
    return order_[:-1] + "0"


class PostgresDecoder:
    """Decodes the records of one table's topic. An operator raises ``epoch`` when the source's history was cut."""

    def __init__(self, contract: Contract, epoch: int = 1) -> None:
        self.width = len(contract.lake_columns())
        self._contract = contract
        self._epoch = epoch
        self._table = (contract.source.schema, contract.source.name)
        self._identity_of = Identity(contract)
        self._whole: list[tuple[int, str, str, Converter, Converter]] = []
        self._inside: dict[str, _Inside] = {}
        self._placeholders: dict[str, Any] = {}
        for at, column in enumerate(contract.columns):
            source = column.path[0]
            is_nested = column.type.kind in ("struct", "array")
            if len(column.path) > 1 or (is_nested and not SourceType.parse(column.source_type or "").array):
                self._inside.setdefault(source, _Inside((source,))).add(at, column)
            else:
                streamed, queried = column_converter(column, snapshot=False), column_converter(column, snapshot=True)
                self._whole.append((at, source, column.name, streamed, queried))
            self._placeholders[source] = _placeholder(column.source_type)
        self._known = set(self._placeholders)
        self._decode_row_of = {name: self._whole_of(name) for name in {*contract.key, *contract.partition_by}}

    def _whole_of(self, name: str) -> tuple[str, Converter]:
        for _, source, column, streamed, _ in self._whole:
            if column == name:
                return source, streamed
        raise KeyError(name)

    def decode(self, value: bytes | None, position: str) -> Decoded:
        """Decode one record's value. ``position`` is ``topic/partition/offset``. Raises BadRecord."""
        if value is None:
            return Decoded()
        try:
            event = json.loads(value)
        except ValueError as error:
            raise BadRecord(f"not JSON: {error}") from None
        try:
            return self._decode(event, position)
        except (BadRecord, Unfit) as error:
            raise BadRecord(str(error), self._snapshot_floor(event)) from None
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            raise BadRecord(f"{type(error).__name__}: {error}", self._snapshot_floor(event)) from None

    def _snapshot_floor(self, event: Any) -> str | None:
        """The floor that the last row of a snapshot sets, None for any other event."""
        source = event.get("source") if isinstance(event, dict) else None
        if not isinstance(source, dict) or event.get("op") != "r" or type(source.get("lsn")) is not int:
            return None
        if source.get("snapshot") not in ("last", "last_in_data_collection"):
            return None
        return _floor_below(order(self._epoch, source["lsn"], source["lsn"], snapshot=True))

    def _decode(self, event: Any, position: str) -> Decoded:
        if not isinstance(event, dict) or not isinstance(event.get("source"), dict):
            raise BadRecord("no Debezium envelope: op and source expected")
        source = event["source"]
        if (source.get("schema"), source.get("table")) != self._table:
            raise BadRecord(
                f"table: found {source.get('schema')}.{source.get('table')}, expected {'.'.join(self._table)}"
            )
        op = event.get("op")
        lsn = source.get("lsn")
        if op == "r" and source.get("snapshot") == "incremental":
            # It has no LSN of its own, and counts as newer than any first snapshot and older than any change.
            lsn = _AFTER_SNAPSHOTS
        if type(lsn) is not int or lsn < 0:
            raise BadRecord(f"source.lsn: found {lsn!r}, expected a number")
        commit = lsn if op == "r" else _commit_before(source.get("sequence"), lsn)
        order_ = order(self._epoch, commit, lsn, snapshot=op == "r")
        if op == "t":
            return Decoded(floor=_floor_below(order_))
        if op not in ("c", "r", "u", "d"):
            raise BadRecord(f"op: found {op!r}, expected c, r, u, d or t")
        tail = (op, order_, _source_time(source), position)
        before, after = event.get("before"), event.get("after")
        if op == "d":
            if not isinstance(before, dict):
                raise BadRecord("a delete without its before image: REPLICA IDENTITY FULL expected")
            return Decoded(rows=(self._tombstone(self._identity(before), tail),))
        if not isinstance(after, dict):
            raise BadRecord(f"op {op} without its after image")
        if op == "u":
            after = self._without_placeholders(after, before)
        row = self._row(after, tail, queried=op == "r")
        rows = [row]
        if op == "u" and self._identity_of.partition_at:
            if not isinstance(before, dict):
                raise BadRecord(
                    "an update of a partitioned table without its before image: REPLICA IDENTITY FULL expected"
                )
            try:
                old = self._identity(before)
            except Unfit:
                old = list(row)  # the row was refused then, so it left no copy
            if self._identity_of.leaves_copy(old, row):
                rows.append(self._tombstone(old, tail))
        return Decoded(rows=tuple(rows), floor=self._snapshot_floor(event))

    def _without_placeholders(self, after: dict[str, Any], before: Any) -> dict[str, Any]:
        """An update's after image with the untouched TOASTed values taken from the before image."""
        untouched = [
            name
            for name, value in after.items()
            if value is not None and _is_placeholder(value, self._placeholders.get(name, (TOAST_PLACEHOLDER,)))
        ]
        for name in untouched:
            old = before.get(name) if isinstance(before, dict) else None
            if old is None or _is_placeholder(old, self._placeholders.get(name, (TOAST_PLACEHOLDER,))):
                raise BadRecord(f"{name}: its TOASTed value did not come along: REPLICA IDENTITY FULL expected")
        return {**after, **{name: before[name] for name in untouched}} if untouched else after

    def _row(self, image: Mapping[str, Any], tail: tuple[Any, ...], *, queried: bool) -> tuple[Any, ...]:
        values: list[Any] = [None] * len(self._contract.columns)
        rest: dict[str, Any] = {name: image[name] for name in image.keys() - self._known}
        for at, source, name, streamed, read in self._whole:
            if source not in image:
                raise BadRecord(f"{name}: the source has no column {source}")
            values[at] = _convert(image[source], read if queried else streamed, name)
        for source, inside in self._inside.items():
            if source not in image:
                raise BadRecord(f"{source}: the source has no column of that name")
            if image[source] is not None:
                inside.read(parse_json(image[source]), values, rest)
        return self._finish(values, tail, deleted=False, rest=dump_json(rest) if rest else None)

    def _identity(self, image: Mapping[str, Any]) -> list[Any]:
        """Key and partition values of an image, all else None."""
        values: list[Any] = [None] * len(self._contract.columns)
        for at in self._identity_of.kept_at:
            name = self._contract.columns[at].name
            source, converter = self._decode_row_of[name]
            if source not in image:
                raise BadRecord(f"{name}: the before image has no column {source}: REPLICA IDENTITY FULL expected")
            values[at] = _convert(image[source], converter, name)
        return values

    def _tombstone(self, values: list[Any], tail: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._finish(values, tail, deleted=True, rest=None)

    def _finish(self, values: list[Any], tail: tuple[Any, ...], *, deleted: bool, rest: str | None) -> tuple[Any, ...]:
        op, order_, source_time, position = tail
        return (*values, self._identity_of.record_key(values), op, order_, source_time, position, deleted, rest)


def _convert(value: Any, converter: Converter, name: str) -> Any:
    if value is None:
        return None
    try:
        return converter(value)
    except Unfit as error:
        raise Unfit(f"{name}: {error}") from None


def _commit_before(sequence: Any, lsn: int) -> int:
    """The LSN of the last commit that Debezium had seen when the change's transaction began to arrive, out of
    ``source.sequence``, ``["<that LSN>","<the change's>"]``. Where Debezium has seen none, the change's own LSN takes
    its place: a change of the same key in an earlier transaction was committed before it, and a later transaction has
    at least this one's commit."""
    if sequence is None:
        return lsn
    lsns = json.loads(sequence)
    if not isinstance(lsns, list) or len(lsns) != 2:
        raise BadRecord(f"source.sequence: found {sequence!r}, expected two LSNs")
    if lsns[0] is None:
        return lsn
    if not (isinstance(lsns[0], str) and _LSN(lsns[0])):
        raise BadRecord(f"source.sequence: found {lsns[0]!r}, expected an LSN in digits, or null")
    return int(lsns[0])


def _source_time(source: Mapping[str, Any]) -> dt.datetime:
    micros = source.get("ts_us")
    if type(micros) is not int:
        micros = int(source["ts_ms"]) * 1000
    return _EPOCH_START + dt.timedelta(microseconds=micros)


def _placeholder(source_type: str | None) -> tuple[Any, ...]:
    """How Debezium spells its TOAST placeholder in a column of that type."""
    text = TOAST_PLACEHOLDER
    source = SourceType.parse(source_type or "")
    if source.array:
        return ([text], [ord(letter) for letter in text], [float(ord(letter)) for letter in text], text)
    return (text.encode().hex(), text) if source.base == "bytea" else (text,)


def _is_placeholder(value: Any, spellings: tuple[Any, ...]) -> bool:
    return any(value == spelling for spelling in spellings)


class _Inside:
    """The columns that come from a JSON column's value at ``path``: from all of it, and from its members."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._whole: list[tuple[int, str, Any]] = []
        self._members: dict[str, _Inside] = {}

    def add(self, at: int, column: Column) -> None:
        """Add a column, at that place of a row, which comes from this value or from one inside it."""
        further = column.path[len(self._path) :]
        if further:
            member = self._members.setdefault(further[0], _Inside((*self._path, further[0])))
            member.add(at, column)
        else:
            self._whole.append((at, column.name, json_converter(column.type)))

    def read(self, value: Any, values: list[Any], rest: dict[str, Any]) -> None:
        """Set the columns of a value. What no column takes is put into ``rest`` under its dotted path. Raises Unfit."""
        if value is None:
            if not self._whole:
                rest[dotted(self._path)] = None
            return
        for at, name, convert in self._whole:
            try:
                values[at] = convert(value, self._path, rest)
            except Unfit as error:
                raise Unfit(f"{name}: {error}") from None
        if not self._members:
            return
        if type(value) is not dict:
            raise Unfit(f"{dotted(self._path)}: found a value, expected an object around {', '.join(self._members)}")
        left = {} if self._whole else rest  # a column that takes all of the value leaves nothing over
        for name, inner in value.items():
            member = self._members.get(name)
            if member is None:
                left[dotted((*self._path, name))] = inner
            else:
                member.read(inner, values, left)


def decode_lines(lines: Iterator[tuple[str, str]], decoder: PostgresDecoder) -> Iterator[tuple[Any, ...]]:
    """Landed lines to rows of ``columns_tagged``. ``lines`` are pairs of ``topic/partition`` and a line's JSON; the
    raw line of a bad record is kept as it is."""
    for where, line in lines:
        try:
            record = json.loads(line)
            value = record["value"]
            decoded = decoder.decode(None if value is None else a2b_base64(value), f"{where}/{record['offset']}")
        except BadRecord as bad:
            yield without_row(decoder.width, bad.floor, str(bad), line)
            continue
        for row in decoded.rows:
            yield row + ROW_TAGS
        if decoded.floor is not None:
            yield without_row(decoder.width, decoded.floor)

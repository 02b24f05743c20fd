"""The reference decoder of PostgreSQL's changes: turns Debezium's events of a table into rows of a lake table."""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from headwater.contract.masks import is_masked
from headwater.contract.model import DROP, KEEP, QUARANTINE, Column, Contract
from headwater.contract.types import SourceType
from headwater.lake.base.quarantine import batch_of
from headwater.lake.decoding.changes import (
    ROW_TAGS,
    BadRecord,
    Decoded,
    Identity,
    epoch_digits,
    floor_row,
    order_at,
    partition_defect,
    tagged,
    without_row,
)
from headwater.lake.decoding.exact_values import (
    DEFECTS,
    TOAST_PLACEHOLDER,
    Converter,
    Unfit,
    column_converter,
    dotted,
    dump_json,
    json_converter,
    parse_json,
    reason_of,
)
from headwater.lake.decoding.rest_values import Read, RestForm, RowRest, nested
from headwater.lake.decoding.transformed_values import transforming

Headers = Iterable[tuple[str, str | None]]
"""A record's headers as they are landed: names, and contents in base64."""
_LSN = re.compile(r"\d{1,20}\Z", re.ASCII).match
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
REKEYED = ("__debezium.newkey", "__debezium.oldkey")
"""The headers of the delete and of the insert into which Debezium splits an update of the primary key."""
_EPOCH = "headwater.epoch"
"""The header of every record after the first epoch, which the source connector adds."""
_IDENTITY = "headwater.identity"
"""The header of an update or a delete whose old key PostgreSQL did not log. The source connector adds it."""

# The forms of Debezium's TOAST placeholder: a text, bytes in hexadecimal, an object for hstore, and arrays of these. An
# array may also have the placeholder's UUID (Java's nameUUIDFromBytes) or the codes of its letters. In Python, codes as
# floats equal codes as integers.
_IN_HEX = TOAST_PLACEHOLDER.encode().hex()
_PLACEHOLDER_TEXTS = frozenset({TOAST_PLACEHOLDER, _IN_HEX})
_PLACEHOLDER_ARRAYS = (
    [TOAST_PLACEHOLDER],
    [_IN_HEX],
    ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    [ord(letter) for letter in TOAST_PLACEHOLDER],
)
_PLACEHOLDER_HSTORE = f'{{"{TOAST_PLACEHOLDER}":'


_NO_INSTANT = "1970-01-01T00:00:00Z"
"""Debezium writes this text for an unknown timestamp with time zone in a column that is NOT NULL."""


def order(epoch: int, commit: int, lsn: int, snapshot: bool) -> str:
    """The ``_order`` of a change, by which two changes of one key compare.

    It has 46 digits:

    - the epoch (4 digits);
    - 0 for a snapshot's row, or 1 for a change;
    - ``commit``: the LSN of the last commit before the change's transaction (20 digits);
    - ``lsn``: the change's own LSN (20 digits);
    - 1. A truncate marker has 0 here, so it is lower than the rows of the same record.
    """
    return f"{epoch_digits(epoch)}{0 if snapshot else 1}{commit:020d}{lsn:020d}1"


def floor_below(order_: str) -> str:
    """The truncate marker that deletes all rows with a lower order."""
    return order_[:-1] + "0"


class _Origin(NamedTuple):
    """The origin of a record."""

    epoch: int
    """The epoch in which the record was captured."""
    position: str
    """The record's position: ``topic/partition/offset``."""
    key: bytes | None
    """The record's key, JSON."""
    rekeyed: bool
    """Whether the record is one half of an update of the source's primary key."""
    without_old_key: bool
    """Whether PostgreSQL did not log the key of the changed row."""


def is_inside(column: Column) -> bool:
    """Whether a column takes a value from inside a JSON document, rather than a source column's whole value."""
    is_nested = column.type.kind in ("struct", "array")
    return len(column.path) > 1 or (is_nested and not SourceType.parse(column.source_type or "").array)


def _whole_converter(column: Column, *, snapshot: bool) -> Converter:
    return transforming(column_converter(column.before_transform(), snapshot), column.transform)


class PostgresDecoder:
    """Decodes the records of one table's topic. ``epoch`` is the epoch of records without its header."""

    def __init__(self, contract: Contract, epoch: int = 1) -> None:
        self.width = len(contract.lake_columns())
        self.order_at = order_at(contract)
        self._contract = contract
        self._epoch = epoch
        self._table = (contract.source.schema, contract.source.name)
        self._identity_of = Identity(contract)
        self._refuses = contract.on_unfit == QUARANTINE
        self._whole: list[tuple[int, str, str, Converter, Converter]] = []
        self._inside: dict[str, _Inside] = {}
        for at, column in enumerate(contract.columns):
            source = column.path[0]
            if is_inside(column):
                self._inside.setdefault(source, _Inside((source,))).add(at, column)
            else:
                streamed, queried = _whole_converter(column, snapshot=False), _whole_converter(column, snapshot=True)
                if at in self._identity_of.partition_at and at not in self._identity_of.key_at:
                    # A change must find the row's partition, which a snapshot may have set. So both convert the value
                    # in the same way.
                    streamed = queried
                self._whole.append((at, source, column.name, streamed, queried))
        self._known = {column.path[0] for column in contract.columns}
        self._excluded = {name for (name,) in contract.exclude}
        # The source connector compares names of columns without regard to capitals.
        self._masks = {name.lower(): mask.how for mask in contract.masks for name in mask.path}
        self._drops = contract.unnamed == DROP
        self._columns_of = {
            source: [column.name for column in contract.columns if column.path[0] == source] for source in self._known
        }
        identity = {name: self._whole_of(name) for name in (*contract.key, *contract.partition_by)}
        self._identity_columns = [
            (at, contract.columns[at].name, *identity[contract.columns[at].name]) for at in self._identity_of.kept_at
        ]
        self._key_sources = {identity[name][0] for name in contract.key}
        self._partition_sources = {identity[name][0] for name in contract.partition_by} - self._key_sources

    def _whole_of(self, name: str) -> tuple[str, Converter]:
        for _, source, column, streamed, _ in self._whole:
            if column == name:
                return source, streamed
        raise KeyError(name)

    def decode(
        self,
        value: bytes | None,
        position: str,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Decoded:
        """Decode one record. Raises BadRecord.

        - ``value``: the record's value, JSON.
        - ``position``: ``topic/partition/offset``.
        - ``key``: the record's key, a JSON object of the source's primary key; None if there is none.
        - ``headers``: the record's headers as they are landed.
        - ``timestamp``: Kafka's timestamp, in milliseconds since 1970.
        """
        if value is None:
            return Decoded()
        # Read the headers, then the event.
        epoch, rekeyed, without_old_key = self._epoch, False, False
        for name, content in headers:
            if name == _EPOCH:
                epoch = _epoch(content)
            elif name in REKEYED:
                rekeyed = True
            elif name == _IDENTITY:
                without_old_key = True
        try:
            event = json.loads(value)
        except ValueError as error:
            raise BadRecord(f"not JSON: {error}") from None
        if self._excluded or self._masks:
            self._leave_out(event, self._excluded.__contains__)
        # Decode the event. A bad record may still set a truncate marker and leave tombstones.
        floor = _snapshot_floor(event, epoch)
        try:
            decoded = self._decode(event, _Origin(epoch, position, key, rekeyed, without_old_key))
        except BadRecord as error:
            reason, rows = str(error), error.buried
        except DEFECTS as error:
            reason, rows = reason_of(error), ()
        else:
            reason, rows, floor = "", decoded.rows, floor or decoded.floor
        if floor is not None and self._contract.is_history:
            # A history records the marker as a row. If the connector itself ends a snapshot, its event has no time:
            # then the record's timestamp counts.
            try:
                at = _source_time({"ts_ms": timestamp, **_times(event)})
                rows = (*rows, floor_row(self._contract, floor, at, position))
            except DEFECTS as error:
                reason = reason or reason_of(error)
            floor = None
        if reason:
            raise BadRecord(reason, floor, rows)
        return Decoded(rows, floor)

    def row_key(self, image: Any) -> str | None:
        """The record key of the row in an image, or in a record's key; None if a part of the key is missing."""
        if not isinstance(image, dict):
            return None
        values: list[Any] = [None] * len(self._contract.columns)
        for at, _, source, convert in self._identity_columns:
            if at in self._identity_of.key_at:
                try:
                    values[at] = convert(image[source])
                except DEFECTS:
                    return None
        try:
            return self._identity_of.record_key(values)
        except BadRecord:
            return None

    def order_told(self, event: Mapping[str, Any], headers: Headers) -> str | None:
        """The order of an event; None if the event lacks a part of it."""
        epoch = self._epoch
        try:
            for name, content in headers:
                if name == _EPOCH:
                    epoch = _epoch(content)
            return _order_of(event.get("op"), event["source"], epoch)
        except (BadRecord, *DEFECTS):
            return None

    def with_untouched(self, after: dict[str, Any], before: Any) -> dict[str, Any]:
        """An update's after image with untouched TOASTed values taken from the before image."""
        return self._without_placeholders(after, before)[0]

    def _leave_out(self, event: Any, left_out: Callable[[str], bool]) -> None:
        """Remove columns from an event's images, and replace unmasked values of masked columns by null.

        Values in clear come from before the contract excluded or masked their columns.
        """
        if not isinstance(event, dict):
            return
        refused = event.get("refused")
        images = (event.get("before"), event.get("after"), refused.get("row") if isinstance(refused, dict) else None)
        for image in images:
            if isinstance(image, dict):
                for name in [name for name in image if left_out(name)]:
                    del image[name]
                for name, value in image.items():
                    if name.lower() in self._masks and not self._may_stay(value, self._masks[name.lower()]):
                        image[name] = None

    def _may_stay(self, value: Any, how: str | None) -> bool:
        """Whether a value of a masked column may be kept: it is masked, null or the TOAST placeholder."""
        if how is None or not isinstance(value, str):
            return value is None
        return value == TOAST_PLACEHOLDER or is_masked(value) is not None

    def kept(self, line: str) -> str:
        """A landed line as the quarantine may keep it: without excluded columns and unmasked values."""
        if not self._excluded and not self._masks and not self._drops:
            return line
        record = json.loads(line)

        def left_out(name: str) -> bool:
            return name in self._excluded or (self._drops and name not in self._known)

        try:
            event = json.loads(a2b_base64(record["value"]))
        except (KeyError, TypeError, ValueError):
            record["value"] = None  # the line cannot be parsed, so hidden values in it cannot be found
        else:
            self._leave_out(event, left_out)
            record["value"] = b2a_base64(json.dumps(event).encode(), newline=False).decode()
        return json.dumps(record)

    def _decode(self, event: Any, origin: _Origin) -> Decoded:
        if not isinstance(event, dict) or not isinstance(event.get("source"), dict):
            raise BadRecord("no Debezium envelope: op and source expected")
        source = event["source"]
        if (source.get("schema"), source.get("table")) != self._table:
            raise BadRecord(
                f"table: found {source.get('schema')}.{source.get('table')}, expected {'.'.join(self._table)}"
            )
        op = event.get("op")
        order_ = _order_of(op, source, origin.epoch)
        if op == "d" and origin.rekeyed:
            # If the contract has another key, the insert has the same location. So it must win over this delete.
            order_ = floor_below(order_)
        if op == "t":
            return Decoded(floor=floor_below(order_))
        if op not in ("c", "r", "u", "d"):
            raise BadRecord(f"op: found {op!r}, expected c, r, u, d or t")
        if origin.without_old_key:
            raise BadRecord(
                f"op {op}: found REPLICA IDENTITY USING INDEX, which does not log the old key, expected the identity "
                "that the contract needs. Set it on the table, then read the table again (headwater resync)"
            )
        tail = (op, order_, _source_time(source), origin.position)
        # Make the row of a change; for a delete, only a tombstone.
        before, after = event.get("before"), event.get("after")
        if op == "d":
            return self._delete(before, origin.key, tail)
        old = self._place_before(before, after, origin.key) if op == "u" else None
        try:
            if not isinstance(after, dict):
                raise BadRecord(f"op {op} without its after image")
            unknown: Sequence[str] = ()
            if op == "u" or origin.rekeyed:
                after, unknown = self._without_placeholders(after, before)
            row = self._row(after, tail, unknown, queried=op == "r")
        except (BadRecord, *DEFECTS) as error:
            if old is None:
                raise
            reason = str(error) if isinstance(error, BadRecord) else reason_of(error)
            raise BadRecord(reason, buried=(self._tombstone(old, tail),)) from None
        # If the row has moved, a tombstone goes to its former location.
        moved = old is not None and self._identity_of.moved(old, row)
        rows = (row, self._tombstone(old, tail)) if moved and old is not None else (row,)
        return Decoded(rows=rows)

    def _delete(self, before: Any, primary_key: bytes | None, tail: tuple[Any, ...]) -> Decoded:
        if not isinstance(before, dict):
            raise BadRecord("a delete without its before image: REPLICA IDENTITY FULL expected")
        old = self._place(before)
        tombstone = self._tombstone(old, tail)
        others = before.keys() - self._key_sources
        try:
            names = _names(primary_key)
        except ValueError:
            names = set()
        if (
            self._partition_sources
            and others > self._partition_sources
            and not any(before[name] and before[name] != _NO_INSTANT for name in others)
            and self._partition_sources - names
        ):
            # Without FULL, Debezium writes null (or the value that stands for null) in all columns outside the key.
            raise BadRecord(
                "a delete in a partitioned table whose before image has its key alone: REPLICA IDENTITY FULL expected",
                buried=(tombstone,),
            )
        return Decoded(rows=(tombstone,))

    def _place_before(self, before: Any, after: Any, primary_key: bytes | None) -> list[Any] | None:
        """The key and partition values of an update's row before the update; its other values are None.

        Returns None if the former key had a null: then the lake has no such row. Raises BadRecord if the record lacks
        the former values.
        """
        names = _names(primary_key)
        if isinstance(before, dict):
            old = self._place(before)
            if all(old[at] is not None for at in self._identity_of.key_at):
                return old
            if all(before.get(name) is not None for name in names):
                return None
        # The primary key has not changed: Debezium splits an update that changes the key into a delete and an insert.
        if self._partition_sources - names:
            raise BadRecord("an update of a partitioned table without its before image: REPLICA IDENTITY FULL expected")
        if not isinstance(after, dict):
            raise BadRecord("op u without its images")
        changeable = self._key_sources - names if names else set()
        if changeable:
            raise BadRecord(
                f"key: {', '.join(sorted(changeable))} is not in the source's primary key, and the record lacks the "
                "before image with its old value: REPLICA IDENTITY FULL expected"
            )
        return self._place(after)

    def _without_placeholders(self, after: dict[str, Any], before: Any) -> tuple[dict[str, Any], list[str]]:
        """The after image with untouched TOASTed values taken from the before image, and the columns that lack them.

        The before image does not have the values of these columns either, so they are null.
        """
        untouched = {
            name: before.get(name) if isinstance(before, dict) else None
            for name, value in after.items()
            if _is_placeholder(value)
        }
        if not untouched:
            return after, []
        unknown = [name for name, old in untouched.items() if old is None or _is_placeholder(old)]
        return {**after, **untouched, **dict.fromkeys(unknown)}, unknown

    def _row(
        self, image: Mapping[str, Any], tail: tuple[Any, ...], unknown: Sequence[str], *, queried: bool
    ) -> tuple[Any, ...]:
        reading = self._read(image, unknown, queried=queried)
        self._check_identity(image, reading, unknown)
        if reading.unfit and self._refuses:
            raise BadRecord("; ".join(reading.unfit.values()))
        return self._finish(reading.values, tail, deleted=False, rest=self._rest_of(reading), unfit=reading.unfit)

    def _read(self, image: Mapping[str, Any], unknown: Sequence[str], *, queried: bool) -> _Reading:
        reading = _Reading(len(self._contract.columns))
        # Unmapped columns go to the rest, and whole columns to the row.
        for name in image.keys() - self._known:
            if name not in unknown:
                reading.rest[name] = image[name]
        for at, source, name, streamed, read in self._whole:
            value = image.get(source)
            if value is None:
                continue
            try:
                reading.values[at] = (read if queried else streamed)(value)
            except DEFECTS as error:
                reading.refuse([name], error, (source,), value)
        # Read the columns inside JSON documents.
        for source, inside in self._inside.items():
            text = image.get(source)
            if text is None:
                continue
            try:
                document = parse_json(text)
            except DEFECTS as error:
                reading.refuse(inside.columns, error, (source,), text)
            else:
                inside.read(document, reading)
        for source in unknown:
            reading.lose(self._columns_of.get(source, [source]), source)
        return reading

    def read_entries(self, entries: Mapping[tuple[str, ...], Any], *, queried: bool, refused: Collection[str]) -> Read:
        """Read entries of ``_rest`` into the columns.

        - ``entries``: the entries by their paths. The entry of a JSON column is a text, or a parsed document if one of
          its columns is among the ``refused``.
        - ``queried``: whether the row comes from a snapshot.
        - ``refused``: the columns that have conversion errors.
        """
        image = {}
        for source, value in nested(entries, lambda inner: inner).items():
            if source not in self._inside:
                # Converters expect floats, as json.loads returns them. The entry has exact decimals.
                image[source] = json.loads(dump_json(value))
            elif isinstance(value, str) and not set(refused) & set(self._inside[source].columns):
                image[source] = value
            else:
                image[source] = dump_json(value)
        reading = self._read(image, (), queried=queried)
        names = [column.name for column in self._contract.columns]
        return Read(dict(zip(names, reading.values, strict=True)), self._rest_of(reading), reading.unfit)

    def _rest_of(self, reading: _Reading) -> dict[str, Any]:
        return reading.refused() if self._drops else reading.rest

    def _check_identity(self, image: Mapping[str, Any], reading: _Reading, unknown: Sequence[str]) -> None:
        """Check the values of the key and of the partition.

        A value that cannot be a partition becomes a conversion error. Raises BadRecord if the image lacks a value of
        the key or of the partition, or if the key has a conversion error.
        """
        for at, name, source, _ in self._identity_columns:
            if source not in image:
                raise BadRecord(f"{name}: the source has no column {source}")
            if name in reading.unfit and (source in unknown or at in self._identity_of.key_at):
                raise BadRecord(reading.unfit[name])
            if at not in self._identity_of.partition_at:
                continue
            defect = partition_defect(reading.values[at])
            if defect is not None:
                if at in self._identity_of.key_at:
                    raise BadRecord(f"{name}, of the key: {defect}")
                reading.values[at] = None
                reading.refuse([name], Unfit(defect), (source,), image[source])

    def _place(self, image: Mapping[str, Any]) -> list[Any]:
        """The key and partition values of an image; its other values are None.

        A partition value that does not fit becomes null, which is also the partition of the row itself. Raises
        BadRecord if the image lacks a column of them.
        """
        values: list[Any] = [None] * len(self._contract.columns)
        for at, name, source, convert in self._identity_columns:
            if source not in image:
                raise BadRecord(f"{name}: the before image has no column {source}: REPLICA IDENTITY FULL expected")
            if image[source] is None:
                continue
            try:
                values[at] = convert(image[source])
            except DEFECTS:
                continue
            if at in self._identity_of.partition_at and partition_defect(values[at]) is not None:
                values[at] = None
        return values

    def _tombstone(self, values: list[Any], tail: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._finish(values, tail, deleted=True, rest={}, unfit={})

    def _finish(
        self,
        values: list[Any],
        tail: tuple[Any, ...],
        *,
        deleted: bool,
        rest: Mapping[str, Any],
        unfit: Mapping[str, str],
    ) -> tuple[Any, ...]:
        kept = dump_json(rest) if rest else None
        return self._identity_of.row(values, (*tail, deleted, kept, sorted(unfit) or None))


class _Reading:
    """The result of reading an image, while it is read."""

    def __init__(self, width: int) -> None:
        self.values: list[Any] = [None] * width
        """The columns' values."""
        self.rest: dict[str, Any] = {}
        """The entries for ``_rest``, by their dotted paths."""
        self.unfit: dict[str, str] = {}
        """Why a column has no value, by the column's name."""
        self._refused: set[str] = set()

    def refuse(self, columns: Sequence[str], error: BaseException, path: tuple[str, ...], value: Any) -> None:
        """Record that the value at the path does not fit its columns, and keep it in ``_rest``."""
        self.unfit.update((name, f"{name}: {reason_of(error)}") for name in columns)
        self.rest[dotted(path)] = value
        self._refused.add(dotted(path))

    def refused(self) -> dict[str, Any]:
        """The entries of ``rest`` that have conversion errors; unmapped fields are left out."""
        return {path: value for path, value in self.rest.items() if path in self._refused}

    def lose(self, columns: Sequence[str], source: str) -> None:
        """Record that the columns' value is unknown. ``_rest`` has no value of it either."""
        reason = f"{source}: PostgreSQL did not log its TOASTed value: REPLICA IDENTITY FULL expected"
        self.unfit.update((name, reason) for name in columns)


def _names(key: bytes | None) -> set[str]:
    """The names of the columns in a record's key; none if there is no key. Raises ValueError."""
    document = None if key is None else json.loads(key)
    return set(document) if isinstance(document, dict) else set()


def _order_of(op: Any, source: Mapping[str, Any], epoch: int) -> str:
    """The order of an event with this operation. Raises BadRecord if its ``source`` lacks a part of the order."""
    lsn = source.get("lsn")
    read_first = op == "r"
    if read_first and source.get("snapshot") == "incremental":
        lsn = _lsn_read(source.get("sequence"))
        read_first = False
    if type(lsn) is not int or lsn < 0:
        raise BadRecord(f"source.lsn: found {lsn!r}, expected a number")
    commit = lsn if read_first else _commit_before(source.get("sequence"), lsn)
    return order(epoch, commit, lsn, snapshot=read_first)


def _lsn_read(sequence: Any) -> int | None:
    """The position of the log (an LSN) at which an incremental snapshot read a row.

    Such a row has no LSN of its own. It is newer than all changes up to that position, and older than all later ones.
    """
    lsns = json.loads(sequence) if isinstance(sequence, str) else None
    if isinstance(lsns, list) and len(lsns) == 2 and isinstance(lsns[1], str) and _LSN(lsns[1]):
        return int(lsns[1])
    return None


def _epoch(content: str | None) -> int:
    """The epoch in a header's content, a JSON number in base64. Raises BadRecord."""
    try:
        epoch = int(a2b_base64(content or ""))
        epoch_digits(epoch)
    except ValueError:
        raise BadRecord(f"header {_EPOCH}: found {content!r}, expected a number in base64") from None
    return epoch


def _snapshot_floor(event: Any, epoch: int) -> str | None:
    """The truncate marker that a snapshot's end sets; None for other events.

    A snapshot ends with its last row, or with a record after that row.
    """
    source = event.get("source") if isinstance(event, dict) else None
    if not isinstance(source, dict) or event.get("op") not in ("r", "t") or type(source.get("lsn")) is not int:
        return None
    if source.get("snapshot") not in ("last", "last_in_data_collection"):
        return None
    return floor_below(order(epoch, source["lsn"], source["lsn"], snapshot=True))


def _commit_before(sequence: Any, lsn: int) -> int:
    """The LSN of the last commit that Debezium had seen when the change's transaction began to arrive.

    ``source.sequence`` has it: ``["<LSN of the last commit>","<the change's own LSN>"]``. If Debezium had seen no
    commit, the change's own LSN takes its place. That order is right. An earlier transaction with the same key was
    committed before this LSN, and a later one has at least this transaction's commit.
    """
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


def _times(event: Mapping[str, Any]) -> dict[str, int]:
    """The times in an event's ``source`` that ``_source_time`` can read."""
    times = {name: event["source"].get(name) for name in ("ts_us", "ts_ms")}
    return {name: time for name, time in times.items() if type(time) is int}


def _is_placeholder(value: Any) -> bool:
    """Whether a value is the TOAST placeholder of any type. The type of an unmapped column is unknown."""
    kind = type(value)
    if kind is str:
        return value in _PLACEHOLDER_TEXTS or value.startswith(_PLACEHOLDER_HSTORE)
    if kind is list:
        return value in _PLACEHOLDER_ARRAYS
    return kind is dict and len(value) == 1 and TOAST_PLACEHOLDER in value


class _Inside:
    """The columns that take the value at ``path`` in a JSON column, or members of that value."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self.columns: list[str] = []
        self._path = path
        self._whole: list[tuple[int, str, Any]] = []
        self._members: dict[str, _Inside] = {}

    def add(self, at: int, column: Column) -> None:
        """Add the column at position ``at`` of a row. The column takes this value, or a value inside."""
        self.columns.append(column.name)
        further = column.path[len(self._path) :]
        if further:
            member = self._members.setdefault(further[0], _Inside((*self._path, further[0])))
            member.add(at, column)
        else:
            self._whole.append((at, column.name, json_converter(column.type)))

    def read(self, value: Any, reading: _Reading, *, held: bool = False) -> None:
        """Set the columns of a value. Parts that no column takes go to the rest under their dotted paths.

        ``held``: whether a column takes an enclosing value. That column has already put its leftovers into the rest.
        """
        path = dotted(self._path)
        # The enclosing column has left this value over. Now the columns here decide which parts stay in the rest.
        if held and path in reading.rest:
            del reading.rest[path]
            held = False
        if value is None:
            if not self._whole and not held:
                reading.rest[path] = None
            return
        # Set the columns that take the whole value, then the columns that take its members.
        if self._whole:
            left = self._take(value, reading)
            reading.rest.update({} if held else left)
            held = True
        if not self._members:
            return
        if type(value) is not dict:
            below = [name for member in self._members.values() for name in member.columns]
            error = Unfit(f"{path}: found a value, expected an object around {', '.join(self._members)}")
            reading.refuse(below, error, self._path, value)
            return
        for name, inner in value.items():
            member = self._members.get(name)
            if member is not None:
                member.read(inner, reading, held=held)
            elif not held:
                reading.rest[dotted((*self._path, name))] = inner

    def _take(self, value: Any, reading: _Reading) -> dict[str, Any]:
        """Set the columns that take all of a value. Returns the parts that none of them takes, by their dotted paths.

        If the value does not fit one of the columns, it returns nothing: then the whole value is kept in the rest.
        """
        left: dict[str, Any] | None = None
        refused = False
        for at, name, convert in self._whole:
            over: dict[str, Any] = {}
            try:
                reading.values[at] = convert(value, self._path, over)
            except DEFECTS as error:
                reading.refuse([name], error, self._path, value)
                refused = True
            else:
                left = over if left is None else _in_both(left, over)
        return {} if refused or left is None else left


def _in_both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The parts of a value that two columns both leave over, by their paths.

    If one column leaves over a whole object, and the other column a part of that object, then the part counts.
    """

    def within(path: str, paths: dict[str, Any]) -> bool:
        return path in paths or any(path.startswith(f"{around}.") for around in paths)

    common = {path: value for path, value in first.items() if within(path, second)}
    return common | {path: value for path, value in second.items() if within(path, first)}


def decode_lines(
    lines: Iterator[tuple[str, str]], decoder: PostgresDecoder, purged: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Decode landed lines to rows of ``columns_tagged``.

    Bad records, and rows older than ``purged``, carry their line's JSON for the quarantine. Its ``source`` says
    ``topic/partition``.

    - ``lines``: pairs of ``topic/partition`` and a line's JSON.
    - ``purged``: the latest order of a purged tombstone.
    """

    def kept(where: str, line: str) -> str:
        return json.dumps({**json.loads(decoder.kept(line)), "source": where})

    for where, line in lines:
        try:
            record = json.loads(line)
            value, key = record["value"], record.get("key")
            decoded = decoder.decode(
                None if value is None else a2b_base64(value),
                f"{where}/{record['offset']}",
                key=None if key is None else a2b_base64(key),
                headers=record.get("headers", ()),
                timestamp=record.get("timestamp"),
            )
        except BadRecord as bad:
            for row in bad.buried:
                yield row + ROW_TAGS
            yield without_row(decoder.width, bad.floor, str(bad), kept(where, line))
            continue
        for row in decoded.rows:
            yield tagged(row, row[decoder.order_at], purged, partial(kept, where, line))
        if decoded.floor is not None:
            yield without_row(decoder.width, decoded.floor)


def kept_decoder(contract: Contract, epoch: int, purged: str = "") -> Callable[[Any, str], Iterator[tuple[Any, ...]]]:
    """A function that decodes a record of the quarantine, given the record and the name of its object.

    ``epoch`` is the epoch in which the record was first read.
    """
    decoder = PostgresDecoder(contract, epoch)

    def decode(record: Any, name: str) -> Iterator[tuple[Any, ...]]:
        # Releases before 0.2.0 did not keep the source with each record.
        return decode_lines(iter([(record.get("source") or _source_of(name), json.dumps(record))]), decoder, purged)

    return decode


def _source_of(name: str) -> str:
    """The ``topic/partition`` in the name of a quarantine object, as ``landed_changes`` names batches."""
    topic, _, partition = batch_of(name).rpartition("-")[0].rpartition("-")
    return f"{topic}/{partition}"


def rest_form(contract: Contract) -> RestForm:
    """The format of this source's values in ``_rest``, for ``rest_values``."""

    @functools.cache
    def decoder(columns: tuple[Column, ...]) -> PostgresDecoder:
        return PostgresDecoder(replace(contract, columns=columns, key=(), partition_by=(), on_unfit=KEEP))

    def read(columns: tuple[Column, ...], entries: Mapping[tuple[str, ...], Any], row: RowRest) -> Read:
        return decoder(columns).read_entries(entries, queried=row.op == "r", refused=row.unfit)

    return RestForm(parse_json, dump_json, read)

"""What every decoder gives: rows of a lake table, and what a record says about other rows (a floor, a defect).

One source record gives no row, one, or two (a row that left its place leaves a tombstone there), or raises
``BadRecord``. Nothing here knows Spark; the writer runs the decoders on the executors.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from headwater.contract.model import BEGUN_LATE, CHANGE_DAY, DYNAMODB, EXPIRED, POSTGRESQL, Contract

_MAX_EPOCH = 9999
_ORDER_VERSIONS = {
    POSTGRESQL: 1,
    DYNAMODB: 2,  # 1 had what is now the digit behind the time before it
}
_PARTITION_OF_NULL = "__HIVE_DEFAULT_PARTITION__"
_PARTITION_BYTES = 200
_NO_KEY = "[]"
_CONTROL = re.compile("[\x00-\x1f\x7f]").search


class BadRecord(ValueError):
    """A record that cannot be decoded; the text is the reason that quarantine keeps. ``floor`` is set where the record
    still ends all that came before it: the last row of a snapshot does, even if its values are unfit. ``buried`` are
    the tombstones of an update: the row has left the place where the before image stood, whatever it has become."""

    def __init__(self, reason: str, floor: str | None = None, buried: tuple[tuple[Any, ...], ...] = ()) -> None:
        super().__init__(reason)
        self.floor = floor
        self.buried = buried


class Decoded(NamedTuple):
    """What one record gives: rows in the order of ``Contract.lake_columns`` and, where it ends all that came before it
    (TRUNCATE, a completed snapshot), the table's new floor. ``left_out`` counts the attributes that its first row lacks
    because no maps led to what the contract excludes or masks in them."""

    rows: tuple[tuple[Any, ...], ...] = ()
    floor: str | None = None
    left_out: int = 0


class Identity:
    """The places of a contract's key and partition among its columns."""

    def __init__(self, contract: Contract) -> None:
        names = [column.name for column in contract.columns]
        self.key_at = [names.index(name) for name in contract.key]
        self.partition_at = [names.index(name) for name in contract.partition_by]
        self.kept_at = sorted({*self.key_at, *self.partition_at})
        self._names = names
        self._is_history = contract.is_history

    def record_key(self, values: Sequence[Any]) -> str:
        """The record key of a row's values, in the order of the columns. Raises BadRecord where a part of the key is
        null."""
        key = [values[at] for at in self.key_at]
        if None in key:
            names = ", ".join(self._names[at] for at in self.key_at)
            raise BadRecord(f"key: found null in {names}, expected values")
        return record_key(key)

    def row(self, values: Sequence[Any], own: tuple[Any, ...], change: str | None = None) -> tuple[Any, ...]:
        """The row of these values, with the writer's own columns from ``_op`` on. In a history each change is a row of
        the day it was made. ``change`` is the same if the change comes again; by default its order is."""
        key = self.record_key(values)
        if not self._is_history:
            return (*values, key, *own)
        order, source_time = own[1], own[2]
        return (*values, _change_key(key, change or order), *own, _day(source_time))

    def moved(self, old: Sequence[Any], new: Sequence[Any]) -> bool:
        """Whether ``old`` and ``new`` have different places in the table: another key or another partition."""
        return any(old[at] != new[at] for at in self.kept_at)


def epoch_digits(epoch: int) -> str:
    """The epoch as ``_order`` begins with it, in 4 digits. Raises ValueError."""
    if not 0 <= epoch <= _MAX_EPOCH:
        raise ValueError(f"epoch: found {epoch}, expected 0 to {_MAX_EPOCH}")
    return f"{epoch:04d}"


def order_version(contract: Contract) -> int:
    """The number of the layout that the source's decoder gives ``_order`` behind the epoch. It is raised with every
    change of that layout: two layouts do not compare within one epoch."""
    return _ORDER_VERSIONS[contract.source.database]


def record_key(values: Sequence[Any]) -> str:
    """The Hudi record key of key values: a JSON array, so that no two different keys share a text. A decimal is
    written in plain digits, whatever its exponent; bytes as base64; a date as text."""
    return _hashable("[" + ",".join([_key_part(value) for value in values]) + "]")


def _hashable(key: str) -> str:
    """A record key whose bucket Hudi finds.

    Hudi 1.1.1 takes a key with a comma and a colon for ``name:value`` pairs, and looks for their ends without end
    where more than one colon follows the comma before the last of them (``KeyGenUtils.extractRecordKeysByFields``). In
    such a key, which no table can have yet, colons are written as JSON may have them.
    """
    last = key.rfind(":")
    if last < 0 or "," not in key:
        return key
    comma = key.rfind(",", 0, last)
    # Of a part that is called as the key's column, Hudi finds the end.
    ends = key.find(":", comma + 1) == last or (key.startswith("_key:", comma + 1) and ":" in key[:comma])
    return key if ends else key.replace(":", "\\u003a")


def _key_part(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return encode_basestring(plain_digits(value))
    if isinstance(value, bytes):
        return encode_basestring(base64.b64encode(value).decode())
    return encode_basestring(str(value))


def plain_digits(number: Decimal) -> str:
    """A number in digits alone, without an exponent or needless zeros: one text for one number."""
    text = format(number, "f") if number else "0"  # not normalize(), which rounds
    return text.rstrip("0").rstrip(".") if "." in text else text


def partition_defect(value: Any) -> str | None:
    """Why a value cannot be the partition of a row, although it is one of its column; None where it can. Hudi has one
    partition for null, for an empty text and for null's own name, and Athena cannot tell them apart: only null may
    stand there. Others would end each try of their batch: S3 takes keys of 1024 bytes, and Hudi may write a byte as
    three (``%20``); Glue's catalog takes partition values of 1024 characters, and no control characters."""
    if not isinstance(value, str):
        return None
    if value == "":
        return "found '' as partition, expected a value"
    if value == _PARTITION_OF_NULL:
        return f"found {value} as partition, expected a value: it stands for null"
    if _CONTROL(value):
        return f"found {json.dumps(value)[:80]} as partition, expected a text without control characters"
    if len(value) > _PARTITION_BYTES // 4 and len(value.encode("utf-8", "surrogatepass")) > _PARTITION_BYTES:
        return f"found {json.dumps(value)[:80]}... as partition, expected at most {_PARTITION_BYTES} bytes of UTF-8"
    return None


def floor_row(contract: Contract, floor: str, source_time: dt.datetime, position: str) -> tuple[Any, ...]:
    """What a history keeps of a floor: a row of no key, by which its readers know what ended then."""
    return _row_of_no_key(contract, "t", floor, source_time, position)


def late_row(contract: Contract, lowest: str, epoch: int) -> tuple[Any, ...]:
    """A history's note that it begins with changes from that order on, and lacks what came before. Where the order is
    not known, "", it is that below all changes of the epoch, which are above what its first snapshot read."""
    first = lowest or f"{epoch_digits(epoch)}1"
    return _row_of_no_key(contract, BEGUN_LATE, first, dt.datetime.now(dt.UTC), None)


def expired_row(contract: Contract, before: dt.datetime) -> tuple[Any, ...]:
    """A history's note that changes of before that time are gone."""
    return _row_of_no_key(contract, EXPIRED, f"{before:%Y%m%d%H%M%S%f}", before, None)


def _row_of_no_key(
    contract: Contract, op: str, order: str, source_time: dt.datetime, position: str | None
) -> tuple[Any, ...]:
    values = {
        "_key": _change_key(_NO_KEY, order),
        "_op": op,
        "_order": order,
        "_source_ts": source_time,
        "_position": position,
        "_deleted": True,
        CHANGE_DAY: _day(source_time),
    }
    return tuple(values.get(name) for name, _ in contract.lake_columns())


def _change_key(key: str, change: str) -> str:
    """The record key of a change of the row with that key."""
    return _hashable(f'{key[:-1]}{"" if key == _NO_KEY else ","}"{change}"]')


def _day(source_time: dt.datetime) -> str:
    return source_time.date().isoformat()


def columns_tagged(contract: Contract) -> list[tuple[str, str]]:
    """Name and Spark type of the columns of a decoded batch: a row's own, then those of a record without a row."""
    lake = [(name, type_.ddl()) for name, type_ in contract.lake_columns()]
    return [*lake, ("_left_out", "int"), ("_floor", "string"), ("_reason", "string"), ("_raw", "string")]


def own_columns_plan(contract: Contract, purged: str) -> dict[str, Any]:
    """What the JVM's ``OwnColumns`` knows of a contract's rows."""
    names = [name for name, _ in contract.lake_columns()]
    columns = contract.columns
    return {
        "purged": purged,
        "first_own": names.index("_key"),
        "change_day": names.index(CHANGE_DAY) if contract.is_history else None,
        "width": len(columns_tagged(contract)),
        "key": [{"at": at, "kind": columns[at].type.kind} for at in Identity(contract).key_at],
    }


ROW_TAGS = (None, None, None, None)
"""What follows a row's own values in the columns of ``columns_tagged``."""


def order_at(contract: Contract) -> int:
    """The place of ``_order`` among the columns of a row."""
    return [name for name, _ in contract.lake_columns()].index("_order")


def tagged(
    row: tuple[Any, ...], order: str, purged: str, kept: Callable[[], str], left_out: int = 0
) -> tuple[Any, ...]:
    """A row with that order in the columns of ``columns_tagged``. Where it is older than ``purged``, a delete that came
    after it may be forgotten; then it takes along what quarantine keeps of its record. ``left_out`` is that of
    ``Decoded``."""
    return (*row, left_out or None, None, None, None if order >= purged else kept())


def without_row(
    width: int, floor: str | None = None, reason: str | None = None, raw: str | None = None
) -> tuple[Any, ...]:
    """A record that gives no row, in the columns of ``columns_tagged``: the table's new floor that it sets, or why it
    cannot be decoded with what is kept of it. ``width`` is the number of the lake table's columns."""
    return (*(None,) * width, None, floor, reason, raw)

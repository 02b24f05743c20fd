"""The results of every decoder: rows of a lake table, truncate markers and bad records.

One source record gives no row, one row or two rows, or raises ``BadRecord``. A row that moves gives two rows: the
second one is a tombstone at the former location. This module does not use Spark; the writer runs the decoders on the
executors.
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
    DYNAMODB: 2,  # in version 1, the digit that now follows the time was before the time
}
_PARTITION_OF_NULL = "__HIVE_DEFAULT_PARTITION__"
_PARTITION_BYTES = 200
_NO_KEY = "[]"
_CONTROL = re.compile("[\x00-\x1f\x7f]").search


class BadRecord(ValueError):
    """A record that cannot be decoded. The text is the reason that the quarantine keeps.

    - ``floor``: the truncate marker that the record sets nonetheless. A snapshot's last row sets one even if its
      values do not fit.
    - ``buried``: tombstones for the location of an update's before image. The row has left this location anyway.
    """

    def __init__(self, reason: str, floor: str | None = None, buried: tuple[tuple[Any, ...], ...] = ()) -> None:
        super().__init__(reason)
        self.floor = floor
        self.buried = buried


class Decoded(NamedTuple):
    """The result of decoding one record."""

    rows: tuple[tuple[Any, ...], ...] = ()
    """Rows whose values have the order of ``Contract.lake_columns``."""
    floor: str | None = None
    """The table's new truncate marker, if the record sets one (a TRUNCATE, the end of a snapshot)."""
    left_out: int = 0
    """How many attributes the first row lacks, because the path to a hidden value in them leads through a value that is
    not a map."""


class Identity:
    """The positions of the key's and the partition's columns among a contract's columns."""

    def __init__(self, contract: Contract) -> None:
        names = [column.name for column in contract.columns]
        self.key_at = [names.index(name) for name in contract.key]
        self.partition_at = [names.index(name) for name in contract.partition_by]
        self.kept_at = sorted({*self.key_at, *self.partition_at})
        self._names = names
        self._is_history = contract.is_history

    def record_key(self, values: Sequence[Any]) -> str:
        """The record key of a row; ``values`` are in the order of the columns. Raises BadRecord if a part is null."""
        key = [values[at] for at in self.key_at]
        if None in key:
            names = ", ".join(self._names[at] for at in self.key_at)
            raise BadRecord(f"key: found null in {names}, expected values")
        return record_key(key)

    def row(self, values: Sequence[Any], own: tuple[Any, ...], change: str | None = None) -> tuple[Any, ...]:
        """Return the lake row that has these values.

        In a history, each change is a row of its own, in the partition of the day on which it was made.

        - ``own``: the values of the writer's own columns, from ``_op`` on.
        - ``change``: identifies the change, the same for a repeated record; by default the order.
        """
        key = self.record_key(values)
        if not self._is_history:
            return (*values, key, *own)
        order, source_time = own[1], own[2]
        return (*values, _change_key(key, change or order), *own, _day(source_time))

    def moved(self, old: Sequence[Any], new: Sequence[Any]) -> bool:
        """Whether ``old`` and ``new`` have different locations in the table: another key, or another partition."""
        return any(old[at] != new[at] for at in self.kept_at)


def epoch_digits(epoch: int) -> str:
    """The epoch in 4 digits, with which ``_order`` begins. Raises ValueError."""
    if not 0 <= epoch <= _MAX_EPOCH:
        raise ValueError(f"epoch: found {epoch}, expected 0 to {_MAX_EPOCH}")
    return f"{epoch:04d}"


def order_version(contract: Contract) -> int:
    """The version of the layout of ``_order`` after its epoch, in this release.

    It rises with every change of the layout, because orders of two layouts cannot be compared within one epoch.
    """
    return _ORDER_VERSIONS[contract.source.database]


def record_key(values: Sequence[Any]) -> str:
    """The Hudi record key of key values: a JSON array, so different keys have different texts.

    Decimals are plain digits without an exponent, bytes are base64, dates are texts.
    """
    return _hashable("[" + ",".join([_key_part(value) for value in values]) + "]")


def _hashable(key: str) -> str:
    """A record key that Hudi can parse.

    Hudi 1.1.1 takes a key with a comma and a colon for ``name:value`` pairs
    (``KeyGenUtils.extractRecordKeysByFields``). It never returns if more than one colon follows the comma before the
    last colon. So no table can have such a key yet, and its colons are escaped as JSON allows.
    """
    last = key.rfind(":")
    if last < 0 or "," not in key:
        return key
    comma = key.rfind(",", 0, last)
    # Hudi finds the end of a part that has the name of the key's column.
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
    """A number in digits, without an exponent or needless zeros. So equal numbers have the same text."""
    text = format(number, "f") if number else "0"  # not normalize(), which rounds
    return text.rstrip("0").rstrip(".") if "." in text else text


def partition_defect(value: Any) -> str | None:
    """The reason why a value cannot be the partition of a row; None if it can.

    Hudi has one partition for null, for an empty text and for the name that stands for null. Athena cannot distinguish
    these, so only null may be there.

    Some other values would make every commit of their batch fail. S3 takes keys of 1024 bytes, and Hudi may write a
    byte as three (``%20``). Glue's catalog takes partition values of 1024 characters, without control characters.
    """
    if not isinstance(value, str):
        return None
    if value == "":
        return "found '' as partition, expected a value"
    if value == _PARTITION_OF_NULL:
        return f"found {value} as partition, expected a value: this text stands for null"
    if _CONTROL(value):
        return f"found {json.dumps(value)[:80]} as partition, expected a text without control characters"
    if len(value) > _PARTITION_BYTES // 4 and len(value.encode("utf-8", "surrogatepass")) > _PARTITION_BYTES:
        return f"found {json.dumps(value)[:80]}... as partition, expected at most {_PARTITION_BYTES} bytes of UTF-8"
    return None


def floor_row(contract: Contract, floor: str, source_time: dt.datetime, position: str) -> tuple[Any, ...]:
    """The row that records a truncate marker in a history, for the history's readers. It has no key."""
    return _row_of_no_key(contract, "t", floor, source_time, position)


def late_row(contract: Contract, lowest: str, epoch: int) -> tuple[Any, ...]:
    """The row in a history that records that the changes before the order ``lowest`` are missing.

    If the order is unknown (""), the row's order lies between the epoch's first snapshot and all its changes.
    """
    first = lowest or f"{epoch_digits(epoch)}1"
    return _row_of_no_key(contract, BEGUN_LATE, first, dt.datetime.now(dt.UTC), None)


def expired_row(contract: Contract, before: dt.datetime) -> tuple[Any, ...]:
    """The row in a history that records that changes from before a time are expired."""
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
    """The record key of a change: the row's key together with the identity of the change."""
    return _hashable(f'{key[:-1]}{"" if key == _NO_KEY else ","}"{change}"]')


def _day(source_time: dt.datetime) -> str:
    return source_time.date().isoformat()


def columns_tagged(contract: Contract) -> list[tuple[str, str]]:
    """Name and Spark type of the columns of a decoded batch.

    The row's own columns come first, then the columns for records that give no row.
    """
    lake = [(name, type_.ddl()) for name, type_ in contract.lake_columns()]
    return [*lake, ("_left_out", "int"), ("_floor", "string"), ("_reason", "string"), ("_raw", "string")]


def own_columns_plan(contract: Contract, purged: str) -> dict[str, Any]:
    """The plan of a contract's rows for the JVM's ``OwnColumns``."""
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
"""The values of the columns of ``columns_tagged`` after the row's own columns."""


def order_at(contract: Contract) -> int:
    """The position of ``_order`` among the columns of a row."""
    return [name for name, _ in contract.lake_columns()].index("_order")


def tagged(
    row: tuple[Any, ...], order: str, purged: str, kept: Callable[[], str], left_out: int = 0
) -> tuple[Any, ...]:
    """A row in the columns of ``columns_tagged``.

    - ``order``: the row's order.
    - ``purged``: the latest order of a purged tombstone. A row with an older order may have been deleted since, so it
      carries its record for the quarantine.
    - ``kept``: gives the record as the quarantine keeps it.
    - ``left_out``: the same as in ``Decoded``.
    """
    return (*row, left_out or None, None, None, None if order >= purged else kept())


def without_row(
    width: int, floor: str | None = None, reason: str | None = None, raw: str | None = None
) -> tuple[Any, ...]:
    """A record without a row, in the columns of ``columns_tagged``.

    - ``width``: the number of the lake table's columns.
    - ``floor``: the truncate marker that the record sets.
    - ``reason``: why the record cannot be decoded.
    - ``raw``: the record as the quarantine keeps it.
    """
    return (*(None,) * width, None, floor, reason, raw)

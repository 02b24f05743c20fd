"""What every decoder of changes gives: rows of a lake table, and what a record says without being a row.

One source record gives no row, one, or two (a row that left its partition leaves a tombstone there), or raises
``BadRecord``. Nothing here knows Spark; the writer runs the decoders on the executors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headwater.contract import Contract


class BadRecord(ValueError):
    """A record that cannot be decoded; the text is the reason that quarantine keeps. ``floor`` is what it still says of
    the records before it: the last row of a snapshot ends the snapshot even where its values are unfit."""

    def __init__(self, reason: str, floor: str | None = None) -> None:
        super().__init__(reason)
        self.floor = floor


@dataclass(frozen=True)
class Decoded:
    """What one record says: rows in the order of ``Contract.lake_columns`` and, where it ends all that came before it
    (TRUNCATE, a completed snapshot), the table's new floor."""

    rows: tuple[tuple[Any, ...], ...] = ()
    floor: str | None = None


def record_key(values: tuple[Any, ...]) -> str:
    """The Hudi record key of key values: a JSON array, so that no two different keys share a text."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)


def columns_tagged(contract: Contract) -> list[tuple[str, str]]:
    """Name and Spark type of the columns of a decoded batch: a row's own, then what a record without a row says."""
    lake = [(name, type_.ddl()) for name, type_ in contract.lake_columns()]
    return [*lake, ("_floor", "string"), ("_reason", "string"), ("_raw", "string")]

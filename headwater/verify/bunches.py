"""Rows of a source in bunches, each read at a moment of its own, while others write."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.errors import UserError
from headwater.verify.compare import SourceTable, key_taker
from headwater.verify.forms import Row


@dataclass(frozen=True)
class Found:
    """A row of the source."""

    row: Row
    asked: Any
    """The key with which ``BunchedTable.rows_at`` reads the row again."""


Bunch = Mapping[Row, Found]
"""Rows by their key."""


def bunch_of(table: SourceTable, found: Iterable[Found]) -> Bunch:
    """Return a table's rows by their key. Raises UserError if two rows have the same key."""
    key_of = key_taker(table)
    rows = list(found)
    bunch = {key_of(each.row): each for each in rows}
    if len(bunch) < len(rows):
        raise UserError(
            f"{table.contract.table}: the source has a key twice, expected once: the columns of the contract's `key` "
            f"({', '.join(table.contract.key)}) must be unique there"
        )
    return bunch


class Pace:
    """Says when a source may be read again, so that reading takes a bounded share of its time.

    Args:
        clock: Returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at = 0.0
        self._lock = threading.Lock()

    def rest(self, seconds: float) -> None:
        """Add a rest of these seconds after the rests that are not over yet."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + seconds

    @property
    def wait(self) -> float:
        """The seconds until the source may be read again."""
        return max(self._free_at - self._clock(), 0.0)


class BunchedTable(SourceTable, Protocol):
    """A source's table as ``headwater verify --watch`` reads it."""

    @property
    def pace(self) -> Pace:
        """The source's pace. The reader waits for it before each bunch."""

    def bunches(self, rows: int, after: Any | None = None) -> Iterator[Bunch]:
        """Stream all rows in bunches of about ``rows`` at most; a bunch may be empty.

        With ``after``, the ``Found.asked`` of a row, the rows up to that one may be left out. Raises UserError if the
        rows cannot be read.
        """

    def rows_at(self, asked: Sequence[Any]) -> Iterator[Bunch]:
        """Stream the rows with these keys in parts, each as of a moment since the call.

        Raises UserError if they cannot be read.
        """

    def asked_of(self, key: Row) -> Any | None:
        """Return the key of a row that only the lake has, as ``rows_at`` takes it.

        Returns None if the source cannot have such a key.
        """

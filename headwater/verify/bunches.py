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
    """A row of the source, and what asks the source for it again."""

    row: Row
    asked: Any


Bunch = Mapping[Row, Found]
"""Rows by their key."""


def bunch_of(table: SourceTable, found: Iterable[Found]) -> Bunch:
    """A table's rows by their key. Raises UserError where a key stands twice."""
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
    """When a source may be read again: it rests after each piece of work, so that it spends a bounded part of its time.
    ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at = 0.0
        self._lock = threading.Lock()

    def rest(self, seconds: float) -> None:
        """Read nothing for these seconds, after those that are left of earlier rests."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + seconds

    @property
    def wait(self) -> float:
        """The seconds until the source may be read again."""
        return max(self._free_at - self._clock(), 0.0)


class BunchedTable(SourceTable, Protocol):
    """What a comparison needs of a source's table that never ends."""

    @property
    def pace(self) -> Pace:
        """The source's pace, for which whoever reads waits before each bunch is taken."""

    def bunches(self, rows: int, after: Any | None = None) -> Iterator[Bunch]:
        """All rows in bunches of about ``rows`` at most, of which some may be empty; or those behind the one that is
        asked for by ``after``, or more of them. Raises UserError where the rows cannot be read."""

    def rows_at(self, asked: Sequence[Any]) -> Iterator[Bunch]:
        """The rows that are asked for, in parts, each as of a moment since the call. Raises UserError where they cannot
        be read."""

    def asked_of(self, key: Row) -> Any | None:
        """What asks for a row whose key the lake alone has; None where nothing can."""

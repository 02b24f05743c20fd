"""Rows of a source in bunches, each read at a moment of its own, while others write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.verify.compare import SourceTable
from headwater.verify.forms import Row


@dataclass(frozen=True)
class Found:
    """A row of the source, and what asks the source for it again."""

    row: Row
    asked: Any


Bunch = Mapping[Row, Found]
"""Rows by their key."""


class BunchedTable(SourceTable, Protocol):
    """What a comparison needs of a source's table that never ends."""

    def bunches(self, rows: int, pause: Callable[[float], None]) -> Iterator[Bunch]:
        """All rows in bunches of about ``rows``. ``pause`` is called with the seconds that the source shall rest after
        each. Raises UserError where the rows cannot be read."""

    def rows_at(self, asked: Sequence[Any]) -> Bunch:
        """The rows that are asked for, as of one moment or later. Raises UserError where they cannot be read."""

    def asked_of(self, key: Row) -> Any | None:
        """What asks for a row whose key the lake alone has; None where nothing can."""

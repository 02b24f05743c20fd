"""Decodes landing objects ahead: several at once, while earlier changes are committed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from headwater.lake.sources.landing import LandingObject

_Decoded = TypeVar("_Decoded")
_AT_ONCE = min(max((os.cpu_count() or 1) // 2, 2), 4)


class DecodingAhead(Generic[_Decoded]):
    """Decodes landing objects ahead, for one table of a job at a time.

    Decoded objects take memory of the driver, which all tables share. So a table takes the turn by ``take_turn``, and
    ends it by ``rest``.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, "decoding")
        self._turns = threading.Lock()
        self._whose: str | None = None
        self._asked: set[str] = set()
        self._waits_once: str | None = None
        self._ahead: dict[LandingObject, Future[_Decoded]] = {}

    def has_turn(self, table: str) -> bool:
        """Whether it is this table's turn."""
        return self._whose == table

    def take_turn(self, table: str) -> bool:
        """Take the turn if it is free. Returns whether this table has it now."""
        with self._turns:
            # The table that had the last turn waits once if another table has asked for the turn meanwhile.
            if self._whose is None and self._waits_once == table:
                self._waits_once = None
            elif self._whose is None:
                self._whose, self._waits_once = table, None
            has_turn = self._whose == table
            (self._asked.discard if has_turn else self._asked.add)(table)
            return has_turn

    def rest(self, table: str) -> None:
        """End a table's turn, and drop its decoded objects.

        If another table has asked for the turn meanwhile, that table has the next turn.
        """
        with self._turns:
            if self._whose == table:
                self._drop()
                self._waits_once = table if self._asked else None
                self._whose = None
                self._asked.clear()

    def forget(self, table: str) -> None:
        """Drop the decoded objects of a table. It keeps its turn."""
        if self._whose == table:
            self._drop()

    def close(self) -> None:
        """Stop decoding: begin no further object, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _drop(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead = {}

    def decoded(
        self, objects: Sequence[LandingObject], decode: Callable[[LandingObject], _Decoded]
    ) -> Iterator[_Decoded]:
        """Yield the decoded objects of the table that has the turn, in order, while the next objects are decoded."""
        for at, landed in enumerate(objects):
            for coming in objects[at : at + 1 + _AT_ONCE]:
                if coming not in self._ahead:
                    self._ahead[coming] = self._threads.submit(decode, coming)
            yield self._ahead.pop(landed).result()

    def give_back(self, landed: LandingObject, decoded: _Decoded) -> None:
        """Keep an unused decoded object, which ``decoded`` will yield again."""
        self._ahead[landed] = Future()
        self._ahead[landed].set_result(decoded)

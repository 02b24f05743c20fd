"""Decodes landing objects before their turn: several at once, and while the changes before them are committed."""

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
    """What is decoded and not asked for yet takes the memory of the driver, which the tables of a job share: one table
    at a time decodes ahead, from ``take_turn`` until it rests."""

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
        """Whether it is this table's turn from now on, or still."""
        with self._turns:
            if self._whose is None and self._waits_once == table:
                self._waits_once = None
            elif self._whose is None:
                self._whose, self._waits_once = table, None
            has_turn = self._whose == table
            (self._asked.discard if has_turn else self._asked.add)(table)
            return has_turn

    def rest(self, table: str) -> None:
        """Forget what is decoded of a table, and let another one that has asked meanwhile have the next turn."""
        with self._turns:
            if self._whose == table:
                self._drop()
                self._waits_once = table if self._asked else None
                self._whose = None
                self._asked.clear()

    def forget(self, table: str) -> None:
        """Forget what is decoded of a table, which keeps its turn."""
        if self._whose == table:
            self._drop()

    def close(self) -> None:
        """Decode nothing any more that has not been begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _drop(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead = {}

    def decoded(
        self, objects: Sequence[LandingObject], decode: Callable[[LandingObject], _Decoded]
    ) -> Iterator[_Decoded]:
        """The objects of the table whose turn it is, in their order, each as it is decoded, and those after it
        meanwhile."""
        for at, landed in enumerate(objects):
            for coming in objects[at : at + 1 + _AT_ONCE]:
                if coming not in self._ahead:
                    self._ahead[coming] = self._threads.submit(decode, coming)
            yield self._ahead.pop(landed).result()

    def give_back(self, landed: LandingObject, decoded: _Decoded) -> None:
        """Keep what has not been used: it is asked for again."""
        self._ahead[landed] = Future()
        self._ahead[landed].set_result(decoded)

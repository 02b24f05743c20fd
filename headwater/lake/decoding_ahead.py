"""Decodes landing objects before their turn: several at once, and while the changes before them are committed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from headwater.lake.landing import LandingObject

_Decoded = TypeVar("_Decoded")
_AT_ONCE = min(os.cpu_count() or 1, 4)


class DecodingAhead(Generic[_Decoded]):
    """Decodes the objects of one table in their order. What is decoded and not asked for yet takes the memory of the
    driver, which the tables of a job share: only the one that has the ``turn`` does it. It has it until ``rest``."""

    def __init__(self, turn: threading.Lock) -> None:
        self._turn = turn
        self._has_turn = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, "decoding")
        self._ahead: dict[LandingObject, Future[_Decoded]] = {}

    def take_turn(self) -> bool:
        """Whether it is this table's turn from now on, or still."""
        self._has_turn = self._has_turn or self._turn.acquire(blocking=False)
        return self._has_turn

    def decoded(
        self, objects: Sequence[LandingObject], decode: Callable[[LandingObject], _Decoded]
    ) -> Iterator[_Decoded]:
        """Each object as it is decoded, and those after it decoded meanwhile, if it is the table's turn."""
        for at, landed in enumerate(objects):
            if self._has_turn:
                for coming in objects[at : at + 1 + _AT_ONCE]:
                    if coming not in self._ahead:
                        self._ahead[coming] = self._threads.submit(decode, coming)
            future = self._ahead.pop(landed, None)
            yield decode(landed) if future is None else future.result()

    def give_back(self, landed: LandingObject, decoded: _Decoded) -> None:
        """Keep what has not been used: it is asked for again."""
        if self._has_turn:
            kept: Future[_Decoded] = Future()
            kept.set_result(decoded)
            self._ahead[landed] = kept

    def forget(self) -> None:
        """Forget what is decoded."""
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()

    def rest(self) -> None:
        """Forget what is decoded, and let another table have its turn."""
        self.forget()
        if self._has_turn:
            self._has_turn = False
            self._turn.release()

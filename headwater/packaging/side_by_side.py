"""Steps that run at the same time: while some wait for downloads, others compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Steps:
    """A thread that takes steps one after the other. Once one has failed, the rest are left out."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self._ended = False

    def add(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Add a step, and return its future. The future is cancelled if the step is left out."""

        def take() -> _T:
            if self._ended:
                raise CancelledError
            try:
                return step(*args, **kwargs)
            except BaseException:
                self.end()
                raise

        return self._thread.submit(take)

    def end(self) -> None:
        """Cancel the steps that have not begun."""
        self._ended = True


@contextmanager
def one_by_one() -> Iterator[Steps]:
    """Run steps beside the ``with`` block, which ends when they have ended.

    If the block raises, steps that have not begun are left out.
    """
    with ThreadPoolExecutor(1) as thread:
        steps = Steps(thread)
        try:
            yield steps
        except BaseException:
            steps.end()
            raise

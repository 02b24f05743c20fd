"""Work that runs beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def going_on(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do ``work`` in a thread until the block ends: then its event is set. Raises the exception of the work."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work, stop)
        try:
            yield
        finally:
            stop.set()
        done.result()

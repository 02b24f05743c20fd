"""The memory of running parts, sampled at intervals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Self


class MemoryWatch:
    """The largest memory of each part, and of all together, in bytes.

    ``sizes`` returns each part's present memory; it is called every ``seconds``.
    """

    def __init__(self, sizes: Callable[[], Mapping[str, int]], seconds: float) -> None:
        self.peak: dict[str, int] = {}
        self.peak_of_all = 0
        self._sizes = sizes
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            sizes = self._sizes()
            self.peak_of_all = max(self.peak_of_all, sum(sizes.values()))
            for name, size in sizes.items():
                self.peak[name] = max(size, self.peak.get(name, 0))

"""How many cores of this machine are taken, and by whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

_TAKEN = ("user", "nice", "system", "irq", "softirq", "steal")


@dataclass
class Cores:
    """Cores on average: those of the ``machine``, and those that ``others`` than one program took."""

    machine: int
    others: float = 0.0


@contextmanager
def taken_beside(pid: int) -> Iterator[Cores]:
    """Measure, until it ends, what is taken by all that is not this process or below it. Its programs that end
    meanwhile count as others'. Of a process that ends meanwhile nothing is measured."""
    cores = Cores(psutil.cpu_count() or 1)
    started, before = time.monotonic(), _of_all() - _of_one(pid)
    yield cores
    # Whoever waits for the process says better why it has ended.
    with suppress(psutil.NoSuchProcess):
        cores.others = (_of_all() - _of_one(pid) - before) / (time.monotonic() - started)


def _of_all() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in _TAKEN))


def _of_one(pid: int) -> float:
    process = psutil.Process(pid)
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system
    return total

"""Threads that work through a plan side by side, evenly over a time."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

TICK_SECONDS = 0.25


@dataclass(frozen=True)
class Share:
    """One worker's part of a plan: what it does, when each thing is due, and what ends it before.

    ``kinds`` are those of the ``number``-th of ``workers``, out of ``total``. ``started`` is on the monotonic clock.
    ``stop`` is set from outside, ``failed`` by the first worker that raises.
    """

    kinds: Sequence[str]
    number: int
    workers: int
    total: int
    started: float
    seconds: float
    stop: threading.Event
    failed: threading.Event

    def await_due(self, at: int) -> bool:
        """Wait until the ``at``-th of the kinds is due; false when the work is to end instead."""
        due = self.started + self.seconds * (at * self.workers + self.number) / max(self.total, 1)
        while (left := due - time.monotonic()) > 0 and not self._ending():
            self.stop.wait(min(left, TICK_SECONDS))
        return not self._ending()

    def _ending(self) -> bool:
        return self.stop.is_set() or self.failed.is_set()


class Worker(ABC):
    """Works through one share in a thread of its own."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work, and keep the error that ends it."""
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.share.failed.set()

    def work(self) -> None:
        """Perform each kind of the share when it is due."""
        for at, kind in enumerate(self.share.kinds):
            if not self.share.await_due(at):
                return
            self.perform(kind)

    @abstractmethod
    def perform(self, kind: str) -> None:
        """Do one thing of the plan."""


def run_workers(
    make: Callable[[Share], Worker],
    kinds: Sequence[str],
    workers: int,
    seconds: float,
    stop: threading.Event,
    tick: Callable[[float], None],
) -> float:
    """Let workers work through ``kinds``, evenly over ``seconds``, and return the seconds that it took.

    ``make`` makes a worker for its share; ``tick`` is called with the seconds since the start a few times a second. It
    takes longer where the workers are too slow, and ends within a second or so once ``stop`` is set. Raises a worker's
    error.
    """
    failed = threading.Event()
    started = time.monotonic()
    team = [
        make(Share(kinds[number::workers], number, workers, len(kinds), started, seconds, stop, failed))
        for number in range(workers)
    ]
    threads = [threading.Thread(target=worker.run, name=f"workload-{at}") for at, worker in enumerate(team)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            threads[0].join(TICK_SECONDS) if threads[0].is_alive() else time.sleep(TICK_SECONDS)
            tick(time.monotonic() - started)
    except BaseException:
        failed.set()
        raise
    finally:
        for thread in threads:
            thread.join()
    for worker in team:
        if worker.error is not None:
            raise worker.error
    return time.monotonic() - started

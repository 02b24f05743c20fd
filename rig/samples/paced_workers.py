"""Threads that make a workload's changes side by side, evenly over a time."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_any, stop_when_event_set, wait_random

TICK_SECONDS = 0.25
ATTEMPTS = 60
"""How often a worker tries what others are in the way of."""


@dataclass(frozen=True)
class WorkloadPlan:
    """A workload that is spread evenly over its time."""

    seconds: float
    changes: int
    """At least so many are made."""
    workers: int
    """They work at once."""
    seed: int
    """Alone decides the kinds of change that a worker makes, and its random numbers."""

    def random_numbers(self, worker: int) -> random.Random:
        """Return a worker's own source of random numbers."""
        return random.Random(f"{self.seed}/{worker}")  # noqa: S311 - can be repeated, not secret


@dataclass(frozen=True)
class WorkloadProgress:
    """The progress of a workload."""

    changes: int
    """Made so far."""
    wanted: int
    """To be made in all."""
    seconds: float
    """Since the start."""


OnProgress = Callable[[WorkloadProgress], None]
"""Called with a workload's progress, a few times per second."""


@dataclass(frozen=True)
class Share:
    """One worker's part of a workload."""

    plan: WorkloadPlan
    kinds: Sequence[str]
    """The kinds of change that it makes, in order."""
    number: int
    """The worker's number."""
    total: int
    """The number of changes of all workers."""
    started: float
    """The workload's start, on the monotonic clock."""
    stop: threading.Event
    """Set from outside."""
    failed: threading.Event
    """Set by the first worker that raises."""

    def await_due(self, at: int) -> bool:
        """Wait until the ``at``-th of the kinds is due; false when the work has to end instead."""
        place = at * self.plan.workers + self.number
        due = self.started + self.plan.seconds * place / max(self.total, 1)
        while (left := due - time.monotonic()) > 0 and not self._ending():
            self.stop.wait(min(left, TICK_SECONDS))
        return not self._ending()

    def _ending(self) -> bool:
        return self.stop.is_set() or self.failed.is_set()


class Tally:
    """Counts of all workers together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._by_kind: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Count something that a summary has, such as ``retries``."""
        with self._lock:
            self._counts[name] += number

    def add_kind(self, kind: str) -> None:
        """Count what a worker has done, by its kind."""
        with self._lock:
            self._by_kind[kind] += 1

    def count(self, name: str) -> int:
        """Return how much of something was counted."""
        with self._lock:
            return self._counts[name]

    def by_kind(self) -> dict[str, int]:
        """Return how often each kind was done, in the order of their names."""
        with self._lock:
            return dict(sorted(self._by_kind.items()))


def kinds_together(summaries: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum up how often each kind was done, in the order of their names."""
    return dict(sorted(sum(map(Counter, summaries), Counter[str]()).items()))


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

    def patiently(self, tally: Tally, collided: Callable[[BaseException], bool]) -> Retrying:
        """Return what tries again, as an application would, if another was faster, and counts that as ``retries``."""
        return Retrying(
            retry=retry_if_exception(collided),
            wait=wait_random(0, 0.1),
            stop=stop_any(stop_after_attempt(ATTEMPTS), stop_when_event_set(self.share.stop)),
            before_sleep=lambda state: tally.add("retries"),
            reraise=True,
        )

    @abstractmethod
    def perform(self, kind: str) -> None:
        """Make one change of a kind."""


def run_workers(
    plan: WorkloadPlan,
    kinds: Sequence[str],
    make: Callable[[Share], Worker],
    stop: threading.Event | None,
    made: Callable[[], int],
    progress: OnProgress | None,
) -> float:
    """Let a plan's workers make changes of these ``kinds`` in their order, and return the seconds that it took.

    ``make`` makes a worker for its share, and ``made`` returns how many changes all have made.
    The work takes longer than planned if the workers are too slow, and ends within a second or so once ``stop`` is
    set. Raises the first error of a worker.
    """
    stop, failed = stop or threading.Event(), threading.Event()
    started = time.monotonic()
    # Worker n makes every so-many-th kind, beginning with its own.
    team = [
        make(Share(plan, kinds[number :: plan.workers], number, len(kinds), started, stop, failed))
        for number in range(plan.workers)
    ]
    threads = [threading.Thread(target=worker.run, name=f"workload-{at}") for at, worker in enumerate(team)]
    for thread in threads:
        thread.start()
    # Wait for all workers, and report the progress meanwhile.
    try:
        while any(thread.is_alive() for thread in threads):
            threads[0].join(TICK_SECONDS) if threads[0].is_alive() else time.sleep(TICK_SECONDS)
            if progress is not None:
                progress(WorkloadProgress(made(), plan.changes, time.monotonic() - started))
    except BaseException:
        # Even an interruption of this thread ends the workers before it goes on.
        failed.set()
        raise
    finally:
        for thread in threads:
            thread.join()
    for worker in team:
        if worker.error is not None:
            raise worker.error
    return time.monotonic() - started

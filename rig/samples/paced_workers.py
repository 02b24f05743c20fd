"""Threads that make a workload's changes at the same time, spread evenly over its duration."""

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
"""How often a worker attempts a change that collides with others."""


@dataclass(frozen=True)
class WorkloadPlan:
    """A workload whose changes are spread evenly over its duration."""

    seconds: float
    """The planned duration."""
    changes: int
    """The smallest number of changes to make."""
    workers: int
    """The number of workers that run at the same time."""
    seed: int
    """The seed of each worker's kinds of change and random numbers."""

    def random_numbers(self, worker: int) -> random.Random:
        """Return a worker's own source of random numbers."""
        return random.Random(f"{self.seed}/{worker}")  # noqa: S311 - can be repeated, not secret


@dataclass(frozen=True)
class WorkloadProgress:
    """The progress of a workload."""

    changes: int
    """The changes made so far."""
    wanted: int
    """The number of changes to make in all."""
    seconds: float
    """The time since the start."""


OnProgress = Callable[[WorkloadProgress], None]
"""Called with a workload's progress, a few times per second."""


@dataclass(frozen=True)
class Share:
    """One worker's part of a workload."""

    plan: WorkloadPlan
    """The plan of the whole workload."""
    kinds: Sequence[str]
    """The kinds of this worker's changes, in order."""
    number: int
    """The worker's number."""
    total: int
    """The number of changes of all workers."""
    started: float
    """The workload's start, on the monotonic clock."""
    stop: threading.Event
    """Set by the caller to end the work."""
    failed: threading.Event
    """Set by the first worker that raises."""

    def await_due(self, at: int) -> bool:
        """Wait until the ``at``-th of the kinds is due; returns False if the work has to end instead."""
        place = at * self.plan.workers + self.number
        due = self.started + self.plan.seconds * place / max(self.total, 1)
        while (left := due - time.monotonic()) > 0 and not self._ending():
            self.stop.wait(min(left, TICK_SECONDS))
        return not self._ending()

    def _ending(self) -> bool:
        return self.stop.is_set() or self.failed.is_set()


class Tally:
    """The counts of all workers together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._by_kind: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Add to a count that a summary has, such as ``retries``."""
        with self._lock:
            self._counts[name] += number

    def add_kind(self, kind: str) -> None:
        """Count a change by its kind."""
        with self._lock:
            self._by_kind[kind] += 1

    def count(self, name: str) -> int:
        """Return one count."""
        with self._lock:
            return self._counts[name]

    def by_kind(self) -> dict[str, int]:
        """Return the number of changes by kind, in the order of the kinds' names."""
        with self._lock:
            return dict(sorted(self._by_kind.items()))


def kinds_together(summaries: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum up the numbers of changes by kind, in the order of the kinds' names."""
    return dict(sorted(sum(map(Counter, summaries), Counter[str]()).items()))


class Worker(ABC):
    """Works through one share in its own thread."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work, and keep the error that ends the work."""
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
        """Wrap a function so that it tries again after a collision, as an application would. Counts ``retries``."""
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
    """Let a plan's workers make changes of these ``kinds`` in their order. Returns the duration in seconds.

    ``make`` makes a worker for its share, and ``made`` returns how many changes all have made. The work takes longer
    than planned if the workers are too slow, and ends within about a second once ``stop`` is set. Raises the first
    error of a worker.
    """
    stop, failed = stop or threading.Event(), threading.Event()
    started = time.monotonic()
    # Worker n takes its own kind and every w-th kind after that, for w workers.
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
        # Even after an interruption of this thread, the workers end first.
        failed.set()
        raise
    finally:
        for thread in threads:
            thread.join()
    for worker in team:
        if worker.error is not None:
            raise worker.error
    return time.monotonic() - started

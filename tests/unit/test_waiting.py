"""A wait ends when its state comes or nothing moves any more, whatever the time that takes."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from headwater.waiting import MOST_IN_ALL, MOST_PATIENCES, StuckError, cpu_seconds, wait_until, work_beside

PATIENCE = 60.0


class World:
    """A clock that only sleeping moves, with work that proceeds meanwhile by a share of a core."""

    def __init__(self, share: float = 0.0) -> None:
        self.now = 0.0
        self._share = share

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> float:
        return self._share * self.now

    def wait(self, condition: Callable[[], bool], progress: Callable[[], object] = lambda: None) -> None:
        wait_until(
            "the moon",
            condition,
            progress,
            poll=1,
            patience=PATIENCE,
            work=self.work,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def test_a_condition_that_holds_is_not_waited_for() -> None:
    world = World()
    world.wait(lambda: True)
    assert world.now == 0


def test_a_wait_goes_on_while_its_progress_changes() -> None:
    world = World()
    world.wait(lambda: world.now >= 30 * PATIENCE, lambda: world.now // (PATIENCE / 2))
    assert world.now == 30 * PATIENCE


def test_what_moves_for_ever_is_not_waited_for_so_long() -> None:
    world = World()
    with pytest.raises(StuckError, match="in vain for the moon"):
        world.wait(lambda: False, lambda: world.now)
    assert MOST_IN_ALL * PATIENCE <= world.now <= (MOST_IN_ALL + 2) * PATIENCE


def test_a_wait_goes_on_while_processes_work() -> None:
    world = World(share=0.1)
    world.wait(lambda: world.now >= 4 * PATIENCE)
    assert world.now == 4 * PATIENCE


def test_a_wait_ends_once_its_progress_stands_still() -> None:
    world = World()
    with pytest.raises(StuckError, match=r"in vain for the moon: found 'offset 3', unchanged for \d+ s, .* idle"):
        world.wait(lambda: False, lambda: f"offset {min(world.now // PATIENCE, 3):.0f}")
    assert 4 * PATIENCE <= world.now <= 6 * PATIENCE


def test_polling_parts_do_not_extend_a_wait() -> None:
    world = World(share=0.02)
    with pytest.raises(StuckError, match=r"waited 60 s in vain for the moon, and its processes are idle"):
        world.wait(lambda: False)


def test_an_endless_loop_ends_a_wait_too() -> None:
    world = World(share=1.0)
    with pytest.raises(StuckError, match="in vain for the moon, though its processes are working"):
        world.wait(lambda: False)
    assert world.now == MOST_PATIENCES * PATIENCE


def test_a_slow_condition_is_tried_once_more_before_the_end() -> None:
    world = World()
    answers = iter([False, True])

    def slow() -> bool:
        world.now += 10 * PATIENCE
        return next(answers)

    world.wait(slow)


def test_the_work_of_descendants_counts_also_after_their_end() -> None:
    before = work_beside()
    script = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", script], check=True)
    # macOS loses it.
    assert work_beside() - before >= (0.25 if sys.platform == "linux" else -0.01)


def test_the_work_of_the_thread_that_waits_does_not_count() -> None:
    own, beside = cpu_seconds(os.getpid()), work_beside()
    while cpu_seconds(os.getpid()) - own < 0.5:
        pass
    assert work_beside() - beside < 0.5


def test_a_process_that_has_ended_works_no_more() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert cpu_seconds(child.pid) == 0

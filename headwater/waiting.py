"""Waiting for work of other threads and processes: until it is done, and for as long as something moves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from headwater.errors import UserError

PATIENCE_SECONDS = 180.0
"""For how long nothing may move, unless a caller says otherwise."""
MOST_PATIENCES = 5
"""Processor time alone extends a wait to so many times its patience, so that an endless loop ends too."""
MOST_IN_ALL = 40
"""A wait takes at most so many times its patience, whatever moves, because some things never stop moving."""
WORKING_SHARE = 0.05
"""The share of one core from which processes count as working. Parts of a pipeline that only poll need less, and a
thread that wants a core gets more even if eight others want it too."""


class StuckError(UserError):
    """Nothing moved any more before the awaited state came."""


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process and its descendants have used so far, in seconds; 0 if there is no such
    process."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            # On macOS, nobody but root reads those of another user.
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                # User and system time, then that of children that have ended.
                total += sum(member.cpu_times()[:4])
    return total


def work_beside() -> float:
    """Return the processor time of this process and its descendants without the calling thread's, in seconds."""
    return cpu_seconds(os.getpid()) - time.thread_time()


def _without_steps() -> None:
    """The progress of a wait that has no intermediate steps."""


def wait_until(
    what: str,
    condition: Callable[[], bool],
    progress: Callable[[], object] = _without_steps,
    *,
    poll: float = 0.1,
    patience: float = PATIENCE_SECONDS,
    work: Callable[[], float] = work_beside,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once ``condition`` holds, which is tried every ``poll`` seconds.

    ``what`` names the awaited state, such as "the writer to commit".
    ``progress`` returns any value that changes while the awaited work advances, such as an offset. Errors show it.
    ``patience`` is the least number of seconds without a change of that value after which the wait ends in vain.
    ``work`` returns the processor time of those who do the awaited work, in seconds. The wait also goes on while they
    use ``WORKING_SHARE`` of a core, up to ``MOST_PATIENCES`` times the patience. It ends after ``MOST_IN_ALL`` times
    the patience in any case.
    ``clock`` and ``sleep`` are the time module's.

    Raises ``StuckError`` with ``what``, the last progress and the seconds for which that stood still.
    """
    began = moved = checked = clock()
    reached, worked = progress(), work()
    while True:
        # A condition that takes long to find out is tried once more.
        now = clock()
        if condition():
            return
        if now - checked >= patience:
            latest, latest_work = progress(), work()
            # On macOS the time of a process that ends is lost to its parent: that is a sign of life too.
            is_working = abs(latest_work - worked) >= WORKING_SHARE * (now - checked)
            if latest != reached and now - began < MOST_IN_ALL * patience:
                reached, moved = latest, now
            elif latest != reached or not is_working or now - moved >= MOST_PATIENCES * patience:
                raise StuckError(_in_vain(what, now - began, now - moved, reached, is_working=is_working))
            worked, checked = latest_work, now
        sleep(poll)


def _in_vain(what: str, waited: float, still: float, reached: object, *, is_working: bool) -> str:
    text = f"waited {waited:.0f} s in vain for {what}"
    if reached is not None:
        text += f": found {reached!r}, unchanged for {still:.0f} s"
    beside = "though its processes are working" if is_working else "and its processes are idle"
    return f"{text}, {beside}"

"""Waits for other threads and processes: until their work is done, and as long as it makes progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from headwater.errors import UserError

PATIENCE_SECONDS = 180.0
"""The default patience: the seconds that a wait lasts without progress."""
MOST_PATIENCES = 5
"""Processor time alone extends a wait to this many times its patience, so that an endless loop ends too."""
MOST_IN_ALL = 40
"""A wait takes at most this many times its patience, because some progress never ends."""
WORKING_SHARE = 0.05
"""The share of one core from which processes count as working.

Parts of a pipeline that only poll need less. A busy thread gets more, even if eight others compete for its core.
"""


class StuckError(UserError):
    """A wait ended without the awaited state, because its work made no more progress."""


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process and its descendants have used; 0 if there is no such process."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            # On macOS, only root can read the times of another user's processes.
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                # The user and system time of the process, then of its children that have ended.
                total += sum(member.cpu_times()[:4])
    return total


def work_beside() -> float:
    """Return the processor seconds of this process and its descendants, without the calling thread's."""
    return cpu_seconds(os.getpid()) - time.thread_time()


def _without_steps() -> None:
    """Return None, the progress of a wait without intermediate steps."""


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
    """Wait until ``condition`` holds.

    - ``what``: the awaited state, such as "the writer to commit".
    - ``progress``: returns a value that changes while the awaited work advances, such as an offset. Errors show it.
    - ``poll``: the seconds between two calls of ``condition``.
    - ``patience``: the wait fails after this many seconds without progress.
    - ``work``: returns the processor seconds of the processes that do the awaited work. Without progress, the wait goes
      on while they use ``WORKING_SHARE`` of a core, up to ``MOST_PATIENCES`` times the patience.
    - ``clock`` and ``sleep``: the time module's.

    The wait ends after ``MOST_IN_ALL`` times the patience in any case. Raises ``StuckError`` with ``what``, the last
    progress, and the seconds without a change of it.
    """
    began = moved = checked = clock()
    reached, worked = progress(), work()
    while True:
        # The time is taken first, so that a slow condition is tried once more before the wait fails.
        now = clock()
        if condition():
            return
        if now - checked >= patience:
            latest, latest_work = progress(), work()
            # On macOS the times of a process vanish when it ends, so the sum may fall. A fall is a sign of life too.
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

"""Runs programs, and kills them together with all processes that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from headwater import private_files
from headwater.errors import UserError
from headwater.waiting import PATIENCE_SECONDS, StuckError, cpu_seconds, wait_until

_GONE_SECONDS = 0.01
_POLL_SECONDS = 0.05


def run(
    name: str,
    argv: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    patience: float = PATIENCE_SECONDS,
) -> int:
    """Run a program and return its exit status. An exception before the program's end kills all its processes.

    - ``name``: the program's name in messages.
    - ``log``: the file to which the program's output is appended.
    - ``env``: all environment variables; None for this process's own.
    - ``cwd``: the working directory; None for this process's own.
    - ``patience``: seconds, as in ``wait_until``.

    Raises UserError if the program stands still.
    """
    with private_files.append(log) as out:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            umask=private_files.UMASK,
        )
    try:
        await_end(name, child, patience, progress=lambda: log.stat().st_size)
    except BaseException as error:
        kill(child)
        if isinstance(error, StuckError):
            raise UserError(f"{error}. It was killed. Its log is {log}") from None
        raise
    return child.returncode


def await_end(
    name: str,
    child: subprocess.Popen[bytes],
    patience: float = PATIENCE_SECONDS,
    work: Callable[[], float] | None = None,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Wait until a program has ended.

    ``patience``, ``work`` and ``progress`` are passed to ``wait_until``, which raises StuckError. By default the work
    is the processor time of the program and its descendants.
    """
    wait_until(
        f"{name} to end",
        lambda: child.poll() is not None,
        progress,
        poll=_POLL_SECONDS,
        patience=patience,
        work=work or partial(cpu_seconds, child.pid),
    )


def kill(leader: subprocess.Popen[bytes]) -> None:
    """Kill a program and its descendants by SIGKILL, and the process group that it leads, if there is one."""
    # PostgreSQL's backends and PySpark's daemon, for example, would end by themselves, but later.
    descendants = _descendants(leader.pid)
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.kill()
    for descendant in descendants:
        with suppress(psutil.NoSuchProcess):
            descendant.kill()
    leader.wait()
    wait_until(f"the processes of {leader.pid} to be gone", lambda: all(map(_is_gone, descendants)), poll=_GONE_SECONDS)


def _is_gone(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not collected its exit status."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []

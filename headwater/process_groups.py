"""Programs that are ended with all the processes that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from headwater import private_files
from headwater.errors import UserError

_GONE_SECONDS = 5


def run(
    name: str,
    argv: Sequence[str],
    log: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> int:
    """Run a program and return its exit status. If this is left before the program's end, all its processes are killed.

    ``name`` is what a person calls it. Its output is appended to ``log``. ``env`` is the whole environment, ``cwd`` the
    working directory; None stands for this process's own. Raises UserError if it has not ended after ``seconds``.
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
        return child.wait(seconds)
    except BaseException as error:
        kill(child)
        if isinstance(error, subprocess.TimeoutExpired):
            raise UserError(f"{name} had not ended after {seconds:.0f} s and was killed. Its log is {log}") from None
        raise


def kill(leader: subprocess.Popen[bytes]) -> None:
    """End a program that leads a process group of its own, by SIGKILL: with its group, and with its descendants outside
    of it."""
    # Such as PostgreSQL's backends and PySpark's daemon, which would end by themselves, but later.
    descendants = _descendants(leader.pid)
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    for descendant in descendants:
        with suppress(psutil.NoSuchProcess):
            descendant.kill()
    leader.wait()
    psutil.wait_procs(descendants, timeout=_GONE_SECONDS)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []

"""Programs that a test runs to their end, for as long as something moves."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from headwater.waiting import PATIENCE_SECONDS, wait_until


def said_by(process: subprocess.Popen[str], given: str | None = None, patience: float = PATIENCE_SECONDS) -> list[str]:
    """Give a program its input and return what it has written to its pipes, output then errors. It is killed with all
    that it has started, and ``StuckError`` raised, if nothing moves for ``patience`` seconds."""
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(process.communicate, given)
        try:
            wait_until(f"{process.args!r} to end", said.done, poll=0.05, patience=patience)
        except BaseException:
            leader = psutil.Process(process.pid)
            for member in [*leader.children(recursive=True), leader]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            raise
        return list(said.result())


def run(
    command: Sequence[str | Path], given: str | None = None, patience: float = PATIENCE_SECONDS, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``subprocess.run`` does, whose ``options`` are taken, and capture what it writes."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        out, errors = said_by(process, given, patience)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)

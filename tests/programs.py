"""Programs that a test runs to their end, for as long as they make progress."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from headwater.waiting import PATIENCE_SECONDS, wait_until


def said_by(process: subprocess.Popen[str], given: str | None = None, patience: float = PATIENCE_SECONDS) -> list[str]:
    """Give a program its input, and return its output and its errors, in this order.

    If nothing moves for ``patience`` seconds, the program and all its descendants are killed, and StuckError is raised.
    """
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


def without_environment() -> dict[str, str]:
    """The environment variables of a machine with the tools of the README.

    They have no virtual environment, and no settings of AWS.
    """
    own = Path(sys.prefix).resolve()
    path = [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each).resolve().is_relative_to(own)]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("AWS_")
    }
    return {**kept, "PATH": os.pathsep.join(path)}


def run(
    command: Sequence[str | Path], given: str | None = None, patience: float = PATIENCE_SECONDS, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``subprocess.run`` does, with its ``options``, and capture its output."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        out, errors = said_by(process, given, patience)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def run_on_terminal(command: Sequence[str | Path], question: bytes | None = None, **options: Any) -> tuple[int, str]:
    """Run a command on a terminal, and answer yes to each ``question``.

    Returns the exit status and the output. ``options`` are passed to ``subprocess.Popen``.
    """
    ours, its = pty.openpty()
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, **options) as process:
        os.close(its)
        said, answered = b"", 0
        # Reading the terminal raises an error once no process has it open.
        with suppress(OSError):
            while got := os.read(ours, 65536):
                said += got
                while question is not None and answered < said.count(question):
                    answered += 1
                    os.write(ours, b"y\n")
    os.close(ours)
    return process.returncode, said.decode(errors="replace")

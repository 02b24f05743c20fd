"""Loops that take the cores beside a command end with it, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from headwater.paths import ROOT
from headwater.waiting import wait_until
from tests.unit.test_processes import alive

BUSY = str(ROOT / "tools" / "busy")
# Waits for so many loops, and prints its own number, its session's, and those of the loops and of their sessions.
SAYS = """
import os, psutil, time
loops = []
while len(loops) < COUNT:
    loops = [each.pid for child in psutil.Process(os.getppid()).children() for each in child.children()]
print(os.getpid(), os.getsid(0), *loops, *map(os.getsid, loops), flush=True)
"""


def _loops(said: str) -> set[int]:
    """The loops, which share a session that is not the command's."""
    _, session, *numbers = map(int, said.split())
    loops, sessions = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    assert len(set(sessions)) == 1
    if shutil.which("setsid"):
        assert session not in sessions
    return set(loops)


@contextmanager
def _interruptible() -> Iterator[None]:
    # Whoever runs the tests in the background of a shell has it ignored, and so have the programs that start then.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_command_runs_beside_its_loops_and_keeps_its_status() -> None:
    command = [BUSY, "3", "--", sys.executable, "-c", SAYS.replace("COUNT", "3") + "raise SystemExit(7)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loops = _loops(done.stdout)
    assert (done.returncode, len(loops)) == (7, 3)
    wait_until("the loops to end", lambda: not any(map(alive, loops)))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_loops_end_when_the_run_is_ended(end: signal.Signals) -> None:
    command = [BUSY, "2", "--", sys.executable, "-c", SAYS.replace("COUNT", "2") + "time.sleep(600)"]
    with _interruptible():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        loops = _loops(said)
        assert len(loops) == 2
        if end is signal.SIGINT:
            # As a terminal does.
            os.killpg(process.pid, end)
        else:
            process.kill()
            psutil.Process(int(said.split()[0])).kill()
    wait_until("the loops to end", lambda: not any(map(alive, loops)))


def test_a_run_without_a_command_is_refused() -> None:
    done = subprocess.run([BUSY, "8"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: tools/busy N -- COMMAND …\n")

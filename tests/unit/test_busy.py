"""Loops that take the cores beside a command end with it, however it ends."""

import os
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
# Prints its own number, then those of the loops beside it.
SAYS = (
    "import os, psutil; print(os.getpid(), *(each.pid for each in psutil.Process(os.getppid()).children()), flush=True)"
)


def _loops(said: str) -> set[int]:
    own, *beside = map(int, said.split())
    return set(beside) - {own}


@contextmanager
def _interruptible() -> Iterator[None]:
    # Whoever runs the tests in the background of a shell has it ignored, and so have the programs that start then.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_command_runs_beside_its_loops_and_keeps_its_status() -> None:
    command = [BUSY, "3", "--", sys.executable, "-c", f"{SAYS}; raise SystemExit(7)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loops = _loops(done.stdout)
    assert (done.returncode, len(loops)) == (7, 3)
    wait_until("the loops to end", lambda: not any(map(alive, loops)))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_loops_end_when_the_run_is_ended(end: signal.Signals) -> None:
    command = [BUSY, "2", "--", sys.executable, "-c", f"{SAYS}; import time; time.sleep(600)"]
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

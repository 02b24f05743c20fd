"""A command says one line per step, and moves nothing but a terminal's last line."""

from __future__ import annotations

import re
import subprocess
import sys

from headwater.paths import ROOT
from tests.programs import run_on_terminal

STEPS = """
import time
from contextlib import suppress
from concurrent.futures import ThreadPoolExecutor
from headwater.console import announce, say
def step(name, seconds):
    with announce(name):
        time.sleep(seconds)
with ThreadPoolExecutor(1) as beside:
    fetched = beside.submit(step, "Fetching", 0.1)
    with announce("Building"):
        fetched.result()
with suppress(ValueError), announce("Packing"):
    raise ValueError
say("Up to date")
"""
LINES = [r"Fetching … done, \d+\.\d s", r"Building … done, \d+\.\d s", r"Packing … failed, \d+\.\d s", "Up to date"]
COMMAND = [sys.executable, "-c", STEPS]


def test_a_step_is_one_line_with_its_result_and_its_time() -> None:
    said = subprocess.check_output(COMMAND, cwd=ROOT, text=True)
    assert "\r" not in said
    assert "\x1b" not in said
    for line, expected in zip(said.splitlines(), LINES, strict=True):
        assert re.fullmatch(expected, line)


def test_a_terminal_ticks_and_keeps_the_same_lines() -> None:
    status, said = run_on_terminal(COMMAND, cwd=ROOT)
    assert status == 0
    lines = said.split("\r\n")
    assert re.search(r"Building … 0 s\x1b\[K\r", lines[0])
    # What ticked is erased when the line is written.
    for line, expected in zip(lines[:-1], LINES, strict=True):
        assert re.fullmatch(expected + r"\x1b\[K", line.rpartition("\r")[2])
    assert lines[-1] == ""

"""`make test` and `make rest` together run each test of tests/lake and tests/local once."""

import json
import subprocess
import sys

from headwater.paths import ROOT
from rig.documentation import promises

FILE = "tests/lake/test_writer.py"
# One process collects by each of the options in turn: starting pytest and importing Spark takes seconds.
COLLECTS = """
import json, sys
import pytest

for options in json.loads(sys.argv[1]):
    print("By these options:")
    assert pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *options, sys.argv[2]]) == 0
"""


def collected(*chosen: list[str]) -> list[set[str]]:
    """The tests of the file that each of these options leaves."""
    command = [sys.executable, "-c", COLLECTS, json.dumps(chosen), FILE]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    _, *runs = said.split("By these options:\n")
    return [{line for line in run.splitlines() if line.startswith(FILE)} for run in runs]


def test_a_test_belongs_to_make_test_if_it_guards_a_promise() -> None:
    only, without, everything = collected(["--promised", "only"], ["--promised", "without"], [])
    assert only.isdisjoint(without)
    assert only | without == everything
    guards = {promise.test for promise in promises.read().promises if promise.test.startswith(FILE)}
    assert {test.partition("[")[0] for test in only} == guards


def test_make_test_runs_the_test_of_each_promise() -> None:
    assert [promise.name for promise in promises.read().promises if promise.suite == promises.DRILLS] == []

"""`make test` and `make rest` together run each test of tests/lake and tests/local once."""

import subprocess
import sys

from headwater.documentation import promises
from headwater.paths import ROOT

FILE = "tests/lake/test_writer.py"


def collected(*options: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *options, FILE]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in said.splitlines() if line.startswith(FILE)}


def test_a_test_belongs_to_make_test_if_it_guards_a_promise() -> None:
    only, without = collected("--promised", "only"), collected("--promised", "without")
    assert only.isdisjoint(without)
    assert only | without == collected()
    guards = {promise.test for promise in promises.read().promises if promise.test.startswith(FILE)}
    assert {test.partition("[")[0] for test in only} == guards


def test_make_test_runs_the_test_of_each_promise() -> None:
    assert [promise.name for promise in promises.read().promises if promise.suite == promises.DRILLS] == []

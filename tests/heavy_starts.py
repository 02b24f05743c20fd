"""Counts what takes long to start, over all processes of a run, and prints it at the end. With
``--most-starts SUITE`` the run fails if it started more than ``tests/most_starts.toml`` allows for that suite."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.local.processes import Process
from headwater.local_aws.daemon import Running

KINDS = {
    "the Spark driver": "Spark",
    "the Spark writer": "Spark",
    "the Glue job's script": "Spark",
    "the Kafka broker": "Kafka",
    "the Kafka Connect worker": "Kafka Connect",
    "PostgreSQL": "PostgreSQL",
    "DynamoDB Local": "DynamoDB Local",
    "the object store (SeaweedFS)": "object store",
}
"""What each heavy process counts as, by its name. A local AWS is a process of another kind, and counted beside."""
_MOST = Path(__file__).with_name("most_starts.toml")
_STARTED: pytest.StashKey[Counter[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-starts", metavar="SUITE", help="fail if the run starts more than the suite may")


def pytest_configure(config: pytest.Config) -> None:
    """Count in this process from now on."""
    started = config.stash[_STARTED] = Counter()
    start, get_or_create, run = Process.start, SparkSession.Builder.getOrCreate, Running.start

    def counted_start(self: Process) -> None:
        if self.name in KINDS:
            started[KINDS[self.name]] += 1
        start(self)

    def counted_session(self: SparkSession.Builder) -> SparkSession:
        if SparkSession.getActiveSession() is None:
            started["Spark"] += 1
        return get_or_create(self)

    def counted_run(*given: Any) -> Running:
        started["local AWS"] += 1
        return run(*given)

    Running.start = counted_run  # type: ignore[method-assign, assignment]
    Process.start = counted_start  # type: ignore[method-assign]
    SparkSession.Builder.getOrCreate = counted_session  # type: ignore[method-assign]

    def restore() -> None:
        Running.start = run  # type: ignore[method-assign]
        Process.start = start  # type: ignore[method-assign]
        SparkSession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign]

    config.add_cleanup(restore)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker reports what it started; the run fails if that is too much in all."""
    config = session.config
    started: Counter[str] = config.stash[_STARTED]
    if hasattr(config, "workeroutput"):
        config.workeroutput["heavy_starts"] = dict(started)
    elif session.exitstatus == pytest.ExitCode.OK and too_many(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what a worker of pytest-xdist has started."""
    del error
    told: dict[str, int] = getattr(node, "workeroutput", {}).get("heavy_starts", {})
    started: Counter[str] = node.config.stash[_STARTED]
    started.update(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the counts, and each that is too large."""
    started = config.stash[_STARTED]
    if started:
        terminalreporter.section("heavy starts")
        terminalreporter.line(" · ".join(f"{kind} {count}" for kind, count in sorted(started.items())))
    for line in too_many(config):
        terminalreporter.line(line, red=True)


def too_many(config: pytest.Config) -> list[str]:
    """A line for each kind of which more was started than the suite may start."""
    suite = config.getoption("--most-starts")
    if suite is None:
        return []
    most = tomllib.loads(_MOST.read_text())[suite]
    return [
        f"{kind}: {count} starts, at most {most.get(kind, 0)} in {_MOST.name} for {suite}. Share one that runs, or "
        "move a test to another suite"
        for kind, count in config.stash[_STARTED].items()
        if count > most.get(kind, 0)
    ]

"""Counts the starts of heavy programs in all processes of a run, and prints the counts at the end.

With ``--most-starts SUITE`` the run fails if it starts more programs than ``tests/most_starts.toml`` allows for that
suite.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
"""The kind of program under which each heavy process counts, by the process's name. A local AWS that runs as a process
counts separately."""
_MOST = Path(__file__).with_name("most_starts.toml")
_STARTED: pytest.StashKey[Counter[str]] = pytest.StashKey()


class _Counted(MetaPathFinder):
    """Counts the starts by the modules below, from the import of these modules on.

    Most processes of pytest need none of the modules, and importing all of them would take each process a second.
    """

    def __init__(self, started: Counter[str]) -> None:
        self._started = started
        self._patch = pytest.MonkeyPatch()
        self._awaited: dict[str, Callable[[ModuleType], None]] = {
            "rig.local.processes": self._count_processes,
            "rig.local_aws.daemon": self._count_accounts,
            "pyspark.sql.session": self._count_sessions,
        }

    def begin(self) -> None:
        """Count from now on."""
        for name in self._awaited.keys() & sys.modules.keys():
            self._awaited.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Count no more."""
        sys.meta_path.remove(self)
        self._patch.undo()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find one of the modules as the other finders do; None for other modules.

        Once the module has run, its starts are counted.
        """
        del path, target
        count = self._awaited.pop(fullname, None)
        spec = find_spec(fullname) if count else None
        if count is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            count(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec

    def _count_processes(self, module: Any) -> None:
        start = module.Process.start

        def counted(process: Any) -> None:
            if process.name in KINDS:
                self._started[KINDS[process.name]] += 1
            start(process)

        self._patch.setattr(module.Process, "start", counted)

    def _count_accounts(self, module: Any) -> None:
        start = module.Running.start

        def counted(*given: Any) -> Any:
            self._started["local AWS"] += 1
            return start(*given)

        self._patch.setattr(module.Running, "start", counted)

    def _count_sessions(self, module: Any) -> None:
        get_or_create = module.SparkSession.Builder.getOrCreate

        def counted(builder: Any) -> Any:
            if module.SparkSession.getActiveSession() is None:
                self._started["Spark"] += 1
            return get_or_create(builder)

        self._patch.setattr(module.SparkSession.Builder, "getOrCreate", counted)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-starts", metavar="SUITE", help="fail if the run starts more than the suite may")


def pytest_configure(config: pytest.Config) -> None:
    """Count in this process from now on."""
    counted = _Counted(config.stash.setdefault(_STARTED, Counter()))
    counted.begin()
    config.add_cleanup(counted.end)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report a worker's starts. In the main process, fail the run if there were too many starts."""
    config = session.config
    started: Counter[str] = config.stash[_STARTED]
    if hasattr(config, "workeroutput"):
        config.workeroutput["heavy_starts"] = dict(started)
    elif session.exitstatus == pytest.ExitCode.OK and too_many(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add the starts of a worker of pytest-xdist."""
    del error
    told: dict[str, int] = getattr(node, "workeroutput", {}).get("heavy_starts", {})
    started: Counter[str] = node.config.stash[_STARTED]
    started.update(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the counts, and a line for each that is too large."""
    started = config.stash[_STARTED]
    if started:
        terminalreporter.section("heavy starts")
        terminalreporter.line(" · ".join(f"{kind} {count}" for kind, count in sorted(started.items())))
    for line in too_many(config):
        terminalreporter.line(line, red=True)


def too_many(config: pytest.Config) -> list[str]:
    """A line for each kind of program that was started more often than the suite may start it."""
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

"""Decides which tests of ``tests/lake`` and ``tests/local`` each suite runs.

``make test`` runs one test for each promise of ``reviewed/promises.yaml``; ``make rest`` runs the others. ``make test``
also runs all tests of other folders.
"""

from __future__ import annotations

import pytest

from headwater.paths import ROOT
from rig.documentation import promises

ONLY, WITHOUT = "only", "without"
_SLOW = ("tests/lake", "tests/local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--promised", choices=(ONLY, WITHOUT), help="tests of promises, in tests/lake and tests/local")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other suite."""
    promised = config.getoption("--promised")
    if promised is None:
        return
    guards = {promise.test for promise in promises.read().promises}
    chosen = [item for item in items if is_promised(item, guards) == (promised == ONLY)]
    config.hook.pytest_deselected(items=set(items) - set(chosen))
    items[:] = chosen


def is_promised(item: pytest.Item, guards: set[str]) -> bool:
    """Whether ``make test`` runs a test: it guards a promise, or is quick."""
    path = item.path.relative_to(ROOT).as_posix()
    if not path.startswith(_SLOW):
        return True
    _, _, name = item.nodeid.partition("::")
    return f"{path}::{name.partition('[')[0]}" in guards

"""Simulations by the measured unit costs: of a rate of changes, and of what a demo's report has measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headwater.benchmark.simulation import Change, Costs, Outcome, Setting, Table, evenly, simulate
from headwater.demo.freshness import LOOK_SECONDS
from headwater.lake.idle_pause import FIRST_PAUSE_SECONDS, IdlePause
from headwater.yaml_files import read_yaml

UNIT_COSTS = Path(__file__).with_name("unit_costs.yaml")
SECONDS = 300.0
DRAIN_SECONDS = 60.0
Report = Mapping[str, Any]
"""A ``report.json`` of the demo."""

# Of the demo: a file group for each month that has orders, and the contracts' buckets; rows as Northwind has them.
_DEMO = {"orders": ("order", 36, 829), "customers": ("payment", 2, 91), "products": ("payment", 1, 77)}
_DEMO_FLUSH = 1.0
_DEMO_LONGEST_PAUSE = FIRST_PAUSE_SECONDS


@dataclass(frozen=True)
class Plan:
    """``rate`` changes a second, of one ``kind`` in ``unit_costs.yaml``, evenly over ``tables`` of so many ``buckets``
    that change and ``rows`` in them; ``cores`` of the writer's driver; ``flush`` and ``longest_pause`` in seconds."""

    rate: float
    tables: int
    kind: str
    buckets: int
    rows: int
    cores: float
    flush: float
    longest_pause: float


@cache
def costs() -> Costs:
    """The measured costs, whatever the changes are."""
    return Costs(**{name: cost["seconds"] for name, cost in read_yaml(UNIT_COSTS)["costs"].items()})


@cache
def changes() -> Mapping[str, Change]:
    """The measured kinds of changes."""
    kinds = read_yaml(UNIT_COSTS)["changes"]
    return {kind: Change(cost["kib"], cost["capture"], cost["decoding"]) for kind, cost in kinds.items()}


def simulated(plan: Plan, seconds: float = SECONDS) -> Outcome:
    """Simulate a plan for so long. Raises KeyError for an unknown kind."""
    change = changes()[plan.kind]
    tables = [
        Table(evenly(plan.rate / plan.tables, seconds, number), change, plan.buckets, plan.rows)
        for number in range(plan.tables)
    ]
    pause = IdlePause(FIRST_PAUSE_SECONDS, plan.longest_pause)
    return simulate(tables, costs(), Setting(plan.flush, pause, plan.cores), seconds, DRAIN_SECONDS)


def replayed(report: Report) -> Outcome:
    """Simulate a demo, given when its changes were made and how many cores others took. Its freshness, too, is told by
    who looks every ``LOOK_SECONDS``."""
    arrivals = report["arrivals_by_pipeline"]["relational"]
    tables = [
        Table([(float(at), number) for at, number in arrivals[table].items()], changes()[kind], groups, rows)
        for table, (kind, groups, rows) in _DEMO.items()
    ]
    setting = Setting(
        flush=_DEMO_FLUSH,
        pause=IdlePause(FIRST_PAUSE_SECONDS, _DEMO_LONGEST_PAUSE),
        cores=report["cores"]["machine"],
        others=report["cores"]["others"],
        look=LOOK_SECONDS,
    )
    return simulate(tables, costs(), setting, report["workloads"]["relational"]["seconds"], DRAIN_SECONDS)

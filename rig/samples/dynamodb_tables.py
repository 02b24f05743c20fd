"""Sample items and workloads for the DynamoDB tables of any contracts."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from headwater.contract.model import Contract
from rig.samples import items, items_workload
from rig.samples.items_workload import ItemsSummary
from rig.samples.paced_workers import OnProgress, WorkloadPlan, WorkloadProgress

ITEMS = 1_000
"""The number of a table's items at scale 1."""


def fill(client: Any, contract: Contract, scale: float, seed: int) -> int:
    """Put items into the empty table of a contract, as many as ``scale`` says. Returns their number."""
    generated = items.generate(contract, max(round(ITEMS * scale), 1), seed)
    return items.load(client, contract.source.table, generated)


def change(
    client_factory: Callable[[], Any],
    contracts: Sequence[Contract],
    plan: WorkloadPlan,
    progress: OnProgress,
    stop: threading.Event,
) -> ItemsSummary:
    """Run a workload on the tables of all contracts at the same time, and return a summary of all.

    Each table gets an equal part of the ``plan``. ``progress`` is called with all tables' changes so far. All workloads
    end once ``stop`` is set. Raises the first error of a table's workload, which ends the others.
    """
    changes = dict.fromkeys((contract.table for contract in contracts), 0)
    part = part_of(plan, len(contracts))

    def work(contract: Contract) -> ItemsSummary:
        def report(now: WorkloadProgress) -> None:
            changes[contract.table] = now.changes
            progress(WorkloadProgress(sum(changes.values()), plan.changes, now.seconds))

        try:
            return items_workload.run(client_factory, contract, part, report, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(len(contracts), 1)) as pool:
        return items_workload.together(list(pool.map(work, contracts)))


def part_of(plan: WorkloadPlan, tables: int) -> WorkloadPlan:
    """Return one table's part of a plan for this many tables."""
    return replace(plan, changes=round(plan.changes / tables), workers=max(plan.workers // tables, 1))

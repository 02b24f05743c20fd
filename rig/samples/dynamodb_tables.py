"""Fills and changes the DynamoDB tables of any contracts: the accounts with items of their own, others with generated
ones."""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from headwater.contract.model import Contract
from rig.samples import accounts, accounts_workload, items, items_workload
from rig.samples.items_workload import ItemsSummary
from rig.samples.paced_workers import OnProgress, WorkloadPlan, WorkloadProgress

ACCOUNTS = 1_000
ITEMS = 200
# As the contract names the table, and as an environment does.
_ACCOUNTS_TABLE = re.compile(accounts.TABLE.replace("-", "-(?:[a-z0-9]+-)?"))
# What the other tables get, in terms of the accounts' changes and workers.
_SHARE_OF_CHANGES = 1 / 8
_WORKERS = 1


def fill(client: Any, contract: Contract, scale: float, seed: int) -> int:
    """Put items into the empty table of a contract, as many as ``scale`` says, and return how many there are."""
    if _holds_accounts(contract):
        generated = accounts.generate(round(ACCOUNTS * scale), seed)
    else:
        generated = items.generate(contract, max(round(ITEMS * scale), 1), seed)
    return items.load(client, contract.source.table, generated)


def change(
    client_factory: Callable[[], Any],
    contracts: Sequence[Contract],
    plan: WorkloadPlan,
    progress: OnProgress,
    stop: threading.Event,
) -> ItemsSummary:
    """Run a workload on the tables of all contracts side by side, and return what they did together.

    The accounts get the whole ``plan``, each other table a part of it. ``progress`` is called with all tables' changes
    so far. All end once ``stop`` is set. Raises the first error of a table's workload, which ends the others.
    """
    changes = dict.fromkeys((contract.table for contract in contracts), 0)
    plans = {contract.table: plan_of(contract, plan) for contract in contracts}
    wanted = sum(planned.changes for planned in plans.values())

    def work(contract: Contract) -> ItemsSummary:
        def report(now: WorkloadProgress) -> None:
            changes[contract.table] = now.changes
            progress(WorkloadProgress(sum(changes.values()), wanted, now.seconds))

        try:
            if _holds_accounts(contract):
                table = contract.source.table
                return accounts_workload.run(client_factory, plans[contract.table], report, stop, table=table)
            return items_workload.run(client_factory, contract, plans[contract.table], report, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(len(contracts), 1)) as pool:
        return items_workload.together(list(pool.map(work, contracts)))


def plan_of(contract: Contract, plan: WorkloadPlan) -> WorkloadPlan:
    """Return the part of a plan that the table of a contract gets."""
    if _holds_accounts(contract):
        return plan
    return replace(plan, changes=round(plan.changes * _SHARE_OF_CHANGES), workers=_WORKERS)


def _holds_accounts(contract: Contract) -> bool:
    return _ACCOUNTS_TABLE.fullmatch(contract.source.table) is not None

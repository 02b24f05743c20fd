"""The live workloads of a demonstration: one for each source that has contracts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import psycopg

from headwater.contract.model import Contract
from rig.demo.report import Workload
from rig.samples import dynamodb_tables, items_workload, orders_workload
from rig.samples.items_workload import ItemsSummary
from rig.samples.orders_workload import OrdersSummary
from rig.samples.paced_workers import OnProgress, WorkloadPlan

SEED = 1996
_CONNECTIONS = 6
_CLIENTS = 4

Summary = TypeVar("Summary", bound=Workload)


@dataclass(frozen=True)
class LiveWorkload(Generic[Summary]):
    """The workload of one source."""

    changes: str
    """The object of the changes, such as ``the orders``."""
    unit: str
    """The unit of the counts, such as ``transactions``."""
    workers: int
    """The number of connections or clients."""
    run: Callable[[WorkloadPlan, OnProgress, threading.Event], Summary]
    """Runs the workload, like ``orders_workload.run``."""
    one_after_another: Callable[[Sequence[Summary]], Summary]
    """Sums up successive runs."""

    def plan(self, seconds: float, rate: float, seed: int = SEED) -> WorkloadPlan:
        """Return the plan for ``rate`` changes per second over ``seconds``."""
        return WorkloadPlan(seconds, round(rate * seconds), self.workers, seed)


def of_orders(connect: Callable[[], psycopg.Connection]) -> LiveWorkload[OrdersSummary]:
    """Return the workload of the order database. ``connect`` connects as its application."""
    return LiveWorkload(
        "the orders",
        "transactions",
        _CONNECTIONS,
        lambda plan, progress, stop: orders_workload.run(connect, plan, progress, stop),
        orders_workload.one_after_another,
    )


def of_items(client_factory: Callable[[], Any], contracts: Sequence[Contract]) -> LiveWorkload[ItemsSummary]:
    """Return the workload of the DynamoDB tables of ``contracts``. ``client_factory`` makes boto3's client."""

    def one_after_another(summaries: Sequence[ItemsSummary]) -> ItemsSummary:
        return replace(items_workload.together(summaries), seconds=sum(each.seconds for each in summaries))

    return LiveWorkload(
        ", ".join(contract.table for contract in contracts),
        "item changes",
        _CLIENTS,
        lambda plan, progress, stop: dynamodb_tables.change(client_factory, contracts, plan, progress, stop),
        one_after_another,
    )


def all_changes(workloads: Sequence[LiveWorkload[Any]]) -> str:
    """Return a phrase for the objects that these workloads change."""
    return ", ".join(workload.changes for workload in workloads)


def counted(summaries: Sequence[Workload]) -> str:
    """Return a phrase for the amount of work of these workloads."""
    return ", ".join("{:,} {}".format(*summary.counted()) for summary in summaries)


def await_all(running: Sequence[Future[Any]], seconds: float, tell: Callable[[], None]) -> None:
    """Wait until all have ended, and call ``tell`` every ``seconds`` meanwhile. Raises the first error of one."""
    while True:
        ended, others = wait(running, seconds, FIRST_EXCEPTION)
        for each in ended:
            each.result()
        if not others:
            return
        tell()

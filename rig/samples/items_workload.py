"""A live workload on any DynamoDB table: puts, updates and deletes of items that fit its contract.

What it counts is exact: each change is one record of the table's stream.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.contract.model import Contract
from headwater.definitions.dynamodb_table import key_attributes
from rig.samples.items import ItemMaker, Key
from rig.samples.paced_workers import (
    OnProgress,
    Share,
    Worker,
    WorkloadPlan,
    WorkloadProgress,
    run_workers,
)

KINDS: Mapping[str, float] = {"put": 6, "replace": 3, "update": 6, "delete": 3}
"""How often each kind of write is chosen."""


@dataclass(frozen=True)
class ItemsSummary:
    """What a workload on DynamoDB tables did.

    ``changes`` are the records that it left in the tables' streams; the deletions by time to live come on top.
    ``refused`` counts the conditional writes and ``cancelled`` the transactions that DynamoDB did not make, ``retries``
    the attempts that met another writer's transaction. ``expiring`` items were left to the time to live at the end.
    ``by_kind`` counts writes by their kind.
    """

    changes: int
    seconds: float
    refused: int = 0
    cancelled: int = 0
    retries: int = 0
    expiring: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def counted(self) -> tuple[int, str]:
        """What a report counts."""
        return self.changes, "item changes"

    def remark(self) -> str:
        """What a report says about how the writes ended."""
        return (
            f"{self.refused:,} conditional writes refused and {self.cancelled:,} transactions cancelled on purpose, "
            f"{self.expiring:,} items left to expire, {self.retries:,} attempts repeated after a collision."
        )


def together(summaries: Iterable[ItemsSummary]) -> ItemsSummary:
    """Sum up workloads that ran side by side."""
    listed = list(summaries)
    by_kind = sum((Counter(summary.by_kind) for summary in listed), Counter[str]())
    return ItemsSummary(
        changes=sum(summary.changes for summary in listed),
        seconds=max((summary.seconds for summary in listed), default=0.0),
        refused=sum(summary.refused for summary in listed),
        cancelled=sum(summary.cancelled for summary in listed),
        retries=sum(summary.retries for summary in listed),
        expiring=sum(summary.expiring for summary in listed),
        by_kind=dict(sorted(by_kind.items())),
    )


class ItemsTally:
    """Counts of all workers together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._by_kind: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Count something that the summary has, such as ``changes``."""
        with self._lock:
            self._counts[name] += number

    def add_kind(self, kind: str) -> None:
        """Count a write that was made."""
        with self._lock:
            self._by_kind[kind] += 1

    @property
    def changes(self) -> int:
        """The changes so far."""
        with self._lock:
            return self._counts["changes"]

    def summary(self, seconds: float, expiring: int = 0) -> ItemsSummary:
        """Return the summary of a workload that took so many seconds."""
        with self._lock:
            return ItemsSummary(
                changes=self._counts["changes"],
                seconds=seconds,
                refused=self._counts["refused"],
                cancelled=self._counts["cancelled"],
                retries=self._counts["retries"],
                expiring=expiring,
                by_kind=dict(sorted(self._by_kind.items())),
            )


def run(
    client_factory: Callable[[], Any],
    contract: Contract,
    plan: WorkloadPlan,
    progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> ItemsSummary:
    """Run a workload on the table of a contract.

    ``client_factory`` makes a boto3 client of ``dynamodb``. No two workers change the same item. The workload ends
    within a second or so once ``stop`` is set. Raises the first error of DynamoDB's.
    """
    keys = existing_keys(client_factory(), contract)
    tally = ItemsTally()
    rng = random.Random(plan.seed)  # noqa: S311 - can be repeated, not secret
    kinds = [*KINDS, *rng.choices(list(KINDS), list(KINDS.values()), k=max(plan.changes - len(KINDS), 0))]

    def make(share: Share) -> Worker:
        return _ItemsWorker(share, client_factory(), contract, keys, tally)

    def tick(elapsed: float) -> None:
        if progress is not None:
            progress(WorkloadProgress(tally.changes, plan.changes, elapsed))

    return tally.summary(run_workers(plan, kinds, make, stop or threading.Event(), tick))


def existing_keys(client: Any, contract: Contract) -> list[Key]:
    """The keys of all items in the table of a contract, in order."""
    names = {f"#{at}": key.name for at, key in enumerate(key_attributes(contract))}
    pages = client.get_paginator("scan").paginate(
        TableName=contract.source.table,
        ProjectionExpression=", ".join(names),
        ExpressionAttributeNames=names,
        ConsistentRead=True,
    )
    return sorted((item for page in pages for item in page["Items"]), key=repr)


class _ItemsWorker(Worker):
    """One client and its own share of a table's items."""

    def __init__(self, share: Share, client: Any, contract: Contract, keys: list[Key], tally: ItemsTally) -> None:
        super().__init__(share)
        self._client = client
        self._table = contract.source.table
        self._rng = share.plan.random_numbers(share.number)
        self._make = ItemMaker(contract, self._rng)
        self._mine = keys[share.number :: share.plan.workers]
        self._taken = {repr(key) for key in keys}
        self._next_number = len(keys) + share.number
        self._tally = tally

    def perform(self, kind: str) -> None:
        getattr(self, f"_{kind}")()
        self._tally.add("changes")
        self._tally.add_kind(kind)

    def _put(self) -> None:
        number, key = self._new()
        self._client.put_item(TableName=self._table, Item=self._make.item(number))
        self._mine.append(key)

    def _replace(self) -> None:
        key = self._existing()
        self._client.put_item(TableName=self._table, Item={**self._make.item(0), **key})

    def _update(self) -> None:
        """Set an attribute that the contract names, or remove it."""
        key = self._existing()
        values = self._make.revision()
        removed: list[str] = []
        if self._make.names:
            name = self._rng.choice(self._make.names)
            value = self._make.attribute(name)
            if value is None:
                removed.append(name)
            else:
                values[name] = value
        update = ", ".join(f"#s{at} = :s{at}" for at in range(len(values)))
        remove = " REMOVE #r0" if removed else ""
        self._client.update_item(
            TableName=self._table,
            Key=key,
            UpdateExpression=f"SET {update}{remove}",
            ExpressionAttributeNames={
                **{f"#s{at}": name for at, name in enumerate(values)},
                **{f"#r{at}": name for at, name in enumerate(removed)},
            },
            ExpressionAttributeValues={f":s{at}": value for at, value in enumerate(values.values())},
        )

    def _delete(self) -> None:
        key = self._existing()
        self._client.delete_item(TableName=self._table, Key=key)
        self._mine.remove(key)

    def _existing(self) -> Key:
        """Return the key of an item of this worker's own; where none is left, one is put first."""
        if not self._mine:
            self.perform("put")
        return self._rng.choice(self._mine)

    def _new(self) -> tuple[int, Key]:
        """Return a number, and its key, that no item had when the workload began and no other worker takes."""
        while True:
            number = self._next_number
            self._next_number += self.share.plan.workers
            key = self._make.key(number)
            if repr(key) not in self._taken:
                return number, key

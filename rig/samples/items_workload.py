"""A live workload on any DynamoDB table: every kind of write that DynamoDB has, from several clients at once.

Its counts are exact: each change is one record of the table's stream. A write that leaves an item unchanged makes no
record. A write that DynamoDB refuses makes none either.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from headwater.contract.model import Contract
from headwater.definitions.dynamodb_table import key_attributes
from headwater.errors import UserError
from rig.samples.items import REVISION, TYPES, Item, ItemMaker, Key, write_batch
from rig.samples.paced_workers import (
    OnProgress,
    Share,
    Tally,
    Worker,
    WorkloadPlan,
    kinds_together,
    run_workers,
)


@dataclass(frozen=True)
class _Kind:
    """A kind of write."""

    weight: float
    """The kind's share of the writes, relative to the other kinds' weights."""
    changes: int
    """How many changes it makes at least."""


Values = Mapping[str, dict[str, Any] | None]
"""Attributes of an item with the values to set; None removes one."""

_BATCH_PUTS, _BATCH_DELETES = 8, 4
KINDS: Mapping[str, _Kind] = {
    "put": _Kind(16, 1),
    "replace": _Kind(6, 1),
    "rewrite_the_same": _Kind(3, 0),
    "update": _Kind(16, 1),
    "update_if_unchanged": _Kind(10, 1),
    "update_refused": _Kind(6, 0),
    "delete": _Kind(7, 1),
    "delete_nothing": _Kind(2, 0),
    "delete_and_put": _Kind(4, 2),
    "move": _Kind(8, 1),
    "add_attributes": _Kind(5, 1),
    "remove_attributes": _Kind(5, 1),
    "change_type": _Kind(6, 1),
    "batch_write": _Kind(3, _BATCH_PUTS + _BATCH_DELETES),
    "transact_write": _Kind(4, 4),
    "transact_cancelled": _Kind(3, 0),
}
EXPIRING_KINDS: Mapping[str, _Kind] = {"expire": _Kind(6, 1), "renew": _Kind(3, 1)}
"""More kinds, for a table with a time to live."""

_HOT_ITEMS = 8  # every worker updates them, so that writes collide
# Another writer was faster, or DynamoDB is busy: the workload tries again, as an application would.
_COLLISIONS = {
    "TransactionConflictException",
    "TransactionInProgressException",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
}


@dataclass(frozen=True)
class ItemsSummary:
    """The result of a workload on DynamoDB tables."""

    changes: int
    """The records that the workload left in the tables' streams; deletions by time to live are added to these."""
    seconds: float
    """The duration of the workload."""
    refused: int = 0
    """The conditional writes that DynamoDB refused on purpose."""
    cancelled: int = 0
    """The transactions that DynamoDB cancelled on purpose."""
    retries: int = 0
    """The attempts that collided with another writer's transaction."""
    expiring: int = 0
    """The items that expired and were left to the time to live."""
    by_kind: dict[str, int] = field(default_factory=dict)
    """The number of writes by their kind."""

    def counted(self) -> tuple[int, str]:
        """The number for a report, and its unit."""
        return self.changes, "item changes"

    def remark(self) -> str:
        """The report's sentence about refused, cancelled and repeated writes."""
        return (
            f"{self.refused:,} conditional writes refused and {self.cancelled:,} transactions cancelled on purpose, "
            f"{self.expiring:,} items left to expire, {self.retries:,} attempts repeated after a collision."
        )


def together(summaries: Iterable[ItemsSummary]) -> ItemsSummary:
    """Sum up workloads that ran at the same time."""
    listed = list(summaries)
    return ItemsSummary(
        changes=sum(summary.changes for summary in listed),
        seconds=max((summary.seconds for summary in listed), default=0.0),
        refused=sum(summary.refused for summary in listed),
        cancelled=sum(summary.cancelled for summary in listed),
        retries=sum(summary.retries for summary in listed),
        expiring=sum(summary.expiring for summary in listed),
        by_kind=kinds_together(summary.by_kind for summary in listed),
    )


def kinds_of(contract: Contract) -> Mapping[str, _Kind]:
    """The kinds of writes that the table of a contract gets."""
    return {**KINDS, **EXPIRING_KINDS} if contract.source.time_to_live is not None else KINDS


def choose_kinds(contract: Contract, changes: int, seed: int) -> list[str]:
    """Return the kinds of writes that make at least ``changes`` changes together, in a shuffled order.

    Every kind comes at least once. The same arguments give the same kinds.
    """
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    kinds = kinds_of(contract)
    chosen = list(kinds)
    made = sum(kind.changes for kind in kinds.values())
    weights = [kind.weight for kind in kinds.values()]
    while made < changes:
        (name,) = rng.choices(list(kinds), weights)
        chosen.append(name)
        made += kinds[name].changes
    rng.shuffle(chosen)
    return chosen


def run(
    client_factory: Callable[[], Any],
    contract: Contract,
    plan: WorkloadPlan,
    progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> ItemsSummary:
    """Run the workload on the table of a contract.

    ``client_factory`` makes a boto3 client of ``dynamodb``. The workload takes longer than planned if DynamoDB is too
    slow, and ends within about a second once ``stop`` is set. Raises ``UserError`` for an empty table, and DynamoDB's
    first error other than a collision.
    """
    table = _Table(contract, client_factory())
    if not table.lasting:
        raise UserError(f"the table {table.name} has no items, expected one at least: load it first")
    kinds = choose_kinds(contract, plan.changes, plan.seed)
    tally = Tally()
    team: list[_ItemsWorker] = []

    def make(share: Share) -> Worker:
        team.append(_ItemsWorker(share, client_factory(), table, tally))
        return team[-1]

    seconds = run_workers(plan, kinds, make, stop, lambda: tally.count("changes"), progress)
    counts = {name: tally.count(name) for name in ("changes", "refused", "cancelled", "retries")}
    expiring = sum(len(worker.expiring) for worker in team)
    return ItemsSummary(seconds=seconds, expiring=expiring, by_kind=tally.by_kind(), **counts)


class _Table:
    """A table at the start of the workload: the keys of its items in order, and the keys of the items that ``last``."""

    def __init__(self, contract: Contract, client: Any) -> None:
        self.contract = contract
        self.name = contract.source.table
        self.key = [attribute.name for attribute in key_attributes(contract)]
        self.time_to_live = contract.source.time_to_live
        items = self._items(client)
        self.keys = [{name: item[name] for name in self.key} for item in items]
        # DynamoDB deletes expired items at any time.
        now, expiry = time.time(), self.time_to_live or ""
        lasts = [float(item.get(expiry, {}).get("N", "inf")) > now for item in items]
        self.lasting = [key for key, is_lasting in zip(self.keys, lasts, strict=True) if is_lasting]

    def _items(self, client: Any) -> list[Item]:
        """The keys of all items in order, and the expiry of each."""
        attributes = [*self.key, *([self.time_to_live] if self.time_to_live else [])]
        names = {f"#{at}": name for at, name in enumerate(attributes)}
        pages = client.get_paginator("scan").paginate(
            TableName=self.name,
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames=names,
            ConsistentRead=True,
        )
        items = (item for page in pages for item in page["Items"])
        return sorted(items, key=lambda item: repr([item[name] for name in self.key]))


class _ItemsWorker(Worker):
    """One client, the items that all workers change, and its own share of the others."""

    def __init__(self, share: Share, client: Any, table: _Table, tally: Tally) -> None:
        super().__init__(share)
        self._client = client
        self._table = table.name
        self._key = table.key
        self._time_to_live = table.time_to_live or ""
        self._rng = share.plan.random_numbers(share.number)
        self._make = ItemMaker(table.contract, self._rng)
        self._hot = table.lasting[:_HOT_ITEMS]
        self._mine = table.lasting[_HOT_ITEMS + share.number :: share.plan.workers]
        self._taken = {repr(key) for key in table.keys}
        self._next_number = len(table.keys) + share.number
        self._tally = tally
        self.expiring: list[Key] = []

    def perform(self, kind: str) -> None:
        try:
            getattr(self, f"_{kind}")()
        except ClientError as error:
            if not (_collided(error) and self.share.stop.is_set()):
                raise
        else:
            self._tally.add_kind(kind)

    # --- One item ---

    def _put(self) -> Key:
        key = self._new_key()
        self._change("put_item", Item=self._make.item(key))
        self._mine.append(key)
        return key

    def _replace(self) -> None:
        self._change("put_item", Item=self._make.item(self._existing()))

    def _rewrite_the_same(self) -> None:
        self._call("put_item", Item=self._read(self._existing()))

    def _update(self) -> None:
        self._set(self._existing(), self._some_of(self._make.names))

    def _update_if_unchanged(self) -> None:
        """Change a hot item, if no other worker has changed it since it was read."""
        key = self._rng.choice(self._hot)
        while not self.share.stop.is_set():
            seen = self._read(key).get(REVISION, {"N": "0"})
            try:
                self._set(key, self._some_of(self._make.names), unchanged=seen)
            except self._client.exceptions.ConditionalCheckFailedException:
                self._tally.add("refused")
            else:
                return

    def _update_refused(self) -> None:
        key = self._existing()
        operation, request = self._rng.choice(
            [
                ("put_item", {"Item": self._make.item(key)}),
                ("delete_item", {"Key": key}),
                ("update_item", {"Key": key}),
            ]
        )
        try:
            self._call(operation, **request, **self._if_key("attribute_not_exists"))
        except self._client.exceptions.ConditionalCheckFailedException:
            self._tally.add("refused")

    def _delete(self) -> Key:
        key = self._existing()
        self._change("delete_item", Key=key)
        self._mine.remove(key)
        return key

    def _delete_nothing(self) -> None:
        self._call("delete_item", Key=self._new_key())

    def _delete_and_put(self) -> None:
        key = self._delete()
        self._change("put_item", Item=self._make.item(key))
        self._mine.append(key)

    def _move(self) -> None:
        """Change an item's partition attribute, so that it moves in the lake. At times the attribute is removed."""
        self._set(self._existing(), self._some_of(self._make.partitioning))

    def _add_attributes(self) -> None:
        self._set(self._existing(), self._make.free_form())

    def _remove_attributes(self) -> None:
        names = self._make.optional
        self._set(self._existing(), dict.fromkeys(self._rng.sample(names, min(4, len(names)))))

    def _change_type(self) -> None:
        key = self._existing()
        item = self._read(key)
        name = self._rng.choice([name for name in self._make.unnamed if name in item] or self._make.unnamed)
        self._set(key, {name: self._make.values.any([type_ for type_ in TYPES if type_ not in item.get(name, {})])})

    # --- Several items ---

    def _batch_write(self) -> None:
        put = [self._new_key() for _ in range(_BATCH_PUTS)]
        deleted = self._some(_BATCH_DELETES)
        write_batch(
            self._client,
            self._table,
            [
                *({"PutRequest": {"Item": self._make.item(key)}} for key in put),
                *({"DeleteRequest": {"Key": key}} for key in deleted),
            ],
        )
        self._tally.add("changes", len(put) + len(deleted))
        self._mine = [key for key in self._mine if key not in deleted] + put

    def _transact_write(self) -> None:
        """Put one item, update a hot item and another one, and delete a fourth if a fifth exists: all or nothing."""
        new = self._new_key()
        updated, deleted, checked = self._some(3)
        hot = self._rng.choice(self._hot)
        self._transact(
            {"Put": {"Item": self._make.item(new)}},
            {"Update": self._update_of(updated, self._some_of(self._make.names))},
            {"Update": self._update_of(hot, self._some_of(self._make.names))},
            {"Delete": {"Key": deleted}},
            {"ConditionCheck": {"Key": checked, **self._if_key("attribute_exists")}},
        )
        self._tally.add("changes", 4)
        self._mine.remove(deleted)
        self._mine.append(new)

    def _transact_cancelled(self) -> None:
        """Try to put one item and delete another, on the false condition that a third does not exist."""
        deleted, checked = self._some(2)
        try:
            self._transact(
                {"Put": {"Item": self._make.item(self._new_key())}},
                {"Delete": {"Key": deleted}},
                {"ConditionCheck": {"Key": checked, **self._if_key("attribute_not_exists")}},
            )
        except self._client.exceptions.TransactionCanceledException:
            self._tally.add("cancelled")

    # --- Time to live ---

    def _expire(self) -> None:
        """Set an item's expiry to the past, and leave its deletion to DynamoDB."""
        key = self._existing()
        self._set(key, {self._time_to_live: {"N": str(int(time.time()) - self._rng.randrange(1, 3600))}})
        self._mine.remove(key)
        self.expiring.append(key)

    def _renew(self) -> None:
        """Remove an expired item's expiry. If the item is gone already, this creates it again with few attributes."""
        if not self.expiring:
            self._expire()
        key = self.expiring.pop(0)
        partition = {name: self._make.attribute(name) for name in self._make.partitioning}
        self._set(key, {**partition, self._time_to_live: None})
        self._mine.append(key)

    # --- Requests ---

    def _set(self, key: Key, values: Values, *, unchanged: dict[str, Any] | None = None) -> None:
        """Set or remove attributes of an item, and raise its revision.

        If ``unchanged`` is given, the revision must still be that one.
        """
        update = self._update_of(key, values)
        if unchanged is not None:
            update["ConditionExpression"] = "#revision = :seen"
            update["ExpressionAttributeValues"][":seen"] = unchanged
        self._change("update_item", **update)

    def _update_of(self, key: Key, values: Values) -> dict[str, Any]:
        names = {f"#n{at}": name for at, name in enumerate(values)}
        given = {f":n{at}": value for at, value in enumerate(values.values()) if value is not None}
        removed = [f"#n{at}" for at, value in enumerate(values.values()) if value is None]
        expression = "ADD #revision :one"
        if given:
            expression += " SET " + ", ".join(f"{value.replace(':', '#')} = {value}" for value in given)
        if removed:
            expression += " REMOVE " + ", ".join(removed)
        return {
            "Key": key,
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {"#revision": REVISION, **names},
            "ExpressionAttributeValues": {":one": {"N": "1"}, **given},
        }

    def _if_key(self, function: str) -> dict[str, Any]:
        """The condition that a function of expressions is true for the item's key, and so for the item."""
        return {"ConditionExpression": f"{function}(#key)", "ExpressionAttributeNames": {"#key": self._key[0]}}

    def _change(self, operation: str, **request: Any) -> None:
        """Send a request that changes one item."""
        self._call(operation, **request)
        self._tally.add("changes")

    def _transact(self, *writes: dict[str, dict[str, Any]]) -> None:
        named = [{kind: {"TableName": self._table, **write}} for each in writes for kind, write in each.items()]
        self._retry(self._client.transact_write_items, TransactItems=named)

    def _call(self, operation: str, **request: Any) -> Any:
        return self._retry(getattr(self._client, operation), TableName=self._table, **request)

    def _retry(self, call: Callable[..., Any], **request: Any) -> Any:
        return self.patiently(self._tally, _collided)(call, **request)

    def _read(self, key: Key) -> Item:
        item: Item = self._call("get_item", Key=key, ConsistentRead=True)["Item"]
        return item

    # --- Choosing ---

    def _existing(self) -> Key:
        return self._some(1)[0]

    def _some(self, count: int) -> list[Key]:
        """Return different existing items of this worker's own. If there are too few, put new ones first."""
        while len(self._mine) < count:
            self._put()
        return self._rng.sample(self._mine, count)

    def _some_of(self, names: Sequence[str]) -> Values:
        """Return new values of one or two attributes that the contract names.

        None for an attribute that the item will lack.
        """
        return {name: self._make.attribute(name) for name in self._rng.sample(names, min(2, len(names)))}

    def _new_key(self) -> Key:
        """Return a key that no item had when the workload began and that no other worker uses."""
        while True:
            key = self._make.key(self._next_number)
            self._next_number += self.share.plan.workers
            if repr(key) not in self._taken:
                return key


def _collided(error: BaseException) -> bool:
    if not isinstance(error, ClientError):
        return False
    reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
    return error.response["Error"]["Code"] in _COLLISIONS or "TransactionConflict" in reasons

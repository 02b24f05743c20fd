"""A live workload on the accounts: every kind of write that DynamoDB has, from several clients at once.

What it counts is exact: each change is one record of the table's stream. A write that leaves an item as it was makes no
record, and neither does one that DynamoDB refuses.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_any, stop_when_event_set, wait_random

from headwater.errors import UserError
from rig.samples.accounts import PARTITION_KEY, SORT_KEY, TABLE, TTL_ATTRIBUTE, AccountMaker, key_of
from rig.samples.items import FREE_FORM, TYPES, Item, Key, write_batch
from rig.samples.items_workload import ItemsSummary, ItemsTally
from rig.samples.paced_workers import (
    OnProgress,
    Share,
    Worker,
    WorkloadPlan,
    WorkloadProgress,
    run_workers,
)


@dataclass(frozen=True)
class _Kind:
    """How often a kind of write is chosen, and how many changes it makes at least."""

    weight: float
    changes: int


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
    "move_month": _Kind(8, 1),
    "add_attributes": _Kind(5, 1),
    "remove_attributes": _Kind(5, 1),
    "change_type": _Kind(6, 1),
    "batch_write": _Kind(3, _BATCH_PUTS + _BATCH_DELETES),
    "transact_write": _Kind(4, 4),
    "transact_cancelled": _Kind(3, 0),
    "expire": _Kind(6, 1),
    "renew": _Kind(3, 1),
}

_HOT_ITEMS = 8  # every worker updates them, so that writes collide
_ATTEMPTS = 60
# Another writer was faster, or DynamoDB is busy: the workload tries again, as an application would.
_COLLISIONS = {
    "TransactionConflictException",
    "TransactionInProgressException",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
}


def choose_kinds(changes: int, seed: int) -> list[str]:
    """Return the kinds of writes that make at least ``changes`` changes together, in a shuffled order.

    Every kind comes at least once. The same arguments give the same kinds.
    """
    rng = random.Random(seed)  # noqa: S311 - can be repeated, not secret
    chosen = list(KINDS)
    made = sum(kind.changes for kind in KINDS.values())
    weights = [kind.weight for kind in KINDS.values()]
    while made < changes:
        (name,) = rng.choices(list(KINDS), weights)
        chosen.append(name)
        made += KINDS[name].changes
    rng.shuffle(chosen)
    return chosen


def run(
    client_factory: Callable[[], Any],
    plan: WorkloadPlan,
    progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    table: str = TABLE,
) -> ItemsSummary:
    """Run the workload on a table of accounts.

    ``client_factory`` makes a boto3 client of ``dynamodb``. The workload takes longer than planned where DynamoDB is
    too slow, and ends within a second or so once ``stop`` is set. Raises ``UserError`` for an empty table, and
    DynamoDB's first error that is no collision.
    """
    items = _items(client_factory(), table)
    # DynamoDB deletes those that have expired, whenever it likes.
    lasting = [item for item in items if float(item.get(TTL_ATTRIBUTE, {}).get("N", "inf")) > time.time()]
    keys = [{name: item[name] for name in (PARTITION_KEY, SORT_KEY)} for item in lasting]
    if len(keys) < _HOT_ITEMS:
        raise UserError(f"the table {table} has {len(keys)} items, expected at least {_HOT_ITEMS}: load it first")
    kinds = choose_kinds(plan.changes, plan.seed)
    hot, others = keys[:_HOT_ITEMS], keys[_HOT_ITEMS:]
    first = 1 + max(int(item[PARTITION_KEY]["S"].rpartition("-")[2]) for item in items)
    # More numbers than a worker can use, and whole fives, so that no partition key is shared by two workers.
    block = 5 * (len(kinds) * _BATCH_PUTS + 1)
    tally = ItemsTally()
    team: list[_AccountsWorker] = []

    def make(share: Share) -> Worker:
        next_number = (first + 4) // 5 * 5 + share.number * block
        own = _OwnItems(hot, others[share.number :: plan.workers], next_number)
        team.append(_AccountsWorker(share, client_factory(), table, own, tally))
        return team[-1]

    def tick(elapsed: float) -> None:
        if progress is not None:
            progress(WorkloadProgress(tally.changes, plan.changes, elapsed))

    seconds = run_workers(plan, kinds, make, stop or threading.Event(), tick)
    return tally.summary(seconds, expiring=sum(len(worker.expiring) for worker in team))


@dataclass
class _OwnItems:
    """The items that a worker changes: the ``hot`` ones, which all workers change, and ``mine``, which no other does.
    The numbers of new items grow from ``next_number``."""

    hot: list[Key]
    mine: list[Key]
    next_number: int


class _AccountsWorker(Worker):
    """One client and its share of the plan."""

    def __init__(self, share: Share, client: Any, table: str, own: _OwnItems, tally: ItemsTally) -> None:
        super().__init__(share)
        self._client = client
        self._table = table
        self._rng = share.plan.random_numbers(share.number)
        self._make = AccountMaker(self._rng)
        self._hot = own.hot
        self._mine = own.mine
        self._next_number = own.next_number
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
        balance = str(self._rng.randrange(10**6))
        self._set(self._existing(), {"balance": {"N": balance}, "email": self._make.any(["S", "NULL"])})

    def _update_if_unchanged(self) -> None:
        """Change a hot item, if nobody else has changed it since it was read."""
        key = self._rng.choice(self._hot)
        while not self.share.stop.is_set():
            seen = self._read(key).get("version", {"N": "0"})
            try:
                self._set(key, {"loyaltyPoints": {"N": str(self._rng.randrange(1000))}}, unchanged=seen)
            except self._client.exceptions.ConditionalCheckFailedException:
                self._tally.add("refused")
            else:
                return

    def _update_refused(self) -> None:
        key = self._existing()
        request = self._rng.choice(
            [
                ("put_item", {"Item": self._make.item(key), "ConditionExpression": "attribute_not_exists(id)"}),
                ("delete_item", {"Key": key, "ConditionExpression": "attribute_not_exists(id)"}),
                (
                    "update_item",
                    {
                        "Key": key,
                        "UpdateExpression": "SET active = :yes",
                        "ConditionExpression": "custName = :yes",
                        "ExpressionAttributeValues": {":yes": {"BOOL": True}},
                    },
                ),
            ]
        )
        try:
            self._call(request[0], **request[1])
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

    def _move_month(self) -> None:
        """Give an item another registration date, or none, so that it moves to another partition of the lake."""
        key = self._existing()
        if self._rng.random() < 0.2:
            self._set(key, {}, remove=["registrationDate"])
        else:
            self._set(key, {"registrationDate": self._make.registration_date()})

    def _add_attributes(self) -> None:
        self._set(self._existing(), self._make.free_form(self._rng.randint(1, 3)))

    def _remove_attributes(self) -> None:
        names = [*FREE_FORM, "email", "address", "tags", "avatar"]
        self._set(self._existing(), {}, remove=self._rng.sample(names, 4))

    def _change_type(self) -> None:
        key = self._existing()
        was = self._read(key).get("mixed", {})
        self._set(key, {"mixed": self._make.any([type_ for type_ in TYPES if type_ not in was])})

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
        """Put one item, update a hot one and one more, and delete another, if yet another exists: all or nothing."""
        new = self._new_key()
        updated, deleted, checked = self._some(3)
        hot = self._rng.choice(self._hot)
        self._transact(
            {"Put": {"Item": self._make.item(new)}},
            {"Update": self._update_of(updated, {"email": {"S": "moved@example.com"}})},
            {"Update": self._update_of(hot, {"active": {"BOOL": self._rng.random() < 0.5}})},
            {"Delete": {"Key": deleted}},
            {"ConditionCheck": {"Key": checked, "ConditionExpression": "attribute_exists(id)"}},
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
                {"ConditionCheck": {"Key": checked, "ConditionExpression": "attribute_not_exists(id)"}},
            )
        except self._client.exceptions.TransactionCanceledException:
            self._tally.add("cancelled")

    # --- Time to live ---

    def _expire(self) -> None:
        """Set an item's expiry to the past, and leave its deletion to DynamoDB."""
        key = self._existing()
        self._set(key, {TTL_ATTRIBUTE: {"N": str(int(time.time()) - self._rng.randrange(1, 3600))}})
        self._mine.remove(key)
        self.expiring.append(key)

    def _renew(self) -> None:
        """Remove an expired item's expiry. Where the item is gone already, that makes a new one with few attributes."""
        if not self.expiring:
            self._expire()
        key = self.expiring.pop(0)
        self._set(key, {"registrationDate": self._make.registration_date()}, remove=[TTL_ATTRIBUTE])
        self._mine.append(key)

    # --- Requests ---

    def _set(
        self, key: Key, values: Item, *, remove: Iterable[str] = (), unchanged: dict[str, Any] | None = None
    ) -> None:
        """Set and remove attributes of an item, and raise its version, if that is ``unchanged`` where one is given."""
        self._change("update_item", **self._update_of(key, values, remove=remove, unchanged=unchanged))

    def _update_of(
        self, key: Key, values: Item, *, remove: Iterable[str] = (), unchanged: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        names = {f"#n{at}": name for at, name in enumerate(values)}
        removed = {f"#r{at}": name for at, name in enumerate(remove)}
        given = {f":n{at}": value for at, value in enumerate(values.values())}
        expression = "ADD #version :one"
        if names:
            expression += " SET " + ", ".join(f"#n{at} = :n{at}" for at in range(len(names)))
        if removed:
            expression += " REMOVE " + ", ".join(removed)
        update: dict[str, Any] = {
            "Key": key,
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {"#version": "version", **names, **removed},
            "ExpressionAttributeValues": {":one": {"N": "1"}, **given},
        }
        if unchanged is not None:
            update["ConditionExpression"] = "#version = :seen"
            update["ExpressionAttributeValues"][":seen"] = unchanged
        return update

    def _change(self, operation: str, **request: Any) -> None:
        """Make a request that changes one item."""
        self._call(operation, **request)
        self._tally.add("changes")

    def _transact(self, *writes: dict[str, dict[str, Any]]) -> None:
        named = [{kind: {"TableName": self._table, **write}} for each in writes for kind, write in each.items()]
        self._retry(self._client.transact_write_items, TransactItems=named)

    def _call(self, operation: str, **request: Any) -> Any:
        return self._retry(getattr(self._client, operation), TableName=self._table, **request)

    def _retry(self, call: Callable[..., Any], **request: Any) -> Any:
        attempts = Retrying(
            retry=retry_if_exception(_collided),
            wait=wait_random(0, 0.1),
            stop=stop_any(stop_after_attempt(_ATTEMPTS), stop_when_event_set(self.share.stop)),
            before_sleep=lambda state: self._tally.add("retries"),
            reraise=True,
        )
        return attempts(call, **request)

    def _read(self, key: Key) -> Item:
        item: Item = self._call("get_item", Key=key, ConsistentRead=True)["Item"]
        return item

    # --- Choosing ---

    def _existing(self) -> Key:
        return self._some(1)[0]

    def _some(self, count: int) -> list[Key]:
        """Return different existing items of this worker's own; where there are too few, new ones are put first."""
        while len(self._mine) < count:
            self._put()
        return self._rng.sample(self._mine, count)

    def _new_key(self) -> Key:
        self._next_number += 1
        return key_of(self._next_number)


def _items(client: Any, table: str) -> list[Item]:
    """The keys of all items, in order, and when they expire."""
    pages = client.get_paginator("scan").paginate(
        TableName=table,
        ProjectionExpression=f"{PARTITION_KEY}, {SORT_KEY}, {TTL_ATTRIBUTE}",
        ConsistentRead=True,
    )
    items = (item for page in pages for item in page["Items"])
    return sorted(items, key=lambda item: (item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]))


def _collided(error: BaseException) -> bool:
    if not isinstance(error, ClientError):
        return False
    reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
    return error.response["Error"]["Code"] in _COLLISIONS or "TransactionConflict" in reasons

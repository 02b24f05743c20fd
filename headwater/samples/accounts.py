"""The accounts: a DynamoDB table of customers, items to fill it with, and a live workload on it.

Only ``id`` and ``custName``, the key, are in every item. Most items have what ``contracts/accounts.yaml`` names, in the
types named there, and besides free-form attributes of every type, with names that need quoting. What the workload
counts is exact: each change is one record of the table's stream. A write that leaves an item as it was, and one that
DynamoDB refuses, are none.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_any, stop_when_event_set, wait_random

from headwater.errors import UserError
from headwater.samples.paced_workers import Share, Worker, run_workers

Key = dict[str, Any]
Item = dict[str, Any]
"""An item as boto3's client takes it: attribute name → {type: value}, binary values as bytes."""

TABLE = "headwater-accounts"
PARTITION_KEY = "id"
SORT_KEY = "custName"
TTL_ATTRIBUTE = "expires_at"
FREE_FORM = ("nick.name", 'said "hello"', "città", "mixed", "history", "scores", "flags", "blob", "blobs", "nothing")
TYPES = ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS")


@dataclass(frozen=True)
class _Kind:
    """How often a kind of write is chosen, and how many changes each makes at least."""

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
_BATCH_LIMIT = 25  # BatchWriteItem's
_ATTEMPTS = 60
# Another writer was faster, or DynamoDB is busy: tried again, as an application would.
_COLLISIONS = {
    "TransactionConflictException",
    "TransactionInProgressException",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
}
_FAR_FUTURE = datetime(2099, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(2024, 1, 1)
_DAYS = 366  # few months, so that a commit of the demo writes to few partitions
_WORDS = ("north", "wind", "Ærø", "São", "東京", "Łódź", "fjord", "quay", "ship's", "naïve", "tide", "Ωmega")


@dataclass(frozen=True)
class AccountsProgress:
    """How far a workload is: item changes made, how many are wanted, seconds since its start."""

    changes: int
    wanted: int
    seconds: float


@dataclass(frozen=True)
class AccountsSummary:
    """What a workload did.

    ``changes`` are the records that it left in the table's stream; those of DynamoDB's time to live come on top.
    ``refused`` counts conditional writes, ``cancelled`` transactions that DynamoDB did not make, ``retries`` attempts
    that met another writer's transaction. ``expiring`` items were left to the time to live at the end. ``by_kind``
    counts writes by their kind.
    """

    changes: int
    refused: int
    cancelled: int
    retries: int
    expiring: int
    seconds: float
    by_kind: dict[str, int] = field(default_factory=dict)

    def counted(self) -> tuple[int, str]:
        """What a report counts."""
        return self.changes, "item changes"

    def remark(self) -> str:
        """What a report says of how they ended."""
        return (
            f"{self.refused:,} conditional writes refused and {self.cancelled:,} transactions cancelled on purpose, "
            f"{self.expiring:,} items left to expire, {self.retries:,} attempts run again after a collision."
        )


def create_table(client: Any, table: str = TABLE) -> None:
    """Create the table, with a stream of new and old images and a time to live, and wait until it can be written."""
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in (PARTITION_KEY, SORT_KEY)],
        KeySchema=[
            {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
    client.update_time_to_live(
        TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    )


def generate(count: int, seed: int) -> Iterator[Item]:
    """Return items number 0 to ``count`` - 1. An item depends on its number and the seed alone."""
    for number in range(count):
        yield Maker(random.Random(f"{seed}/{number}")).item(key_of(number))  # noqa: S311 - can be repeated, not secret


def key_of(number: int) -> Key:
    """Return the key of an item by its number: every fifth shares its partition key with the one before."""
    first = number - 1 if number % 5 == 4 else number
    name = f"{_WORDS[number % len(_WORDS)].capitalize()} {_WORDS[number // 7 % len(_WORDS)]} & Søn No. {number}"
    return {PARTITION_KEY: {"S": f"account-{first:08d}"}, SORT_KEY: {"S": name}}


def load(client: Any, items: Iterable[Item], table: str = TABLE) -> int:
    """Put items in batches, and return how many there were."""
    count = 0
    batch: list[dict[str, Any]] = []
    for item in items:
        batch.append({"PutRequest": {"Item": item}})
        count += 1
        if len(batch) == _BATCH_LIMIT:
            _write_batch(client, table, batch)
            batch = []
    if batch:
        _write_batch(client, table, batch)
    return count


def plan(changes: int, seed: int) -> list[str]:
    """The kinds of a workload that makes at least ``changes`` changes, in a shuffled order.

    Every kind comes at least once, whatever ``changes`` are. The same for the same arguments.
    """
    rng = random.Random(seed)  # noqa: S311 - a choice that can be repeated, not a secret
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
    seconds: float,
    changes: int,
    workers: int,
    seed: int,
    progress: Callable[[AccountsProgress], None] | None = None,
    stop: threading.Event | None = None,
    table: str = TABLE,
) -> AccountsSummary:
    """Make at least ``changes`` item changes by ``workers`` clients at once, evenly over ``seconds``.

    ``client_factory`` makes a boto3 client of ``dynamodb``. It takes longer where DynamoDB is too slow, and ends within
    a second or so once ``stop`` is set. Which kinds a worker runs, and the random numbers that it chooses by, depend on
    ``seed`` alone. Raises `UserError` for an empty table, and the first error of DynamoDB's that is no collision.
    """
    keys = _keys(client_factory(), table)
    if len(keys) < _HOT_ITEMS:
        raise UserError(f"the table {table} has {len(keys)} items, expected at least {_HOT_ITEMS}: load it first")
    kinds = plan(changes, seed)
    hot, others = keys[:_HOT_ITEMS], keys[_HOT_ITEMS:]
    first = 1 + max(int(key[PARTITION_KEY]["S"].rpartition("-")[2]) for key in keys)
    # More numbers than a worker can use, and whole fives, so that no partition key is shared by two workers.
    block = 5 * (len(kinds) * _BATCH_PUTS + 1)
    tally = _Tally()
    team: list[_Worker] = []

    def make(share: Share) -> Worker:
        number = share.number
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - as above
        mine = others[number::workers]
        next_number = (first + 4) // 5 * 5 + number * block
        team.append(_Worker(share, client_factory(), table, rng, hot, mine, next_number, tally))
        return team[-1]

    def tick(elapsed: float) -> None:
        if progress is not None:
            progress(AccountsProgress(tally["changes"], changes, elapsed))

    taken = run_workers(make, kinds, workers, seconds, stop or threading.Event(), tick)
    return AccountsSummary(
        changes=tally["changes"],
        refused=tally["refused"],
        cancelled=tally["cancelled"],
        retries=tally["retries"],
        expiring=sum(len(worker.expiring) for worker in team),
        seconds=taken,
        by_kind=tally.by_kind(),
    )


class Maker:
    """Makes items and values by one source of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def item(self, key: Key) -> Item:
        """Return an item: attributes that the contract names, now and then without one, and some free-form ones."""
        rng = self._rng
        named: dict[str, Callable[[], dict[str, Any]]] = {
            "email": lambda: {"S": f"{self._word()}.{rng.randrange(10**6)}@example.com"},
            "registrationDate": self.registration_date,
            "balance": lambda: {"N": self._decimal(29, 9)},
            "loyaltyPoints": lambda: {"N": str(rng.randrange(100_000))},
            "active": lambda: {"BOOL": rng.random() < 0.8},
            "lastLogin": self._moment,
            "address": self._address,
            "devices": lambda: {"L": [self._device() for _ in range(rng.randrange(3))]},
            "tags": lambda: {"SS": sorted({self._word() for _ in range(rng.randint(1, 4))})},
            "limits": lambda: {"NS": sorted({self._decimal(14, 6) for _ in range(rng.randint(1, 3))})},
            "settings": lambda: {"M": {"locale": {"S": rng.choice(["de_DE", "pt_BR", "ja_JP"])}, "theme": self.any()}},
            "preferences": lambda: {"M": self._map(2)},
            "avatar": lambda: {"B": rng.randbytes(rng.randrange(40))},
            TTL_ATTRIBUTE: lambda: {"N": str(int(_FAR_FUTURE.timestamp()) + rng.randrange(10**6))},
        }
        item = dict(key)
        for name, make in named.items():
            chance = rng.random()
            if chance > 0.1:
                item[name] = make()
            elif chance > 0.07:
                item[name] = {"NULL": True}
        item |= self.free_form(rng.randint(1, 4))
        # A number of its own in each version of an item: no two are the same by chance.
        item["version"] = {"N": str(rng.randrange(10**12))}
        return item

    def registration_date(self) -> dict[str, Any]:
        """Return a day of some month."""
        return {"S": str(_FIRST_DAY + timedelta(days=self._rng.randrange(_DAYS)))}

    def free_form(self, count: int) -> Item:
        """Return ``count`` attributes that no contract names, of any types."""
        return {name: self.any() for name in self._rng.sample(FREE_FORM, count)}

    def any(self, types: Iterable[str] = TYPES, depth: int = 3) -> dict[str, Any]:
        """Return a value of one of some types, nested at most ``depth`` deep."""
        type_ = self._rng.choice([one for one in types if depth > 0 or one not in ("M", "L")])
        return {type_: self._value(type_, depth)}

    def _value(self, type_: str, depth: int) -> Any:
        rng = self._rng
        match type_:
            case "S":
                return rng.choice(
                    ["", "null", 'a "b" \\ c', "line\nbreak\ttab", "snow ☃ and 𝄞", "x" * 200, self._word()]
                )
            case "N":
                return self._number()
            case "B":
                return rng.choice([b"", b"\x00\xff\xfe", rng.randbytes(20)])
            case "BOOL":
                return rng.random() < 0.5
            case "NULL":
                return True
            case "M":
                return self._map(depth)
            case "L":
                return [self.any(depth=depth - 1) for _ in range(rng.randrange(4))]
            case "SS":
                return sorted({rng.choice(["", "a.b", self._word()]) for _ in range(rng.randint(1, 3))})
            case "NS":
                return sorted({str(rng.randrange(-(10**37), 10**37)) for _ in range(rng.randint(1, 3))})
            case _:
                return sorted({rng.randbytes(rng.randrange(6)) for _ in range(rng.randint(1, 3))})

    def _map(self, depth: int) -> Item:
        names = ("street", "a.b.c", 'it\'s "quoted"', "größe", "["), self._rng.randrange(4)
        return {name: self.any(depth=depth - 1) for name in self._rng.sample(*names)}

    def _number(self) -> str:
        rng = self._rng
        return rng.choice(
            [
                "0",
                str(rng.randrange(-1000, 1000)),
                str(rng.randrange(10**37, 10**38)),
                f"-{rng.randrange(1, 10)}.{rng.randrange(10**36, 10**37)}",
                "1E-130",
                f"9.{rng.randrange(10**8, 10**9)}E+125",
            ]
        )

    def _decimal(self, whole: int, scale: int) -> str:
        """A number in plain digits, with no zeros that DynamoDB would drop."""
        rng = self._rng
        digits = rng.randint(1, whole)
        number = f"{rng.randrange(10**digits)}.{rng.randrange(10**scale):0{scale}d}".rstrip("0").rstrip(".")
        return f"-{number}" if rng.random() < 0.2 and number != "0" else number

    def _address(self) -> dict[str, Any]:
        rng = self._rng
        address = {
            "street": {"S": f"{self._word()} {rng.randrange(200)}"},
            "city": {"S": self._word()},
            "postal_code": {"S": f"{rng.randrange(10**5):05d}"},
            "country": {"S": rng.choice(["NO", "PT", "JP"])},
        }
        if rng.random() < 0.3:  # what the contract's struct does not have
            address["c/o"] = self.any()
        if rng.random() < 0.2:
            del address["postal_code"]
        return {"M": address}

    def _device(self) -> dict[str, Any]:
        since = str(_FIRST_DAY + timedelta(days=self._rng.randrange(2000)))
        pushes = str(self._rng.randrange(1000))
        return {"M": {"kind": {"S": self._word()}, "since": {"S": since}, "pushes": {"N": pushes}}}

    def _moment(self) -> dict[str, Any]:
        moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._rng.randrange(10**14))
        precision = self._rng.choice(["seconds", "milliseconds", "microseconds"])
        return {"S": moment.isoformat(timespec=precision).replace("+00:00", "Z")}

    def _word(self) -> str:
        return self._rng.choice(_WORDS) + self._rng.choice(_WORDS)


class _Tally:
    """Counts of all workers together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._by_kind: Counter[str] = Counter()

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counts[name]

    def by_kind(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._by_kind.items()))

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def add_kind(self, kind: str) -> None:
        with self._lock:
            self._by_kind[kind] += 1


class _Worker(Worker):
    """One client and its share of the plan. Items outside ``hot`` are changed by one worker only."""

    def __init__(
        self,
        share: Share,
        client: Any,
        table: str,
        rng: random.Random,
        hot: list[Key],
        mine: list[Key],
        next_number: int,
        tally: _Tally,
    ) -> None:
        super().__init__(share)
        self._client = client
        self._table = table
        self._rng = rng
        self._make = Maker(rng)
        self._hot = hot
        self._mine = mine
        self._next_number = next_number
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
        self._change("put_item", Item=self._make.item(self._one()))

    def _rewrite_the_same(self) -> None:
        self._call("put_item", Item=self._read(self._one()))

    def _update(self) -> None:
        balance = str(self._rng.randrange(10**6))
        self._set(self._one(), {"balance": {"N": balance}, "email": self._make.any(["S", "NULL"])})

    def _update_if_unchanged(self) -> None:
        """Change one of the items that every worker likes, if nobody else has since it was read."""
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
        key = self._one()
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
        key = self._one()
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
        key = self._one()
        if self._rng.random() < 0.2:
            self._set(key, {}, remove=["registrationDate"])
        else:
            self._set(key, {"registrationDate": self._make.registration_date()})

    def _add_attributes(self) -> None:
        self._set(self._one(), self._make.free_form(self._rng.randint(1, 3)))

    def _remove_attributes(self) -> None:
        names = [*FREE_FORM, "email", "address", "tags", "avatar"]
        self._set(self._one(), {}, remove=self._rng.sample(names, 4))

    def _change_type(self) -> None:
        key = self._one()
        was = self._read(key).get("mixed", {})
        self._set(key, {"mixed": self._make.any([type_ for type_ in TYPES if type_ not in was])})

    # --- Several items ---

    def _batch_write(self) -> None:
        put = [self._new_key() for _ in range(_BATCH_PUTS)]
        deleted = self._some(_BATCH_DELETES)
        _write_batch(
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
        """Put one item, update a hot one and another, delete a third, if a fourth exists: all or nothing."""
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
        """Try to put one item and delete another, if a third, which exists, does not."""
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
        """Let an item's time be over, and leave it to DynamoDB."""
        key = self._one()
        self._set(key, {TTL_ATTRIBUTE: {"N": str(int(time.time()) - self._rng.randrange(1, 3600))}})
        self._mine.remove(key)
        self.expiring.append(key)

    def _renew(self) -> None:
        """Give an expired item more time; where it is gone already, that is a new item with few attributes."""
        if not self.expiring:
            self._expire()
        key = self.expiring.pop(0)
        self._set(key, {"registrationDate": self._make.registration_date()}, remove=[TTL_ATTRIBUTE])
        self._mine.append(key)

    # --- Requests ---

    def _set(
        self, key: Key, values: Item, *, remove: Iterable[str] = (), unchanged: dict[str, Any] | None = None
    ) -> None:
        """Set and remove attributes of an item, if its version is as seen; its version grows, so that it changes."""
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

    def _one(self) -> Key:
        return self._some(1)[0]

    def _some(self, count: int) -> list[Key]:
        """Different items of this worker's own that exist; where there are too few, they are put first."""
        while len(self._mine) < count:
            self._put()
        return self._rng.sample(self._mine, count)

    def _new_key(self) -> Key:
        self._next_number += 1
        return key_of(self._next_number)


def _keys(client: Any, table: str) -> list[Key]:
    """The keys of all items, in order."""
    pages = client.get_paginator("scan").paginate(
        TableName=table, ProjectionExpression=f"{PARTITION_KEY}, {SORT_KEY}", ConsistentRead=True
    )
    keys = (item for page in pages for item in page["Items"])
    return sorted(keys, key=lambda key: (key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]))


def _write_batch(client: Any, table: str, requests: list[dict[str, Any]]) -> None:
    left = {table: requests}
    while left:
        left = client.batch_write_item(RequestItems=left)["UnprocessedItems"]


def _collided(error: BaseException) -> bool:
    if not isinstance(error, ClientError):
        return False
    reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
    return error.response["Error"]["Code"] in _COLLISIONS or "TransactionConflict" in reasons

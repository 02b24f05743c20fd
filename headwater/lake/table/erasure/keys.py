"""The keys of a table that are forgotten: what stays of each is a keyed hash, and the order up to which nothing of it
may come back.

They are one object per table, ``_forgotten/<table>.json`` beside the tables, which only the table's writer writes,
under its lease, over the version that it knows, and before it removes anything. So a writer that starts after a crash
knows of a key that is not removed yet. The writer of a history reads the object of its table, too: the history may have
been begun later. The progress counts the keys and has a mark of them, so that a writer notices where the object is
lost, and where the table was set back to before a key was forgotten, be it for the first time or again. Docs:
docs/decisions/forgetting.md.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.contract.model import Contract
from headwater.lake.base.lease import LeaseLost
from headwater.lake.base.progress import Progress
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.lake.base.s3_versions import met_another

FOLDER = "_forgotten"
_EPOCH_DIGITS = 4


@dataclass(frozen=True)
class ErasedKeys:
    """The forgotten keys of the table made of ``source``: by the keyed hash of each the highest ``_order`` that is
    forgotten. ``hash_key`` is the key of the hash. ``is_timed`` where orders tell times behind their epochs, as
    DynamoDB's do: a raised epoch reads the stream anew, and its old changes are forgotten still. It is sent to the
    executors."""

    source: str
    orders: Mapping[str, str] = field(default_factory=dict)
    hash_key: bytes = field(default=b"", repr=False)
    is_timed: bool = False

    @functools.cached_property
    def _highest(self) -> str:
        return max(map(self._place, self.orders.values()), default="")

    @property
    def mark(self) -> str:
        """What differs where other keys are forgotten, or up to other orders; "" where none are."""
        kept = json.dumps(self.orders, sort_keys=True)
        return hashlib.sha256(kept.encode()).hexdigest()[:16] if self.orders else ""

    def noted(self, progress: Progress) -> Progress:
        """The progress of a table in which these are forgotten."""
        return replace(progress, erased=len(self.orders), erased_mark=self.mark)

    def may_cover(self, lowest: str) -> bool:
        """Whether something with that order or a higher one of its epoch may be of a forgotten key."""
        return self._place(lowest) <= self._highest

    def _place(self, order: str) -> str:
        """What of an order is compared."""
        return order[_EPOCH_DIGITS:] if self.is_timed else order

    def hashed(self, row_key: str) -> str:
        """The keyed hash of a row's record key: HMAC-SHA-256, 64 hexadecimal digits. The source's name goes into it, so
        that equal keys of two tables cannot be told to be equal."""
        text = f"{self.source}\n{row_key}".encode("utf-8", "surrogatepass")
        return hmac.new(self.hash_key, text, hashlib.sha256).hexdigest()

    def covers(self, row_key: str, order: str | None) -> bool:
        """Whether a change of that row key and order is forgotten; None where its order cannot be told."""
        if order is not None and not self.may_cover(order):
            return False  # as nearly all are: nothing is hashed
        until = self.orders.get(self.hashed(row_key))
        return until is not None and (order is None or self._place(order) <= self._place(until))

    def and_this(self, row_key: str, order: str) -> ErasedKeys:
        """These keys and another one."""
        hashed = self.hashed(row_key)
        return replace(self, orders={**self.orders, hashed: max(order, self.orders.get(hashed, ""), key=self._place)})


def row_key(record_key: str, *, is_history: bool = False) -> str:
    """The record key of a row in one spelling, out of ``_key``, which in a history has the order behind it."""
    parts = json.loads(record_key)
    return json.dumps(parts[:-1] if is_history else parts, ensure_ascii=False, separators=(",", ":"))


class ErasedKeysMissing(ValueError):
    """The object with a table's forgotten keys is gone, or lacks some: to go on could bring persons back."""


class ErasedStore:
    """Where a table's forgotten keys are kept: below the folder in which its own folder ``table_uri`` is."""

    def __init__(self, s3: Any, table_uri: str, contract: Contract) -> None:
        self._s3 = s3
        self._bucket, folder = split_uri(table_uri.rpartition("/")[0] + "/")
        self._key = key_below(folder, f"{FOLDER}/{contract.table}.json")
        self._etag: str | None = None
        self._others = []
        if contract.is_history:
            self._others.append(key_below(folder, f"{FOLDER}/{contract.main_table}.json"))

    @property
    def address(self) -> str:
        """The object's address."""
        return object_uri(self._bucket, self._key)

    def read(self) -> dict[str, str]:
        """The order of each hash. Raises ErasedKeysMissing where an object is none of a writer's."""
        orders, self._etag = self._read(self._key)
        for key in self._others:
            for hashed, order in self._read(key)[0].items():
                orders[hashed] = max(order, orders.get(hashed, ""))
        return orders

    def _read(self, key: str) -> tuple[dict[str, str], str | None]:
        """What an object says, and its ETag; None where there is none."""
        try:
            stored = self._s3.get_object(Bucket=self._bucket, Key=key)
        except self._s3.exceptions.NoSuchKey:
            return {}, None
        try:
            orders = json.loads(stored["Body"].read())["orders"]
            if not all(isinstance(text, str) for entry in orders.items() for text in entry):
                raise TypeError("others than texts")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ErasedKeysMissing(
                f"{object_uri(self._bucket, key)}: found {type(error).__name__}: {error}, expected the keys that "
                "are forgotten, as a writer writes them. Restore the object: without it persons could come back."
            ) from None
        return dict(orders), str(stored["ETag"])

    def write(self, orders: Mapping[str, str]) -> None:
        """Keep the order of each hash, over what was read or written before. When this returns, every later writer
        knows them. Raises LeaseLost where something else is there by now."""
        body = json.dumps({"orders": orders}, sort_keys=True).encode()
        condition = {"IfNoneMatch": "*"} if self._etag is None else {"IfMatch": self._etag}
        try:
            stored = self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=body, **condition)
        except self._s3.exceptions.ClientError as error:
            if not met_another(error):
                raise
            there, etag = self._read(self._key)
            if there != orders:
                raise LeaseLost(f"{self.address}: another writer has written it meanwhile") from None
            self._etag = etag  # it is this one's own: the answer was lost
        else:
            self._etag = str(stored["ETag"])

"""The erased keys of a table (GDPR, article 17). For each key, a keyed hash and the highest erased order are kept.

They are in the object ``_forgotten/<table>.json`` beside the tables. Only the table's writer writes the object, under
its lease, over the version that it knows. It writes the object before it removes rows. So after a crash, the next
writer knows a key whose rows are still there. The writer of a history also reads the object of its table, because the
history may have begun later.

The progress has the number of keys and a mark of them. From these, a writer detects that the object is lost, or that
the table was restored to a state from before an erasure; see docs/decisions/forgetting.md.
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
    """The erased keys of a table. Spark sends this object to the executors."""

    source: str
    """The name of the table's source."""
    orders: Mapping[str, str] = field(default_factory=dict)
    """The highest erased ``_order`` of each key, by the key's keyed hash."""
    hash_key: bytes = field(default=b"", repr=False)
    """The key of the hashes."""
    is_timed: bool = False
    """Whether orders have times after their epochs, as DynamoDB's orders do. Then orders compare without their epochs:
    in a raised epoch the stream is read again, and its old changes must stay erased."""

    @functools.cached_property
    def _highest(self) -> str:
        return max(map(self._place, self.orders.values()), default="")

    @property
    def mark(self) -> str:
        """A digest of the keys and their orders; "" without keys."""
        kept = json.dumps(self.orders, sort_keys=True)
        return hashlib.sha256(kept.encode()).hexdigest()[:16] if self.orders else ""

    def noted(self, progress: Progress) -> Progress:
        """The progress with the number and the mark of these keys."""
        return replace(progress, erased=len(self.orders), erased_mark=self.mark)

    def may_cover(self, lowest: str) -> bool:
        """Whether a change with an order of at least ``lowest``, within its epoch, may be erased."""
        return self._place(lowest) <= self._highest

    def _place(self, order: str) -> str:
        """The part of an order that counts in comparisons."""
        return order[_EPOCH_DIGITS:] if self.is_timed else order

    def hashed(self, row_key: str) -> str:
        """The keyed hash of a row's record key: HMAC-SHA-256, 64 hexadecimal digits.

        It includes the source's name, so equal keys of two tables have different hashes.
        """
        text = f"{self.source}\n{row_key}".encode("utf-8", "surrogatepass")
        return hmac.new(self.hash_key, text, hashlib.sha256).hexdigest()

    def covers(self, row_key: str, order: str | None) -> bool:
        """Whether a change with that row key and order is erased. ``order`` is None if it is unknown."""
        if order is not None and not self.may_cover(order):
            return False  # nearly all changes end here, without a hash
        until = self.orders.get(self.hashed(row_key))
        return until is not None and (order is None or self._place(order) <= self._place(until))

    def and_this(self, row_key: str, order: str) -> ErasedKeys:
        """These keys and another one, which is erased up to that order."""
        hashed = self.hashed(row_key)
        return replace(self, orders={**self.orders, hashed: max(order, self.orders.get(hashed, ""), key=self._place)})


def row_key(record_key: str, *, is_history: bool = False) -> str:
    """The canonical record key of a row, from its ``_key``. In a history, ``_key`` also has the order at its end."""
    parts = json.loads(record_key)
    return json.dumps(parts[:-1] if is_history else parts, ensure_ascii=False, separators=(",", ":"))


class ErasedKeysMissing(ValueError):
    """The object with a table's erased keys is lost, or lacks some keys. Erased data could come back."""


class ErasedStore:
    """The object in S3 with a table's erased keys, in a folder beside the table's folder ``table_uri``."""

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
        """The highest erased order of each key, by hash. Raises ErasedKeysMissing if the object has other content."""
        orders, self._etag = self._read(self._key)
        for key in self._others:
            for hashed, order in self._read(key)[0].items():
                orders[hashed] = max(order, orders.get(hashed, ""))
        return orders

    def _read(self, key: str) -> tuple[dict[str, str], str | None]:
        """The orders in an object, by hash, and its ETag; None if there is no object."""
        try:
            stored = self._s3.get_object(Bucket=self._bucket, Key=key)
        except self._s3.exceptions.NoSuchKey:
            return {}, None
        try:
            orders = json.loads(stored["Body"].read())["orders"]
            if not all(isinstance(text, str) for entry in orders.items() for text in entry):
                raise TypeError("a hash or an order that is not a text")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ErasedKeysMissing(
                f"{object_uri(self._bucket, key)}: found {type(error).__name__}: {error}, expected the forgotten keys "
                "as a writer writes them. The table is not written: data of persons who were forgotten could come "
                "back. Restore an earlier version of the object."
            ) from None
        return dict(orders), str(stored["ETag"])

    def write(self, orders: Mapping[str, str]) -> None:
        """Write the orders, by hash, over the version that this writer has read or written last.

        When this method returns, every later writer knows the orders. Raises LeaseLost if another writer has written
        the object.
        """
        body = json.dumps({"orders": orders}, sort_keys=True).encode()
        condition = {"IfNoneMatch": "*"} if self._etag is None else {"IfMatch": self._etag}
        try:
            stored = self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=body, **condition)
        except self._s3.exceptions.ClientError as error:
            if not met_another(error):
                raise
            there, etag = self._read(self._key)
            if there != orders:
                raise LeaseLost(f"{self.address}: another writer has written this object meanwhile") from None
            self._etag = etag  # this writer has written the object, but S3's answer was lost
        else:
            self._etag = str(stored["ETag"])

"""Finds records of erased keys, and removes them from landed lines.

Keys are in a record's own key, in the before and after images, and in headers: Debezium writes a row's former or next
key there. A record of an erased key is replaced by a record that gives no row, so each offset stays.

An update that moves a row from an erased key to another one becomes an insert with the other key. The reverse becomes a
delete.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headwater.contract.model import DYNAMODB, Contract
from headwater.lake.decoding.debezium_decoder import REKEYED, PostgresDecoder
from headwater.lake.table.erasure.keys import ErasedKeys, row_key

_LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)

IsErased = Callable[[Any, int | None], bool | None]
"""Whether a quarantined record has an erased key; None if it has no readable key. The arguments are the record and the
epoch in which it was read."""


def kept_records(contract: Contract, erased: ErasedKeys, epoch: int, mask_key: bytes | None) -> IsErased:
    """The ``IsErased`` of a table. ``epoch`` is the epoch of quarantined records without their own."""
    if contract.source.database == DYNAMODB:
        # Imported here, because it needs msgspec, which EMR's nodes do not have.
        from headwater.lake.table.erasure.items import kept_items

        return kept_items(contract, erased, epoch, mask_key)
    readers: dict[int, LandedLines] = {}

    def is_erased(record: Any, its_epoch: int | None) -> bool | None:
        number = its_epoch or epoch
        if number not in readers:
            readers[number] = LandedLines(contract, number, erased)
        return readers[number].is_erased(record)

    return is_erased


@dataclass
class Cleared:
    """The counts of lines that were processed."""

    lines: int = 0
    """The number of lines that were replaced."""
    unreadable: int = 0
    """The number of lines without a readable key. They are kept, although they may have an erased key."""


class LandedLines:
    """Reads the landed lines of a topic. ``epoch`` is the epoch of records without its header."""

    def __init__(self, contract: Contract, epoch: int, erased: ErasedKeys) -> None:
        self._decoder = PostgresDecoder(contract, epoch)
        self._erased = erased
        self.cleared = Cleared()

    def is_erased(self, record: Any) -> bool | None:
        """Whether a landed record (the JSON of its line) has an erased key; None if it has no readable key."""
        images: list[Any] = []
        order = None
        with suppress(*_UNREADABLE):
            images.append(_document(record.get("key")))
        with suppress(*_UNREADABLE):
            event = _event(record)
            images += _images(event)
            order = self._order(event, record.get("headers", ()))
        keys = [key for key in map(self._decoder.row_key, images) if key is not None]
        return any(self._covers(key, order) for key in keys) if keys else None

    def without_erased(self, line: str) -> str:
        """The line without its parts of erased keys; the same line if it has none."""
        try:
            record = json.loads(line)
            headers = record["headers"]
            key = self._decoder.row_key(_document(record["key"]))
        except _UNREADABLE:
            self.cleared.unreadable += 1
            return line
        try:
            event = _event(record)
        except _UNREADABLE:
            event = None
        # Replace the record, or only its headers, if they have an erased key.
        order = self._order(event, headers)
        changed = self._instead(record, event, key, order)
        if changed is not None:
            record = changed
        headers = [[name, self._header(name, content_, order)] for name, content_ in record["headers"]]
        if changed is None and headers == [list(header) for header in record["headers"]]:
            if event is None and record["value"] is not None:
                self.cleared.unreadable += 1
            return line
        self.cleared.lines += 1
        return json.dumps({**record, "headers": headers}, separators=(",", ":"), ensure_ascii=False)

    def _instead(self, record: dict[str, Any], event: Any, key: str | None, order: str | None) -> dict[str, Any] | None:
        """The record that replaces a record with an erased key; None if the record has none."""
        before, after, *refused = (self._decoder.row_key(image) for image in _images(event))
        covered = [self._covers(known, order) for known in (before, after)]
        if not any((*covered, *(self._covers(known, order) for known in (key, *refused)))):
            return None
        blank = {**record, "key": None, "value": None, "headers": []}
        if event is None:
            return blank
        if event["source"].get("snapshot") in _LAST_OF_SNAPSHOT:
            # The last row of a snapshot also sets a truncate marker. Keep it, in a record of the connector's form.
            stays = {**event, "op": "t", "before": None, "after": None}
            return {**record, "key": None, "value": _packed(_without_refused(stays))}
        # An update from an erased key to another one becomes an insert, and the reverse a delete.
        if event["op"] == "u" and None not in (before, after) and covered == [True, False]:
            untouched = self._decoder.with_untouched(event["after"], event["before"])
            return {**record, "value": _packed({**event, "op": "c", "before": None, "after": untouched})}
        if event["op"] == "u" and None not in (before, after) and covered == [False, True]:
            return {**record, "value": _packed(_without_refused({**event, "op": "d", "after": None}))}
        return blank

    def _header(self, name: str, content_: str | None, order: str | None) -> str | None:
        """A header's content; None if the header has an erased key."""
        if name not in REKEYED:
            return content_
        try:
            named = _document(content_)
        except _UNREADABLE:
            return content_
        return None if self._covers(self._decoder.row_key(named), order) else content_

    def _order(self, event: Any, headers: Any) -> str | None:
        return None if event is None else self._decoder.order_told(event, headers)

    def _covers(self, key: str | None, order: str | None) -> bool:
        return key is not None and self._erased.covers(row_key(key), order)


def _event(record: Any) -> Any:
    """A record's change event; None if it has no value. Raises the exceptions of ``_UNREADABLE``."""
    value = record["value"]
    if value is None:
        return None
    event = json.loads(a2b_base64(value))
    if not isinstance(event, dict) or not isinstance(event.get("source"), dict):
        raise TypeError("no Debezium envelope")
    return event


def _images(event: Any) -> tuple[Any, Any, Any]:
    """The images of rows in an event: before, after, and the row that the connector refused because of its size."""
    if event is None:
        return None, None, None
    refused = event.get("refused")
    return event.get("before"), event.get("after"), refused.get("row") if isinstance(refused, dict) else None


def _without_refused(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "refused"}


def _document(packed: str | None) -> Any:
    return None if packed is None else json.loads(a2b_base64(packed))


def _packed(event: dict[str, Any]) -> str:
    return b2a_base64(json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass"), newline=False).decode()

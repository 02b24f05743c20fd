"""Requests to forget a key: they name the row to remove, and the highest order of the changes that must not come back.

A request has the key in clear, because the writer searches for the key's rows. Once the request is done or refused, it
is removed with all its versions. The writer's answer has only the keyed hash. The request's name does not reveal the
key.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from headwater.contract.model import Contract
from headwater.contract.types import Type
from headwater.errors import UserError
from headwater.lake.requests.protocol import Request, Requests

FORGET = "forget"
"""The kind of these requests."""
_ORDER = re.compile(r"\d{46}|\d{81}")


@dataclass(frozen=True)
class Forgotten:
    """The details of a request to forget a key."""

    key: Mapping[str, str]
    """The key's values as text, by column."""
    order: str
    """The highest ``_order`` of the changes to forget."""

    @staticmethod
    def of(details: Mapping[str, Any]) -> Forgotten:
        """Parse a request's details. Raises UserError."""
        key, order = details.get("key"), details.get("order")
        if not isinstance(key, dict) or not all(isinstance(text, str) for text in key.values()):
            raise UserError("key: found something else, expected a text by column")
        if not isinstance(order, str) or not _ORDER.fullmatch(order):
            raise UserError(f"order: found {order!r}, expected 46 or 81 digits")
        return Forgotten(key, order)


def ask(requests: Requests, asked: Forgotten) -> tuple[str, str]:
    """Request that a key is forgotten, and return the request's id and token.

    The new request replaces an unfinished request for the same key.
    """
    id_ = next((id_ for id_, key in _asked(requests) if key == asked.key), f"{FORGET}/{uuid.uuid4().hex}")
    request = Request(uuid.uuid4().hex, {"key": dict(asked.key), "order": asked.order})
    requests.put(id_, request)
    return id_, request.token


def withdraw(requests: Requests, key: Mapping[str, str]) -> bool:
    """Withdraw the unfinished request for that key, with all its versions. Returns whether there was one.

    The writer stops after its current step.
    """
    withdrawn = [id_ for id_, asked in _asked(requests) if asked == key]
    for id_ in withdrawn:
        requests.remove(id_)
    return bool(withdrawn)


def _asked(requests: Requests) -> Iterator[tuple[str, Any]]:
    """The ids of the unfinished requests, and their keys."""
    for id_, _ in requests.listed():
        request = requests.get(id_) if id_.startswith(f"{FORGET}/") else None
        if request is not None:
            yield id_, request.details.get("key")


def key_values(contract: Contract, texts: Mapping[str, str]) -> dict[str, Any]:
    """The key's values by column, in the order of the contract's key. Raises UserError without showing the values."""
    if set(texts) != set(contract.key):
        raise UserError(
            f"KEY: found a value for {', '.join(texts) or 'nothing'}, expected one for {', '.join(contract.key)}, the "
            f"key of {contract.table}"
        )
    columns = [contract.column(name) for name in contract.key]
    for column in columns:
        if column.source_type == "N":
            _value(column.name, Type("decimal"), texts[column.name])
    return {column.name: _value(column.name, column.type, texts[column.name]) for column in columns}


def _value(name: str, type_: Type, text: str) -> Any:
    try:
        if type_.kind in ("int", "bigint"):
            return int(text)
        if type_.kind == "date":
            return dt.date.fromisoformat(text)
        if type_.kind == "decimal":
            return Decimal(text)
        if type_.kind == "binary":
            return base64.b64decode(text, validate=True)
    except (ValueError, InvalidOperation, binascii.Error):
        expected = "base64" if type_.kind == "binary" else f"a value of the type {type_.ddl()}"
        raise UserError(f"KEY: {name}: found something else, expected {expected}") from None
    return text

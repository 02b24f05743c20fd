"""Requests to replay quarantined records: their table's writer decodes them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater.errors import UserError
from headwater.lake.requests.protocol import Requests

REPLAY = "replay"
"""The kind of these requests. A request's name is a digest of the choice in its details."""


@dataclass(frozen=True)
class Choice:
    """The records to replay."""

    objects: tuple[str, ...]
    """The names of the quarantine objects with the records."""
    reason: str = ""
    """Only records whose reasons contain this text."""

    @property
    def request_id(self) -> str:
        """The id of the request for this choice."""
        text = json.dumps([sorted(self.objects), self.reason])
        return f"{REPLAY}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @staticmethod
    def of(details: Mapping[str, Any]) -> Choice:
        """Parse a request's details. Raises UserError."""
        objects, reason = details.get("objects"), details.get("reason")
        if not isinstance(objects, list) or not all(isinstance(name, str) for name in objects):
            raise UserError(f"objects: found {objects!r}, expected a list of quarantine objects")
        if not isinstance(reason, str):
            raise UserError(f"reason: found {reason!r}, expected a text")
        return Choice(tuple(objects), reason)


def ask(requests: Requests, choice: Choice) -> str:
    """Request the replay of these records, and return the request's id."""
    requests.ask(choice.request_id, asdict(choice))
    return choice.request_id


def withdraw(requests: Requests) -> list[str]:
    """Withdraw the table's unfinished requests for replays, and return their ids.

    The writer stops after its current commit. Raises UserError if there are none.
    """
    ids = [id_ for id_, _ in requests.listed() if id_.startswith(f"{REPLAY}/") and not requests.is_answered(id_)]
    if not ids:
        raise UserError("No replay is requested: there is nothing to withdraw.")
    for id_ in ids:
        requests.delete(id_)
    return ids

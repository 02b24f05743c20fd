"""A replication slot that nobody reads: its cost, how to drop it, and the query that finds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.definitions.connectors import SLOT

COST = (
    "The server keeps all its log from the position of such a slot on. That fills the disk, unless "
    "max_slot_wal_keep_size is set."
)
DROP_STATEMENT = f"SELECT pg_drop_replication_slot('{SLOT}')"
"""The statement that drops the slot. An administrator or a role with REPLICATION runs it in the slot's database."""
_FIND = f"""
SELECT database, coalesce(pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND NOT active"""
_MIB = 1 << 20


def parameter(environment: str) -> str:
    """Return the Systems Manager parameter in which the source connector's custom resource records why a slot stays."""
    return f"/headwater/{environment}/slot-left"


@dataclass(frozen=True)
class UnreadSlot:
    """The replication slot while nobody reads it."""

    database: str
    """The database of the slot."""
    held_bytes: int
    """How many bytes of the server's log the slot holds back."""

    @property
    def found(self) -> str:
        """The words of a message that say what a command has found."""
        return (
            f"the replication slot {SLOT} of the database {self.database}, which nobody reads, and which holds back "
            f"{self.held_bytes / _MIB:,.1f} MiB of the server's log"
        )

    @property
    def action(self) -> str:
        """The words of a message that say what to do, and why."""
        return (
            "start the connector that reads from this slot, or, if there is none, drop the slot in that database: "
            f"{DROP_STATEMENT}. {COST}"
        )


def unread_slot(query: Callable[[str], Sequence[Sequence[Any]]]) -> UnreadSlot | None:
    """Return the server's slot if nobody reads it; None if it is read, or there is no slot.

    ``query`` runs a statement in any database of the server. Raises what ``query`` raises.
    """
    rows = query(_FIND)
    return UnreadSlot(str(rows[0][0]), int(rows[0][1])) if rows else None

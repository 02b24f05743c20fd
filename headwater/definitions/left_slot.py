"""A replication slot that nobody reads: what it costs, how it is dropped, and who says that it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.definitions.connectors import SLOT

COST = (
    "The server keeps its log from the position of such a slot on, until the disk is full, or up to "
    "max_slot_wal_keep_size if that is set."
)
DROP_STATEMENT = f"SELECT pg_drop_replication_slot('{SLOT}')"
"""An administrator runs it, or a role with the attribute REPLICATION, in the slot's database."""
_FIND = f"""
SELECT database, coalesce(pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND NOT active"""
_MIB = 1 << 20


def parameter(environment: str) -> str:
    """The parameter of Systems Manager in which the source connector's custom resource records why a slot stays."""
    return f"/headwater/{environment}/slot-left"


@dataclass(frozen=True)
class UnreadSlot:
    """The server's slot while nobody reads it."""

    database: str
    """The database of the slot."""
    held_bytes: int
    """How much of the server's log it holds back."""

    @property
    def found(self) -> str:
        """What a command has found."""
        return (
            f"the replication slot {SLOT} of the database {self.database}, which nobody reads, and which holds back "
            f"{self.held_bytes / _MIB:,.1f} MiB of the server's log"
        )

    @property
    def action(self) -> str:
        """What to do, and why."""
        return (
            "start the connector that is to go on from it, or, if there is none, drop it there: "
            f"{DROP_STATEMENT}. {COST}"
        )


def unread_slot(query: Callable[[str], Sequence[Sequence[Any]]]) -> UnreadSlot | None:
    """The server's slot if nobody reads it; None if somebody does, or there is none.

    ``query`` runs a statement in any database of the server. Raises what it raises.
    """
    rows = query(_FIND)
    return UnreadSlot(str(rows[0][0]), int(rows[0][1])) if rows else None

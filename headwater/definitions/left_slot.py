"""A replication slot that nobody reads: what it costs, how it is dropped, and who says that it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.definitions.connectors import SLOT

COST = (
    "The server keeps its log from the position of such a slot on, until the disk is full, or up to "
    "max_slot_wal_keep_size if that is set."
)
DROP_STATEMENT = f"SELECT pg_drop_replication_slot('{SLOT}')"
"""An administrator runs it, or a role with the attribute REPLICATION, in the slot's database."""
_FIND = f"""
SELECT database, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND NOT active"""
_MIB = 1 << 20


def parameter(environment: str) -> str:
    """The parameter of Systems Manager in which the source connector's custom resource records why a slot stays."""
    return f"/headwater/{environment}/slot-left"


def unread_slot(query: Callable[[str], Sequence[Sequence[Any]]]) -> str:
    """What to say of the server's slot if nobody reads it, in one line; empty if it is read, or not there.

    ``query`` runs a statement in any database of the server. Raises what it raises.
    """
    rows = query(_FIND)
    if not rows:
        return ""
    database, held = rows[0]
    return (
        f"Nobody reads the replication slot {SLOT} of the database {database}, which holds back {held / _MIB:,.1f} MiB "
        f"of the server's log. {COST} Start its connector, or, if no pipeline of yours goes on from it, drop it there: "
        f"{DROP_STATEMENT}"
    )

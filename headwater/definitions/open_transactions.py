"""Transactions that the creation of a replication slot waits for, without a word of PostgreSQL's.

The server makes a logical slot once all transactions have ended that had written before, in any of its databases. A
prepared transaction that nobody ends holds it up for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.definitions.connectors import SLOT

LEFT = "left"
"""It was prepared more than a minute ago: its transaction manager is gone, or waits itself."""
LONG = "long"
"""It is prepared, or open for five seconds at least."""
SHORT = "short"
"""It is open for less than five seconds."""
UNKNOWN = "unknown"
"""It is open. Only its own role and members of pg_read_all_stats see since when."""
LONG_SECONDS = 5.0

_AGE = "justify_interval(date_trunc('second', clock_timestamp() - {}))"
FIND_SLOT = f"SELECT FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND confirmed_flush_lsn IS NOT NULL"
"""The query that returns a row once there is the slot. While it is being made, it has no confirmed position."""
_UNMADE = f"NOT EXISTS ({FIND_SLOT})"
FIND = f"""
SELECT format('prepared %s', transaction),
    CASE WHEN clock_timestamp() - prepared > '1 minute' THEN '{LEFT}' ELSE '{LONG}' END,
    extract(epoch FROM clock_timestamp() - prepared)::bigint,
    format('the prepared transaction %L of the database %s (by %s, %s ago)', gid, database, owner,
        {_AGE.format("prepared")}),
    format('ROLLBACK PREPARED %L in the database %s ends it (as %s or a superuser), or COMMIT PREPARED if its other '
        'parts have committed', gid, database, owner)
FROM pg_prepared_xacts WHERE {_UNMADE}
UNION ALL
SELECT format('pid %s, %s', pid, backend_xid),
    CASE WHEN xact_start IS NULL THEN '{UNKNOWN}' WHEN clock_timestamp() - xact_start > '{LONG_SECONDS} seconds'
        THEN '{LONG}' ELSE '{SHORT}' END,
    extract(epoch FROM clock_timestamp() - xact_start)::bigint,
    format('a transaction of pid %s in the database %s (%s%s)', pid, datname,
        concat_ws(', ', usename, coalesce(nullif(application_name, ''), backend_type), state),
        ', open for ' || {_AGE.format("xact_start")}),
    format('wait for its end, or end it by SELECT pg_terminate_backend(%s)', pid)
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND {_UNMADE}
ORDER BY 3 DESC NULLS LAST
"""
"""The query, for any role. It returns the fields of ``OpenTransaction``, and no row once there is the slot."""


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that the creation of the slot waits for."""

    name: str
    """Tells it from the server's other transactions."""
    state: str
    """``LEFT``, ``LONG``, ``SHORT`` or ``UNKNOWN``."""
    seconds: int | None
    """For how long it is open or prepared; None if unknown."""
    transaction: str
    """The transaction in words, with its age."""
    action: str
    """What to do."""

    @property
    def found(self) -> str:
        """What a command has found, and what it means."""
        return f"{self.transaction}, before whose end PostgreSQL makes no replication slot"


def open_transactions(
    query: Callable[[str], Sequence[Sequence[Any]]], states: Sequence[str] = (LEFT, LONG)
) -> list[OpenTransaction]:
    """Return the transactions of these states, in any database of the server; none if there is the slot.

    ``query`` runs a statement in any database of the server. Raises that function's exceptions.
    """
    found = [OpenTransaction(*row) for row in query(FIND)]
    return [each for each in found if each.state in states]

"""Changes a database that is in use: one statement, one table and one short lock at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg.errors import DeadlockDetected, InsufficientPrivilege, LockNotAvailable, UndefinedTable

from headwater.errors import UserError
from headwater.postgresql.queries import server_message, single_value

PATIENCE_SECONDS = 15.0
"""How many seconds a command goes on trying without progress."""
# While an ALTER TABLE waits for its lock, every later query of the table waits behind it.
_LOCK_TIMEOUT = "100ms"
# The pause between two tries on the same table: many times the wait, so that the table's queries hardly notice.
_PAUSE_SECONDS = 1.0

Tell = Callable[[str], None]
"""Receives a line for the person who waits."""

_EXISTS = "SELECT to_regclass(%s) IS NOT NULL"
# Tables that other transactions have locked. Not every error names the table whose lock it has met.
_LOCKED = """SELECT relation::regclass::text,
    string_agg(DISTINCT format('pid %s (%s)', pid, usename), ', ')
FROM pg_locks JOIN pg_stat_activity USING (pid) JOIN pg_class ON pg_class.oid = relation AND relkind IN ('r', 'p')
WHERE granted AND pid <> pg_backend_pid() AND relation >= 16384
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY relation"""


def _passes(error: psycopg.Error) -> bool:
    """Whether an error says that another transaction was in the way.

    Two transactions that change the same entry of the catalog conflict without a lock.
    """
    return isinstance(error, LockNotAvailable | DeadlockDetected) or "tuple concurrently" in server_message(error)


def silent(line: str) -> None:
    """Drop the line."""


class Gradual:
    """Runs statements over an autocommit connection, each in a transaction of its own.

    A statement waits for a lock for at most 100 ms. It is tried again later, while other statements go on.

    - ``patience``: how many seconds may pass without progress.
    - ``tell``: gets a line for each table that a statement waits for.
    """

    def __init__(self, conn: psycopg.Connection, patience: float = PATIENCE_SECONDS, tell: Tell = silent) -> None:
        self._conn = conn
        self._patience = patience
        self._tell = tell
        self._met: set[str] = set()
        self._told: set[str] = set()

    @contextmanager
    def briefly_locking(self) -> Iterator[None]:
        """Within this context, the connection's statements wait for a lock for at most 100 ms."""
        before = str(single_value(self._conn, "SHOW lock_timeout"))
        self._conn.execute("SELECT set_config('lock_timeout', %s, false)", (_LOCK_TIMEOUT,))
        try:
            yield
        finally:
            if not self._conn.closed:
                self._conn.execute("SELECT set_config('lock_timeout', %s, false)", (before,))

    def run(self, statements: Sequence[str]) -> None:
        """Run statements in their order.

        If a query answers with names and statements, run these in any order, and repeat the query until it has no
        answer. Raises UserError, naming the remaining statements and the holders of the locks. Raises psycopg.Error if
        the server refuses a statement.
        """
        for statement in statements:
            self._until_done(statement)

    def attempt(self, query: str) -> list[str]:
        """Run the statements that a query answers with. Returns a line for each statement that the server refuses.

        Raises UserError as ``run`` does.
        """
        refused: dict[str, str] = {}
        self._until_done(query, refused)
        return [f"{place}: {reason}" for place, reason in refused.items()]

    def _until_done(self, statement: str, refused: dict[str, str] | None = None) -> None:
        moved = time.monotonic()
        done: set[str] = set()
        while True:
            held: dict[str, str] = {}
            tried: set[str] = set()
            # Run all statements of the answer, and repeat the query: their effects may allow further statements.
            # Skip statements that have run already: later checks report them.
            while todo := [(place, step) for place, step in self._answer(statement, held) if step not in tried]:
                for place, step in todo:
                    tried.add(step)
                    if self._succeeds(place, step, held, refused) and step not in done:
                        moved = time.monotonic()
                        done.add(step)
            if not held:
                return
            self._wait(held, moved)

    def _answer(self, statement: str, held: dict[str, str]) -> list[tuple[str, str]]:
        try:
            cursor = self._conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if not _passes(error):
                raise
            held |= dict(self._conn.execute(_LOCKED).fetchall()) or {"the catalog": server_message(error)}
            return []

    def _succeeds(self, place: str, step: str, held: dict[str, str], refused: dict[str, str] | None) -> bool:
        try:
            self._conn.execute(step.encode())
            return True
        except psycopg.Error as error:
            if isinstance(error, UndefinedTable) and not single_value(self._conn, _EXISTS, (place,)):
                # The table was dropped meanwhile, as old partitions are: the next answer does not have it.
                pass
            elif _passes(error):
                held[place] = server_message(error)
            elif refused is not None:
                refused[place] = server_message(error)
            elif isinstance(error, InsufficientPrivilege):
                raise
            else:
                raise UserError(f"{place}: the server refuses {step}: {server_message(error)}") from None
            return False

    def _wait(self, held: dict[str, str], moved: float) -> None:
        # Report a lock only from the second try on: most locks are gone by then.
        for place in held.keys() & self._met - self._told:
            self._tell(f"Waiting for {place}: {held[place]}")
            self._told.add(place)
        self._met |= held.keys()
        if time.monotonic() - moved > self._patience:
            remaining = "\n".join(f"- {place}: {holder}" for place, holder in sorted(held.items()))
            raise UserError(
                f"{self._conn.info.dbname}: nothing moved for {self._patience:g} seconds. Found locks of other "
                f"transactions on tables that are still to change, expected none for a moment:\n{remaining}\n"
                "Wait for these transactions, or end them (SELECT pg_terminate_backend(PID), ROLLBACK PREPARED), and "
                "run the same command again: it goes on from here."
            )
        time.sleep(_PAUSE_SECONDS)

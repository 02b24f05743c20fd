"""Reading of PostgreSQL beside its other work: as of one moment, in bounded pieces, for a bounded part of its time."""

import json
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.verify.bunches import Pace

Texts = Sequence[str | None]
"""A row as COPY gives it: PostgreSQL's own text of each value."""

STATEMENT_MINUTES = 15
"""How long a statement may take that reads a part of a table."""
PASS_MINUTES = 60
"""How long a statement may take that reads all of it."""
SESSION = {
    # PostgreSQL's text for a value depends on these settings; with these it is exact and the same on every server.
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # A large table takes its time, and the transaction idles while the lake is read. But a table that somebody else
    # has locked must not keep the others from being read.
    "statement_timeout": "0",
    "lock_timeout": "60s",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""Settings of each transaction that reads, whatever the server, the database or the role is set to."""
# A share of a core is that of one process.
_ONE_PROCESS = {"max_parallel_workers_per_gather": "0"}
_SET = "SELECT pg_catalog.set_config(name, %s, true) FROM pg_catalog.pg_settings WHERE lower(name) = %s"
_PIECE_BYTES = 16 * 1024 * 1024
_TEXT_BYTES = 64  # what Python takes for a text beside its characters


@dataclass(frozen=True)
class Piece:
    """Some rows, and about how many bytes they take here."""

    rows: Sequence[Texts]
    size: int

    def fitting(self) -> int:
        """How many rows of this kind certainly fit into one piece."""
        return max(1, len(self.rows) * _PIECE_BYTES * 3 // (4 * max(self.size, 1)))


def pieces(rows: Iterable[Texts], most: int | None = None) -> Iterator[Piece]:
    """Yield the rows in their order, in pieces that fit into memory and have at most ``most`` rows."""
    held: list[Texts] = []
    size = 0
    for texts in rows:
        held.append(texts)
        size += sum(len(text) + _TEXT_BYTES for text in texts if text is not None)
        if size >= _PIECE_BYTES or len(held) == most:
            yield Piece(held, size)
            held, size = [], 0
    if held:
        yield Piece(held, size)


@contextmanager
def snapshot(connection: psycopg.Connection, settings: Mapping[str, str] = SESSION) -> Iterator[None]:
    """A transaction that reads, as of one moment, with these settings."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for name, value in settings.items():
            # Not all servers have each.
            connection.execute(_SET, (value, name))
        yield


class Work:
    """For how long a server has worked."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time of this context, also if it ends with an error."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began


def copied(connection: psycopg.Connection, statement: sql.Composed, work: Work) -> Generator[Piece]:
    """Stream the rows of a COPY in pieces, and count the server's time into ``work``.

    The time before the first row counts. A piece is read completely before it is yielded, so the caller's own time does
    not count.
    """
    with ExitStack() as opened:
        with work.counted():
            copy = opened.enter_context(opened.enter_context(connection.cursor()).copy(statement))
        read = pieces(copy.rows())
        while True:
            with work.counted():
                piece = next(read, None)
            if piece is None:
                return
            yield piece


class PacedReader:
    """Reads by single statements, and rests after each, so that the server works for it a ``share`` of the time."""

    def __init__(self, connection: psycopg.Connection, share: float, pace: Pace) -> None:
        self._connection = connection
        self._share = share
        self._pace = pace

    def part(self, statement: sql.Composed) -> tuple[Piece, int]:
        """Return the first piece of a COPY, and how many rows it leaves out. Raises psycopg.Error."""
        with self._paced() as work, self._snapshot(STATEMENT_MINUTES):
            read = copied(self._connection, statement, work)
            piece = next(read, Piece((), 0))
            # Reading the remaining rows is cheaper than a cancellation, which opens another connection.
            return piece, sum(len(more.rows) for more in read)

    def in_one_pass(self, statement: sql.Composed, most: int) -> Iterator[Piece]:
        """Stream a COPY in pieces of at most ``most`` rows, out of a temporary file.

        No transaction is open while the pieces are taken. The rest for the server's time follows the last piece, so
        that the rows do not grow old. Raises psycopg.Error, and OSError if the file has no room.
        """
        with self._paced() as work, tempfile.TemporaryFile("w+", encoding="utf-8") as file:
            with self._snapshot(PASS_MINUTES), closing(copied(self._connection, statement, work)) as read:
                for piece in read:
                    file.writelines(f"{json.dumps(texts)}\n" for texts in piece.rows)
            file.seek(0)
            yield from pieces(map(json.loads, file), most)

    def run(self, statement: sql.Composed) -> None:
        """Run a statement that gives no rows. Raises psycopg.Error."""
        with self._paced() as work, self._snapshot(STATEMENT_MINUTES), work.counted():
            self._connection.execute(statement)

    def _snapshot(self, minutes: float) -> AbstractContextManager[None]:
        timeout = {"statement_timeout": f"{round(minutes * 60_000)}ms"}
        return snapshot(self._connection, SESSION | _ONE_PROCESS | timeout)

    @contextmanager
    def _paced(self) -> Iterator[Work]:
        work = Work()
        try:
            yield work
        finally:
            self._pace.rest(work.seconds * (1 / self._share - 1))

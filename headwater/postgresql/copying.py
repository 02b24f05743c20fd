"""Reads all rows of a source table in parallel, as of one moment, into files of row images."""

from __future__ import annotations

import gzip
import json
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import psycopg
from psycopg import sql

from headwater.contract.masks import masked, needed_key
from headwater.contract.model import HMAC, Contract
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.errors import UserError
from headwater.postgresql.queries import server_message, single_value
from headwater.postgresql.row_images import SESSION, RowImages, row_images

Connect = Callable[[], psycopg.Connection]
Store = Callable[[str, IO[bytes], int], None]
"""Stores a file. The arguments are the file's name, its content (lines in gzip), and the number of its rows. Several
threads call it at the same time."""
Report = Callable[[int, int, int], None]
"""Reports progress: the number of rows read since the last call, of finished parts, and of all parts."""

_PART_BYTES = 64 * 2**20
"""The size of the part of a table that a reader takes at a time. TOASTed values do not count."""
_FILE_BYTES = 128 * 2**20
"""After this many bytes of row images, a new data file begins."""
_LINES = 1_000
_POLL_SECONDS = 0.5
_LAST_BLOCK = 2**32 - 1
_CANCEL_SECONDS = 5.0
_SETTINGS = {
    **SESSION,
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # Without this, rows that a policy hides would be missing silently.
    "row_security": "off",
}
# pg_settings has some names with capitals, such as TimeZone.
_SET = "SELECT pg_catalog.set_config(name, %s, false) FROM pg_catalog.pg_settings WHERE lower(name) = %s"
_CAPTURED = """
SELECT
    (
        SELECT wal_status FROM pg_replication_slots
        WHERE slot_name = %s AND database = current_database() AND confirmed_flush_lsn IS NOT NULL
    ),
    EXISTS (
        SELECT FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s
    )
"""
_SNAPSHOT = """
SELECT pg_export_snapshot(), (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
"""
_HEAPS = """
SELECT nspname::text, relname::text, pg_relation_size(oid) / current_setting('block_size')::bigint
FROM (
    SELECT pg_class.oid, nspname, relname
    FROM to_regclass(%(table)s::text) AS root
    CROSS JOIN LATERAL (SELECT root UNION SELECT relid FROM pg_partition_tree(root)) AS tree (id)
    JOIN pg_class ON pg_class.oid = id
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind = 'r'
) AS heaps
ORDER BY 1, 2
"""
# Writing transactions of any database that began before a given transaction.
_WRITERS = """
SELECT coalesce(string_agg(who, ', ' ORDER BY who), '')
FROM (
    SELECT format('process %%s since %%s', pid, xact_start::timestamp(0)) AS who, backend_xid AS id
    FROM pg_stat_activity
    UNION ALL
    SELECT format('prepared transaction %%s since %%s', gid, prepared::timestamp(0)), transaction
    FROM pg_prepared_xacts
) AS writers
WHERE id::text::bigint < %s::bigint %% 4294967296
"""
# Whether the source has a unique index that rules out two rows with the same contract key.
_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index
    WHERE indrelid = to_regclass(%s) AND indisunique AND indisvalid AND indpred IS NULL AND (
        SELECT bool_and(coalesce(attname = ANY (%s), false))
        FROM generate_series(0, indnkeyatts - 1) AS place
        LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[place] AND attnum > 0
    )
)
"""


@dataclass(frozen=True)
class _Part:
    """A range of blocks of a table, or of one of its partitions."""

    number: int
    """The number of the part, with which the names of its data files begin."""
    schema: str
    """The schema of the table or partition."""
    name: str
    """The name of the table or partition."""
    first: int
    """The first block."""
    end: int
    """The block after the last one."""

    def statement(self, images: RowImages) -> sql.Composed:
        where = sql.SQL("ctid >= {} AND ctid < {}").format(
            sql.Literal(f"({self.first},0)"), sql.Literal(f"({self.end},0)")
        )
        return images.copied(sql.Identifier(self.schema, self.name), where)


@dataclass(frozen=True)
class Moment:
    """The moment at which a table's rows were read."""

    lsn: int
    """The position in the log (an LSN) at that moment."""
    read_at: int
    """When they were read, in microseconds since 1970."""
    is_unique: bool
    """Whether the source allows no two rows with the same contract key."""


def copy_table(
    connect: Connect,
    contract: Contract,
    store: Store,
    readers: int,
    mask_key: bytes | None = None,
    say: Callable[[str], None] = lambda text: None,
    report: Report = lambda rows, done, parts: None,
) -> Moment:
    """Read all rows of a contract's table as of one moment, by ``readers`` connections.

    The source connector's slot still has every change that the rows lack. So the table must be captured already, and
    the function waits for transactions that were open before. Raises UserError if the table is not captured or cannot
    be read.
    """
    key = needed_key(contract, mask_key)
    table = contract.source.table
    with _reading(table), connect() as connection:
        _set(connection)
        _require_captured(connection, contract)
        _await_open_transactions(connection, say)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Lock the table before the snapshot is taken: to an older snapshot, a rewritten table looks empty.
        connection.execute(_lock(contract))
        (found,) = connection.execute(_SNAPSHOT).fetchall()
        snapshot, lsn, read_at = found
        images = row_images(connection, contract)
        if images.left_out:
            left_out = ", ".join(images.left_out)
            say(f"{table}: columns left out until a row's next change, because of their types: {left_out}")
        is_unique = bool(single_value(connection, _UNIQUE, (table, _key_columns(contract))))
        begin = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)), _lock(contract, " NOWAIT")
        reading = _Reading(connect, store, begin, images, _masking(contract, key), report)
        reading.read(_parts(connection, table), readers)
    return Moment(int(lsn), int(read_at), is_unique)


class _Reading:
    """The reading of a table: several readers take its parts until none is left."""

    def __init__(
        self,
        connect: Connect,
        store: Store,
        begin: Sequence[sql.Composed],
        images: RowImages,
        mask: Callable[[bytes], bytes] | None,
        report: Report,
    ) -> None:
        self._connect = connect
        self._store = store
        self._begin = begin
        self._images = images
        self._mask = mask
        self._report = report
        self._waiting: queue.SimpleQueue[_Part] = queue.SimpleQueue()
        self._count = self._done = 0
        self._connections: list[psycopg.Connection] = []
        self._telling = threading.Lock()
        self._ends = threading.Event()

    def read(self, parts: Sequence[_Part], readers: int) -> None:
        """Read all parts by this many readers."""
        for part in parts:
            self._waiting.put(part)
        self._count = len(parts)
        self._tell(0)
        if not parts:
            return
        with ThreadPoolExecutor(min(readers, self._count)) as pool:
            running = [pool.submit(self._read) for _ in range(min(readers, self._count))]
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:
                if not all(each.done() for each in running):
                    self._end()
        errors = [error for each in running if (error := each.exception()) is not None]
        for error in sorted(errors, key=lambda error: self._ends.is_set() and _is_of_end(error)):
            raise error

    def _end(self) -> None:
        """End all readers, also those that wait for the server."""
        self._ends.set()
        with self._telling:
            for connection in self._connections:
                if not connection.closed:
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def _read(self) -> None:
        """Take and read parts until none is left."""
        with self._connect() as connection:
            with self._telling:
                self._connections.append(connection)
            _set(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for statement in self._begin:
                connection.execute(statement)
            while not self._ends.is_set():
                try:
                    part = self._waiting.get_nowait()
                except queue.Empty:
                    return
                self._read_part(connection, part)
                self._tell(0, parts=1)

    def _tell(self, rows: int, parts: int = 0) -> None:
        with self._telling:
            self._done += parts
            self._report(rows, self._done, self._count)

    def _read_part(self, connection: psycopg.Connection, part: _Part) -> None:
        with connection.cursor().copy(part.statement(self._images)) as copied:
            blocks = self._blocks(copied)
            lines = next(blocks, None)
            number = 0
            while lines is not None:
                rows = size = 0
                with tempfile.TemporaryFile() as body:
                    with gzip.GzipFile(fileobj=body, mode="wb", compresslevel=1) as packed:
                        while lines is not None and size < _FILE_BYTES:
                            rows += len(lines)
                            size += packed.write(b"".join(lines))
                            lines = next(blocks, None)
                    self._store(f"{part.number:06d}-{number:04d}.jsonl.gz", body, rows)
                number += 1

    def _blocks(self, copied: psycopg.Copy) -> Iterator[list[bytes]]:
        """Yield some lines at a time. Raises _Ended if another reader has failed."""
        lines: list[bytes] = []
        size = 0
        for row in copied:
            line = bytes(row) if self._mask is None else self._mask(bytes(row))
            lines.append(line)
            size += len(line)
            if len(lines) == _LINES or size > _FILE_BYTES:
                if self._ends.is_set():
                    raise _Ended
                yield lines
                self._tell(len(lines))
                lines, size = [], 0
        if lines:
            yield lines
            self._tell(len(lines))


class _Ended(Exception):
    """Another reader has failed, or the user has ended the command."""


def _is_of_end(error: BaseException) -> bool:
    """Whether an error only says that all readers were cancelled."""
    return isinstance(error, (_Ended, psycopg.errors.QueryCanceled))


@contextmanager
def _reading(table: str) -> Iterator[None]:
    """Turn PostgreSQL's errors into UserError."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{table}: reading it failed: {server_message(error)}. The user needs SELECT on it, USAGE on "
            "the schema capture, and no policy that hides rows from the user."
        ) from None
    except psycopg.errors.LockNotAvailable:
        raise UserError(
            f"{table}: found a session that waits to change the table itself, expected none: both would wait for each "
            "other. Run the command again when that session has finished"
        ) from None
    except psycopg.Error as error:
        raise UserError(f"{table}: reading it failed: {server_message(error)}. Run the command again") from None


def _set(connection: psycopg.Connection) -> None:
    for name, value in _SETTINGS.items():
        # Some servers lack some of these settings.
        connection.execute(_SET, (value, name))


def _lock(contract: Contract, wait: str = "") -> sql.Composed:
    """A statement that keeps the table and its partitions from being rewritten, moved or dropped.

    Other sessions may read and change rows.
    """
    table = sql.Identifier(contract.source.schema, contract.source.name)
    return sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE{}").format(table, sql.SQL(wait))


def _require_captured(connection: psycopg.Connection, contract: Contract) -> None:
    """Raise UserError unless the slot and the publication capture all changes from now on."""
    if single_value(connection, "SELECT pg_is_in_recovery()"):
        raise UserError("PostgreSQL: found a replica, expected the server that is written to: it may be behind")
    place = (SLOT, PUBLICATION, contract.source.schema, contract.source.name)
    status, is_published = connection.execute(_CAPTURED, place).fetchone() or (None, False)
    if status is None or status == "lost":
        raise UserError(
            f"{contract.source.table}: found {'no slot' if status is None else 'a lost slot'} {SLOT}, expected the "
            "source connector's: changes from now on must be on their way before the table is read. Start the connector"
        )
    if not is_published:
        raise UserError(
            f"{contract.source.table}: found it outside the publication {PUBLICATION}, expected in it: deploy with its "
            "contract, or for a database of your own run headwater db capture"
        )


def _await_open_transactions(connection: psycopg.Connection, say: Callable[[str], None]) -> None:
    """Wait until all transactions that write now have ended.

    The slot may lack the rows that these transactions wrote before the slot or the publication existed. So the snapshot
    must show these rows.
    """
    # Every transaction that writes now has a lower id. (A snapshot's own end does not count the latest running ones.)
    own = single_value(connection, "SELECT pg_current_xact_id()")
    told = ""
    while not single_value(connection, "SELECT pg_snapshot_xmin(pg_current_snapshot()) > %s::xid8", (str(own),)):
        writers = str(single_value(connection, _WRITERS, (str(own),)))
        if writers != told:
            say(f"Waiting for open transactions to end, because they may have written rows already: {writers}")
            told = writers
        time.sleep(_POLL_SECONDS)


def _parts(connection: psycopg.Connection, table: str) -> list[_Part]:
    parts: list[_Part] = []
    blocks = _PART_BYTES // int(str(single_value(connection, "SELECT current_setting('block_size')::int")))
    for schema, name, count in connection.execute(_HEAPS, {"table": table}).fetchall():
        starts = list(range(0, max(int(count), 1), blocks))
        for first, end in zip(starts, [*starts[1:], _LAST_BLOCK], strict=True):
            parts.append(_Part(len(parts), schema, name, first, end))
    return parts


def _key_columns(contract: Contract) -> list[str]:
    return [column.path[0] for name in contract.key if len((column := contract.column(name)).path) == 1]


def _masking(contract: Contract, key: bytes) -> Callable[[bytes], bytes] | None:
    """A function that masks the values of an image as the source connector does; None if no value is masked."""
    names = {name.lower() for mask in contract.masks if mask.how == HMAC for name in mask.path}
    if not names:
        return None

    def mask(line: bytes) -> bytes:
        image = json.loads(line)
        for name, value in image.items():
            if name.lower() in names and value is not None:
                image[name] = masked(value, key)
        return json.dumps(image, ensure_ascii=False).encode() + b"\n"

    return mask

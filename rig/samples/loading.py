"""Load a folder of CSV files into the order database."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from headwater.errors import UserError
from headwater.postgresql.queries import row_count, server_message, single_value
from rig.samples import orders
from rig.samples.orders import OUTBOX, TABLES

RowsLoaded = Callable[[str, int, int], None]
"""Is called with a table's name, how many of its rows are loaded, and how many it gets."""

_COPY_CHARACTERS = 1 << 18


def load_folder(
    conn: psycopg.Connection, folder: Path, report: RowsLoaded | None = None, *, replace: bool = False
) -> dict[str, int]:
    """Load a folder of CSV files, one per table (``orders.csv`` …; with a header, empty = NULL), in one transaction.

    ``replace`` deletes the rows that the tables hold. Returns the number of rows by table, the outbox included.

    Raises UserError, and leaves the database as it was, if a file is missing or does not fit its table. It also raises
    if the tables hold rows and ``replace`` is false.
    """
    report = report or (lambda table, done, total: None)
    files = {table: folder / f"{table}.csv" for table in TABLES}
    absent = [path.name for path in files.values() if not path.is_file()]
    if absent:
        raise UserError(
            f"{folder}: found no {', '.join(absent)}, expected one CSV file per table: {', '.join(TABLES)}. Name the "
            "folder with --data, or generate data with --scale."
        )
    _require_tables(conn)
    counts: dict[str, int] = {}
    all_tables = sql.SQL(", ").join(sql.Identifier("northwind", table) for table in TABLES)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        conn.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(all_tables))
        filled = [table for table in TABLES if single_value(conn, _has_rows(table))]
        if filled and not replace:
            raise UserError(
                f"Found rows in {', '.join(filled)}, expected empty tables: use --replace to delete all rows first."
            )
        if filled:
            conn.execute(sql.SQL("TRUNCATE {}").format(all_tables))
        for table, path in files.items():
            counts[table] = _copy(conn, table, path, report)
        report(OUTBOX, 0, counts["orders"])
        # The outbox's trigger builds all orders in one statement, which is slow without statistics.
        conn.execute(sql.SQL("ANALYZE {}").format(all_tables))
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        counts[OUTBOX] = row_count(conn, "northwind", OUTBOX)
        report(OUTBOX, counts[OUTBOX], counts["orders"])
    return counts


def load_generated(conn: psycopg.Connection, scale: float, seed: int) -> None:
    """Load generated rows into the empty order database, as ``orders.generate`` makes them for a scale and a seed."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        orders.generate(scale, seed, Path(folder))
        load_folder(conn, Path(folder))


def _require_tables(conn: psycopg.Connection) -> None:
    """Raise UserError if the database lacks the example's tables."""
    if single_value(conn, f"SELECT to_regclass('northwind.{OUTBOX}')") is None:
        raise UserError(
            f"The database {conn.info.dbname} has no Northwind tables: create them first with `headwater db create`."
        )


def _has_rows(table: str) -> sql.Composed:
    return sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier("northwind", table))


def _copy(conn: psycopg.Connection, table: str, path: Path, report: RowsLoaded) -> int:
    table_columns = [
        str(name)
        for (name,) in conn.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (f"northwind.{table}",),
        )
    ]
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            total = sum(1 for _ in csv.reader(lines)) - 1
        with path.open(encoding="utf-8-sig", newline="") as lines:
            records = _records(lines)
            first = next(records, "")
            header = next(csv.reader([first]), [])
            unknown = [name for name in header if name not in table_columns]
            if not header or unknown:
                raise UserError(
                    f"{path}: header: found {', '.join(unknown) or 'none'}, expected columns of {table}: "
                    f"{', '.join(table_columns)}."
                )
            columns = sql.SQL(", ").join(map(sql.Identifier, header))
            command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER)").format(
                sql.Identifier("northwind", table), columns
            )
            done = 0
            with conn.cursor() as cursor, cursor.copy(command) as copy:
                report(table, 0, total)
                # The header is sent too, so that a line number in the server's error is the file's.
                block = [first]
                size = 0
                for record in records:
                    block.append(record)
                    size += len(record)
                    done += 1
                    if size >= _COPY_CHARACTERS:
                        copy.write("".join(block))
                        report(table, done, total)
                        block, size = [], 0
                copy.write("".join(block))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: expected CSV in UTF-8, found something else: {error}.") from None
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        where = error.diag.context or error.diag.message_detail
        raise UserError(f"{path}: does not fit the table {table}: {server_message(error)} ({where}).") from None
    report(table, done, total)
    return done


def _records(lines: Iterable[str]) -> Iterator[str]:
    """The text of each CSV record; a record may span lines."""
    pending: list[str] = []

    def remember() -> Iterator[str]:
        for line in lines:
            pending.append(line)
            yield line

    for _ in csv.reader(remember()):
        yield "".join(pending)
        pending.clear()

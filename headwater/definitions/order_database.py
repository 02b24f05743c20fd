"""The order database: create it, load it, look at it, drop it.

Everything can be run again. The SQL is in ``database/``; each of its statements runs on its own, as the RDS Data API
wants.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import HEARTBEAT_TABLE, PUBLICATION, SIGNAL_TABLE, SLOT
from headwater.errors import UserError
from headwater.paths import ROOT

SQL_FOLDER = ROOT / "database"
CDC_ROLE = "headwater_cdc"
APP_ROLE = "headwater_app"
READER_ROLE = "headwater_reader"
ROLES = (CDC_ROLE, APP_ROLE, READER_ROLE)
SCHEMAS = ("outbox", "capture", "northwind")
OUTBOX = "order_events"
# Parents before those that refer to them.
TABLES = (
    "region",
    "territories",
    "employees",
    "employee_territories",
    "categories",
    "suppliers",
    "products",
    "customers",
    "shippers",
    "orders",
    "order_details",
)

# The least and the greatest order that there is, both null where there is none.
ORDERS_SPAN = """SELECT min(order_id), max(order_id)
FROM (SELECT order_id FROM northwind.orders UNION ALL SELECT order_id FROM northwind.order_events) AS known"""
# The form of ``repair_statement``, with {first} and {last} in it.
REPAIR = """INSERT INTO outbox.noted (kind, key)
SELECT 'order', coalesce(built.order_id, stored.order_id)::text
FROM (SELECT * FROM outbox.current_orders WHERE order_id BETWEEN {first} AND {last}) AS built
FULL JOIN (SELECT * FROM northwind.order_events WHERE order_id BETWEEN {first} AND {last}) AS stored USING (order_id)
WHERE (built.order_month, built.payload) IS DISTINCT FROM (stored.order_month, stored.payload)"""

Progress = Callable[[str, int, int], None]
"""Called with a table's name, its rows done and its rows in total."""

_LEAST_ORDER, _GREATEST_ORDER = -(1 << 31), (1 << 31) - 1
_COPY_CHARACTERS = 1 << 18

_TOKEN = re.compile(
    r"""
      --[^\n]*                               # comment to the end of the line
    | /\*.*?\*/                              # comment
    | '(?:[^']|'')*'                         # text
    | "(?:[^"]|"")*"                         # identifier
    | (?P<quote>\$\w*\$).*?(?P=quote)        # dollar-quoted text
    | ;
    """,
    re.DOTALL | re.VERBOSE,
)


def split(script: str) -> list[str]:
    """Split a script into its statements, without their semicolons; comments between statements go."""
    statements: list[str] = []
    start = 0
    for token in _TOKEN.finditer(script):
        if token.group() == ";":
            statements.append(script[start : token.start()])
            start = token.end()
    statements.append(script[start:])
    stripped = (re.sub(r"\A(\s*(--[^\n]*\n|/\*.*?\*/))*", "", text, flags=re.DOTALL).strip() for text in statements)
    return [text for text in stripped if text]


def published_tables(contracts: Iterable[Contract]) -> list[str]:
    """The tables of the publication: those that the contracts of PostgreSQL name, the heartbeat and the signals."""
    named = {contract.source.table for contract in of_database(contracts, POSTGRESQL)}
    return [*sorted(named), HEARTBEAT_TABLE, SIGNAL_TABLE]


def statements(contracts: Iterable[Contract]) -> list[str]:
    """Every statement that makes the database's content, in order; all of them can be run again.

    They hold no password: the roles get theirs by ``ALTER ROLE``.
    """
    return [*content_statements(), *publication_statements(contracts)]


def content_statements() -> list[str]:
    """The statements of ``database/``: schema, outbox, capture tables and roles."""
    scripts = sorted(SQL_FOLDER.glob("*.sql"))
    return [statement for script in scripts for statement in split(script.read_text(encoding="utf-8"))]


def publication_statements(contracts: Iterable[Contract]) -> list[str]:
    """The statements that publish the contracts' tables and let the connector's role read them."""
    tables = published_tables(contracts)
    # Contracts allow lower-case letters, digits and _ in these names, which need no quotes.
    listed = ", ".join(tables)
    schemas = ", ".join(sorted({table.partition(".")[0] for table in tables}))
    captured = [table for table in tables if table not in (HEARTBEAT_TABLE, SIGNAL_TABLE)]
    return [
        # Each event then carries the whole row before the change, which a row that moves to another partition needs.
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables),
        f"REVOKE ALL ON ALL TABLES IN SCHEMA northwind FROM {CDC_ROLE}",
        f"GRANT USAGE ON SCHEMA {schemas} TO {CDC_ROLE}",
        *(f"GRANT SELECT ON {table} TO {CDC_ROLE}" for table in captured),
        f"""DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_publication WHERE pubname = '{PUBLICATION}') THEN
        ALTER PUBLICATION {PUBLICATION} SET TABLE {listed};
    ELSE
        CREATE PUBLICATION {PUBLICATION} FOR TABLE {listed} WITH (publish = 'insert, update, delete, truncate');
    END IF;
END
$$""",
    ]


def repair_statement(first: int, last: int) -> str:
    """The statement that puts right the outbox rows of the orders ``first`` to ``last``, both included.

    Rows are wrong that were there before the outbox, or before a change of how payloads are built. Rows that are as
    they should be are not written.
    """
    return REPAIR.format(first=first, last=last)


def create(conn: psycopg.Connection, passwords: Mapping[str, str], contracts: Iterable[Contract]) -> None:
    """Create schema, outbox, capture tables, roles and publication, or bring them up to date, in one transaction.

    ``passwords`` has one for each of ``ROLES``; a role that exists gets the new one. Raises UserError where one is
    missing, a contract names a table that is not there, or the server or the connected role is not fit for it.
    """
    for role in ROLES:
        password = passwords.get(role, "")
        if not password or "\0" in password:
            raise UserError(f"Password for {role}: found {'an unusable one' if password else 'none'}, expected a text.")
    level = _one(conn, "SHOW wal_level")
    if level != "logical":
        raise UserError(
            f"The server has wal_level = {level}, expected logical: set it (on Aurora rds.logical_replication = 1 in "
            "the cluster's parameter group) and restart the server."
        )
    contracts = list(contracts)
    try:
        with conn.transaction():
            for statement in content_statements():
                conn.execute(statement.encode())
            for table in published_tables(contracts):
                if _one(conn, "SELECT to_regclass(%s)", (table,)) is None:
                    raise UserError(
                        f"A contract names the source table {table}, and there is none: correct `source.table` in the "
                        "contract, or create the table first."
                    )
            for statement in publication_statements(contracts):
                conn.execute(statement.encode())
            for role in ROLES:
                # Hashed here, so that no log of the server ever shows the password.
                secret = conn.pgconn.encrypt_password(passwords[role].encode(), role.encode(), b"scram-sha-256")
                conn.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(secret.decode()))
                )
            conn.execute(repair_statement(_LEAST_ORDER, _GREATEST_ORDER).encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{conn.info.user} may not create the database's content: {_text(error)}. Connect as the server's "
            "administrator (--user)."
        ) from None


def load(
    conn: psycopg.Connection, folder: Path, progress: Progress | None = None, *, replace: bool = False
) -> dict[str, int]:
    """Load a folder of CSV files, one a table (``orders.csv`` …; header, empty = NULL), in one transaction.

    Returns the rows of each table. Raises UserError, and leaves the database as it was, where a file is missing or
    does not fit, or the tables hold rows and ``replace`` is not given.
    """
    report = progress or (lambda table, done, total: None)
    files = {table: folder / f"{table}.csv" for table in TABLES}
    absent = [path.name for path in files.values() if not path.is_file()]
    if absent:
        raise UserError(
            f"{folder}: found no {', '.join(absent)}, expected one CSV file a table: {', '.join(TABLES)}. Name the "
            "folder with --data, or generate data with --scale."
        )
    _require_created(conn)
    counts: dict[str, int] = {}
    every = sql.SQL(", ").join(sql.Identifier("northwind", table) for table in TABLES)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        conn.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(every))
        filled = [table for table in TABLES if _one(conn, _exists(table))]
        if filled and not replace:
            raise UserError(
                f"Found rows in {', '.join(filled)}, expected empty tables: --replace deletes all rows and loads anew."
            )
        if filled:
            conn.execute(sql.SQL("TRUNCATE {}").format(every))
        for table, path in files.items():
            counts[table] = _copy(conn, table, path, report)
        report(OUTBOX, 0, counts["orders"])
        # Statistics for the one statement that builds all orders when the outbox's trigger runs.
        conn.execute(sql.SQL("ANALYZE {}").format(every))
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        counts[OUTBOX] = int(str(_one(conn, f"SELECT count(*) FROM northwind.{OUTBOX}")))
        report(OUTBOX, counts[OUTBOX], counts["orders"])
    return counts


def _exists(table: str) -> sql.Composed:
    return sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier("northwind", table))


def _copy(conn: psycopg.Connection, table: str, path: Path, report: Progress) -> int:
    known = [
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
            unknown = [name for name in header if name not in known]
            if not header or unknown:
                raise UserError(
                    f"{path}: header: found {', '.join(unknown) or 'none'}, expected columns of {table}: "
                    f"{', '.join(known)}."
                )
            columns = sql.SQL(", ").join(map(sql.Identifier, header))
            command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER)").format(
                sql.Identifier("northwind", table), columns
            )
            done = 0
            with conn.cursor() as cursor, cursor.copy(command) as copy:
                report(table, 0, total)
                # With the header, so that the lines in the server's errors are those of the file.
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
        raise UserError(f"{path}: found something that is not CSV in UTF-8: {error}.") from None
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        where = error.diag.context or error.diag.message_detail
        raise UserError(f"{path}: does not fit the table {table}: {_text(error)} ({where}).") from None
    report(table, done, total)
    return done


def _records(lines: Iterable[str]) -> Iterator[str]:
    """The text of each CSV record, which may span lines."""
    pending: list[str] = []

    def remember() -> Iterator[str]:
        for line in lines:
            pending.append(line)
            yield line

    for _ in csv.reader(remember()):
        yield "".join(pending)
        pending.clear()


@dataclass(frozen=True)
class SlotStatus:
    """A replication slot: whether a connector uses it, and how many bytes of the server's log it holds back."""

    active: bool
    held_bytes: int


@dataclass(frozen=True)
class Status:
    """What is in the database.

    ``rows`` by table, the outbox included; ``published`` tables of the publication, None without one; ``slot`` is None
    before the first connector has run; ``missing_roles`` out of ``ROLES``.
    """

    rows: dict[str, int]
    published: list[str] | None
    slot: SlotStatus | None
    missing_roles: list[str]


def status(conn: psycopg.Connection) -> Status:
    """Look at the database. Raises UserError where it has not been created."""
    _require_created(conn)
    rows = {
        table: int(str(_one(conn, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("northwind", table)))))
        for table in (*TABLES, OUTBOX)
    }
    published = None
    if _one(conn, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)", (PUBLICATION,)):
        listed = conn.execute(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1",
            (PUBLICATION,),
        )
        published = [str(table) for (table,) in listed]
    slot = conn.execute(
        """SELECT active, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
           FROM pg_replication_slots WHERE slot_name = %s""",
        (SLOT,),
    ).fetchone()
    present = {
        str(name) for (name,) in conn.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", (list(ROLES),))
    }
    return Status(
        rows=rows,
        published=published,
        slot=SlotStatus(bool(slot[0]), int(slot[1])) if slot else None,
        missing_roles=[role for role in ROLES if role not in present],
    )


def drop(conn: psycopg.Connection) -> None:
    """Drop all that ``create`` made, its data and the connector's slot included; the empty database stays.

    Raises UserError while a connector uses the slot, or where a role is still needed by another database.
    """
    slot = conn.execute("SELECT active, database FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
    ours = slot is not None and slot[1] == conn.info.dbname
    if slot is not None and ours and slot[0]:
        raise UserError(
            f"The replication slot {SLOT} is in use: stop the connector headwater-postgres first, then drop again."
        )
    if ours:
        conn.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
    try:
        with conn.transaction():
            conn.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(PUBLICATION)))
            for schema in SCHEMAS:
                conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
            for role in ROLES:
                if _one(conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", (role,)):
                    conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
                    conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise UserError(
            f"{_text(error)} ({error.diag.message_detail}): drop the other database's content first; nothing but the "
            "slot was dropped here."
        ) from None


def _require_created(conn: psycopg.Connection) -> None:
    if _one(conn, f"SELECT to_regclass('northwind.{OUTBOX}')") is None:
        raise UserError(
            f"The database {conn.info.dbname} has no Northwind tables: create them first with `headwater db create`."
        )


def _one(conn: psycopg.Connection, query: str | sql.Composed, parameters: Sequence[object] = ()) -> object:
    row = conn.execute(query.encode() if isinstance(query, str) else query, parameters).fetchone()
    return row[0] if row else None


def _text(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error)

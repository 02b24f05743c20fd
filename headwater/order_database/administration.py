"""Create the order database's content, look at it, drop it. Each can be run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.contract.model import POSTGRESQL, Contract, of_database
from headwater.definitions.connectors import PUBLICATION, SLOT
from headwater.definitions.order_database import (
    CDC_ROLE,
    OUTBOX,
    ROLES,
    SCHEMAS,
    TABLES,
    capture_statements,
    content_statements,
    publication_statements,
    published_tables,
    repair_statement,
)
from headwater.definitions.source_checks import text_array
from headwater.errors import UserError
from headwater.order_database.queries import require_created, row_count, server_message, single_value

# Debezium puts a condition among others, and its driver takes ? for a parameter.
NOT_IN_A_CONDITION = (";", "--", "/*", "?")
_LOCK_SECONDS = 5
# Another database whose objects the connector's role has rights on.
_CAPTURED_ELSEWHERE = """SELECT datname FROM pg_shdepend
JOIN pg_roles ON refclassid = 'pg_authid'::regclass AND refobjid = pg_roles.oid
JOIN pg_database ON dbid = pg_database.oid
WHERE rolname = %s AND datname <> %s LIMIT 1"""
_FORMER_IDENTITY = "CREATE TABLE IF NOT EXISTS capture.former_identity (relation oid PRIMARY KEY, clause text NOT NULL)"
# The replica identities of tables and their partitions, as ALTER TABLE has them.
_IDENTITIES = """SELECT DISTINCT c.oid, CASE relreplident
    WHEN 'd' THEN 'DEFAULT' WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE coalesce('USING INDEX ' || (
        SELECT quote_ident(i.relname) FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
        WHERE indrelid = c.oid AND indisreplident
    ), 'NOTHING') END
FROM unnest({tables}) AS listed (name)
CROSS JOIN LATERAL (SELECT to_regclass(name) UNION SELECT relid FROM pg_partition_tree(to_regclass(name))) AS tree (id)
JOIN pg_class AS c ON c.oid = id"""
_OTHER_THAN_BEFORE = """SELECT format('ALTER TABLE %s REPLICA IDENTITY %s', relation::regclass, clause)
FROM capture.former_identity JOIN pg_class ON oid = relation
WHERE relreplident = 'f' AND clause <> 'FULL' ORDER BY relation::regclass::text"""
_LEAST_ORDER, _GREATEST_ORDER = -(1 << 31), (1 << 31) - 1


def create(conn: psycopg.Connection, passwords: Mapping[str, str], contracts: Iterable[Contract]) -> None:
    """Create schema, outbox, capture tables, roles and publication, or bring them up to date, in one transaction.

    ``passwords`` holds a password for each of ``ROLES``; a role that exists gets the new one. Raises UserError where a
    password is missing, a contract names a table that does not exist, a generated column, or a table that cannot be
    captured as the contract says, the server's ``wal_level`` is not ``logical``, or the connected role lacks a right.
    """
    repair = repair_statement(_LEAST_ORDER, _GREATEST_ORDER)
    _bring(conn, content_statements(), {role: passwords.get(role, "") for role in ROLES}, contracts, [repair])


def prepare(conn: psycopg.Connection, password: str, contracts: Iterable[Contract]) -> None:
    """Have the contracts' tables of a database captured that has content of its own, in one transaction: the schema
    ``capture``, the publication and the connector's role, which gets the password. The tables get the replica identity
    that their contracts want; the one they had is kept for ``release``. Raises UserError as ``create`` does, where it
    is no such database, and where a table is locked for longer than some seconds."""
    contracts = list(contracts)
    _require_own(conn)
    refuse_another(conn, conn.info.dbname)
    tables = [contract.source.table for contract in of_database(contracts, POSTGRESQL)]
    noted = (
        f"INSERT INTO capture.former_identity {_IDENTITIES.format(tables=text_array(tables))} ON CONFLICT DO NOTHING"
    )
    before = [f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'", *capture_statements(), _FORMER_IDENTITY, noted]
    try:
        _bring(conn, before, {CDC_ROLE: password}, contracts)
    except psycopg.errors.LockNotAvailable as error:
        raise UserError(
            f"{conn.info.dbname}: {server_message(error)}: a table was in use for {_LOCK_SECONDS} seconds; nothing was "
            "changed. Try again when no query or transaction of long is open."
        ) from None


def refuse_another(conn: psycopg.Connection, database: str) -> None:
    """Raise UserError where another database of the server than this one is captured, over a connection to any."""
    elsewhere = conn.execute(_CAPTURED_ELSEWHERE, (CDC_ROLE, database)).fetchone()
    if elsewhere is not None:
        raise UserError(
            f"{database}: found that the server's database {elsewhere[0]} is captured, expected none: role and slot "
            "are the server's"
        )


def _require_own(conn: psycopg.Connection) -> None:
    """Raise UserError for an order database, which has more to lose, and where ``capture`` is another application's."""
    if single_value(conn, "SELECT to_regclass('outbox.noted') IS NOT NULL"):
        raise UserError(
            f"{conn.info.dbname}: found an order database, expected one of your own: see headwater db create"
        )
    if single_value(conn, "SELECT to_regnamespace('capture') IS NOT NULL AND to_regclass('capture.published') IS NULL"):
        raise UserError(f"{conn.info.dbname}: found a schema capture of another application, expected none")


def _bring(
    conn: psycopg.Connection,
    statements: Sequence[str],
    passwords: Mapping[str, str],
    contracts: Iterable[Contract],
    afterwards: Sequence[str] = (),
) -> None:
    """Run statements, publish the contracts' tables, and give the roles their passwords."""
    for role, password in passwords.items():
        if not password or "\0" in password:
            problem = "a NUL character in it" if password else "none"
            raise UserError(f"Password for {role}: found {problem}, expected a text without NUL characters.")
    level = single_value(conn, "SHOW wal_level")
    if level != "logical":
        raise UserError(
            f"The server has wal_level = {level}, expected logical: set it (on Aurora rds.logical_replication = 1 in "
            "the cluster's parameter group) and restart the server."
        )
    contracts = list(contracts)
    try:
        with conn.transaction():
            for statement in statements:
                conn.execute(statement.encode())
            for table in published_tables(contracts):
                if single_value(conn, "SELECT to_regclass(%s)", (table,)) is None:
                    raise UserError(
                        f"A contract names the source table {table}, which the database does not have: correct "
                        "`source.table` in the contract, or create the table first."
                    )
            for statement in publication_statements(contracts):
                conn.execute(statement.encode())
            for role, password in passwords.items():
                # Hashed here, so that the password appears in no log of the server.
                secret = conn.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
                conn.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(secret.decode()))
                )
            for statement in afterwards:
                conn.execute(statement.encode())
    except psycopg.errors.FeatureNotSupported as error:
        raise UserError(server_message(error)) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{conn.info.user} may not do all of it: {server_message(error)}. Connect as the server's administrator, "
            "who must own the tables too (--user)."
        ) from None


@dataclass(frozen=True)
class SlotStatus:
    """A replication slot: whether a connector uses it, and how many bytes of the server's log it holds back."""

    active: bool
    held_bytes: int


@dataclass(frozen=True)
class Status:
    """What the database holds.

    ``rows`` are counts by table, the outbox included. ``published`` are the tables of the publication, None where there
    is no publication. ``slot`` is None until a connector has run for the first time. ``missing_roles`` are those of
    ``ROLES`` that the server does not have.
    """

    rows: dict[str, int]
    published: list[str] | None
    slot: SlotStatus | None
    missing_roles: list[str]


def status(conn: psycopg.Connection) -> Status:
    """Look at the database. Raises UserError where its content has not been created."""
    require_created(conn)
    rows = {table: row_count(conn, table) for table in (*TABLES, OUTBOX)}
    published = None
    if single_value(conn, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)", (PUBLICATION,)):
        tables = conn.execute(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1",
            (PUBLICATION,),
        )
        published = [str(table) for (table,) in tables]
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


def read_again(conn: psycopg.Connection, tables: Sequence[str], where: str | None = None) -> str:
    """Have rows of source tables read again beside their changes, and return the id of the signal that asks for it.

    ``tables`` are names as contracts have them. Rows of the lake that the source no longer has become tombstones. With
    ``where``, a condition of SQL that ``rows_where`` has taken, only the rows that meet it are read, and none ends."""
    condition = None if where is None else f"({where})"
    return str(single_value(conn, "SELECT capture.read_again(%s, %s)", (list(tables), condition)))


def rows_where(conn: psycopg.Connection, table: str, where: str) -> int:
    """How many rows of a source table meet a condition of SQL. Raises UserError where it is none that the source
    connector could read by."""
    if any(mark in where for mark in NOT_IN_A_CONDITION):
        marks = " ".join(NOT_IN_A_CONDITION)
        raise UserError(f"--where: found {where!r}, expected a condition of SQL without any of {marks}")
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION READ ONLY")
            counted = conn.execute(f"SELECT count(*) FROM {table} WHERE ({where})".encode()).fetchone()
    except psycopg.Error as error:
        raise UserError(
            f"--where: found {where!r}, expected a condition of SQL on {table}: {server_message(error)}"
        ) from None
    return int(counted[0]) if counted is not None else 0


def drop(conn: psycopg.Connection) -> None:
    """Drop all that ``create`` made, with its rows, and the connector's slot; the empty database stays.

    Raises UserError while a connector uses the slot, and where another database of the server still needs a role.
    """
    _drop(conn, SCHEMAS, ROLES)


def release(conn: psycopg.Connection) -> list[str]:
    """Undo ``prepare``, drop the connector's slot, and return the statements that would give tables and partitions the
    replica identity that they had before. Raises UserError as ``drop`` does, and where it is no such database."""
    _require_own(conn)
    undone = []
    if single_value(conn, "SELECT to_regclass('capture.former_identity') IS NOT NULL"):
        undone = [str(statement) for (statement,) in conn.execute(_OTHER_THAN_BEFORE)]
    _drop(conn, ["capture"], [CDC_ROLE])
    return undone


def _drop(conn: psycopg.Connection, schemas: Sequence[str], roles: Sequence[str]) -> None:
    slot = conn.execute("SELECT active, database FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
    ours = slot is not None and slot[1] == conn.info.dbname
    if slot is not None and ours and slot[0]:
        raise UserError(f"The replication slot {SLOT} is in use: stop the source connector first, then drop again.")
    try:
        with conn.transaction():
            conn.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(PUBLICATION)))
            for schema in schemas:
                conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
            for role in roles:
                if single_value(conn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", (role,)):
                    # Who has made a role, and is no superuser, does not have its privileges.
                    conn.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
                    conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
                    conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
            # No rollback brings it back: it goes when all else has.
            if ours:
                conn.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise UserError(
            f"{server_message(error)} ({error.diag.message_detail}): drop the other database's content first; nothing "
            "was dropped here."
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise UserError(
            f"{server_message(error)}: drop as the administrator that made the roles; nothing was dropped here."
        ) from None

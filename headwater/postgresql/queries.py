"""Queries and messages that all operations on the database share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from headwater.errors import UserError

# This reads the catalogs, because to_regproc fails for a user without rights on the schema.
_CREATED = """SELECT EXISTS (SELECT FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname = 'capture' AND proname = 'refuse_drop' AND prorettype = 'event_trigger'::regtype)"""


def query_of(conn: psycopg.Connection) -> Callable[[str], list[tuple[Any, ...]]]:
    """Return a function that runs a query over this connection, and returns its rows."""
    return lambda query: conn.execute(query.encode()).fetchall()


def single_value(conn: psycopg.Connection, query: str | sql.Composed, parameters: Sequence[object] = ()) -> object:
    """The first column of the first row of a query's result; None if the result is empty."""
    row = conn.execute(query.encode() if isinstance(query, str) else query, parameters).fetchone()
    return row[0] if row else None


def row_count(conn: psycopg.Connection, schema: str, table: str) -> int:
    """The number of rows in a table."""
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
    return int(str(single_value(conn, query)))


def is_created(conn: psycopg.Connection) -> bool:
    """Whether ``headwater db create`` or a deployment has made the database, of this release or an earlier one."""
    return bool(single_value(conn, _CREATED))


def require_created(conn: psycopg.Connection) -> None:
    """Raise UserError unless ``headwater db create`` or a deployment has made the database."""
    if not is_created(conn):
        raise UserError(
            f"{conn.info.dbname}: found no database that `headwater db create` or a deployment made, expected one: "
            "check the name, or create it first"
        )


def unreadable_catalog(error: psycopg.Error) -> UserError:
    """The error for a catalog that cannot be read, with what to do about names that are not UTF-8."""
    advice = ""
    if isinstance(error, psycopg.errors.CharacterNotInRepertoire):
        advice = (
            ". The database's encoding SQL_ASCII takes any bytes: a name or a comment here is not UTF-8. Load a dump "
            "of the database into one with ENCODING 'UTF8': the source connector reads UTF-8 alone, also in rows"
        )
    return UserError(f"PostgreSQL's catalog cannot be read: {server_message(error).strip()}{advice}")


def server_message(error: psycopg.Error) -> str:
    """The server's message without context and hints, or psycopg's own text if the server sent none."""
    return error.diag.message_primary or str(error)

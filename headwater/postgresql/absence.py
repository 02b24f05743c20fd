"""Checks that PostgreSQL has no row with a key, and finds a position of the log after all changes of such rows."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql

from headwater.errors import UserError
from headwater.postgresql.queries import server_message, single_value

Key = Mapping[str, tuple[str, str]]
"""A key: the type and the text of each column's value."""


def spelled(conn: psycopg.Connection, key: Key) -> list[str]:
    """Return the values of a key as PostgreSQL writes them into a change, such as ``character(n)`` with its padding.

    Raises UserError, whose message does not show the values.
    """
    expected = ", ".join(f"{name} {type_}" for name, (type_, _) in key.items())
    found = []
    for type_, text in key.values():
        try:
            query = sql.SQL("SELECT to_json({}) #>> '{{}}'").format(_cast(type_, text))
            found.append(str(single_value(conn, query)))
        except psycopg.Error:
            raise UserError(f"KEY: found something else, expected {expected}") from None
        # A cast truncates long texts.
        if type_.startswith("char") and found[-1].rstrip(" ") != text.rstrip(" "):
            raise UserError(f"KEY: found a longer text, expected {expected}")
    return found


def absent_until(conn: psycopg.Connection, table: str, key: Key) -> int | None:
    """Return a position of the log (an LSN) after all changes of a deleted row; None if the table still has the row.

    A later row with the same key counts as another row. The function commits a transaction of its own, in a published
    table, before and after it reads the position. With the first one, every change that was visible before is in the
    log. With the second one, every later commit has an order above the position. Raises UserError.
    """
    try:
        if single_value(conn, "SELECT pg_is_in_recovery()"):
            raise UserError("PostgreSQL: found a replica, expected the server that is written to: it may be behind")
        if _is_there(conn, table, key):
            return None
        _beat(conn)
        position = int(str(single_value(conn, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")))
        _beat(conn)
        # The row may have come back before the second transaction.
        return None if _is_there(conn, table, key) else position
    except psycopg.Error as error:
        raise UserError(
            f"PostgreSQL: the search for the row in {table} failed: {server_message(error)}. Use a user that may read "
            "the table and update capture.heartbeat."
        ) from None


def _beat(conn: psycopg.Connection) -> None:
    with conn.transaction():
        conn.execute("SET LOCAL synchronous_commit = on")
        if conn.execute("UPDATE capture.heartbeat SET beat_at = clock_timestamp()").rowcount < 1:
            raise UserError("capture.heartbeat: found no row, expected one: headwater deploy, or headwater db capture")


def _cast(type_: str, text: str) -> sql.Composed:
    return sql.SQL("CAST({} AS {})").format(sql.Literal(text), sql.SQL(type_))


def _is_there(conn: psycopg.Connection, table: str, key: Key) -> bool:
    conditions = sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), _cast(*told)) for name, told in key.items()
    )
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(sql.Identifier(*table.split(".", 1)), conditions)
    with conn.transaction():
        # Row security could hide the row from the user. With this setting, PostgreSQL raises an error instead.
        conn.execute("SET LOCAL row_security = off")
        row = conn.execute(query).fetchone()
    return bool(row and row[0])

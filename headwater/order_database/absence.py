"""Whether PostgreSQL has no row of a key, and until where its log tells of the rows that it has had."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql

from headwater.errors import UserError
from headwater.order_database.queries import server_message, single_value

Key = Mapping[str, tuple[str, str]]
"""Type and text of the value of each column."""


def absent_until(conn: psycopg.Connection, table: str, key: Key) -> int | None:
    """The position of the log (LSN) below which all changes are of a row that a table has had and has not now; None
    where it has the row.

    Behind that position a transaction of our own is committed, in a published table. So whatever is committed
    afterwards has an order above the position: another row of the same key is another one. Raises UserError."""
    try:
        if single_value(conn, "SELECT pg_is_in_recovery()"):
            raise UserError("PostgreSQL: found a replica, expected the server that is written to: it may be behind")
        if _is_there(conn, table, key):
            return None
        position = int(str(single_value(conn, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")))
        if conn.execute("UPDATE capture.heartbeat SET beat_at = clock_timestamp()").rowcount < 1:
            raise UserError("capture.heartbeat: found no row, expected one: make deploy, or headwater db capture")
        # It may have come back meanwhile, before our own transaction.
        return None if _is_there(conn, table, key) else position
    except psycopg.Error as error:
        raise UserError(
            f"PostgreSQL: {table} cannot be asked for the row: {server_message(error)}. The user must be one who may "
            "read the table and update capture.heartbeat."
        ) from None


def _is_there(conn: psycopg.Connection, table: str, key: Key) -> bool:
    conditions = sql.SQL(" AND ").join(
        sql.SQL("{} = CAST({} AS {})").format(sql.Identifier(name), sql.Literal(text), sql.SQL(type_))
        for name, (type_, text) in key.items()
    )
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(sql.Identifier(*table.split(".", 1)), conditions)
    row = conn.execute(query).fetchone()
    return bool(row and row[0])

"""What every operation on the order database asks of a connection."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from headwater.definitions.order_database import OUTBOX
from headwater.errors import UserError


def single_value(conn: psycopg.Connection, query: str | sql.Composed, parameters: Sequence[object] = ()) -> object:
    """The first column of the first row of a query's result; None where the result is empty."""
    row = conn.execute(query.encode() if isinstance(query, str) else query, parameters).fetchone()
    return row[0] if row else None


def row_count(conn: psycopg.Connection, table: str) -> int:
    """The number of rows in a table of the schema ``northwind``."""
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("northwind", table))
    return int(str(single_value(conn, query)))


def require_created(conn: psycopg.Connection) -> None:
    """Raise UserError where the database lacks the order database's tables."""
    if single_value(conn, f"SELECT to_regclass('northwind.{OUTBOX}')") is None:
        raise UserError(
            f"The database {conn.info.dbname} has no Northwind tables: create them first with `headwater db create`."
        )


def server_message(error: psycopg.Error) -> str:
    """The server's message without context and hints, or psycopg's own text where the server sent none."""
    return error.diag.message_primary or str(error)

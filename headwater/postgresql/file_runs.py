"""Runs the SQL files of a lake folder's ``database/`` over a connection, as a deployment does through the Data API."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import sql

from headwater.definitions import database_files
from headwater.definitions.database_files import Call, SqlFile
from headwater.errors import UserError
from headwater.postgresql.gradually import Gradual, Tell
from headwater.postgresql.queries import server_message

_PLACEHOLDER = re.compile(r"(?<!:):([a-z]+)")


def run_files(conn: psycopg.Connection, gradual: Gradual, files: Sequence[SqlFile], tell: Tell) -> None:
    """Run the statements of files that have not run yet, in their order, each with its record in one transaction.

    ``tell`` gets a line for each file that has a statement to run. The next run goes on where this one ends. Raises
    UserError if the files may not run, if the server refuses a statement, and as ``Gradual.run`` does.
    """
    for call in database_files.checks(files):
        try:
            conn.execute(_text(conn, call).encode())
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            raise UserError(server_message(error)) from None
    done: dict[str, int] = dict(conn.execute(database_files.DONE.encode()).fetchall())
    for file in files:
        first = done.get(file.name, 0)
        calls = file.calls()[first:]
        if calls:
            tell(f"Running database/{file.name}, from line {file.statements[first].line} on")
        for number, call in enumerate(calls, start=first):
            try:
                gradual.run([_text(conn, call)])
            except psycopg.Error as error:
                raise UserError(
                    f"{file.place(number)}: the server refuses this statement: {server_message(error)}. {number} of "
                    f"{len(file.statements)} statements of the file have run; the next run goes on here"
                ) from None


def _text(conn: psycopg.Connection, call: Call) -> str:
    """The text of a call, with its texts in place of the placeholders."""
    return _PLACEHOLDER.sub(lambda named: sql.Literal(call.parameters[named.group(1)]).as_string(conn), call.sql)

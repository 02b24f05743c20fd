"""Connections of the commands to PostgreSQL, and the passwords for them."""

import os
import re
import sys
from collections.abc import Mapping

import psycopg
import typer

from headwater.errors import UserError
from headwater.order_database.trust_advice import trust_advice

PASSWORD_VARIABLE = "HEADWATER_DB_PASSWORD"  # noqa: S105 - its name
# Who asks what is at work is told; who waits for a server that is gone is told within a minute or two.
_ALWAYS = {
    "application_name": "headwater",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_REFUSED = re.compile(r"authentication failed|role \".*\" (does not exist|is not permitted to log in)")


class CredentialsRefused(UserError):
    """The server does not know the user by this password: to try again is of no use."""


def asked_password(variable: str, prompt: str) -> str:
    """The password of an environment variable, or of a prompt. Raises UserError where there is no terminal."""
    value = os.environ.get(variable)
    if value:
        return value
    if not sys.stdin.isatty():
        raise UserError(f"{prompt}: {variable} is not set, and there is no terminal to ask on: set {variable}.")
    return str(typer.prompt(prompt, hide_input=True, err=True))


def database_password(user: str) -> str:
    """The password of the user that a command connects as."""
    return asked_password(PASSWORD_VARIABLE, f"Password of {user}")


def connected(
    parts: Mapping[str, object], password: str, *, where_refused: str = "", where_missing: str = ""
) -> psycopg.Connection:
    """A connection by libpq's ``parts``. Raises UserError where there is none, which says ``where_missing`` where the
    server has no such database, and ``CredentialsRefused``, which says ``where_refused``, where it refuses user or
    password."""
    try:
        return psycopg.connect(**{**_ALWAYS, **parts, "password": password}, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        message = str(error).strip()
        refused = _REFUSED.search(message) is not None
        if refused and where_refused:
            advice = f" {where_refused}"
        elif f'database "{parts.get("dbname")}" does not exist' in message:
            advice = where_missing and f" {where_missing}"
        else:
            advice = trust_advice(message)
        raise (CredentialsRefused if refused else UserError)(
            f"Cannot connect to the database {parts.get('dbname')} of PostgreSQL at {parts.get('host')}:"
            f"{parts.get('port', 5432)} as {parts.get('user')}: {message}. Check these and {PASSWORD_VARIABLE}.{advice}"
        ) from None

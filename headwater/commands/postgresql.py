"""The commands' connections to PostgreSQL, and their passwords."""

import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import typer

from headwater.errors import UserError
from headwater.postgresql.trust_advice import trust_advice

PASSWORD_VARIABLE = "HEADWATER_DB_PASSWORD"  # noqa: S105 - a variable's name
# The server shows the application's name to its administrator. A connection to a lost server fails within two minutes.
_ALWAYS = {
    "application_name": "headwater",
    # Statements are sent as UTF-8, so PGCLIENTENCODING must not change that.
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_UNREACHED = re.compile(
    r"failed to resolve host|Connection refused|timeout expired|timed out|unreachable|No route to host"
)
_REFUSED = re.compile(r"authentication failed|role \".*\" (does not exist|is not permitted to log in)")


@dataclass(frozen=True)
class Login:
    """How a command connects to PostgreSQL, and the advice in its errors."""

    parts: Mapping[str, object]
    """libpq's parameters, without the password."""
    password: str = field(repr=False)
    """The password of the user."""
    password_from: str = PASSWORD_VARIABLE
    """The variable or secret that holds the password."""
    authority: str = ""
    """The PEM certificate of the authority that signs the server's certificate; "" if libpq's settings name one."""
    way: str | None = None
    """Another host that leads to the server, such as a tunnel's end. The certificate has the host in ``parts``."""
    where_unreached: str = ""
    """What to do if no server answers."""


class CredentialsRefused(UserError):
    """The server refuses the user or the password, so trying again is of no use."""


def asked_passwords(prompts: Mapping[str, str]) -> dict[str, str]:
    """Return the password of each environment variable; a prompt asks for each variable that is not set.

    Raises UserError if a prompt is needed and there is no terminal. The error names all variables that are not set.
    """
    unset = [variable for variable in prompts if not os.environ.get(variable)]
    if unset and not sys.stdin.isatty():
        names = ", ".join(unset)
        raise UserError(
            f"{', '.join(prompts[variable] for variable in unset)}: found no {names}, and no terminal for a prompt, "
            f"expected one of the two: set {names}"
        )
    return {
        variable: os.environ.get(variable) or str(typer.prompt(prompt, hide_input=True, err=True))
        for variable, prompt in prompts.items()
    }


def asked_password(variable: str, prompt: str) -> str:
    """Return the password of an environment variable, or of a prompt. Raises UserError if there is no terminal."""
    return asked_passwords({variable: prompt})[variable]


def password_prompt(user: str) -> str:
    """Return the text of a prompt for the password of the user that a command connects as."""
    return f"Password of {user}"


def database_password(user: str) -> str:
    """Return the password of the user that a command connects as. Raises UserError if there is no terminal."""
    return asked_password(PASSWORD_VARIABLE, password_prompt(user))


def connected(login: Login, *, where_refused: str = "", where_missing: str = "") -> psycopg.Connection:
    """Return a connection to PostgreSQL.

    - ``where_refused``: the end of the error's message if the server refuses the user or the password.
    - ``where_missing``: the end of the error's message if there is no such database.

    Raises CredentialsRefused if the server refuses the user or the password, and UserError for any other failure.
    """
    parts = login.parts
    try:
        with _trust(login.authority) as trust:
            options = {**_ALWAYS, **parts, **_addresses(login), **trust, "password": login.password}
            # Also if a connection string says otherwise: psycopg returns other texts as bytes.
            options["client_encoding"] = _ALWAYS["client_encoding"]
            return psycopg.connect(**options, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        # Add the advice that fits PostgreSQL's message.
        message = str(error).strip()
        refused = _REFUSED.search(message) is not None
        if refused and where_refused:
            advice = f" {where_refused}"
        elif f'database "{parts.get("dbname")}" does not exist' in message:
            advice = where_missing and f" {where_missing}"
        elif login.where_unreached and _UNREACHED.search(message):
            advice = f" {login.where_unreached}"
        else:
            advice = trust_advice(message)
        at = f"{login.way or parts.get('host')}:{parts.get('port', 5432)}"
        raise (CredentialsRefused if refused else UserError)(
            f"Cannot connect to the database {parts.get('dbname')} of PostgreSQL at {at} as {parts.get('user')}: "
            f"{message}. Check host, port, database and user, and {login.password_from}.{advice}"
        ) from None


def _addresses(login: Login) -> dict[str, str]:
    """Return the parameters by which libpq takes another way to the server. Raises UserError if it has no address."""
    if login.way is None:
        return {}
    try:
        found = socket.getaddrinfo(login.way, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(
            f"--host: found {login.way}, whose address is not known ({error}), expected a host name or an address"
        ) from None
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    # libpq tries the addresses one after the other.
    return {"host": ",".join([str(login.parts["host"])] * len(addresses)), "hostaddr": ",".join(addresses)}


@contextmanager
def _trust(authority: str) -> Iterator[dict[str, str]]:
    """Yield the parameter by which libpq trusts an authority. libpq reads the file only while it connects."""
    if not authority:
        yield {}
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(authority)
        file.flush()
        yield {"sslrootcert": file.name}

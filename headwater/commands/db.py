"""``headwater db``: set up the order database, or the capture of your own."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from psycopg import sql

from headwater.commands.postgresql import PASSWORD_VARIABLE, asked_password, connected, database_password
from headwater.commands.sources import refuse_without_contract
from headwater.console import say
from headwater.contract.model import POSTGRESQL
from headwater.contract.reading import read_contracts
from headwater.definitions import source_checks
from headwater.definitions.left_slot import unread_slot
from headwater.definitions.order_database import CDC_ROLE, ROLES, published_tables
from headwater.errors import UserError
from headwater.order_database import administration
from headwater.order_database.gradually import PATIENCE_SECONDS
from headwater.paths import CONTRACTS

app = typer.Typer(help="The order database, or the capture of one of your own.", no_args_is_help=True)

Host = Annotated[str, typer.Option(help="The server's host name.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The server's port.")]
User = Annotated[
    str, typer.Option(help=f"The administrator to connect as; {PASSWORD_VARIABLE} or a prompt gives the password.")
]
Name = Annotated[str, typer.Option("--database", help="The database's name.")]
Patience = Annotated[
    float,
    typer.Option(
        min=0,
        help="How many seconds to go on trying while other transactions' locks on the tables let nothing move.",
    ),
]


@app.command()
def create(
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    name: Name = "northwind",
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts; their tables are published.")] = CONTRACTS,
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Create the database with tables, outbox, roles and publication, or bring them up to date.

    Each statement waits for a table's lock for 100 ms at most, and is tried again later, so that no query of an
    application waits for it longer.
    The roles' passwords come from HEADWATER_CDC_PASSWORD, HEADWATER_APP_PASSWORD and HEADWATER_READER_PASSWORD; the
    command asks for those that are not set. Roles that exist get the new passwords.
    """
    described = read_contracts(contracts)
    refuse_without_contract(described, POSTGRESQL, "--contracts")
    password = database_password(user)
    passwords = {role: asked_password(f"{role.upper()}_PASSWORD", f"New password of {role}") for role in ROLES}
    with _connect(host, port, user, password, "postgres") as maintenance:
        administration.refuse_another(maintenance, name)
        if maintenance.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            maintenance.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with _connect(host, port, user, password, name) as connection:
        administration.create(connection, passwords, described, patience, say)
    say(f"{name} is up to date; published: {', '.join(published_tables(described))}")


@app.command()
def capture(
    name: Annotated[str, typer.Option("--database", help="The database's name.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts; their tables are published.")],
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Prepare a database of your own for capture, or bring that up to date: a schema `capture` with a heartbeat and
    signals, a publication, and the source connector's role, whose password comes from HEADWATER_CDC_PASSWORD or a
    prompt.

    Of your tables nothing changes but the replica identity, which contracts want to be FULL. `headwater contract check
    --live` says before what is missing. Tables and partitions are changed one at a time. The command waits for a lock
    for 100 ms at most and tries again later, so that no query of your application waits for it longer. If a lock is not
    to be had, the command names the table and the query that holds it, and a second run goes on.
    """
    described = read_contracts(contracts)
    refuse_without_contract(described, POSTGRESQL, "--contracts")
    with connect(host, port, user, name) as connection:
        administration.prepare(connection, cdc_password(new=True), described, patience, say)

        def query(statement: str) -> Sequence[Sequence[object]]:
            return connection.execute(statement.encode()).fetchall()

        unread = unread_slot(query)
        found = source_checks.findings(described, CDC_ROLE, query)
    for finding in found:
        if finding.level == source_checks.WARNING:
            say(f"warning: {finding}")
    say(f"{name} is ready to be captured; published: {', '.join(published_tables(described))}")
    if unread is not None:
        say(f"warning: found {unread.found}: {unread.action}")


@app.command()
def release(
    name: Annotated[str, typer.Option("--database", help="The database's name.")],
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    restore_identities: Annotated[
        bool,
        typer.Option(
            "--restore-identities", help="Give tables and partitions back the replica identity that they had before."
        ),
    ] = False,
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Take away what `capture` made of a database of your own, and the replication slot. Your tables stay.

    Tables are changed one at a time, as `capture` does it. Without --restore-identities, the command prints the
    statements that give tables and partitions back the replica identity that they had.
    """
    with connect(host, port, user, name) as connection:
        left = administration.release(connection, restore_identities, patience, say)
    say(f"{name} is captured no more")
    if left.identities:
        say("Tables have another replica identity than before. These statements give it back to them:")
        for statement in left.identities:
            say(f"  {statement};")
    for reason in left.refused:
        say(f"The server refused this: {reason}")


@app.command()
def status(host: Host = "localhost", port: Port = 5432, user: User = "postgres", name: Name = "northwind") -> None:
    """Show rows, publication, replication slot and roles."""
    with connect(host, port, user, name) as connection:
        content = administration.status(connection)
    for table, rows in content.rows.items():
        say(f"{table:<22}{rows:>12,} rows")
    published = "missing: run `headwater db create`" if content.published is None else ", ".join(content.published)
    say(f"publication  {published}")
    if content.slot is None:
        say("slot         none yet: the connector makes it when it first runs")
    else:
        in_use = "in use" if content.slot.active else "not in use"
        say(f"slot         {in_use}, holds back {content.slot.held_bytes / 2**20:,.1f} MiB of log")
    say(f"roles        {'missing: ' + ', '.join(content.missing_roles) if content.missing_roles else 'all there'}")


@app.command()
def drop(
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    name: Name = "northwind",
    yes: Annotated[bool, typer.Option("--yes", help="Drop without asking.")] = False,
) -> None:
    """Drop tables with all their rows, outbox, publication, slot and roles; the empty database stays."""
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("Dropping deletes all rows, and there is no terminal to ask on: confirm with --yes.")
        typer.confirm(f"Delete all rows of {name} on {host}:{port}?", abort=True)
    with connect(host, port, user, name) as connection:
        administration.drop(connection, tell=say)
    say(f"Dropped the content of {name}")


def cdc_password(*, new: bool = False) -> str:
    """The password of the source connector's role, from the environment or a prompt. Raises UserError."""
    return asked_password(f"{CDC_ROLE.upper()}_PASSWORD", f"{'New password' if new else 'Password'} of {CDC_ROLE}")


def connect(host: str, port: int, user: str, name: str) -> psycopg.Connection:
    """Connect with the password of the environment, or of a prompt. Raises UserError."""
    return _connect(host, port, user, database_password(user), name)


def _connect(host: str, port: int, user: str, password: str, name: str) -> psycopg.Connection:
    parts = {"host": host, "port": port, "user": user, "dbname": name}
    return connected(parts, password, where_missing="The order database is made by `headwater db create`.")

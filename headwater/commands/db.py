"""``headwater db``: create a lake's database, or prepare the capture of your own."""

import sys
from typing import Annotated

import psycopg
import typer
from psycopg import sql

from headwater.commands.advice import advise
from headwater.commands.options import Folder
from headwater.commands.postgresql import (
    PASSWORD_VARIABLE,
    Login,
    asked_password,
    asked_passwords,
    connected,
    database_password,
    password_prompt,
)
from headwater.commands.sources import refuse_without_contract
from headwater.console import say
from headwater.contract.model import POSTGRESQL
from headwater.contract.reading import read_contracts
from headwater.definitions import source_checks
from headwater.definitions.database_files import read_database_files
from headwater.definitions.left_slot import unread_slot
from headwater.definitions.open_transactions import open_transactions
from headwater.definitions.source_database import CDC_ROLE, ROLES, published_tables
from headwater.errors import UserError
from headwater.postgresql import administration
from headwater.postgresql.gradually import PATIENCE_SECONDS
from headwater.postgresql.queries import query_of
from headwater.yaml_files import yaml_paths

app = typer.Typer(help="Manage a lake's database, or the capture of your own database.", no_args_is_help=True)

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
        help="How many seconds to keep trying while other transactions hold locks on the tables.",
    ),
]


@app.command()
def create(
    name: Name,
    *,
    folder: Folder,
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Create the database with roles, publication and what the lake folder's SQL files create, or bring it up to date.

    The SQL files are in database/. Each statement of a file runs once. A file that fails goes on at its statement, and
    a file that was changed after it ran is refused. Each statement waits for a table's lock for 100 ms at most, and is
    tried again later. So no query of an application waits for it longer.
    The roles' passwords come from HEADWATER_CDC_PASSWORD, HEADWATER_APP_PASSWORD and HEADWATER_READER_PASSWORD; the
    command asks for those that are not set. Roles that exist get the new passwords.

    A lake folder without contracts gets its tables, too: `headwater contract infer` then describes them.
    """
    described = read_contracts(folder.contracts) if yaml_paths(folder.contracts) else []
    if described:
        refuse_without_contract(described, POSTGRESQL, "--folder")
    files = read_database_files(folder.database)
    prompts = {PASSWORD_VARIABLE: password_prompt(user)}
    prompts |= {_password_variable(role): f"New password of {role}" for role in ROLES}
    asked = asked_passwords(prompts)
    password = asked[PASSWORD_VARIABLE]
    passwords = {role: asked[_password_variable(role)] for role in ROLES}
    with _connect(host, port, user, password, "postgres") as maintenance:
        administration.refuse_another(maintenance, name)
        if maintenance.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            maintenance.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with _connect(host, port, user, password, name) as connection:
        administration.refuse_own(connection)
        administration.create(connection, passwords, described, files, patience, say)
    say(f"{name} is up to date; published: {', '.join(published_tables(described))}")
    if not described:
        at = f"--host {host} --port {port} --database {name} --user {user}"
        advise(f"No contract describes its tables yet: run `headwater contract infer --schema SCHEMA {at}`")
        say("Then run this command again: it publishes them")


@app.command()
def capture(
    name: Name,
    *,
    folder: Folder,
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Prepare a database of your own for capture, or bring it up to date.

    The command makes a schema `capture` with a heartbeat and signals, a publication, and the source connector's role.
    The role's password comes from HEADWATER_CDC_PASSWORD or a prompt. Of your tables only the replica identity changes,
    which contracts want to be FULL. Run `headwater contract check --live` first: it says what the database lacks.

    Tables and partitions are changed one at a time. The command waits for a lock for 100 ms at most and tries again
    later. So no query of your application waits longer for it. If it gets no lock, it names the table and the query
    that holds it, and a second run goes on. It also names the transactions that the replication slot will wait for.
    """
    described = read_contracts(folder.contracts)
    refuse_without_contract(described, POSTGRESQL, "--folder")
    with connect(host, port, user, name) as connection:
        query = query_of(connection)
        # Before the work, which may wait for the same transactions.
        for each in open_transactions(query):
            say(f"warning: found {each.found}: {each.action}")
        administration.prepare(connection, cdc_password(new=True), described, patience, say)
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
    name: Name,
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    restore_identities: Annotated[
        bool,
        typer.Option("--restore-identities", help="Restore the former replica identity of tables and partitions."),
    ] = False,
    patience: Patience = PATIENCE_SECONDS,
) -> None:
    """Undo `capture` in a database of your own, and drop the replication slot. Your tables stay.

    Tables are changed one at a time, as `capture` does it. Without --restore-identities, the command prints the
    statements that restore the former replica identity of tables and partitions.
    """
    with connect(host, port, user, name) as connection:
        left = administration.release(connection, restore_identities, patience, say)
    say(f"{name} is captured no more")
    if left.identities:
        say("Some tables still have the replica identity that capture set. These statements restore the former one:")
        for statement in left.identities:
            say(f"  {statement};")
    for reason in left.refused:
        say(f"The server refused this: {reason}")


@app.command()
def status(name: Name, host: Host = "localhost", port: Port = 5432, user: User = "postgres") -> None:
    """Show rows, the SQL files that ran, publication, replication slot and roles."""
    with connect(host, port, user, name) as connection:
        content = administration.status(connection)
    for table, rows in content.rows.items():
        say(f"{table:<35}{rows:>12,} rows")
    for file, state in content.files.items():
        say(f"file         {file} {state}")
    published = "missing: run `headwater db create`" if content.published is None else ", ".join(content.published)
    advise(f"publication  {published}")
    if content.slot is None:
        say("slot         none yet: the connector makes it when it first runs")
    else:
        in_use = "in use" if content.slot.active else "not in use"
        say(f"slot         {in_use}, holds back {content.slot.held_bytes / 2**20:,.1f} MiB of log")
    say(f"roles        {'missing: ' + ', '.join(content.missing_roles) if content.missing_roles else 'all there'}")


@app.command()
def drop(
    name: Name,
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    yes: Annotated[bool, typer.Option("--yes", help="Drop without asking.")] = False,
) -> None:
    """Drop all schemas with all their rows, publication, slot and roles; the empty database stays.

    The command refuses a database that neither `headwater db create` nor a deployment made.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("Dropping deletes all rows, and there is no terminal to ask on: confirm with --yes.")
        typer.confirm(f"Delete all rows of {name} on {host}:{port}?", abort=True)
    with connect(host, port, user, name) as connection:
        administration.drop(connection, tell=say)
    say(f"Dropped the content of {name}")


def cdc_password(*, new: bool = False) -> str:
    """The password of the source connector's role, from the environment or a prompt. Raises UserError."""
    return asked_password(_password_variable(CDC_ROLE), f"{'New password' if new else 'Password'} of {CDC_ROLE}")


def _password_variable(role: str) -> str:
    return f"{role.upper()}_PASSWORD"


def connect(host: str, port: int, user: str, name: str) -> psycopg.Connection:
    """Connect with the password of the environment, or of a prompt. Raises UserError."""
    return _connect(host, port, user, database_password(user), name)


def _connect(host: str, port: int, user: str, password: str, name: str) -> psycopg.Connection:
    parts = {"host": host, "port": port, "user": user, "dbname": name}
    return connected(Login(parts, password), where_missing="`headwater db create` makes it.")

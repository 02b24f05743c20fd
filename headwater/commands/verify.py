"""`headwater verify`: hold the lake against its source."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import boto3
import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict
from rich.console import Console
from rich.table import Table

from headwater import contract
from headwater import verify as comparing
from headwater.commands.db import PASSWORD_VARIABLE
from headwater.errors import UserError
from headwater.paths import CONTRACTS
from headwater.verify import TableComparison


def verify(
    lake: Annotated[str, typer.Option(help="Where the lake's tables lie: s3://bucket/prefix, or a folder.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    database_url: Annotated[
        str, typer.Option(help="PostgreSQL connection string without the password; in place of the next four.")
    ] = "",
    host: Annotated[str, typer.Option(help="The database's host.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The database's port.")] = 5432,
    database: Annotated[str, typer.Option(help="The database's name.")] = "northwind",
    user: Annotated[str, typer.Option(help="A role that may read the tables.")] = "headwater_reader",
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: Annotated[str, typer.Option(help="AWS region; without it, the AWS configuration's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the examples.")] = False,
) -> None:
    """Compare every contract's source with its lake table; status 1 where they differ.

    The password comes from HEADWATER_DB_PASSWORD or is asked for. Let the pipeline drain first: what is still under way
    counts as missing or different.
    """
    chosen = contract.load_all(contracts)
    queries = comparing.load_queries(chosen, contracts)
    storage = _storage(endpoint, region) if "://" in lake and not lake.startswith("file:") else {}
    location = lake if "://" in lake else Path(lake).resolve().as_uri()
    progress = Console(stderr=True)
    with (
        _connect(database_url, host, port, database, user) as connection,
        progress.status("Reading …") as status,
    ):
        tables = comparing.verify(
            chosen,
            connection,
            location,
            storage,
            queries,
            progress=lambda table, side, rows: status.update(f"{table}: {rows:,} rows of the {side}"),
        )
    if as_json:
        sys.stdout.write(json.dumps({"tables": [asdict(table) for table in tables]}, indent=1) + "\n")
    else:
        console = Console()
        console.print(comparison_table(tables))
        _print_examples(tables, console)
    if not all(table.equal for table in tables):
        raise typer.Exit(1)


def comparison_table(tables: Sequence[TableComparison]) -> Table:
    """The counts of a comparison as a table for the terminal."""
    grid = Table("table", title="Source and lake", title_justify="left")
    for heading in ("source rows", "lake rows", "missing", "extra", "different"):
        grid.add_column(heading, justify="right")
    for table in tables:
        found = (table.missing, table.extra, table.different)
        counts = [f"[bold red]{count:,}[/]" if count else "0" for count in found]
        grid.add_row(table.name, f"{table.source_rows:,}", f"{table.lake_rows:,}", *counts)
    return grid


def _print_examples(tables: Sequence[TableComparison], console: Console) -> None:
    for table in tables:
        for example in table.examples:
            key = ", ".join(f"{name} = {value}" for name, value in example.key.items())
            console.print(f"{table.name} {key}: {example.kind}", markup=False, highlight=False)
            for name, (theirs, ours) in example.columns.items():
                console.print(f"  {name}: source {theirs} | lake {ours}", markup=False, highlight=False)


def _connect(url: str, host: str, port: int, database: str, user: str) -> psycopg.Connection:
    try:
        parts = conninfo_to_dict(url) if url else {"host": host, "port": port, "dbname": database, "user": user}
    except psycopg.ProgrammingError as error:
        raise UserError(f"--database-url: {error}; expected e.g. postgresql://user@host:5432/northwind") from None
    if "password" in parts:
        raise UserError(
            f"--database-url: found a password, which other users of this machine could see: put it into "
            f"{PASSWORD_VARIABLE}, or leave it out to be asked"
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        password = typer.prompt(f"Password of {parts.get('user', 'the database user')}", hide_input=True, err=True)
    try:
        return psycopg.connect(**{**parts, "password": password, "connect_timeout": 10}, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise UserError(
            f"Cannot connect to PostgreSQL at {parts.get('host')}:{parts.get('port', 5432)}: {str(error).strip()}. "
            f"Check the address, the user and {PASSWORD_VARIABLE}"
        ) from None


def _storage(endpoint: str, region: str) -> dict[str, str]:
    # boto3 finds what hudi-rs does not: profiles, SSO, and their region.
    session = boto3.Session()
    found = session.get_credentials()
    keys = found.get_frozen_credentials() if found is not None else None
    return comparing.s3_options(
        region or session.region_name or "us-east-1",
        endpoint or None,
        keys.access_key if keys else None,
        keys.secret_key if keys else None,
        keys.token if keys else None,
    )

"""``headwater verify``: compare the lake with its sources."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import boto3
import psycopg
import typer
from botocore.exceptions import BotoCoreError
from psycopg.conninfo import conninfo_to_dict
from rich.console import Console
from rich.table import Table

from headwater.commands.db import PASSWORD_VARIABLE
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.paths import CONTRACTS
from headwater.verify import (
    DynamoDbSource,
    Lake,
    PostgresqlSource,
    Source,
    TableComparison,
    load_queries,
    s3_options,
    verify_tables,
)

_REGION = "us-east-1"  # where neither an option nor the AWS configuration names one


def verify(
    lake: Annotated[str, typer.Option(help="Where the lake's tables lie: s3://bucket/prefix, or a folder.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    database_url: Annotated[
        str, typer.Option(help="PostgreSQL connection string without the password; replaces the next four.")
    ] = "",
    host: Annotated[str, typer.Option(help="The database's host.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The database's port.")] = 5432,
    database: Annotated[str, typer.Option(help="The database's name.")] = "northwind",
    user: Annotated[str, typer.Option(help="A role that may read the tables.")] = "headwater_reader",
    dynamodb_table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONTRACT=TABLE",
            help="A contract's DynamoDB table, where its name is not the contract's source.table; can be repeated.",
        ),
    ] = None,
    dynamodb_endpoint: Annotated[str, typer.Option(help="Address of a DynamoDB API that is not AWS's.")] = "",
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: Annotated[str, typer.Option(help="AWS region; by default the AWS configuration's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, examples included.")] = False,
) -> None:
    """Compare every contract's source with its lake table; the status is 1 where they differ, and while the lake holds
    rows whose values do not fit their columns.

    PostgreSQL's password comes from HEADWATER_DB_PASSWORD or a prompt. Let the pipelines drain first: a change that has
    not reached the lake counts as missing, extra or different.
    """
    described = read_contracts(contracts)
    queries = load_queries(described, contracts)
    renamed = _renamed_tables(dynamodb_table or [], of_database(described, DYNAMODB))
    storage = _storage(endpoint, region) if "://" in lake and not lake.startswith("file:") else {}
    location = lake if "://" in lake else Path(lake).resolve().as_uri()
    progress = Console(stderr=True)
    sources: dict[str, Source] = {}
    with ExitStack() as opened:
        if of_database(described, DYNAMODB):
            sources[DYNAMODB] = DynamoDbSource(_dynamodb(dynamodb_endpoint, region), renamed)
        if of_database(described, POSTGRESQL):
            connection = opened.enter_context(_connect(database_url, host, port, database, user))
            sources[POSTGRESQL] = PostgresqlSource(connection, queries)
        status = opened.enter_context(progress.status("Reading …"))
        tables = verify_tables(
            described,
            sources,
            Lake(location, storage),
            lambda table, side, rows: status.update(f"{table}: {rows:,} rows of the {side}"),
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
    for heading in ("source rows", "lake rows", "missing", "extra", "different", "unfit values"):
        grid.add_column(heading, justify="right")
    for table in tables:
        differences = (table.missing, table.extra, table.different, table.unfit)
        cells = [f"[bold red]{count:,}[/]" if count else "0" for count in differences]
        grid.add_row(table.name, f"{table.source_rows:,}", f"{table.lake_rows:,}", *cells)
    return grid


def _print_examples(tables: Sequence[TableComparison], console: Console) -> None:
    for table in tables:
        for example in table.examples:
            key = ", ".join(f"{name} = {value}" for name, value in example.key.items())
            console.print(f"{table.name} {key}: {example.kind}", markup=False, highlight=False)
            for name, (in_source, in_lake) in example.columns.items():
                console.print(f"  {name}: source {in_source} | lake {in_lake}", markup=False, highlight=False)


def _connect(url: str, host: str, port: int, database: str, user: str) -> psycopg.Connection:
    try:
        parts = conninfo_to_dict(url) if url else {"host": host, "port": port, "dbname": database, "user": user}
    except psycopg.ProgrammingError as error:
        raise UserError(f"--database-url: {error}; expected e.g. postgresql://user@host:5432/northwind.") from None
    if "password" in parts:
        raise UserError(
            f"--database-url: found a password, which other users of this machine could see: put it into "
            f"{PASSWORD_VARIABLE}, or leave it out to be asked."
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        password = typer.prompt(f"Password of {parts.get('user', 'the database user')}", hide_input=True, err=True)
    try:
        return psycopg.connect(**{**parts, "password": password, "connect_timeout": 10}, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise UserError(
            f"Cannot connect to PostgreSQL at {parts.get('host')}:{parts.get('port', 5432)}: {str(error).strip()}. "
            f"Check the address, the user and {PASSWORD_VARIABLE}."
        ) from None


def _renamed_tables(options: Sequence[str], contracts: Sequence[Contract]) -> Mapping[str, str]:
    """The values of --dynamodb-table, as DynamoDB tables by contract."""
    known = [contract.table for contract in contracts]
    tables: dict[str, str] = {}
    for option in options:
        name, _, table = option.partition("=")
        if not table or name not in known or name in tables:
            raise UserError(
                f"--dynamodb-table: found {option!r}, expected CONTRACT=TABLE, each contract at most once, out of: "
                f"{', '.join(known) or 'none, because no contract has source.database: dynamodb'}."
            )
        tables[name] = table
    return tables


def _dynamodb(endpoint: str, region: str) -> Any:
    session = _session()
    try:
        return session.client(
            "dynamodb", region_name=region or session.region_name or _REGION, endpoint_url=endpoint or None
        )
    except ValueError as error:
        raise UserError(
            f"--dynamodb-endpoint, --region: {error}; expected e.g. http://127.0.0.1:8000 and eu-central-1."
        ) from None


def _storage(endpoint: str, region: str) -> dict[str, str]:
    # boto3 finds credentials that hudi-rs does not: profiles, SSO, and their region.
    session = _session()
    credentials = session.get_credentials()
    keys = credentials.get_frozen_credentials() if credentials is not None else None
    return s3_options(
        region or session.region_name or _REGION,
        endpoint or None,
        keys.access_key if keys else None,
        keys.secret_key if keys else None,
        keys.token if keys else None,
    )


def _session() -> boto3.Session:
    try:
        return boto3.Session()
    except BotoCoreError as error:
        raise UserError(f"The AWS configuration cannot be used: {error}.") from None

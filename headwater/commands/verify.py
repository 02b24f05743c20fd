"""``headwater verify``: compare the lake with its sources."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg import sql
from rich.console import Console
from rich.table import Table

from headwater.commands import sources
from headwater.commands.resync import ItemReader, read_by_connector
from headwater.commands.writer_requests import s3_client, s3_errors
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.order_database import administration
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


def verify(
    lake: Annotated[str, typer.Option(help="Where the lake's tables lie: s3://bucket/prefix, or a folder.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    database_url: sources.DatabaseUrl = "",
    host: sources.Host = "127.0.0.1",
    port: sources.Port = 5432,
    database: sources.Database = "northwind",
    user: sources.User = "headwater_reader",
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: sources.Region = "",
    mask_secret: sources.MaskSecret = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, examples included.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Have what is missing, extra or different read again, as resync does.")
    ] = False,
) -> None:
    """Compare every contract's source with its lake table; the status is 1 where they differ, and while the lake holds
    rows whose values do not fit their columns.

    PostgreSQL's password comes from HEADWATER_DB_PASSWORD or a prompt. Let the pipelines drain first: a change that has
    not reached the lake counts as missing, extra or different. With --repair, the user must be one who may write into
    PostgreSQL's capture.signal.
    """
    described = read_contracts(contracts)
    queries = load_queries(described, contracts)
    renamed = sources.renamed_tables(dynamodb_table or [], of_database(described, DYNAMODB))
    read_lake = lake_at(lake, endpoint, region)
    if repair and as_json:
        raise UserError("--repair: found --json, expected one of them")
    mask_key = sources.mask_key(mask_secret, region)
    progress = Console(stderr=True)
    read: dict[str, Source] = {}
    repairs: dict[str, Repair] = {}
    with ExitStack() as opened:
        if of_database(described, DYNAMODB):
            dynamodb = sources.dynamodb_client(dynamodb_endpoint, region)
            read[DYNAMODB] = DynamoDbSource(dynamodb, renamed, mask_key)
            if repair:
                reader = ItemReader(dynamodb, s3_client(endpoint, region), lake)
                repairs[DYNAMODB] = partial(_load_again, reader, renamed)
        if of_database(described, POSTGRESQL):
            connection = opened.enter_context(sources.connect(database_url, host, port, database, user))
            read[POSTGRESQL] = PostgresqlSource(connection, queries, mask_key)
            repairs[POSTGRESQL] = partial(_read_again, connection)
        with progress.status("Reading …") as status:
            tables = verify_tables(
                described,
                read,
                read_lake,
                lambda table, side, rows: status.update(f"{table}: {rows:,} rows of the {side}"),
            )
        if as_json:
            sys.stdout.write(json.dumps({"tables": [_without_keys(table) for table in tables]}, indent=1) + "\n")
        else:
            console = Console()
            console.print(comparison_table(tables))
            _print_examples(tables, console)
        if repair:
            for contract, table in zip(described, tables, strict=True):
                if table.missing or table.extra or table.different:
                    repairs[contract.source.database](contract, table)
    if not all(table.equal for table in tables):
        raise typer.Exit(1)


Repair = Callable[[Contract, TableComparison], None]
"""Has what differs of a contract's table read again."""


def _without_keys(table: TableComparison) -> dict[str, Any]:
    """A comparison without its keys, which serve a repair."""
    return {name: value for name, value in asdict(table).items() if name != "keys"}


def _read_again(connection: psycopg.Connection, contract: Contract, found: TableComparison) -> None:
    """Read the rows of the keys that differ, or the whole table where they do not tell all, or where PostgreSQL does
    not find them as they are spelled here."""
    where = _condition(contract, found.keys) if found.keys else ""
    with suppress(UserError):
        if where and administration.rows_where(connection, contract.source.table, where) == len(found.keys):
            read_by_connector(connection, [contract], where)
            return
    read_by_connector(connection, [contract])


def _condition(contract: Contract, keys: Sequence[Mapping[str, str]]) -> str:
    names = sql.SQL(", ").join(sql.Identifier(contract.column(name).path[0]) for name in contract.key)
    rows = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key.values()))) for key in keys]
    return sql.SQL("({}) IN ({})").format(names, sql.SQL(", ").join(rows)).as_string()


def _load_again(reader: ItemReader, renamed: Mapping[str, str], contract: Contract, found: TableComparison) -> None:
    with s3_errors():
        reader.read(contract, renamed.get(contract.table, contract.source.table))


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


def lake_at(lake: str, endpoint: str, region: str) -> Lake:
    """The lake at an address, ``s3://bucket/prefix`` or a folder, to be read."""
    if "://" not in lake:
        return Lake(Path(lake).resolve().as_uri(), {})
    return Lake(lake, {} if lake.startswith("file:") else _storage(endpoint, region))


def _storage(endpoint: str, region: str) -> dict[str, str]:
    # boto3 finds credentials that hudi-rs does not: profiles, SSO, and their region.
    configured = sources.session()
    credentials = configured.get_credentials()
    keys = credentials.get_frozen_credentials() if credentials is not None else None
    return s3_options(
        region or configured.region_name or sources.DEFAULT_REGION,
        endpoint or None,
        keys.access_key if keys else None,
        keys.secret_key if keys else None,
        keys.token if keys else None,
    )

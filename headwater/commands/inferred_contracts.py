"""Contracts that verbs write for tables of a source: the options that name the tables, and the writing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from headwater.commands import sources
from headwater.contract import inference
from headwater.contract.inference import Inferred
from headwater.contract.reading import read_contract
from headwater.errors import UserError
from headwater.postgresql.queries import query_of, unreadable_catalog
from headwater.yaml_files import yaml_paths

Schema = Annotated[str, typer.Option(help="The PostgreSQL schema whose tables get contracts.")]
Table = Annotated[
    list[str] | None,
    typer.Option(help="With --schema: write a contract for this table only; can be repeated."),
]
FromDynamodb = Annotated[
    list[str] | None, typer.Option(metavar="TABLE", help="Write a contract for this DynamoDB table; can be repeated.")
]
Sample = Annotated[int, typer.Option(min=1, help="How many items of a DynamoDB table to look at.")]
Host = Annotated[str, typer.Option(help="The database's host.")]
Port = Annotated[int, typer.Option(help="The database's port.", min=1, max=65535)]
Database = Annotated[str, typer.Option(help="The database's name.")]
User = Annotated[str, typer.Option(help="A role that may read the catalog; any role may.")]


@dataclass(frozen=True)
class Tables:
    """The PostgreSQL tables that get contracts, as options name them."""

    schema: str
    """The schema; "" if no table of PostgreSQL gets a contract."""
    tables: Sequence[str]
    """Tables of the schema; none stands for all."""
    database_url: str
    host: str
    port: int
    database: str
    user: str

    def infer(self) -> list[Inferred]:
        """Return their contracts. Raises UserError if the catalog cannot be read."""
        if self.tables and not self.schema:
            raise UserError("--table: found no --schema, expected it")
        if not self.schema:
            return []
        with sources.connector(self.database_url, self.host, self.port, self.database, self.user)() as connection:
            try:
                return inference.from_postgresql(self.schema, query_of(connection), self.tables)
            except psycopg.Error as error:
                raise unreadable_catalog(error) from None


@dataclass(frozen=True)
class Items:
    """The DynamoDB tables that get contracts, as options name them."""

    tables: Sequence[str]
    sample: int
    """How many items of each are read."""
    endpoint: str
    """The address of a DynamoDB API; "" for AWS's."""
    region: str

    def infer(self) -> list[Inferred]:
        """Return their contracts. Raises UserError if a table cannot be read."""
        if not self.tables:
            return []
        client = sources.dynamodb_client(self.endpoint, self.region, sources.session())
        return [_sampled(client, table, self.sample) for table in self.tables]


def infer(tables: Tables, items: Items) -> list[Inferred]:
    """Return the contracts of all these tables. Raises UserError, also if two tables would have one contract."""
    found = [*tables.infer(), *items.infer()]
    names = [each.name for each in found if not each.refused]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"infer: found two tables for the contract {name}, expected one: leave one of them out")
    return found


def write(found: Sequence[Inferred], folder: Path, *, replace: bool = False) -> None:
    """Write the contracts that could be inferred.

    Raises UserError, and writes none, if one is there already, unless they ``replace`` it. Raises it also if a source
    table has a contract of another name, or if another source table has a contract of the same name.
    """
    made = [each for each in found if not each.refused]
    described = _described(folder)
    sources_of = {name: source for source, name in described.items()}
    for each in made:
        former = described.get(each.source, each.name)
        if former != each.name:
            raise UserError(
                f"{folder / former}.yaml: found a contract of {each.source}, expected none but {each.name}.yaml: leave "
                "the table out (name the others by --table), or remove that contract first"
            )
        other = sources_of.get(each.name, each.source)
        if other != each.source:
            raise UserError(
                f"{folder / each.name}.yaml: found a contract of {other}, expected one of {each.source}: name the "
                "other tables by --table, or remove that contract first"
            )
        if (folder / f"{each.name}.yaml").exists() and not replace:
            raise UserError(
                f"{folder / each.name}.yaml: found a contract, expected none: name the tables that lack one by --table "
                "or --from-dynamodb; --replace writes over contracts, edits included"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        (folder / f"{each.name}.yaml").write_text(each.text, encoding="utf-8")


def _described(folder: Path) -> dict[str, str]:
    """The names of the folder's contracts, by their source tables. Leaves out files that cannot be read."""
    described: dict[str, str] = {}
    for path in yaml_paths(folder) if folder.exists() else []:
        with suppress(UserError):
            described[read_contract(path).source.table] = path.stem
    return described


def show(found: Sequence[Inferred], folder: Path) -> None:
    """Print which table has which contract. Raises typer.Exit with 1 if a table cannot be captured."""
    # From the lake folder on, so that a path fits into a narrow terminal.
    grid = Grid("source", "contract", "guesses")
    for each in found:
        told = (
            f"[bold red]none:[/] {escape(each.refused)}" if each.refused else escape(f"{folder.name}/{each.name}.yaml")
        )
        grid.add_row(escape(each.source), told, str(each.guesses) if not each.refused else "")
    console = Console()
    console.print(grid)
    made = sum(not each.refused for each in found)
    console.print(f"{made} contracts; guesses are marked by comments: look at them before the first deployment")
    if made < len(found):
        raise typer.Exit(1)


def _sampled(client: Any, table: str, sample: int) -> Inferred:
    try:
        description = client.describe_table(TableName=table)["Table"]
        expiry = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        pages = client.get_paginator("scan").paginate(TableName=table, PaginationConfig={"MaxItems": sample})
        items = [item for page in pages for item in page["Items"]]
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"--from-dynamodb: {table} cannot be read: {error}. It needs dynamodb:DescribeTable, DescribeTimeToLive "
            "and Scan; check the credentials, --region and --dynamodb-endpoint."
        ) from None
    return inference.from_dynamodb(description, expiry.get("AttributeName"), items)

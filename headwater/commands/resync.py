"""``headwater resync``: read tables again while their changes go on."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import psycopg
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from headwater.commands import lakes, sources
from headwater.commands.advice import advise
from headwater.commands.backfill import load
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, REGION, s3_errors
from headwater.console import say
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.exports import EXPORTS
from headwater.errors import UserError
from headwater.lake.decoding.left_out import LeftOut
from headwater.lake.sources import scanned_export
from headwater.postgresql import administration, conditions
from headwater.postgresql.conditions import Condition


def resync(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="Lake tables, as their contracts are called.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All tables instead.")] = False,
    where: Annotated[
        str, typer.Option(help="Only rows that meet this condition, of SQL or DynamoDB's PartiQL. No row ends then.")
    ] = "",
    environment: Annotated[str, ENVIRONMENT] = "",
    host: sources.Host = None,
    port: sources.Port = None,
    user: sources.Administrator = None,
    database: sources.Database = None,
    lake: Annotated[
        str, typer.Option(help="For DynamoDB's tables without --env: where the lake's tables lie, s3://bucket/prefix.")
    ] = "",
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    *,
    folder: Folder,
) -> None:
    """Have tables read again beside their changes, so that the lake is as the source.

    Rows that were lost or spoiled come back, and those that the source no longer has go. Changes go on meanwhile.
    The source connector reads PostgreSQL's tables, this command DynamoDB's. The options say how to reach PostgreSQL;
    the environment says the rest.
    """
    described = read_contracts(folder.contracts)
    chosen = _chosen(described, tables or [], all_)
    if where and len(chosen) != 1:
        raise UserError(f"--where: found {len(chosen)} tables, expected one")
    keyed, relational = of_database(chosen, DYNAMODB), of_database(chosen, POSTGRESQL)
    place = None
    # PostgreSQL's tables need none: the source connector reads them.
    if keyed or environment:
        place = lakes.of_option(
            environment,
            folder,
            lake,
            endpoint,
            region,
            described=described,
            dynamodb_table=dynamodb_table or [],
            dynamodb_endpoint=dynamodb_endpoint,
        )
    if relational:
        of = place.database if place is not None else None
        with sources.connector("", host, port, database, user, of=of, as_owner=True)() as connection:
            condition = conditions.by_user(connection, relational[0], where) if where else None
            read_by_connector(connection, relational, condition)
        advise("headwater verify tells when the lake is as the source.")
    if keyed and place is not None:
        with s3_errors():
            reader = ItemReader(place.dynamodb, place.s3, place.uri)
            for contract in keyed:
                reader.read(contract, place.tables.get(contract.table, contract.source.table), where)


def _chosen(described: Sequence[Contract], tables: Sequence[str], all_: bool) -> list[Contract]:
    if all_ == bool(tables):
        raise UserError("TABLE: found tables and --all, expected one of them" if all_ else "TABLE: found none")
    return [sources.contract_of(described, table) for table in dict.fromkeys(tables)] if tables else list(described)


def read_by_connector(
    connection: psycopg.Connection, contracts: Sequence[Contract], where: Condition | None = None
) -> None:
    """Have the source connector read PostgreSQL's tables, or the rows of one that meet a condition."""
    asked = ", ".join(contract.table for contract in contracts)
    if where is not None:
        asked = f"{where.rows:,} rows of {asked}"
    names = sorted({contract.source.table for contract in contracts})
    signal = administration.read_again(connection, names, where)
    say(f"Asked for {asked} by the signal {signal}: the source connector reads now")


class ItemReader:
    """Reads DynamoDB's tables and has the running job load the items, as an export of a moment ago.

    ``spent`` is called with the read units of each page, before the next one is read.
    """

    def __init__(self, dynamodb: Any, s3: Any, lake: str, spent: Callable[[float], None] = lambda units: None) -> None:
        self._dynamodb = dynamodb
        self._s3 = s3
        self._lake = lake
        self._spent = spent

    def read(self, contract: Contract, table: str, where: str = "") -> None:
        """Read a contract's table, which is called ``table`` in DynamoDB, or its items that meet a condition of
        PartiQL, and watch the job. Raises UserError."""
        uri = self._export(contract, table, where)
        export = load(self._s3, self._lake, contract, uri, lambda _: f"of {table}", whole=not where)
        scanned_export.delete_export(self._s3, uri)
        say(f"Done: the {export.items:,} items of {table} are in the lake, or in quarantine where they do not fit")

    def _export(self, contract: Contract, table: str, where: str) -> str:
        target = lakes.beside(self._lake, f"{EXPORTS}/_resync/{contract.table}")
        clean = LeftOut(contract, hmac_later=True).of_item  # the job has the key
        read = 0
        with Console(stderr=True).status(f"Reading {table} …") as status:

            def report(items: int, units: float) -> None:
                nonlocal read
                read += items
                status.update(f"{table}: {read:,} items")
                self._spent(units)

            try:
                if where:
                    return scanned_export.export_rows(self._dynamodb, self._s3, table, where, target, report, clean)
                return scanned_export.export_table(self._dynamodb, self._s3, table, target, report, clean)
            except (BotoCoreError, ClientError) as error:
                raise UserError(
                    f"{contract.table}: reading the DynamoDB table {table} into {target} failed: {error}. Check "
                    "--where, --env, or else --lake, --dynamodb-table and the endpoints, and the credentials, which "
                    "need dynamodb:Scan, or dynamodb:PartiQLSelect with --where."
                ) from None

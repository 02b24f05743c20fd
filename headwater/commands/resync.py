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
        str, typer.Option(help="Only rows that meet this condition in SQL or PartiQL. The lake then deletes no row.")
    ] = "",
    environment: Annotated[str, ENVIRONMENT] = "",
    host: sources.Host = None,
    port: sources.Port = None,
    user: sources.Administrator = None,
    database: sources.Database = None,
    lake: Annotated[
        str,
        typer.Option(help="For DynamoDB's tables without --env: the folder of the lake's tables, s3://bucket/prefix."),
    ] = "",
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    *,
    folder: Folder,
) -> None:
    """Have whole tables read again while replication goes on, so that the lake equals the source.

    Lost or damaged rows come back, and rows that the source no longer has are deleted. The source connector reads
    PostgreSQL's tables; this command reads DynamoDB's tables. The options say how to reach PostgreSQL; the
    environment's file has all other settings.
    """
    described = read_contracts(folder.contracts)
    chosen = _chosen(described, tables or [], all_)
    if where and len(chosen) != 1:
        raise UserError(f"--where: found {len(chosen)} tables, expected one")
    keyed, relational = of_database(chosen, DYNAMODB), of_database(chosen, POSTGRESQL)
    place = None
    # Without DynamoDB tables no lake is needed: the source connector reads PostgreSQL's tables.
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
        advise("headwater verify shows when the lake equals the source.")
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
    """Have the source connector read PostgreSQL's tables, or one table's rows that meet a condition."""
    asked = ", ".join(contract.table for contract in contracts)
    if where is not None:
        asked = f"{where.rows:,} rows of {asked}"
    names = sorted({contract.source.table for contract in contracts})
    signal = administration.read_again(connection, names, where)
    say(f"Requested a read of {asked} by the signal {signal}: the source connector reads now")


class ItemReader:
    """Reads DynamoDB's tables into exports, which the running job loads.

    ``spent`` is called with the read units of each page, before the next page is read.
    """

    def __init__(self, dynamodb: Any, s3: Any, lake: str, spent: Callable[[float], None] = lambda units: None) -> None:
        self._dynamodb = dynamodb
        self._s3 = s3
        self._lake = lake
        self._spent = spent

    def read(self, contract: Contract, table: str, where: str = "") -> None:
        """Read a contract's table, have the items loaded, and watch the job. Raises UserError.

        - ``table``: the table's name in DynamoDB.
        - ``where``: a PartiQL condition that the items must meet; "" for all items.
        """
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
                    f"{contract.table}: reading the DynamoDB table {table} into {target} failed: {error}. Check the "
                    "credentials, which need dynamodb:Scan, or dynamodb:PartiQLSelect with --where. Check --where and "
                    "--env, or else --lake, --dynamodb-table and the endpoints."
                ) from None

"""``headwater verify``: compare the lake with its sources."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Annotated, Any

import psycopg
import typer
from psycopg.pq import TransactionStatus
from rich.console import Console
from rich.table import Column, Table

from headwater.commands import lakes, sources
from headwater.commands.endless_comparison import EndlessComparison
from headwater.commands.lakes import AnyLake
from headwater.commands.options import Folder
from headwater.commands.repairs import ItemRepairs, Repairs, RowRepairs
from headwater.commands.writer_requests import ENVIRONMENT, s3_errors
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.operations.positions import SINK_SECONDS
from headwater.verify import (
    DynamoDbSource,
    PostgresqlSource,
    Source,
    TableComparison,
    load_queries,
    read_lake,
    verify_tables,
)
from headwater.verify.bunches import Pace
from headwater.verify.watch import Difference, TableWatch


def verify(
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[str, typer.Option(help="The address of the lake's tables: s3://bucket/prefix, or a folder.")] = "",
    *,
    folder: Folder,
    database_url: sources.DatabaseUrl = "",
    host: sources.Host = None,
    port: sources.Port = None,
    database: sources.Database = None,
    user: sources.User = None,
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: sources.Region = "",
    mask_secret: sources.MaskSecret = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, examples included.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Have missing, extra and different rows read again, as resync does.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Compare while all writes go on, again and again, until Ctrl-C.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --watch: end after the first round.")] = False,
    every: Annotated[
        float, typer.Option(help="With --watch: seconds from one round of a table to its next.", min=0)
    ] = 300,
    share: Annotated[
        float, typer.Option(help="With --watch: the share of a core of PostgreSQL's to take.", min=0.001, max=1)
    ] = 0.1,
    read_units: Annotated[
        float, typer.Option(help="With --watch: the read units a second to take of each DynamoDB table.", min=1)
    ] = 100,
    landing: Annotated[
        str, typer.Option(help="With --watch and without --env: where the landing objects lie, s3://bucket/prefix.")
    ] = "",
    sink_seconds: Annotated[
        float | None,
        typer.Option(
            help="With --watch and without --env: within how many seconds the sink surely stores what Kafka has.",
            min=1,
            show_default=f"{SINK_SECONDS:.0f}",
        ),
    ] = None,
) -> None:
    """Compare every contract's source with its lake table. The status is 1 if they differ, or if the lake holds rows
    whose values do not fit their columns.

    Let the pipelines drain first: a change that has not reached the lake counts as missing, extra or different. With
    --watch the command waits for such changes. PostgreSQL's password comes from HEADWATER_DB_PASSWORD, ENV's secret of
    the role, or a prompt. With --repair, the user must have the right to write into PostgreSQL's capture.signal; the
    default is the user of `headwater resync`.
    """
    described = read_contracts(folder.contracts)
    if repair and as_json:
        raise UserError("--repair: found --json, expected one of them")
    if watch and as_json:
        raise UserError("--watch: found --json, expected one of them")
    if not watch and (once or landing):
        raise UserError(f"{'--once' if once else '--landing'}: found no --watch, expected it")
    place = lakes.of_option(
        environment,
        folder,
        lake,
        endpoint,
        region,
        described=described,
        dynamodb_table=dynamodb_table or [],
        dynamodb_endpoint=dynamodb_endpoint,
        landing=landing,
        mask_secret=mask_secret,
        sink_seconds=sink_seconds,
    )
    relational, keyed = of_database(described, POSTGRESQL), of_database(described, DYNAMODB)
    queries = load_queries(described, folder.contracts)
    with ExitStack() as opened:
        connector = partial(sources.connector, database_url, host, port, database, user, of=place.database)
        postgresql = _Postgresql(partial(connector, as_owner=repair))
        opened.callback(postgresql.close)
        pace, paces = Pace(), dict[str, Pace]()

        def read(contract: Contract) -> PostgresqlSource | DynamoDbSource:
            if contract.source.database == DYNAMODB:
                return DynamoDbSource(place.dynamodb, place.tables, place.mask_key, read_units, paces)
            return PostgresqlSource(postgresql.connection(), queries, place.mask_key, share, pace)

        def rest(contract: Contract, units: float) -> None:
            if watch:
                of_table = read(contract).table(contract).pace
                of_table.rest(units / read_units)
                time.sleep(of_table.wait)

        repairs: dict[str, Repairs] = {
            DYNAMODB: ItemRepairs(place, rest),
            POSTGRESQL: RowRepairs(postgresql.another),
        }

        if keyed:
            # Refused before anybody is asked for a password.
            read(keyed[0])
        if relational:
            postgresql.connection()
        if watch:
            equal = _watch(described, place, postgresql, read, repairs if repair else {}, every=every, once=once)
        else:
            equal = _compare(described, place, read, repairs if repair else {}, as_json=as_json)
    if not equal:
        raise typer.Exit(1)


def _compare(
    described: Sequence[Contract],
    place: AnyLake,
    read: Callable[[Contract], Source],
    repairs: Mapping[str, Repairs],
    *,
    as_json: bool,
) -> bool:
    """Compare all tables once, and say whether they are equal."""
    sources_of = {contract.source.database: read(contract) for contract in described}
    with Console(stderr=True).status("Reading …") as status:
        tables = verify_tables(
            described,
            sources_of,
            place.lake(),
            lambda table, side, rows: status.update(f"{table}: {rows:,} rows of the {side}"),
        )
    if as_json:
        sys.stdout.write(json.dumps({"tables": [_without_keys(table) for table in tables]}, indent=1) + "\n")
    else:
        console = Console()
        console.print(comparison_table(tables))
        _print_examples(tables, console)
    for contract, table in zip(described, tables, strict=True):
        if contract.source.database in repairs and (table.missing or table.extra or table.different):
            repairs[contract.source.database].read(contract, [tuple(key.values()) for key in table.keys])
    return all(table.equal for table in tables)


def _watch(
    described: Sequence[Contract],
    place: AnyLake,
    postgresql: _Postgresql,
    read: Callable[[Contract], PostgresqlSource | DynamoDbSource],
    repairs: Mapping[str, Repairs],
    *,
    every: float,
    once: bool,
) -> bool:
    """Compare all tables again and again, and say whether they are equal at the end."""
    by_name = {contract.table: contract for contract in described}

    def mend(table: str, found: Sequence[Difference], may_be_whole: bool) -> bool:
        contract = by_name[table]
        return repairs[contract.source.database].mend(contract, found, may_be_whole)

    if not place.uri.startswith("s3://"):
        raise UserError(
            f"--watch: found the lake {place.uri}, expected s3://bucket/prefix, because the results are kept there"
        )
    at_once, pace = partial(read_lake, patience=0), Pace()
    comparison = EndlessComparison(every, place.kept(), mend if repairs else None)
    for contract in described:
        watch = TableWatch(
            lambda contract=contract: read(contract).table(contract),  # type: ignore[misc]
            # A compaction is waited for there, beside other tables.
            lambda contract=contract: replace(place.lake(), read_table=at_once).table(contract),  # type: ignore[misc]
            place.position(contract, postgresql.value),
            pace,
        )
        with s3_errors():
            comparison.add(contract.table, watch, repairs[contract.source.database].at_once if repairs else 0)
    return comparison.run(once=once)


def _without_keys(table: TableComparison) -> dict[str, Any]:
    """A comparison without its keys, which serve a repair."""
    return {name: value for name, value in asdict(table).items() if name != "keys"}


class _Postgresql:
    """The connection to PostgreSQL, which is made again if it was lost. ``connector`` gives what connects."""

    def __init__(self, connector: Callable[[], Callable[[], psycopg.Connection]]) -> None:
        self._connector = connector
        self._connection: psycopg.Connection | None = None

    def connection(self) -> psycopg.Connection:
        """A connection that works, as far as is known, and is in no transaction. Raises UserError, and
        CredentialsRefused if the server no longer accepts the password."""
        # Within a transaction no other snapshot could be read.
        if self._connection is None or self._connection.info.transaction_status is not TransactionStatus.IDLE:
            self.close()
            self._connection = self._connect()
        return self._connection

    def another(self) -> psycopg.Connection:
        """A connection for a thread of its own. Raises UserError."""
        return self._connect()

    def close(self) -> None:
        """Close the connection that there is."""
        if self._connection is not None:
            self._connection.close()

    @cached_property
    def _connect(self) -> Callable[[], psycopg.Connection]:
        return self._connector()

    def value(self, query: str) -> str:
        """The one text that a query gives. Raises UserError."""
        return sources.first_value(self.connection(), query)


def comparison_table(tables: Sequence[TableComparison]) -> Table:
    """The counts of a comparison as a table for the terminal."""
    grid = Table(Column("table", overflow="fold"), title="Source and lake", title_justify="left")
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

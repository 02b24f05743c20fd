"""``headwater verify``: compare the lake with its sources."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated

import psycopg
import typer
from psycopg.pq import TransactionStatus
from rich.console import Console

from headwater.commands import lakes, sources
from headwater.commands.advice import advise
from headwater.commands.comparison_output import comparison_document, options_of, print_comparison
from headwater.commands.endless_comparison import EndlessComparison
from headwater.commands.lakes import AnyLake
from headwater.commands.options import Folder
from headwater.commands.postgresql import CredentialsRefused
from headwater.commands.repairs import ItemRepairs, Repairs, RowRepairs
from headwater.commands.writer_requests import ENVIRONMENT, s3_errors
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import readable_contracts
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.operations.positions import SINK_SECONDS
from headwater.verify import (
    DynamoDbSource,
    NotCompared,
    PostgresqlSource,
    RowsRead,
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
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Compare only this lake table; can be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: counts, rows that differ, next steps, and tables not compared.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read missing, extra and different rows again, as resync does.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Compare while all writes go on, again and again, until Ctrl-C.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --watch: end after the first round.")] = False,
    every: Annotated[
        float, typer.Option(help="With --watch: seconds from one round of a table to its next.", min=0)
    ] = 300,
    share: Annotated[
        float, typer.Option(help="With --watch: the share of one of PostgreSQL's cores to use.", min=0.001, max=1)
    ] = 0.1,
    read_units: Annotated[
        float, typer.Option(help="With --watch: the read units per second to use of each DynamoDB table.", min=1)
    ] = 100,
    landing: Annotated[
        str, typer.Option(help="With --watch and without --env: where the landing objects lie, s3://bucket/prefix.")
    ] = "",
    sink_seconds: Annotated[
        float | None,
        typer.Option(
            help="With --watch and without --env: within how many seconds the sink stores each record of Kafka.",
            min=1,
            show_default=f"{SINK_SECONDS:.0f}",
        ),
    ] = None,
) -> None:
    """Compare every contract's source with its lake table, and show the first rows that differ.

    The status is 1 if they differ, or if the lake holds rows whose values do not fit their columns. It is 2 if a table
    could not be compared; all others are compared then, too.

    Let the pipelines drain first: a change that has not reached the lake counts as missing, extra or different. With
    --watch the command waits for such changes. PostgreSQL's password comes from HEADWATER_DB_PASSWORD, ENV's secret of
    the role, or a prompt. With --repair, the user must have the right to write into PostgreSQL's capture.signal; the
    default is the user of `headwater resync`.
    """
    described, refused = readable_contracts(folder.contracts)
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
    described, reasons = _chosen(described, {name: str(error) for name, error in refused.items()}, table or [], folder)
    queries, unread = _queries(described, folder)
    reasons |= unread
    described = [contract for contract in described if contract.table not in reasons]
    with ExitStack() as opened:
        connector = partial(sources.connector, database_url, host, port, database, user, of=place.database)
        postgresql = _Postgresql(partial(connector, as_owner=repair))
        opened.callback(postgresql.close)
        pace, paces = Pace(), dict[str, Pace]()

        def read(contract: Contract) -> PostgresqlSource | DynamoDbSource:
            mask_key = place.mask_key if contract.needs_mask_key else None
            if contract.source.database == DYNAMODB:
                return DynamoDbSource(place.dynamodb, place.tables, mask_key, read_units, paces)
            return PostgresqlSource(postgresql.connection(), queries, mask_key, share, pace)

        def rest(contract: Contract, units: float) -> None:
            if watch:
                of_table = read(contract).table(contract).pace
                of_table.rest(units / read_units)
                time.sleep(of_table.wait)

        repairs: dict[str, Repairs] = {
            DYNAMODB: ItemRepairs(place, rest),
            POSTGRESQL: RowRepairs(postgresql.another),
        }

        if of_database(described, DYNAMODB):
            # Refused before anybody is asked for a password.
            _ = place.dynamodb
        unreached = _unreached(described, postgresql, place, watch=watch)
        mended = repairs if repair else {}
        if watch:
            if not described:
                raise NotCompared((), reasons)
            for reason in reasons.values():
                advise(reason)
            equal = _watch(described, reasons, place, postgresql, read, mended, every=every, once=once)
        else:
            reasons |= unreached
            described = [contract for contract in described if contract.table not in reasons]
            options = options_of(environment)
            equal = _compare(described, reasons, place, postgresql, read, mended, options, as_json=as_json)
    if not equal:
        raise typer.Exit(1)


def _chosen(
    described: Sequence[Contract], refused: Mapping[str, str], tables: Sequence[str], folder: LakeFolder
) -> tuple[list[Contract], dict[str, str]]:
    """The contracts that --table names, or all, and why contracts among them cannot be read, by table."""
    if not tables:
        return list(described), dict(refused)
    reasons = {name: refused[name] for name in tables if name in refused}
    where = f", as in {folder.contracts}"
    named = dict.fromkeys(name for name in tables if name not in reasons)
    return [sources.contract_of(described, name, "--table", where) for name in named], reasons


def _queries(described: Sequence[Contract], folder: LakeFolder) -> tuple[dict[str, str], dict[str, str]]:
    """The SQL of each ``verify_with`` that can be read, and why the others cannot be read, by table."""
    queries: dict[str, str] = {}
    unread: dict[str, str] = {}
    for contract in described:
        try:
            queries |= load_queries([contract], folder.contracts)
        except UserError as error:
            unread[contract.table] = str(error)
    return queries, unread


def _unreached(
    described: Sequence[Contract], postgresql: _Postgresql, place: AnyLake, *, watch: bool
) -> dict[str, str]:
    """Why tables cannot be compared now for lack of the database or of the key of masks, by table.

    Raises UserError if options are missing or wrong, if no table is left, and, with ``watch``, CredentialsRefused.
    """
    reasons: dict[str, str] = {}
    relational = of_database(described, POSTGRESQL)
    if relational:
        if place.database is None:
            postgresql.prepare()
        try:
            postgresql.connection()
        except UserError as error:
            if len(relational) == len(described) or (watch and isinstance(error, CredentialsRefused)):
                raise
            reasons |= dict.fromkeys((contract.table for contract in relational), str(error))
    masked = [contract.table for contract in described if contract.needs_mask_key and contract.table not in reasons]
    if masked:
        try:
            _ = place.mask_key
        except UserError as error:
            reasons |= dict.fromkeys(masked, str(error))
    return reasons


def _compare(
    described: Sequence[Contract],
    reasons: dict[str, str],
    place: AnyLake,
    postgresql: _Postgresql,
    read: Callable[[Contract], Source],
    repairs: Mapping[str, Repairs],
    options: str,
    *,
    as_json: bool,
) -> bool:
    """Compare all tables once, and say whether they are equal.

    ``reasons`` say why further tables cannot be compared; ``options`` are as in ``next_steps``. Raises NotCompared at
    the end if a table could not be compared, and UserError if a repair failed.
    """
    found: dict[str, TableComparison] = {}
    waiting = list(described)
    with Console(stderr=True).status("Reading …") as status:

        def report(table: str, side: str, rows: int) -> None:
            status.update(f"{table}: {rows:,} rows of the {side}")

        while waiting:
            compared, failed = _compared(waiting, place, read, report)
            found |= {table.name: table for table in compared}
            # If comparing a table lost the connection, compare the tables after it over a new connection.
            waiting = _behind_loss(waiting, failed) if postgresql.is_lost else []
            reasons |= failed
    tables = [found[contract.table] for contract in described if contract.table in found]
    reasons = {name: reason for name, reason in reasons.items() if name not in found}
    if as_json:
        sys.stdout.write(json.dumps(comparison_document(tables, reasons, options), indent=1) + "\n")
    else:
        print_comparison(tables, options)
    unmended = []
    for contract in described:
        table = found.get(contract.table)
        if table is not None and contract.source.database in repairs and table.differs:
            try:
                repairs[contract.source.database].read(contract, [tuple(key.values()) for key in table.keys])
            except UserError as error:
                unmended.append(f"{contract.table}: the repair failed, its rows still differ: {error}")
    if reasons:
        for said in unmended:
            advise(said)
        raise NotCompared(tables, reasons)
    if unmended:
        raise UserError("\n".join(unmended))
    return all(table.equal for table in tables)


def _compared(
    described: Sequence[Contract], place: AnyLake, read: Callable[[Contract], Source], report: RowsRead
) -> tuple[Sequence[TableComparison], dict[str, str]]:
    """Compare tables, and say why some of them cannot be compared, by table."""
    try:
        # A source that has the key of masks reads tables without masks, too.
        by_mask = sorted(described, key=lambda contract: contract.needs_mask_key)
        sources_of = {contract.source.database: read(contract) for contract in by_mask}
        return verify_tables(described, sources_of, place.lake(), report), {}
    except NotCompared as error:
        return error.tables, error.reasons
    except UserError as error:
        return [], dict.fromkeys((contract.table for contract in described), str(error))


def _behind_loss(described: Sequence[Contract], failed: Container[str]) -> list[Contract]:
    """PostgreSQL's tables after the table during which the connection was lost."""
    relational = of_database(described, POSTGRESQL)
    after = list(itertools.takewhile(lambda contract: contract.table in failed, reversed(relational)))
    return after[::-1][1:]


def _watch(
    described: Sequence[Contract],
    reasons: Mapping[str, str],
    place: AnyLake,
    postgresql: _Postgresql,
    read: Callable[[Contract], PostgresqlSource | DynamoDbSource],
    repairs: Mapping[str, Repairs],
    *,
    every: float,
    once: bool,
) -> bool:
    """Compare all tables again and again, and say whether they are equal at the end.

    ``reasons`` say why further tables cannot be compared. With ``once``, raises NotCompared at the end if a table could
    not be compared.
    """
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
    equal = comparison.run(once=once)
    failures = {**reasons, **comparison.failures}
    if once and failures:
        raise NotCompared((), failures, len(described) + len(reasons) - len(failures))
    return equal


class _Postgresql:
    """The connection to PostgreSQL, which is made again if it was lost.

    Args:
        connector: Finds the login, and returns the function that connects.
    """

    def __init__(self, connector: Callable[[], Callable[[], psycopg.Connection]]) -> None:
        self._connector = connector
        self._connection: psycopg.Connection | None = None

    def prepare(self) -> None:
        """Find the login by the options, and ask for the password. Raises UserError."""
        _ = self._connect

    def connection(self) -> psycopg.Connection:
        """Return a connection that is in no transaction and, as far as is known, works.

        Raises UserError, and CredentialsRefused if the server no longer accepts the password.
        """
        # Within a transaction no other snapshot could be read.
        if self._connection is None or self._connection.info.transaction_status is not TransactionStatus.IDLE:
            self.close()
            self._connection = self._connect()
        return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection that there was has ended without ``close``."""
        return self._connection is not None and self._connection.closed

    def another(self) -> psycopg.Connection:
        """A connection for a thread of its own. Raises UserError."""
        return self._connect()

    def close(self) -> None:
        """Close the connection that there is."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @cached_property
    def _connect(self) -> Callable[[], psycopg.Connection]:
        return self._connector()

    def value(self, query: str) -> str:
        """The one text that a query gives. Raises UserError."""
        return sources.first_value(self.connection(), query)

"""``headwater resync``: have tables of PostgreSQL read again."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.db import Host, Name, Port, User, connect
from headwater.console import say
from headwater.contract.model import POSTGRESQL
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.order_database import administration
from headwater.paths import CONTRACTS


def resync(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="Lake tables, as their contracts are called.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All tables of PostgreSQL instead.")] = False,
    host: Host = "localhost",
    port: Port = 5432,
    user: User = "postgres",
    name: Name = "northwind",
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
) -> None:
    """Have the source connector read tables again beside their changes, so that the lake is as the source.

    Rows that were lost or spoiled come back, and those that the source no longer has go. No table stops for it.
    """
    sources = {contract.table: contract.source for contract in read_contracts(contracts)}
    if all_ == bool(tables):
        raise UserError("TABLE: found tables and --all, expected one of them" if all_ else "TABLE: found none")
    chosen = tables or [table for table, source in sources.items() if source.database == POSTGRESQL]
    for table in chosen:
        if table not in sources:
            raise UserError(f"TABLE: found {table!r}, expected one of {', '.join(sources)}, a contract in {contracts}")
        if sources[table].database != POSTGRESQL:
            raise UserError(f"{table}: found a table of DynamoDB, expected one of PostgreSQL: use headwater backfill")
    with connect(host, port, user, name) as connection:
        signal = administration.read_again(connection, sorted({sources[table].table for table in chosen}))
    say(f"Asked for {', '.join(chosen)} by the signal {signal}")
    say("The source connector reads them now. headwater verify tells when the lake is as the source.")

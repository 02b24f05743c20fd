"""``headwater replicate``: follow a PostgreSQL of your own into a lake on this machine."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer
from rich.console import Console

from headwater.commands import db
from headwater.commands.options import Folder
from headwater.commands.sources import refuse_without_contract
from headwater.commands.verify import comparison_table
from headwater.console import announce, keep_running, say
from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.packaging import artifacts
from headwater.verify import TableComparison
from rig.demo import replication


def replicate(
    name: Annotated[str, typer.Option("--database", help="The database's name.")],
    host: db.Host = "localhost",
    port: db.Port = 5432,
    keep: Annotated[bool, typer.Option("--keep", help="Go on until Ctrl-C, to query the lake meanwhile.")] = False,
    *,
    folder: Folder,
) -> None:
    """Read a PostgreSQL database of your own into a lake on this machine, follow its changes, and prove that the lake
    equals it.

    The database is prepared by `headwater db capture`, whose role reads it; HEADWATER_CDC_PASSWORD or a prompt gives
    the password. Command and connector use TLS if the server offers it, and trust the server as libpq's variables
    say, such as PGSSLMODE and PGSSLROOTCERT. Everything is as it is deployed: Debezium, Kafka, the S3 sink and the
    Spark writer. The lake ends with the next run, and the replication slot with this one, however it ends. The status
    is 1 if the lake differs.
    """
    every = read_contracts(folder.contracts)
    refuse_without_contract(every, POSTGRESQL, "--folder")
    described = of_database(every, POSTGRESQL)
    password = db.cdc_password()
    artifacts.build(announce)
    equal = False

    def compared(tables: list[TableComparison], addresses: Mapping[str, str], check: Callable[[], None]) -> None:
        nonlocal equal
        equal = all(table.equal for table in tables)
        Console().print(comparison_table(tables))
        say("The lake equals its source." if equal else "The lake differs from its source.")
        if keep:
            keep_running(addresses, check)

    replication.replicate(host, port, name, password, described, folder, announce, compared)
    if not equal:
        sys.exit(1)

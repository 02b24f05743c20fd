"""``headwater replicate``: follow your PostgreSQL database into a lake on this machine."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from headwater.commands import db
from headwater.commands.advice import advise
from headwater.commands.comparison_output import print_comparison
from headwater.commands.options import Folder
from headwater.commands.sources import refuse_without_contract
from headwater.console import announce, keep_running, say
from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.packaging import artifacts
from rig.demo import replication


def replicate(
    name: Annotated[str, typer.Option("--database", help="The database's name.")],
    host: db.Host = "localhost",
    port: db.Port = 5432,
    keep: Annotated[bool, typer.Option("--keep", help="Run until Ctrl-C, so that you can query the lake.")] = False,
    *,
    folder: Folder,
) -> None:
    """Replicate a PostgreSQL database into a lake on this machine, and prove that the lake equals the database.

    Prepare the database by `headwater db capture` first, whose role reads it. HEADWATER_CDC_PASSWORD or a prompt gives
    the role's password. Command and connector use TLS if the server offers it. They trust the server by libpq's
    variables, such as PGSSLMODE and PGSSLROOTCERT.

    The parts are the same as in a deployment: Debezium, Kafka, the S3 sink and the Spark writer. The next run replaces
    the lake. The replication slot ends with this run, even if the run is killed. The status is 1 if the lake differs,
    and 2 if a table could not be compared. All other tables are compared nevertheless.
    """
    every = read_contracts(folder.contracts)
    refuse_without_contract(every, POSTGRESQL, "--folder")
    described = of_database(every, POSTGRESQL)
    password = db.cdc_password()
    artifacts.build(announce)
    equal = False

    def compared(found: replication.Compared, addresses: Mapping[str, str], check: Callable[[], None]) -> None:
        nonlocal equal
        print_comparison(found.tables, None)
        equal = all(table.equal for table in found.tables)
        if found.failure is None:
            say("The lake equals its source." if equal else "The lake differs from its source.")
        if keep:
            if found.failure is not None:
                advise(str(found.failure))
            keep_running(addresses, check)
        if found.failure is not None:
            raise found.failure

    replication.replicate(host, port, name, password, described, folder, announce, compared)
    if not equal:
        sys.exit(1)

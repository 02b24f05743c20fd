"""``headwater replicate``: a PostgreSQL of one's own in a lake on this machine, with proof."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headwater.commands import db
from headwater.commands.verify import comparison_table
from headwater.console import announce, say
from headwater.contract.model import POSTGRESQL, of_database
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.folder_lock import claimed_empty
from headwater.local.own_database import OwnDatabase, OwnPipeline
from headwater.packaging import artifacts
from headwater.paths import RUN
from headwater.verify import TableComparison

_DRAIN_SECONDS = 24 * 3600
_COMPARISONS = 3


def replicate(
    name: Annotated[str, typer.Option("--database", help="The database's name.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")],
    host: db.Host = "localhost",
    port: db.Port = 5432,
    keep: Annotated[bool, typer.Option("--keep", help="Go on until Ctrl-C, to query the lake meanwhile.")] = False,
) -> None:
    """Read a PostgreSQL database of your own into a lake on this machine, follow its changes, and prove that the lake
    equals it.

    The database is prepared by `headwater db capture`, whose role reads it; HEADWATER_CDC_PASSWORD or a prompt gives
    the password. The server must take connections without TLS, as one on this machine does. Everything is as it is
    deployed: Debezium, Kafka, the S3 sink and the Spark writer. The lake ends with the next run, and the replication
    slot with this one. The status is 1 where the lake differs.
    """
    described = of_database(read_contracts(contracts), POSTGRESQL)
    if not described:
        raise UserError(f"{contracts}: found no contract of a PostgreSQL table, expected one at least")
    source = OwnDatabase(host, port, name, db.cdc_password())
    artifacts.build(announce)
    folder = RUN / "replicate"
    with (
        claimed_empty(folder, "headwater replicate"),
        OwnPipeline(folder, described, contracts, source) as pipeline,
    ):
        with announce("Starting the AWS API and Kafka"):
            pipeline.start_source()
            pipeline.start_stream()
        with announce("Starting Kafka Connect with Debezium and the S3 sink, and the Spark writer"):
            pipeline.start_writer()
            pipeline.start_connect()
        tables = _compared(pipeline)
        Console().print(comparison_table(tables))
        equal = all(table.equal for table in tables)
        say("The lake equals its source." if equal else "The lake differs from its source.")
        if keep:
            _keep(pipeline.addresses())
    if not equal:
        sys.exit(1)


def _compared(pipeline: OwnPipeline) -> list[TableComparison]:
    """The comparison once the lake has caught up. The source may have gone on meanwhile: what differs is looked at
    again."""
    for _ in range(_COMPARISONS):
        with announce("Waiting for every row and change so far to reach the lake"):
            pipeline.drain(_DRAIN_SECONDS)
        with announce("Comparing the lake with its source"):
            tables = pipeline.verify()
        if all(table.equal for table in tables):
            break
    return tables


def _keep(addresses: Mapping[str, str]) -> None:
    say("Everything keeps running until you press Ctrl-C:")
    for name, address in addresses.items():
        say(f"  {name}: {address}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        say("Stopping")

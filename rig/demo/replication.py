"""Replication of an existing PostgreSQL database to a lake on this machine, and the proof that the lake equals it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.console import Announce
from headwater.contract.model import Contract
from headwater.folder_lock import claimed_empty
from headwater.lake_folder import LakeFolder
from headwater.verify import NotCompared, TableComparison
from rig.local.own_database import OwnDatabase, OwnPipeline

# A large database may commit little for a long time.
_PATIENCE_SECONDS = 2 * 3600.0
_COMPARISONS = 3


@dataclass(frozen=True)
class Compared:
    """A comparison of the source with the lake."""

    tables: Sequence[TableComparison]
    """The tables that could be compared."""
    failure: NotCompared | None
    """Why the others could not be; None if there are none."""


def replicate(
    host: str,
    port: int,
    name: str,
    password: str,
    contracts: Sequence[Contract],
    lake_folder: LakeFolder,
    announce: Announce,
    compared: Callable[[Compared, Mapping[str, str], Callable[[], None]], None],
) -> None:
    """Run the pipeline from the database ``name``, which ``headwater db capture`` has prepared.

    ``password`` is the connector's. ``compared`` is called with the comparison of lake and source, the parts'
    addresses, and a function that raises ProcessError if a part has ended. The parts stop when ``compared`` returns.
    Raises UserError if a part is missing, dies or does not drain.
    """
    folder = lake_folder.run / "replicate"
    source = OwnDatabase(host, port, name, password, folder)
    with (
        claimed_empty(folder, "headwater replicate"),
        OwnPipeline(folder, contracts, lake_folder, source) as pipeline,
    ):
        with announce("Starting the AWS API and Kafka"):
            pipeline.start_source()
            pipeline.start_stream()
        with announce("Starting Kafka Connect with Debezium and the S3 sink, and the Spark writer"):
            pipeline.start_writer()
            pipeline.start_connect()

        def check() -> None:
            pipeline.check()
            pipeline.writer.check()

        compared(_compare(pipeline, announce), pipeline.addresses(), check)


def _compare(pipeline: OwnPipeline, announce: Announce) -> Compared:
    """Compare the lake with its source once the lake has caught up.

    Tables that differ are compared again, since the source may have changed in the meantime.
    """
    for _ in range(_COMPARISONS):
        with announce("Waiting for every row and change so far to reach the lake"):
            pipeline.drain(_PATIENCE_SECONDS)
        with announce("Comparing the lake with its source"):
            try:
                found = Compared(pipeline.verify(), None)
            except NotCompared as error:
                found = Compared(error.tables, error)
        if all(table.equal for table in found.tables):
            break
    return found

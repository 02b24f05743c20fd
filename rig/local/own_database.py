"""The relational pipeline on this machine from a PostgreSQL database that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psycopg

from headwater.console import say
from headwater.contract.model import Contract
from headwater.definitions import source_checks
from headwater.definitions.connectors import SLOT
from headwater.definitions.left_slot import COST, DROP_STATEMENT, unread_slot
from headwater.definitions.source_database import CDC_ROLE
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.postgresql.trust_advice import trust_advice
from rig.local.libpq_trust import connector_host, connector_options
from rig.local.pipeline import DatabaseServer, Pipeline
from rig.local.processes import Part
from rig.local.slot_watcher import SlotWatcher

_CONNECT_SECONDS = 10


class OwnDatabase:
    """The database ``name`` of a server, which ``headwater db capture`` has prepared; ``password`` is the connector's.
    libpq's variables say whether TLS is used, and who is trusted.

    While it is a source it has the replication slot, which keeps the server's log for the lake. The lake ends with this
    machine's pipeline, so a process that outlives this one drops the slot, however this one ends. ``folder`` takes that
    process's log, and what it claims is beside it.
    """

    def __init__(self, host: str, port: int, name: str, password: str, folder: Path) -> None:
        self.host = host
        self.port = port
        self.name = name
        self.password = password
        self._login: dict[str, str | int] = {
            "host": host,
            "port": port,
            "dbname": name,
            "user": CDC_ROLE,
            "password": password,
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "headwater",
        }
        claimed = folder.with_name(f"{folder.name}-slot-of-{host}-{port}".replace("/", "-"))
        self._watcher = SlotWatcher(self._login, SLOT, claimed, folder / "slot.log")

    def server(self) -> DatabaseServer:
        """The server as the source connector has to reach and trust it, so that it does as ``connect`` does. Raises
        UserError if it cannot."""
        return DatabaseServer(connector_host(self.host), self.port, connector_options())

    def connect(self) -> psycopg.Connection:
        """Connect as the source connector's role. Raises UserError if that is not possible."""
        try:
            return psycopg.connect(**self._login, autocommit=True)  # type: ignore[arg-type]
        except psycopg.OperationalError as error:
            message = str(error).strip()
            raise UserError(
                f"Cannot connect to {self.name} on {self.host}:{self.port} as {CDC_ROLE}: {message}. Run headwater db "
                f"capture first, and check HEADWATER_CDC_PASSWORD.{trust_advice(message)}"
            ) from None

    def __enter__(self) -> Self:
        with self.connect() as connection:
            self._watcher.start()
            try:
                self._refuse_slot(connection)
            except BaseException:
                self._watcher.end()
                raise
        self._watcher.take()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        stays = self._watcher.end()
        if stays:
            problem = f"{self.name}: the replication slot {SLOT} stays: {stays}. {COST} Drop it there: {DROP_STATEMENT}"
            if kind is None:
                raise UserError(problem)
            say(problem)

    def _refuse_slot(self, connection: psycopg.Connection) -> None:
        """Raise UserError if the server has the slot already."""
        unread = unread_slot(lambda query: connection.execute(query.encode()).fetchall())
        if unread is not None:
            raise UserError(f"{self.name}: found {unread.found}, expected none: {unread.action}")
        read = connection.execute("SELECT database FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
        if read is not None:
            raise UserError(
                f"{self.name}: found a replication slot {SLOT} of the database {read[0]} that a connector reads, "
                "expected none. A second reader of the slot would take changes from that connector: use a server "
                "that no connector reads"
            )


class OwnPipeline(Pipeline):
    """The pipeline of one's own ``database``, whose tables ``contracts`` describe."""

    def __init__(
        self, folder: Path, contracts: Sequence[Contract], lake_folder: LakeFolder, database: OwnDatabase
    ) -> None:
        super().__init__(folder, contracts, lake_folder)
        self._own = database
        self.database = database.name
        self.passwords = {CDC_ROLE: database.password}

    def start_source(self) -> None:
        """Take the database for this pipeline, until it ends.

        Raises UserError if the database is not as the contracts need it, because the comparison would read by the same
        rights as the capture. Also raises it if the source connector cannot connect as this process does.
        """
        self.server = self._own.server()
        self.enter_context(self._own)
        with self._own.connect() as connection:
            found = source_checks.findings(
                self.contracts, CDC_ROLE, lambda query: connection.execute(query.encode()).fetchall()
            )
        problems = [str(finding) for finding in found if finding.level in source_checks.PROBLEMS]
        if problems:
            raise UserError(f"{self._own.name} is not as its contracts need it. {'. '.join(problems)}")

    def source(self) -> psycopg.Connection:
        """Connect as the source connector's role."""
        return self._own.connect()

    def addresses(self) -> dict[str, str]:
        """How a person reaches the lake: addresses and a command, by name."""
        return {"S3": self.aws.s3_endpoint, "Query it": self.query_command(), "Folder": str(self.folder)}

    def _parts(self) -> list[Part]:
        return [self.aws, self.broker, self.connect]

"""The relational pipeline on this machine from an existing PostgreSQL database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg

from headwater.console import say
from headwater.contract.model import Contract
from headwater.definitions import source_checks
from headwater.definitions.connectors import SLOT
from headwater.definitions.left_slot import COST, DROP_STATEMENT, unread_slot
from headwater.definitions.open_transactions import FIND_SLOT, LEFT, LONG, LONG_SECONDS, UNKNOWN, open_transactions
from headwater.definitions.source_database import CDC_ROLE
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.postgresql.queries import query_of
from headwater.postgresql.trust_advice import trust_advice
from rig.local.libpq_trust import connector_host, connector_options
from rig.local.pipeline import DatabaseServer, Pipeline
from rig.local.processes import Part
from rig.local.slot_watcher import SlotWatcher

_CONNECT_SECONDS = 10
_POLL_SECONDS = 1.0


class OwnDatabase:
    """The database ``name`` of a server, prepared by ``headwater db capture``.

    ``password`` is the connector's. libpq's variables decide whether TLS is used, and which servers are trusted.

    While the database is a source, its replication slot makes the server keep WAL for the lake. The lake ends with this
    machine's pipeline. So a separate process drops the slot after this process has ended for any reason. ``folder``
    takes that process's log. Beside it lies the folder that the process claims.
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
        """The server's address and TLS options for the source connector, so that both connect in the same way.

        Raises UserError if the connector cannot.
        """
        return DatabaseServer(connector_host(self.host), self.port, connector_options())

    def connect(self) -> psycopg.Connection:
        """Connect as the source connector's role. Raises UserError if that fails."""
        try:
            return psycopg.connect(**self._login, autocommit=True)  # type: ignore[arg-type]
        except psycopg.OperationalError as error:
            message = str(error).strip()
            raise UserError(
                f"Cannot connect to {self.name} on {self.host}:{self.port} as {CDC_ROLE}: {message}. Run `headwater db "
                f"capture` first, and check HEADWATER_CDC_PASSWORD.{trust_advice(message)}"
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
            problem = (
                f"{self.name}: the replication slot {SLOT} stays: {stays}. {COST} Drop it in that database: "
                f"{DROP_STATEMENT}"
            )
            if kind is None:
                raise UserError(problem)
            say(problem)

    def _refuse_slot(self, connection: psycopg.Connection) -> None:
        """Raise UserError if the server has the slot already."""
        unread = unread_slot(query_of(connection))
        if unread is not None:
            raise UserError(f"{self.name}: found {unread.found}, expected none: {unread.action}")
        read = connection.execute("SELECT database FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
        if read is not None:
            raise UserError(
                f"{self.name}: found a replication slot {SLOT} of the database {read[0]} that a connector reads, "
                "expected none. A second reader of the slot would take changes from that connector: use a server "
                "that no connector reads"
            )


@contextmanager
def slot_awaited(connect: Callable[[], psycopg.Connection], tell: Callable[[str], None] = say) -> Iterator[None]:
    """In this context, report each transaction that the slot's creation waits for, once, until the slot exists.

    ``connect`` returns a connection to the slot's server, as any role.
    """
    ended = threading.Event()
    watching = threading.Thread(target=_tell_waits, args=(connect, tell, ended), daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _tell_waits(connect: Callable[[], psycopg.Connection], tell: Callable[[str], None], ended: threading.Event) -> None:
    seen: dict[str, float] = {}
    told: set[str] = set()
    # The commands beside report a server that does not answer.
    with suppress(psycopg.Error, UserError), connect() as connection:
        query = query_of(connection)
        while not ended.wait(_POLL_SECONDS) and not query(FIND_SLOT):
            for each in open_transactions(query, [LEFT, LONG, UNKNOWN]):
                # The connector's role does not see for how long another role's are open.
                is_long = time.monotonic() - seen.setdefault(each.name, time.monotonic()) >= LONG_SECONDS
                if each.name not in told and (is_long or each.state != UNKNOWN):
                    told.add(each.name)
                    tell(f"Waiting: found {each.found}: {each.action}")


class OwnPipeline(Pipeline):
    """The pipeline of a user's ``database``, whose tables ``contracts`` describe."""

    def __init__(
        self, folder: Path, contracts: Sequence[Contract], lake_folder: LakeFolder, database: OwnDatabase
    ) -> None:
        super().__init__(folder, contracts, lake_folder)
        self._own = database
        self.database = database.name
        self.passwords = {CDC_ROLE: database.password}

    def start_source(self) -> None:
        """Take the database for this pipeline, until the pipeline ends.

        Raises UserError if the database does not fit the contracts. The comparison reads with the connector's rights,
        so missing rights could hide differences. Also raises it if the source connector cannot connect as this process
        does. Also raises it if a prepared transaction seems to be left and keeps the connector from making its slot.
        """
        self.server = self._own.server()
        self.enter_context(self._own)
        with self._own.connect() as connection:
            query = query_of(connection)
            found = source_checks.findings(self.contracts, CDC_ROLE, query)
            left = open_transactions(query, [LEFT])
        problems = [str(finding) for finding in found if finding.level in source_checks.PROBLEMS]
        if problems:
            raise UserError(f"{self._own.name} is not as its contracts need it. {'. '.join(problems)}")
        if left:
            reasons = ". ".join(f"Found {each.found}: {each.action}" for each in left)
            raise UserError(f"{self._own.name}: {reasons}")
        self.enter_context(slot_awaited(self._own.connect))

    def source(self) -> psycopg.Connection:
        """Connect as the source connector's role."""
        return self._own.connect()

    def addresses(self) -> dict[str, str]:
        """Addresses and a command for a person to reach the lake, by name."""
        return {"S3": self.aws.s3_endpoint, "Query it": self.query_command(), "Folder": str(self.folder)}

    def _parts(self) -> list[Part]:
        return [self.aws, self.broker, self.connect]

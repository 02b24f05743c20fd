"""The environment ``local``, deployed by CDK's command line to a local AWS that begins and ends with the demo."""

from __future__ import annotations

import platform
import re
import shlex
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import psutil
import psycopg

from headwater import private_files
from headwater.contract.masks import read_key
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import CaptureSettings
from headwater.errors import UserError
from headwater.log_files import tail
from headwater.verify import (
    DynamoDbSource,
    Lake,
    PostgresqlSource,
    Source,
    TableComparison,
    load_queries,
    s3_options,
    verify_tables,
)
from rig.local.processes import Part, Process, Program, private_bytes
from rig.local_aws import daemon, logins
from rig.local_aws.checkout import Checkout
from rig.local_aws.daemon import Running

ENVIRONMENT = "local"
DATABASE = "northwind"
"""The name of the example's database."""
_PATIENCE_SECONDS = 600.0
# The names of programs for people, by the folder of each below the account's folder; all others are the account itself.
_PARTS = {
    "rds": "PostgreSQL",
    "msk": "Kafka",
    "connect": "Kafka Connect",
    "emr": "EMR (Spark)",
    "glue": "Glue (Spark)",
    "dynamodb": "DynamoDB",
    "s3": "S3",
}
_REST = "AWS's other services"


class _LocalAws(Part):
    """The local AWS of a checkout. It ends with this process, however the process ends."""

    name = "the local AWS"

    def __init__(self, checkout: Checkout) -> None:
        super().__init__(checkout.account)
        self._checkout = checkout

    def _prepare(self) -> Process:
        daemon.warn_of_root()
        program = Program(
            self.name,
            daemon.command(self.folder),
            daemon.log_of(self.folder),
            env=self._checkout.environment(),
            cwd=self._checkout.folder,
        )
        return Process(program, ready=lambda: Running.find(self.folder) is not None)


class LocalDeployment(ExitStack):
    """A deployment from a checkout below ``folder``, and its use by a person or an application.

    The deployment exists from the return of ``deploy`` until the block is left.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.checkout: Checkout
        self.account: Running
        self._local_aws: _LocalAws
        self._commands: set[Process] = set()
        self._interrupted = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start an empty AWS account."""
        self.checkout = Checkout(self.folder / "checkout")
        if platform.machine() in ("aarch64", "arm64"):
            # The nodes' Python packages are for this machine's processor.
            settings = self.checkout.folder / "config" / "local.yaml"
            settings.write_text(settings.read_text().replace(": r7i.", ": r7g."))
        self._local_aws = self.enter_context(_LocalAws(self.checkout))
        found = Running.find(self.checkout.account)
        if found is None:
            raise UserError(f"the local AWS has ended:\n{tail(daemon.log_of(self.checkout.account))}")
        self.account = found

    def release(self) -> Checkout:
        """Another checkout, for the same account, from which the deployment may be updated."""
        return Checkout(self.folder / "release", beside=self.checkout)

    def synthesize(self, checkout: Checkout) -> None:
        """Make a checkout's assets and synthesize its stacks, so that its deployment takes less time."""
        self._run(checkout, "headwater synth", checkout.headwater("synth", "--env", ENVIRONMENT))

    def deploy(self, checkout: Checkout) -> None:
        """Deploy a checkout's stacks. Raises UserError with the end of CDK's output on failure."""
        self._run(checkout, "headwater deploy", checkout.headwater("deploy", "--env", ENVIRONMENT))

    def destroy(self) -> None:
        """Destroy everything, like ``make destroy``."""
        self._run(self.checkout, "headwater destroy", self.checkout.headwater("destroy", "--env", ENVIRONMENT))

    def interrupt(self) -> None:
        """End the running commands, so that nobody waits for them, and start no others."""
        with self._lock:
            self._interrupted = True
            for command in self._commands:
                if command.running:
                    psutil.Process(command.pid).terminate()

    def check(self) -> None:
        """Raise ``ProcessError`` unless the local AWS runs. Failed parts within it are restarted as on AWS."""
        self._local_aws.check()

    def connect(self, role: str) -> psycopg.Connection:
        """Connect to the order database with the login of ``owner``, ``app``, ``cdc`` or ``reader``."""
        return logins.connect(self.account.client, self.checkout.account, role, DATABASE)

    def contracts(self, checkout: Checkout | None = None) -> list[Contract]:
        """The contracts of a checkout, by default of the first one, for the tables that the deployment has made."""
        return [
            replace(contract, source=replace(contract.source, table=f"headwater-{ENVIRONMENT}-{contract.table}"))
            if contract.source.database == DYNAMODB
            else contract
            for contract in read_contracts((checkout or self.checkout).folder / "contracts")
        ]

    @cached_property
    def lake(self) -> Lake:
        """A reader of the lake with all rights. Raises UserError if the lake is not deployed."""
        variables = self.account.environment
        names = ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        return Lake(f"s3://{self._bucket('Lake')}/lake", s3_options(*(variables[name] for name in names)))

    @property
    def landing(self) -> str:
        """The folder where the topics land. Raises UserError if it is not deployed."""
        return f"s3://{self._bucket('Landing')}/{CaptureSettings.landing_prefix}"

    def _bucket(self, name: str) -> str:
        exports = self.account.client("cloudformation").list_exports()["Exports"]
        prefix = f"headwater-{ENVIRONMENT}-lake:ExportsOutputRef{name}"
        buckets = [export["Value"] for export in exports if export["Name"].startswith(prefix)]
        if len(buckets) != 1:
            raise UserError(f"exports of CloudFormation: found {len(buckets)} for {prefix}, expected one")
        return str(buckets[0])

    def verify(self, contracts: Sequence[Contract]) -> list[TableComparison]:
        """Compare every contract's source with its lake table."""
        mask_key = None
        if any(contract.needs_mask_key for contract in contracts):
            mask_key = read_key(self.account.client("secretsmanager"), f"headwater/{ENVIRONMENT}/mask")
        queries = load_queries(contracts, self.checkout.folder / "contracts")
        sources: dict[str, Source] = {}
        with ExitStack() as opened:
            if of_database(contracts, POSTGRESQL):
                reader = opened.enter_context(self.connect("reader"))
                sources[POSTGRESQL] = PostgresqlSource(reader, queries, mask_key)
            if of_database(contracts, DYNAMODB):
                sources[DYNAMODB] = DynamoDbSource(self.account.client("dynamodb"), mask_key=mask_key)
            return verify_tables(contracts, sources, self.lake)

    def memory_bytes(self) -> dict[str, int]:
        """The private memory of each part in bytes, now."""
        sizes: dict[str, int] = {}
        try:
            account = psutil.Process(self.account.pid)
            programs = [account, *account.children(recursive=True)]
        except psutil.NoSuchProcess:
            return {}
        for program in programs:
            try:
                told = f"{program.cwd()} {' '.join(program.cmdline())}"
                size = private_bytes(program)
            except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
                continue
            within = re.search(rf"{re.escape(str(self.checkout.account))}/(\w+)", told)
            part = _PARTS.get(within[1], _REST) if within else _REST
            sizes[part] = sizes.get(part, 0) + size
        return sizes

    def addresses(self) -> dict[str, str]:
        """Addresses and commands for a person to reach the deployment's parts, by name."""
        variables = f". {shlex.quote(str(daemon.variables_of(self.checkout.account)))}"
        psql = {"PostgreSQL": self._psql()} if of_database(self.contracts(), POSTGRESQL) else {}
        return {
            **psql,
            "AWS": variables,
            "How it is": f"{variables} && .venv/bin/headwater status --env {ENVIRONMENT}",
            "Lake": self.lake.uri,
            "Folder": str(self.checkout.folder),
        }

    def _psql(self) -> str:
        """The command that opens the order database as its owner."""
        owner = logins.login(self.account.client, "owner")
        # Variables for libpq, beside those for AWS's tools.
        of_owner = self.checkout.account / "owner"
        private_files.write_variables(
            of_owner,
            {
                "PGHOST": owner["host"],
                "PGPORT": str(owner["port"]),
                "PGDATABASE": DATABASE,
                "PGUSER": owner["username"],
                "PGPASSWORD": owner["password"],
                "PGSSLMODE": "verify-full",
                "PGSSLROOTCERT": str(self.checkout.account.with_name("authority.pem")),
            },
        )
        return f". {shlex.quote(str(of_owner))} && psql"

    def _run(self, checkout: Checkout, name: str, command: Sequence[str]) -> None:
        log = checkout.folder / "build" / "logs" / f"{name.replace(' ', '-')}.log"
        process = Process(Program(name, command, log, env=checkout.environment(), cwd=checkout.folder))
        with self._lock:
            if self._interrupted:
                raise UserError(f"{name}: not started, because the demo ends")
            process.start()
            self._commands.add(process)
        try:
            _succeed(process)
        finally:
            with self._lock:
                self._commands.remove(process)
            process.stop()


def _succeed(process: Process) -> None:
    """Wait until a command has succeeded. Raises UserError with the end of its log if it fails."""
    if process.await_end(_PATIENCE_SECONDS):
        process.check()

"""The relational pipeline on this machine: all its parts, connected as CDK connects them on AWS."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import psycopg

from headwater.console import Announce
from headwater.contract.masks import KEY_FIELD
from headwater.contract.model import POSTGRESQL, Contract, change_history, lake_tables, of_database
from headwater.definitions import connectors, writers
from headwater.definitions.connectors import CaptureSettings
from headwater.definitions.database_files import read_database_files
from headwater.definitions.glue_table import table_input
from headwater.definitions.source_database import CDC_ROLE, ROLES
from headwater.definitions.writers import LakePlace
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS
from headwater.lake.base.s3_uri import object_uri, split_uri
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.paths import ROOT
from headwater.postgresql import administration
from headwater.postgresql.queries import single_value
from headwater.verify import Lake, PostgresqlSource, TableComparison, load_queries, s3_options, verify_tables
from headwater.waiting import PATIENCE_SECONDS, wait_until
from rig.local import aws, spark
from rig.local.aws import AwsApi
from rig.local.connect import ConnectWorker
from rig.local.kafka import Broker
from rig.local.postgresql_server import PostgresqlServer
from rig.local.processes import Part, Process, ProcessError, private_bytes
from rig.local.spark import SparkJob
from rig.local.tls_front import TlsFront

DATABASE = "northwind"
"""The name of the example's database."""
GLUE_DATABASE = "headwater_local"
ENVIRONMENT = "local"
LANDING_BUCKET = "headwater-landing"
LAKE_BUCKET = "headwater-lake"
SECRET_NAME = "headwater/local/cdc"  # noqa: S105  # a name, not the secret
FORGET_SECRET = "headwater/local/forget"  # noqa: S105  # a name, not the secret
MASK_SECRET = "headwater/local/mask"  # noqa: S105  # a name, not the secret
LAKE = f"s3://{LAKE_BUCKET}/lake"
PLACE = LakePlace(LAKE, GLUE_DATABASE, FORGET_SECRET)
LEASE = ("--lease-seconds", "6")
"""Arguments of both writers besides a deployment's: tests kill writers, and the next one should not wait long."""


@dataclass(frozen=True)
class Spread:
    """How the records of a table are spread over partitions and tasks."""

    partitions: int = 1
    """The number of partitions of each table's topic."""
    sink_tasks: int = 1
    """The number of the sink's tasks, which share the partitions."""


@dataclass(frozen=True)
class DatabaseServer:
    """The database server's address and TLS options for the source connector."""

    host: str
    port: int
    tls: Mapping[str, str]
    """The connector's options that decide which server it trusts."""


class Pipeline(ExitStack):
    """PostgreSQL, Kafka, Kafka Connect, an AWS API and the Spark writer below one folder.

    ``contracts`` and settings come from ``lake_folder``. The pipeline captures PostgreSQL's tables; the lake gets the
    tables of all contracts. Tests create their own tables with ``sql``, which runs first in the new database.
    """

    def __init__(
        self,
        folder: Path,
        contracts: Sequence[Contract],
        lake_folder: LakeFolder = EXAMPLE,
        sql: str = "",
        spread: Spread = Spread(),
        snapshot_mode: str = CaptureSettings.snapshot_mode,
        flush_ms: int = CaptureSettings.flush_ms,
    ) -> None:
        super().__init__()
        if not of_database(contracts, POSTGRESQL):
            raise UserError("contracts: found no contract of PostgreSQL, expected at least one")
        self._snapshot_mode = snapshot_mode
        self._flush_ms = flush_ms
        self.folder = folder.resolve()
        self.contracts = of_database(contracts, POSTGRESQL)
        self._catalogued = list(contracts)
        self.lake_folder = lake_folder
        self.postgres = PostgresqlServer(self.folder / "postgres")
        self.front = TlsFront(self.folder / "front", self.postgres)
        self.aws = AwsApi(self.folder / "aws")
        self.broker = Broker(self.folder / "kafka", connectors.broker_config())
        settings = local_environment(lake_folder).database
        self.database = DATABASE if settings is None else settings.name
        self.passwords = {role: secrets.token_urlsafe(16) for role in ROLES}
        self.mask_key = new_mask_key()
        self.server: DatabaseServer
        self.connect: ConnectWorker
        self.settings: CaptureSettings
        self.writer: Process
        self.events = EventLog(self.folder / "spark" / "events.jsonl", self.contracts)
        self._sql = sql
        self._spread = spread

    def start_source(self) -> None:
        """Start PostgreSQL and create the database of the lake folder."""
        self.enter_context(self.postgres)
        self.enter_context(self.front)
        self.server = DatabaseServer(self.front.host, self.front.port, connectors.verified_by(self.front.root))
        with self.postgres.connect() as admin:
            admin.execute(f"CREATE DATABASE {self.database}".encode())
        with self.postgres.connect(self.database) as owner:
            if self._sql:
                owner.execute(self._sql.encode())
            files = read_database_files(self.lake_folder.database)
            administration.create(owner, self.passwords, self.contracts, files)

    def start_stream(self) -> None:
        """Start the AWS API and Kafka, and create the resources that the connectors need in both."""
        start_lake(self, self.aws, self._catalogued, self.mask_key)
        secret = {"username": CDC_ROLE, "password": self.passwords[CDC_ROLE]}
        self.aws.client("secretsmanager").create_secret(Name=SECRET_NAME, SecretString=json.dumps(secret))
        self.enter_context(self.broker)
        self.settings = CaptureSettings(
            environment=ENVIRONMENT,
            region=aws.REGION,
            database_host=self.server.host,
            database_port=str(self.server.port),
            database_tls=self.server.tls,
            database_name=self.database,
            database_secret=SECRET_NAME,
            landing_bucket=LANDING_BUCKET,
            aws_endpoint=self.aws.endpoint,
            s3_endpoint=self.aws.s3_endpoint,
            mask_secret=MASK_SECRET,
            topic_partitions=self._spread.partitions,
            sink_tasks=self._spread.sink_tasks,
            snapshot_mode=self._snapshot_mode,
            flush_ms=self._flush_ms,
        )
        self.broker.create_topics(connectors.topics(self.contracts, self.settings), connectors.topic_config())

    @property
    def landing(self) -> str:
        """The sink's landing folder: ``s3://bucket/prefix``."""
        return f"s3://{self.settings.landing_bucket}/{self.settings.landing_prefix}"

    @property
    def topics(self) -> dict[str, str]:
        """The topic of each contract's table, by the table's name."""
        return {contract.table: connectors.topic(contract, self.settings.topic_prefix) for contract in self.contracts}

    @property
    def connector_names(self) -> tuple[str, str]:
        """The names of the source and sink connectors."""
        return connectors.source_name(self.settings), connectors.sink_name(self.settings)

    def start_connect(self) -> None:
        """Start the Connect worker with both connectors."""
        self.connect = ConnectWorker(
            self.folder / "connect",
            self.broker.access,
            connectors.worker_properties(self.settings),
            environment=aws.environment(self.aws.credentials),
        )
        self.enter_context(self.connect)
        for render in (connectors.source_connector, connectors.sink_connector):
            name, config = render(self.contracts, self.settings)
            self.connect.put(name, config)
        for name in self.connector_names:
            self.connect.await_running(name)

    def start_writer(
        self,
        *arguments: str,
        idle_seconds_max: float = FIRST_PAUSE_SECONDS,
        memory: str = spark.DRIVER_MEMORY,
        optimized: bool = False,
    ) -> Process:
        """Start the EMR step's script. With ``--once`` among the arguments the script drains and exits.

        ``memory`` and ``optimized`` are as in ``SparkJob``.
        """
        rendered = writers.step_arguments(
            [contract_address(contract) for contract in self.contracts],
            PLACE,
            local_environment(self.lake_folder).lake,
            landing=self.landing,
            idle_seconds_max=idle_seconds_max,
            awaits_backfill=self._snapshot_mode == connectors.NO_DATA,
        )
        job = SparkJob(
            ROOT / "emr_steps" / "write_hudi.py", [*rendered, *LEASE, *arguments], "the Spark writer", memory, optimized
        )
        self.writer = self.enter_context(spark.submit(job, self.folder / "spark", self.aws))
        return self.writer

    def start(
        self,
        announce: Announce,
        load: Callable[[psycopg.Connection], None],
        *writer_arguments: str,
        idle_seconds_max: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        """Start everything. ``load`` fills the database before the first snapshot."""
        with announce("Starting PostgreSQL and creating the database"):
            self.start_source()
        with announce("Loading the database"), self.postgres.connect(self.database) as owner:
            load(owner)
        with announce("Starting the AWS API and Kafka"):
            self.start_stream()
        with announce("Starting Kafka Connect with Debezium and the S3 sink, and the Spark writer"):
            self.start_writer(*writer_arguments, idle_seconds_max=idle_seconds_max)
            self.start_connect()

    def source(self) -> psycopg.Connection:
        """Connect to the source as a role that may read its tables and write the heartbeat."""
        return self.postgres.connect(self.database)

    def application(self) -> psycopg.Connection:
        """Connect as the application that changes orders."""
        return self.postgres.connect(self.database, "headwater_app", self.passwords["headwater_app"])

    def await_captured(self, patience: float = PATIENCE_SECONDS) -> dict[str, int]:
        """Wait until Debezium has confirmed every change that the source has committed so far.

        Returns the next offset of every ``topic/partition`` that holds changes of the tables. ``patience`` means the
        same as in ``wait_until``, which raises ``StuckError``.
        """
        topics = connectors.table_topics(self.contracts, self.settings)
        with self.source() as owner:
            now = single_value(owner, "SELECT pg_current_wal_insert_lsn()")
            # This makes an event after that position: a connector confirms only positions of events that it has sent.
            owner.execute("UPDATE capture.heartbeat SET beat_at = clock_timestamp() WHERE id = 1")
            confirmed = (
                "SELECT coalesce(bool_and(confirmed_flush_lsn > %s::pg_lsn), false) FROM pg_replication_slots "
                "WHERE slot_name = %s"
            )

            def all_confirmed() -> bool:
                self.check()
                return bool(single_value(owner, confirmed, (now, connectors.SLOT)))

            def progress() -> dict[str, object]:
                return {
                    "confirmed": single_value(owner, "SELECT max(confirmed_flush_lsn)::text FROM pg_replication_slots"),
                    "records in Kafka": sum(self.broker.ends(topics).values()),
                }

            wait_until("Debezium to confirm the source's WAL", all_confirmed, progress, patience=patience)
        return {f"{topic}/{part}": end for (topic, part), end in self.broker.ends(topics).items() if end}

    def drain(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until every change that the source has committed so far is in the lake.

        The writer must be running. ``patience`` means the same as in ``wait_until``, which raises ``StuckError``.
        """
        ends = self.await_captured(patience)
        wait_until(
            "the writer to reach the ends of the topics",
            lambda: self._reached(ends),
            self.events.progress,
            poll=0.25,
            patience=patience,
        )

    def check(self) -> None:
        """Raise ``ProcessError`` if a part other than the writer has ended or a connector's task has failed."""
        for part in self._parts():
            part.check()
        for name in self.connector_names:
            for task in self.connect.status(name)["tasks"]:
                if task["state"] == "FAILED":
                    raise ProcessError(f"the connector {name} failed:\n{task.get('trace', '(no trace)')}")

    def _parts(self) -> list[Part]:
        return [self.postgres, self.front, self.aws, self.broker, self.connect]

    def _reached(self, ends: Mapping[str, int]) -> bool:
        cursor = self.events.cursor()
        behind = sum(max(0, end - cursor.get(source, 0)) for source, end in ends.items())
        if behind:
            self.writer.check()
            self.check()
        return behind == 0

    def verify(self) -> list[TableComparison]:
        """Compare every table of the source with its lake table."""
        queries = load_queries(self.contracts, self.lake_folder.contracts)
        with self.source() as reader:
            sources = {POSTGRESQL: PostgresqlSource(reader, queries, self.mask_key)}
            return verify_tables(self.contracts, sources, self.lake())

    def commits(self) -> list[dict[str, Any]]:
        """The writer's commits so far."""
        return self.events.commits()

    def lake(self) -> Lake:
        """A reader of the lake that the writer writes."""
        return local_lake(self.aws)

    def memory_bytes(self) -> dict[str, int]:
        """The private memory of each part in bytes, now."""
        pids = {
            "PostgreSQL": self.postgres.pid,
            "TLS": self.front.pid,
            "Kafka": self.broker.pid,
            "Kafka Connect": self.connect.pid,
            "Spark": self.writer.pid,
        }
        return {name: bytes_of_part(pid) for name, pid in pids.items()} | lake_memory_bytes(self.aws)

    def addresses(self) -> dict[str, str]:
        """Addresses and commands for a person while the demo keeps the parts running, by name."""
        client, curl = (shlex.quote(str(path)) for path in (self.broker.client_properties, self.connect.curl_options))
        return {
            "PostgreSQL": f"host={self.postgres.host} port={self.postgres.port} dbname={self.database} "
            f"user={self.postgres.superuser}, with the password in {self.postgres.folder / 'password'}",
            "Kafka": f"--bootstrap-server {self.broker.bootstrap} --command-config {client}",
            "Kafka Connect": f"curl --config {curl} {self.connect.url}/connectors",
        }

    def query_command(self) -> str:
        """The command that queries this lake."""
        return _query_command(self.aws, self.contracts, self.lake_folder)


class EventLog:
    """A writer's events, read while the writer appends to their log.

    A restarted writer appends to the same log. ``contracts`` describe the tables, whose change
    histories have events, too.
    """

    def __init__(self, path: Path, contracts: Iterable[Contract] = ()) -> None:
        self._path = path
        histories = {contract.table: change_history(contract) for contract in contracts}
        self._histories = {table: history.table for table, history in histories.items() if history is not None}
        self._read = 0
        self.events: list[dict[str, Any]] = []

    def update(self) -> list[dict[str, Any]]:
        """All events so far. A line that is still being written waits for the next call."""
        if self._path.exists():
            with self._path.open("rb") as log:
                log.seek(self._read)
                for line in log:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    if line.startswith(b"{"):
                        self.events.append(json.loads(line))
        return self.events

    def commits(self) -> list[dict[str, Any]]:
        """The commits so far."""
        return [event for event in self.update() if event["event"] == "commit"]

    def cursor(self) -> dict[str, int]:
        """The position up to which all tables are written, by source partition.

        A position is the next offset in Kafka, or the last sequence number in Kinesis.
        """
        known: dict[str, dict[str, int]] = {event["table"]: event["cursor"] for event in self._known()}
        merged: dict[str, int] = {}
        for table in known.keys() - self._histories.values():
            cursor = known[table]
            other = known.get(self._histories[table], {}) if table in self._histories else cursor
            merged |= {source: min(read, other[source], key=int) for source, read in cursor.items() if source in other}
        return merged

    def progress(self) -> dict[str, object]:
        """The writer's progress: the number of its commits, and its cursor."""
        return {"commits": len(self.commits()), "cursor": self.cursor()}

    def _known(self) -> list[dict[str, Any]]:
        """The commits, and the commits from which a restarted writer resumed."""
        return [event for event in self.update() if event["event"] in ("commit", "resumed")]


def contract_address(contract: Contract) -> str:
    """The address at which ``create_lake`` puts a contract."""
    return object_uri(LAKE_BUCKET, f"contracts/{contract.table}.json")


@cache
def local_environment(lake_folder: LakeFolder) -> Environment:
    """Return the settings of a lake folder's ``config/local.yaml``."""
    return read_environment(ENVIRONMENT, lake_folder.config)


def create_lake(aws_api: AwsApi, contracts: Sequence[Contract]) -> None:
    """Create the lake in a running AWS API, and upload the contracts.

    The lake has its buckets, the key of erased rows, the Glue database and its tables.
    """
    s3, glue = aws_api.client("s3"), aws_api.client("glue")
    for bucket in (LANDING_BUCKET, LAKE_BUCKET):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": aws.REGION})
    glue.create_database(DatabaseInput={"Name": GLUE_DATABASE})
    forget_key = {KEY_FIELD: secrets.token_hex()}
    aws_api.client("secretsmanager").create_secret(Name=FORGET_SECRET, SecretString=json.dumps(forget_key))
    for contract in contracts:
        bucket, key = split_uri(contract_address(contract))
        s3.put_object(Bucket=bucket, Key=key, Body=contract.to_json().encode())
    for table in lake_tables(contracts):
        glue.create_table(DatabaseName=GLUE_DATABASE, TableInput=table_input(table, f"{LAKE}/{table.table}"))


def new_mask_key() -> bytes:
    """Return a new key of masks."""
    return secrets.token_hex().encode()


def start_lake(opened: ExitStack, aws_api: AwsApi, contracts: Sequence[Contract], mask_key: bytes) -> None:
    """Start the AWS API until ``opened`` closes, with the file of its variables, the lake, and the key of masks."""
    opened.enter_context(aws_api)
    aws.write_variables(aws_api.variables, aws_api.environment())
    create_lake(aws_api, contracts)
    aws_api.client("secretsmanager").create_secret(
        Name=MASK_SECRET, SecretString=json.dumps({KEY_FIELD: mask_key.decode()})
    )


def lake_memory_bytes(aws_api: AwsApi) -> dict[str, int]:
    """The private memory of the AWS API and its store in bytes, now."""
    return {"AWS API": bytes_of_part(aws_api.pid), "S3": bytes_of_part(aws_api.store.pid)}


def lake_addresses(aws_api: AwsApi, contracts: Sequence[Contract], lake_folder: LakeFolder) -> dict[str, str]:
    """Addresses and a command for a person to reach the AWS API and a lake folder's lake, by name."""
    return {
        "AWS API": aws_api.endpoint,
        "S3": aws_api.s3_endpoint,
        "Lake": LAKE,
        "Query it": _query_command(aws_api, contracts, lake_folder),
    }


def _query_command(aws_api: AwsApi, contracts: Sequence[Contract], lake_folder: LakeFolder) -> str:
    command = ".venv/bin/headwater" if lake_folder == EXAMPLE else "./headwater"
    return (
        f". {shlex.quote(str(aws_api.variables))} && "
        f"{command} sql --lake {LAKE} --endpoint {aws_api.s3_endpoint} --region {aws.REGION} "
        f'"SELECT * FROM {contracts[0].table}_current"'
    )


def local_lake(aws_api: AwsApi) -> Lake:
    """A reader of the lake in an AWS API."""
    storage = s3_options(
        aws.REGION,
        aws_api.s3_endpoint,
        aws_api.credentials["AWS_ACCESS_KEY_ID"],
        aws_api.credentials["AWS_SECRET_ACCESS_KEY"],
    )
    return Lake(LAKE, storage)


def bytes_of_part(pid: int) -> int:
    """The private memory of a process and its descendants in bytes, now; 0 if the process has ended."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += private_bytes(member)
    return total

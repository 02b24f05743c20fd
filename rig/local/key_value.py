"""The key-value pipeline on this machine: DynamoDB, a Kinesis stream for each table, and the Glue job's script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from headwater.contract.masks import read_key
from headwater.contract.model import DYNAMODB, Contract, lake_tables, of_database
from headwater.definitions import writers
from headwater.lake_folder import EXAMPLE
from headwater.operations.positions import UnreadRecords
from headwater.paths import ROOT
from headwater.verify import DynamoDbSource, Lake, TableComparison, verify_tables
from headwater.waiting import PATIENCE_SECONDS, wait_until
from rig.local import spark
from rig.local.aws import AwsApi
from rig.local.dynamodb_local import DynamoDbLocal, create_table
from rig.local.pipeline import (
    LEASE,
    MASK_SECRET,
    PLACE,
    EventLog,
    bytes_of_part,
    contract_address,
    local_environment,
    local_lake,
)
from rig.local.processes import Process
from rig.local.relay import ORDERLY, Misbehaviour, Relay
from rig.local.spark import SparkJob

SHARDS = 2
WINDOW_SECONDS = 1
"""The seconds between two commits of the script."""
_DRIVER_MEMORY = "1g"


class TableSource(ExitStack):
    """A DynamoDB table, the Kinesis stream of its changes, and the relay between them.

    Table and stream have the name that the contract gives its source.
    """

    def __init__(
        self,
        folder: Path,
        contract: Contract,
        aws_api: AwsApi,
        dynamodb: DynamoDbLocal,
        misbehaviour: Misbehaviour,
    ) -> None:
        super().__init__()
        self.contract = contract
        self.name = contract.source.table
        self.relay: Relay
        self._folder = folder
        self._aws = aws_api
        self._dynamodb = dynamodb
        self._misbehaviour = misbehaviour

    def start(self) -> None:
        """Create an empty table and the stream, and start the relay."""
        kinesis = self._aws.client("kinesis")
        kinesis.create_stream(StreamName=self.name, ShardCount=SHARDS)
        kinesis.get_waiter("stream_exists").wait(StreamName=self.name, WaiterConfig={"Delay": 1})
        create_table(self._dynamodb.client("dynamodb"), self.contract, self.name)
        self.relay = Relay(self._folder / "relay", self._dynamodb, self._aws.endpoint, self.name, self._misbehaviour)
        self.enter_context(self.relay)

    def stream_arn(self) -> str:
        """The ARN of the stream."""
        described = self._aws.client("kinesis").describe_stream_summary(StreamName=self.name)
        return str(described["StreamDescriptionSummary"]["StreamARN"])


class KeyValuePipeline(ExitStack):
    """The Glue job's script with all its sources: DynamoDB Local, and a stream per DynamoDB contract.

    The script writes the tables of all DynamoDB contracts. The AWS API runs already, with the lake of
    ``pipeline.create_lake`` in it. ``tables`` are the sources by the names of their lake tables. All relays follow
    ``misbehaviour``.
    """

    def __init__(
        self,
        folder: Path,
        contracts: Sequence[Contract],
        aws_api: AwsApi,
        misbehaviour: Misbehaviour = ORDERLY,
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.contracts = of_database(contracts, DYNAMODB)
        self.aws = aws_api
        self.dynamodb = DynamoDbLocal(self.folder / "dynamodb", aws_api.credentials)
        self.tables = {
            contract.table: TableSource(self.folder / contract.table, contract, aws_api, self.dynamodb, misbehaviour)
            for contract in self.contracts
        }
        self.events = EventLog(self.folder / "spark" / "events.jsonl", self.contracts)
        self.writer: Process

    def start_source(self) -> None:
        """Start DynamoDB, and create every table, empty, with its relay to a new Kinesis stream."""
        self.enter_context(self.dynamodb)
        for table in self.tables.values():
            self.enter_context(table)
            table.start()

    def start_writer(self, *arguments: str, window_seconds: int = WINDOW_SECONDS) -> Process:
        """Start the Glue job's script for all tables.

        With ``--once`` among the arguments the script drains and exits.
        """
        sources = {table.table: source for source in self.tables.values() for table in lake_tables([source.contract])}
        environment = local_environment(EXAMPLE)
        rendered = writers.job_arguments(
            [contract_address(contract) for contract in self.contracts],
            PLACE,
            environment.lake,
            streams={table: source.stream_arn() for table, source in sources.items()},
            source_tables={table: source.name for table, source in sources.items()},
            window_seconds=window_seconds,
            epoch=environment.dynamodb.glue.epoch,
            mask_secret=MASK_SECRET if any(contract.needs_mask_key for contract in self.contracts) else None,
        )
        pairs = [part for pair in rendered.items() for part in pair]
        job = SparkJob(
            ROOT / "glue_scripts" / "write_hudi.py",
            [*pairs, *LEASE, *arguments],
            "the Glue job's script",
            _DRIVER_MEMORY,
        )
        self.writer = self.enter_context(spark.submit(job, self.folder / "spark", self.aws))
        return self.writer

    @property
    def streams(self) -> dict[str, str]:
        """The Kinesis stream of each contract's table, by the table's name."""
        return {table: source.name for table, source in self.tables.items()}

    def client(self) -> Any:
        """Return a boto3 client of ``dynamodb``."""
        return self.dynamodb.client("dynamodb")

    def drain(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until every change made so far is in the lake. The writer must be running.

        ``patience`` means the same as in ``wait_until``, which raises ``StuckError``.
        """
        unread = UnreadRecords()
        for table, source in self.tables.items():
            source.relay.await_caught_up(patience)
            drained = partial(self._is_drained, unread, source.name)
            wait_until(
                f"the Glue job's script to reach the end of the stream of {table}",
                drained,
                self.events.progress,
                poll=0.5,
                patience=patience,
            )

    def _is_drained(self, unread: UnreadRecords, stream: str) -> bool:
        is_drained = unread.oldest(self.aws.client("kinesis"), stream, self.events.cursor()) == math.inf
        if not is_drained:
            self.check()
        return is_drained

    def check(self) -> None:
        """Raise ``ProcessError`` unless all parts run."""
        for part in (self.aws, self.dynamodb, self.writer):
            part.check()
        for source in self.tables.values():
            source.relay.check()

    def verify(self) -> list[TableComparison]:
        """Compare every DynamoDB table with its lake table."""
        mask_key = None
        if any(contract.needs_mask_key for contract in self.contracts):
            mask_key = read_key(self.aws.client("secretsmanager"), MASK_SECRET)
        return verify_tables(self.contracts, {DYNAMODB: DynamoDbSource(self.client(), mask_key=mask_key)}, self.lake())

    def commits(self) -> list[dict[str, Any]]:
        """The commits of all tables so far."""
        return self.events.commits()

    def lake(self) -> Lake:
        """A reader of the lake that the writers write."""
        return local_lake(self.aws)

    def memory_bytes(self) -> dict[str, int]:
        """The private memory of each part in bytes, now."""
        pids = {"DynamoDB Local": self.dynamodb.pid, "Spark (key-value)": self.writer.pid}
        pids |= {f"Relay ({name})": table.relay.pid for name, table in self.tables.items()}
        return {name: bytes_of_part(pid) for name, pid in pids.items()}

    def addresses(self) -> dict[str, str]:
        """Addresses for a person while the demo keeps the parts running, by name."""
        streams = {
            f"Kinesis stream of {name}": f"{table.name} at {self.aws.endpoint}" for name, table in self.tables.items()
        }
        return {"DynamoDB": self.dynamodb.endpoint, **streams}

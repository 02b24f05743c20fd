"""The key-value pipeline on this machine: DynamoDB, and for each table a Kinesis stream and the Glue job's script."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.contract.model import DYNAMODB, Contract, of_database
from headwater.lake.kinesis import TRIM_HORIZON, KinesisStream
from headwater.local import spark
from headwater.local.aws import AwsApi
from headwater.local.dynamodb_local import DynamoDbLocal, create_table
from headwater.local.pipeline import GLUE_DATABASE, LAKE, LAKE_BUCKET, EventLog, local_lake, resident_bytes
from headwater.local.processes import Process, wait_until
from headwater.local.relay import ORDERLY, Misbehaviour, Relay
from headwater.local.spark import SparkJob
from headwater.paths import ROOT
from headwater.verify import DynamoDbSource, Lake, TableComparison, verify_tables

SHARDS = 2
_DRIVER_MEMORY = "1g"
_READ_BYTES = 1 << 20


class TablePipeline(ExitStack):
    """The way of one DynamoDB table into the lake: the relay, the Kinesis stream and the Glue job's script.

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
        self.events = EventLog(folder / "spark" / "events.jsonl")
        self.relay: Relay
        self.writer: Process
        self._folder = folder
        self._aws = aws_api
        self._dynamodb = dynamodb
        self._misbehaviour = misbehaviour

    def start_source(self) -> None:
        """Create the table, empty, and the Kinesis stream, and start the relay between them."""
        name = self.contract.source.table
        kinesis = self._aws.client("kinesis")
        kinesis.create_stream(StreamName=name, ShardCount=SHARDS)
        kinesis.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
        create_table(self._dynamodb.client("dynamodb"), self.contract, name)
        self.relay = Relay(self._folder / "relay", self._dynamodb, self._aws.endpoint, name, self._misbehaviour)
        self.enter_context(self.relay)

    def start_writer(self, *arguments: str) -> Process:
        """Start the Glue job's script; ``--once`` among the arguments makes it drain and exit."""
        options = {
            "--source": "api",
            "--contract": f"s3://{LAKE_BUCKET}/contracts/{self.contract.table}.json",
            "--stream-arn": self._stream_arn(),
            "--source-table": self.contract.source.table,
            "--lake": LAKE,
            "--database": GLUE_DATABASE,
            "--window-seconds": "1",
            "--lease-seconds": "6",
        }
        job = SparkJob(
            ROOT / "glue_scripts" / "write_hudi.py",
            [*(part for pair in options.items() for part in pair), *arguments],
            f"the Glue job's script of {self.contract.table}",
            _DRIVER_MEMORY,
        )
        self.writer = self.enter_context(spark.submit(job, self._folder / "spark", self._aws.endpoint))
        return self.writer

    def drain(self, timeout: float) -> None:
        """Wait until every change made so far is in the lake. The writer must be running."""
        self.relay.await_caught_up(timeout)
        kinesis, arn = self._aws.client("kinesis"), self._stream_arn()

        def drained() -> bool:
            records, _ = KinesisStream(kinesis, arn, TRIM_HORIZON).read(self.events.cursor(), _READ_BYTES)
            if records:
                self.check()
            return not records

        wait_until(
            f"the Glue job's script of {self.contract.table} to reach the end of its stream", drained, timeout, 0.5
        )

    def check(self) -> None:
        """Raise ``ProcessError`` unless all parts run."""
        for part in (self._aws, self._dynamodb, self.relay, self.writer):
            part.check()

    def _stream_arn(self) -> str:
        kinesis = self._aws.client("kinesis")
        described = kinesis.describe_stream_summary(StreamName=self.contract.source.table)
        return str(described["StreamDescriptionSummary"]["StreamARN"])


class KeyValuePipeline(ExitStack):
    """DynamoDB Local and the pipelines of its tables below one folder, one for each DynamoDB contract.

    The AWS API runs already, with the lake that ``pipeline.create_lake`` made in it. ``tables`` are the tables'
    pipelines by the names of their lake tables. All relays follow ``misbehaviour``.
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
        self.dynamodb = DynamoDbLocal(self.folder / "dynamodb")
        self.tables = {
            contract.table: TablePipeline(self.folder / contract.table, contract, aws_api, self.dynamodb, misbehaviour)
            for contract in self.contracts
        }

    def start_source(self) -> None:
        """Start DynamoDB, and create every table, empty, with its relay to a new Kinesis stream."""
        self.enter_context(self.dynamodb)
        for table in self.tables.values():
            self.enter_context(table)
            table.start_source()

    def start_writers(self) -> None:
        """Start the Glue job's script of every table."""
        for table in self.tables.values():
            table.start_writer()

    def client(self) -> Any:
        """Return a boto3 client of ``dynamodb``."""
        return self.dynamodb.client("dynamodb")

    def drain(self, timeout: float = 300) -> None:
        """Wait until every change made so far is in the lake. The writers must be running."""
        for table in self.tables.values():
            table.drain(timeout)

    def verify(self) -> list[TableComparison]:
        """Compare every DynamoDB table with its lake table."""
        return verify_tables(self.contracts, {DYNAMODB: DynamoDbSource(self.client())}, self.lake())

    def commits(self) -> list[dict[str, Any]]:
        """The commits of all writers so far."""
        return [commit for table in self.tables.values() for commit in table.events.commits()]

    def completion(self, table: str) -> dict[str, float]:
        """When each instant of a lake table's timeline was readable at the latest, in epoch seconds."""
        return self.tables[table].events.completion(table)

    def lake(self) -> Lake:
        """The lake that the writers write, to be read."""
        return local_lake(self.aws)

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each part with its children, now."""
        pids = {"DynamoDB Local": self.dynamodb.pid}
        for name, table in self.tables.items():
            pids |= {f"Relay ({name})": table.relay.pid, f"Spark ({name})": table.writer.pid}
        return {name: resident_bytes(pid) for name, pid in pids.items()}

    def addresses(self) -> dict[str, str]:
        """Where a person reaches the parts while the demo keeps them running."""
        streams = {
            f"Kinesis stream of {name}": f"{table.contract.source.table} at {self.aws.endpoint}"
            for name, table in self.tables.items()
        }
        return {"DynamoDB": self.dynamodb.endpoint, **streams}

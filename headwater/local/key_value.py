"""The key-value pipeline on this machine: DynamoDB, a Kinesis stream, and the Glue job's script that writes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from headwater.contract.model import DYNAMODB, Contract
from headwater.lake.kinesis import TRIM_HORIZON, KinesisStream
from headwater.local import spark
from headwater.local.aws import AwsApi
from headwater.local.dynamodb_local import DynamoDb
from headwater.local.pipeline import GLUE_DATABASE, LAKE, LAKE_BUCKET, EventLog, lake_storage, resident_bytes
from headwater.local.processes import Process, wait_until
from headwater.local.relay import Relay
from headwater.paths import ROOT
from headwater.samples import accounts
from headwater.verify import DynamoDbSource, TableComparison, verify

STREAM = "headwater-accounts"
SHARDS = 2
_DRIVER_MEMORY = "1g"
_READ_BYTES = 1 << 20


class KeyValuePipeline(ExitStack):
    """DynamoDB Local, the relay and the Spark writer of one contract below one folder. The AWS API runs already, with
    the lake that ``pipeline.create_lake`` made in it. ``repeated`` and ``delayed`` are the shares of records that the
    relay puts twice and puts late."""

    def __init__(
        self, folder: Path, contract: Contract, aws_api: AwsApi, *, repeated: float = 0, delayed: float = 0
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.contracts = [contract]
        self.aws = aws_api
        self.dynamodb = DynamoDb(self.folder / "dynamodb")
        self.relay: Relay
        self._carried = {"repeated": repeated, "delayed": delayed}
        self.events = EventLog(self.folder / "spark" / "events.jsonl")
        self.writer: Process

    def start_source(self) -> None:
        """Start DynamoDB with the accounts' table, empty, and the relay to a new Kinesis stream."""
        kinesis = self.aws.client("kinesis")
        kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        kinesis.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
        self.enter_context(self.dynamodb)
        accounts.create_table(self.dynamodb.client("dynamodb"))
        self.relay = Relay(
            self.folder / "relay", self.dynamodb, self.aws.endpoint, accounts.TABLE, STREAM, **self._carried
        )
        self.enter_context(self.relay)

    def start_writer(self, *arguments: str) -> Process:
        """Start the Glue job's script; ``--once`` among the arguments makes it drain and exit."""
        (contract,) = self.contracts
        options = {
            "--source": "api",
            "--contract": f"s3://{LAKE_BUCKET}/contracts/{contract.table}.json",
            "--stream-arn": self.stream_arn,
            "--source-table": accounts.TABLE,
            "--lake": LAKE,
            "--database": GLUE_DATABASE,
            "--window-seconds": "1",
            "--lease-seconds": "6",
        }
        process = spark.submit(
            ROOT / "glue_scripts" / "write_hudi.py",
            [*(part for pair in options.items() for part in pair), *arguments],
            self.folder / "spark",
            endpoint=self.aws.endpoint,
            memory=_DRIVER_MEMORY,
            name="the Glue job's script",
        )
        self.writer = self.enter_context(process)
        return self.writer

    @property
    def stream_arn(self) -> str:
        """The Kinesis stream's ARN."""
        described = self.aws.client("kinesis").describe_stream_summary(StreamName=STREAM)
        return str(described["StreamDescriptionSummary"]["StreamARN"])

    def drain(self, timeout: float = 300) -> None:
        """Wait until every change made so far is in the lake. The writer must be running."""
        self.relay.await_caught_up(timeout)
        kinesis, arn = self.aws.client("kinesis"), self.stream_arn

        def drained() -> bool:
            records, _ = KinesisStream(kinesis, arn, TRIM_HORIZON).read(self.events.cursor(), _READ_BYTES)
            if records:
                self.check()
            return not records

        wait_until("the Glue job's script to reach the end of the stream", drained, timeout, 0.5)

    def check(self) -> None:
        """Raise `ProcessError` unless all parts run."""
        for part in (self.aws, self.dynamodb, self.relay, self.writer):
            part.check()

    def verify(self) -> list[TableComparison]:
        """Compare the DynamoDB table with the lake."""
        sources = {DYNAMODB: DynamoDbSource(self.dynamodb.client("dynamodb"))}
        return verify(self.contracts, sources, LAKE, self.storage())

    def storage(self) -> dict[str, str]:
        """hudi-rs's options to read this lake."""
        return lake_storage(self.aws)

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each part with its children, now."""
        pids = {"DynamoDB Local": self.dynamodb.pid, "Relay": self.relay.pid, "Spark (accounts)": self.writer.pid}
        return {name: resident_bytes(pid) for name, pid in pids.items()}

    def addresses(self) -> dict[str, str]:
        """Where a person reaches the parts of a run that is kept."""
        return {"DynamoDB": self.dynamodb.endpoint, "Kinesis stream": f"{STREAM} at {self.aws.endpoint}"}

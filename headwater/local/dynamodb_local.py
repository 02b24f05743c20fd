"""DynamoDB on this machine: AWS's own DynamoDB Local, from Maven's jars."""

from pathlib import Path
from typing import Any

from headwater.local import aws, java
from headwater.local.processes import Part, Process, free_port, listens
from headwater.packaging import jars

HEAP = "256m"


class DynamoDb(Part):
    """One DynamoDB Local on a free port of 127.0.0.1 that stays the same over restarts.

    It keeps everything in memory, in one database whatever the credentials and the region: what was stored is gone
    after `stop` or `kill`. Its streams carry every change in order, TTL deletes with DynamoDB's own user identity.
    Three things are not as on AWS:

    - It has no Kinesis destination: `headwater.local.relay` stands in for it.
    - Its stream tells the minute of a change, not the second.
    - It looks at 20 items of a table in 10 seconds for expired ones, so that a table of a thousand takes minutes; the
      relay deletes them sooner.
    """

    name = "DynamoDB Local"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL of tables and streams."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, service: str) -> Any:
        """Return a boto3 client of `dynamodb` or `dynamodbstreams`."""
        return aws.client(service, self.endpoint)

    def _prepare(self) -> Process:
        if not self.port:
            self.port = free_port()
        return Process(
            self.name,
            java.argv(
                "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
                ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)],
                class_path=jars.class_path("dynamodb-local"),
                heap=HEAP,
                folder=self.folder,
                # It unpacks SQLite's native library there, and leaves it behind when it is killed.
                properties={"org.sqlite.tmpdir": str(self.folder)},
            ),
            self.folder / "dynamodb.log",
            env=aws.environment(),
            ready=lambda: listens(self.port) and "TableNames" in self.client("dynamodb").list_tables(),
            timeout=90,
            cwd=self.folder,
        )

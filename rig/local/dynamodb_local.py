"""DynamoDB on this machine: AWS's own DynamoDB Local, from Maven's jars."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.contract.model import Contract
from headwater.definitions.dynamodb_table import key_attributes
from headwater.packaging import jars
from rig.local import aws, java
from rig.local.processes import Part, Process, Program, free_port

HEAP = "256m"
LAUNCHER = Path(__file__).with_name("DynamoDbLocal.java")


class DynamoDbLocal(Part):
    """One DynamoDB Local on a free port of 127.0.0.1 that stays the same over restarts.

    It answers only requests that are signed with ``credentials``.

    It keeps everything in memory, in one database for all credentials and regions: ``stop`` and ``kill`` lose all
    items. Its streams carry every change in order. Deletes by time to live have DynamoDB's own user identity. Three
    things differ from AWS:

    - It has no Kinesis destination: ``rig.local.relay`` stands in for it.
    - Its streams report the minute of a change, not the second.
    - It checks 20 items per table for expiry every 10 seconds, so a table of a thousand items takes minutes. The relay
      deletes them sooner.
    """

    name = "DynamoDB Local"

    def __init__(self, folder: Path, credentials: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.credentials = dict(credentials)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL of tables and streams."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, service: str) -> Any:
        """Return a boto3 client of ``dynamodb`` or ``dynamodbstreams``."""
        return aws.client(service, self.endpoint, self.credentials)

    def _prepare(self) -> Process:
        if not self.port:
            self.port = free_port()
        server = java.JavaProgram(
            str(LAUNCHER),
            [str(self.port)],
            jars.class_path("dynamodb-local"),
            HEAP,
            # DynamoDB Local unpacks SQLite's native library there. A kill leaves the library behind.
            properties={"org.sqlite.tmpdir": str(self.folder)},
        )
        program = Program(
            self.name,
            java.argv(server, self.folder),
            self.folder / "dynamodb.log",
            env=aws.environment(self.credentials),
            cwd=self.folder,
        )
        return Process(
            program,
            ready=lambda: "TableNames" in self.client("dynamodb").list_tables(),
            port=self.port,
        )


def create_table(client: Any, contract: Contract, name: str, *, streams: bool = True) -> None:
    """Create the table of a contract, and wait until it can be written.

    On request it has a stream of new and old images. Key and time to live are as in the template. Raises ``UserError``
    if the contract's key has more than two columns.
    """
    keys = key_attributes(contract)
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key.name, "AttributeType": key.type} for key in keys],
        KeySchema=[
            {"AttributeName": key.name, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={
            "StreamEnabled": streams,
            **({"StreamViewType": "NEW_AND_OLD_IMAGES"} if streams else {}),
        },
    )
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    expiry = contract.source.time_to_live
    if expiry is not None:
        client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": expiry})

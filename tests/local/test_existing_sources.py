"""A deployment beside a PostgreSQL and a DynamoDB table that exist. It makes none of their resources, their rows
arrive, and they stay as they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.commands.destroy import SLOT_LEFT
from headwater.contract.reading import read_contract
from headwater.lake_folder import EXAMPLE
from rig.local.dynamodb_local import create_table
from rig.local.postgresql_server import PostgresqlServer
from rig.local.tls_front import TlsFront
from rig.local_aws.daemon import Running
from rig.samples import dynamodb_tables
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment
from tests.local.test_own_database import CHANGES, SCHEMA

pytestmark = pytest.mark.drill

SECRET = "rental/headwater-cdc"
ACCOUNTS = read_contract(EXAMPLE.contracts / "accounts.yaml")
PASSWORD = "of the owner's choice"
DATABASE = """database:
  kind: existing
  host: 127.0.0.1
  port: {port}
  name: rental
  secret: {secret}
  secret_key: null
  root_certificate: rental.pem
  cidr: 203.0.113.0/24
  peering: null
  monitored: null
"""


TABLE, STREAM = "Accounts", "account-changes"
KEY_VALUE = f"""key_value:
  kind: existing
  stream_retention_hours: 24
  tables: [{{contract: accounts, table: {TABLE}, stream: {STREAM}, stream_key: null}}]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresqlServer]:
    with PostgresqlServer(tmp_path / "postgres") as server:
        with server.connect() as owner:
            owner.execute("CREATE DATABASE rental")
        with server.connect("rental") as owner:
            owner.execute(SCHEMA.read_bytes())
        yield server


@pytest.fixture
def front(server: PostgresqlServer, tmp_path: Path) -> Iterator[TlsFront]:
    with TlsFront(tmp_path / "front", server) as front:
        yield front


@pytest.fixture
def checkout(tmp_path: Path, front: TlsFront) -> Iterator[Checkout]:
    """A checkout whose environment reads that server, in whose account somebody has put the role's password."""
    checkout = Checkout(tmp_path / "checkout")
    for contract in (checkout.folder / "contracts").iterdir():
        if contract.stem != "accounts":
            contract.unlink()
    # They are of the orders.
    shutil.rmtree(checkout.folder / "queries")
    (checkout.folder / "rental.pem").write_text(front.root)
    settings = checkout.folder / "config" / "local.yaml"
    document = yaml.safe_load(settings.read_text())
    for section in (DATABASE.format(port=front.port, secret=SECRET), KEY_VALUE):
        document |= yaml.safe_load(section)
    settings.write_text(yaml.safe_dump(document))
    try:
        # As docs/how-to/local-aws.md says.
        succeeded(checkout.run_headwater("deploy", "--env", "local", "--stack", "lake"))
        account = Running.find(checkout.account)
        assert account is not None
        login = json.dumps({"username": "headwater_cdc", "password": PASSWORD})
        account.client("secretsmanager").create_secret(Name=SECRET, SecretString=login)
        make_accounts(account.client)
        yield checkout
    finally:
        left = Running.find(checkout.account)
        if left is not None:
            left.stop(checkout.account)


def make_accounts(client: Callable[[str], Any]) -> None:
    """A table and the stream of its changes, as its owner makes them by the page."""
    kinesis, dynamodb = client("kinesis"), client("dynamodb")
    kinesis.create_stream(StreamName=STREAM, ShardCount=1)
    kinesis.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
    create_table(dynamodb, ACCOUNTS, TABLE, streams=False)
    dynamodb.enable_kinesis_streaming_destination(
        TableName=TABLE,
        StreamArn=kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"],
        EnableKinesisStreamingConfiguration={"ApproximateCreationDateTimePrecision": "MICROSECOND"},
    )


def templates(checkout: Checkout) -> str:
    """All that the environment's stacks are made of."""
    return "\n".join(path.read_text() for path in (checkout.folder / "cdk.out").glob("*.template.json"))


def test_a_deployment_reads_sources_that_are_there_and_leaves_them(
    server: PostgresqlServer, checkout: Checkout
) -> None:
    at = ("--host", server.host, "--port", str(server.port), "--database", "rental", "--user", server.superuser)
    passwords = {"HEADWATER_DB_PASSWORD": server.password, "HEADWATER_CDC_PASSWORD": PASSWORD}

    def headwater(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return checkout.run_headwater(*arguments, **passwords, **variables)

    # Two of the schema's tables cannot be captured.
    assert headwater("contract", "infer", *at, "--schema", "public").returncode == 1
    succeeded(headwater("db", "capture", *at))
    succeeded(checkout.deploy())
    deployment = Deployment(checkout)
    made = deployment.client("cloudformation").list_stacks()["StackSummaries"]
    assert not [stack["StackName"] for stack in made if re.search("-database|-key-value", stack["StackName"])]
    items = replace(ACCOUNTS, source=replace(ACCOUNTS.source, table=TABLE))
    filled = dynamodb_tables.fill(deployment.client("dynamodb"), items, 1, 1)

    def equal() -> bool:
        # As the connector's role, by its secret, and trusting the authority that the connector trusts.
        done = checkout.run_headwater("verify", "--env", "local")
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0

    deployment.wait_until("the lake to equal the database", equal)
    with server.connect("rental") as owner:
        owner.execute(CHANGES.encode())
    deployment.wait_until("the lake to equal the database again", equal)
    url = f"postgresql://{server.superuser}@{server.host}:{server.port}/rental"
    told = headwater("status", "--env", "local", "--json", "--database-url", url, **deployment.variables)
    parts = {part["name"]: part for part in json.loads(told.stdout)["parts"]}
    assert [name for name, part in parts.items() if part["problems"]] == []
    assert parts["PostgreSQL"]["facts"]["slot"]["active"]
    assert "DynamoDB accounts" in parts
    # Without a way to it, the database alone is not asked.
    told = headwater("status", "--env", "local", "--json", **deployment.variables)
    assert [part["name"] for part in json.loads(told.stdout)["parts"] if part["unasked"]] == ["PostgreSQL"]
    dynamodb = deployment.client("dynamodb")
    assert dynamodb.scan(TableName=TABLE, Select="COUNT")["Count"] == filled
    assert not re.findall("AWS::(DynamoDB|Kinesis)::", templates(checkout))
    # Its owner's to delete.
    dynamodb.delete_table(TableName=TABLE)
    assert "replication slot" not in succeeded(headwater("destroy", "--env", "local"))
    with server.connect("rental") as owner:
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
    succeeded(headwater("db", "release", *at))


def test_a_slot_that_cannot_be_dropped_is_told_last(
    server: PostgresqlServer, front: TlsFront, checkout: Checkout
) -> None:
    at = ("--host", server.host, "--port", str(server.port), "--database", "rental", "--user", server.superuser)
    passwords = {"HEADWATER_DB_PASSWORD": server.password, "HEADWATER_CDC_PASSWORD": PASSWORD}
    assert checkout.run_headwater("contract", "infer", *at, "--schema", "public", **passwords).returncode
    succeeded(checkout.run_headwater("db", "capture", *at, **passwords))
    succeeded(checkout.deploy())
    # The server is out of reach.
    front.stop()
    done = checkout.run_headwater("destroy", "--env", "local")
    assert done.returncode == SLOT_LEFT, done.stdout + done.stderr
    told = done.stdout[done.stdout.rindex("The replication slot headwater of rental on") :].splitlines()
    assert "stays: the connector " in told[0]
    assert told[-1].startswith("  .venv/bin/headwater db release --host 127.0.0.1")
    assert Running.find(checkout.account) is None
    with server.connect("rental") as owner:
        assert owner.execute("SELECT slot_name, active FROM pg_replication_slots").fetchall() == [("headwater", False)]
        # As the output says.
        owner.execute(next(line for line in told if "pg_drop_replication_slot" in line).encode())

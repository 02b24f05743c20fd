"""A deployment beside a PostgreSQL that is there: nothing is made of it, its rows arrive, and it is left as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.local.postgresql_server import PostgresqlServer
from headwater.local.processes import wait_until
from headwater.local.tls_front import TlsFront
from headwater.local_aws.daemon import Running
from tests.checkout import Checkout, succeeded
from tests.deployment import Deployment
from tests.local.test_own_database import CHANGES, SCHEMA

pytestmark = pytest.mark.drill

SECRET = "rental/headwater-cdc"
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
    (checkout.folder / "rental.pem").write_text(front.root)
    settings = checkout.folder / "config" / "local.yaml"
    before, _, rest = settings.read_text().partition("database:\n")
    after = rest[rest.index("\nstream:") :]
    settings.write_text(before + DATABASE.format(port=front.port, secret=SECRET).rstrip() + after)
    account = Running.start(checkout.account, checks_objects=True)
    try:
        login = json.dumps({"username": "headwater_cdc", "password": PASSWORD})
        account.client("secretsmanager").create_secret(Name=SECRET, SecretString=login)
        yield checkout
    finally:
        left = Running.find(checkout.account)
        if left is not None:
            left.stop(checkout.account)


def test_a_deployment_reads_a_database_that_is_there_and_leaves_it(
    server: PostgresqlServer, checkout: Checkout
) -> None:
    at = ("--host", server.host, "--port", str(server.port), "--database", "rental", "--user", server.superuser)
    passwords = {"HEADWATER_DB_PASSWORD": server.password, "HEADWATER_CDC_PASSWORD": PASSWORD}

    def headwater(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return checkout.run_headwater(*arguments, **passwords, **variables)

    # Two of the schema's tables cannot be captured.
    assert headwater("contract", "infer", *at, "--schema", "public", "--contracts", "contracts").returncode == 1
    succeeded(headwater("db", "capture", *at, "--contracts", "contracts"))
    succeeded(checkout.deploy())
    deployment = Deployment(checkout)
    made = deployment.client("cloudformation").list_stacks()["StackSummaries"]
    assert not [stack["StackName"] for stack in made if "-database" in stack["StackName"]]

    def equal() -> bool:
        aws = deployment.variables
        options = ("--lake", deployment.lake(), "--endpoint", aws["AWS_ENDPOINT_URL"])
        tables = ("--dynamodb-table", "accounts=headwater-local-accounts")
        return headwater("verify", *options, *at, *tables, **aws).returncode == 0

    wait_until("the lake to equal the database", equal, 240, 5)
    with server.connect("rental") as owner:
        owner.execute(CHANGES.encode())
    wait_until("the lake to equal the database again", equal, 240, 5)
    url = f"postgresql://{server.superuser}@{server.host}:{server.port}/rental"
    told = headwater("status", "local", "--json", "--database-url", url, **deployment.variables)
    parts = {part["name"]: part for part in json.loads(told.stdout)["parts"]}
    assert [name for name, part in parts.items() if part["problems"]] == []
    assert parts["PostgreSQL"]["facts"]["slot"]["active"]
    # Without a way to it, the database alone is not asked.
    told = headwater("status", "local", "--json", **deployment.variables)
    assert [part["name"] for part in json.loads(told.stdout)["parts"] if part["unasked"]] == ["PostgreSQL"]
    succeeded(headwater("destroy", "local"))
    with server.connect("rental") as owner:
        assert owner.execute("SELECT slot_name, active FROM pg_replication_slots").fetchall() == [("headwater", False)]
    succeeded(headwater("db", "release", *at))
    with server.connect("rental") as owner:
        assert owner.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)

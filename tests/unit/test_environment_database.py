"""Verbs with --env find their way into the environment's PostgreSQL database: address, role, password, certificate."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import psycopg
import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands.postgresql import PASSWORD_VARIABLE, Login
from headwater.environment import rds_authority
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.operations.deployed import Deployed
from tests.lake_folders import lake_folder
from tests.unit.conftest import BUCKET, EXISTING, REGION, write_dev

HOST = "headwater-dev.cluster-abc.eu-central-1.rds.amazonaws.com"
PORT = 5433
PASSWORDS = {part: f"of {part} alone" for part in ("owner", "reader", "cdc", "app")}
CHECK = ("contract", "check", "--live")
VERIFY = ("verify", "--table", "orders")
REPAIR = (*VERIFY, "--repair")
RESYNC = ("resync", "orders")
BACKFILL = ("backfill", "--table", "orders")
FORGET = ("forget", "customers", "ALFKI")
BY_DEFAULT = {CHECK: "reader", VERIFY: "reader", REPAIR: "owner", RESYNC: "owner", BACKFILL: "owner", FORGET: "owner"}
"""The role of each verb, by default."""

Connections = list[dict[str, Any]]
Say = Callable[[str], None]


def named(command: tuple[str, ...]) -> str:
    return " ".join(command[:2])


def refusal(*command: str) -> str:
    """The output of a verb that gets the environment dev, and fails."""
    result = CliRunner().invoke(app, [*command, "--env", "dev"])
    assert isinstance(result.exception, UserError), (result.output, result.exception)
    told = str(result.exception)
    assert not [password for password in PASSWORDS.values() if password in told + result.output]
    return told


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGSSLROOTCERT", PASSWORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """libpq's parameters of each connection, with the trusted certificate in place of its file. No server answers."""
    found: Connections = []

    def connect(**told: Any) -> None:
        trusted = told.pop("sslrootcert", None)
        known = ("host", "hostaddr", "port", "dbname", "user", "password", "sslmode")
        found.append({name: told[name] for name in known if name in told})
        if trusted is not None:
            found[-1]["trusted"] = Path(trusted).read_text()
        raise psycopg.OperationalError("connection timeout expired")

    monkeypatch.setattr(psycopg, "connect", connect)
    return found


@pytest.fixture
def secrets(s3: Any) -> Iterator[Any]:
    """Secrets Manager in the region of dev, and what a deployment writes into it."""
    client = boto3.client("secretsmanager", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    logins = {f"headwater/dev/{part}": (f"headwater_{part}", password) for part, password in PASSWORDS.items()}
    logins["rental/headwater-cdc"] = ("headwater_cdc", PASSWORDS["cdc"])
    for name, (user, password) in logins.items():
        client.create_secret(Name=name, SecretString=json.dumps({"username": user, "password": password}))
    yield client
    for secret in client.list_secrets()["SecretList"]:
        client.delete_secret(SecretId=secret["Name"], ForceDeleteWithoutRecovery=True)


@pytest.fixture
def dev(secrets: Any, deploy: Callable[[str, str], None], connections: Connections) -> Iterator[Connections]:
    """The connections to the database of dev, which the deployment has made."""
    deploy("dev", f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}/lake")
    cloudformation = boto3.client("cloudformation", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"Host": {"Value": HOST}, "Port": {"Value": str(PORT)}},
    }
    cloudformation.create_stack(StackName="headwater-dev-database", TemplateBody=json.dumps(template))
    yield connections
    cloudformation.delete_stack(StackName="headwater-dev-database")


@pytest.fixture
def existing(dev: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connections:
    """The connections to the database of dev, which is an existing one. Its lake folder is the current one."""
    write_dev(tmp_path, EXISTING["database"])
    monkeypatch.chdir(lake_folder(tmp_path / "lake", config=tmp_path).root)
    return dev


@pytest.mark.parametrize("command", BY_DEFAULT, ids=named)
def test_a_verb_logs_in_to_the_database_that_was_made(command: tuple[str, ...], dev: Connections) -> None:
    refusal(*command)
    part = BY_DEFAULT[command]
    assert dev == [
        {
            "host": HOST,
            "port": PORT,
            "dbname": "northwind",
            "user": f"headwater_{part}",
            "password": PASSWORDS[part],
            "sslmode": "verify-full",
            "trusted": rds_authority.root(REGION),
        }
    ]


@pytest.mark.parametrize("command", BY_DEFAULT, ids=named)
def test_a_verb_logs_in_to_the_database_that_was_there(command: tuple[str, ...], existing: Connections) -> None:
    refusal(*command)
    assert existing == [
        {
            "host": "rental.example.com",
            "port": 5433,
            "dbname": "rental",
            "user": "headwater_cdc",
            "password": PASSWORDS["cdc"],
            "sslmode": "verify-full",
            "trusted": rds_authority.root(REGION),
        }
    ]


@pytest.mark.parametrize("command", BY_DEFAULT, ids=named)
def test_options_win_and_a_tunnel_leaves_the_certificates_name(command: tuple[str, ...], dev: Connections) -> None:
    options = ("--host", "localhost", "--port", "15432", "--database", "other", "--user", "headwater_app")
    assert "at localhost:15432 as headwater_app" in refusal(*command, *options)
    (told,) = dev
    assert (told["port"], told["dbname"], told["user"], told["password"]) == (
        15432,
        "other",
        "headwater_app",
        PASSWORDS["app"],
    )
    addresses = told["hostaddr"].split(",")
    assert "127.0.0.1" in addresses
    assert told["host"].split(",") == [HOST] * len(addresses)
    assert told["sslmode"] == "verify-full"


def test_the_servers_own_name_leaves_the_address_to_libpqs_variables(dev: Connections) -> None:
    refusal(*VERIFY, "--host", HOST)
    assert (dev[0]["host"], "hostaddr" in dev[0]) == (HOST, False)


def test_a_host_without_an_address_is_refused(dev: Connections) -> None:
    assert refusal(*VERIFY, "--host", "no.such.invalid").startswith(
        "--host: found no.such.invalid, whose address is not known"
    )


def test_a_password_that_is_given_needs_no_secret(
    dev: Connections, secrets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets.delete_secret(SecretId="headwater/dev/reader", ForceDeleteWithoutRecovery=True)
    monkeypatch.setenv(PASSWORD_VARIABLE, "given")
    assert (
        f"Check host, port, database and user, and {PASSWORD_VARIABLE}, which replaces the secret headwater/dev/reader"
        ": unset the variable to use the secret."
    ) in refusal(*VERIFY)
    assert dev[0]["password"] == "given"


def test_a_role_without_a_secret_needs_a_password(dev: Connections) -> None:
    told = refusal(*VERIFY, "--user", "postgres")
    assert told.startswith(f"Password of postgres: found no {PASSWORD_VARIABLE}, and no terminal")


@pytest.mark.parametrize(
    ("variables", "mode", "is_trusted"),
    [
        ({"PGSSLMODE": "verify-ca"}, "verify-ca", True),
        ({"PGSSLMODE": "require"}, "require", False),
        ({"PGSSLROOTCERT": "/of/mine.pem"}, "verify-full", False),
    ],
    ids=str,
)
def test_libpqs_variables_say_how_the_server_is_verified(
    variables: dict[str, str], mode: str, is_trusted: bool, dev: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refusal(*VERIFY)
    assert (dev[0]["sslmode"], "trusted" in dev[0]) == (mode, is_trusted)


def test_the_environments_own_authority_is_in_its_lake_folder(existing: Connections, tmp_path: Path) -> None:
    write_dev(tmp_path, EXISTING["database"].replace("root_certificate: null", "root_certificate: own/root.pem"))
    expected = "database.root_certificate: found own/root.pem, which is missing, expected a file with a PEM certificate"
    assert refusal(*VERIFY) == expected
    own = tmp_path / "lake" / "own" / "root.pem"
    own.parent.mkdir()
    own.write_text(rds_authority.root("us-east-1"))
    refusal(*VERIFY)
    assert [each["trusted"] for each in existing] == [own.read_text()]


def test_a_database_in_the_vpc_that_is_not_reached_leads_to_the_bastion(dev: Connections) -> None:
    told = refusal(*VERIFY)
    assert told == (
        f"Cannot connect to the database northwind of PostgreSQL at {HOST}:{PORT} as headwater_reader: connection "
        "timeout expired. Check host, port, database and user, and the secret headwater/dev/reader. The server is "
        "inside the environment's network: open the tunnel through the bastion, and add --host localhost "
        "(docs/reference/stacks.md#the-bastion)."
    )
    assert "\n## The bastion\n" in (EXAMPLE.root / "docs" / "reference" / "stacks.md").read_text()


def test_an_existing_database_that_is_not_reached_leads_to_its_page(existing: Connections) -> None:
    assert refusal(*VERIFY).endswith(
        "Name another way to the server by --host and --port (docs/how-to/existing-sources.md)."
    )


def test_a_secret_that_is_missing_is_told_with_what_makes_it(dev: Connections, secrets: Any) -> None:
    secrets.delete_secret(SecretId="headwater/dev/owner", ForceDeleteWithoutRecovery=True)
    assert refusal(*RESYNC) == (
        "dev: found no secret headwater/dev/owner in eu-central-1 of this account, expected one with the password of "
        f"headwater_owner: run headwater deploy --env dev, or give the password in {PASSWORD_VARIABLE}"
    )
    assert dev == []


def test_an_existing_databases_missing_secret_is_its_owners_to_make(existing: Connections, secrets: Any) -> None:
    secrets.delete_secret(SecretId="rental/headwater-cdc", ForceDeleteWithoutRecovery=True)
    assert "found no secret rental/headwater-cdc" in refusal(*CHECK)
    assert "make the secret that database.secret names (docs/how-to/existing-sources.md)" in refusal(*CHECK)


def test_a_secret_that_may_not_be_read_is_told_with_its_rights(
    dev: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Deployed.client

    def refuse(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no right"}}, "GetSecretValue")

    def of(deployed: Deployed, service: str) -> Any:
        return SimpleNamespace(get_secret_value=refuse) if service == "secretsmanager" else client(deployed, service)

    monkeypatch.setattr(Deployed, "client", of)
    told = refusal(*VERIFY)
    assert told.startswith("dev: found An error occurred (AccessDeniedException)")
    assert "expected the secret headwater/dev/reader of headwater_reader" in told
    assert told.endswith(
        "use credentials with secretsmanager:GetSecretValue on the secret and kms:Decrypt on its key, or give the "
        f"password in {PASSWORD_VARIABLE}"
    )


@pytest.mark.parametrize("text", ["of reader alone", '"of reader alone"', '{"key": "of reader alone"}'])
def test_a_secret_without_a_password_is_told_without_its_values(text: str, dev: Connections, secrets: Any) -> None:
    secrets.put_secret_value(SecretId="headwater/dev/reader", SecretString=text)
    assert refusal(*VERIFY) == (
        "dev: found a secret headwater/dev/reader without a password, expected JSON with the fields username and "
        f"password: write the secret anew, or give the password in {PASSWORD_VARIABLE}"
    )


def test_no_secret_of_another_account_is_read(
    dev: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev.yaml").write_text((EXAMPLE.config / "dev.yaml").read_text() + 'account: "111122223333"\n')
    monkeypatch.chdir(lake_folder(tmp_path / "lake", config=tmp_path).root)
    for command in BY_DEFAULT:
        assert "found the account 123456789012, expected 111122223333" in refusal(*command)
    assert dev == []


def test_a_database_that_is_not_deployed_yet_is_told(dev: Connections) -> None:
    cloudformation = boto3.client("cloudformation", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    cloudformation.delete_stack(StackName="headwater-dev-database")
    for command in BY_DEFAULT:
        assert refusal(*command).endswith("expected a deployed environment: headwater deploy --env dev")


def test_a_deployment_that_tells_no_port_is_to_be_deployed_anew(dev: Connections) -> None:
    cloudformation = boto3.client("cloudformation", REGION, aws_access_key_id="test", aws_secret_access_key="test")
    template = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}, "Outputs": {"Host": {"Value": HOST}}}
    cloudformation.update_stack(StackName="headwater-dev-database", TemplateBody=json.dumps(template))
    assert "found no output Port, expected one: an earlier release has deployed it" in refusal(*VERIFY)
    refusal(*VERIFY, "--port", "5432")
    assert [each["port"] for each in dev] == [5432]


def test_a_login_shows_no_password() -> None:
    assert "secret" not in repr(Login({"host": "db"}, "secret"))

"""The sources that commands read: their options, and the connections to them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import boto3
import psycopg
import typer
from botocore.exceptions import BotoCoreError, ClientError
from psycopg.conninfo import conninfo_to_dict

from headwater.commands.environment_database import EnvironmentDatabase
from headwater.commands.postgresql import PASSWORD_VARIABLE, Login, connected, database_password
from headwater.contract.masks import read_key
from headwater.contract.model import Contract, of_database
from headwater.definitions.source_database import CDC_ROLE, OWNER_ROLE, READER_ROLE
from headwater.environment.model import SOURCE_NAMES
from headwater.errors import UserError
from headwater.verify.postgresql_errors import told

DEFAULT_REGION = "us-east-1"  # where neither an option nor the AWS configuration names one
ADMINISTRATOR = "postgres"

DatabaseUrl = Annotated[
    str, typer.Option(help="PostgreSQL connection string without the password; replaces the next four.")
]
_OF_ENV = "that of ENV's database, or"
Host = Annotated[
    str | None,
    typer.Option(
        help="The database's host; of ENV's database another way to it, such as a tunnel.",
        show_default=f"{_OF_ENV} localhost",
    ),
]
Port = Annotated[
    int | None, typer.Option(help="The database's port.", min=1, max=65535, show_default=f"{_OF_ENV} 5432")
]
Database = Annotated[str | None, typer.Option(help="The database's name.", show_default="that of ENV's database")]
_PASSWORD = f"{PASSWORD_VARIABLE}, ENV's secret of the role, or a prompt gives the password."
User = Annotated[
    str | None,
    typer.Option(
        help=f"A role that may read the tables; {_PASSWORD}",
        show_default=f"{CDC_ROLE} of ENV's existing database, or {READER_ROLE}",
    ),
]
Administrator = Annotated[
    str | None,
    typer.Option(
        help=f"A role that may read the tables and ask the source connector; {_PASSWORD}",
        show_default=f"{CDC_ROLE} of ENV's existing database, {OWNER_ROLE} of one that the deployment has made, or "
        f"{ADMINISTRATOR}",
    ),
]
DynamodbTable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONTRACT=TABLE",
        help="A contract's DynamoDB table, where its name is not the contract's source.table; can be repeated.",
    ),
]
DynamodbEndpoint = Annotated[str, typer.Option(help="Address of a DynamoDB API that is not AWS's.")]
MaskSecret = Annotated[
    str,
    typer.Option(help="Secret with the key of masks, which tables with masks by hmac need: headwater/ENV/mask."),
]
Region = Annotated[str, typer.Option(help="AWS region; by default the AWS configuration's.")]


def refuse_without_contract(contracts: Sequence[Contract], source: str, option: str) -> None:
    """Raise UserError if no contract is of the database ``source``, which ``option`` asks for."""
    if not of_database(contracts, source):
        found = ", ".join(contract.table for contract in contracts)
        raise UserError(
            f"{option}: found contracts of {found} alone, expected one of {SOURCE_NAMES[source]} at least: "
            "headwater contract infer writes some"
        )


def contract_of(described: Sequence[Contract], table: str, option: str = "TABLE", where: str = "") -> Contract:
    """The contract of the lake table that ``option`` names. Raises UserError, whose text ends with ``where``."""
    known = {contract.table: contract for contract in described}
    if table not in known:
        raise UserError(f"{option}: found {table!r}, expected one of {', '.join(known)}{where}")
    return known[table]


def connector(
    url: str,
    host: str | None = None,
    port: int | None = None,
    database: str | None = None,
    user: str | None = None,
    *,
    of: EnvironmentDatabase | None = None,
    as_owner: bool = False,
    where_refused: str = "",
) -> Callable[[], psycopg.Connection]:
    """Return a function that connects to PostgreSQL. The password is found, or asked for, before this returns.

    ``url`` says everything, if it is given. Otherwise ``of``, an environment's database, completes the options; without
    ``of`` the database is this machine's. ``as_owner``: the default user may write, too. ``where_refused`` ends the
    message if the server refuses user or password.

    Both functions raise UserError if they fail, and CredentialsRefused if the server refuses user or password.
    """
    if url:
        login = _by_url(url)
    elif of is not None:
        login = of.login(host, port, database, user, as_owner=as_owner)
    elif not database:
        raise UserError("--database: found nothing, expected the database's name")
    else:
        name = user or (ADMINISTRATOR if as_owner else READER_ROLE)
        parts = {"host": host or "localhost", "port": port or 5432, "dbname": database, "user": name}
        login = Login(parts, database_password(name))
    return partial(connected, login, where_refused=where_refused)


def parts_of_url(url: str) -> dict[str, object]:
    """Return libpq's parameters in the value of --database-url. Raises UserError, also if it has a password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UserError(f"--database-url: {error}; expected e.g. postgresql://user@host:5432/shop.") from None
    if "password" in parts:
        raise UserError(
            "--database-url: found a password, which other users of this machine could see. Put it into "
            f"{PASSWORD_VARIABLE}, or leave it out and type it at the prompt."
        )
    return dict(parts)


def _by_url(url: str) -> Login:
    parts = parts_of_url(url)
    return Login(parts, database_password(str(parts.get("user", "the database user"))))


def first_value(connection: psycopg.Connection, query: str) -> str:
    """The first value that a query gives, as text. Raises UserError if it is not answered."""
    try:
        rows = connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        raise UserError(f"PostgreSQL does not answer: {told(error)}") from None
    return str(rows[0][0])


def renamed_tables(options: Sequence[str], contracts: Sequence[Contract]) -> Mapping[str, str]:
    """The values of --dynamodb-table, as DynamoDB tables by contract."""
    known = [contract.table for contract in contracts]
    tables: dict[str, str] = {}
    for option in options:
        name, _, table = option.partition("=")
        if not table or name not in known or name in tables:
            raise UserError(
                f"--dynamodb-table: found {option!r}, expected CONTRACT=TABLE, each contract at most once, out of: "
                f"{', '.join(known) or 'none, because no contract has source.database: dynamodb'}."
            )
        tables[name] = table
    return tables


def dynamodb_client(endpoint: str, region: str, configured: boto3.Session) -> Any:
    """boto3's client for the DynamoDB of the options. Raises UserError if they cannot be used."""
    try:
        return configured.client(
            "dynamodb", region_name=region or configured.region_name or DEFAULT_REGION, endpoint_url=endpoint or None
        )
    except ValueError as error:
        raise UserError(
            f"--dynamodb-endpoint, --region: {error}; expected e.g. http://127.0.0.1:8000 and eu-central-1."
        ) from None


def kinesis_client(endpoint: str, region: str, configured: boto3.Session) -> Any:
    """boto3's client for Kinesis."""
    return configured.client(
        "kinesis", region_name=region or configured.region_name or DEFAULT_REGION, endpoint_url=endpoint or None
    )


def mask_key(secret: str, region: str) -> bytes | None:
    """The key in the secret of the options; None if they name none. Raises UserError if it cannot be read."""
    if not secret:
        return None
    configured = session()
    try:
        client = configured.client("secretsmanager", region_name=region or configured.region_name or DEFAULT_REGION)
        return read_key(client, secret)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"--mask-secret: {secret} cannot be read: {error}. It needs secretsmanager:GetSecretValue and kms:Decrypt."
        ) from None


def session() -> boto3.Session:
    """Return a session with the AWS configuration of the machine. Raises UserError if it cannot be used."""
    try:
        return boto3.Session()
    except BotoCoreError as error:
        raise UserError(f"The AWS configuration cannot be used: {error}.") from None

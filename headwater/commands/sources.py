"""The sources that commands read: the options that name them, and their connections."""

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
_OF_ENV = "ENV's database's, or"
Host = Annotated[
    str | None,
    typer.Option(
        help="The database's host. With --env, another way to the database, such as a tunnel.",
        show_default=f"{_OF_ENV} localhost",
    ),
]
Port = Annotated[
    int | None, typer.Option(help="The database's port.", min=1, max=65535, show_default=f"{_OF_ENV} 5432")
]
Database = Annotated[str | None, typer.Option(help="The database's name.", show_default="ENV's database")]
_PASSWORD = f"Its password is in {PASSWORD_VARIABLE} or ENV's secret of the role, or a prompt asks for it."
User = Annotated[
    str | None,
    typer.Option(
        help=f"A role that may read the tables. {_PASSWORD}",
        show_default=f"{CDC_ROLE} of ENV's existing database, or {READER_ROLE}",
    ),
]
Administrator = Annotated[
    str | None,
    typer.Option(
        help=f"A role that may read the tables and write the source connector's signals. {_PASSWORD}",
        show_default=f"{CDC_ROLE} of ENV's existing database, {OWNER_ROLE} of one that the deployment has made, or "
        f"{ADMINISTRATOR}",
    ),
]
DynamodbTable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONTRACT=TABLE",
        help="A contract's DynamoDB table, if its name differs from the contract's source.table; can be repeated.",
    ),
]
DynamodbEndpoint = Annotated[str, typer.Option(help="Address of a DynamoDB API that is not AWS's.")]
MaskSecret = Annotated[
    str,
    typer.Option(help="Secret with the key of masks: headwater/ENV/mask. Tables with hmac masks need it."),
]
Region = Annotated[str, typer.Option(help="AWS region; by default the AWS configuration's.")]


def refuse_without_contract(contracts: Sequence[Contract], source: str, option: str) -> None:
    """Raise UserError, naming ``option``, if no contract has the database ``source``."""
    if not of_database(contracts, source):
        found = ", ".join(contract.table for contract in contracts)
        raise UserError(
            f"{option}: found only contracts of {found}, expected at least one of {SOURCE_NAMES[source]}: "
            "headwater contract infer writes contracts"
        )


def contract_of(described: Sequence[Contract], table: str, option: str = "TABLE", where: str = "") -> Contract:
    """Return the contract of the lake table that ``option`` names. Raises UserError, whose text ends with ``where``."""
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
    """Find the password, or ask for it, and return a function that connects to PostgreSQL.

    - ``url``: a connection string, which replaces all other options.
    - ``of``: an environment's database, which completes the options; None for a database without an environment.
    - ``as_owner``: the default user may write, too.
    - ``where_refused``: the end of the message if the server refuses the user or the password.

    Both functions raise UserError if they fail, and CredentialsRefused if the server refuses the user or the password.
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
    """Return libpq's parameters in the value of --database-url. Raises UserError, also if they have a password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UserError(f"--database-url: {error}; expected e.g. postgresql://user@host:5432/shop.") from None
    if "password" in parts:
        raise UserError(
            "--database-url: found a password, which other users of this machine could see. Put the password into "
            f"{PASSWORD_VARIABLE}, or leave it out and type it at the prompt."
        )
    return dict(parts)


def _by_url(url: str) -> Login:
    parts = parts_of_url(url)
    return Login(parts, database_password(str(parts.get("user", "the database user"))))


def first_value(connection: psycopg.Connection, query: str) -> str:
    """Return the first value of a query's result, as text. Raises UserError if the query fails."""
    try:
        rows = connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        raise UserError(f"PostgreSQL does not answer: {told(error)}") from None
    return str(rows[0][0])


def renamed_tables(options: Sequence[str], contracts: Sequence[Contract]) -> Mapping[str, str]:
    """Return the DynamoDB tables that values of --dynamodb-table name, by contract. Raises UserError."""
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
    """Return boto3's client for DynamoDB. Raises UserError if the options cannot be used."""
    try:
        return configured.client(
            "dynamodb", region_name=region or configured.region_name or DEFAULT_REGION, endpoint_url=endpoint or None
        )
    except ValueError as error:
        raise UserError(
            f"--dynamodb-endpoint, --region: {error}; expected e.g. http://127.0.0.1:8000 and eu-central-1."
        ) from None


def kinesis_client(endpoint: str, region: str, configured: boto3.Session) -> Any:
    """Return boto3's client for Kinesis."""
    return configured.client(
        "kinesis", region_name=region or configured.region_name or DEFAULT_REGION, endpoint_url=endpoint or None
    )


def mask_key(secret: str, region: str) -> bytes | None:
    """Return the key in a secret; None if ``secret`` is "". Raises UserError if the secret cannot be read."""
    if not secret:
        return None
    configured = session()
    try:
        client = configured.client("secretsmanager", region_name=region or configured.region_name or DEFAULT_REGION)
        return read_key(client, secret)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"--mask-secret: {secret} cannot be read: {error}. Reading needs secretsmanager:GetSecretValue and "
            "kms:Decrypt."
        ) from None


def session() -> boto3.Session:
    """Return a session with the machine's AWS configuration. Raises UserError if that cannot be used."""
    try:
        return boto3.Session()
    except BotoCoreError as error:
        raise UserError(f"The AWS configuration cannot be used: {error}.") from None

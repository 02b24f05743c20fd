"""``headwater contract``: check contracts, compare versions, and write new ones."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headwater.commands import accounts, environments, inferred_contracts, sources
from headwater.commands.advice import as_typed
from headwater.commands.environment_database import EnvironmentDatabase
from headwater.commands.options import Folder
from headwater.contract import evolution
from headwater.contract.evolution import Change
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contract, read_contracts, read_versions
from headwater.definitions import dynamodb_checks, kinesis_checks, source_checks
from headwater.definitions.dynamodb_table import key_attributes
from headwater.definitions.kinesis_checks import ExpectedStream
from headwater.definitions.left_slot import unread_slot
from headwater.definitions.open_transactions import open_transactions
from headwater.definitions.source_checks import NOTE, PROBLEMS, WARNING, Finding
from headwater.definitions.source_database import CDC_ROLE, READER_ROLE
from headwater.environment.key_value_names import KeyValueNames, key_value_names
from headwater.environment.model import Environment, ExistingTables
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.postgresql.queries import query_of, unreadable_catalog
from headwater.verify import load_queries
from headwater.yaml_files import yaml_paths

_UNCAPTURED = (
    f"The role {CDC_ROLE} is made by `headwater db capture`: run it first, or check as the administrator with --user."
)

app = typer.Typer(help="Check contracts, explain changes of contracts, and write contracts.", no_args_is_help=True)


@app.callback()
def contract() -> None:
    """Check contracts, explain changes of contracts, and write contracts for existing tables."""


@app.command()
def check(
    environment: Annotated[
        str | None,
        typer.Option("--env", metavar="ENV", help="The environment whose sources and region to use."),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Compare with the real sources too.")] = False,
    *,
    folder: Folder,
    database_url: sources.DatabaseUrl = "",
    host: sources.Host = None,
    port: sources.Port = None,
    database: sources.Database = None,
    user: sources.User = None,
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    region: sources.Region = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the contracts' files and, with --live, whether the sources are as the contracts say.

    The status is 1 if a file is invalid or a source does not fit. Findings with the same remedy are below it.

    --live changes nothing. It reads PostgreSQL's catalog, which any role may read, and DynamoDB's descriptions of the
    tables. Of existing DynamoDB tables it checks the streams as well. A deployment that makes the database checks it by
    the same rules, and fails before the source connector starts.

    Host, port, name and role of ENV's database are the defaults of the options. PostgreSQL's password comes from
    HEADWATER_DB_PASSWORD, ENV's secret of the role, or a prompt.
    """
    settings = read_environment(environment, folder.config) if environment is not None else None
    described, invalid = _read(folder.contracts)
    found: list[Finding] = []
    if live and not invalid:
        key_value = of_database(described, DYNAMODB)
        known = key_value_names(settings, described) if settings else {}
        names = {entry: each.table for entry, each in known.items()}
        names |= sources.renamed_tables(dynamodb_table or [], key_value)
        region = region or (settings.region if settings else "")
        if of_database(described, POSTGRESQL):
            of = None
            if settings is not None:
                of = EnvironmentDatabase(environments.described(settings, described, folder), folder)
                user = user or of.user(as_owner=False)
            advice = _UNCAPTURED if user == CDC_ROLE and not database_url else ""
            with sources.connector(
                database_url, host, port, database, user, of=of, where_refused=advice
            )() as connection:
                found += _in_postgresql(described, connection)
        if key_value:
            streams = _existing_streams(settings, known)
            session, endpoint = accounts.of(settings, folder).session() if settings else (sources.session(), "")
            client = sources.dynamodb_client(dynamodb_endpoint or endpoint, region, session)
            found += _in_dynamodb(described, names, client, streams)
            if streams:
                found += _in_kinesis(streams, sources.kinesis_client(endpoint, region, session))
    failed = bool(invalid) or any(finding.level in PROBLEMS for finding in found)
    if as_json:
        document = {"fits": not failed, "invalid": invalid, "findings": [asdict(finding) for finding in found]}
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        _show(described, invalid, found, live=live)
    if failed:
        raise typer.Exit(1)


@app.command()
def infer(
    schema: inferred_contracts.Schema = "",
    table: inferred_contracts.Table = None,
    from_dynamodb: inferred_contracts.FromDynamodb = None,
    *,
    folder: Folder,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite existing contracts.")] = False,
    sample: inferred_contracts.Sample = 1000,
    database_url: sources.DatabaseUrl = "",
    host: inferred_contracts.Host = "localhost",
    port: inferred_contracts.Port = 5432,
    database: inferred_contracts.Database = "",
    user: inferred_contracts.User = READER_ROLE,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    region: sources.Region = "",
) -> None:
    """Write contracts for existing tables: tables of a PostgreSQL schema, or DynamoDB tables.

    A comment marks each guess; values that no column takes are in _rest. The command reads PostgreSQL's catalog, or a
    sample of DynamoDB's items, and changes nothing in the source. The status is 1 if a table cannot be captured.
    """
    if not schema and not from_dynamodb:
        raise UserError("infer: found neither --schema nor --from-dynamodb, expected one of them, or both")
    of_postgresql = inferred_contracts.Tables(schema, table or (), database_url, host, port, database, user)
    of_dynamodb = inferred_contracts.Items(from_dynamodb or (), sample, dynamodb_endpoint, region)
    found = inferred_contracts.infer(of_postgresql, of_dynamodb)
    inferred_contracts.write(found, folder.contracts, replace=replace)
    inferred_contracts.show(found, folder.contracts)


_STATUS = {evolution.SAFE: 0, evolution.REFUSED: 1, evolution.FILL: 3}


@app.command()
def diff(
    old: Annotated[
        str,
        typer.Argument(
            help="The contracts that are deployed: a file, a folder, or a folder of a git revision (main:contracts)."
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(
            help="The contracts to deploy, given in the same way.",
            show_default="the contracts of the lake folder",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say of each change between two states of contracts whether it is safe, needs a fill, or is refused and why.

    The status is 0 if all changes are safe, and 1 if the writer or the deployment would refuse one. It is 3 if stored
    rows lack something until a command such as `headwater fill TABLE` has run. The writer goes by the same rules.
    """
    new = new or str(LakeFolder.find().contracts)
    if Path(old).is_file() != Path(new).is_file():
        raise UserError(f"OLD, NEW: found a folder and a file ({old}, {new}), expected two folders or two files")
    found = evolution.changes(_versions(old), _versions(new))
    verdicts = {change.verdict for change in found}
    verdict = next((worst for worst in (evolution.REFUSED, evolution.FILL) if worst in verdicts), evolution.SAFE)
    if as_json:
        document = {"verdict": verdict, "changes": [asdict(change) for change in found]}
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        _show_changes(found)
    raise typer.Exit(_STATUS[verdict])


def _versions(origin: str) -> list[Contract]:
    """The contracts of a file, a folder, or a folder of a git revision."""
    if Path(origin).exists():
        return read_versions(Path(origin))
    archive = subprocess.run(["git", "archive", "--", origin], capture_output=True)
    if archive.returncode:
        raise UserError(
            f"{origin}: found neither a file nor a folder, and git says: {archive.stderr.decode().strip()}; expected "
            "one of these, or a folder of a revision such as main:contracts"
        )
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        return read_versions(Path(folder))


def _show_changes(found: Sequence[Change]) -> None:
    console = Console()
    if not found:
        console.print("No difference")
        return
    grid = Table("table", "", "what changes", "what it means", "what to do", show_lines=True)
    colours = {evolution.SAFE: "green", evolution.FILL: "yellow", evolution.REFUSED: "bold red"}
    for change in found:
        grid.add_row(
            escape(change.table),
            f"[{colours[change.verdict]}]{change.verdict}[/]",
            escape(f"{change.subject}: {change.change}"),
            escape(change.meaning),
            escape(as_typed(change.action)),
        )
    console.print(grid)


def _read(folder: Path) -> tuple[list[Contract], list[str]]:
    """Return the contracts of a folder, and the errors of its files; no contract if there is an error."""
    invalid = []
    for path in yaml_paths(folder):
        try:
            entry = read_contract(path)
            if entry.source.database == DYNAMODB:
                key_attributes(entry)
        except UserError as error:
            invalid.append(str(error))
    if invalid:
        return [], invalid
    try:
        described = read_contracts(folder)
        load_queries(described, folder)
    except UserError as error:
        return [], [str(error)]
    return described, []


def _in_postgresql(contracts: Sequence[Contract], connection: psycopg.Connection) -> list[Finding]:
    query = query_of(connection)
    try:
        unread = unread_slot(query)
        found = source_checks.findings(contracts, CDC_ROLE, query)
        if unread is not None:
            found.append(Finding("", "server", WARNING, unread.found, "one that a connector reads", unread.action))
        found += [Finding("", "server", WARNING, each.found, "none", each.action) for each in open_transactions(query)]
        return found
    except psycopg.Error as error:
        raise unreadable_catalog(error) from None


def _existing_streams(
    settings: Environment | None, known: Mapping[str, KeyValueNames]
) -> dict[str, ExpectedStream] | None:
    """The streams that an environment says are there, by contract; None if it makes its own."""
    if settings is None or not isinstance(settings.key_value, ExistingTables):
        return None
    hours, days = settings.key_value.stream_retention_hours, settings.lake.tombstone_days
    return {contract: ExpectedStream(each.stream, each.stream_key, hours, days) for contract, each in known.items()}


def _in_kinesis(streams: Mapping[str, ExpectedStream], client: object) -> list[Finding]:
    try:
        return kinesis_checks.findings(streams, client)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"Kinesis does not describe the streams: {error}. Check the credentials and --region; the check needs "
            "kinesis:DescribeStreamSummary."
        ) from None


def _in_dynamodb(
    contracts: Sequence[Contract],
    names: Mapping[str, str],
    client: object,
    streams: Mapping[str, ExpectedStream] | None,
) -> list[Finding]:
    named = None if streams is None else {contract: stream.name for contract, stream in streams.items()}
    try:
        return dynamodb_checks.findings(contracts, names, client, named)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"DynamoDB does not describe the tables: {error}. Check the credentials, --region and --dynamodb-endpoint; "
            "the check needs dynamodb:DescribeTable, DescribeTimeToLive, DescribeContinuousBackups and "
            "DescribeKinesisStreamingDestination."
        ) from None


def _by_action(found: Iterable[Finding]) -> dict[tuple[str, str], dict[tuple[str, str], list[str]]]:
    """Return the places of the findings by level and action, and below these by ``found`` and ``expected``."""
    groups: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for each in found:
        texts = groups.setdefault((each.level, each.action), {})
        texts.setdefault((each.found, each.expected), []).append(each.place)
    return groups


def _wrapped(text: str, width: int, indent: str) -> str:
    """A paragraph in lines of this many characters; all but the first are indented by two more."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _show(contracts: Sequence[Contract], invalid: Sequence[str], found: Sequence[Finding], *, live: bool) -> None:
    console = Console()
    for problem in invalid:
        console.print(as_typed(problem), markup=False, highlight=False, soft_wrap=True)
    colours = {NOTE: "", WARNING: "yellow"}
    for (level, action), texts in _by_action(found).items():
        heading = Text(_wrapped(f"{level}: {as_typed(action)}", console.width, ""))
        heading.stylize(colours.get(level, "bold red"), 0, len(level))
        console.print(heading, soft_wrap=True)
        for (seen, expected), places in texts.items():
            told = seen if level == NOTE else f"found {seen}, expected {expected}"
            line = _wrapped(f"{', '.join(places)}: {told}", console.width, "  ")
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not invalid:
        levels = [finding.level for finding in found]
        problems = sum(level in PROBLEMS for level in levels)
        told = f"problems: {problems}, warnings: {levels.count(WARNING)}, notes: {levels.count(NOTE)}"
        console.print(f"valid contracts: {len(contracts)}, {told if live else 'not compared with the sources'}")

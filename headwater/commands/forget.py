"""``headwater forget``: erase one row and its past from every store."""

import base64
import datetime as dt
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from headwater.commands import lakes, sources
from headwater.commands.advice import advise
from headwater.commands.backfill import copies_folder
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, LAKE, REGION, s3_errors, watch
from headwater.console import say
from headwater.contract.model import DYNAMODB, HISTORY_ENDING, Contract, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.exports import EXPORTS
from headwater.definitions.lake_content import read_content
from headwater.environment.expiries import expiries
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.lake.decoding.changes import plain_digits
from headwater.lake.decoding.debezium_decoder import order as order_at_lsn
from headwater.lake.decoding.dynamodb_decoder import order_at_moment
from headwater.lake.requests import forget_requests
from headwater.lake.requests.backfill_requests import BACKFILL
from headwater.lake.requests.copy_requests import COPY
from headwater.lake.requests.forget_requests import Forgotten, key_values
from headwater.lake.requests.protocol import Requests, Status
from headwater.lake.sources import exports_left, table_copy
from headwater.lake.sources.scanned_export import delete_export
from headwater.postgresql import absence

_SETTINGS = "local"
"""The environment whose settings say what expires if options name the lake."""
_MARGIN_MICROS = 60 * 10**6
"""How many microseconds DynamoDB's approximate time of a change may be ahead of its clock."""


def forget(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The lake table's name, as in its contract.")],
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="The row's key: COLUMN=VALUE for each of its columns, or the one value."),
    ],
    environment: Annotated[
        str,
        typer.Option(
            "--env",
            metavar="ENV",
            help="A deployed environment. Its file gives the lake, the tables, the expiries and the epochs. Without "
            "--env, use --lake; the settings are then local's.",
        ),
    ] = "",
    lake: Annotated[str, LAKE] = "",
    host: sources.Host = None,
    port: sources.Port = None,
    user: sources.Administrator = None,
    database: sources.Database = None,
    dynamodb_table: sources.DynamodbTable = None,
    dynamodb_endpoint: sources.DynamodbEndpoint = "",
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    *,
    folder: Folder,
    receipt: Annotated[Path | None, typer.Option(help="Also write the receipt into this file, as JSON.")] = None,
    delete_exports: Annotated[
        bool, typer.Option("--delete-exports", help="Delete the table's exports or copies, which lie beside the lake.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only ask the source, and print what would be searched.")
    ] = False,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the requests for the key instead.")] = False,
) -> None:
    """Have the running writers forget a row that its source no longer has.

    The writers erase the row from the table and its older files, the history, the landing objects and the quarantine.
    No older record brings the row back. The command refuses while the source still has the row. Run it once for each
    table that has rows of the same person. Ctrl-C stops only the watching; run the same command again to go on. The
    options say how to reach PostgreSQL; the environment's file has all other settings.
    """
    described = read_contracts(folder.contracts)
    contract = sources.contract_of(described, table)
    in_charts = read_content(folder.database, folder.queries, described).shows(contract)
    texts = _texts(contract, key)
    key_values(contract, texts)
    place = lakes.of_option(
        environment,
        folder,
        lake,
        endpoint,
        region,
        described=described,
        dynamodb_table=dynamodb_table or [],
        dynamodb_endpoint=dynamodb_endpoint,
    )
    settings = read_environment(environment or _SETTINGS, folder.config)
    source: _Source
    if contract.source.database == DYNAMODB:
        called = place.tables.get(contract.table, contract.source.table)
        source = _Items(place.dynamodb, contract, called, settings.dynamodb.glue.epoch)
    else:
        connector = sources.connector("", host, port, database, user, of=place.database, as_owner=True)
        source = _Rows(contract, connector, settings.postgresql.connect.epoch)
    texts = source.spelled(texts)
    if withdraw:
        with s3_errors():
            _withdraw(place.s3, place.uri, contract, texts)
        return
    until = source.absent_until(texts)
    if until is None:
        raise UserError(
            f"{source.name}: found the row, expected none: delete it there first. Otherwise it comes back into the "
            "lake with its next change, or when the table is read again."
        )
    with s3_errors():
        s3, uri = place.s3, place.uri
        _refuse_ended_history(s3, uri, contract, described)
        exports = _exports(s3, uri, contract, source.name, delete=delete_exports and not dry_run)
        if dry_run:
            _tell_searched(s3, uri, contract, exports)
            return
        if exports:
            raise UserError(
                f"{exports[0]}: found an export or a copy, expected none: it may have the row, and no writer deletes "
                "it. Add --delete-exports, which deletes all exports and copies of the table."
            )
        asked = [
            (each.table, requests, *forget_requests.ask(requests, Forgotten(texts, until)))
            for each in lake_tables([contract])
            for requests in [Requests(s3, uri, each.table)]
        ]
        answers = {of: watch(requests, id_, "steps", "rows and records", token) for of, requests, id_, token in asked}
    written = _receipt(contract, settings, answers, described, in_charts=in_charts)
    written["source"] = {"asked": source.name, "row_is_back": None}
    _write(receipt, written)
    _show(written)
    # Ask the source last, so that the receipt is written even if the source does not answer.
    written["source"]["row_is_back"] = _is_back(source, texts)
    _write(receipt, written)


def _texts(contract: Contract, key: Sequence[str]) -> dict[str, str]:
    """Return the key's values by column. Raises UserError."""
    if len(contract.key) == 1 and len(key) == 1 and not key[0].startswith(f"{contract.key[0]}="):
        return {contract.key[0]: key[0]}
    named = [text.partition("=") for text in key]
    if any(not separator for _, separator, _ in named) or len({column for column, *_ in named}) < len(named):
        expected = " ".join(f"{column}=VALUE" for column in contract.key)
        raise UserError(f"KEY: found {len(key)} values, expected {expected}, the key of {contract.table}")
    return {column: value for column, _, value in named}


def _withdraw(s3: Any, lake: str, contract: Contract, key: Mapping[str, str]) -> None:
    tables = [each.table for each in lake_tables([contract])]
    withdrawn = [table for table in tables if forget_requests.withdraw(Requests(s3, lake, table), key)]
    if not withdrawn:
        raise UserError(f"{contract.table}: found no request to forget this key: there is nothing to withdraw.")
    say(
        f"Withdrawn for {' and '.join(withdrawn)}. A writer that has begun stops after its current step. The row then "
        "stays away, but older data of it may be left. To delete that too, run the command without --withdraw."
    )


# --- The source -------------------------------------------------------------------------------------------------------


class _Source(Protocol):
    """A table in its source database."""

    @property
    def name(self) -> str:
        """The table's name in the source."""

    def spelled(self, key: Mapping[str, str]) -> dict[str, str]:
        """Return a key that a person has typed as change records spell it."""

    def absent_until(self, key: Mapping[str, str]) -> str | None:
        """Return the highest ``_order`` that records of an absent row can have; None if the source has the row."""


@dataclass
class _Rows:
    """A table in PostgreSQL."""

    contract: Contract
    """The table's contract."""
    connect: Callable[[], Any]
    """Opens a connection. Each query opens one, because an idle connection may be cut while the writers work."""
    epoch: int
    """The source connector's epoch."""

    @property
    def name(self) -> str:
        return self.contract.source.table

    def spelled(self, key: Mapping[str, str]) -> dict[str, str]:
        with self.connect() as connection:
            return dict(zip(key, absence.spelled(connection, self._told(key)), strict=True))

    def _told(self, key: Mapping[str, str]) -> absence.Key:
        columns = {name: self.contract.column(name) for name in key}
        return {column.path[0]: (column.source_type or "text", key[name]) for name, column in columns.items()}

    def absent_until(self, key: Mapping[str, str]) -> str | None:
        with self.connect() as connection:
            lsn = absence.absent_until(connection, self.contract.source.table, self._told(key))
        return None if lsn is None else order_at_lsn(self.epoch, lsn, lsn, snapshot=False)


@dataclass
class _Items:
    """A table in DynamoDB."""

    client: Any
    """boto3's client for DynamoDB."""
    contract: Contract
    """The table's contract."""
    name: str
    """The table's name in DynamoDB."""
    epoch: int
    """The epoch of the Glue job."""

    def spelled(self, key: Mapping[str, str]) -> dict[str, str]:
        numbers = [name for name in key if self.contract.column(name).source_type == "N"]
        return {**key, **{name: plain_digits(Decimal(key[name])) for name in numbers}}

    def absent_until(self, key: Mapping[str, str]) -> str | None:
        columns = [self.contract.column(name) for name in key]
        where = " AND ".join(f'"{column.path[0]}" = ?' for column in columns)
        values = [_attribute(column.source_type or "S", key[column.name]) for column in columns]
        request = {"Statement": f'SELECT * FROM "{self.name}" WHERE {where}', "Parameters": values}
        further: dict[str, str] = {}
        try:
            # An answer may have several pages, and the item may be on any of them.
            while True:
                page = self.client.execute_statement(**request, ConsistentRead=True, **further)
                if page["Items"]:
                    return None
                if not page.get("NextToken"):
                    break
                further = {"NextToken": page["NextToken"]}
        except (BotoCoreError, ClientError) as error:
            raise UserError(
                f"{self.name}: DynamoDB did not say whether it has the item: {error}. Nothing is forgotten yet. Check "
                "the credentials, which need dynamodb:PartiQLSelect, and --env, or else --dynamodb-table and the "
                "endpoint."
            ) from None
        asked_at = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
        return order_at_moment(self.epoch, int(asked_at.timestamp()) * 10**6 + _MARGIN_MICROS)


def _attribute(tag: str, text: str) -> dict[str, Any]:
    return {tag: base64.b64decode(text) if tag == "B" else text}


def _is_back(source: _Source, key: Mapping[str, str]) -> bool | None:
    """Return whether the source has a row of the key again, and print a warning. None if the source does not answer."""
    try:
        is_back = source.absent_until(key) is None
    except UserError as error:
        sys.stderr.write(
            f"{source.name} does not answer, so it may have a new row of this key: {error} "
            "The old row stays forgotten.\n"
        )
        return None
    if is_back:
        sys.stderr.write(
            f"{source.name} has a row of this key again. If that row is new and the lake lacks it, have it read again: "
            "headwater resync --where.\n"
        )
    return is_back


# --- The searched stores ----------------------------------------------------------------------------------------------


def _exports(s3: Any, lake: str, contract: Contract, table: str, *, delete: bool) -> list[str]:
    """Return the addresses of a contract's remaining exports or copies, or with ``delete`` delete them all.

    A DynamoDB table has exports, and a PostgreSQL table has copies. Raises UserError if one is being loaded, or is not
    complete.
    """
    if contract.source.database == DYNAMODB:
        left = exports_left.exports_of(s3, lakes.beside(lake, EXPORTS), table)
    else:
        left = table_copy.copies_in(s3, copies_folder(lake, contract))
    if not delete:
        return left
    for each in lake_tables([contract]):
        _refuse_while_loading(Requests(s3, lake, each.table))
    for uri in left:
        delete_export(s3, uri)
        exports_left.delete_former_versions(s3, uri)
    return []


def _refuse_ended_history(s3: Any, lake: str, contract: Contract, described: Sequence[Contract]) -> None:
    """Raise UserError if the table's history was ended and its files are left: no writer erases the row there."""
    table = f"{contract.table}{HISTORY_ENDING}"
    if contract.history is not None or any(other.table == table for other in described):
        return
    bucket, prefix = split_uri(lake)
    folder = key_below(prefix, f"{table}/")
    if s3.list_objects_v2(Bucket=bucket, Prefix=folder, MaxKeys=1)["KeyCount"]:
        raise UserError(
            f"{object_uri(bucket, folder)}: found files of a history that was ended, expected none. The files may have "
            "old values of the row, and no writer removes these. Delete the files, and their older versions."
        )


def _refuse_while_loading(requests: Requests) -> None:
    for id_, _ in requests.listed():
        if id_.partition("/")[0] in (BACKFILL, COPY) and not requests.is_answered(id_):
            raise UserError(f"{id_}: found an unfinished backfill, expected none: wait for its end, or withdraw it")


def _tell_searched(s3: Any, lake: str, contract: Contract, exports: Sequence[str]) -> None:
    say(f"{contract.source.table} does not have the row. Nothing was done. A run without --dry-run would search:")
    bucket, prefix = split_uri(lake)
    for each in lake_tables([contract]):
        for folder in (each.table, f"_quarantine/{each.table}"):
            where = key_below(prefix, f"{folder}/")
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=where)
            say(f"  {object_uri(bucket, where)}: {sum(page['KeyCount'] for page in pages):,} objects")
    if contract.source.database != DYNAMODB:
        say(f"  the landing objects of the topic of {contract.source.table}")
    for uri in exports:
        say(f"  {uri}: an export, which --delete-exports deletes")


# --- The receipt ------------------------------------------------------------------------------------------------------


def _receipt(
    contract: Contract,
    settings: Environment,
    answers: Mapping[str, Status | None],
    described: Sequence[Contract],
    *,
    in_charts: bool,
) -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC)
    told = {table: dict(status.told) for table, status in answers.items() if status is not None}
    hashes = [each.pop("key") for each in told.values()]
    return {
        "table": contract.table,
        "key_hash": hashes[0],
        "environment": settings.name,
        "forgotten_at": now.isoformat(timespec="seconds"),
        "searched": told,
        "not_searched": [other.table for other in described if other.table != contract.table],
        "elsewhere": [each.document(now) for each in expiries(settings, contract, in_charts=in_charts)],
    }


def _write(path: Path | None, receipt: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(receipt, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _show(receipt: Mapping[str, Any]) -> None:
    console = Console(markup=False, highlight=False)
    say(f"Forgotten: a row of {receipt['table']}. The keyed hash of its key is {receipt['key_hash']}")
    grid = Table("searched", "removed")
    # First the stores that the writers have cleared, then those that expire elsewhere.
    for table, told in receipt["searched"].items():
        landing = told["landing"]
        grid.add_row(f"{table} and its files", f"{told['rows']:,} rows, {told['files_deleted']:,} files")
        grid.add_row(
            f"quarantine of {table}: {told['quarantine_objects']:,} objects", f"{told['quarantine_records']:,} records"
        )
        if landing["objects"]:
            removed = f"{landing['records']:,} records, {landing['rewritten']:,} objects rewritten"
            grid.add_row(f"landing: {landing['objects']:,} objects", removed)
        grid.add_row(f"older versions in S3 of these objects of {table}", f"{told['versions_deleted']:,}")
    console.print(grid)
    answers = receipt["searched"].values()
    unreadable = sum(told["landing"]["unreadable"] + told["quarantine_unreadable"] for told in answers)
    if unreadable:
        say(f"{unreadable:,} records have no readable key, so each of them may be of this row.")
        advise("Read them with headwater quarantine show, and drop them.")
    grid = Table("expires elsewhere", "gone by", "as said by")
    for entry in receipt["elsewhere"]:
        grid.add_row(entry["place"], entry["gone_by"] or "not known", entry["why"])
    console.print(grid)
    if not any(told["rows"] or told["quarantine_records"] or told["landing"]["records"] for told in answers):
        say("Found no data of this key. Check the key: the lake distinguishes capitals and small letters.")
    if receipt["not_searched"]:
        say(f"Other tables were not searched: {', '.join(receipt['not_searched'])}")

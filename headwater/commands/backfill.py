"""``headwater backfill``: load the rows that a table already holds."""

from __future__ import annotations

import gzip
import io
import secrets
import time
from collections.abc import Callable, Sequence
from typing import IO, Annotated, Any

import typer

from headwater.commands import lakes, sources, writer_requests
from headwater.commands.lakes import AnyLake
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, LAKE, REGION, s3_errors
from headwater.console import say
from headwater.contract.model import DYNAMODB, Contract, lake_tables
from headwater.contract.reading import read_contracts
from headwater.definitions.exports import COPIES, COPY_DAYS
from headwater.errors import UserError
from headwater.lake.requests import backfill_requests, copy_requests
from headwater.lake.requests.protocol import Requests, Status
from headwater.lake.requests.protocol import withdraw as withdraw_request
from headwater.lake.sources import table_copy
from headwater.lake.sources.data_files import DataFile
from headwater.lake.sources.dynamodb_export import Export
from headwater.lake.sources.table_copy import TableCopy
from headwater.postgresql import copying


def backfill(
    table: Annotated[str, typer.Option(help="The lake table's name, as in its contract.")],
    export_uri: Annotated[
        str,
        typer.Argument(metavar="[EXPORT]", help="For a DynamoDB table: s3://bucket/prefix/AWSDynamoDB/EXPORT-ID."),
    ] = "",
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[str, LAKE] = "",
    *,
    folder: Folder,
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    host: sources.Host = None,
    port: sources.Port = None,
    user: sources.Administrator = None,
    database: sources.Database = None,
    readers: Annotated[int, typer.Option(help="For PostgreSQL: how many connections read at once.", min=1)] = 4,
    epoch: Annotated[
        int | None,
        typer.Option(help="For PostgreSQL without --env: the source connector's epoch.", min=1, show_default="1"),
    ] = None,
    mask_secret: Annotated[
        str, typer.Option(help="For PostgreSQL without --env: the secret with the key of hmac masks.")
    ] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the request instead.")] = False,
) -> None:
    """Load the rows that a table already holds, and watch the job that loads them.

    The rows become the oldest state of the table and of its history. The command itself reads a PostgreSQL table, in
    parallel and as of one moment. A DynamoDB table is loaded from an export. Once the load is requested, Ctrl-C stops
    only the watching; run the same command again to go on watching. If you withdraw the backfill of an export, the next
    run goes on at the next data file. No export is loaded twice.
    """
    contract = sources.contract_of(read_contracts(folder.contracts), table, "--table", f", as in {folder.contracts}")
    # Refuse options that do not fit the table's database, or the environment.
    is_keyed = contract.source.database == DYNAMODB
    if is_keyed != bool(export_uri):
        found, expected = ("none", "the export's address") if is_keyed else (export_uri, "none")
        raise UserError(f"EXPORT: found {found}, expected {expected}: {table} is of {contract.source.database}")
    if environment and (epoch is not None or mask_secret):
        option = "--mask-secret" if mask_secret else "--epoch"
        raise UserError(f"--env: found {option}, too, expected one of them: the environment already sets {option}")
    place = lakes.of_option(environment, folder, lake, endpoint, region, mask_secret=mask_secret)
    with s3_errors():
        of_tables = _requests(place.s3, place.uri, contract)
        if withdraw:
            _withdraw(of_tables, export_uri)
        elif is_keyed:
            export = load(
                place.s3,
                place.uri,
                contract,
                export_uri,
                lambda export: f"in {len(export.files):,} files of {export.table}",
            )
            say(f"Done: the {export.items:,} items are in the lake, or in quarantine where they do not fit")
        else:
            # Watch the requests of an earlier run, if there are any. Otherwise read the table, and request its load.
            asked = [
                (requests, *each) for requests in of_tables for each in copy_requests.open_copies(requests).items()
            ]
            if asked:
                say(f"An earlier run has read {table} and requested its load; this one only watches")
            else:
                connect = sources.connector("", host, port, database, user, of=place.database, as_owner=True)
                asked = _ask(place, contract, connect, place.epoch if epoch is None else epoch, readers, of_tables)
            _watch_copies(place.s3, asked)


def load(
    s3: Any, lake: str, contract: Contract, uri: str, named: Callable[[Export], str], *, whole: bool = True
) -> Export:
    """Have an export loaded into a contract's table and its history, and watch the job until it is done.

    - ``named``: returns the origin of the items, for messages.
    - ``whole``: the export has all items of the table, so rows that are not in the export become tombstones.

    Raises UserError.
    """
    of_tables = _requests(s3, lake, contract)
    exports = [backfill_requests.ask(s3, requests, uri, whole=whole) for requests in of_tables]
    export = exports[0]
    say(f"Requested: {export.items:,} items {named(export)}, {export.uri}")
    for requests in of_tables:
        writer_requests.watch(requests, backfill_requests.request_id(export.uri), "files", "items")
    return export


def copies_folder(lake: str, contract: Contract) -> str:
    """Return the address of the folder with a table's copies. Raises ValueError."""
    return lakes.beside(lake, f"{COPIES}/{contract.table}")


def _ask(
    place: AnyLake,
    contract: Contract,
    connect: copying.Connect,
    epoch: int,
    readers: int,
    of_tables: Sequence[Requests],
) -> list[tuple[Requests, str, str]]:
    """Read a PostgreSQL table into a copy beside the lake, request its load, and return the requests.

    Shows the progress of the read. The result is the second argument of ``_watch_copies``.
    """
    key = place.mask_key if contract.needs_mask_key else None
    uri = f"{copies_folder(place.uri, contract)}/{int(time.time() * 1000):014d}-{secrets.token_hex(4)}"
    files: list[DataFile] = []
    read = 0
    with writer_requests.progress_of("parts") as progress:
        task = progress.add_task(f"Reading {contract.source.table}", total=None)

        def store(name: str, body: IO[bytes], rows: int) -> None:
            files.append(table_copy.put_file(place.s3, uri, name, body, rows))

        def report(rows: int, done: int, parts: int) -> None:
            nonlocal read
            read += rows
            progress.update(task, completed=done, total=parts, description=f"{contract.source.table}: {read:,} rows")

        try:
            moment = copying.copy_table(connect, contract, store, readers, key, say, report)
            if not files:
                # An empty table has one empty file, so that the writer commits that there are no rows.
                store("000000-0000.jsonl.gz", io.BytesIO(gzip.compress(b"")), 0)
            in_order = sorted(files, key=lambda file: file.key)
            copy = TableCopy(uri, contract.source.table, epoch, moment.lsn, moment.read_at, moment.is_unique, in_order)
            table_copy.complete(place.s3, copy)
            asked = [(requests, copy_requests.ask(requests, copy), uri) for requests in of_tables]
        except BaseException:
            for requests in of_tables:
                requests.delete(copy_requests.request_id(uri))
            table_copy.delete(place.s3, uri)
            raise
    say(f"Requested: {copy.rows:,} rows in {len(copy.files):,} files of {copy.source}, {copy.uri}")
    return asked


def _watch_copies(s3: Any, asked: Sequence[tuple[Requests, str, str]]) -> None:
    """Watch the writers until they have loaded the copies, and delete each copy whose requests all have final answers.

    Each entry of ``asked`` has the requests of a table, one request's id, and the address of the request's copy.
    """
    try:
        statuses = [writer_requests.watch(requests, id_, "files", "rows") for requests, id_, _ in asked]
    finally:
        # A copy without a final answer stays, even after a withdrawal: the writer may be reading it for a commit.
        needed = {uri for requests, id_, uri in asked if not requests.is_answered(id_)}
        for uri in {uri for _, _, uri in asked} - needed:
            table_copy.delete(s3, uri)
    rows = max((status.records for status in statuses if status is not None), default=0)
    say(f"Done: the {rows:,} rows are in the lake, or in quarantine where they do not fit")


def _requests(s3: Any, lake: str, contract: Contract) -> list[Requests]:
    return [Requests(s3, lake, table.table) for table in lake_tables([contract])]


def _withdraw(of_tables: Sequence[Requests], export_uri: str) -> None:
    """Withdraw the requests for an export; without an export, all requests for copies."""
    if export_uri:
        for requests in of_tables:
            again = "Run the command without --withdraw to go on."
            _tell_withdrawn(withdraw_request(requests, backfill_requests.request_id(export_uri)), again)
        return
    asked = [(requests, *opened) for requests in of_tables for opened in copy_requests.open_copies(requests).items()]
    if not asked:
        raise UserError("No backfill is requested: there is nothing to withdraw.")
    for requests, id_, uri in asked:
        again = f"The copy {uri} stays for {COPY_DAYS} days. If that is too long, delete it."
        _tell_withdrawn(withdraw_request(requests, id_), again)


def _tell_withdrawn(status: Status | None, again: str) -> None:
    if status is None:
        say(f"Withdrawn: no job had started on the request. {again}")
    else:
        say(
            f"Withdrawn: the job stops after its current commit; it has reported {status.parts_done:,} of "
            f"{status.parts:,} files. {again}"
        )

"""``headwater backfill``: load a DynamoDB table export as the oldest state."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.commands import lakes, writer_requests
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, LAKE, REGION, s3_errors
from headwater.console import say
from headwater.contract.model import Contract, lake_tables
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.lake import backfill_requests
from headwater.lake.dynamodb_export import Export
from headwater.lake.requests import Requests
from headwater.lake.requests import withdraw as withdraw_request
from headwater.paths import CONTRACTS


def backfill(
    export_uri: Annotated[str, typer.Argument(help="The export: s3://bucket/prefix/AWSDynamoDB/EXPORT-ID.")],
    table: Annotated[str, typer.Option(help="The lake table, as its contract is called.")],
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[str, LAKE] = "",
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the request back instead.")] = False,
) -> None:
    """Ask the running job to load an export of a DynamoDB table as the oldest state, also of its history, and watch it.

    Ctrl-C only ends the watching; run the same command again to watch on. A withdrawn backfill goes on at the next data
    file when you run the command again. A finished export is never loaded twice.
    """
    contract = _contract(contracts, table)
    place = lakes.of_option(environment, contracts, lake, endpoint, region)
    with s3_errors():
        if withdraw:
            for requests in _requests(place.s3, place.uri, contract):
                _withdraw(requests, export_uri)
            return
        export = load(
            place.s3,
            place.uri,
            contract,
            export_uri,
            lambda export: f"in {len(export.files):,} files of {export.table}",
        )
    say(f"Done: the {export.items:,} items of the export are in the lake, or in quarantine where they do not fit")


def load(
    s3: Any, lake: str, contract: Contract, uri: str, named: Callable[[Export], str], *, whole: bool = True
) -> Export:
    """Ask for an export to be loaded into a contract's table and its history, and watch the job until it is. ``named``
    says where the items are from; unless the export is ``whole``, no item ends that it does not have. Raises UserError.
    """
    of_tables = _requests(s3, lake, contract)
    exports = [backfill_requests.ask(s3, requests, uri, whole=whole) for requests in of_tables]
    export = exports[0]
    say(f"Requested: {export.items:,} items {named(export)}, {export.uri}")
    for requests in of_tables:
        writer_requests.watch(requests, backfill_requests.request_id(export.uri), "files", "items")
    return export


def _requests(s3: Any, lake: str, contract: Contract) -> list[Requests]:
    return [Requests(s3, lake, table.table) for table in lake_tables([contract])]


def _contract(folder: Path, table: str) -> Contract:
    known = read_contracts(folder)
    for contract in known:
        if contract.table == table:
            backfill_requests.check_contract(contract)
            return contract
    tables = ", ".join(contract.table for contract in known)
    raise UserError(f"--table: found {table!r}, expected one of {tables}, as in {folder}")


def _withdraw(requests: Requests, export_uri: str) -> None:
    status = withdraw_request(requests, backfill_requests.request_id(export_uri))
    if status is None:
        say("Withdrawn: no job had taken the request up")
    else:
        say(
            f"Withdrawn: the job stops after its current commit; it has reported {status.parts_done:,} of "
            f"{status.parts:,} files. Run the command without --withdraw to go on."
        )

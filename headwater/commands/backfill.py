"""``headwater backfill``: load a DynamoDB table export as the oldest state."""

import sys
from pathlib import Path
from typing import Annotated, Any

import boto3
import typer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.console import say
from headwater.contract.model import Contract
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.lake import backfill_requests
from headwater.lake.backfill_requests import BackfillRequests, News
from headwater.lake.dynamodb_export import Export
from headwater.paths import CONTRACTS

_QUIET_SECONDS = 60
_REGION = "us-east-1"  # where neither an option nor the AWS configuration names one


def backfill(
    export_uri: Annotated[str, typer.Argument(help="The export: s3://bucket/prefix/AWSDynamoDB/EXPORT-ID.")],
    table: Annotated[str, typer.Option(help="The lake table, as its contract is called.")],
    lake: Annotated[str, typer.Option(help="Where the lake's tables lie: s3://bucket/prefix.")],
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: Annotated[str, typer.Option(help="AWS region; without it, the AWS configuration's.")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the request back instead.")] = False,
) -> None:
    """Ask the running job to load an export of a DynamoDB table as the oldest state, and watch it.

    Ctrl-C only ends the watching; run the same command again to watch on. A withdrawn backfill goes on at the next data
    file when you run the command again. A finished export is never loaded twice.
    """
    contract = _contract(contracts, table)
    try:
        s3 = _s3(endpoint, region)
        requests = BackfillRequests(s3, lake, contract.table)
        if withdraw:
            _withdraw(requests, export_uri)
        else:
            export = backfill_requests.ask(s3, requests, export_uri)
            say(f"Requested: {export.items:,} items in {len(export.files):,} files of {export.table}, {export.uri}")
            _watch(requests, export)
    except (BotoCoreError, ClientError) as error:
        raise UserError(f"S3 cannot be used: {error}. Check the addresses, --endpoint and the credentials.") from None
    except ValueError as error:
        raise UserError(f"--lake, --endpoint, --region: {error}") from None


def _contract(folder: Path, table: str) -> Contract:
    known = read_contracts(folder)
    for contract in known:
        if contract.table == table:
            backfill_requests.check_contract(contract)
            return contract
    tables = ", ".join(contract.table for contract in known)
    raise UserError(f"--table: found {table!r}, expected one of {tables}, as in {folder}")


def _s3(endpoint: str, region: str) -> Any:
    session = boto3.Session()
    return session.client(
        "s3",
        region_name=region or session.region_name or _REGION,
        endpoint_url=endpoint or None,
        config=Config(s3={"addressing_style": "path"}) if endpoint else None,
    )


def _watch(requests: BackfillRequests, export: Export) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("Waiting for the job", total=len(export.files))
            for news in backfill_requests.follow(requests, export.id):
                done = news.status.files_done if news.status is not None else 0
                progress.update(task, completed=done, description=_description(news))
    except KeyboardInterrupt:
        sys.stderr.write("\nThe request stays, and the job goes on. Run the same command again to go on watching.\n")
        raise typer.Exit(130) from None
    say(f"Done: the {export.items:,} items of the export are in the lake, or in quarantine where they do not fit")


def _description(news: News) -> str:
    if news.status is None:
        return "Waiting for the job"
    quiet = f", no news for {news.quiet:.0f} s" if news.quiet > _QUIET_SECONDS else ""
    return f"{news.status.items:,} items{quiet}"


def _withdraw(requests: BackfillRequests, export_uri: str) -> None:
    status = backfill_requests.withdraw(requests, export_uri)
    if status is None:
        say("Withdrawn: no job had taken the request up")
    else:
        say(
            f"Withdrawn: the job stops after its current commit; it has reported {status.files_done:,} of "
            f"{status.files:,} files. Run the command without --withdraw to go on."
        )

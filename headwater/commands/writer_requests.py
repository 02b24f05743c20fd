"""Options, S3 access and progress for the verbs that request work from a table's writer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import typer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.errors import UserError
from headwater.lake.requests import protocol as lake_requests
from headwater.lake.requests.protocol import News, Requests, Status

ENVIRONMENT = typer.Option(
    "--env",
    metavar="ENV",
    help="A deployed environment, whose lake and tables are used; without it, use --lake.",
)
LAKE = typer.Option(help="Without --env: the folder of the lake's tables, s3://bucket/prefix.")
ENDPOINT = typer.Option(help="Address of an S3 API that is not AWS's.")
REGION = typer.Option(help="AWS region; without it, the AWS configuration's.")

_QUIET_SECONDS = 60
_REGION = "us-east-1"  # where neither an option nor the AWS configuration names one


def s3_client(endpoint: str, region: str) -> Any:
    """Return a client for the S3 API at ``endpoint``, or for AWS if that is empty. Raises ValueError."""
    session = boto3.Session()
    return session.client(
        "s3",
        region_name=region or session.region_name or _REGION,
        endpoint_url=endpoint or None,
        config=Config(s3={"addressing_style": "path"}) if endpoint else None,
    )


@contextmanager
def s3_errors() -> Iterator[None]:
    """Turn errors of S3 and of its addresses into a UserError that names the options."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"S3 cannot be used: {error}. Check the credentials, and --env, or else the addresses and --endpoint."
        ) from None
    except ValueError as error:
        raise UserError(f"--lake, --endpoint, --region: {error}") from None


def progress_of(parts: str) -> Progress:
    """Return a progress bar that counts finished parts; ``parts`` is their noun, such as ``files``."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(parts),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def watch(requests: Requests, id_: str, parts: str, records: str, token: str = "") -> Status | None:
    """Show the progress of a request until it is done, and return the writer's last answer.

    - ``parts``: the noun for the parts of the work, such as ``files``.
    - ``records``: the noun for the records of the work, such as ``rows``.
    - ``token``: the request's token, as in ``follow``.

    Raises UserError as ``follow`` does. Ctrl-C ends the command, and the request stays.
    """
    last: Status | None = None
    try:
        with progress_of(parts) as progress:
            task = progress.add_task("Waiting for the job", total=None)
            for news in lake_requests.follow(requests, id_, token=token):
                last = news.status
                done, total = (last.parts_done, last.parts) if last is not None else (0, None)
                progress.update(task, completed=done, total=total, description=_description(news, records))
    except KeyboardInterrupt:
        sys.stderr.write("\nThe request stays, and the job goes on. Run the same command again to go on watching.\n")
        raise typer.Exit(130) from None
    return last


def _description(news: News, records: str) -> str:
    if news.status is None:
        return "Waiting for the job"
    quiet = f", no news for {news.quiet:.0f} s" if news.quiet > _QUIET_SECONDS else ""
    return f"{news.status.records:,} {records}{quiet}"

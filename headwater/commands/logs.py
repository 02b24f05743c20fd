"""``headwater logs``: print the log of one part of an environment."""

import datetime as dt
import re
import sys
import time
from collections import deque
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import environments
from headwater.commands.environments import printable
from headwater.commands.options import Folder, Observed
from headwater.errors import UserError
from headwater.operations.part_logs import PARTS, Wanted, lines

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SINCE = re.compile(r"([0-9]+)([smhd])")


def logs(
    part: Annotated[str, typer.Argument(metavar="PART", help=f"One of {', '.join(PARTS)}.")],
    environment: Observed = "local",
    since: Annotated[str, typer.Option(help="How far back, such as 15m, 2h or 1d.")] = "1h",
    errors: Annotated[bool, typer.Option("--errors", help="Only lines that report errors and failures.")] = False,
    table: Annotated[str, typer.Option(help="Only a writer's events of this table.")] = "",
    text: Annotated[str, typer.Option(help="Only lines that contain this.")] = "",
    last: Annotated[int, typer.Option(min=1, help="Only this many lines, the newest ones.")] = 200,
    *,
    folder: Folder,
) -> None:
    """Print the log of a part, the oldest line first.

    source, sink, brokers and database are parts of the relational pipeline. writer is its EMR step; the log arrives
    some minutes late. job is the Glue job. steps starts the EMR step, runs starts the Glue job, and rotation changes
    passwords.
    """
    found = _SINCE.fullmatch(since)
    if found is None:
        raise UserError(f"--since: found {since}, expected a number and s, m, h or d, such as 15m")
    wanted = Wanted(time.time() - int(found[1]) * _UNITS[found[2]], errors, table, text)
    try:
        newest = deque(lines(environments.deployed(environment, folder), part, wanted), last)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"the log of {part}: found {error}, expected lines: check that {part} is deployed, and that these "
            "credentials may read its log"
        ) from None
    for line in newest:
        at = "" if line.at is None else f"{dt.datetime.fromtimestamp(line.at, dt.UTC):%Y-%m-%dT%H:%M:%SZ} "
        sys.stdout.write(f"{at}{printable(line.text)}\n")
    if not newest:
        sys.stderr.write(f"No such line in the log of {part} since {since}\n")

"""``headwater fill``: fill new columns of old rows from their unmapped fields."""

from typing import Annotated

import typer

from headwater.commands import lakes
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, LAKE, REGION, s3_errors, watch
from headwater.console import say
from headwater.lake.requests import fill_requests
from headwater.lake.requests.protocol import Requests
from headwater.lake.requests.protocol import withdraw as withdraw_request


def fill(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The lake table's name, as in its contract.")],
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[str, LAKE] = "",
    *,
    folder: Folder,
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the request instead.")] = False,
) -> None:
    """Have the running writer fill columns of old rows from the unmapped fields in _rest, and watch the writer.

    The writer fills columns that its current contract has gained, and values that did not fit before. A later change
    of a row wins. Ctrl-C stops only the watching; the writer goes on.
    """
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with s3_errors():
        requests = Requests(place.s3, place.uri, table)
        if withdraw:
            withdraw_request(requests, fill_requests.REQUEST)
            say("Withdrawn: the writer stops after its current commit; rows that it has filled stay filled")
            return
        status = watch(requests, fill_requests.ask(requests), "partitions", "rows")
    say(f"Done: {status.records if status is not None else 0:,} rows were filled")

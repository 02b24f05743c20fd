"""``headwater expire``: delete a table's past now, before it expires."""

from typing import Annotated

import typer

from headwater.commands import lakes, sources
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENDPOINT, ENVIRONMENT, LAKE, REGION, s3_errors, watch
from headwater.console import say
from headwater.contract.model import lake_tables
from headwater.contract.reading import read_contracts
from headwater.lake.requests import expire_requests
from headwater.lake.requests.protocol import Requests, Status


def expire(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The lake table's name, as in its contract.")],
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[str, LAKE] = "",
    *,
    folder: Folder,
    endpoint: Annotated[str, ENDPOINT] = "",
    region: Annotated[str, REGION] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Have the running writers delete at once the data of a table that would expire later, and watch them.

    The writers delete replaced files, landing objects that are already read, older object versions in S3, and earlier
    versions of rows in the table's history. The current rows stay. The deletion cannot be undone. Ctrl-C stops only the
    watching; run the same command again to go on.
    """
    contract = sources.contract_of(read_contracts(folder.contracts), table)
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    tables = [each.table for each in lake_tables([contract])]
    if not yes:
        typer.confirm(f"Delete the past of {' and '.join(tables)} for good?", abort=True)
    with s3_errors():
        asked = {each: Requests(place.s3, place.uri, each) for each in tables}
        ids = {each: expire_requests.ask(requests) for each, requests in asked.items()}
        for each, requests in asked.items():
            _tell(each, watch(requests, ids[each], "steps", "files and versions"))


def _tell(table: str, status: Status | None) -> None:
    deleted = {} if status is None else status.told
    files, landed, left, versions = (
        deleted.get(name, 0) for name in ("files", "landing_objects", "landing_left", "versions")
    )
    say(f"{table}: deleted {files:,} replaced files, {landed:,} landing objects and {versions:,} older versions")
    if left:
        say(f"{left:,} landing objects stay: the newest of each partition, and those that a table has not read yet")

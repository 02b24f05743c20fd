"""Ask the job that keeps a table for the backfill of an export, and follow what it does."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.contract.model import DYNAMODB, Contract
from headwater.errors import UserError
from headwater.lake.backfill import DONE, REFUSED, Request, Requests, Status
from headwater.lake.dynamodb_export import Export, locate

ANSWER_SECONDS = 180.0
"""How long a running job may take to answer: its window, a long commit, or its start."""
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class News:
    """What is known of a backfill: the job's last status (None before its first answer), and for how many seconds
    there has been nothing newer."""

    status: Status | None
    quiet: float


def check_contract(contract: Contract) -> None:
    """Raise UserError unless the contract's table can be loaded from a DynamoDB export."""
    if contract.source.database != DYNAMODB:
        raise UserError(
            f"contract {contract.table}: source.database: found {contract.source.database!r}, expected {DYNAMODB!r}: "
            "only a DynamoDB table is loaded from an export"
        )


def request(s3: Any, requests: Requests, uri: str) -> Export:
    """Ask for the export at ``uri`` after a look at its manifests. Asking again is harmless, and it makes a running job
    answer anew. Raises UserError where the export cannot be loaded."""
    export = Export.open(s3, uri)
    requests.put(export.id, Request(export.uri, uuid.uuid4().hex))
    return export


def withdraw(requests: Requests, uri: str) -> Status | None:
    """Take the request for the export at ``uri`` back and return how far the job said it was, or None where it has
    said nothing. The export itself need not be there any more. Raises UserError where nothing is requested."""
    export_id = locate(uri)[1].rpartition("/")[2]
    found = requests.get(export_id)
    if found is None:
        raise UserError(f"No backfill of the export {export_id} is requested: there is nothing to withdraw.")
    requests.withdraw(export_id)
    status = requests.status(export_id)
    return status if status is not None and status.token == found.token else None


def follow(
    requests: Requests,
    export_id: str,
    patience: float = ANSWER_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[News]:
    """Yield what is known about every second until the backfill is done. ``patience``, in seconds, is for the job's
    first answer. Raises UserError when the job refuses, when nobody answers, or when the request is withdrawn."""
    asked = newest = clock()
    last: Status | None = None
    while True:
        found = requests.get(export_id)
        if found is None:
            raise UserError(f"The backfill of {export_id} was withdrawn. Run the same command again to go on with it.")
        status = requests.status(export_id)
        # A status of another token answers an earlier request.
        if status is not None and status.token == found.token and status != last:
            last, newest = status, clock()
        if last is not None and last.state == REFUSED:
            raise UserError(f"The job refuses the backfill of {export_id}. {last.reason}")
        if last is None and clock() - asked > patience:
            raise UserError(
                f"No job has answered for {patience:.0f} s: none seems to be running for this table. The request "
                "stays, and a job that starts takes it up; run the same command again to watch it."
            )
        yield News(last, clock() - newest)
        if last is not None and last.state == DONE:
            return
        sleep(POLL_SECONDS)

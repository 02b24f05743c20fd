"""The job that both entry scripts run, for any kind of source."""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from headwater.contract.model import Contract
from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.decoding.rest_values import RestForm
from headwater.lake.job import loop
from headwater.lake.job.loop import CommitNext, Job
from headwater.lake.job.upkeep import Chore, Upkeep
from headwater.lake.requests import expire, fill, forget, replay
from headwater.lake.requests.expire_requests import EXPIRE
from headwater.lake.requests.fill_requests import FILL
from headwater.lake.requests.forget_requests import FORGET
from headwater.lake.requests.protocol import Requests
from headwater.lake.requests.replay import DecodeKept
from headwater.lake.requests.replay_requests import REPLAY
from headwater.lake.requests.requested_work import MakeWork, RequestedWork
from headwater.lake.sources.landing import Landing
from headwater.lake.table.writer import TableWriter


@dataclass(frozen=True)
class TableSource:
    """The source of one table, with the settings that depend on the kind of the source."""

    commit_next: CommitNext
    """Commits the changes since the last commit. Returns whether there were any."""
    loads: Mapping[str, MakeWork]
    """Functions that make the work of requests to load a table (``headwater backfill``), by the request's kind."""
    decode_kept: DecodeKept
    """Decodes quarantined records (``headwater quarantine``)."""
    rest_form: Callable[[Contract], RestForm]
    """The format of values in ``_rest`` (``headwater fill``)."""
    request_seconds: float
    """How many seconds pass between two polls for requests."""
    window_seconds: float = 0.0
    """How many seconds pass from one commit's start to the next."""
    awaits_backfill: bool = False
    """Whether changes of a table without rows wait until a backfill is loaded."""
    landing: Landing | None = None
    """The landing objects of the table's topic, if this table's writer clears them: ``headwater forget`` deletes keys
    in them, and ``headwater expire`` old changes."""
    delete_landed: Callable[[dt.datetime], int] = lambda before: 0
    """Deletes landing objects that were read and are older than a moment, and returns their number."""
    chores: Sequence[Chore] = ()
    """Maintenance tasks that only this kind of source needs."""


class Source(Protocol):
    """A kind of source: the functions that an entry script adds to this module."""

    def arguments(self, argv: list[str]) -> argparse.Namespace:
        """Parse the script's arguments."""

    def prepared(self, running: Job, options: argparse.Namespace) -> Job:
        """Return the job with the settings that this kind of source needs.

        Raises UserError if an argument does not fit the contracts.
        """

    def of_table(self, running: Job, writer: TableWriter, options: argparse.Namespace) -> TableSource:
        """Return the source of a writer's table."""

    def pause(self, options: argparse.Namespace) -> IdlePause:
        """Return the pause between two polls that find nothing."""

    def warm_up(self, running: Job) -> None:
        """Commit synthetic changes to a scratch table."""


@dataclass(frozen=True)
class TableWork:
    """The job's work for one lake table."""

    requested: RequestedWork
    """The work that operators request."""
    upkeep: Upkeep
    """The table's maintenance tasks."""
    commit_next: CommitNext
    """Does the next part of the changes, the requests and the maintenance. Returns whether there was any."""


def main(source: Source, argv: list[str]) -> int:
    """Run an entry script. Returns 0 when it has drained its sources or a signal stops it, 1 on an error."""
    options = source.arguments(argv)
    return loop.main("headwater write_hudi", options.contract, options, lambda running: write(source, running, options))


def write(source: Source, running: Job, options: argparse.Namespace) -> None:
    """Do the work of all tables until it is done (``--once``) or a signal stops the job.

    Raises as ``Job.run`` does, and UserError if an argument does not fit the contracts.
    """
    prepared = source.prepared(running, options)

    def work_of(contract: Contract) -> Callable[[], CommitNext]:
        return lambda: table_work(source, prepared, contract, options).commit_next

    work = {contract.table: work_of(contract) for contract in prepared.contracts}
    prepared.run(work, source.pause(options), source.warm_up)


def table_work(source: Source, running: Job, contract: Contract, options: argparse.Namespace) -> TableWork:
    """Return the work of a table: commit its changes, serve requests between them, and do the maintenance."""
    writer = running.writer(contract)
    of_table = source.of_table(running, writer, options)
    requests = Requests(running.services.s3, options.lake, contract.table)
    # The kinds of requests that the table serves.
    kinds: dict[str, MakeWork] = {
        **of_table.loads,
        REPLAY: partial(replay.work, writer, of_table.decode_kept),
        FILL: partial(fill.work, writer, of_table.rest_form),
        FORGET: partial(forget.work, writer, of_table.landing),
        EXPIRE: partial(expire.work, writer, of_table.landing, of_table.delete_landed),
    }
    requested = RequestedWork(writer, requests, kinds, of_table.request_seconds, removed={FORGET})
    upkeep = running.upkeep(writer, *of_table.chores)
    due = 0.0

    def commit_next() -> bool:
        nonlocal due
        if running.stop.wait(max(due - time.monotonic(), 0)):
            return False
        began = time.monotonic()
        # A table without rows serves requests first, because a backfill may be among them.
        worked = not writer.has_rows and requested.commit_next()
        if not writer.has_rows and of_table.awaits_backfill:
            return worked
        worked = of_table.commit_next() or worked
        worked = requested.commit_next() or worked
        worked = upkeep.do_next() or worked
        if worked and not options.once:
            due = began + of_table.window_seconds
        return worked

    return TableWork(requested, upkeep, commit_next)

"""EMR step: write landed changes of any number of contracts into Hudi tables.

``spark-submit --py-files headwater.zip write_hudi.py --contract s3://…/orders.json … --landing s3://… --lake s3://…``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from functools import partial

from headwater.contract.model import Contract
from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS, IdlePause
from headwater.lake.decoding.debezium_decoder import kept_decoder, rest_form
from headwater.lake.job import loop as job
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.job.landed_warm_up import warm_up
from headwater.lake.job.loop import CommitNext, Job
from headwater.lake.job.upkeep import expiry
from headwater.lake.requests.copy_backfill import CopyBackfill
from headwater.lake.requests.copy_requests import COPY
from headwater.lake.requests.expire import Expire
from headwater.lake.requests.expire_requests import EXPIRE
from headwater.lake.requests.fill import Fill
from headwater.lake.requests.fill_requests import FILL
from headwater.lake.requests.forget import Forget
from headwater.lake.requests.forget_requests import FORGET
from headwater.lake.requests.protocol import Requests
from headwater.lake.requests.replay import Replay
from headwater.lake.requests.replay_requests import REPLAY
from headwater.lake.requests.requested_work import MakeWork, RequestedWork
from headwater.lake.sources.landing import Landing


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the step's arguments."""
    parser = job.parser("Write landed changes into Hudi tables.")
    parser.add_argument("--contract", action="append", required=True, help="s3:// address of a contract's JSON; repeat")
    parser.add_argument("--landing", required=True, help="s3://bucket/prefix of the landing objects")
    parser.add_argument("--topic-prefix", default="headwater", help="Debezium's topic.prefix")
    parser.add_argument(
        "--idle-seconds-max",
        type=float,
        default=FIRST_PAUSE_SECONDS,
        help="longest pause when nothing has landed; it grows from half a second",
    )
    parser.add_argument(
        "--landing-days", type=float, help="how long landing objects stay that have been read; default for good"
    )
    parser.add_argument(
        "--await-backfill",
        action="store_true",
        help="a table without rows begins with those that it is asked to load; its changes wait for them",
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the step; 0 when drained or told to stop, 1 on an error."""
    options = arguments(argv)

    def write(running: Job) -> None:
        work = {contract.table: partial(table_work, running, contract, options) for contract in running.contracts}
        running.run(work, IdlePause(FIRST_PAUSE_SECONDS, options.idle_seconds_max), warm_up=warm_up)

    return job.main("headwater write_hudi", options.contract, options, write)


def table_work(running: Job, contract: Contract, options: argparse.Namespace) -> CommitNext:
    """What commits a table's changes, does between them what operators ask for (copies of its source are loaded,
    ``headwater backfill``, quarantined records replayed, ``headwater quarantine``, columns filled from ``_rest``,
    ``headwater fill``, keys forgotten, ``headwater forget``, and the past deleted, ``headwater expire``), and keeps the
    table up."""
    writer = running.writer(contract)
    topic = f"{options.topic_prefix}.{contract.source.table}"
    landing = Landing(running.services.s3, options.landing, topic)
    landed = LandedChanges(writer, landing)
    requests = Requests(running.services.s3, options.lake, contract.table)

    def expire(before: dt.datetime) -> int:
        of_topic = [other.table for other in running.contracts if other.source == contract.source and other != contract]
        others = [running.writers.get(table) for table in of_topic]
        # How far one has read that has not begun is not known.
        return 0 if None in others else landed.expire(before, [other.progress.cursor for other in others if other])

    # A topic is cleared once, by the writer of the table itself.
    cleared = None if contract.is_history else landing
    kinds: dict[str, MakeWork] = {
        COPY: CopyBackfill(writer).work,
        REPLAY: Replay(writer, partial(kept_decoder, contract)).work,
        FILL: Fill(writer, rest_form).work,
        FORGET: Forget(writer, cleared).work,
        EXPIRE: Expire(writer, cleared, expire).work,
    }
    requested = RequestedWork(writer, requests, kinds, options.idle_seconds_max, removed={FORGET})

    days = options.landing_days
    chores = [] if days is None else [expiry("landing objects", dt.timedelta(days=days), expire)]
    upkeep = running.upkeep(writer, *chores)

    def commit_next() -> bool:
        worked = not writer.has_rows and requested.commit_next()
        if not writer.has_rows and options.await_backfill:
            return worked
        worked = landed.commit_next() or worked
        worked = requested.commit_next() or worked
        return upkeep.do_next() or worked

    return commit_next


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Landing objects as the source of the EMR step."""

from __future__ import annotations

import argparse
import datetime as dt
from functools import partial

from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS, IdlePause
from headwater.lake.decoding.debezium_decoder import kept_decoder, rest_form
from headwater.lake.job import landed_warm_up, loop
from headwater.lake.job.entry import Source, TableSource
from headwater.lake.job.landed_changes import LandedChanges
from headwater.lake.job.loop import Job
from headwater.lake.job.upkeep import expiry
from headwater.lake.requests import copy_backfill
from headwater.lake.requests.copy_requests import COPY
from headwater.lake.sources.landing import Landing
from headwater.lake.table.writer import TableWriter


class LandedSource(Source):
    """Changes of PostgreSQL's tables, as the S3 sink lands them."""

    def arguments(self, argv: list[str]) -> argparse.Namespace:
        """Parse the step's arguments."""
        parser = loop.parser("Write landed changes into Hudi tables.")
        parser.add_argument(
            "--contract", action="append", required=True, help="s3:// address of a contract's JSON; repeat"
        )
        parser.add_argument("--landing", required=True, help="s3://bucket/prefix of the landing objects")
        parser.add_argument("--topic-prefix", default="headwater", help="Debezium's topic.prefix")
        parser.add_argument(
            "--idle-seconds-max",
            type=float,
            default=FIRST_PAUSE_SECONDS,
            help="longest pause when nothing has landed; it grows from half a second",
        )
        parser.add_argument(
            "--landing-days", type=float, help="days until landing objects that were read are deleted; default never"
        )
        parser.add_argument(
            "--await-backfill",
            action="store_true",
            help="the changes of a table without rows wait for a backfill",
        )
        return parser.parse_args(argv)

    def prepared(self, running: Job, options: argparse.Namespace) -> Job:
        """Return the job as it is."""
        return running

    def of_table(self, running: Job, writer: TableWriter, options: argparse.Namespace) -> TableSource:
        """Return the topic of a writer's table."""
        contract = writer.contract
        landing = Landing(running.services.s3, options.landing, f"{options.topic_prefix}.{contract.source.table}")
        landed = LandedChanges(writer, landing)

        def expire(before: dt.datetime) -> int:
            of_topic = [each.table for each in running.contracts if each.source == contract.source and each != contract]
            others = [running.writers.get(table) for table in of_topic]
            # If another table of the topic has no writer yet, its cursor is unknown. Then no object is deleted.
            return 0 if None in others else landed.expire(before, [other.progress.cursor for other in others if other])

        days = options.landing_days
        return TableSource(
            landed.commit_next,
            {COPY: partial(copy_backfill.work, writer)},
            partial(kept_decoder, contract),
            rest_form,
            request_seconds=options.idle_seconds_max,
            awaits_backfill=options.await_backfill,
            # The writer of the table clears the topic, so the writer of its history need not.
            landing=None if contract.is_history else landing,
            delete_landed=expire,
            chores=[] if days is None else [expiry("landing objects", dt.timedelta(days=days), expire)],
        )

    def pause(self, options: argparse.Namespace) -> IdlePause:
        """Return a pause that grows up to ``--idle-seconds-max``."""
        return IdlePause(FIRST_PAUSE_SECONDS, options.idle_seconds_max)

    def warm_up(self, running: Job) -> None:
        """Commit synthetic landing objects to a scratch table."""
        landed_warm_up.warm_up(running)

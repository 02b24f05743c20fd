"""Glue job: write DynamoDB tables' changes from their Kinesis streams into Hudi tables.

One job writes any number of tables, each with a streaming query, a lease and a checkpoint of its own. On Glue the
streams are read by Glue's own source in Structured Streaming, which commits each micro-batch by Spark and keeps the
position in a checkpoint. Elsewhere (``--source api``) they are read through the Kinesis API: the driver commits small
batches, and the commit keeps the position. What operators ask for is done in between: table
exports are loaded (``headwater backfill``), quarantined records replayed (``headwater quarantine``), columns filled
from ``_rest`` (``headwater fill``), keys forgotten (``headwater forget``), the past deleted (``headwater expire``). So
is the tables' upkeep. A table that fails rests and begins anew, while the others go on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import boto3
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from headwater.contract.masks import needed_key, read_key
from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.lake.base.idle_pause import REQUESTS_PAUSE, IdlePause
from headwater.lake.decoding.dynamodb_decoder import kept_decoder, rest_form
from headwater.lake.job import loop as job
from headwater.lake.job import streamed_warm_up
from headwater.lake.job.loop import CommitNext, Job
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.job.upkeep import Upkeep
from headwater.lake.requests.backfill import Backfill
from headwater.lake.requests.backfill_requests import BACKFILL
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
from headwater.lake.sources.kinesis import LATEST, TRIM_HORIZON, KinesisStream


class TableWork(NamedTuple):
    """What the job does for one lake table: its changes, what is asked for, its upkeep, and the arguments that are
    bound to it."""

    table: str
    changes: StreamedChanges
    requested: RequestedWork
    upkeep: Upkeep
    stream_arn: str
    checkpoint: str | None


MakeTableWork = Mapping[str, Callable[[], TableWork]]
"""What makes the work of each lake table, in the thread that does it."""
_BATCH_SECONDS = 600.0
"""How long a batch may take to end when the run ends."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the job's arguments; those that Glue adds are ignored.

    Glue passes each argument once, so that what differs by table is a list.
    """
    parser = job.parser("Write DynamoDB tables' changes into Hudi tables.")
    by_table = partial(parser.add_argument, type=_by_table, metavar="TABLE=VALUE,…")
    parser.add_argument(
        "--contract",
        type=lambda text: text.split(","),
        required=True,
        metavar="URI,…",
        help="s3:// addresses of the contracts' JSON",
    )
    by_table("--stream-arn", required=True, help="ARN of each lake table's Kinesis stream")
    by_table("--source-table", required=True, help="name of each lake table's DynamoDB table")
    parser.add_argument("--starting-position", choices=(TRIM_HORIZON, LATEST), default=TRIM_HORIZON)
    parser.add_argument("--window-seconds", type=float, default=15.0, help="time from one commit's start to the next")
    by_table(
        "--checkpoint",
        default={},
        help="s3:// address of each lake table's Structured Streaming checkpoint, for --source glue",
    )
    parser.add_argument("--mask-secret", help="name or ARN of the secret with the key of masks")
    parser.add_argument("--source", choices=("glue", "api"), default="glue", help="how the streams are read")
    options, _ = parser.parse_known_args(argv)
    return options


def _by_table(text: str) -> dict[str, str]:
    """The values of an argument by lake table."""
    pairs = [entry.partition("=") for entry in text.split(",")]
    if not all(table and separator and value for table, separator, value in pairs):
        raise argparse.ArgumentTypeError(f"found {text}, expected TABLE=VALUE,…")
    return {table: value for table, _, value in pairs}


def main(argv: list[str]) -> int:
    """Run the job; 0 when drained or told to stop, 1 on an error."""
    options = arguments(argv)
    return job.main("headwater write_hudi", options.contract, options, lambda running: write(running, options))


def write(running: Job, options: argparse.Namespace) -> None:
    """Follow the streams, and do what is asked for between their commits, until the job is told to stop. Raises
    UserError where the arguments do not name the tables of the contracts, or lack the key of their masks."""
    check_tables([contract.table for contract in running.contracts], options)
    running = _with_mask_key(running, options.mask_secret)
    work = {contract.table: partial(_table_work, running, contract, options) for contract in running.contracts}
    if options.source == "api":
        follow_api(running, work, options)
    else:
        follow_glue(running, work, options)


def _with_mask_key(running: Job, secret: str | None) -> Job:
    """The job with the key of that secret, where there is one. Raises UserError where a contract needs one and there is
    none."""
    key = None if secret is None else read_key(boto3.client("secretsmanager"), secret)
    for contract in running.contracts:
        needed_key(contract, key)
    return replace(running, settings=replace(running.settings, mask_key=key))


def _table_work(running: Job, contract: Contract, options: argparse.Namespace) -> TableWork:
    writer = running.writer(contract)
    if options.starting_position == TRIM_HORIZON:
        writer.note_streaming_start(running.former.get(contract.table))
    source_table = options.source_table[contract.table]
    requests = Requests(running.services.s3, options.lake, contract.table)
    kinds: dict[str, MakeWork] = {
        BACKFILL: Backfill(writer, source_table).work,
        REPLAY: Replay(writer, partial(kept_decoder, contract, source_table, writer.settings.mask_key)).work,
        FILL: Fill(writer, rest_form).work,
        FORGET: Forget(writer).work,
        EXPIRE: Expire(writer).work,
    }
    return TableWork(
        contract.table,
        StreamedChanges(writer, source_table),
        RequestedWork(writer, requests, kinds, REQUESTS_PAUSE.first, removed={FORGET}),
        running.upkeep(writer),
        options.stream_arn[contract.table],
        options.checkpoint.get(contract.table),
    )


def check_tables(tables: list[str], options: argparse.Namespace) -> None:
    """Raise UserError unless each argument that is bound by table names the contracts' tables."""
    bound = {"--stream-arn": options.stream_arn, "--source-table": options.source_table}
    if options.source == "glue":
        bound["--checkpoint"] = options.checkpoint
    for argument, values in bound.items():
        if set(values) != set(tables):
            found = ", ".join(sorted(values)) or "nothing"
            raise UserError(f"{argument}: found {found}, expected a value for each of {', '.join(tables)}")


def follow_api(running: Job, work: MakeTableWork, options: argparse.Namespace) -> None:
    """Follow the streams through the Kinesis API."""
    pause = min(options.window_seconds, 1.0)
    running.run(
        {table: partial(_commits_read, running, make, options) for table, make in work.items()},
        IdlePause(pause, pause),
        warm_up=streamed_warm_up.of_api,
    )


def _commits_read(running: Job, make: Callable[[], TableWork], options: argparse.Namespace) -> CommitNext:
    table = make()
    stream = KinesisStream(boto3.client("kinesis"), table.stream_arn, options.starting_position)
    due = 0.0

    def commit_next() -> bool:
        nonlocal due
        if running.stop.wait(max(due - time.monotonic(), 0)):
            return False
        began = time.monotonic()
        worked = table.changes.commit_read(stream)
        worked = table.requested.commit_next() or worked
        worked = table.upkeep.do_next() or worked
        if worked and not options.once:
            due = began + options.window_seconds
        return worked

    return commit_next


def follow_glue(running: Job, work: MakeTableWork, options: argparse.Namespace) -> None:
    """Follow the streams with Glue's Kinesis source."""
    from awsglue.context import GlueContext

    context = GlueContext(running.spark.sparkContext)

    def records(table: TableWork) -> DataFrame:
        frame: DataFrame = context.create_data_frame.from_options(
            connection_type="kinesis",
            connection_options={
                "typeOfData": "kinesis",
                "streamARN": table.stream_arn,
                "classification": "json",
                "startingPosition": options.starting_position,
                # Glue's one second per batch and shard would read 2 MB per window, where a shard takes 1 MB a second.
                "maxFetchTimeInMs": str(int(options.window_seconds * 1000)),
                "avoidEmptyBatches": "true",
                # One column with the record's text as it is: a schema of Glue's own would lose types and digits.
                "inferSchema": "true",
            },
        )
        return frame

    follow(running, work, records, options)


def follow(
    running: Job, work: MakeTableWork, records: Callable[[TableWork], DataFrame], options: argparse.Namespace
) -> None:
    """Follow each table's streaming DataFrame of records by micro-batches, with what is asked for beside it. After a
    failure of its query, or of what was asked for, a table gets a new query, as ``Job.run`` says."""
    queries: dict[str, _TableQuery] = {}

    def commits(name: str, make: Callable[[], TableWork]) -> CommitNext:
        if name in queries:
            # Where what was asked for has failed, the former query still commits: there must not be two.
            _stop([queries[name]])
        table = make()
        query = queries[name] = _TableQuery(table, records(table), options)

        def commit_next() -> bool:
            if options.once:
                query.drain()
            if not query.is_active:
                query.check()
                if not options.once:
                    running.stop.set()
            worked = table.requested.commit_next()
            table.changes.maintain()
            return table.upkeep.do_next() or worked

        return commit_next

    try:
        running.run(
            {table: partial(commits, table, make) for table, make in work.items()},
            REQUESTS_PAUSE,
            lambda table: queries[table].waits(),
            streamed_warm_up.of_glue,
        )
    finally:
        _stop(queries.values())
    for query in queries.values():
        query.check()


class _TableQuery:
    """The streaming query of one table, started. Its batches have the scheduler's pool of the thread that starts it."""

    def __init__(self, table: TableWork, frame: DataFrame, options: argparse.Namespace) -> None:
        self._changes = table.changes
        self._error: Exception | None = None
        stream = (
            frame.writeStream.queryName(table.table)
            .foreachBatch(self._commit)
            .option("checkpointLocation", str(table.checkpoint))
        )
        if options.once:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{options.window_seconds} seconds")
        self._query = stream.start()

    def _commit(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._changes.commit_frame(frame, batch_id)
        except Exception as error:
            self._error = error
            raise

    @property
    def is_active(self) -> bool:
        """Whether the query has neither ended nor failed."""
        return self._query.isActive

    def check(self) -> None:
        """Raise what ended the query, if it failed: the batch's own error, since Spark's holds no more than its text,
        and ``Job.run`` and ``job.main`` go by its type."""
        failure = self._query.exception()
        if failure is not None:
            raise self._error or failure

    def drain(self) -> None:
        """Wait until the query has ended or failed."""
        with suppress(StreamingQueryException):
            self._query.awaitTermination()

    def waits(self) -> bool:
        """Whether the query waits for data. One that begins, or whose batch hangs, is not idle: it says nothing, so
        that the writer's alarm sees it."""
        status = self._query.status
        return not status["isTriggerActive"] and status["message"].startswith("Waiting")

    def stop(self, deadline: float) -> None:
        """Stop the query between two batches, since a stop within one throws its work away; after ``deadline`` (of
        ``time.monotonic``) nevertheless."""
        while self.is_active and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.1)
        self._query.stop()


def _stop(queries: Collection[_TableQuery]) -> None:
    """Stop queries, each between two batches if that takes no longer than ``_BATCH_SECONDS``."""
    deadline = time.monotonic() + _BATCH_SECONDS
    for query in queries:
        query.stop(deadline)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

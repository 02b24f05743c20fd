"""Kinesis streams as the source of the Glue job."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import boto3

from headwater.contract.masks import needed_key, read_key
from headwater.errors import UserError
from headwater.lake.base.idle_pause import IdlePause
from headwater.lake.decoding.dynamodb_decoder import kept_decoder, rest_form
from headwater.lake.job import loop, streamed_warm_up
from headwater.lake.job.entry import Source, TableSource
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_changes import StreamedChanges
from headwater.lake.requests import backfill
from headwater.lake.requests.backfill_requests import BACKFILL
from headwater.lake.sources import kinesis
from headwater.lake.sources.kinesis import KinesisStream
from headwater.lake.table.writer import TableWriter

_FIRST_PAUSE_SECONDS = 1.0


class StreamedSource(Source):
    """Changes of DynamoDB's tables, as their Kinesis destination streams them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(kinesis.SHARDS_AT_ONCE, "kinesis")

    def arguments(self, argv: list[str]) -> argparse.Namespace:
        """Parse the job's arguments. It ignores arguments that Glue adds.

        Glue passes each argument once, so an argument with a value per table is a list.
        """
        parser = loop.parser("Write DynamoDB tables' changes into Hudi tables.")
        by_table = partial(parser.add_argument, type=_by_table, metavar="TABLE=VALUE,…", required=True)
        parser.add_argument(
            "--contract",
            type=lambda text: text.split(","),
            required=True,
            metavar="URI,…",
            help="s3:// addresses of the contracts' JSON",
        )
        by_table("--stream-arn", help="ARN of each lake table's Kinesis stream")
        by_table("--source-table", help="name of each lake table's DynamoDB table")
        parser.add_argument(
            "--window-seconds", type=float, default=15.0, help="time from one commit's start to the next"
        )
        parser.add_argument("--mask-secret", help="name or ARN of the secret with the key of masks")
        options, _ = parser.parse_known_args(argv)
        return options

    def prepared(self, running: Job, options: argparse.Namespace) -> Job:
        """Return the job with the key for its masks.

        Raises UserError if the arguments do not name the tables of the contracts, or if the contracts need a key and
        there is none.
        """
        tables = [contract.table for contract in running.contracts]
        for argument, values in (("--stream-arn", options.stream_arn), ("--source-table", options.source_table)):
            if set(values) != set(tables):
                found = ", ".join(sorted(values)) or "nothing"
                raise UserError(f"{argument}: found {found}, expected a value for each of {', '.join(tables)}")
        secret = options.mask_secret
        key = None if secret is None else read_key(boto3.client("secretsmanager"), secret)
        for contract in running.contracts:
            needed_key(contract, key)
        return replace(running, settings=replace(running.settings, mask_key=key))

    def of_table(self, running: Job, writer: TableWriter, options: argparse.Namespace) -> TableSource:
        """Return the stream of a writer's table."""
        contract = writer.contract
        writer.note_streaming_start(running.former.get(contract.table))
        source_table = options.source_table[contract.table]
        stream = KinesisStream(self._kinesis, options.stream_arn[contract.table], self._pool)
        return TableSource(
            StreamedChanges(writer, stream, source_table).commit_next,
            {BACKFILL: partial(backfill.work, writer, source_table)},
            partial(kept_decoder, contract, source_table, writer.settings.mask_key),
            rest_form,
            request_seconds=options.window_seconds,
            window_seconds=options.window_seconds,
        )

    def pause(self, options: argparse.Namespace) -> IdlePause:
        """Return a pause that grows from a second up to ``--window-seconds``."""
        return IdlePause(min(_FIRST_PAUSE_SECONDS, options.window_seconds), options.window_seconds)

    @cached_property
    def _kinesis(self) -> Any:
        return kinesis.client()

    def warm_up(self, running: Job) -> None:
        """Commit synthetic records to a scratch table."""
        streamed_warm_up.warm_up(running)


def _by_table(text: str) -> dict[str, str]:
    """The values of an argument by lake table."""
    pairs = [entry.partition("=") for entry in text.split(",")]
    if not all(table and separator and value for table, separator, value in pairs):
        raise argparse.ArgumentTypeError(f"found {text}, expected TABLE=VALUE,…")
    return {table: value for table, _, value in pairs}

"""Glue job: write a DynamoDB table's changes from its Kinesis stream into a Hudi table.

On Glue the stream is read by Glue's own source in Structured Streaming, elsewhere (``--source api``) through the
Kinesis API; both hand the same columns to the same functions of ``headwater.lake``. Table exports that ``headwater
backfill`` asks for are loaded in between.
"""

from __future__ import annotations

import argparse
import sys
import time

import boto3
from pyspark.sql import DataFrame

from headwater.lake import job
from headwater.lake.backfill import Backfill
from headwater.lake.backfill_requests import BackfillRequests
from headwater.lake.job import Job
from headwater.lake.kinesis import LATEST, TRIM_HORIZON, KinesisStream
from headwater.lake.streamed_changes import StreamedChanges

_BACKFILL_SECONDS = 5.0


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the job's arguments; those that Glue adds are ignored."""
    parser = job.parser("Write a DynamoDB table's changes into a Hudi table.")
    parser.add_argument("--contract", required=True, help="s3:// address of the contract's JSON")
    parser.add_argument("--stream-arn", required=True, help="ARN of the Kinesis stream")
    parser.add_argument("--source-table", required=True, help="name of the DynamoDB table")
    parser.add_argument("--starting-position", choices=(TRIM_HORIZON, LATEST), default=TRIM_HORIZON)
    parser.add_argument("--window-seconds", type=float, default=15.0, help="time from one commit's start to the next")
    parser.add_argument("--checkpoint", help="s3:// address of Structured Streaming's checkpoint, for --source glue")
    parser.add_argument("--source", choices=("glue", "api"), default="glue", help="how the stream is read")
    options, _ = parser.parse_known_args(argv)
    if options.source == "glue" and options.checkpoint is None:
        parser.error("--checkpoint: found nothing, expected an s3:// address beside --source glue")
    return options


def main(argv: list[str]) -> int:
    """Run the job; 0 when drained or told to stop, 1 on an error."""
    options = arguments(argv)
    return job.main("headwater write_hudi", [options.contract], options, lambda running: write(running, options))


def write(running: Job, options: argparse.Namespace) -> None:
    """Follow the stream, and load exports between its commits, until the job is told to stop."""
    (contract,) = running.contracts
    writer = running.writer(contract)
    if options.starting_position == TRIM_HORIZON:
        writer.note_streaming_start()
    changes = StreamedChanges(writer, options.source_table)
    requests = BackfillRequests(running.services.s3, options.lake, contract.table)
    backfill = Backfill(writer, requests, options.source_table)
    if options.source == "api":
        follow_api(running, changes, backfill, options)
    else:
        follow_glue(running, changes, backfill, options)


def follow_api(running: Job, changes: StreamedChanges, backfill: Backfill, options: argparse.Namespace) -> None:
    """Follow the stream through the Kinesis API."""
    stream = KinesisStream(boto3.client("kinesis"), options.stream_arn, options.starting_position)

    def commit_next() -> bool:
        began = time.monotonic()
        worked = changes.commit_read(stream)
        worked = backfill.commit_next() or worked
        if worked and not options.once:
            running.stop.wait(max(began + options.window_seconds - time.monotonic(), 0))
        return worked

    running.run({running.contracts[0].table: commit_next}, idle_seconds=min(options.window_seconds, 1.0))


def follow_glue(running: Job, changes: StreamedChanges, backfill: Backfill, options: argparse.Namespace) -> None:
    """Follow the stream with Glue's Kinesis source."""
    from awsglue.context import GlueContext

    frame = GlueContext(running.spark.sparkContext).create_data_frame.from_options(
        connection_type="kinesis",
        connection_options={
            "typeOfData": "kinesis",
            "streamARN": options.stream_arn,
            "classification": "json",
            "startingPosition": options.starting_position,
            # One column with the record's text as it is: a schema of Glue's own would lose types and digits.
            "inferSchema": "true",
        },
    )
    follow(running, changes, backfill, frame, options)


def follow(
    running: Job, changes: StreamedChanges, backfill: Backfill, frame: DataFrame, options: argparse.Namespace
) -> None:
    """Follow a streaming DataFrame of records by micro-batches, with exports loaded beside it."""
    stream = frame.writeStream.foreachBatch(changes.commit_frame).option("checkpointLocation", options.checkpoint)
    if options.once:
        stream = stream.trigger(availableNow=True)
    else:
        stream = stream.trigger(processingTime=f"{options.window_seconds} seconds")
    query = stream.start()

    def commit_next() -> bool:
        if not query.isActive:
            running.stop.set()
        return backfill.commit_next()

    try:
        running.run({running.contracts[0].table: commit_next}, idle_seconds=_BACKFILL_SECONDS)
        if options.once:
            query.awaitTermination()
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

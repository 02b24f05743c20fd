"""EMR step: write landed changes of any number of contracts into Hudi tables.

``spark-submit --py-files headwater.zip write_hudi.py --contract s3://…/orders.json … --landing s3://… --lake s3://…``.
Endpoints, region and credentials of AWS services come from the environment, as everywhere with boto3.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading

import boto3
from pyspark.sql import SparkSession

from headwater import contract as contracts
from headwater.errors import UserError
from headwater.lake.catalog import Catalog
from headwater.lake.landing import Landing, LandingGap, split_uri
from headwater.lake.lease import Lease, LeaseLost
from headwater.lake.quarantine import TooManyBadRecords
from headwater.lake.table import HudiTable, ProgressMissing
from headwater.lake.writer import TableWriter, WriterSettings, print_event, run


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the step's arguments."""
    parser = argparse.ArgumentParser(description="Write landed changes into Hudi tables.")
    parser.add_argument("--contract", action="append", required=True, help="s3:// address of a contract's JSON; repeat")
    parser.add_argument("--landing", required=True, help="s3://bucket/prefix of the landing objects")
    parser.add_argument("--lake", required=True, help="s3://bucket/prefix of the tables")
    parser.add_argument("--quarantine", help="s3://bucket/prefix of undecodable records; default LAKE/_quarantine")
    parser.add_argument("--database", required=True, help="Glue database that holds the tables")
    parser.add_argument("--topic-prefix", default="headwater", help="Debezium's topic.prefix")
    parser.add_argument("--epoch", type=int, default=1, help="raised when the source's history was cut")
    parser.add_argument("--batch-bytes", type=int, default=32 * 1024 * 1024, help="most landed bytes a commit")
    parser.add_argument("--max-bad-share", type=float, default=0.01, help="most undecodable records a batch, 0 to 1")
    parser.add_argument("--idle-seconds", type=float, default=0.5, help="pause when nothing has landed")
    parser.add_argument("--lease-seconds", type=float, default=30.0, help="how long a dead writer's lease lasts")
    parser.add_argument("--once", action="store_true", help="drain what has landed, then exit")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the step; 0 when drained or told to stop, 1 on an error."""
    options = arguments(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    s3 = boto3.client("s3")
    leases: list[Lease] = []
    spark: SparkSession | None = None
    try:
        loaded = []
        for uri in options.contract:
            bucket, key = split_uri(uri)
            loaded.append(contracts.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8"), uri))
        owner = f"{socket.gethostname()}/{os.getpid()}"
        for contract in loaded:
            lease = Lease(s3, f"{options.lake}/_leases/{contract.table}.json", owner, options.lease_seconds)
            lease.acquire(wait=options.lease_seconds * 2)
            leases.append(lease)
        spark = SparkSession.builder.appName("headwater write_hudi").getOrCreate()
        settings = WriterSettings(
            quarantine=options.quarantine or f"{options.lake}/_quarantine",
            epoch=options.epoch,
            batch_bytes=options.batch_bytes,
            max_bad_share=options.max_bad_share,
            parallelism=spark.sparkContext.defaultParallelism,
        )
        catalog = Catalog(boto3.client("glue"), options.database)
        writers = [
            TableWriter(
                spark,
                contract,
                Landing(s3, options.landing, f"{options.topic_prefix}.{contract.source.table}"),
                HudiTable(spark, contract, options.lake, settings.parallelism),
                lease,
                catalog,
                s3,
                settings,
                print_event,
            )
            for contract, lease in zip(loaded, leases)
        ]
        print_event({"event": "started", "tables": [contract.table for contract in loaded]})
        run(writers, spark, [contract.table for contract in loaded], options.once, options.idle_seconds, stop)
        print_event({"event": "stopped"})
        return 0
    except (UserError, LandingGap, LeaseLost, ProgressMissing, TooManyBadRecords, ValueError) as error:
        print_event({"event": "error", "error": type(error).__name__, "message": str(error)})
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        # A failed job's tasks may still be writing: they end before the next writer may begin.
        if spark is not None:
            spark.stop()
        for lease in leases:
            lease.release()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Warms up a writer: it decodes synthetic changes and commits them to a scratch table, by the code for real changes.

The JVM loads, links and compiles classes when it first uses them, and the first real change should not wait for that.

The scratch table lies below ``LAKE/_warm_up/``, and is deleted at the end. A later warm-up deletes scratch objects
older than an hour.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headwater.contract.model import Contract, from_json
from headwater.lake.base.lease import Leases
from headwater.lake.base.s3_deletion import delete_all, delete_below
from headwater.lake.base.s3_uri import split_uri
from headwater.lake.decoding.batches import HeldBatch
from headwater.lake.job.loop import Job
from headwater.lake.sources.decoding_ahead import DecodingAhead
from headwater.lake.table.catalog import Catalog
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake.table.writer import TableWriter

COMMITS = 4
"""The first commit creates the table, the others write log files. More commits would gain little."""
KEYS = 50
"""The number of changes in a batch: about as many as a usual application makes in a table in a second or two."""
TABLE = "warm_up"
"""The scratch table, and the last part of its source's name."""
_LEFT_BEHIND = dt.timedelta(hours=1)
"""A warm-up takes seconds. Older objects belong to a writer that was killed."""


@dataclass(frozen=True)
class Scratch:
    """A scratch table."""

    writer: TableWriter
    """The writer of the scratch table."""
    uri: str
    """The ``s3://`` address of a folder that is deleted with the table."""


def scratch_contract(database: str, source_table: str, columns: Sequence[Mapping[str, str]]) -> Contract:
    """The contract of a scratch table with the key ``id``, partitioned by ``part``.

    ``columns`` have the form of a contract's document.
    """
    document = {
        "table": TABLE,
        "description": "A scratch table.",
        "source": {"database": database, "table": source_table},
        "key": ["id"],
        "partition_by": ["part"],
        "buckets": 1,
        "columns": columns,
    }
    return from_json(json.dumps(document), "the scratch table's contract")


def commit_batches(running: Job, contract: Contract, commit: Callable[[Scratch, int], Any]) -> None:
    """Call ``commit`` for batch 0, 1, … of a scratch table, unless the job stops.

    Raises the exceptions of boto3 and Spark. A change that cannot be decoded, or a value that does not fit, is an error
    too.
    """
    with _scratch(running, contract) as scratch:
        for number in range(COMMITS):
            if running.stop.is_set():
                return
            commit(scratch, number)


@contextmanager
def _scratch(running: Job, contract: Contract) -> Iterator[Scratch]:
    """A scratch table, which is deleted at the end. Its events and partitions are reported nowhere."""
    s3 = running.services.s3
    uri = f"{running.options.lake}/_warm_up/{uuid.uuid4().hex}"
    bucket, prefix = split_uri(uri)
    with ExitStack() as held:
        held.callback(_delete_left_behind, s3, bucket, prefix.rpartition("/")[0])
        held.callback(delete_below, s3, bucket, f"{prefix}/")
        leases = Leases(s3, uri, "the warm-up", running.options.lease_seconds, running.stop)
        held.callback(leases.release)
        decoding: DecodingAhead[HeldBatch | None] = DecodingAhead()
        held.callback(decoding.close)
        services = replace(running.services, catalog=_NoCatalog(None, ""), report=lambda event: None, decoding=decoding)
        settings = replace(
            running.settings, quarantine=f"{uri}/_quarantine", epoch=None, max_bad_share=0.0, max_unfit_share=0.0
        )
        table = HudiTable(running.spark, contract, uri, running.settings.parallelism)
        writer = TableWriter(table, leases.take(TABLE), services, settings)
        held.callback(writer.close)
        yield Scratch(writer, uri)


def _delete_left_behind(s3: Any, bucket: str, folder: str) -> None:
    """Delete the scratch tables of writers that were killed."""
    oldest = dt.datetime.now(dt.UTC) - _LEFT_BEHIND
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/"):
        left = [entry["Key"] for entry in page.get("Contents", ()) if entry["LastModified"] < oldest]
        delete_all(s3, bucket, left)


class _NoCatalog(Catalog):
    """A catalog that registers nothing: no query reads a scratch table."""

    def register(self, table: str, paths: list[str], *, again: bool = False) -> int:
        return 0

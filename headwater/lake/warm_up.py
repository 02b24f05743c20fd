"""Warming up a writer: synthetic changes are decoded and committed to a scratch table, by the code that real changes go
through. A JVM loads, links and compiles what it runs for the first time, and the first real change should not wait for
that.

The scratch table lies below ``LAKE/_warm_up/``, and is deleted at the end. The next writer deletes what a killed one
has left.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headwater.contract.model import Contract, from_json
from headwater.lake.catalog import Catalog
from headwater.lake.job import Job
from headwater.lake.lease import Leases
from headwater.lake.s3_deletion import delete_all, delete_below
from headwater.lake.s3_uri import split_uri
from headwater.lake.table import HudiTable
from headwater.lake.writer import TableWriter

COMMITS = 4
"""The first one makes the table, the others write log files. From the fifth on, a commit's time falls slowly."""
KEYS = 50
"""Changes of a batch: as many as a table of a usual application has in a second or two."""
_LEFT_BEHIND = dt.timedelta(hours=1)
"""A warm-up takes seconds. What is older belongs to a writer that was killed."""


def contract(database: str, source_table: str, columns: Mapping[str, tuple[str, str]]) -> Contract:
    """The contract of a scratch table with the key ``id``. ``columns`` holds type and source type by name; a source
    type that begins with ``from `` is the path of a document's member instead."""
    described: list[dict[str, Any]] = []
    for name, (type_, source_type) in columns.items():
        kind, _, path = source_type.partition("from ")
        described.append({"name": name, "type": type_, **({"from": path} if path else {"source_type": kind})})
    document = {
        "table": "warm_up",
        "description": "A scratch table.",
        "source": {"database": database, "table": source_table},
        "key": ["id"],
        "partition_by": [],
        "buckets": 2,
        "columns": described,
    }
    return from_json(json.dumps(document), "the scratch table's contract")


@dataclass(frozen=True)
class Scratch:
    """A scratch table of a running job: its writer, and the ``s3://`` address of its folder."""

    writer: TableWriter
    uri: str


@contextmanager
def scratch_table(running: Job, contract: Contract) -> Iterator[Scratch]:
    """A scratch table, deleted at the end. What it reports and registers goes nowhere."""
    s3 = running.services.s3
    uri = f"{running.options.lake}/_warm_up/{uuid.uuid4().hex}"
    bucket, prefix = split_uri(uri)
    services = replace(running.services, catalog=_NoCatalog(None, ""), report=lambda event: None)
    leases = Leases(s3, uri, "the warm-up", running.options.lease_seconds, running.stop)
    try:
        lease = leases.take(contract.table)
        table = HudiTable(running.spark, contract, uri, running.settings.parallelism)
        settings = replace(
            running.settings, quarantine=f"{uri}/_quarantine", epoch=None, max_bad_share=0.0, max_unfit_share=0.0
        )
        writer = TableWriter(table, lease, services, settings)
        try:
            yield Scratch(writer, uri)
        finally:
            writer.close()
    finally:
        leases.release()
        delete_below(s3, bucket, f"{prefix}/")
        _delete_left_behind(s3, bucket, prefix.rpartition("/")[0])


def _delete_left_behind(s3: Any, bucket: str, folder: str) -> None:
    """Delete what writers have left that were killed while they warmed up."""
    oldest = dt.datetime.now(dt.UTC) - _LEFT_BEHIND
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/"):
        left = [entry["Key"] for entry in page.get("Contents", ()) if entry["LastModified"] < oldest]
        delete_all(s3, bucket, left)


class _NoCatalog(Catalog):
    """No query knows a scratch table."""

    def register(self, table: str, paths: list[str], *, again: bool = False) -> int:
        return 0

"""Tables and landing objects of release 0.1.0, which that release wrote, are carried on by this one.

``release_0_1_0/`` holds the objects of its landing and lake buckets after a run of its local pipelines over a small
table of each source. ``rows.json`` and the keys in ``items.json`` are the sources' contents at the end. The last
changes of the relational table had landed and were not written yet."""

from __future__ import annotations

import json
import tarfile
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.lake.sources.scanned_export import Item
from headwater.lake_folder import EXAMPLE
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts
from tests.lake.pipeline import BUCKET, Pipeline, account, event

FILES = Path(__file__).parent / "release_0_1_0"
ROWS: list[tuple[int, str, str, str]] = json.loads((FILES / "rows.json").read_text())
ITEMS: list[tuple[str, str]] = json.loads((FILES / "items.json").read_text())
NEXT_OFFSET = 40
LATEST_LSN = 26_551_512
HOUR = 3_600_000_000


def restore(s3: Any, archive: str, prefix: str) -> None:
    """Put the objects of an archive below a prefix, whatever their bucket."""
    with tarfile.open(FILES / archive) as objects:
        for member in objects:
            content = objects.extractfile(member)
            assert content is not None
            marked = "headwater."
            metadata = {n.removeprefix(marked): v for n, v in member.pax_headers.items() if n.startswith(marked)}
            key = f"{prefix}/{member.name.partition('/')[2]}"
            s3.put_object(Bucket=BUCKET, Key=key, Body=content.read(), Metadata=metadata)


def test_a_relational_table_is_carried_on_with_its_order(pipeline: Pipeline) -> None:
    restore(pipeline.s3, "relational.tar.gz", pipeline.prefix)
    before = {row["id"]: row["_order"] for row in pipeline.stored()}
    assert 10 not in before
    pipeline.drain()
    assert pipeline.alive() == [account(id_, name, month, balance) for id_, month, name, balance in ROWS]
    after = {row["id"]: row["_order"] for row in pipeline.stored()}
    assert after == {**after, **{id_: order for id_, order in before.items() if id_ not in (5, 6)}}
    assert min(after[10], after[5]) > max(before.values())
    # An old change that comes again loses, a later one wins.
    old, new = account(1, "Bea"), account(1, "Eve")
    pipeline.next_offset(NEXT_OFFSET)
    pipeline.land(event("u", LATEST_LSN - 10_000, before=old, after=account(10, "Old")))
    pipeline.land(event("u", LATEST_LSN + 10_000, before=old, after=new))
    pipeline.drain()
    names = {row["id"]: row["name"] for row in pipeline.alive()}
    assert (names[1], names[10]) == ("Eve", "Later")


def test_a_key_value_table_is_carried_on_by_a_raised_epoch_and_an_export(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    prefix = f"u-{uuid.uuid4().hex[:8]}"
    restore(aws_api.client("s3"), "key_value.tar.gz", prefix)
    contract = (EXAMPLE.contracts / "accounts.yaml").read_text()
    accounts = Accounts(spark, aws_api, prefix, contract, epoch=2)
    with pytest.raises(ValueError, match=r"layout of _order: found version 1, .* expected 2.*glue\.epoch"):
        accounts.start(epoch=1)
    accounts.start(epoch=2, is_streaming=True)
    gone, *kept = ITEMS
    exported: list[Item] = [{"id": {"S": id_}, "custName": {"S": name}} for id_, name in kept]
    accounts.load(accounts.export(time.time_ns() // 1000 + HOUR, exported))
    rows = [(row["id"], row["cust_name"]) for row in accounts.stored() if not row["_deleted"]]
    assert sorted(rows) == sorted(map(tuple, kept))
    assert tuple(gone) in {(row["id"], row["cust_name"]) for row in accounts.stored()}

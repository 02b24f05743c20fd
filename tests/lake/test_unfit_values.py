"""Values that do not fit, over real Spark, Hudi and an S3 API: what they cost, and where their rows lie."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import QUARANTINE
from headwater.lake.base.quarantine import TooManyBadRecords
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import Pipeline, account, event, partitions


@pytest.fixture
def accounts(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Accounts:
    return Accounts(spark, aws_api, f"u-{uuid.uuid4().hex[:8]}")


def live(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["id"], row["month"], row["name"]) for row in rows if not row["_deleted"]]


def test_a_row_that_moved_with_an_unfit_value_lives_once_and_can_be_deleted(pipeline: Pipeline) -> None:
    unfit, mended = account(1, month="2024-02", balance="NAN"), account(1, month="2024-02", name="Bea")
    pipeline.land(event("c", 10, after=account(1)))
    pipeline.drain()
    pipeline.land(event("u", 20, before=account(1), after=unfit))
    pipeline.drain()
    pipeline.land(event("u", 30, before=unfit, after=mended))
    pipeline.drain()
    assert live(pipeline.stored()) == [(1, "2024-02", "Bea")]
    pipeline.land(event("d", 40, before=mended))
    pipeline.drain()
    assert live(pipeline.stored()) == []


def test_a_refused_update_leaves_no_copy_either(pipeline: Pipeline) -> None:
    pipeline.contract = replace(pipeline.contract, on_unfit=QUARANTINE)
    unfit, mended = account(1, month="2024-02", balance="NAN"), account(1, month="2024-02", name="Bea")
    pipeline.land(event("c", 10, after=account(1)), event("u", 20, before=account(1), after=unfit))
    pipeline.drain()
    assert live(pipeline.stored()) == []
    assert [event["records"] for event in pipeline.events if event["event"] == "quarantine"] == [1]
    pipeline.land(event("u", 30, before=unfit, after=mended), event("c", 10, after=account(1)))
    pipeline.drain()
    assert live(pipeline.stored()) == [(1, "2024-02", "Bea")]


def test_rows_without_a_place_are_replayed_in_any_order_to_one_table(pipeline: Pipeline) -> None:
    """A row goes from a month to none, to an unfit one, back, and away; every reader finds it where it is."""
    unplaced, unfit = {**account(1), "month": None}, {**account(1), "month": ""}
    changes = [
        event("c", 10, after=account(1)),
        event("u", 20, before=account(1), after=unplaced),
        event("u", 30, before=unplaced, after=unfit),
        event("c", 40, after={**account(2), "month": "", "balance": "1e40"}),
    ]
    for order in (changes, changes[::-1]):
        pipeline.land(*order)
        pipeline.drain()
    assert live(pipeline.stored()) == [(1, None, "Ann"), (2, None, "Ann")]
    (first, second) = [row for row in pipeline.stored() if not row["_deleted"]]
    assert (first["_unfit"], json.loads(first["_rest"])) == (["month"], {"month": ""})
    assert (second["_unfit"], json.loads(second["_rest"])) == (["balance", "month"], {"month": "", "balance": "1e40"})
    assert second["balance"] is None
    assert "__HIVE_DEFAULT_PARTITION__" in partitions(pipeline.glue, pipeline.database)
    assert [entry["unfit"] for entry in pipeline.events if entry["event"] == "commit"] == [3, 3]
    pipeline.land(event("u", 50, before=unfit, after=account(1, month="2024-03")))
    pipeline.drain()
    assert live(pipeline.stored()) == [(1, "2024-03", "Ann"), (2, None, "Ann")]


def test_more_unfit_rows_than_accepted_stop_the_batch_before_its_commit(pipeline: Pipeline) -> None:
    pipeline.land(*(event("c", 10 + id_, after=account(id_, balance="NAN")) for id_ in range(20)))
    with pytest.raises(TooManyBadRecords, match=r"20 of 20 rows have values that do not fit .*\(balance\)"):
        pipeline.drain(max_unfit_share=0.5)
    assert pipeline.stored() == []
    pipeline.drain()
    assert [row["_unfit"] for row in pipeline.stored()] == [["balance"]] * 20


def test_tombstones_are_no_rows_among_which_unfit_ones_are_few(pipeline: Pipeline) -> None:
    pipeline.land(
        *(event("u", 10 + id_, before=account(id_), after=unfit_elsewhere(id_)) for id_ in range(12)),
        *(event("d", 50 + id_, before=account(id_)) for id_ in range(12, 24)),
    )
    with pytest.raises(TooManyBadRecords, match="12 of 12 rows have values that do not fit"):
        pipeline.drain(max_unfit_share=0.9)


def test_bad_records_are_counted_among_records_and_not_among_rows(pipeline: Pipeline) -> None:
    """An update that moves a row makes two, a refused one its tombstone beside the record, a delete one."""
    pipeline.contract = replace(pipeline.contract, on_unfit=QUARANTINE)
    pipeline.land(
        *(event("u", 10 + id_, before=account(id_), after=account(id_, month="2024-02")) for id_ in range(20)),
        *(event("d", 50 + id_, before=account(id_)) for id_ in range(20, 30)),
        *(event("u", 90 + id_, before=account(id_), after=unfit_elsewhere(id_)) for id_ in range(30, 42)),
    )
    with pytest.raises(TooManyBadRecords, match="12 of 42 records cannot be decoded"):
        pipeline.drain(max_bad_share=0.28)
    assert pipeline.stored() == []
    pipeline.drain(max_bad_share=0.29)
    assert len(live(pipeline.stored())) == 20


def unfit_elsewhere(id_: int) -> dict[str, Any]:
    return account(id_, month="2024-02", balance="NAN")


def test_an_item_that_moved_with_an_unfit_value_lives_once_and_can_be_deleted(accounts: Accounts) -> None:
    sound, garbage, mended = item("a"), item("a", registered="garbage"), item("a", registered="2024-03-01", name="Bea")
    accounts.stream(change(10, None, sound))
    accounts.stream(change(20, sound, garbage))
    accounts.stream(change(30, garbage, mended))
    assert live(accounts.stored()) == [("a", "2024-03", "Bea")]
    accounts.stream(change(40, mended, garbage))
    accounts.stream(change(50, garbage, None))
    assert live(accounts.stored()) == []

"""Filling columns from ``_rest`` by what the shipped scripts do for a table, over real Spark, Hudi and an S3 API."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import Column
from headwater.contract.types import parse_type
from headwater.lake.requests import fill_requests
from headwater.lake.requests.protocol import DONE, Requests, Status
from headwater.lake.sources.scanned_export import Item
from headwater.lake.table.writer import TableWriter
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import Pipeline, account, event
from tests.lake.test_replay import START, Killed, drain, key_value, killed, relational

NEW = (
    Column("note", parse_type("string"), "text", ("note",)),
    Column("seen", parse_type("timestamp"), "timestamp with time zone", ("seen",)),
    Column("total", parse_type("decimal(12,2)"), None, ("payload", "total")),
)


def test_a_column_that_a_contract_gains_is_filled_in_old_rows_and_a_later_change_wins(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(id_: int, month: str, note: str) -> dict[str, object]:
        row = account(id_, month=month)
        payload = {**json.loads(row["payload"]), "total": 1.10, "more": [id_]}
        seen = "2024-01-01T00:30:00.123456+02:00"
        return {**row, "payload": json.dumps(payload), "note": note, "seen": seen, "other": 5}

    pipeline.land(
        event("c", 10, after=noted(1, "2024-01", "a")),
        event("c", 11, after=noted(2, "2024-02", "b")),
        event("c", 12, after=noted(3, "2024-02", "c")),
        event("c", 13, after=account(4)),
    )
    pipeline.drain()
    orders = [row["_order"] for row in pipeline.stored()]
    columns = pipeline.contract.columns
    pipeline.contract = replace(pipeline.contract, columns=(*columns, *NEW))
    requests = Requests(pipeline.s3, pipeline.lake, "accounts")
    id_ = fill_requests.ask(requests)
    step = relational(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_done", killed)
        with pytest.raises(Killed):
            drain(step)
    pipeline.land(event("u", 20, noted(3, "2024-02", "c"), noted(3, "2024-02", "later")))
    drain(relational(pipeline))
    status = requests.status(id_)
    assert status is not None
    assert replace(status, token="") == Status("", DONE, parts=2, parts_done=2, records=1)
    rows = pipeline.stored()
    assert [row["note"] for row in rows] == ["a", "b", "later", None]
    assert [row["total"] for row in rows] == [Decimal("1.10")] * 3 + [None]
    assert {row["seen"].isoformat() for row in rows[:3]} == {"2023-12-31T22:30:00.123456+00:00"}
    rest = [{"other": 5, "payload.more": [number]} for number in (1, 2, 3)]
    assert [json.loads(row["_rest"]) for row in rows[:3]] == rest
    assert [row["_order"] for row in rows[:2]] == orders[:2]
    commit = pipeline.table().last_commit()
    assert commit is not None
    assert commit.progress.cursor == {"headwater.shop.accounts/0": 5}
    assert pipeline.alive() == [account(1), account(2, month="2024-02"), account(3, month="2024-02"), account(4)]


def test_an_attribute_that_a_contract_gains_is_filled_beside_one_that_still_does_not_fit(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    accounts = Accounts(spark, aws_api, f"f-{uuid.uuid4().hex[:8]}")
    named: Item = {**item("a", balance="1.234"), "nick": {"SS": ["x", "y"]}}
    accounts.stream(change(START, None, named), change(START, None, item("b")), since=START)
    (stored, _) = accounts.stored()
    assert stored["_unfit"] == ["balance"]
    nick = Column("nick", parse_type("array<string>"), "SS", ("nick",))
    accounts.contract = replace(accounts.contract, columns=(*accounts.contract.columns, nick))
    id_ = fill_requests.ask(accounts.requests)
    drain(key_value(accounts).requested.commit_next)
    status = accounts.requests.status(id_)
    assert status is not None
    assert (status.state, status.records) == (DONE, 1)
    (filled, untouched) = accounts.stored()
    assert filled["nick"] == ["x", "y"]
    assert json.loads(filled["_rest"]).keys() == json.loads(stored["_rest"]).keys() - {"nick"}
    assert (filled["_unfit"], filled["_order"]) == (["balance"], stored["_order"])
    assert untouched["nick"] is None

"""Deleting a table's past: a search unpacks and decodes every object and every older version. It finds the present
rows, and none of their past values."""

from __future__ import annotations

import uuid

import pytest
from pyspark.sql import SparkSession

from headwater.lake.base.quarantine import Quarantine
from headwater.lake.requests import expire_requests
from headwater.lake.requests.protocol import DONE, REFUSED, Status
from rig.local.aws import AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import BUCKET, account, event
from tests.lake.test_forget import OTHER, Lake, person
from tests.lake.test_replay import START, drain, key_value
from tests.stores import traces

LIVING = 771177117
MARKERS = ["Zebedee", "Zachariah", "zebedee@example.com"]


@pytest.fixture
def lake(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Lake:
    return Lake(spark, aws_api)


def expire(lake: Lake) -> list[Status]:
    """Have the pasts of table and history deleted, and return the writers' answers."""
    ids = [expire_requests.ask(requests) for requests in lake.requests]
    lake.drain()
    answers = [requests.status(id_) for requests, id_ in zip(lake.requests, ids, strict=True)]
    assert all(answers)
    return [answer for answer in answers if answer]


def test_a_value_that_was_written_over_is_nowhere_once_the_past_is_deleted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.lived(monkeypatch)
    lake.land(event("c", 70, after=person()), event("c", 71, after=account(4, "Zachariah")))
    lake.land(event("u", 80, person(), account(LIVING, "Ann")), event("d", 81, account(4, "Zachariah")))
    lake.land(event("u", 90, account(OTHER, "Bea"), account(OTHER, "Cleo")))
    alive = lake.alive()
    assert {"accounts log", "accounts parquet of before", "accounts_changes log", "landing gz"} <= lake.kinds()
    for each in ("accounts", "accounts_changes"):
        aside = Quarantine(lake.s3, f"{lake.pipeline.lake}/_quarantine", each)
        for object_ in aside.listed():
            aside.delete(object_.name)
    of_table, of_history = expire(lake)
    assert [trace for trace in lake.found() if set(MARKERS) & trace.told] == []
    assert (of_table.state, of_history.state) == (DONE, DONE)
    assert (of_table.told["landing_objects"], of_table.told["landing_left"]) == (7, 1)
    assert lake.alive() == alive == [(OTHER, "Cleo"), (3, "Ann"), (LIVING, "Ann")]
    history = lake.job.writers["accounts_changes"].read().where("_op IN ('c', 'u', 'd')").collect()
    assert sorted((row["id"], row["_op"], row["name"]) for row in history) == [
        (OTHER, "u", "Cleo"),
        (3, "c", "Ann"),
        (4, "d", None),
        (LIVING, "u", "Ann"),
    ]
    # Changes go on, also by a new writer.
    lake.start()
    lake.land(event("u", 100, account(OTHER, "Cleo"), account(OTHER, "Dora")))
    assert (OTHER, "Dora") in lake.alive()


def test_a_step_that_fails_refuses_the_request_and_the_table_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(event("c", 10, after=account(OTHER, "Zebedee")))
    lake.land(event("u", 20, account(OTHER, "Zebedee"), account(OTHER, "Ann")))
    with monkeypatch.context() as failing:
        failing.setattr(
            "headwater.lake.requests.forget.delete_former", lambda *_: (_ for _ in ()).throw(OSError("no right"))
        )
        of_table, _ = expire(lake)
    assert of_table.state == REFUSED
    assert of_table.reason.startswith("OSError: no right. Not all is deleted: correct the cause")
    lake.land(event("c", 30, after=account(3)))
    assert [answer.state for answer in expire(lake)] == [DONE, DONE]
    assert (3, "Ann") in lake.alive()


def test_a_glue_job_deletes_the_past_of_its_table(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> None:
    accounts = Accounts(spark, aws_api, prefix := f"e-{uuid.uuid4().hex[:8]}")
    zebedee, ann = item("a", name="Zebedee"), item("a", name="Ann")
    accounts.stream(change(START, None, zebedee), since=START)
    accounts.stream(change(START + 1, zebedee, ann))
    s3 = aws_api.client("s3")
    assert traces(s3, BUCKET, f"{prefix}/", ["Zebedee"]) != []
    id_ = expire_requests.ask(accounts.requests)
    drain(key_value(accounts).requested.commit_next)
    status = accounts.requests.status(id_)
    assert status is not None
    assert (status.state, status.told["landing_objects"]) == (DONE, 0)
    assert traces(s3, BUCKET, f"{prefix}/", ["Zebedee"]) == []
    assert [row["name"] for row in accounts.stored()] == ["Ann"]

"""Replaying the quarantine by what the shipped scripts do for a table, over real Spark, Hudi and an S3 API."""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.masks import masked
from headwater.contract.model import HMAC, KEEP, QUARANTINE, Contract, Mask
from headwater.contract.types import parse_type
from headwater.lake.base.quarantine import Quarantine
from headwater.lake.job import entry
from headwater.lake.job.entry import TableWork
from headwater.lake.job.landed_source import LandedSource
from headwater.lake.job.loop import Job
from headwater.lake.job.streamed_source import StreamedSource
from headwater.lake.requests.protocol import DONE, Requests, Status
from headwater.lake.requests.replay_requests import Choice, ask
from rig.local.aws import AwsApi
from tests.lake.accounts import MASK_KEY, SOURCE, Accounts, change, item
from tests.lake.pipeline import Pipeline, account, event

START = 1_769_860_800_000_000
BIG = "123456789012.50"
"""It fits no decimal(12,2)."""
UNFIT = "1.234"


class Killed(BaseException):
    """The process is killed."""


def relational(
    pipeline: Pipeline,
    tombstone_days: float | None = None,
    landing_days: float | None = None,
    file_version_hours: float = 1.0,
    *,
    await_backfill: bool = False,
    **settings: Any,
) -> Callable[[], bool]:
    """The work of a new EMR step for the table."""
    options = step_options(pipeline, tombstone_days, landing_days, file_version_hours, await_backfill=await_backfill)
    return step_work(pipeline.job(options, **settings), pipeline.contract)


def step_options(
    pipeline: Pipeline,
    tombstone_days: float | None = None,
    landing_days: float | None = None,
    file_version_hours: float = 1.0,
    *,
    await_backfill: bool = False,
) -> argparse.Namespace:
    return argparse.Namespace(
        lake=pipeline.lake,
        landing=pipeline.landing,
        topic_prefix="headwater",
        idle_seconds_max=0.0,
        tombstone_days=tombstone_days,
        landing_days=landing_days,
        file_version_hours=file_version_hours,
        await_backfill=await_backfill,
        once=False,
    )


def step_work(job: Job, contract: Contract) -> Callable[[], bool]:
    """The work of an EMR step for one of its job's tables."""
    return entry.table_work(LandedSource(), job, contract, job.options).commit_next


def key_value(accounts: Accounts, epoch: int = 1, tombstone_days: float | None = None) -> TableWork:
    """The work of a new Glue job for the table."""
    options = key_value_options(accounts, tombstone_days)
    return stream_work(accounts.job(options, epoch), accounts, options)


def stream_work(job: Job, accounts: Accounts, options: argparse.Namespace) -> TableWork:
    """The work of a Glue job for its table."""
    return entry.table_work(StreamedSource(), job, accounts.contract, options)


def key_value_options(accounts: Accounts, tombstone_days: float | None = None) -> argparse.Namespace:
    return argparse.Namespace(
        lake=accounts.lake,
        source_table={"accounts": SOURCE},
        stream_arn={"accounts": "arn"},
        window_seconds=0.0,
        tombstone_days=tombstone_days,
        file_version_hours=1.0,
    )


def drain(commit_next: Callable[[], bool]) -> None:
    while commit_next():
        pass


class Aside:
    """The quarantine of the table ``accounts`` and the requests to its writer."""

    def __init__(self, s3: Any, lake: str) -> None:
        self.quarantine = Quarantine(s3, f"{lake}/_quarantine", "accounts")
        self.requests = Requests(s3, lake, "accounts")

    def names(self) -> list[str]:
        return [object_.name for object_ in self.quarantine.listed()]

    def reasons(self) -> list[str]:
        return [entry.reason for name in self.names() for entry in self.quarantine.read(name) or []]

    def ask(self) -> str:
        return ask(self.requests, Choice(tuple(self.names())))

    def status(self, id_: str) -> Status | None:
        status = self.requests.status(id_)
        return None if status is None else replace(status, token="")


def killed(*_: object) -> None:
    raise Killed


def test_what_fits_the_contract_of_now_is_replayed_whatever_share_stays_and_a_later_change_wins(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.contract = replace(pipeline.contract, on_unfit=QUARANTINE)
    pipeline.land(
        *(event("c", number, after=account(number)) for number in (1, 2, 4)),
        event("u", 20, account(1), account(1, balance=BIG)),
        event("u", 21, account(2), account(2, balance=BIG)),
        event("u", 22, account(4), account(4, month="2024-02", balance=BIG)),
        event("c", 23, after=account(3, balance=BIG)),
        *[b"no json"] * 12,
        event("u", 30, account(2, balance=BIG), account(2, name="Bea")),
    )
    pipeline.drain(max_bad_share=1.0)
    assert pipeline.alive() == [account(2, name="Bea")]
    aside = Aside(pipeline.s3, pipeline.lake)
    assert len(aside.reasons()) == 4 + 12
    wide = parse_type("decimal(14,2)")
    columns = (
        replace(column, type=wide) if column.name == "balance" else column for column in pipeline.contract.columns
    )
    pipeline.contract = replace(pipeline.contract, columns=tuple(columns))
    request = aside.ask()
    replayed = [
        account(1, balance=BIG),
        account(2, name="Bea"),
        account(3, balance=BIG),
        account(4, month="2024-02", balance=BIG),
    ]
    step = relational(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "delete", killed)
        with pytest.raises(Killed):
            drain(step)
    assert pipeline.alive() == replayed
    assert len(aside.reasons()) == 4 + 12 + 12, "the object goes only after what stays of it is stored"
    pipeline.land(event("u", 40, account(1, balance=BIG), account(1, name="Cid")))
    drain(relational(pipeline))
    assert pipeline.alive() == [account(1, name="Cid"), *replayed[1:]]
    assert aside.status(request) == Status("", DONE, parts=1, parts_done=1, records=16, kept=12)
    (reason,) = set(aside.reasons())
    assert reason.startswith("not JSON")
    commit = pipeline.table().last_commit()
    assert commit is not None
    assert commit.progress.cursor == {"headwater.shop.accounts/0": 21}


def test_a_streamed_and_an_exported_record_are_replayed_in_the_epoch_in_which_they_were_read(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    accounts = Accounts(spark, aws_api, f"r-{uuid.uuid4().hex[:8]}")
    accounts.contract = replace(accounts.contract, on_unfit=QUARANTINE)
    accounts.start()
    unfit = item("changed", balance=UNFIT)
    later = item("later", balance=UNFIT)
    accounts.stream(
        change(START, None, item("changed")),
        change(START + 1, item("changed"), unfit),
        change(START + 2, None, later),
        change(START + 3, later, item("later", name="Bea")),
        since=START,
    )
    accounts.load(accounts.export(START + 10**9, [item("exported", balance=UNFIT), item("later", name="Bea")]))
    assert accounts.alive() == [("later", "2024-01", "Bea")]
    aside = Aside(accounts.s3, accounts.lake)
    assert len(aside.names()) == 2
    accounts.contract = replace(accounts.contract, on_unfit=KEEP)
    request = aside.ask()
    drain(key_value(accounts, epoch=2).requested.commit_next)
    assert aside.status(request) == Status("", DONE, parts=2, parts_done=2, records=3)
    assert aside.names() == []
    # The export ended what was streamed before it and is not in it.
    assert accounts.alive() == [("exported", "2024-01", "Ann"), ("later", "2024-01", "Bea")]
    assert {row["_order"][:4] for row in accounts.stored()} == {"0001"}


def test_what_is_masked_is_nowhere_in_the_lake_and_masked_once(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    accounts = Accounts(spark, aws_api, f"m-{uuid.uuid4().hex[:8]}")
    masks = (Mask(("name",), HMAC), Mask(("pin",), HMAC))
    accounts.contract = replace(accounts.contract, on_unfit=QUARANTINE, masks=masks)
    accounts.start()
    streamed, unfit = (
        {**item(id_, name="swordfish", balance=balance), "pin": {"S": "swordfish"}}
        for id_, balance in (("a", "1.5"), ("b", UNFIT))
    )
    accounts.commit([(change(START, None, streamed), "1"), (change(START + 1, None, unfit), "2")])
    exported_at = time.time_ns() // 1000 + 10**9  # after the stream's beginning, which is now
    accounts.load(accounts.export(exported_at, [streamed, unfit, item("c", name="swordfish")]))
    aside = Aside(accounts.s3, accounts.lake)
    assert len(aside.names()) == 2
    in_quarantine = accounts.contents()
    accounts.contract = replace(accounts.contract, on_unfit=KEEP)
    aside.ask()
    drain(key_value(accounts).requested.commit_next)
    mask = masked("swordfish", MASK_KEY)
    assert accounts.alive() == [(id_, "2024-01", mask) for id_ in "abc"]
    rests = [row["_rest"] for row in accounts.stored()]
    assert [rest is not None and f'"pin":{{"S":"{mask}"}}' in rest for rest in rests] == [True, True, False]
    for stored in (in_quarantine, accounts.contents()):
        assert any(mask.encode() in content for content in stored)
        assert not any(b"swordfish" in content for content in stored)

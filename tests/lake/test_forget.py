"""Forgetting a row: a search that unpacks and decodes every object and every older version finds nothing of it, and
nothing that comes later brings it back."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import History, lake_tables
from headwater.lake import erased_landing, forget, requests, table
from headwater.lake.debezium_decoder import order
from headwater.lake.dynamodb_decoder import order_at_moment
from headwater.lake.erased_keys import ErasedKeysMissing, ErasedStore
from headwater.lake.forget_requests import Forgotten, ask
from headwater.lake.quarantine import Quarantine
from headwater.lake.replaced_files import ReplacedFiles
from headwater.lake.replay_requests import Choice
from headwater.lake.replay_requests import ask as ask_replay
from headwater.lake.requests import DONE, REFUSED, Requests, Status
from headwater.lake.table import HudiTable
from headwater.local.aws import REGION, AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import BUCKET, Leases, Pipeline, account, event
from tests.lake.test_replay import drain, key_value, step_options, step_work
from tests.lake.test_retention import HASTY
from tests.lake.traces import Trace, traces

PERSON, OTHER, NEIGHBOUR = 771177117, 2, 3
NAMES = ["Zebedee", "Zachariah"]
MAIL = "zebedee@example.com"
MARKERS = [str(PERSON), *NAMES, MAIL]
NOW = 1000
"""How far the source's log has come when the row is to be forgotten."""


class Killed(BaseException):
    """The process is killed."""


def person(name: str = NAMES[0], **values: str) -> dict[str, Any]:
    row = account(PERSON, name, **values)
    return {**row, "payload": json.dumps({**json.loads(row["payload"]), "mail": MAIL})}


def until(lsn: int = NOW, epoch: int = 1) -> str:
    return order(epoch, lsn, lsn, snapshot=False)


class Lake:
    """A table with a history in a bucket that keeps older versions, and what the shipped script does for both."""

    def __init__(self, spark: SparkSession, aws: AwsApi) -> None:
        self.bucket = f"headwater-versions-{uuid.uuid4().hex[:8]}"
        self.s3 = aws.client("s3")
        self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})
        self.pipeline = Pipeline(spark, aws, f"f-{uuid.uuid4().hex[:8]}", self.bucket)
        self.tables = lake_tables([replace(self.pipeline.contract, history=History(30))])
        history = self.tables[1]
        self.pipeline.glue.create_table(
            DatabaseName=self.pipeline.database,
            TableInput={
                "Name": history.table,
                "PartitionKeys": [{"Name": name, "Type": "string"} for name in history.partitions],
                "StorageDescriptor": {"Location": f"{self.pipeline.lake}/{history.table}", "Columns": []},
            },
        )
        lake = self.pipeline.lake
        self.leases = {each.table: Leases(self.s3, f"{lake}/_leases/{each.table}.json") for each in self.tables}
        self.requests = [Requests(self.s3, lake, each.table) for each in self.tables]
        self.start()

    def start(self) -> None:
        """Start a new job, whose state comes from the lake."""
        taken: Any = SimpleNamespace(take=lambda name: self.leases[name].take())
        job = replace(self.pipeline.job(step_options(self.pipeline)), contracts=self.tables, leases=taken)
        self.job = replace(job, settings=replace(job.settings, max_bad_share=1.0))
        self.steps = [step_work(self.job, each) for each in self.tables]

    def close(self) -> None:
        """End what goes on beside the commits."""
        for writer in self.job.writers.values():
            writer.close()

    def drain(self) -> None:
        """Let the job do all that there is to do for both tables."""
        for step in self.steps:
            drain(step)
        for writer in self.job.writers.values():
            writer.settle(wait=True)

    def land(self, *values: Any) -> str:
        """Land values and commit them."""
        key = self.pipeline.land(*values)
        self.drain()
        return key

    def ask(self, order_: str = "") -> list[tuple[str, str]]:
        """Ask both writers to forget the person, and return the ids and tokens of the requests."""
        asked = Forgotten({"id": str(PERSON)}, order_ or until())
        return [ask(each, asked) for each in self.requests]

    def forget(self, order_: str = "") -> list[Status]:
        """Have the person forgotten, and return the answers of both writers."""
        asked = self.ask(order_)
        self.drain()
        return self.answers(asked)

    def answers(self, asked: list[tuple[str, str]]) -> list[Status]:
        """The writers' last answers to requests, which must be gone."""
        answers = []
        for of_table, (id_, token) in zip(self.requests, asked, strict=True):
            assert of_table.get(id_) is None, "a request tells the key"
            status = of_table.status(id_)
            assert status is not None
            assert status.token == token
            answers.append(status)
        return answers

    def found(self) -> list[Trace]:
        """Where something of the person is."""
        return traces(self.s3, self.bucket, f"{self.pipeline.prefix}/", MARKERS)

    def kinds(self) -> set[str]:
        """Of what kinds the objects are in which something of the person is."""
        kinds = set()
        for trace in self.found():
            name = trace.key.removeprefix(f"{self.pipeline.prefix}/")
            kind = name.split("/")[1] if name.startswith("lake/") else name.split("/")[0]
            ending = "log" if ".log." in name else name.rpartition(".")[2]
            kinds.add(f"{kind} {ending}{'' if trace.is_current else ' of before'}")
        return kinds

    def copies(self, part: str) -> dict[str, Any]:
        """Objects with something of the person in whose keys that part is: their bodies and metadata."""
        stored = {
            trace.key: self.s3.get_object(Bucket=self.bucket, Key=trace.key)
            for trace in self.found()
            if trace.is_current and part in trace.key
        }
        return {key: (answer["Body"].read(), answer["Metadata"]) for key, answer in stored.items()}

    def restore(self, copies: dict[str, Any]) -> None:
        """Put objects back."""
        for key, (body, metadata) in copies.items():
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, Metadata=metadata)

    def ids(self) -> set[int]:
        """The ids in the table and in its history, tombstones included."""
        rows = [row for each in self.tables for row in self.job.writers[each.table].read().select("id").collect()]
        return {row["id"] for row in rows if row["id"] is not None}

    def alive(self) -> list[tuple[int, str]]:
        """Id and name of the table's rows."""
        rows = self.job.writers["accounts"].read().where("NOT _deleted").collect()
        return sorted((row["id"], row["name"]) for row in rows)

    def lived(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the person come, change, move, be spoilt, and go; others stay. Some of the files are replaced and
        deleted already."""
        moved = person(NAMES[1], month="2024-02")
        with monkeypatch.context() as hasty:
            for name, value in HASTY.items():
                hasty.setitem(table._OPTIONS, name, value)
            self.start()
            self.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
            self.land(event("u", 20, person(), person(NAMES[1])))
        replaced = ReplacedFiles(self.s3, self.job.writers["accounts"].table)
        assert replaced.delete(dt.datetime.now(dt.UTC) + dt.timedelta(1)) > 0
        self.start()
        self.land(event("u", 30, person(NAMES[1]), moved), event("u", 31, account(OTHER), account(OTHER, "Bea")))
        self.land(event("u", 40, moved, {**moved, "id": "no number"}), b"no json")
        self.land(event("d", 60, moved), event("c", 61, after=account(NEIGHBOUR)))


@pytest.fixture
def lake(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Lake:
    return Lake(spark, aws_api)


def test_nothing_of_a_forgotten_row_is_in_any_store_and_nothing_brings_it_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.lived(monkeypatch)
    assert lake.kinds() >= {
        "_quarantine gz",
        "accounts log",
        "accounts log of before",
        "accounts parquet",
        "accounts parquet of before",
        "accounts_changes log",
        "accounts_changes parquet",
        "landing gz",
    }, "the search finds the person where it is"
    landed, aside = lake.copies("/landing/"), lake.copies("/_quarantine/accounts/")
    assert (len(landed), len(aside)) == (5, 1)
    others = lake.alive()

    of_table, of_history = lake.forget()
    assert lake.found() == []
    assert (of_table.state, of_history.state) == (DONE, DONE)
    assert of_table.told["key"] == of_history.told["key"]
    assert of_table.told["landing"] == {"objects": 5, "rewritten": 5, "records": 5, "unreadable": 1}
    assert of_table.told["quarantine_records"] == 1
    assert (of_table.told["rows"], of_history.told["rows"]) == (2, 5)
    assert lake.alive() == others == [(OTHER, "Bea"), (NEIGHBOUR, "Ann")]

    # Its records come again, and one that comes late.
    lake.land(
        event("c", 10, after=person()), event("u", 35, person(), person(NAMES[1])), event("c", 990, after=account(4))
    )
    assert lake.ids() == {OTHER, NEIGHBOUR, 4}
    assert lake.found() == [], "what lands afterwards is cleared by the commit that reads it"
    # A bad one, which is not even put aside; then a new writer of a table that reads all objects of before again.
    lake.land(event("u", 40, person(), {**person(), "id": "no number"}))
    assert lake.found() == []
    lake.restore(landed)
    lake.restore(aside)
    lake.start()
    ask_replay(lake.requests[0], Choice(tuple(key.rpartition("/")[2] for key in aside)))
    lake.drain()
    lake.job.writers["accounts"]._progress = replace(lake.job.writers["accounts"].progress, cursor={})
    lake.drain()
    assert lake.ids() == {OTHER, NEIGHBOUR, 4}
    assert "accounts parquet" not in lake.kinds()
    lake.forget()
    assert lake.found() == []

    # Another row of the same key is another one.
    lake.land(event("c", NOW + 10, after=account(PERSON, "Yolanda")))
    assert (PERSON, "Yolanda") in lake.alive()
    lake.forget()
    assert (PERSON, "Yolanda") in lake.alive(), "its order is above that which is forgotten"

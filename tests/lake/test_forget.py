"""Forgetting a row: a search that unpacks and decodes every object and every older version finds nothing of it. Nothing
that comes later brings the row back."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.contract.model import History, lake_tables
from headwater.lake.base.quarantine import Quarantine
from headwater.lake.decoding.changes import ROW_TAGS, expired_row
from headwater.lake.decoding.debezium_decoder import order
from headwater.lake.decoding.decoded_frame import few_rows_frame
from headwater.lake.decoding.dynamodb_decoder import order_at_moment
from headwater.lake.requests import forget
from headwater.lake.requests import protocol as requests
from headwater.lake.requests.forget_requests import Forgotten, ask
from headwater.lake.requests.protocol import DONE, REFUSED, Requests, Status
from headwater.lake.requests.replay_requests import Choice
from headwater.lake.requests.replay_requests import ask as ask_replay
from headwater.lake.requests.requested_work import RequestedWork
from headwater.lake.table import hudi_table as table
from headwater.lake.table.erasure import landing_objects
from headwater.lake.table.erasure.keys import ErasedKeysMissing, ErasedStore
from headwater.lake.table.hudi_table import HudiTable
from headwater.lake.table.replaced_files import ReplacedFiles
from rig.local.aws import REGION, AwsApi
from tests.lake.accounts import Accounts, change, item
from tests.lake.pipeline import BUCKET, Landed, Leases, Pipeline, account, event, in_epoch
from tests.lake.test_replay import drain, key_value, step_options, step_work
from tests.lake.test_retention import HASTY
from tests.stores import Trace, traces

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
            writer.settle()

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
        """The places that hold something of the person."""
        return traces(self.s3, self.bucket, f"{self.pipeline.prefix}/", MARKERS)

    def kinds(self) -> set[str]:
        """The kinds of the objects that hold something of the person."""
        return {trace.store(f"{self.pipeline.prefix}/") for trace in self.found()}

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

    def files(self, name: str) -> dict[str, bytes]:
        """The files of a table, by their keys."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self.pipeline.prefix}/lake/{name}/"
        )
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return {key: self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def set_back(self, name: str, files: dict[str, bytes]) -> None:
        """Have just these files in a table."""
        for key in self.files(name).keys() - files.keys():
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        for key, body in files.items():
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

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
    # Bad ones, which are not even put aside: one gives a tombstone, the other no row by whose order it could be known.
    spoilt = event("c", 40, after=person())
    spoilt["source"]["sequence"] = "[]"
    lake.land(spoilt)
    assert lake.found() == []
    lake.land(event("u", 40, person(), {**person(), "id": "no number"}))
    assert lake.found() == []
    # A new writer of a table that reads all objects of before again.
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


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False) -> None:
    """Have the process killed when it calls that function, or when that has done what it does."""
    original = getattr(owner, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if after:
            original(*arguments, **options)
        raise Killed

    monkeypatch.setattr(owner, name, killed)


STEPS: list[tuple[Any, str, bool]] = [
    (HudiTable, "erase", True),
    (ErasedStore, "write", False),
    (ErasedStore, "write", True),
    (ReplacedFiles, "delete", True),
    (Quarantine, "store", True),
    (Quarantine, "delete", True),
    (landing_objects, "clear", False),
    (landing_objects, "clear", True),
    (forget, "delete_former", True),
    (Requests, "answer", True),
    (requests, "delete_object", False),
]
"""The calls at which a writer is killed: the owner of the function, its name, and whether the call is done first."""


@pytest.mark.drill
def test_a_writer_that_is_killed_at_any_step_is_followed_by_one_that_ends_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.pipeline.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
    lake.pipeline.land(event("u", 40, person(), {**person(NAMES[1]), "id": "no number"}), b"no json")
    lake.pipeline.land(event("c", 61, after=account(NEIGHBOUR)))
    lake.drain()
    asked = lake.ask()
    for step in range(len(STEPS)):
        lake.start()
        with monkeypatch.context() as patch:
            kill_at(patch, *STEPS[step][:2], after=STEPS[step][2])
            with pytest.raises(Killed):
                drain(lake.steps[0])
        lake.close()
        # What comes between is committed, but for what is forgotten from the first try on.
        late = event("u", 35, person(), person(NAMES[1]))
        lake.pipeline.land(event("c", 900 + step, after=account(100 + step)), late)
        if STEPS[step][0] is HudiTable:
            lake.start()
            with monkeypatch.context() as patch:
                patch.setattr(RequestedWork, "commit_next", lambda _: False)
                drain(lake.steps[0])
            rows = lake.job.writers["accounts"].read().select("id").collect()
            assert PERSON not in {row["id"] for row in rows}, "also before the request is looked at again"
            lake.close()
    lake.start()
    lake.drain()
    assert [answer.state for answer in lake.answers(asked)] == [DONE, DONE]
    assert lake.found() == []
    assert lake.ids() == {OTHER, NEIGHBOUR, *(100 + step for step in range(len(STEPS)))}


def test_a_table_goes_on_after_a_commit_that_fails_in_the_midst_of_forgetting(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
    original = HudiTable._commit

    def fails(self: HudiTable, rows: Any, progress: Any, options: Any) -> Any:
        # Hudi makes it when all files are written and nothing is committed.
        return original(self, rows, progress, {**options, "hoodie.precommit.validators": "no.such.Validator"})

    with monkeypatch.context() as patch:
        patch.setattr(HudiTable, "_commit", fails)
        refused = lake.forget()
    assert [answer.state for answer in refused] == [REFUSED, REFUSED]
    for answer in refused:
        assert "SparkValidatorUtils" in answer.reason
        assert "The row stays away, but not all of its past is gone" in answer.reason
    lake.land(event("c", 20, after=account(NEIGHBOUR)), event("u", 35, person(), person(NAMES[1])))
    assert [answer.state for answer in lake.forget()] == [DONE, DONE]
    assert lake.found() == []
    assert lake.ids() == {OTHER, NEIGHBOUR}


def test_a_writer_does_not_go_on_without_what_its_table_has_forgotten(lake: Lake) -> None:
    lake.pipeline.land(event("c", 10, after=account(OTHER)))
    lake.drain()
    assert [answer.told["rows"] for answer in lake.forget()] == [0, 0]
    lake.pipeline.land(event("c", 20, after=person()))
    lake.drain()
    assert lake.ids() == {OTHER}, "a row that nobody had seen is forgotten too"
    key = f"{lake.pipeline.prefix}/lake/_forgotten/accounts.json"
    kept = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    with pytest.raises(ErasedKeysMissing, match=r"found 0 forgotten keys, expected at least 1\."):
        lake.start()
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=kept)
    lake.start()
    lake.pipeline.land(event("c", 30, after=person()))
    lake.drain()
    assert lake.ids() == {OTHER}


def test_a_table_that_is_set_back_holds_nothing_of_a_forgotten_row_when_its_writer_begins(lake: Lake) -> None:
    lake.pipeline.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
    lake.drain()
    before = {each.table: lake.files(each.table) for each in lake.tables}
    # A floor that is set meanwhile moves the tombstone above the order, and one after it lets it be.
    lake.land(event("t", NOW + 100))
    lake.land(event("t", NOW + 200), event("c", NOW + 201, after=account(OTHER)))
    assert [answer.told["rows"] for answer in lake.forget()] == [1, 1]
    assert lake.ids() == {OTHER}
    assert lake.found() == []
    lake.close()
    for name, files in before.items():
        lake.set_back(name, files)
    lake.start()
    assert lake.ids() == {OTHER}
    assert lake.alive() == [(OTHER, "Ann")]
    lake.drain()
    lake.forget()
    assert lake.found() == [], "its files go when it is asked for again"
    commits = [writer.table.last_commit() for writer in lake.job.writers.values()]
    lake.start()
    assert [writer.table.last_commit() for writer in lake.job.writers.values()] == commits, "it is done once"


def test_a_key_that_is_forgotten_again_stays_so_where_the_table_is_set_back_to_between(lake: Lake) -> None:
    lake.pipeline.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
    lake.drain()
    lake.forget()
    # The person comes back, and goes.
    lake.land(event("c", NOW + 100, after=person()))
    assert PERSON in lake.ids()
    before = {each.table: lake.files(each.table) for each in lake.tables}
    lake.land(event("d", NOW + 200, before=person()))
    lake.forget(until(NOW + 300))
    lake.close()
    for name, files in before.items():
        lake.set_back(name, files)
    lake.start()
    lake.drain()
    assert lake.ids() == {OTHER}


def test_a_history_that_is_begun_later_holds_nothing_of_what_its_table_has_forgotten(lake: Lake) -> None:
    lake.close()
    tables, history = lake.tables, lake.tables[1]
    lake.tables = tables[:1]
    lake.start()
    lake.land(event("c", 10, after=person()), event("c", 11, after=account(OTHER)))
    landed = lake.copies("/landing/")
    id_, _ = ask(lake.requests[0], Forgotten({"id": str(PERSON)}, until()))
    lake.drain()
    status = lake.requests[0].status(id_)
    assert status is not None
    assert status.state == DONE
    lake.restore(landed)
    lake.tables = tables
    lake.start()
    lake.drain()
    assert lake.ids() == {OTHER}
    # It does not need its table's object any more, and notices when its own is lost.
    stores = [ErasedStore(lake.s3, f"{lake.pipeline.lake}/{each.table}", each) for each in tables]
    key = f"{lake.pipeline.prefix}/lake/_forgotten/accounts.json"
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    assert [len(store.read()) for store in stores] == [0, 1]
    lake.s3.delete_object(Bucket=lake.bucket, Key=key.replace("accounts", history.table))
    with pytest.raises(
        ErasedKeysMissing, match=r"_forgotten/accounts_changes\.json: found 0 forgotten keys, expected at least 1"
    ):
        lake.job.writer(history)


def test_the_newest_changes_tell_the_epoch_also_where_it_began_without_a_row_or_a_history_has_expired(
    lake: Lake,
) -> None:
    lake.pipeline.land(event("c", 10, after=account(OTHER)))
    lake.pipeline.land(event("d", 11, before=account(OTHER)))
    lake.drain()
    history = lake.job.writers[lake.tables[1].table]
    note = expired_row(history.contract, dt.datetime(2026, 11, 1, tzinfo=dt.UTC)) + ROW_TAGS
    history.rewrite(few_rows_frame(history.spark, history.contract, [note]))
    assert [answer.state for answer in lake.forget()] == [DONE, DONE]
    lake.pipeline.land_records([Landed(event("t", 5), headers=in_epoch(2))], 0)
    lake.drain()
    assert [answer.state for answer in lake.forget()] == [REFUSED, REFUSED]
    assert [answer.state for answer in lake.forget(until(epoch=2))] == [DONE, DONE]


def test_a_request_of_another_epoch_or_with_another_key_is_refused_and_goes(lake: Lake) -> None:
    lake.pipeline.land(event("c", 10, after=account(OTHER)))
    lake.drain()
    refused = lake.forget(until(epoch=2))
    assert [answer.state for answer in refused] == [REFUSED, REFUSED]
    assert "epoch: found 2, expected 1" in refused[0].reason
    id_, _ = ask(lake.requests[0], Forgotten({"name": NAMES[0]}, until()))
    lake.drain()
    status = lake.requests[0].status(id_)
    assert status is not None
    assert status.reason == "KEY: found a value for name, expected one for id, the key of accounts"
    assert lake.found() == []


def test_a_forgotten_item_comes_back_by_no_record_export_or_replay(
    spark: SparkSession, endpoint: str, aws_api: AwsApi
) -> None:
    accounts = Accounts(spark, aws_api, f"d-{uuid.uuid4().hex[:8]}")
    start = time.time_ns() // 1000 - 600 * 10**6
    gone, renamed = item("marker-771", name=NAMES[0]), item("marker-771", name=NAMES[1])
    without_key = json.loads(change(start, None, item("nobody")))
    del without_key["dynamodb"]["Keys"], without_key["dynamodb"]["NewImage"]["id"]
    spoilt = json.loads(change(start + 2, renamed, {**renamed, "registered": {"S": "2024-02-31"}}))
    del spoilt["dynamodb"]["NewImage"]
    records = [
        change(start, None, gone),
        change(start + 1, gone, renamed),
        json.dumps(spoilt),
        json.dumps(without_key),
    ]
    accounts.start(max_bad_share=1.0)
    accounts.commit([(data, f"{at:056d}") for at, data in enumerate(records)])
    accounts.writer._progress = replace(accounts.writer.progress, since=start)
    old = accounts.export(start + 100 * 10**6, [gone, item("other")])
    assert accounts.load(old).state == DONE
    assert ("marker-771", "2024-01", NAMES[0]) in accounts.alive()
    aside = accounts.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{accounts._prefix}/lake/_quarantine/")["Contents"]
    assert len(aside) == 1
    kept = accounts.s3.get_object(Bucket=BUCKET, Key=aside[0]["Key"])["Body"].read()

    def told() -> list[Trace]:
        return traces(accounts.s3, BUCKET, f"{accounts._prefix}/lake/", ["marker-771", *NAMES])

    assert len(told()) == 3, "in a base file, a log file and in quarantine"
    until_ = order_at_moment(1, time.time_ns() // 1000 + 60 * 10**6)
    id_, _ = ask(accounts.requests, Forgotten({"id": "marker-771"}, until_))
    job = key_value(accounts)
    drain(job.requested.commit_next)
    status = accounts.requests.status(id_)
    assert status is not None
    assert (status.state, status.told["rows"]) == (DONE, 1)
    assert (status.told["quarantine_records"], status.told["quarantine_unreadable"]) == (1, 1)
    assert told() == []

    accounts.start(max_bad_share=1.0)
    accounts.commit([(data, f"{at:056d}") for at, data in enumerate(records[:3], 10)])
    assert told() == []
    accounts.s3.put_object(Bucket=BUCKET, Key=aside[0]["Key"], Body=kept)
    ask_replay(accounts.requests, Choice((aside[0]["Key"].rpartition("/")[2],)))
    accounts.load(accounts.export(start + 200 * 10**6, [gone, item("other", name="Bea")]))
    assert accounts.alive() == [("other", "2024-01", "Bea")]
    later = time.time_ns() // 1000 + 120 * 10**6
    accounts.commit([(change(later, None, item("marker-771", name="Yolanda")), f"{99:056d}")])
    assert accounts.alive() == [("marker-771", "2024-01", "Yolanda"), ("other", "2024-01", "Bea")]

    # A raised epoch reads what the stream still has anew.
    accounts.start(2, max_bad_share=1.0)
    accounts.commit([(data, f"{at:056d}") for at, data in enumerate(records[:2])])
    assert ("marker-771", "2024-01", "Yolanda") in accounts.alive()
    accounts.commit([(change(later, None, item("marker-771", name="Zoe")), f"{9:056d}")])
    assert ("marker-771", "2024-01", "Zoe") in accounts.alive()

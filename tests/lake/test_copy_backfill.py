"""Loading copies of a PostgreSQL table by what the shipped script does for a table, over real Spark, Hudi and an S3
API."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headwater.lake.base.quarantine import Quarantine
from headwater.lake.requests import copy_requests
from headwater.lake.requests.protocol import DONE, REFUSED, Requests, Status
from headwater.lake.sources import table_copy
from headwater.lake.sources.table_copy import TableCopy
from headwater.lake.table.writer import TableWriter
from tests.lake.pipeline import Pipeline, account, event
from tests.lake.test_replay import Killed, drain, killed, relational

AT = 1_000
"""The place in the log whose state the copies are."""
SOURCE = "shop.accounts"


class Copies:
    """Copies of the pipeline's source table, and requests for them to the writer of its lake table, or of another."""

    def __init__(self, pipeline: Pipeline, table: str = "accounts") -> None:
        self._pipeline = pipeline
        self.requests = Requests(pipeline.s3, pipeline.lake, table)
        self._made = 0

    def make(
        self,
        *files: Sequence[Mapping[str, Any]],
        lsn: int = AT,
        source: str = SOURCE,
        epoch: int = 1,
        is_unique: bool = True,
        at: dt.datetime | None = None,
    ) -> TableCopy:
        """A copy with these rows in its files, as of that time, or of now."""
        self._made += 1
        uri = f"{self._pipeline.lake.removesuffix('/lake')}/exports/_backfill/accounts/{self._made:03d}"
        stored = []
        for number, rows in enumerate(files):
            body = gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode())
            name = f"{number:06d}-0000.jsonl.gz"
            stored.append(table_copy.put_file(self._pipeline.s3, uri, name, io.BytesIO(body), len(rows)))
        read_at = round((at or dt.datetime.now(dt.UTC)).timestamp() * 10**6)
        copy = TableCopy(uri, source, epoch, lsn, read_at, is_unique, stored)
        table_copy.complete(self._pipeline.s3, copy)
        return copy

    def load(self, copy: TableCopy, **options: Any) -> Status:
        """Ask for a copy, let a new writer do what there is, and return its answer."""
        id_ = copy_requests.ask(self.requests, copy)
        drain(relational(self._pipeline, **options))
        status = self.requests.status(id_)
        assert status is not None
        return status

    def commits(self) -> int:
        return sum(each["event"] == "commit" for each in self._pipeline.events)


@pytest.fixture
def copies(pipeline: Pipeline) -> Copies:
    return Copies(pipeline)


def names(pipeline: Pipeline) -> dict[int, str]:
    """The names of the rows that live."""
    return {row["id"]: row["name"] for row in pipeline.alive()}


def test_a_table_begins_with_all_rows_of_its_copy_in_one_commit_and_its_changes_wait_for_them(
    pipeline: Pipeline, copies: Copies
) -> None:
    """Changes of before, within and after the moment of the copy; what it does not show was deleted since."""
    pipeline.land(event("c", 900, after=account(1, "early")), event("c", 910, after=account(5, "deleted")))
    pipeline.land(event("u", 990, account(1, "early"), account(1, "copied")), event("d", 991, account(5, "deleted")))
    pipeline.land(event("u", 1010, account(2, "copied"), account(2, "changed")), event("d", 1020, account(3)))
    drain(relational(pipeline, await_backfill=True))
    assert copies.commits() == 0
    copy = copies.make(
        [account(1, "copied"), account(2, "copied"), account(3)], [account(4, "copied", month="2024-02")], []
    )
    status = copies.load(copy, await_backfill=True)
    assert (status.state, status.parts_done, status.records) == (DONE, 3, 4)
    first = next(each for each in pipeline.events if each["event"] == "commit")
    assert first["changes"] == 4
    assert names(pipeline) == {1: "copied", 2: "changed", 4: "copied"}
    (four,) = [row for row in pipeline.stored() if row["id"] == 4]
    assert (four["_op"], four["_position"]) == ("r", f"{copy.id}/000001-0000.jsonl.gz/0")
    assert four["_source_ts"] == copy.time


def test_a_table_with_rows_takes_a_copy_in_parts_and_a_killed_writer_goes_on_behind_the_last(
    pipeline: Pipeline, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.land(event("c", 900, after=account(1, "streamed")), event("c", 1010, after=account(9, "later")))
    drain(relational(pipeline))
    copy = copies.make([account(1, "streamed")], [account(2, "copied")], [account(3, "copied")])
    id_ = copy_requests.ask(copies.requests, copy)
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_done", killed)
        with pytest.raises(Killed):
            drain(relational(pipeline, batch_bytes=1))
    pipeline.land(event("u", 1030, account(2, "copied"), account(2, "changed")))
    drain(relational(pipeline, batch_bytes=1))
    status = copies.requests.status(id_)
    assert status is not None
    assert (status.state, status.parts_done) == (DONE, 3)
    assert [each["changes"] for each in pipeline.events if each["event"] == "commit"] == [2, 1, 1, 1]
    assert names(pipeline) == {1: "streamed", 2: "changed", 3: "copied", 9: "later"}


def test_a_later_copy_ends_what_an_earlier_one_has_and_it_has_not(pipeline: Pipeline, copies: Copies) -> None:
    copies.load(copies.make([account(1, "old"), account(2, "gone"), account(3, "moved")]))
    pipeline.land(event("c", AT + 10, after=account(4, "streamed")))
    copies.load(copies.make([account(1, "new"), account(3, "moved", month="2024-02")], lsn=AT + 500))
    assert names(pipeline) == {1: "new", 3: "moved", 4: "streamed"}
    copies.load(copies.make([account(1, "older"), account(2, "gone")], lsn=AT + 100))
    assert names(pipeline) == {1: "new", 3: "moved", 4: "streamed"}


def test_what_a_later_copy_ends_stays_until_all_of_it_is_there(
    pipeline: Pipeline, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.load(copies.make([account(1, "old"), account(2, "old"), account(3, "gone")]))
    copy_requests.ask(copies.requests, copies.make([account(1, "new")], [account(2, "new")], lsn=AT + 500))
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_done", killed)
        with pytest.raises(Killed):
            drain(relational(pipeline, batch_bytes=1))
    assert names(pipeline) == {1: "new", 2: "old", 3: "gone"}
    drain(relational(pipeline, batch_bytes=1))
    assert names(pipeline) == {1: "new", 2: "new"}


def test_a_row_that_does_not_fit_is_kept_as_a_change_would_be_and_its_record_is_replayed(
    pipeline: Pipeline, copies: Copies
) -> None:
    bad = [{**account(1), "id": None}, {**account(2), "balance": "NaN"}, {**account(3), "payload": "{"}]
    status = copies.load(copies.make([*bad, *map(account, range(10, 400))], epoch=7))
    assert status.state == DONE
    rows = {row["id"]: row for row in pipeline.stored()}
    assert len(rows) == 392
    assert (rows[2]["balance"], rows[2]["_unfit"], json.loads(rows[2]["_rest"])) == (
        None,
        ["balance"],
        {"balance": "NaN"},
    )
    assert rows[3]["_unfit"] == ["lines"]
    assert {row["_order"][:5] for row in rows.values()} == {"00070"}
    stored = Quarantine(pipeline.s3, f"{pipeline.lake}/_quarantine", "accounts")
    (found,) = stored.listed()
    (entry,) = stored.read(found.name) or []
    assert "id" in entry.reason
    assert entry.record["source"].startswith("001/")
    event_ = json.loads(base64.b64decode(entry.record["value"]))
    assert event_["after"] == bad[0]
    assert event_["source"]["lsn"] == AT


def test_of_two_rows_with_one_key_in_a_copy_one_is_kept(pipeline: Pipeline, copies: Copies) -> None:
    """A source without a unique key lets them be."""
    status = copies.load(copies.make([account(1), account(1)], [account(1)], is_unique=False))
    assert status.state == DONE
    assert len(pipeline.stored()) == 1


def test_a_copy_that_is_empty_is_committed_and_ends_what_was_loaded_before(pipeline: Pipeline, copies: Copies) -> None:
    pipeline.land(event("c", AT + 10, after=account(1, "streamed")))
    status = copies.load(copies.make([]), await_backfill=True)
    assert status.state == DONE
    assert names(pipeline) == {1: "streamed"}
    copies.load(copies.make([account(2, "loaded")], lsn=AT + 1))
    copies.load(copies.make([], lsn=AT + 2))
    assert names(pipeline) == {1: "streamed"}


def test_a_copy_is_taken_as_of_its_place_where_tombstones_are_purged(pipeline: Pipeline, copies: Copies) -> None:
    pipeline.land(event("c", 10, after=account(1)), event("d", 20, account(1)))
    drain(relational(pipeline))
    drain(relational(pipeline, tombstone_days=0.0))
    assert pipeline.stored() == []
    assert copies.load(copies.make([account(2, "copied")], [account(3, "copied")])).state == DONE
    assert names(pipeline) == {2: "copied", 3: "copied"}
    assert "younger tombstones of accounts are purged" in copies.load(copies.make([account(1)], lsn=15)).reason


def test_a_copy_of_an_epoch_that_has_ended_is_refused_and_one_that_is_old(pipeline: Pipeline, copies: Copies) -> None:
    copies.load(copies.make([account(1, "new")], epoch=3))
    status = copies.load(copies.make([account(2)], lsn=AT + 1, epoch=2))
    assert "found the epoch 2, expected 3 at least" in status.reason
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(hours=25)
    assert "expected one of the last day" in copies.load(copies.make([account(2)], lsn=AT + 1, at=yesterday)).reason
    assert names(pipeline) == {1: "new"}


def test_what_would_not_give_the_tables_state_is_refused(pipeline: Pipeline, copies: Copies) -> None:
    other = copies.make([account(1)], source="shop.others")
    assert "found rows of shop.others, expected shop.accounts" in copies.load(other).reason
    damaged = copies.make([account(1)], [account(2)])
    bucket, _, key = damaged.files[1].uri.removeprefix("s3://").partition("/")
    pipeline.s3.put_object(Bucket=bucket, Key=key, Body=gzip.compress(b"{}\n"))
    status = copies.load(damaged)
    assert (status.state, "MD5: found" in status.reason) == (REFUSED, True)
    lacking = copies.make([account(1)])
    bucket, _, key = lacking.files[0].uri.removeprefix("s3://").partition("/")
    pipeline.s3.delete_object(Bucket=bucket, Key=key)
    assert "expected every file that the manifest lists" in copies.load(lacking).reason
    assert copies.load(replace(damaged, uri=f"{damaged.uri}x")).state == REFUSED
    assert copies.commits() == 0

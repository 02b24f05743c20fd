"""Loading exports over real Spark, Hudi and an S3 API; every table is read back by hudi-rs."""

from __future__ import annotations

import gzip
import json
import time
import uuid
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.lake.requests.protocol import DONE, REFUSED, RUNNING
from headwater.lake.sources.dynamodb_export import Export
from headwater.lake.table.hudi_table import HudiTable
from rig.local.aws import AwsApi
from tests.lake.accounts import ARN, Accounts, change, item
from tests.lake.pipeline import BUCKET
from tests.lake.test_replay import drain, key_value_options, stream_work

STARTED = 1_769_860_800_000_000
"""When streaming began, in microseconds since 1970."""
SECOND = 10**6
AT = STARTED + 50 * SECOND
"""The time of exports that are too close to the first change to be placed after it."""
LATER = STARTED + 1000 * SECOND
"""The time of exports that tell what the changes before them came to."""


@pytest.fixture
def accounts(spark: SparkSession, endpoint: str, aws_api: AwsApi) -> Accounts:
    """A table with one change streamed, as from ``STARTED``."""
    table = Accounts(spark, aws_api, f"b-{uuid.uuid4().hex[:8]}")
    table.stream(change(STARTED, None, item("first")), since=STARTED)
    return table


FIRST = ("first", "2024-01", "Ann")


def test_what_was_streamed_before_during_or_after_an_export_wins(accounts: Accounts) -> None:
    accounts.stream(
        change(AT - SECOND, item("before", name="old"), item("before", name="streamed")),
        change(AT - SECOND, item("moved", "2023-05-01"), item("moved", "2024-06-01", name="streamed")),
    )
    uri = accounts.export(
        AT,
        [item("before", name="exported"), item("during", name="exported"), item("moved", "2023-05-01")],
        [item("after", name="exported"), item("untouched", name="exported"), item("goes", "2023-05-01")],
    )
    accounts.ask(uri)
    accounts.commit_next()
    accounts.stream(
        change(AT + SECOND, item("during", name="exported"), item("during", name="streamed")),
        change(AT + SECOND, item("after", name="exported"), item("after", name="streamed")),
    )
    accounts.drain()
    accounts.stream(change(AT + 2 * SECOND, item("goes", "2023-05-01"), item("goes", "2024-07-01", name="streamed")))
    assert accounts.alive() == [
        ("after", "2024-01", "streamed"),
        ("before", "2024-01", "streamed"),
        ("during", "2024-01", "streamed"),
        FIRST,
        ("goes", "2024-07", "streamed"),
        ("moved", "2024-06", "streamed"),
        ("untouched", "2024-01", "exported"),
    ]


def test_what_was_deleted_before_during_or_after_an_export_stays_deleted(accounts: Accounts) -> None:
    accounts.stream(change(AT - SECOND, item("early"), None))
    accounts.ask(accounts.export(AT, [item("early"), item("during")], [item("late"), item("stays")]))
    accounts.commit_next()
    accounts.stream(change(AT + SECOND, item("during"), None), change(AT + SECOND, item("late"), None))
    accounts.drain()
    accounts.stream(change(AT + 2 * SECOND, item("stays"), None))
    assert accounts.alive() == [FIRST]
    assert [row["id"] for row in accounts.stored() if row["_deleted"]] == ["during", "early", "late", "stays"]


def test_an_exported_item_is_a_row_of_the_export_s_time_and_place(accounts: Accounts) -> None:
    uri = accounts.export(AT, [{**item("a", balance="12.30"), "nick": {"SS": ["x"]}}])
    status = accounts.load(uri)
    assert (status.state, status.parts, status.parts_done, status.records) == (DONE, 1, 1, 1)
    (row, _) = accounts.stored()
    (file,) = Export.open(accounts.s3, uri).files
    assert row["_op"] == "r"
    assert str(row["balance"]) == "12.30"
    assert row["_source_ts"].timestamp() * SECOND == AT
    assert row["_position"] == f"{uri.rpartition('/')[2]}/{file.name}/0"
    assert json.loads(row["_rest"])["nick"] == {"SS": ["x"]}


def test_a_stopped_job_goes_on_at_the_next_data_file(accounts: Accounts) -> None:
    export_id = accounts.ask(accounts.export(AT, *([item(f"a{number}")] for number in range(4))))
    accounts.commit_next()
    accounts.commit_next()
    assert (accounts.status(export_id).state, accounts.status(export_id).parts_done) == (RUNNING, 2)
    accounts.start()
    accounts.drain()
    assert accounts.commits() == 1 + 4
    assert accounts.status(export_id).state == DONE
    assert len(accounts.alive()) == 1 + 4


def test_a_withdrawn_backfill_stops_and_goes_on_when_asked_for_again(accounts: Accounts) -> None:
    uri = accounts.export(AT, *([item(f"a{number}")] for number in range(3)))
    export_id = accounts.ask(uri)
    accounts.commit_next()
    accounts.requests.delete(f"backfill/{export_id}")
    assert not accounts.commit_next()
    assert len(accounts.alive()) == 1 + 1
    accounts.ask(uri)
    accounts.drain()
    assert accounts.commits() == 1 + 3
    assert len(accounts.alive()) == 1 + 3


def test_a_finished_export_is_answered_but_not_loaded_again(accounts: Accounts) -> None:
    uri = accounts.export(AT, [item("a")], [item("b")])
    assert accounts.load(uri).state == DONE
    first = accounts.status(uri.rpartition("/")[2])
    accounts.start()
    again = accounts.load(uri)
    assert (again.state, again.parts_done, again.records) == (DONE, 2, 2)
    assert again.token != first.token
    assert accounts.commits() == 1 + 2


def test_a_restarted_job_leaves_answered_requests_alone(accounts: Accounts) -> None:
    uri = accounts.export(AT, [item("a")])
    status = accounts.load(uri)
    for entry in accounts.s3.list_objects_v2(Bucket=BUCKET, Prefix=uri.removeprefix(f"s3://{BUCKET}/"))["Contents"]:
        accounts.s3.delete_object(Bucket=BUCKET, Key=entry["Key"])
    accounts.start()
    assert not accounts.commit_next()
    assert accounts.status(uri.rpartition("/")[2]) == status


def test_requests_are_served_in_the_order_of_asking_and_answered_at_once(accounts: Accounts) -> None:
    first = accounts.ask(accounts.export(AT, [item("a", name="first")], [item("b", name="first")]))
    accounts.commit_next()
    time.sleep(1.1)  # S3 tells in seconds when a request was put
    second = accounts.ask(accounts.export(AT + SECOND, [item("b", name="second")]))
    accounts.commit_next()
    assert accounts.status(first).state == DONE
    assert accounts.status(second).state == RUNNING
    accounts.drain()
    # The later export is the whole table of its moment: what the earlier one alone had is gone by then.
    assert accounts.alive() == [("b", "2024-01", "second"), FIRST]


def test_exports_are_each_remembered(accounts: Accounts) -> None:
    uris = [accounts.export(AT + number * SECOND, [item("a")], [item("b")]) for number in range(2)]
    ids = [uri.rpartition("/")[2] for uri in uris]
    for uri in uris:
        assert accounts.load(uri).state == DONE
    commits = accounts.commits()
    accounts.start()
    assert accounts.progress().exports == dict.fromkeys(ids, 2)
    for uri in uris:
        assert accounts.load(uri).state == DONE
    assert accounts.commits() == commits


def test_an_export_that_has_fewer_files_than_are_in_the_table_is_refused(accounts: Accounts) -> None:
    uri = accounts.export(AT, [item("a")], [item("b")], [item("c")])
    accounts.ask(uri)
    accounts.commit_next()
    accounts.commit_next()
    commits = accounts.commits()
    folder = uri.removeprefix(f"s3://{BUCKET}/")
    body = accounts.s3.get_object(Bucket=BUCKET, Key=f"{folder}/manifest-files.json")["Body"].read()
    accounts.s3.put_object(Bucket=BUCKET, Key=f"{folder}/manifest-files.json", Body=body.splitlines()[0])
    summary = json.loads(accounts.s3.get_object(Bucket=BUCKET, Key=f"{folder}/manifest-summary.json")["Body"].read())
    shrunk = json.dumps({**summary, "itemCount": 1}).encode()
    accounts.s3.put_object(Bucket=BUCKET, Key=f"{folder}/manifest-summary.json", Body=shrunk)
    accounts.start()
    status = accounts.load(uri)
    assert status.state == REFUSED
    assert status.reason == (
        f"{uri}: found 1 data files, expected at least 2, because so many are loaded already. Restore the export's "
        "manifest, or load another export."
    )
    assert accounts.commits() == commits


def test_small_data_files_share_a_commit(accounts: Accounts) -> None:
    accounts.start(batch_bytes=10**6)
    status = accounts.load(accounts.export(AT, [item("a")], [], [item("b")]))
    assert (status.parts_done, status.records) == (3, 2)
    assert accounts.commits() == 1 + 1


def test_an_export_without_items_is_done(accounts: Accounts) -> None:
    assert accounts.load(accounts.export(AT, [], [])).state == DONE
    assert accounts.alive() == [FIRST]


def test_an_export_from_before_the_start_of_streaming_is_refused_and_nothing_is_written(accounts: Accounts) -> None:
    status = accounts.load(accounts.export(STARTED - 1000, [item("a")]))
    assert status.state == REFUSED
    assert "found 2026-01-31T11:59:59.999000Z, expected 2026-01-31T12:00:00Z or later" in status.reason
    assert accounts.commits() == 1
    assert accounts.alive() == [FIRST]


def test_an_export_of_another_table_is_refused(accounts: Accounts) -> None:
    status = accounts.load(accounts.export(AT, [item("a")], arn=ARN.replace("accounts", "orders")))
    assert status.state == REFUSED
    assert "found the table 'headwater-test-orders', expected 'headwater-test-accounts'" in status.reason
    assert accounts.commits() == 1


def test_an_export_that_is_gone_is_refused(accounts: Accounts) -> None:
    status = accounts.load(f"s3://{BUCKET}/nowhere/AWSDynamoDB/00000000000001-abcdef01")
    assert status.state == REFUSED
    assert "manifest-summary.json: found no readable object" in status.reason


def test_a_damaged_data_file_is_refused_before_any_of_it_is_written(accounts: Accounts) -> None:
    uri = accounts.export(AT, [item("a")], [item("b")])
    damaged = Export.open(accounts.s3, uri).files[1]
    accounts.s3.put_object(Bucket=BUCKET, Key=damaged.key, Body=gzip.compress(b'{"Item": {}}\n'))
    status = accounts.load(uri)
    assert status.state == REFUSED
    assert f"{damaged.uri}: MD5: found " in status.reason
    assert accounts.commits() == 1 + 1
    assert len(accounts.alive()) == 1 + 1


def test_a_request_that_is_none_is_refused_and_stops_nobody(accounts: Accounts) -> None:
    folder = accounts.lake.removeprefix(f"s3://{BUCKET}/")
    accounts.s3.put_object(Bucket=BUCKET, Key=f"{folder}/_requests/accounts/backfill/00-junk.json", Body=b"[]")
    assert accounts.load(accounts.export(AT, [item("a")])).state == DONE
    assert accounts.status("00-junk").state == REFUSED


def test_an_item_without_a_usable_key_is_quarantined_and_the_rest_is_loaded(accounts: Accounts) -> None:
    uri = accounts.export(AT, [item("a"), {**item("b"), "id": {"N": "1"}}, item("unfit", balance="1.234")])
    status = accounts.load(uri)
    assert (status.state, status.records) == (DONE, 3)
    assert accounts.alive() == [("a", "2024-01", "Ann"), FIRST, ("unfit", "2024-01", "Ann")]
    assert [row["_unfit"] for row in accounts.stored()] == [None, None, ["balance"]]
    (kept,) = quarantined(accounts)
    assert kept["reason"].startswith("id: ")
    assert json.loads(kept["record"]["item"])["Item"]["id"] == {"N": "1"}
    assert kept["record"]["exported_at"] == AT
    assert kept["record"]["position"].endswith(".json.gz/1")


def test_an_export_with_too_many_bad_items_is_refused_and_the_job_goes_on(accounts: Accounts) -> None:
    uri = accounts.export(AT, [{**item("a"), "id": {"N": str(number)}} for number in range(20)])
    status = accounts.load(uri)
    assert status.state == REFUSED
    assert "20 of 20 records cannot be decoded" in status.reason
    accounts.stream(change(AT + SECOND, None, item("later")))
    assert accounts.alive() == [FIRST, ("later", "2024-01", "Ann")]


def test_a_complete_export_ends_what_a_former_epoch_left_behind(accounts: Accounts) -> None:
    accounts.stream(change(STARTED + 1, None, item("ghost")), change(STARTED + 1, None, item("moved", "2023-05-01")))
    accounts.start(epoch=2)
    accounts.stream(change(AT - SECOND, None, item("new")), since=AT - 2 * SECOND)
    accounts.ask(accounts.export(AT, [item("first")], [item("moved", "2024-02-01")]))
    accounts.commit_next()
    assert ("ghost", "2024-01", "Ann") in accounts.alive()
    accounts.drain()
    assert accounts.alive() == [FIRST, ("moved", "2024-02", "Ann"), ("new", "2024-01", "Ann")]


def test_an_export_mends_what_lost_records_left_behind(accounts: Accounts) -> None:
    old, moved = item("changed", name="old"), item("moved", "2023-05-01")
    accounts.stream(*(change(STARTED + 1, None, image) for image in (item("deleted"), old, moved)))
    # The records of a delete, an update, a move and an insert are lost; then the table is exported.
    exported = [item("changed", name="new"), item("moved", "2024-02-01"), item("inserted"), item("first")]
    assert accounts.load(accounts.export(LATER, exported)).state == DONE
    assert accounts.alive() == [
        ("changed", "2024-01", "new"),
        FIRST,
        ("inserted", "2024-01", "Ann"),
        ("moved", "2024-02", "Ann"),
    ]


def test_an_export_of_some_items_mends_these_and_ends_none(accounts: Accounts) -> None:
    accounts.stream(change(STARTED, None, item("spoiled", name="wrong")), change(STARTED, None, item("other")))
    uri = accounts.export(LATER, [item("spoiled", name="right"), item("lost")])
    assert accounts.load(uri, whole="no").state == REFUSED
    assert accounts.load(uri, whole=False).state == DONE
    assert accounts.alive() == [
        FIRST, ("lost", "2024-01", "Ann"), ("other", "2024-01", "Ann"), ("spoiled", "2024-01", "right"),
    ]  # fmt: skip


@pytest.mark.parametrize("ahead", [-5, 0, 5])
def test_an_export_never_wins_over_a_later_change(accounts: Accounts, ahead: int) -> None:
    """The clocks by which changes and exports are timed may differ by seconds."""
    exported = [item("changed", name="exported"), item("deleted"), item("first")]
    after = LATER + ahead * SECOND + 1
    late = (
        change(after, exported[0], item("changed", name="later")),
        change(after, item("deleted"), None),
        change(after, None, item("inserted", name="later")),
    )
    accounts.stream(late[0])
    assert accounts.load(accounts.export(LATER, exported)).state == DONE
    accounts.stream(*late[1:])
    assert accounts.alive() == [("changed", "2024-01", "later"), FIRST, ("inserted", "2024-01", "later")]


def test_a_raised_epoch_begins_exports_anew(accounts: Accounts) -> None:
    uri = accounts.export(LATER, [item("a"), item("first")], [item("b")])
    accounts.ask(uri)
    accounts.commit_next()
    accounts.start(epoch=2)
    assert (accounts.progress().since, accounts.progress().exports) == (0, {})
    # The changes of the gap are nowhere, so that no export from before the new stream will do.
    accounts.stream(change(LATER + 10 * SECOND, None, item("c")), since=LATER + 5 * SECOND)
    assert "when streaming began" in accounts.load(uri).reason
    newer = accounts.export(LATER + 20 * SECOND, [item("a"), item("c")], [item("b")])
    assert accounts.load(newer).state == DONE
    assert [row[0] for row in accounts.alive()] == ["a", "b", "c"]


def test_an_older_export_after_a_newer_one_changes_nothing(accounts: Accounts) -> None:
    accounts.stream(change(AT + SECOND, item("gone"), None))
    newer = accounts.export(AT + 2 * SECOND, [item("a", name="newer")])
    older = accounts.export(AT, [item("a", name="older"), item("gone")])
    assert accounts.load(newer).state == DONE
    assert accounts.load(older).state == DONE
    assert accounts.alive() == [("a", "2024-01", "newer"), FIRST]


def quarantined(accounts: Accounts) -> list[dict[str, Any]]:
    """The records in quarantine."""
    records = []
    prefix = f"{accounts.lake.removeprefix(f's3://{BUCKET}/')}/_quarantine/accounts/"
    for entry in accounts.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
        body = gzip.decompress(accounts.s3.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read())
        records += [json.loads(line) for line in body.splitlines()]
    return records


def test_a_table_whose_first_commit_fails_takes_an_export_of_before_it_began_anew(
    spark: SparkSession, endpoint: str, aws_api: AwsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(spark, aws_api, f"b-{uuid.uuid4().hex[:8]}")
    options = key_value_options(accounts)
    job = accounts.job(options, 1)
    work = stream_work(job, accounts, options)
    uri = accounts.export(time.time_ns() // 1000 + SECOND, [item("exported")])
    id_ = accounts.ask(uri)
    with monkeypatch.context() as patch:
        patch.setattr(HudiTable, "upsert_few", failed)
        with pytest.raises(OSError, match="S3 does not answer"):
            work.requested.commit_next()
    time.sleep(1.1)
    drain(stream_work(job, accounts, options).requested.commit_next)
    assert accounts.status(id_).state == DONE
    assert [row[0] for row in accounts.alive()] == ["exported"]


def failed(*_: object) -> None:
    raise OSError("S3 does not answer")

"""Landing objects as the sink leaves them, listed after a cursor and read line by line."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headwater.lake.base.s3_deletion import delete_all
from headwater.lake.sources.landing import Landing, LandingGap, LandingObject, Waiting, cursor_after
from tests.unit.conftest import BUCKET

MOST = 10**9
_folders = itertools.count()


class Landed:
    """The landing objects of one topic in a prefix of its own."""

    def __init__(self, s3: Any) -> None:
        self.s3 = s3
        self.prefix = f"landing-{next(_folders)}"

    def put(self, partition: int | str, first: int, next_: int | str | None, lines: list[str] | None = None) -> str:
        """Put an object and return its key; ``next_`` is the offset after its last one."""
        key = f"{self.prefix}/t.orders/{partition}/{first:020d}.jsonl.gz"
        metadata = {} if next_ is None else {"next-offset": str(next_)}
        content = "".join(f"{line}\n" for line in lines or [f"{partition}:{first}"])
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=gzip.compress(content.encode()), Metadata=metadata)
        return key

    def landing(self) -> Landing:
        return Landing(self.s3, f"s3://{BUCKET}/{self.prefix}/", "t.orders")

    def after(self, cursor: dict[str, int], most_bytes: int = MOST) -> list[LandingObject]:
        return self.landing().after(cursor, most_bytes)

    def ranges(self, cursor: dict[str, int], most_bytes: int = MOST) -> list[tuple[str, int, int]]:
        return [(landed.source, landed.first, landed.next) for landed in self.after(cursor, most_bytes)]


@pytest.fixture
def landed(s3: Any) -> Landed:
    return Landed(s3)


def test_objects_come_in_the_order_of_partitions_and_offsets(landed: Landed) -> None:
    for partition in (10, 9, 0):
        landed.put(partition, 3, 7)
        landed.put(partition, 0, 3)
    assert landed.ranges({}) == [
        ("t.orders/0", 0, 3),
        ("t.orders/0", 3, 7),
        ("t.orders/9", 0, 3),
        ("t.orders/9", 3, 7),
        ("t.orders/10", 0, 3),
        ("t.orders/10", 3, 7),
    ]


def test_an_object_tells_where_it_is_and_how_large(landed: Landed) -> None:
    key = landed.put(0, 5, 8)
    size = landed.s3.head_object(Bucket=BUCKET, Key=key)["ContentLength"]
    assert landed.after({}) == [LandingObject(BUCKET, key, "t.orders/0", 5, 8, size)]


def test_what_waits_is_counted_from_the_cursor_on(landed: Landed) -> None:
    for first in (0, 4, 9):
        landed.put(0, first, first + 4 if first < 9 else 12)
    landed.put(1, 5, 7)
    waiting = landed.landing().waiting({"t.orders/0": 4, "t.orders/1": 5})
    assert (waiting.objects, waiting.records, waiting.gap) == (3, 10, "")
    assert waiting.since is not None
    assert waiting.size > 0
    assert landed.landing().waiting({"t.orders/0": 12, "t.orders/1": 7}) == Waiting(
        0, 0, 0, None, "", {"t.orders/0": 12, "t.orders/1": 7}
    )
    assert landed.landing().waiting({"t.orders/0": 2, "t.orders/1": 5}).gap == "t.orders/0"
    # A partition that the table has not read yet begins where it does.
    assert landed.landing().waiting({"t.orders/0": 4}).gap == ""


def test_all_objects_are_those_of_the_sink(landed: Landed) -> None:
    keys = [landed.put(partition, first, first + 1) for partition, first in ((0, 0), (0, 1), (10, 5))]
    folder = keys[0].rpartition("/")[0]
    for beside in (f"{folder}/copy.jsonl.gz", f"{folder}x/{0:020d}.jsonl.gz", f"{folder}/{0:020d}.jsonl"):
        landed.s3.put_object(Bucket=BUCKET, Key=beside, Body=b"no gzip")
    assert sorted(key for _, key, _ in landed.landing().all()) == sorted(keys)


def test_what_waits_has_to_be_the_sinks(landed: Landed) -> None:
    landed.put(0, 0, None)
    with pytest.raises(LandingGap, match="next-offset: found None"):
        landed.landing().waiting({})


def test_only_what_is_after_the_cursor_is_listed(landed: Landed) -> None:
    for first in (0, 1, 2):
        landed.put(0, first, first + 1)
    landed.put(1, 0, 1)
    assert landed.ranges({"t.orders/0": 0, "t.orders/1": 1}) == [(f"t.orders/{0}", n, n + 1) for n in (0, 1, 2)]
    assert landed.ranges({"t.orders/0": 1, "t.orders/1": 1}) == [("t.orders/0", 1, 2), ("t.orders/0", 2, 3)]
    assert landed.ranges({"t.orders/0": 3, "t.orders/1": 1}) == []


def test_the_first_object_of_a_partition_may_begin_anywhere(landed: Landed) -> None:
    landed.put(0, 40, 41)
    assert landed.ranges({}) == [("t.orders/0", 40, 41)]


def test_a_gap_after_the_cursor_stops_and_says_what_is_missing_and_what_to_do(landed: Landed) -> None:
    key = landed.put(3, 12, 15)
    with pytest.raises(LandingGap) as stopped:
        landed.after({"t.orders/3": 10})
    assert str(stopped.value) == (
        f"s3://{BUCKET}/{key}: found 12 as first offset, expected 10: landing objects of t.orders/3 are missing. "
        "The table waits, so that no change is lost. Restore them; if they are gone for good, "
        "docs/runbooks/writer.md says how to go on without them."
    )


@pytest.mark.parametrize("cursor", [{}, {"t.orders/0": 0}])
def test_a_gap_within_a_batch_stops_too(landed: Landed, cursor: dict[str, int]) -> None:
    landed.put(0, 0, 2)
    landed.put(0, 3, 4)
    with pytest.raises(LandingGap, match=r"found 3 as first offset, expected 2: landing objects of t\.orders/0"):
        landed.after(cursor)


def test_an_object_that_overlaps_another_stops(landed: Landed) -> None:
    landed.put(0, 0, 5)
    landed.put(0, 3, 8)
    with pytest.raises(LandingGap, match="found 3 as first offset, expected 5"):
        landed.after({})


def test_a_batch_ends_in_each_partition_with_the_object_that_reaches_the_bytes(landed: Landed) -> None:
    for partition in (0, 1):
        for first in (0, 1, 2):
            landed.put(partition, first, first + 1, ["x"])
    (size,) = {entry.size for entry in landed.after({})}
    firsts = [(f"t.orders/{partition}", first, first + 1) for partition in (0, 1) for first in (0, 1, 2)]
    assert landed.ranges({}, most_bytes=2 * size + 1) == firsts
    assert landed.ranges({}, most_bytes=2 * size) == [firsts[at] for at in (0, 1, 3, 4)]
    assert landed.ranges({}, most_bytes=1) == [firsts[0], firsts[3]]


def test_what_the_sink_did_not_write_is_passed_over_or_stops(landed: Landed) -> None:
    landed.put(0, 0, 1)
    for folder in ("backup", "0X"):
        landed.put(folder, 7, 9)
    for name in ("0/notes.txt", "0/00000000000000000000.jsonl"):
        landed.s3.put_object(Bucket=BUCKET, Key=f"{landed.prefix}/t.orders/{name}", Body=b"")
    landed.s3.put_object(Bucket=BUCKET, Key=f"{landed.prefix}/t.orders2/0/{0:020d}.jsonl.gz", Body=b"")
    assert landed.ranges({}) == [("t.orders/0", 0, 1)]
    for metadata in (None, "", "1x"):
        key = landed.put(0, 1, metadata)
        with pytest.raises(LandingGap) as stopped:
            landed.after({})
        assert str(stopped.value) == (
            f"s3://{BUCKET}/{key}: metadata: next-offset: found {metadata or None!r}, expected an offset: the S3 sink "
            "did not write this object. Move it away if it does not belong there; else restore the version that the "
            "sink wrote."
        )


def test_a_file_that_is_no_landing_object_takes_none_of_a_batchs_bytes(landed: Landed) -> None:
    landed.s3.put_object(Bucket=BUCKET, Key=f"{landed.prefix}/t.orders/0/{0:020d}.copy", Body=b"x" * 1000)
    landed.put(0, 0, 1)
    landed.put(0, 1, 2)
    assert landed.ranges({}, most_bytes=900) == [("t.orders/0", 0, 1), ("t.orders/0", 1, 2)]


def test_a_bucket_without_a_prefix_and_a_topic_without_objects(landed: Landed) -> None:
    assert Landing(landed.s3, f"s3://{BUCKET}", "t.none").after({}, MOST) == []
    landed.s3.put_object(Bucket=BUCKET, Key=f"t.root/0/{0:020d}.jsonl.gz", Body=b"", Metadata={"next-offset": "1"})
    (only,) = Landing(landed.s3, f"s3://{BUCKET}", "t.root").after({}, MOST)
    assert (only.key, only.source) == (f"t.root/0/{0:020d}.jsonl.gz", "t.root/0")


class Asked:
    """boto3's client of S3 that counts listings, whose pages have ``page`` keys at most."""

    def __init__(self, s3: Any, page: int = 1000) -> None:
        self.listings = 0
        self._s3 = s3
        self._page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def list_objects_v2(self, **asked: Any) -> Any:
        self.listings += 1
        return self._s3.list_objects_v2(**asked, MaxKeys=self._page)

    def get_paginator(self, operation: str) -> Any:
        self.listings += 1
        return self._s3.get_paginator(operation)


@pytest.mark.parametrize("page", [1, 1000])
def test_the_only_partition_is_looked_at_by_one_listing_until_another_one_comes(landed: Landed, page: int) -> None:
    landed.s3 = asked = Asked(landed.s3, page)
    for first in range(4):
        landed.put(0, first, first + 1)
    assert landed.ranges({"t.orders/0": 4}) == []
    assert asked.listings == 1
    assert landed.ranges({"t.orders/0": 1}) == [("t.orders/0", n, n + 1) for n in (1, 2, 3)]
    assert asked.listings == (2 if page > 1 else 4)
    assert landed.ranges({"t.orders/0": 1}, 1) == [("t.orders/0", 1, 2)]
    # Of another topic, and of a table that is read for the first time.
    assert landed.ranges({"t.other/1": 7, "t.orders/0": 4}) == []
    assert landed.ranges({"t.other/0": 7})[0] == ("t.orders/0", 0, 1)
    landed.put(10, 0, 5)
    assert landed.ranges({"t.orders/0": 4}) == [("t.orders/10", 0, 5)]
    assert landed.ranges({"t.orders/0": 3, "t.orders/10": 5}) == [("t.orders/0", 3, 4)]


def test_the_cursor_after_a_batch_keeps_what_the_batch_does_not_touch(landed: Landed) -> None:
    landed.put(0, 0, 2)
    landed.put(0, 2, 7)
    landed.put(1, 0, 1)
    before = {"t.orders/0": 0, "t.orders/5": 9}
    assert cursor_after(before, landed.after({})) == {"t.orders/0": 7, "t.orders/1": 1, "t.orders/5": 9}
    assert before == {"t.orders/0": 0, "t.orders/5": 9}


# --- Expiry -----------------------------------------------------------------------------------------------------------

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def test_what_is_read_expires_but_for_each_partitions_newest(landed: Landed) -> None:
    for partition in (0, 1):
        for first in (0, 2, 4):
            landed.put(partition, first, first + 2)
    read = {"t.orders/0": 6, "t.orders/1": 2}
    assert landed.landing().expire(read, LATER) == 2 + 1
    kept = {(source, first) for source, first, _ in landed.ranges({})}
    assert kept == {("t.orders/0", 4), ("t.orders/1", 2), ("t.orders/1", 4)}
    assert landed.landing().expire(read, LATER) == 0
    # The sink goes on behind the newest object, and the writer behind its cursor.
    landed.put(0, 6, 8)
    assert landed.ranges(read)[0] == ("t.orders/0", 6, 8)


def test_nothing_expires_that_is_young_or_unread(landed: Landed) -> None:
    for first in (0, 2, 4):
        landed.put(0, first, first + 2)
    assert landed.landing().expire({"t.orders/0": 6}, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)) == 0
    assert landed.landing().expire({"t.orders/0": 1}, LATER) == 0
    assert landed.landing().expire({}, LATER) == 0
    assert len(landed.ranges({})) == 3


def test_a_deletion_that_s3_refuses_in_its_answer_is_an_error(landed: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (0, 2, 4):
        landed.put(0, first, first + 2)
    refused = {"Errors": [{"Key": "k", "Code": "AccessDenied", "Message": "no"}]}
    monkeypatch.setattr(landed.s3, "delete_objects", lambda **_: refused)
    with pytest.raises(ClientError, match=r"AccessDenied.*k: no"):
        landed.landing().expire({"t.orders/0": 6}, LATER)


def test_more_than_a_thousand_objects_are_deleted_by_several_requests(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def delete(**request: Any) -> dict[str, Any]:
        asked.append([entry["Key"] for entry in request["Delete"]["Objects"]])
        return {}

    monkeypatch.setattr(s3, "delete_objects", delete)
    keys = [f"{number}" for number in range(2001)]
    delete_all(s3, BUCKET, keys)
    assert [len(part) for part in asked] == [1000, 1000, 1]
    assert [key for part in asked for key in part] == keys

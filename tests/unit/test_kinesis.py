"""Reading a Kinesis stream across reshards, expired iterators and pages, over an API that answers as Kinesis does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.lake.sources.kinesis import NOTHING_READ, READ_TO_END, KinesisStream, ShardGone
from tests.kinesis_api import ARN, SHARDS_PER_PAGE, Kinesis

MOST = 10**6


def reader(kinesis: Kinesis) -> KinesisStream:
    return KinesisStream(kinesis, ARN)


def once(stream: KinesisStream, cursor: dict[str, int], most: int = MOST) -> tuple[list[str], dict[str, int]]:
    """The texts of one read, and the cursor after it."""
    records, reached = stream.read(cursor, most)
    return [record.data.decode() for record in records], reached


def drained(stream: KinesisStream, cursor: dict[str, int] | None = None) -> tuple[list[str], dict[str, int]]:
    """All texts in the order in which they are read, and the cursor after them."""
    texts: list[str] = []
    reached = cursor or {}
    while True:
        read, reached = once(stream, reached)
        if not read:
            return texts, reached
        texts += read


def test_a_record_tells_its_shard_and_sequence_number_and_moves_the_cursor() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a", "b")
    records, cursor = reader(kinesis).read({}, MOST)
    assert [(record.data, record.shard) for record in records] == [(b"a", "shard-0"), (b"b", "shard-0")]
    assert [record.sequence for record in records] == [str(10**55 + 1), str(10**55 + 2)]
    assert cursor == {"accounts/shard-0": 10**55 + 2}
    assert [request["Limit"] for request in kinesis.asked("get_records")] == [1_000]


def test_a_new_reader_goes_on_after_the_cursor_and_the_same_one_where_it_was() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a", "b")
    first = reader(kinesis)
    texts, cursor = once(first, {})
    assert texts == ["a", "b"]
    kinesis.put("shard-0", "c")
    assert once(reader(kinesis), cursor)[0] == ["c"]
    kinesis.calls.clear()
    assert once(first, cursor)[0] == ["c"]
    assert [name for name, _ in kinesis.calls] == ["get_records"], "neither an iterator nor a listing of its own"


def test_what_was_read_and_not_committed_is_read_again() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    stream = reader(kinesis)
    assert once(stream, {})[0] == ["a"]
    assert once(stream, {})[0] == ["a"]


def test_a_shard_is_read_to_the_streams_end_however_few_records_a_call_gives() -> None:
    kinesis = Kinesis(per_call=2)
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a", "b", "c", "d", "e")
    assert once(reader(kinesis), {})[0] == ["a", "b", "c", "d", "e"]
    assert len(kinesis.asked("get_records")) == 3


def test_a_silent_shard_is_noted_and_read_from_its_beginning_later() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    texts, cursor = once(reader(kinesis), {})
    assert (texts, cursor) == ([], {"accounts/shard-0": NOTHING_READ})
    kinesis.put("shard-0", "a")
    texts, cursor = once(reader(kinesis), cursor)
    assert texts == ["a"]
    assert once(reader(kinesis), cursor) == ([], cursor)


def test_a_shard_of_a_split_waits_until_its_parent_is_read_to_its_end() -> None:
    kinesis = Kinesis(per_call=2)
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a", "b", "c")
    kinesis.open("shard-1", "shard-0")
    kinesis.open("shard-2", "shard-0")
    kinesis.put("shard-1", "d")
    kinesis.put("shard-2", "e")
    stream = reader(kinesis)
    texts, cursor = once(stream, {}, most=1)
    assert (texts, set(cursor)) == (["a", "b"], {"accounts/shard-0"})
    texts, cursor = once(stream, cursor)
    assert texts == ["c", "d", "e"]
    assert cursor["accounts/shard-0"] == READ_TO_END


@pytest.mark.parametrize("slow", ["shard-0", "shard-1"])
def test_a_merged_shard_waits_for_both_of_its_parents(slow: str) -> None:
    kinesis = Kinesis(per_call=2)
    kinesis.open("shard-0")
    kinesis.open("shard-1")
    kinesis.put("shard-0", "a")
    kinesis.put("shard-1", "b")
    kinesis.put(slow, "c", "d")
    kinesis.open("shard-2", "shard-0", "shard-1")
    kinesis.put("shard-2", "e")
    stream = reader(kinesis)
    texts, cursor = once(stream, {}, most=2)
    assert "e" not in texts
    texts += drained(stream, cursor)[0]
    assert sorted(texts) == ["a", "b", "c", "d", "e"]
    assert texts[-1] == "e"


def test_a_shard_that_is_read_to_its_end_is_asked_for_nothing_more() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    kinesis.open("shard-1", "shard-0")
    cursor = drained(reader(kinesis))[1]
    assert cursor == {"accounts/shard-0": READ_TO_END, "accounts/shard-1": NOTHING_READ}
    kinesis.calls.clear()
    once(reader(kinesis), cursor)
    assert {request["ShardId"] for request in kinesis.asked("get_shard_iterator")} == {"shard-1"}


def test_a_shard_whose_parents_are_older_than_the_retention_is_read_and_theirs_leave_the_cursor() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-7", "shard-1", "shard-2")
    kinesis.put("shard-7", "a")
    texts, cursor = once(
        reader(kinesis), {"accounts/shard-1": READ_TO_END, "accounts/shard-2": READ_TO_END, "other/shard-7": 1}
    )
    assert texts == ["a"]
    assert cursor == {"accounts/shard-7": 10**55 + 1}


@pytest.mark.parametrize("last", [5, NOTHING_READ])
def test_a_shard_that_is_gone_before_it_was_read_to_its_end_is_an_error(last: int) -> None:
    kinesis = Kinesis()
    kinesis.open("shard-7", "shard-1")
    kinesis.put("shard-7", "a")
    stream = reader(kinesis)
    with pytest.raises(ShardGone, match=rf"accounts/shard-1: .* after {last or 'its beginning'}.*headwater backfill"):
        stream.read({"accounts/shard-1": last}, MOST)
    assert not kinesis.asked("get_records"), "its children are not due"
    # A raised epoch forgets the cursor.
    assert once(stream, {})[0] == ["a"]


def test_a_shard_that_was_seen_to_hold_no_more_may_go_although_no_commit_says_so() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    stream = reader(kinesis)
    committed = once(stream, {})[1]
    kinesis.open("shard-1", "shard-0")
    assert once(stream, committed)[0] == []  # what holds no record makes no commit
    del kinesis.shards["shard-0"]
    kinesis.put("shard-1", "b")
    assert once(stream, committed)[0] == ["b"]
    with pytest.raises(ShardGone):
        reader(kinesis).read({"accounts/shard-0": committed["accounts/shard-0"]}, MOST)


def test_parents_are_read_first_in_whatever_order_the_shards_are_listed() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-2", "shard-0")
    kinesis.put("shard-2", "b")
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    kinesis.shards["shard-0"].closed = True
    assert once(reader(kinesis), {})[0] == ["a", "b"]


def test_all_pages_of_shards_are_read() -> None:
    kinesis = Kinesis()
    for number in range(2 * SHARDS_PER_PAGE + 1):
        kinesis.open(f"shard-{number}")
        kinesis.put(f"shard-{number}", str(number))
    assert once(reader(kinesis), {})[0] == ["0", "1", "2", "3", "4"]
    assert len(kinesis.asked("list_shards")) == 3


def test_an_expired_iterator_is_replaced_after_the_cursor() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a", "b")
    stream = reader(kinesis)
    cursor = once(stream, {})[1]
    kinesis.put("shard-0", "c")
    kinesis.expire_iterators()
    texts, cursor = once(stream, cursor)
    assert texts == ["c"]
    kinesis.put("shard-0", "d")
    assert once(stream, cursor)[0] == ["d"]


def test_an_iterator_that_expires_before_the_first_record_begins_at_the_start_again() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    stream = reader(kinesis)
    once(stream, {})
    kinesis.put("shard-0", "a")
    kinesis.expire_iterators()
    assert once(stream, {})[0] == ["a"]


def test_shards_of_a_later_reshard_are_read_although_no_commit_knows_their_parent() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    stream = reader(kinesis)
    once(stream, {})
    kinesis.open("shard-1", "shard-0")
    kinesis.open("shard-2", "shard-0")
    assert once(stream, {})[0] == []
    kinesis.put("shard-1", "b")
    kinesis.put("shard-2", "c")
    # The caller keeps the cursor in its commits, and what holds no record makes none.
    assert once(stream, {})[0] == ["b", "c"]


def test_a_read_ends_when_its_bytes_are_reached_in_all_shards_together() -> None:
    kinesis = Kinesis(per_call=1)
    for number, texts in enumerate((("a", "bb", "c"), ("ccc",), ("d",))):
        kinesis.open(f"shard-{number}")
        kinesis.put(f"shard-{number}", *texts)
    stream = reader(kinesis)
    texts_read, cursor = once(stream, {}, most=4)
    assert texts_read == ["a", "ccc", "d"]
    assert once(stream, cursor)[0] == ["bb", "c"]


def test_ranges_begin_at_the_cursor_in_the_shards_that_are_due() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.open("shard-1")
    kinesis.put("shard-0", "a", "b")
    kinesis.open("shard-2", "shard-1")
    stream = reader(kinesis)
    cursor = {"accounts/shard-0": 10**55 + 1}
    ranges, _ = stream.ranges(cursor)
    assert [(part.source, part.after) for part in ranges] == [
        ("accounts/shard-0", 10**55 + 1),
        ("accounts/shard-1", NOTHING_READ),
    ]
    ranges, _ = stream.ranges({**cursor, "accounts/shard-1": READ_TO_END})
    assert [part.shard for part in ranges] == ["shard-0", "shard-2"]


def test_ranges_know_an_end_that_made_no_commit() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.open("shard-1", "shard-0")
    stream = reader(kinesis)
    once(stream, {})
    ranges, cursor = stream.ranges({})
    assert [part.shard for part in ranges] == ["shard-1"]
    assert cursor == {"accounts/shard-0": READ_TO_END}


def test_children_that_a_listing_lacks_are_looked_for_again() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    stream = reader(kinesis)
    _, cursor = once(stream, {})
    kinesis.open("shard-1", "shard-0")
    kinesis.put("shard-1", "b")
    kinesis.list_stale(1)
    assert once(stream, cursor)[0] == []
    assert once(stream, cursor)[0] == ["b"]


def test_a_poll_of_a_reshard_long_past_lists_no_shards() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    kinesis.open("shard-1", "shard-0")
    kinesis.put("shard-1", "b")
    cursor = drained(reader(kinesis))[1]
    del kinesis.shards["shard-0"]
    stream = reader(kinesis)
    once(stream, cursor)
    kinesis.calls.clear()
    for _ in range(3):
        once(stream, cursor)
    assert kinesis.asked("list_shards") == []


def test_records_behind_a_gap_are_read() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    kinesis.leave_gaps(2)
    assert once(reader(kinesis), {})[0] == ["a"]


def test_a_position_of_a_former_stream_of_the_same_name_is_an_error() -> None:
    kinesis = Kinesis()
    kinesis.open("shard-0")
    kinesis.put("shard-0", "a")
    with pytest.raises(ShardGone, match=r"accounts/shard-0: .*created again under the same name.*glue.epoch"):
        reader(kinesis).read({"accounts/shard-0": 7}, MOST)


def test_shards_are_read_side_by_side_and_given_up_at_the_bytes() -> None:
    kinesis = Kinesis()
    for number in range(3):
        kinesis.open(f"shard-{number}")
        kinesis.put(f"shard-{number}", f"{number}" * 10)
    with ThreadPoolExecutor(3) as pool:
        stream = KinesisStream(kinesis, ARN, pool)
        texts, cursor = once(stream, {}, most=5)
        assert texts == ["0" * 10]
        assert set(cursor) == {"accounts/shard-0"}
        assert once(stream, cursor)[0] == ["1" * 10, "2" * 10]

"""What a table's commits carry."""

import time
from dataclasses import replace

import pytest

from headwater.lake.base.progress import Progress


def test_the_start_of_streaming_is_now_where_it_is_not_known() -> None:
    before = time.time_ns() // 1000
    noted = Progress(cursor={"stream/shard": 5}).with_streaming_start()
    assert before <= noted.since <= time.time_ns() // 1000
    assert type(noted.since) is int
    assert noted.cursor == {"stream/shard": 5}


def test_a_known_start_of_streaming_is_kept() -> None:
    known = Progress(since=1)
    assert known.with_streaming_start() == known


def test_progress_goes_through_a_commits_metadata_unchanged() -> None:
    progress = Progress({"t/0": 7}, floor="01", epoch=2, layout="{}", since=3, exports={"e": 4}, order_version=2)
    assert Progress.from_json(progress.to_json()) == progress


def test_progress_from_before_orders_had_versions_has_the_first() -> None:
    old = '{"cursor": {"t/0": 7}, "epoch": 2, "exports": {}, "floor": "", "layout": "{}", "since": 0}'
    assert Progress.from_json(old) == Progress({"t/0": 7}, epoch=2, layout="{}", order_version=1)


def test_progress_of_a_later_release_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"found further, newer, which this release does not know: .* Use that one\."):
        Progress.from_json('{"cursor": {}, "newer": 1, "further": 2}')


def test_one_progress_has_one_text() -> None:
    progress = Progress({"t/1": 7, "t/0": 8}, floor="01", epoch=2, layout="{}", since=3, exports={"f": 4, "e": 5})
    assert progress.to_json() == (
        '{"cursor": {"t/0": 8, "t/1": 7}, "epoch": 2, "exports": {"e": 5, "f": 4}, "floor": "01", "layout": "{}", '
        '"lowest": "", "order_version": 1, "purged": "", "since": 3}'
    )
    assert progress.to_json() == Progress.from_json(progress.to_json()).to_json()


def test_a_new_epoch_forgets_exports_and_since_and_where_the_source_is_a_stream_the_cursor() -> None:
    before = Progress({"t/0": 7}, floor="01", epoch=1, layout="{}", since=3, exports={"e": 4}, purged="02")
    after = Progress({"t/0": 7}, floor="01", epoch=3, layout="{}", order_version=2, purged="02")
    assert before.in_epoch(3, 2, from_beginning=False) == after
    assert before.in_epoch(3, 2, from_beginning=True) == replace(after, cursor={})


def test_a_new_table_has_read_nothing() -> None:
    assert Progress() == Progress({}, "", 1, "", 0, {})

"""What a table's commits carry."""

import time

from headwater.lake.progress import Progress


def test_the_start_of_streaming_is_now_where_it_is_not_known() -> None:
    before = time.time_ns() // 1000
    noted = Progress(cursor={"stream/shard": 5}).with_streaming_start()
    assert before <= noted.since <= time.time_ns() // 1000
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

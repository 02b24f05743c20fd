"""Whether the lake has come as far as a source was, of what the parts between them tell."""

from __future__ import annotations

from typing import Any

from headwater.lake.landing import Waiting
from headwater.operations.positions import REPLICATION_SECONDS, SINK_SECONDS, LandedPosition, StreamedPosition


class Landed:
    """A landing bucket whose objects end at ``ends``."""

    def __init__(self) -> None:
        self.ends = {"orders/0": 10, "orders/1": 5}

    def waiting(self, cursor: dict[str, int]) -> Waiting:
        return Waiting(1, 1, 1, None, "", {**cursor, **self.ends})


def test_a_postgresql_is_reached_when_all_that_was_confirmed_has_landed_and_is_committed() -> None:
    now, confirmed, cursor, landing = 0.0, "false", {"orders/0": 10}, Landed()
    asked = []

    def query(text: str) -> str:
        asked.append(text)
        return confirmed if "pg_replication_slots" in text else "0/AB"

    taken: Any = LandedPosition(query, landing, lambda: cursor, lambda: now)  # type: ignore[arg-type]
    reached = taken()
    assert not reached()
    assert "'0/AB'" in asked[-1]
    confirmed = "true"
    cursor = {"orders/0": 10, "orders/1": 5}
    # What Kafka has may not have landed yet.
    assert not reached()
    now = SINK_SECONDS - 1
    assert not reached()
    landing.ends = {"orders/0": 12}
    now = SINK_SECONDS
    assert not reached()
    cursor = {"orders/0": 11, "orders/1": 5}
    assert not reached()
    # What lands later came later.
    landing.ends = {"orders/0": 99}
    cursor = {"orders/0": 12, "orders/1": 5}
    assert reached()


def test_a_stream_is_reached_when_its_reader_has_come_as_far_and_has_read_on_since() -> None:
    now, ages = 1000.0, {960.0: 0.0}
    reached = StreamedPosition(lambda: ages, lambda: now)()
    until = now + REPLICATION_SECONDS
    for more, expected in (
        ({}, False),
        ({1080.0: 1080.0 - until + 1}, False),
        ({1080.0: 1080.0 - until}, False),
        ({1140.0: 400.0}, True),
    ):
        now += 200.0
        ages |= more
        assert reached() is expected
    # Not asked again at once.
    assert not reached()

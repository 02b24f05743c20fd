"""The same rows to every reader: Hudi 1.1.1 that wrote them, Hudi 0.15.0 that Athena has, and hudi-rs."""

from __future__ import annotations

from tests.lake.pipeline import Pipeline, account, event
from tests.lake.readers import Hudi015, assert_same_to_every_reader


def test_three_readers_see_the_same_rows(pipeline: Pipeline, hudi_015: Hudi015) -> None:
    # Of two changes with one place in the order, the one that is committed later counts: a replayed record wins over
    # the tombstone that it left when it could not be decoded.
    pipeline.land(
        *(event("c", 10 + number, after=account(number)) for number in range(20)), event("d", 40, before=account(20))
    )
    pipeline.drain()
    pipeline.land(
        *(event("u", 100 + number, account(number), account(number, name="Bea")) for number in range(5)),
        event("d", 120, before=account(7)),
        event("u", 130, account(8), account(8, month="2024-02", balance="2.75")),
        event("d", 140, before=account(9)),
    )
    pipeline.drain()
    # An older delete after a newer row must not win, in a log file as little as in a base file.
    pipeline.land(
        event("d", 50, before=account(0)), event("c", 40, after=account(20)), event("c", 140, after=account(9))
    )
    pipeline.drain()
    assert_same_to_every_reader(pipeline, hudi_015)
    rows = pipeline.stored()
    assert len(rows) == 22
    assert rows[0]["name"] == "Bea"
    assert [row["id"] for row in rows if row["_deleted"]] == [7, 8]

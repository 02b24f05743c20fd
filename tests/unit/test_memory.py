"""The memory that the demo and the benchmark report."""

from __future__ import annotations

from headwater.waiting import wait_until
from rig.demo.memory import MemoryWatch


def test_the_peak_of_all_is_of_one_moment_and_not_the_sum_of_the_peaks() -> None:
    moments = iter([{"kafka": 3, "spark": 1}, {"kafka": 1, "spark": 4}])
    with MemoryWatch(lambda: next(moments, {}), 0.01) as memory:
        wait_until("both moments", lambda: memory.peak.get("spark") == 4)
    assert memory.peak == {"kafka": 3, "spark": 4}
    assert memory.peak_of_all == 5

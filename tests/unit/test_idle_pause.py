"""How long a writer waits between two looks."""

import pytest

from headwater.lake.base.idle_pause import FIRST_PAUSE_SECONDS, IdlePause


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        (IdlePause(0.5, 5), [0.5, 1, 2, 4, 5, 5]),
        (IdlePause(0.5, 4), [0.5, 1, 2, 4, 4, 4]),
        (IdlePause(1, 1), [1, 1, 1]),
        (IdlePause(7, 3), [3, 3]),
    ],
)
def test_a_pause_doubles_up_to_the_longest(pause: IdlePause, expected: list[float]) -> None:
    assert [pause.after(looks) for looks in range(1, len(expected) + 1)] == expected


def test_a_pause_after_days_without_work_is_the_longest() -> None:
    assert IdlePause(FIRST_PAUSE_SECONDS, 30).after(10**12) == 30

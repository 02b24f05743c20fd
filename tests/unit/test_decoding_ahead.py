"""Landing objects are decoded before their turn, in their order, of one table at a time."""

from __future__ import annotations

import threading

import pytest

from headwater.lake.sources import decoding_ahead
from headwater.lake.sources.decoding_ahead import DecodingAhead
from headwater.lake.sources.landing import LandingObject
from headwater.waiting import PATIENCE_SECONDS

AHEAD = 2
ORDERS, OTHERS = "orders", "others"


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> DecodingAhead[int]:
    monkeypatch.setattr(decoding_ahead, "_AT_ONCE", AHEAD)
    return DecodingAhead[int]()


def landed(*numbers: int) -> list[LandingObject]:
    return [LandingObject("bucket", f"key-{number}", "topic/0", number, number + 1, 10) for number in numbers]


class Decoder:
    """Decodes an object to its first offset, and notes which it has decoded, and in which thread."""

    def __init__(self) -> None:
        self.of: dict[int, list[str]] = {}
        self.failing: set[int] = set()

    def __call__(self, found: LandingObject) -> int:
        self.of.setdefault(found.first, []).append(threading.current_thread().name)
        if found.first in self.failing:
            raise OSError(found.key)
        return found.first


def test_objects_come_in_their_order_and_the_next_ones_are_decoded_meanwhile(ahead: DecodingAhead[int]) -> None:
    decoder = Decoder()
    assert ahead.take_turn(ORDERS)
    coming = ahead.decoded(landed(*range(6)), decoder)
    assert next(coming) == 0
    ahead._threads.shutdown()
    assert sorted(decoder.of) == [0, 1, 2]
    assert all(name.startswith("decoding") for names in decoder.of.values() for name in names)


def test_several_are_decoded_at_once(ahead: DecodingAhead[int]) -> None:
    both = threading.Barrier(AHEAD, timeout=PATIENCE_SECONDS)

    def decode(found: LandingObject) -> int:
        both.wait()
        return found.first

    assert ahead.take_turn(ORDERS)
    assert list(ahead.decoded(landed(*range(2 * AHEAD)), decode)) == list(range(2 * AHEAD))


def test_each_object_is_decoded_once_also_where_it_is_given_back(ahead: DecodingAhead[int]) -> None:
    decoder, objects, taken = Decoder(), landed(*range(5)), []
    assert ahead.take_turn(ORDERS)
    for found, decoded in zip(objects, ahead.decoded(objects, decoder), strict=False):
        if found.first == 3:
            ahead.give_back(found, decoded)
            break
        taken.append(decoded)
    assert [*taken, *ahead.decoded(objects[3:], decoder)] == [0, 1, 2, 3, 4]
    assert {number: len(names) for number, names in decoder.of.items()} == dict.fromkeys(range(5), 1)


def test_one_table_at_a_time_has_the_turn(ahead: DecodingAhead[int]) -> None:
    assert ahead.take_turn(ORDERS)
    assert ahead.take_turn(ORDERS)
    assert not ahead.take_turn(OTHERS)
    assert ahead.has_turn(ORDERS)
    assert not ahead.has_turn(OTHERS)


def test_who_has_had_the_turn_lets_another_one_have_it_that_has_asked(ahead: DecodingAhead[int]) -> None:
    assert ahead.take_turn(ORDERS)
    ahead.rest(ORDERS)
    assert ahead.take_turn(ORDERS)
    assert not ahead.take_turn(OTHERS)
    ahead.rest(OTHERS)
    assert ahead.has_turn(ORDERS)
    ahead.rest(ORDERS)
    assert not ahead.take_turn(ORDERS)
    assert ahead.take_turn(OTHERS)
    ahead.rest(OTHERS)
    # The first one has asked in vain.
    assert not ahead.take_turn(OTHERS)
    assert ahead.take_turn(ORDERS)


def test_a_turn_that_nobody_takes_comes_back(ahead: DecodingAhead[int]) -> None:
    assert ahead.take_turn(ORDERS)
    assert not ahead.take_turn(OTHERS)
    ahead.rest(ORDERS)
    assert [ahead.take_turn(ORDERS) for _ in range(2)] == [False, True]
    ahead.rest(ORDERS)
    assert ahead.take_turn(ORDERS)


def test_what_failed_is_decoded_again(ahead: DecodingAhead[int]) -> None:
    decoder = Decoder()
    decoder.failing = {0}
    assert ahead.take_turn(ORDERS)
    with pytest.raises(OSError, match="key-0"):
        next(ahead.decoded(landed(0), decoder))
    decoder.failing = set()
    assert next(ahead.decoded(landed(0), decoder)) == 0


@pytest.mark.parametrize("keeps_turn", [True, False])
def test_what_is_forgotten_is_decoded_again_and_keeps_no_memory(ahead: DecodingAhead[int], keeps_turn: bool) -> None:
    drop = ahead.forget if keeps_turn else ahead.rest
    decoder = Decoder()
    assert ahead.take_turn(ORDERS)
    next(ahead.decoded(landed(0, 1), decoder))
    drop(OTHERS)
    assert ahead._ahead
    drop(ORDERS)
    assert not ahead._ahead
    assert ahead.has_turn(ORDERS) == keeps_turn
    assert ahead.take_turn(ORDERS)
    assert next(ahead.decoded(landed(1), decoder)) == 1

"""Landing objects are decoded before their turn, in their order, by one table at a time."""

from __future__ import annotations

import threading

import pytest

from headwater.lake import decoding_ahead
from headwater.lake.decoding_ahead import DecodingAhead
from headwater.lake.landing import LandingObject

AHEAD = 2


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_ahead, "_AT_ONCE", AHEAD)


def landed(number: int) -> LandingObject:
    return LandingObject("bucket", f"key-{number}", "topic/0", number, number + 1, 10)


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


def test_objects_come_in_their_order_and_the_next_ones_are_decoded_meanwhile() -> None:
    decoder = Decoder()
    objects = [landed(number) for number in range(6)]
    ahead = DecodingAhead[int](threading.Lock())
    assert ahead.take_turn()
    coming = ahead.decoded(objects, decoder)
    assert next(coming) == 0
    ahead._threads.shutdown()
    assert sorted(decoder.of) == [0, 1, 2]
    assert all(name.startswith("decoding") for names in decoder.of.values() for name in names)


def test_each_object_is_decoded_once_also_where_it_is_given_back() -> None:
    decoder = Decoder()
    objects = [landed(number) for number in range(5)]
    ahead = DecodingAhead[int](threading.Lock())
    ahead.take_turn()
    taken = []
    for found, decoded in zip(objects, ahead.decoded(objects, decoder), strict=False):
        if found.first == 3:
            ahead.give_back(found, decoded)
            break
        taken.append(decoded)
    assert [*taken, *ahead.decoded(objects[3:], decoder)] == [0, 1, 2, 3, 4]
    assert {number: len(names) for number, names in decoder.of.items()} == dict.fromkeys(range(5), 1)


def test_without_its_turn_a_table_decodes_what_it_is_asked_for() -> None:
    turn = threading.Lock()
    first, second = DecodingAhead[int](turn), DecodingAhead[int](turn)
    decoder = Decoder()
    assert first.take_turn()
    assert first.take_turn()
    assert not second.take_turn()
    coming = second.decoded([landed(0), landed(1)], decoder)
    assert next(coming) == 0
    second.give_back(landed(0), 0)
    assert decoder.of == {0: [threading.current_thread().name]}
    assert next(iter(second.decoded([landed(0)], decoder))) == 0
    assert len(decoder.of[0]) == 2
    first.rest()
    assert second.take_turn()


def test_what_failed_is_decoded_again() -> None:
    decoder = Decoder()
    decoder.failing = {0}
    ahead = DecodingAhead[int](threading.Lock())
    ahead.take_turn()
    with pytest.raises(OSError, match="key-0"):
        next(ahead.decoded([landed(0)], decoder))
    decoder.failing = set()
    assert next(ahead.decoded([landed(0)], decoder)) == 0


def test_what_is_forgotten_is_decoded_again_and_keeps_no_memory() -> None:
    decoder = Decoder()
    ahead = DecodingAhead[int](threading.Lock())
    ahead.take_turn()
    next(ahead.decoded([landed(0), landed(1)], decoder))
    ahead.rest()
    assert not ahead._ahead
    ahead.take_turn()
    assert next(ahead.decoded([landed(1)], decoder)) == 1

"""The comparison that never ends, with a source and a lake made by hand, in which changes are on their way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.commands import endless_comparison, verify
from headwater.commands.endless_comparison import EndlessComparison, Kept
from headwater.commands.postgresql import CredentialsRefused
from headwater.contract.reading import from_document
from headwater.errors import UserError
from headwater.lake.base import metrics
from headwater.operations import watched
from headwater.operations.watched import Watched
from headwater.verify import NotCompared
from headwater.verify import watch as watch_module
from headwater.verify.bunches import Bunch, Found, Pace
from headwater.verify.lake_reader import CompactionOpen
from headwater.verify.postgresql_source import PostgresqlTable
from headwater.verify.watch import Difference, TableWatch
from headwater.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.conftest import BUCKET

CONTRACT = from_document(
    {
        "table": "things",
        "description": "For tests.",
        "source": {"database": "postgresql", "table": "northwind.things"},
        "key": ["id"],
        "partition_by": [],
        "buckets": 1,
        "columns": [
            {"name": "id", "type": "int", "source_type": "integer"},
            {"name": "value", "type": "string", "source_type": "text"},
        ],
    },
    "things.yaml",
)
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("value", pa.string()),
        ("_deleted", pa.bool_()),
        ("_order", pa.string()),
        ("_unfit", pa.list_(pa.string())),
    ]
)


class Source(PostgresqlTable):
    """The rows that the source has now, two in a chunk. It rests for a second after each chunk."""

    def __init__(self, world: World) -> None:
        super().__init__(CONTRACT, None, None, pace=world.pace)  # type: ignore[arg-type]  # nothing is read
        self._world = world

    def bunches(self, rows: int, after: Any | None = None) -> Iterator[Bunch]:
        ids = [id_ for id_ in sorted(self._world.source) if after is None or id_ > int(after[0])]
        for start in range(0, len(ids), 2):
            yield from self.rows_at([(str(id_),) for id_ in ids[start : start + 2]])
            self.pace.rest(1)

    def rows_at(self, asked: Sequence[Any]) -> Iterator[Bunch]:
        self._world.asked.append(len(asked))
        found = {}
        for key in asked:
            if int(key[0]) in self._world.source:
                row = self.row((key[0], self._world.source[int(key[0])]))
                found[(row[0],)] = Found(row, key)
        yield found


@dataclass
class World:
    """A source, and a lake behind it."""

    source: dict[int, str] = field(default_factory=dict)
    lake: list[tuple[int, str | None, bool, str, list[str]]] = field(default_factory=list)
    on_its_way: list[tuple[int, str | None]] = field(default_factory=list)
    """The changes that the lake has yet to get."""
    meanwhile: Callable[[], None] = lambda: None
    """Runs whenever the comparison waits."""
    now: float = 0.0
    changes: int = 0
    asked: list[int] = field(default_factory=list)
    reads_of_the_lake: int = 0

    def __post_init__(self) -> None:
        self.pace = Pace(lambda: self.now)

    def change(self, id_: int, value: str | None) -> None:
        """Change a row of the source, or delete it; the lake gets it later."""
        if value is None:
            self.source.pop(id_, None)
        else:
            self.source[id_] = value
        self.on_its_way.append((id_, value))

    def arrive(self, count: int | None = None) -> None:
        """Bring the lake as far as the source, or some changes nearer to it."""
        arrived = self.on_its_way[:count]
        self.on_its_way = [] if count is None else self.on_its_way[count:]
        for id_, value in arrived:
            self.changes += 1
            self.lake = [row for row in self.lake if row[0] != id_]
            self.lake.append((id_, value, value is None, f"{self.changes:08d}", []))

    def batches(self) -> list[pa.RecordBatch]:
        self.reads_of_the_lake += 1
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in self.lake]
        batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, SCHEMA).to_batches(2)
        return batches

    def position(self) -> Callable[[], bool]:
        behind = self.changes + len(self.on_its_way)
        return lambda: self.changes >= behind

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def watch(self) -> Watching:
        return Watching(self)

    def table(
        self, source: Callable[[], Source] | None = None, lake: Callable[[], list[pa.RecordBatch]] | None = None
    ) -> TableWatch:
        """A table's comparison by the clock of this machine."""
        return TableWatch(source or (lambda: Source(self)), lake or self.batches, self.position)


class Watching(TableWatch):
    """A table's comparison whose next steps a test asks for."""

    def __init__(self, world: World) -> None:
        def clock() -> float:
            return world.now

        super().__init__(lambda: Source(world), world.batches, world.position, Pace(clock), clock, clock)
        self._world = world
        self._steps: dict[bool, Iterator[float]] = {}

    def settle(self) -> list[str]:
        """Go on with a trial as far as that is possible now. Returns the kinds of the differences that it found."""
        before = dict(self.differences)
        for again in (False, True):
            try:
                next(self._steps.setdefault(again, self.trials(again=again)))
            except BaseException:
                del self._steps[again]
                raise
        return [each.kind for key, each in self.differences.items() if before.get(key) != each]

    def look(self) -> None:
        """A round, without trials."""
        for seconds in self.round():
            self._world.wait(seconds)

    def settled(self, seconds: int = 120) -> dict[int, str]:
        """Go on until nothing is suspected; the kinds of the differences by their ids."""
        for _ in range(seconds):
            self.settle()
            if self.is_settled:
                break
            self._world.wait(1)
        return self.kinds_by_id()

    def whole_round(self) -> dict[int, str]:
        """A round, and trials beside it, until nothing is suspected."""
        for seconds in self.round():
            self._world.wait(seconds)
            self.settle()
        return self.settled()

    def kinds_by_id(self) -> dict[int, str]:
        return {key[0]: difference.kind for key, difference in self.differences.items()}


@pytest.fixture
def world() -> World:
    world = World()
    for id_ in range(5):
        world.change(id_, f"v{id_}")
    world.arrive()
    return world


def test_equal_tables_have_no_differences(world: World) -> None:
    watch = world.watch()
    assert watch.whole_round() == {}
    assert (watch.source_rows, watch.lake_rows, watch.unsettled) == (5, 5, 0)


def test_what_is_on_its_way_is_waited_for_and_no_difference(world: World) -> None:
    world.change(1, "new")
    world.change(2, None)
    world.change(9, "added")
    watch = world.watch()
    for seconds in watch.round():
        world.wait(seconds)
        watch.settle()
    assert watch.settled(3) == {}
    assert not watch.is_settled
    world.now += 100
    assert watch.behind_seconds >= 100
    world.arrive()
    assert watch.settled() == {}
    assert watch.behind_seconds == 0


def test_what_was_lost_is_a_difference_that_is_named_once(world: World) -> None:
    world.source[1] = "lost"
    del world.source[2]
    world.source[9] = "lost, too"
    watch = world.watch()
    assert watch.whole_round() == {1: "different", 2: "extra", 9: "missing"}
    (different,) = [each for each in watch.differences.values() if each.kind == "different"]
    assert (different.row, different.asked) == ("id = 1", ("1",))
    assert different.columns == {"value": ("lost", "v1")}
    assert watch.whole_round() == {1: "different", 2: "extra", 9: "missing"}
    watch.look()
    world.wait(60)
    assert (watch.settle(), watch.is_settled, len(watch.differences)) == ([], True, 3)


def test_what_is_equal_again_is_forgotten_before_the_next_round_however_much_else_is_suspected(world: World) -> None:
    world.source[1] = "lost"
    del world.source[2]
    watch = world.watch()
    assert len(watch.whole_round()) == 2
    world.change(1, "found")
    world.change(2, None)
    world.arrive()
    world.change(3, "on its way")
    watch.look()
    world.wait(60)
    for _ in range(3):
        watch.settle()
        world.wait(1)
    world.arrive()
    watch.settle()
    assert watch.differences == {}


def test_a_row_that_changes_whenever_it_is_tried_is_not_told(world: World) -> None:
    def change() -> None:
        # The lake is never as the source was when it was read: one change behind, where two have come.
        for part in "ab":
            world.change(1, f"{part} at {world.now}")
        world.arrive(len(world.on_its_way) - 1)

    change()
    world.meanwhile = change
    watch = world.watch()
    assert watch.whole_round() == {}
    assert watch.settled(200) == {}
    assert (watch.is_settled, watch.unsettled) == (True, 1)


def test_a_row_that_is_lost_between_two_changes_is_not_told_while_one_is_on_its_way(world: World) -> None:
    world.source[1] = "lost"  # no change tells of it
    world.change(1, "and changed since")
    watch = world.watch()
    watch.look()
    watch.settle()
    world.arrive()
    assert watch.settled() == {}


def test_an_empty_source_has_nothing_and_the_lakes_rows_are_too_many(world: World) -> None:
    world.source.clear()
    assert world.watch().whole_round() == dict.fromkeys(range(5), "extra")


def test_a_lake_that_was_never_written_lacks_all_rows(world: World) -> None:
    world.lake.clear()
    assert world.watch().whole_round() == dict.fromkeys(range(5), "missing")


def test_a_second_row_of_a_key_is_too_many(world: World) -> None:
    world.lake.append((1, "v1", False, "00000099", []))
    assert world.watch().whole_round() == {1: "extra"}


def test_a_tombstone_is_no_row(world: World) -> None:
    world.change(1, None)
    world.arrive()
    world.source[1] = "lost"
    assert world.watch().whole_round() == {1: "missing"}


def test_a_value_that_does_not_fit_makes_no_difference_and_others_beside_it_do(world: World) -> None:
    world.lake = [
        (id_, None if id_ < 2 else value, deleted, order, ["value"] if id_ == 1 else [])
        for id_, value, deleted, order, _ in world.lake
    ]
    assert world.watch().whole_round() == {0: "different"}


def test_an_error_of_the_lake_loses_no_suspect(world: World) -> None:
    world.source[1] = "lost"
    watch = world.watch()
    watch.look()
    rows, world.lake = world.lake, [("one", None, False, "", [])]  # type: ignore[list-item]
    with pytest.raises(pa.ArrowException):
        watch.settled()
    world.lake = rows
    assert watch.settled() == {1: "different"}


def test_a_round_that_breaks_off_goes_on_where_it_was_unless_it_fails_there_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del world.source[1]
    world.source[2] = "lost"
    watch = world.watch()
    failures = 0
    real = Source.rows_at

    def rows_at(self: Source, asked: Sequence[Any]) -> Iterator[Bunch]:
        nonlocal failures
        if failures and ("3",) in asked:
            failures -= 1
            raise UserError("PostgreSQL does not answer")
        return real(self, asked)

    monkeypatch.setattr(Source, "rows_at", rows_at)

    def asked() -> list[int]:
        world.asked.clear()
        with suppress(UserError):
            watch.look()
        return list(world.asked)

    failures = 1
    assert asked() == [2]
    assert asked() == [2]
    assert watch.source_rows == 4
    assert watch.settled() == {1: "extra", 2: "different"}
    failures = 2
    assert [asked(), asked(), asked()] == [[2], [], [2, 2]]
    assert (watch.source_rows, watch.settled()) == (4, {1: "extra", 2: "different"})


def test_keys_of_the_same_hash_are_told_apart(world: World) -> None:
    assert hash((-1,)) == hash((-2,))
    for id_ in (-1, -2):
        world.change(id_, "beside")
    world.arrive()
    del world.source[-2]
    assert world.watch().whole_round() == {-2: "extra"}


def test_a_row_with_a_value_that_does_not_fit_is_tried_again_only_where_it_has_changed(world: World) -> None:
    world.lake[1] = (1, None, False, "00000077", ["value"])
    watch = world.watch()
    assert watch.whole_round() == {}
    watch.look()
    assert watch.is_settled
    world.change(1, "fits")
    world.arrive()
    assert watch.whole_round() == {}
    world.source[1] = "lost"
    assert watch.whole_round() == {1: "different"}


def many(world: World, count: int, value: str) -> None:
    for id_ in range(100, 100 + count):
        world.change(id_, value)
    world.arrive()


def many_lost(world: World) -> Watching:
    """The comparison of a hundred rows whose changes were lost."""
    many(world, 100, "first")
    for id_ in range(100, 200):
        world.source[id_] = "lost"
    return world.watch()


@pytest.fixture
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are tried at once, and few suspected."""
    monkeypatch.setattr(watch_module, "_TRIED_AT_ONCE", 10)
    monkeypatch.setattr(watch_module, "_MOST_SUSPECTS", 20)


def test_what_is_lost_is_found_however_much_differs_already(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_TRIED_AT_ONCE", 10)
    monkeypatch.setattr(watch_module, "_AGAIN_SECONDS", 5)
    watch = many_lost(world)
    assert len(watch.whole_round()) == 100
    world.source[1] = "lost, too"
    assert watch.whole_round()[1] == "different"
    # All that differs is tried again in its turn, also behind what stays so.
    for id_ in range(150, 200):
        world.change(id_, "mended")
    world.arrive()
    for _ in range(300):
        world.wait(1)
        watch.settle()
    assert set(watch.kinds_by_id()) == {1, *range(100, 150)}


def test_what_differs_is_tried_for_ever_and_keeps_nobody_waiting(world: World) -> None:
    world.source[1] = "lost"
    watch = world.watch()
    assert watch.whole_round() == {1: "different"}
    world.wait(60)
    world.change(2, "on its way")
    for _ in range(3):
        watch.settle()
        assert watch.is_settled
    # Its row changes whenever it is tried.
    for number in range(90):
        world.lake = [row for row in world.lake if row[0] != 1] + [(1, "wrong", False, f"9{number:07d}", [])]
        world.arrive()
        watch.settle()
        world.wait(1)
    assert (watch.kinds_by_id(), watch.unsettled) == ({1: "different"}, 0)


@pytest.mark.usefixtures("_little_room")
def test_who_has_too_many_suspects_waits_with_the_round_and_tells_all(world: World) -> None:
    watch = many_lost(world)
    assert len(watch.whole_round()) == 100
    assert watch.unsettled == 0


@pytest.mark.usefixtures("_little_room")
def test_a_look_that_waits_for_trials_does_not_suspect_again_what_they_found_equal(world: World) -> None:
    many(world, 60, "first")
    watch = world.watch()
    for seconds in watch.round():
        # All rows change behind the reading, and more come.
        if world.now == 31:
            many(world, 60, "second")
            for id_ in range(-60, -1):
                world.change(id_, "added")
            world.arrive()
        world.wait(seconds)
        watch.settle()
        assert world.now < 1_000
    assert watch.settled() == {}


def test_what_is_lost_is_named_as_soon_beside_what_differs_already(world: World) -> None:
    def named_after(watch: Watching) -> float:
        began = world.now
        watch.look()
        while ("named" not in {each.columns["value"][0] for each in watch.differences.values()}) and world.now < 9_999:
            watch.settle()
            world.wait(1)
        return world.now - began

    real = world.position

    def position() -> Callable[[], bool]:
        reached, known_at = real(), world.now + 100
        return lambda: world.now >= known_at and reached()

    world.position = position  # type: ignore[method-assign]
    world.source[1] = "named"
    alone = named_after(world.watch())
    world.source[1] = "differs"
    watch = world.watch()
    assert watch.whole_round() == {1: "different"}
    for _ in range(50):
        watch.settle()
        world.wait(1)
    world.source[2] = "named"
    assert named_after(watch) <= alone + 15


def test_what_is_suspected_again_and_again_leaves_a_table_known_once_it_was_tried(world: World) -> None:
    world.change(1, "on its way")
    watch = world.watch()
    assert not watch.has_tried_first
    watch.look()
    assert not watch.has_tried_first
    world.arrive()
    for number in range(5):
        world.change(1, f"again {number}")
        for _ in range(5):
            watch.settle()
            world.wait(1)
        watch.look()
        world.arrive()
    assert not watch.is_settled
    assert watch.has_tried_first


def test_what_is_behind_is_told_no_more_where_nothing_is_tried(world: World) -> None:
    world.source[1] = "lost"
    real = world.position
    world.position = lambda: lambda: False  # type: ignore[method-assign]
    watch = world.watch()
    watch.look()
    assert watch.settled(12_000) == {}
    world.position = real  # type: ignore[method-assign]
    world.source[1] = "v1"
    watch.look()
    watch.settle()
    assert watch.behind_seconds == 0


@pytest.mark.usefixtures("_little_room")
def test_of_very_many_differences_the_rest_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MOST_DIFFERENCES", 30)
    watch = many_lost(world)
    found = len(watch.whole_round())
    assert 30 <= found <= 60
    assert found + watch.unsettled == 100


def test_a_position_that_is_never_reached_is_given_up_and_taken_anew(world: World) -> None:
    world.source[1] = "lost"
    positions = []

    def position() -> Callable[[], bool]:
        positions.append(world.now)
        # The first was of an epoch that is over.
        return lambda: len(positions) > 1

    world.position = position  # type: ignore[method-assign]
    watch = world.watch()
    watch.look()
    for _ in range(20):
        watch.settle()
        world.wait(1)
    assert (watch.kinds_by_id(), watch.is_settled, watch.behind_seconds) == ({}, False, 0.0)
    world.wait(100)
    assert watch.behind_seconds > 100
    assert watch.settled(1200) == {1: "different"}
    assert (len(positions), watch.behind_seconds) == (2, 0.0)


def test_who_never_gets_on_is_counted_at_last(world: World) -> None:
    world.source[1] = "lost"
    world.position = lambda: lambda: False  # type: ignore[method-assign]
    watch = world.watch()
    watch.look()
    assert watch.settled(12_000) == {}
    assert (watch.is_settled, watch.unsettled) == (True, 1)


def test_a_source_that_rests_for_long_has_the_lake_read_seldom(world: World) -> None:
    many(world, 600, "first")
    watch = world.watch()
    world.reads_of_the_lake = 0
    watch.look()
    # 303 bunches, after each of which it rests for a second.
    assert world.reads_of_the_lake == 6
    assert watch.source_rows == 605


def test_nothing_is_read_of_a_source_while_it_rests(world: World) -> None:
    world.source[1] = "lost"
    watch = world.watch()
    watch.look()
    world.pace.rest(50)
    world.asked.clear()
    for _ in range(40):
        watch.settle()
        world.now += 1
    assert world.asked == []
    assert watch.settled() == {1: "different"}
    assert world.asked == [1]


def test_a_compaction_is_waited_for_beside_other_work(world: World) -> None:
    world.source[1] = "lost"
    watch = world.watch()
    real, open_until = world.batches, 40.0

    def batches() -> list[pa.RecordBatch]:
        if world.now < open_until:
            raise CompactionOpen("it is under way")
        return real()

    world.batches = batches  # type: ignore[method-assign]
    watch = world.watch()
    watch.look()
    assert world.now == open_until
    open_until += 20
    assert watch.settled() == {1: "different"}
    open_until += 1_000
    with pytest.raises(CompactionOpen):
        watch.look()
    assert 300 <= world.now - 60 < 320


class Sent:
    """CloudWatch, with the differences that were sent to it, and the tables whose comparison said that it runs."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.running: list[str] = []

    def put_metric_data(self, **request: Any) -> None:
        data = request["MetricData"]
        self.values += [each["Value"] for each in data if each["MetricName"] == metrics.DIFFERENCES]
        runs = [each["Dimensions"] for each in data if each["MetricName"] == metrics.COMPARISONS]
        self.running += [next(each["Value"] for each in of if each["Name"] == metrics.TABLE) for of in runs]


@dataclass
class Comparing:
    """The comparison of the world's one table, its metrics for CloudWatch, and its stored record."""

    world: World
    s3: Any
    lake: str
    sent: Sent = field(default_factory=Sent)
    repaired: list[list[str]] = field(default_factory=list)

    def comparison(
        self, watch: TableWatch | None = None, *, repairs: bool = False, at_once: int = 1_000
    ) -> EndlessComparison:
        def repair(_: str, found: Sequence[Difference], may_be_whole: bool) -> bool:
            time.sleep(0.2)
            self.repaired.append([each.row for each in found])
            return may_be_whole

        kept = Kept(self.s3, self.lake, self.sent, "headwater_dev")
        comparison = EndlessComparison(0, kept, repair if repairs else None)
        comparison.add("things", watch or self.world.table(), at_once)
        return comparison

    def reached_late(self) -> list[Watched | None]:
        """Have the lake come as far only after a few polls. Returns the stored record at each poll."""
        seen: list[Watched | None] = []

        def reached() -> bool:
            seen.append(watched.read(self.s3, self.lake, "things"))
            if len(seen) < 5:
                return False
            self.world.arrive()
            return True

        self.world.position = lambda: reached  # type: ignore[method-assign]
        return seen

    def kept(self) -> Watched:
        known = watched.read(self.s3, self.lake, "things")
        assert known is not None
        return known


@pytest.fixture
def comparing(world: World, s3: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Comparing:
    """A comparison that waits for little."""
    for module in (watch_module, endless_comparison):
        monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(endless_comparison, "_AFTER_ERROR_SECONDS", 0)
    world.pace.rest = lambda seconds: None  # type: ignore[method-assign]
    return Comparing(world, s3, f"s3://{BUCKET}/{request.node.name}")


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_not_known_yet_is_not_told_to_be_equal(
    comparing: Comparing, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr(endless_comparison, "_TOLD_SECONDS", 0)
    comparing.world.source[1] = "lost"
    if not lost:
        comparing.world.on_its_way.append((1, "lost"))
    seen = comparing.reached_late()
    assert comparing.comparison().run(once=True) is not lost
    assert seen[-1] is not None
    assert all(known is None or known.round_at is None for known in seen)
    assert set(comparing.sent.values) == {float(lost)}
    known = comparing.kept()
    assert (known.differences, known.ended, known.round_at is None) == (int(lost), True, False)


def test_a_comparison_says_that_it_runs_whatever_it_waits_for(
    comparing: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless_comparison, "_TOLD_SECONDS", 0.01)
    comparing.comparison().run(once=True)
    assert comparing.sent.running == [], "who compares once is not missed afterwards"

    def slow() -> Source:
        wait_until("six signs of life", lambda: len(comparing.sent.running) >= 6, poll=0.01)
        raise KeyboardInterrupt

    comparison = comparing.comparison(comparing.world.table(slow))
    comparison.add("others", World().table())
    comparison.run(once=False)
    assert comparing.sent.running[:6] == ["things", "others"] * 3


def test_a_comparison_that_hangs_for_longer_than_anything_may_take_says_nothing(
    comparing: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless_comparison, "_TOLD_SECONDS", 0.01)
    monkeypatch.setattr(endless_comparison, "_LONGEST_STEP_SECONDS", 0)

    def hanging() -> Source:
        time.sleep(0.2)
        raise KeyboardInterrupt

    comparing.comparison(comparing.world.table(hanging)).run(once=False)
    assert comparing.sent.running == []


def test_a_source_that_cannot_be_read_is_told_and_tells_nothing_of_its_rows(comparing: Comparing) -> None:
    def gone() -> Source:
        raise UserError("PostgreSQL does not answer")

    comparison = comparing.comparison(comparing.world.table(gone))
    assert not comparison.run(once=True)
    known = comparing.kept()
    assert (known.error, known.round_at, comparing.sent.values) == ("PostgreSQL does not answer", None, [])
    assert comparison.failures == {"things": "PostgreSQL does not answer"}


@pytest.mark.parametrize("once", [True, False])
def test_one_round_that_could_not_compare_a_table_is_refused(monkeypatch: pytest.MonkeyPatch, once: bool) -> None:
    class Compared:
        def __init__(self, *_: Any) -> None:
            self.failures = {"things": "PostgreSQL does not answer"}

        def add(self, *_: Any) -> None:
            pass

        def run(self, *, once: bool) -> bool:
            return False

    place: Any = SimpleNamespace(uri="s3://lake/tables", kept=lambda: None, position=lambda *_: None)
    postgresql: Any = SimpleNamespace(value=None)
    monkeypatch.setattr(verify, "EndlessComparison", Compared)

    def read(contract: Any) -> Any:
        raise AssertionError

    with (
        pytest.raises(NotCompared, match="2 of 2 tables could not be compared: others, things")
        if once
        else nullcontext()
    ):
        assert not verify._watch([CONTRACT], {"others": "gone"}, place, postgresql, read, {}, every=1, once=once)


def test_an_error_that_is_for_no_person_is_kept_without_its_words(
    comparing: Comparing, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Source:
        raise ValueError("bob@example.com\x1b[2J")

    comparison = comparing.comparison(comparing.world.table(broken))
    assert not comparison.run(once=True)
    assert comparing.kept().error == "ValueError"
    said = capsys.readouterr().out
    assert "ValueError in line " in said
    assert "bob@example.com" not in said


def test_credentials_that_are_refused_end_the_comparison(comparing: Comparing) -> None:
    def refused() -> Source:
        raise CredentialsRefused("the password is not right any more")

    comparison = comparing.comparison(comparing.world.table(refused))
    with pytest.raises(CredentialsRefused):
        comparison.run(once=False)
    assert not comparing.kept().ended


def test_a_table_whose_source_rests_keeps_no_other_waiting(comparing: Comparing) -> None:
    slow = World(source={1: "a"})
    slow.pace.rest(10_000)

    def lake() -> list[pa.RecordBatch]:
        if comparing.world.reads_of_the_lake == 3:
            raise KeyboardInterrupt
        return comparing.world.batches()

    comparison = comparing.comparison(comparing.world.table(lake=lake))
    comparison.add("slow", slow.table())
    assert not comparison.run(once=False)
    assert slow.asked == []
    known = comparing.kept()
    assert (known.source_rows, known.lake_rows, known.round_at is not None) == (5, 5, True)


def test_what_an_earlier_run_has_known_is_kept_until_this_one_knows(comparing: Comparing) -> None:
    before = Watched("things", 5.0, round_at=4.0, source_rows=9, lake_rows=8, missing=1, since=3.0)
    watched.write(comparing.s3, comparing.lake, before)
    seen: list[Watched] = []

    def stop() -> Source:
        seen.append(comparing.kept())
        if len(seen) > 1:
            raise KeyboardInterrupt
        raise UserError("not yet")

    comparison = comparing.comparison(comparing.world.table(stop))
    assert not comparison.run(once=False)
    known = comparing.kept()
    assert (known.missing, known.round_at, known.since, known.error) == (1, 4.0, 3.0, "not yet")
    assert known.ended


def test_what_sigterm_ends_is_to_be_started_again_and_says_nothing_of_rows(comparing: Comparing) -> None:
    cancelled = []

    def stopped() -> Source:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except (KeyboardInterrupt, SystemExit):
            # For these psycopg cancels the statement that runs.
            cancelled.append(True)
            raise
        raise UserError("not yet")

    comparison = comparing.comparison(comparing.world.table(stopped))
    assert comparison.run(once=False)
    assert cancelled == [True]
    assert not comparing.kept().ended


@pytest.mark.parametrize("broken", ["position", "source"])
def test_an_error_of_one_part_is_told_until_that_part_gets_on(
    comparing: Comparing, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(endless_comparison, "_TOLD_SECONDS", 0)
    world, failing, seen, tried = comparing.world, True, list[tuple[str, float | None]](), 0
    world.source[1] = "lost"
    real = world.position

    def position() -> Callable[[], bool]:
        if failing:
            raise UserError("CloudWatch refuses")
        return real()

    def source() -> Source:
        nonlocal tried
        tried += 1
        raise UserError("PostgreSQL is away")

    def lake() -> list[pa.RecordBatch]:
        # Rounds go on meanwhile, and each tells what is kept.
        nonlocal failing
        known = watched.read(comparing.s3, comparing.lake, "things")
        seen.append((known.error, known.error_since) if known else ("", None))
        failing = failing and len(seen) < 8
        if len(seen) > 16:
            raise KeyboardInterrupt
        return world.batches()

    world.position = position  # type: ignore[method-assign]
    comparison = comparing.comparison(world.table(source if broken == "source" else None, lake))
    if broken == "source":
        # Three times are enough for one round.
        assert not comparison.run(once=True)
        assert comparing.kept().error == "PostgreSQL is away"
        assert (seen, tried) == ([], 3)
        return
    assert not comparison.run(once=False)
    told = [error for error in seen[4:8] if error[0]]
    # Rounds that are complete say nothing of trials.
    assert {error for error, _ in told} == {"CloudWatch refuses"}
    assert len(told) > 1
    assert len({since for _, since in told}) == 1
    assert seen[-1] == ("", None)
    assert comparing.kept().differences == 1


def test_a_text_that_cannot_be_written_ends_nothing(comparing: Comparing, capsys: pytest.CaptureFixture[str]) -> None:
    comparing.world.source[1] = "half \ud800"
    assert not comparing.comparison().run(once=True)
    assert "source half ? | lake v1" in capsys.readouterr().out
    assert comparing.kept().differences == 1


def test_one_round_in_which_rows_could_not_be_told_is_not_taken_for_equal(comparing: Comparing) -> None:
    watch = comparing.world.table()
    comparison = comparing.comparison(watch)
    real = watch.round

    def round_() -> Iterator[float]:
        yield from real()
        watch.unsettled = 1

    watch.round = round_  # type: ignore[method-assign]
    assert not comparison.run(once=True)


def test_a_repair_is_bounded_takes_all_in_turn_and_reads_a_whole_table_seldom(comparing: Comparing) -> None:
    lost = {(id_,): Difference("missing", {"id": str(id_)}, {}, (str(id_),), 0.0) for id_ in range(150)}
    extra = {("x",): Difference("extra", {"id": "x"}, {}, ("x",), 0.0)}
    going_on, rows, whole = threading.Event(), [], []

    def repair(_: str, found: Sequence[Difference], may_be_whole: bool) -> bool:
        assert going_on.wait(PATIENCE_SECONDS)
        rows.append([each.key["id"] for each in found])
        whole.append(may_be_whole and any(each.kind == "extra" for each in found))
        return whole[-1]

    repairs = endless_comparison._Repairs(repair)

    def done() -> None:
        wait_until("the repair", lambda: repairs.are_done, poll=0.01)

    # What is under way is not asked for again, nor anything beside it.
    repairs.ask("things", lost, 100)
    repairs.ask("things", lost, 100)
    assert not repairs.are_done
    assert not repairs.have_asked("things", lost)
    going_on.set()
    done()
    for _ in range(3):
        repairs.ask("things", lost, 100)
        done()
    assert [len(each) for each in rows] == [100, 50]
    assert {id_ for each in rows for id_ in each} == {str(id_) for id_ in range(150)}
    assert repairs.have_asked("things", lost)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(endless_comparison, "_AGAIN_SECONDS", 0.0)
        for _ in range(2):
            repairs.ask("things", extra, 100)
            done()
    assert whole[2:] == [True, False]
    # What was mended and differs anew is asked for at once.
    repairs.forget("things", lost)
    repairs.ask("things", lost, 100)
    done()
    assert len(rows) == 5


def test_one_round_that_repairs_waits_for_what_it_has_asked(comparing: Comparing) -> None:
    comparing.world.source[1] = "lost"
    # All is told after the round.
    comparing.reached_late()
    assert not comparing.comparison(repairs=True).run(once=True)
    assert comparing.repaired == [["id = 1"]]


def test_one_round_that_repairs_some_rows_at_a_time_asks_for_all(
    comparing: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first repair is over before the next one is asked for.
    monkeypatch.setattr(endless_comparison, "_POLL_SECONDS", 0.5)
    comparing.world.source |= {1: "lost", 2: "lost"}
    comparison = comparing.comparison(repairs=True, at_once=1)
    assert not comparison.run(once=True)
    assert comparing.repaired == [["id = 1"], ["id = 2"]]


def test_a_row_that_was_mended_and_is_lost_anew_is_repaired_at_once(comparing: Comparing) -> None:
    world = comparing.world
    world.source[1] = "lost"
    repaired: list[str] = []

    def repair(_: str, found: Sequence[Difference], may_be_whole: bool) -> bool:
        repaired.append(found[0].columns["value"][0])
        world.change(1, "mended")
        world.arrive()
        return False

    def lake() -> list[pa.RecordBatch]:
        if len(repaired) == 2 or world.reads_of_the_lake > 500:
            raise KeyboardInterrupt
        if comparison.equal() and world.source[1] == "mended":
            world.source[1] = "lost anew"
        return world.batches()

    class Telling(EndlessComparison):
        def equal(self) -> bool:
            """Whether the comparison has reported the table as equal again."""
            return not self._tables[0].told

    comparison = Telling(0, Kept(comparing.s3, comparing.lake), repair)
    comparison.add("things", world.table(lake=lake))
    comparison.run(once=False)
    assert repaired == ["lost", "lost anew"]


def test_a_repair_that_fails_is_told(comparing: Comparing) -> None:
    def repair(name: str, found: Sequence[Difference], may_be_whole: bool) -> bool:
        raise UserError("no right to capture.signal")

    comparing.world.source[1] = "lost"
    comparison = EndlessComparison(0, Kept(comparing.s3, comparing.lake), repair)
    comparison.add("things", comparing.world.table())
    assert not comparison.run(once=True)
    assert comparing.kept().error == "not repaired: no right to capture.signal"


@settings(deadline=None)
@given(st.data())
def test_no_difference_is_told_that_is_none_and_none_is_missed(data: st.DataObject) -> None:
    """Changes at any moments, arriving at any moments: the comparison reports all lost changes, and nothing else."""
    world = World()
    ids = st.integers(0, 6)
    for id_ in range(5):
        world.change(id_, "first")
    world.arrive()
    lost = data.draw(st.sets(ids, max_size=3))
    for id_ in lost:
        if data.draw(st.booleans()):
            world.source[id_] = "lost"
        else:
            world.source.pop(id_, None)
    busy = sorted(set(range(7)) - lost)

    def change() -> None:
        for _ in range(data.draw(st.integers(0, 3))):
            if busy:
                id_ = data.draw(st.sampled_from(busy))
                world.change(id_, data.draw(st.sampled_from([None, "a", "b", f"at {world.now}"])))
        world.arrive(data.draw(st.integers(0, len(world.on_its_way))))

    world.meanwhile = change
    watch = world.watch()
    for seconds in watch.round():
        world.wait(seconds)
        watch.settle()
        assert set(watch.kinds_by_id()) <= lost
    for _ in range(5):
        world.wait(1)
        watch.settle()
        assert set(watch.kinds_by_id()) <= lost
    world.meanwhile = lambda: None
    world.arrive()
    stored = {id_: value for id_, value, deleted, *_ in world.lake if not deleted}
    expected = {id_ for id_ in lost if world.source.get(id_) != stored.get(id_)}
    assert set(watch.settled()) == expected

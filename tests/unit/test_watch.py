"""The comparison that never ends, with a source and a lake made by hand, in which changes are on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands import endless_comparison
from headwater.commands.endless_comparison import EndlessComparison, Kept
from headwater.contract.reading import from_document
from headwater.errors import UserError
from headwater.operations import watched
from headwater.verify.bunches import Bunch, Found
from headwater.verify.postgresql_source import PostgresqlTable
from headwater.verify.watch import TableWatch
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
    """The rows that the source has now."""

    def __init__(self, world: World) -> None:
        super().__init__(CONTRACT, None, None)  # type: ignore[arg-type]  # nothing is read
        self._world = world

    def bunches(self, rows: int, pause: Callable[[float], None]) -> Iterator[Bunch]:
        ids = sorted(self._world.source)
        for start in range(0, len(ids), 2):
            yield self.rows_at([(str(id_),) for id_ in ids[start : start + 2]])
            pause(1)

    def rows_at(self, asked: Sequence[Any]) -> Bunch:
        found = {}
        for key in asked:
            if int(key[0]) in self._world.source:
                row = self.row((key[0], self._world.source[int(key[0])]))
                found[(row[0],)] = Found(row, key)
        return found


@dataclass
class World:
    """A source, and a lake behind it. ``on_its_way`` are the changes that the lake has yet to get; ``meanwhile`` runs
    whenever the comparison waits."""

    source: dict[int, str] = field(default_factory=dict)
    lake: list[tuple[int, str | None, bool, str, list[str]]] = field(default_factory=list)
    on_its_way: list[tuple[int, str | None]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    now: float = 0.0
    changes: int = 0

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
        rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in self.lake]
        batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, SCHEMA).to_batches(2)
        return batches

    def position(self) -> Callable[[], bool]:
        behind = self.changes + len(self.on_its_way)
        return lambda: self.changes >= behind

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def watch(self) -> TableWatch:
        return TableWatch(lambda: Source(self), self.batches, self.position, self.wait, lambda: self.now)


def settled(world: World, watch: TableWatch, rounds: int = 60) -> dict[int, str]:
    """Go on until nothing is suspected; the kinds of the differences by their ids."""
    for _ in range(rounds):
        watch.settle()
        if watch.is_settled:
            break
        world.wait(1)
    return {key[0]: difference.kind for key, difference in watch.differences.items()}


def whole_round(world: World, watch: TableWatch) -> dict[int, str]:
    for _ in watch.round():
        watch.settle()
    return settled(world, watch)


@pytest.fixture
def world() -> World:
    world = World()
    for id_ in range(5):
        world.change(id_, f"v{id_}")
    world.arrive()
    return world


def test_equal_tables_have_no_differences(world: World) -> None:
    watch = world.watch()
    assert whole_round(world, watch) == {}
    assert (watch.source_rows, watch.lake_rows, watch.unsettled) == (5, 5, 0)


def test_what_is_on_its_way_is_waited_for_and_no_difference(world: World) -> None:
    world.change(1, "new")
    world.change(2, None)
    world.change(9, "added")
    watch = world.watch()
    for _ in watch.round():
        watch.settle()
    assert not watch.is_settled
    assert watch.differences == {}
    world.now += 100
    assert watch.behind_seconds >= 100
    world.arrive()
    assert settled(world, watch) == {}
    assert watch.behind_seconds == 0


def test_what_was_lost_is_a_difference_that_is_named_once(world: World) -> None:
    world.source[1] = "lost"
    del world.source[2]
    world.source[9] = "lost, too"
    watch = world.watch()
    assert whole_round(world, watch) == {1: "different", 2: "extra", 9: "missing"}
    (different,) = [each for each in watch.differences.values() if each.kind == "different"]
    assert (different.row, different.asked) == ("id = 1", ("1",))
    assert different.columns == {"value": ("lost", "v1")}
    assert whole_round(world, watch) == {1: "different", 2: "extra", 9: "missing"}
    for _ in watch.round():
        assert watch.settle() == []
    world.wait(60)
    assert (watch.is_settled, watch.settle()) == (True, [])


def test_what_is_equal_again_is_forgotten_before_the_next_round_however_much_else_is_suspected(world: World) -> None:
    world.source[1] = "lost"
    del world.source[2]
    watch = world.watch()
    assert len(whole_round(world, watch)) == 2
    world.change(1, "found")
    world.change(2, None)
    world.arrive()
    world.change(3, "on its way")
    for _ in watch.round():
        pass
    world.now += 60
    watch.settle()
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
    assert whole_round(world, watch) == {}
    assert settled(world, watch, 200) == {}
    assert (watch.is_settled, watch.unsettled) == (True, 1)


def test_a_row_that_is_lost_between_two_changes_is_not_told_while_one_is_on_its_way(world: World) -> None:
    world.source[1] = "lost"  # no change tells of it
    world.change(1, "and changed since")
    watch = world.watch()
    for _ in watch.round():
        watch.settle()
    world.arrive()
    assert settled(world, watch) == {}


def test_an_empty_source_has_nothing_and_the_lakes_rows_are_too_many(world: World) -> None:
    world.source.clear()
    assert whole_round(world, world.watch()) == dict.fromkeys(range(5), "extra")


def test_a_lake_that_was_never_written_lacks_all_rows(world: World) -> None:
    world.lake.clear()
    assert whole_round(world, world.watch()) == dict.fromkeys(range(5), "missing")


def test_a_second_row_of_a_key_is_too_many(world: World) -> None:
    world.lake.append((1, "v1", False, "00000099", []))
    assert whole_round(world, world.watch()) == {1: "extra"}


def test_a_tombstone_is_no_row(world: World) -> None:
    world.change(1, None)
    world.arrive()
    world.source[1] = "lost"
    assert whole_round(world, world.watch()) == {1: "missing"}


def test_a_value_that_does_not_fit_makes_no_difference_and_others_beside_it_do(world: World) -> None:
    world.lake = [
        (id_, None if id_ < 2 else value, deleted, order, ["value"] if id_ == 1 else [])
        for id_, value, deleted, order, _ in world.lake
    ]
    assert whole_round(world, world.watch()) == {0: "different"}


def test_an_error_of_the_lake_loses_no_suspect(world: World) -> None:
    world.source[1] = "lost"
    watch = world.watch()
    for _ in watch.round():
        pass
    rows, world.lake = world.lake, [("one", None, False, "", [])]  # type: ignore[list-item]
    with pytest.raises(pa.ArrowException):
        watch.settle()
    world.lake = rows
    assert settled(world, watch) == {1: "different"}


class Sent:
    """CloudWatch, with what was sent to it."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def put_metric_data(self, **request: Any) -> None:
        self.values += [datum["Value"] for datum in request["MetricData"]]


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_not_known_yet_is_not_told_to_be_equal(world: World, s3: Any, lost: bool) -> None:
    if lost:
        world.source[1] = "lost"
    sent, lake = Sent(), f"s3://{BUCKET}/endless-{lost}"
    comparison = EndlessComparison(0, Kept(s3, lake, sent, "headwater_dev"), None)
    comparison.add("things", world.watch())
    seen = []

    def meanwhile() -> None:
        comparison.rest(0)
        known = watched.read(s3, lake, "things")
        seen.append(known.round_at if known else None)

    world.meanwhile = meanwhile
    assert comparison.run(once=True) is not lost
    assert seen
    assert set(seen) == {None}
    assert set(sent.values) == {float(lost)}
    known = watched.read(s3, lake, "things")
    assert known is not None
    assert (known.differences, known.ended, known.round_at is None) == (int(lost), True, False)


def test_a_source_that_cannot_be_read_is_told_and_tells_nothing_of_its_rows(
    world: World, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless_comparison, "_AFTER_ERROR_SECONDS", 0)

    def gone() -> Source:
        raise UserError("PostgreSQL does not answer")

    sent, lake = Sent(), f"s3://{BUCKET}/endless-gone"
    comparison = EndlessComparison(0, Kept(s3, lake, sent, "headwater_dev"), None)
    comparison.add("things", TableWatch(gone, world.batches, world.position))
    assert not comparison.run(once=True)
    known = watched.read(s3, lake, "things")
    assert known is not None
    assert (known.error, known.round_at, sent.values) == ("PostgreSQL does not answer", None, [])


@given(st.data())
def test_no_difference_is_told_that_is_none_and_none_is_missed(data: st.DataObject) -> None:
    """Changes at any moments, arriving at any moments: what is told is what was lost, and nothing else."""
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
    for _ in watch.round():
        watch.settle()
        told = {key[0] for key in watch.differences}
        assert told <= lost
    for _ in range(5):
        world.wait(1)
        watch.settle()
        assert {key[0] for key in watch.differences} <= lost
    world.meanwhile = lambda: None
    world.arrive()
    stored = {id_: value for id_, value, deleted, *_ in world.lake if not deleted}
    expected = {id_ for id_ in lost if world.source.get(id_) != stored.get(id_)}
    assert set(settled(world, watch)) == expected

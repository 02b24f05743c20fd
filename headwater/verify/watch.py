"""Compare a source's table with its lake table for ever, while all writes go on.

The source is read in bunches, each at a moment of its own, and the lake soon after. What differs then may only be on
its way, so that it is a suspect: its row is read again in the source, and in the lake once that has all that the source
had by then. A difference is what differs still, where the lake's row has not changed since before the source was read:
then no change of it can be on its way. Where the lake's row has changed meanwhile, the suspect is tried again.
"""

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headwater.verify.bunches import Bunch, BunchedTable, Found, Pace
from headwater.verify.compare import (
    differing_columns,
    digest,
    key_taker,
    lake_rows,
    spelled_columns,
    spelled_key,
    unfit_columns,
)
from headwater.verify.forms import Row
from headwater.verify.lake_reader import CompactionOpen

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
BUNCH_ROWS = 20_000
"""How many rows one statement, or a page, of the source gives at most."""
MOST_DIFFERENCES = 10_000
"""As many rows are named; who has more that differ needs no names."""
_LOOK_ROWS = 200_000
_LOOK_SECONDS = 60.0
# Either ends a look at the source, after which the lake is read: the longer it takes, the more changes meanwhile.
_SHARE_OF_LAKE = 0.25
# Of the time of all tables, reading the lake for looks takes as much at most; for trials up to a half of a table's.
_COMPACTION_SECONDS = 300.0
_TRIED_AT_ONCE = 2_000
_TRIES = 10
_MOST_SUSPECTS = 10_000
_AGAIN_SECONDS = 15.0
_BEHIND_SECONDS = 60.0
_GIVEN_UP_SECONDS = 900.0
_POLL_SECONDS = 1.0
_MOST_POLL_SECONDS = 10.0

_Version = tuple[str, ...]
"""What tells whether the lake's rows of a key have changed: their orders, those of tombstones among them."""

Reached = Callable[[], bool]
"""Whether the lake has all that the source had at a moment."""

_Kept = tuple[Row, frozenset[str]]
"""A row of the lake's, and its columns whose values do not fit."""

Kept = TypeVar("Kept")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Difference:
    """A row that differs: ``missing`` in the lake, ``extra`` there, or ``different``. ``key`` and ``columns``, with the
    source's and the lake's values, are text, and ``asked`` is by what the source is asked for the row. ``since`` is
    when it was found, in epoch seconds."""

    kind: str
    key: Mapping[str, str]
    columns: Mapping[str, tuple[str, str]]
    asked: Any
    since: float

    @property
    def row(self) -> str:
        """The row's key in a line."""
        return ", ".join(f"{name} = {value}" for name, value in self.key.items())


@dataclass(slots=True)
class _Stored(Generic[Kept]):
    """What is kept of the lake's live rows of a key, and the orders of all."""

    rows: list[Kept] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)

    @property
    def version(self) -> _Version:
        return tuple(sorted(self.orders))


@dataclass(frozen=True)
class _Suspect:
    """A key to be tried: by what the source is asked for it, and the version that the lake's rows had before."""

    asked: Any
    version: _Version
    tries: int = 0


@dataclass
class _Look:
    """Rows of the source by their key, as hashes, until they are compared with the lake's, and since when;
    ``suspected`` are the keys that were found by it already."""

    began: float
    rows: dict[Row, tuple[bytes, Any]] = field(default_factory=dict)
    suspected: set[Row] = field(default_factory=set)


@dataclass
class _Round:
    """How far a round has come: hashes of the keys that it has ``seen``, what was looked at last, and what asks for the
    last row; ``failed_after`` is where it failed before."""

    look: _Look
    seen: set[int] = field(default_factory=set)
    after: Any = None
    failed_after: Any = None


class TableWatch:
    """Compares one table. ``table`` gives the source's, ``lake`` the rows of the lake's as they are now, tombstones
    included, and ``position`` a test of whether the lake has all that the source has now. What it does are steps: an
    iterator gives the seconds to wait before it is asked for the next one. Tables share the ``pace`` of reading the
    lake. ``clock`` gives seconds that only grow, and ``now`` epoch seconds."""

    def __init__(
        self,
        table: Callable[[], BunchedTable],
        lake: Callable[[], Iterable[pa.RecordBatch]],
        position: Callable[[], Reached],
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._lake = lake
        self._position = position
        self._pace = pace or Pace(clock)
        self._clock = clock
        self._now = now
        self._suspects: dict[Row, _Suspect] = {}
        self._tried: dict[Row, _Suspect] = {}
        self._again: dict[Row, tuple[float, _Version]] = {}
        # When each difference was tried last, the oldest first, and the version that the lake's rows had.
        self._equal: dict[Row, tuple[bytes, _Version]] = {}
        # Rows with values that do not fit, which are equal beside them: the source's hash and the lake's version.
        self._broken_off: _Round | None = None
        self._behind_since: dict[bool, float] = {}
        self._lake_seconds = 0.0
        self._untried: set[Row] | None = None
        # Of what the first round has suspected what was in no trial yet.
        self.trials_done = 0
        """How many trials have come to an end."""
        self.differences: dict[Row, Difference] = {}
        """What differs, by its key."""
        self.source_rows = 0
        self.lake_rows = 0
        """How many rows the last whole round has seen."""
        self.unsettled = 0
        """How many rows, since the last round began, changed whenever they were tried, or could not be tried."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is suspected but what is known to differ."""
        return not self._suspected

    @property
    def has_tried_first(self) -> bool:
        """Whether a round was complete, and all that was suspected by then was tried once."""
        return self._untried is not None and not self._untried

    @property
    def _suspected(self) -> Set[Row]:
        return (self._suspects.keys() | self._tried.keys()) - self.differences.keys()

    @property
    def behind_seconds(self) -> float:
        """For how long the lake has not come as far as the source was; 0 where that is as it may be."""
        now = self._clock()
        waited = now - min(self._behind_since.values(), default=now)
        return waited if waited > _BEHIND_SECONDS else 0.0

    def kinds(self) -> Counter[str]:
        """How many rows differ, by kind."""
        return Counter(difference.kind for difference in self.differences.values())

    # --- All rows ---------------------------------------------------------------------------------------------------

    def round(self) -> Iterator[float]:
        """Compare all rows once, in steps. Raises UserError; the next round goes on behind what this one has read, or
        begins anew where that fails there, too."""
        round_, self._broken_off = self._broken_off, None
        if round_ is None:
            round_ = _Round(_Look(self._clock()))
            self.unsettled = 0
        try:
            yield from self._all_bunches(round_)
        except Exception:
            if round_.after is not None and round_.after != round_.failed_after:
                round_.failed_after = round_.after
                self._broken_off = round_
            raise

    def _all_bunches(self, round_: _Round) -> Iterator[float]:
        table = self._table()
        bunches = table.bunches(BUNCH_ROWS, round_.after)
        while True:
            yield from _rested(table)
            bunch = next(bunches, None)
            if bunch is None:
                break
            for key, found in bunch.items():
                round_.look.rows[key] = digest(found.row), found.asked
                round_.seen.add(_key_hash(key))
                round_.after = found.asked
            lasted = self._clock() - round_.look.began
            if len(round_.look.rows) >= _LOOK_ROWS or (lasted >= _LOOK_SECONDS and not self._pace.wait):
                yield from self._compared(table, round_.look)
                round_.look = _Look(self._clock())
        yield from self._compared(table, round_.look, round_.seen)

    def _compared(self, table: BunchedTable, look: _Look, seen: Set[int] | None = None) -> Iterator[float]:
        """Compare what was looked at, and once more where more was suspected than can be tried soon."""
        while True:
            while (wait := self._pace.wait) > 0:
                yield wait
            is_whole = yield from self._patiently(lambda: self._compare(table, look, seen))
            self._pace.rest(self._lake_seconds * (1 / _SHARE_OF_LAKE - 1))
            if is_whole:
                break
            while len(self._suspects) > _MOST_SUSPECTS // 2:
                yield _POLL_SECONDS
        yield 0.0

    def _compare(self, table: BunchedTable, look: _Look, seen: Set[int] | None) -> bool:
        """Compare rows of the source with the lake's, and suspect those that differ; with all keys that are ``seen``,
        the lake's other rows, too. Says whether there was room for all suspects; what a look has had tried it does not
        suspect again, since it only grows older."""
        stored, live, others = self._stored(table, look.rows, lambda row, _: digest(row), seen)
        unsettled = 0
        for key, expected in itertools.chain(look.rows.items(), ((other, None) for other in others)):
            found = stored.get(key, _Stored())
            if expected is not None and self._is_equal(key, expected[0], found):
                self._take_for_equal(key)
                continue
            if key in look.suspected or key in self._tried or key in self._suspects or key in self.differences:
                continue
            asked = table.asked_of(key) if expected is None else expected[1]
            if asked is None or len(self.differences) >= MOST_DIFFERENCES:
                unsettled += 1
            elif len(self._suspects) >= _MOST_SUSPECTS:
                return False
            else:
                self._suspects[key] = _Suspect(asked, found.version)
                look.suspected.add(key)
        self.unsettled += unsettled
        if seen is not None:
            self.source_rows, self.lake_rows = len(seen), live
            self._equal = {key: equal for key, equal in self._equal.items() if _key_hash(key) in seen}
            if self._untried is None:
                self._untried = set(self._suspected)
        return True

    def _is_equal(self, key: Row, expected: bytes, found: _Stored[bytes]) -> bool:
        return found.rows == [expected] or self._equal.get(key) == (expected, found.version)

    # --- What is suspected ------------------------------------------------------------------------------------------

    def trials(self, *, again: bool) -> Iterator[float]:
        """Try what is suspected, or ``again`` what differs, without an end: the one keeps the other from waiting.
        Raises UserError; what was being tried is then tried by the next trials."""
        while True:
            tried = self._to_try_again() if again else self._to_try()
            if not tried:
                self._behind_since.pop(again, None)
                yield _POLL_SECONDS
                continue
            self._tried |= tried
            put_off: Mapping[Row, _Suspect] = tried
            try:
                source: dict[Row, Found] = {}
                table = self._table()
                parts = table.rows_at([suspect.asked for suspect in tried.values()])
                while True:
                    yield from _rested(table)
                    part = next(parts, None)
                    if part is None:
                        break
                    source |= part
                is_reached = yield from self._reached(self._position(), again)
                if is_reached:
                    put_off = yield from self._patiently(partial(self._judge, table, tried, source))
                    self._untried = self._untried and self._untried - tried.keys()
                put_off = {key: replace(each, tries=each.tries + 1) for key, each in put_off.items()}
                self.trials_done += 1
            finally:
                for key in tried:
                    del self._tried[key]
                for key, suspect in put_off.items():
                    self._put_off(key, suspect)
            yield self._lake_seconds

    def _to_try(self) -> dict[Row, _Suspect]:
        """Of what is suspected what has waited longest."""
        return {key: self._suspects.pop(key) for key in list(itertools.islice(self._suspects, _TRIED_AT_ONCE))}

    def _to_try_again(self) -> dict[Row, _Suspect]:
        """Of what differs what was not tried for the longest time."""
        now = self._clock()
        due = itertools.takewhile(lambda item: now - item[1][0] >= _AGAIN_SECONDS, self._again.items())
        chosen = {
            key: _Suspect(self.differences[key].asked, version)
            for key, (_, version) in itertools.islice(due, _TRIED_AT_ONCE)
        }
        for key, suspect in chosen.items():
            self._try_again(key, suspect.version)
        return chosen

    def _reached(self, reached: Reached, again: bool) -> Generator[float, None, bool]:
        """Wait until the lake has come as far, and say whether it has; not for ever, since a lake that was set back, or
        has begun anew, never has what it was to have."""
        began = self._clock()
        poll = _POLL_SECONDS
        while not reached():
            self._behind_since.setdefault(again, began)
            if self._clock() - began >= _GIVEN_UP_SECONDS:
                return False
            yield poll
            poll = min(poll * 1.5, _MOST_POLL_SECONDS)
        self._behind_since.pop(again, None)
        return True

    def _judge(self, table: BunchedTable, tried: Mapping[Row, _Suspect], source: Bunch) -> dict[Row, _Suspect]:
        """Compare what was tried, where the lake has come as far, and return what has changed there meanwhile."""
        stored, _, _ = self._stored(table, tried, lambda row, unfit: (row, unfit))
        changed = {}
        for key, suspect in tried.items():
            of_key: _Stored[_Kept] = stored.get(key, _Stored())
            found = source.get(key)
            difference = self._difference(table, key, suspect.asked, found.row if found else None, of_key.rows)
            if difference is None:
                self._take_for_equal(key)
                if found and any(unfit for _, unfit in of_key.rows):
                    self._equal[key] = (digest(found.row), of_key.version)
            elif of_key.version != suspect.version:
                changed[key] = _Suspect(suspect.asked, of_key.version, suspect.tries)
            else:
                former = self.differences.get(key)
                if former is None or former.kind != difference.kind:
                    self.differences[key] = difference
                self._try_again(key, suspect.version)
        return changed

    def _put_off(self, key: Row, suspect: _Suspect) -> None:
        """Try a row later: what differs, for ever, and what is suspected, unless that was done often enough."""
        if key in self.differences:
            self._try_again(key, suspect.version)
        elif suspect.tries < _TRIES:
            self._suspects[key] = suspect
        else:
            self.unsettled += 1

    def _try_again(self, key: Row, version: _Version) -> None:
        """Try what differs as the last of its kind."""
        self._again.pop(key, None)
        self._again[key] = (self._clock(), version)

    def _difference(
        self,
        table: BunchedTable,
        key: Row,
        asked: Any,
        source: Row | None,
        stored: list[_Kept],
    ) -> Difference | None:
        spelled, now = spelled_key(table, key), self._now()
        if len(stored) > 1 or (source is None and stored):
            return Difference(EXTRA, spelled, {}, asked, now)
        if source is None:
            return None
        if not stored:
            return Difference(MISSING, spelled, {}, asked, now)
        row, unfit = stored[0]
        differing = differing_columns(table, source, row, unfit)
        columns = spelled_columns(table, source, row, differing)
        return Difference(DIFFERENT, spelled, columns, asked, now) if differing else None

    def _take_for_equal(self, key: Row) -> None:
        self.differences.pop(key, None)
        self._again.pop(key, None)

    def _patiently(self, reading: Callable[[], Done]) -> Generator[float, None, Done]:
        """Do what reads the lake, once its table can be read."""
        began = self._clock()
        while True:
            try:
                return reading()
            except CompactionOpen:
                if self._clock() - began >= _COMPACTION_SECONDS:
                    raise
            yield _POLL_SECONDS

    # --- The lake ---------------------------------------------------------------------------------------------------

    def _stored(
        self,
        table: BunchedTable,
        keys: Collection[Row],
        keep: Callable[[Row, frozenset[str]], Kept],
        seen: Set[int] | None = None,
    ) -> tuple[dict[Row, _Stored[Kept]], int, list[Row]]:
        """What to ``keep`` of the lake's rows of these keys and of the columns whose values do not fit, how many live
        rows it has, and, where keys are ``seen``, those of other live rows, which are among the rows, too."""
        began = time.monotonic()
        key_of = key_taker(table)
        key_fields = [next(each for each in table.fields if each.name == name) for name in table.contract.key]
        stored: dict[Row, _Stored[Kept]] = {}
        others: dict[Row, None] = {}
        live = 0
        for batch in self._lake():
            deleted = _deleted(batch)
            live += deleted.count(False)
            wanted = []
            for at, (key, is_deleted) in enumerate(zip(lake_rows(key_fields, batch), deleted, strict=True)):
                if seen is not None and not is_deleted and _key_hash(key) not in seen:
                    others[key] = None
                    wanted.append(at)
                elif key in keys or key in others:
                    wanted.append(at)
            part = batch.take(pa.array(wanted, pa.int64()))
            orders = part.column("_order").to_pylist()
            rows = zip(lake_rows(table.fields, part), unfit_columns(part), orders, wanted, strict=True)
            for row, unfit, order, at in rows:
                of_key = stored.setdefault(key_of(row), _Stored())
                of_key.orders.append(str(order))
                if not deleted[at]:
                    of_key.rows.append(keep(row, unfit))
        self._lake_seconds = time.monotonic() - began
        return stored, live, list(others)


def _rested(table: BunchedTable) -> Iterator[float]:
    """Wait until the source may be read."""
    while (wait := table.pace.wait) > 0:
        yield wait


def _key_hash(key: Row) -> int:
    """What stands for a key where keys are many. Python's own hash is the same for -1 and -2."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _deleted(batch: pa.RecordBatch) -> list[bool]:
    at = batch.schema.get_field_index("_deleted")
    return [False] * batch.num_rows if at < 0 else [bool(deleted) for deleted in batch.column(at).to_pylist()]

"""Compare a source's table with its lake table again and again, while all writes go on.

The source is read in bunches, each at a moment of its own, and the lake soon after. A row that differs then is a
suspect, because its change may still be on its way. A trial reads the suspect's row in the source once more. It waits
until the lake has everything that the source had by then, and reads the row there.

The row is a difference if both still differ and the lake's row has not changed since before the first reading. Then no
change of it can be on its way. If the lake's row has changed meanwhile, the suspect is tried again.
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
"""One statement or page of the source gives at most this many rows."""
MOST_DIFFERENCES = 10_000
"""At most this many rows are named as differing. More names would not help."""
# A scan of the source stops after this many rows or seconds; then the lake is read. Longer scans meet more changes.
_LOOK_ROWS = 200_000
_LOOK_SECONDS = 60.0
# The largest share of all tables' time that goes into reading the lake after scans. Trials take up to half of a table's
# time.
_SHARE_OF_LAKE = 0.25
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
"""The sorted orders of the lake's rows of a key, tombstones included. They differ once one of the rows has changed."""

Reached = Callable[[], bool]
"""Returns True once the lake has everything that the source had at a certain moment."""

_Kept = tuple[Row, frozenset[str]]
"""A row of the lake, and its columns whose values do not fit."""

Kept = TypeVar("Kept")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Difference:
    """A row that differs between the source and the lake."""

    kind: str
    """``missing`` in the lake, ``extra`` there, or ``different``."""
    key: Mapping[str, str]
    """The key's values as text, by column."""
    columns: Mapping[str, tuple[str, str]]
    """The source's value and the lake's, as text, of each column that differs."""
    asked: Any
    """The key with which ``BunchedTable.rows_at`` reads the row in the source."""
    since: float
    """When the difference was found, in epoch seconds."""

    @property
    def row(self) -> str:
        """The row's key in a line."""
        return ", ".join(f"{name} = {value}" for name, value in self.key.items())


@dataclass(slots=True)
class _Stored(Generic[Kept]):
    """The lake's rows of one key."""

    rows: list[Kept] = field(default_factory=list)
    """The live rows, or their hashes."""
    orders: list[str] = field(default_factory=list)
    """The orders of all rows, tombstones included."""

    @property
    def version(self) -> _Version:
        return tuple(sorted(self.orders))


@dataclass(frozen=True)
class _Suspect:
    """A key that a trial has to decide."""

    asked: Any
    """The key with which ``BunchedTable.rows_at`` reads the row in the source."""
    version: _Version
    """The version of the lake's rows before the trial."""
    tries: int = 0
    """How many trials have not decided it."""


@dataclass
class _Look:
    """A scan of some of the source's rows, which wait to be compared with the lake."""

    began: float
    """When the scan began, in seconds of the watch's clock."""
    rows: dict[Row, tuple[bytes, Any]] = field(default_factory=dict)
    """By key, the row's hash, and the key that reads it again."""
    suspected: set[Row] = field(default_factory=set)
    """The keys that this scan has made suspects."""


@dataclass
class _Round:
    """How far a round over all rows has come."""

    look: _Look
    """The scan that is not compared yet."""
    seen: set[int] = field(default_factory=set)
    """Hashes of all keys that the round has read in the source."""
    after: Any = None
    """The key of the last row that was read, from which the round goes on."""
    failed_after: Any = None
    """The value of ``after`` when the round failed the last time."""


class TableWatch:
    """Compares one table of a source with its lake table.

    Its methods work in steps: each yields the seconds to wait before the next step.

    Args:
        table: Returns the source's table.
        lake: Returns the rows of the lake's table as they are now, tombstones included.
        position: Returns a test of whether the lake has everything that the source has now.
        pace: When the lake may be read for scans; all tables share one.
        clock: Returns seconds that only grow.
        now: Returns epoch seconds.
    """

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
        # When each difference was tried last, the oldest first, and the version that the lake's rows had.
        self._again: dict[Row, tuple[float, _Version]] = {}
        # Rows whose values that fit are equal, but that have others: the source's hash and the lake's version.
        self._equal: dict[Row, tuple[bytes, _Version]] = {}
        self._broken_off: _Round | None = None
        self._behind_since: dict[bool, float] = {}
        self._lake_seconds = 0.0
        # The first round's suspects that no trial has had yet.
        self._untried: set[Row] | None = None
        self.trials_done = 0
        """How many trials have ended."""
        self.differences: dict[Row, Difference] = {}
        """The rows that differ, by key."""
        self.source_rows = 0
        """How many rows the last complete round has read in the source."""
        self.lake_rows = 0
        """How many live rows the last complete round has read in the lake."""
        self.unsettled = 0
        """How many rows since the round began changed in every trial, or had no room for a trial."""

    @property
    def is_settled(self) -> bool:
        """Whether every suspect is already known to differ."""
        return not self._suspected

    @property
    def has_tried_first(self) -> bool:
        """Whether the first round is complete and each of its suspects has had a trial."""
        return self._untried is not None and not self._untried

    @property
    def _suspected(self) -> Set[Row]:
        return (self._suspects.keys() | self._tried.keys()) - self.differences.keys()

    @property
    def behind_seconds(self) -> float:
        """For how many seconds the lake has been behind the source; 0 for a usual delay."""
        now = self._clock()
        waited = now - min(self._behind_since.values(), default=now)
        return waited if waited > _BEHIND_SECONDS else 0.0

    def kinds(self) -> Counter[str]:
        """Count the rows that differ, by kind."""
        return Counter(difference.kind for difference in self.differences.values())

    # --- All rows ---------------------------------------------------------------------------------------------------

    def round(self) -> Iterator[float]:
        """Compare all rows once, in steps.

        Raises UserError. The next round then goes on after the last row that was read. If it fails at the same row, the
        round after it begins anew.
        """
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
        """Compare a scan with the lake, and repeat that while there are too many suspects to hold."""
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
        """Compare the rows of a scan with the lake's, and make suspects of rows that differ.

        With ``seen``, the keys of a complete round, the lake's rows of other keys become suspects too. Returns False if
        there was no room for all suspects. A scan suspects a key only once, because its rows only grow older.
        """
        stored, live, others = self._stored(table, look.rows, lambda row, _: digest(row), seen)
        unsettled = 0
        # The keys that only the lake has come last, without a row of the source.
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
        """Try suspects, or with ``again`` the known differences, endlessly.

        The two run beside each other, so that neither waits for the other. Raises UserError; the next call then tries
        the same keys.
        """
        while True:
            tried = self._to_try_again() if again else self._to_try()
            if not tried:
                self._behind_since.pop(again, None)
                yield _POLL_SECONDS
                continue
            self._tried |= tried
            put_off: Mapping[Row, _Suspect] = tried
            # Read the source first, then wait until the lake has everything that the source had, then read the lake.
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
        """The suspects that have waited longest."""
        return {key: self._suspects.pop(key) for key in list(itertools.islice(self._suspects, _TRIED_AT_ONCE))}

    def _to_try_again(self) -> dict[Row, _Suspect]:
        """The differences whose last trial is the longest ago."""
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
        """Wait until the lake has reached the source's position, and return whether it has.

        The wait ends at some time, because a lake that was restored or begun anew never reaches an old position.
        """
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
        """Decide the tried keys, and return those whose rows have changed in the lake meanwhile."""
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
        """Put a row off to a later trial: a difference always, a suspect only ``_TRIES`` times."""
        if key in self.differences:
            self._try_again(key, suspect.version)
        elif suspect.tries < _TRIES:
            self._suspects[key] = suspect
        else:
            self.unsettled += 1

    def _try_again(self, key: Row, version: _Version) -> None:
        """Put a difference at the end of those that wait for a trial."""
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
        """Run ``reading``, and wait and repeat while a compaction hides the table's newest rows."""
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
        """Read the lake's rows of these keys.

        Returns the result of ``keep`` for each row and its unfit columns, the count of live rows, and other keys. Other
        keys belong to live rows whose hash is not in ``seen``, if that is given; their rows are returned too.
        """
        began = time.monotonic()
        key_of = key_taker(table)
        key_fields = [next(each for each in table.fields if each.name == name) for name in table.contract.key]
        stored: dict[Row, _Stored[Kept]] = {}
        others: dict[Row, None] = {}
        live = 0
        for batch in self._lake():
            deleted = _deleted(batch)
            live += deleted.count(False)
            # Find the rows that are wanted by their keys alone, and convert the other columns of only those.
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
    """A key's hash of 8 bytes, to hold many. Python's own hash is the same for -1 and -2."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _deleted(batch: pa.RecordBatch) -> list[bool]:
    at = batch.schema.get_field_index("_deleted")
    return [False] * batch.num_rows if at < 0 else [bool(deleted) for deleted in batch.column(at).to_pylist()]

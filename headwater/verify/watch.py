"""Compare a source's table with its lake table for ever, while all writes go on.

The source is read in bunches, each at a moment of its own, and the lake soon after. What differs then may only be on
its way, so that it is a suspect: its row is read again in the source, and in the lake once that has all that the source
had by then. A difference is what differs still, where the lake's row has not changed since before the source was read:
then no change of it can be on its way. Where the lake's row has changed meanwhile, the suspect is tried again.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.verify.bunches import Bunch, BunchedTable
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

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
BUNCH_ROWS = 20_000
"""How many rows one statement, or a few pages, of the source give."""
_LOOK_ROWS = 200_000
_LOOK_SECONDS = 5.0
# Either ends a look at the source, after which the lake is read: the longer it takes, the more changes meanwhile.
_TRIED_AT_ONCE = 500
_TRIES = 10
_MOST_SUSPECTS = 10_000
_AGAIN_SECONDS = 30.0
_BEHIND_SECONDS = 60.0

_Version = tuple[str, ...]
"""What tells whether the lake's rows of a key have changed: their orders, those of tombstones among them."""

Reached = Callable[[], bool]
"""Whether the lake has all that the source had at a moment."""


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


@dataclass
class _Stored:
    """The lake's rows of a key."""

    rows: list[tuple[Row, frozenset[str]]] = field(default_factory=list)
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


@dataclass(frozen=True)
class _Trial:
    """Suspects, with what the source has of them, and whether the lake has come as far."""

    suspects: Mapping[Row, _Suspect]
    source: Bunch
    reached: Reached
    began: float


_NOTHING = _Stored()


class TableWatch:
    """Compares one table. ``table`` gives the source's, ``lake`` the rows of the lake's as they are now, tombstones
    included, and ``position`` a test of whether the lake has all that the source has now."""

    def __init__(
        self,
        table: Callable[[], BunchedTable],
        lake: Callable[[], Iterable[pa.RecordBatch]],
        position: Callable[[], Reached],
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._lake = lake
        self._position = position
        self._pause = pause
        self._clock = clock
        self._suspects: dict[Row, _Suspect] = {}
        self._trial: _Trial | None = None
        self._versions: dict[Row, _Version] = {}
        self._again_at = 0.0
        self.differences: dict[Row, Difference] = {}
        """What differs, by its key."""
        self.source_rows = 0
        self.lake_rows = 0
        """How many rows the last whole round has seen."""
        self.unsettled = 0
        """How many rows, since the last round began, changed whenever they were tried, or could not be tried."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is suspected."""
        return not self._suspects and self._trial is None

    @property
    def behind_seconds(self) -> float:
        """For how long the lake has not come as far as the source was; 0 where that is as it may be."""
        waited = 0.0 if self._trial is None else self._clock() - self._trial.began
        return waited if waited > _BEHIND_SECONDS else 0.0

    def kinds(self) -> Counter[str]:
        """How many rows differ, by kind."""
        return Counter(difference.kind for difference in self.differences.values())

    def round(self) -> Iterator[None]:
        """Compare all rows once. Pauses, for ``settle`` of this and other tables, after each look. Raises UserError;
        a new round begins anew."""
        table = self._table()
        self.unsettled = 0
        seen: set[int] = set()
        looked: dict[Row, tuple[bytes, Any]] = {}
        began = self._clock()
        for bunch in table.bunches(BUNCH_ROWS, self._pause):
            looked |= {key: (digest(found.row), found.asked) for key, found in bunch.items()}
            seen.update(map(hash, bunch))
            if len(looked) >= _LOOK_ROWS or self._clock() - began >= _LOOK_SECONDS:
                self._look(table, looked)
                looked = {}
                yield
                began = self._clock()
        self.lake_rows = self._look(table, looked, seen)
        self.source_rows = len(seen)
        yield

    def settle(self) -> list[Difference]:
        """Try what is suspected, without waiting, and return the differences that are found by it. Raises UserError."""
        if self._trial is None:
            self._begin()
        if self._trial is None or not self._trial.reached():
            return []
        trial, self._trial = self._trial, None
        try:
            return self._judge(trial)
        except BaseException:
            self._suspects = {**trial.suspects, **self._suspects}
            raise

    def _look(self, table: BunchedTable, looked: Mapping[Row, tuple[bytes, Any]], seen: Set[int] | None = None) -> int:
        """Compare rows of the source with the lake's, and suspect those that differ; with all keys that are ``seen``,
        the lake's other rows, too. Returns how many live rows the lake has."""
        stored, live, others = self._stored(table, looked, seen)
        for key, (expected, asked) in looked.items():
            found = stored.get(key, _NOTHING)
            if len(found.rows) == 1 and digest(found.rows[0][0]) == expected:
                self._forget(key)
            else:
                self._suspect(key, _Suspect(asked, found.version))
        for key in others:
            asked = table.asked_of(key)
            if asked is None:
                self.unsettled += 1
            else:
                self._suspect(key, _Suspect(asked, stored[key].version))
        return live

    def _stored(
        self, table: BunchedTable, keys: Collection[Row], seen: Set[int] | None = None
    ) -> tuple[dict[Row, _Stored], int, list[Row]]:
        """The lake's rows of these keys, how many live rows it has, and, where keys are ``seen``, those of other live
        rows, which are among the rows, too."""
        key_of = key_taker(table)
        key_fields = [next(each for each in table.fields if each.name == name) for name in table.contract.key]
        stored: dict[Row, _Stored] = {}
        others: dict[Row, None] = {}
        live = 0
        for batch in self._lake():
            deleted = _deleted(batch)
            live += deleted.count(False)
            wanted = []
            for at, (key, is_deleted) in enumerate(zip(lake_rows(key_fields, batch), deleted, strict=True)):
                if seen is not None and not is_deleted and hash(key) not in seen:
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
                    of_key.rows.append((row, unfit))
        return stored, live, list(others)

    def _suspect(self, key: Row, suspect: _Suspect) -> None:
        under_trial = self._trial is not None and key in self._trial.suspects
        if under_trial or key in self._suspects:
            return
        if len(self._suspects) >= _MOST_SUSPECTS:
            self.unsettled += 1
        else:
            self._suspects[key] = suspect

    def _begin(self) -> None:
        """Begin a trial where there is something to try: what is suspected, and now and then what differs."""
        now = self._clock()
        if self.differences and now - self._again_at >= _AGAIN_SECONDS:
            self._again_at = now
            again = {key: _Suspect(each.asked, self._versions[key]) for key, each in self.differences.items()}
            self._suspects = again | self._suspects
        tried = dict(list(self._suspects.items())[:_TRIED_AT_ONCE])
        if not tried:
            return
        source = self._table().rows_at([suspect.asked for suspect in tried.values()])
        self._trial = _Trial(tried, source, self._position(), now)
        for key in tried:
            del self._suspects[key]

    def _judge(self, trial: _Trial) -> list[Difference]:
        table = self._table()
        stored, _, _ = self._stored(table, trial.suspects)
        found = []
        for key, suspect in trial.suspects.items():
            of_key = stored.get(key, _NOTHING)
            source = trial.source.get(key)
            difference = self._difference(table, key, suspect.asked, source.row if source else None, of_key)
            if difference is None:
                self._forget(key)
            elif of_key.version == suspect.version:
                if key not in self.differences or self.differences[key].kind != difference.kind:
                    found.append(difference)
                    self.differences[key] = difference
                self._versions[key] = suspect.version
            elif suspect.tries + 1 < _TRIES:
                self._suspects.setdefault(key, _Suspect(suspect.asked, of_key.version, suspect.tries + 1))
            else:
                self.unsettled += 1
        return found

    def _difference(
        self, table: BunchedTable, key: Row, asked: Any, source: Row | None, stored: _Stored
    ) -> Difference | None:
        spelled, now = spelled_key(table, key), self._clock()
        if len(stored.rows) > 1 or (source is None and stored.rows):
            return Difference(EXTRA, spelled, {}, asked, now)
        if source is None:
            return None
        if not stored.rows:
            return Difference(MISSING, spelled, {}, asked, now)
        row, unfit = stored.rows[0]
        differing = differing_columns(table, source, row, unfit)
        columns = spelled_columns(table, source, row, differing)
        return Difference(DIFFERENT, spelled, columns, asked, now) if differing else None

    def _forget(self, key: Row) -> None:
        """Take a row for equal."""
        self.differences.pop(key, None)
        self._versions.pop(key, None)


def _deleted(batch: pa.RecordBatch) -> list[bool]:
    at = batch.schema.get_field_index("_deleted")
    return [False] * batch.num_rows if at < 0 else [bool(deleted) for deleted in batch.column(at).to_pylist()]

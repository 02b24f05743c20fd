"""The comparison of ``headwater verify --watch``: all tables beside each other, until somebody ends it."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands.environments import printable
from headwater.commands.sources import CredentialsRefused
from headwater.console import say
from headwater.errors import UserError
from headwater.operations import watched
from headwater.operations.watched import Watched
from headwater.verify.forms import Row
from headwater.verify.watch import DIFFERENT, EXTRA, MISSING, MOST_DIFFERENCES, Difference, TableWatch

_POLL_SECONDS = 1.0
_TOLD_SECONDS = 60.0
_AFTER_ERROR_SECONDS = 10.0
_MOST_AFTER_ERROR_SECONDS = 600.0
_AGAIN_SECONDS = 600.0
_BEHIND_SECONDS = 900.0
_WHOLE_SECONDS = 6 * 3600.0
_REPAIRED_AT_ONCE = 1_000

Repair = Callable[[str, Sequence[Difference], bool], bool]
"""Has rows of a table that differ read again: those, or the whole table where that is needed and may be, as the last
argument says. Returns whether the whole table is read. Raises UserError."""


@dataclass(frozen=True)
class Kept:
    """Where what is found is kept for all to see: beside the tables of ``lake``, by boto3's client of ``s3``, and in
    CloudWatch for the environment of the Glue database, where there is one."""

    s3: Any
    lake: str
    cloudwatch: Any = None
    database: str = ""


@dataclass
class _Table:
    """A table, and what is known of it beside its comparison: how many ``rounds`` were complete, when the last one was
    and how many ``seconds`` it took, why it failed how often since, and what an earlier run has known (``former``)."""

    name: str
    watch: TableWatch
    started_at: float
    former: Watched | None = None
    rounds: int = 0
    round_at: float | None = None
    told: Mapping[Row, Difference] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    error_since: float | None = None
    errors: int = 0
    kept_at: float = 0.0
    measured_at: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether all rows were compared, and what was suspected then was tried, or rows are known to differ."""
        is_tried = self.rounds > 1 or (self.rounds == 1 and self.watch.is_settled)
        return is_tried or bool(self.watch.differences)


class _Repairs:
    """Has what differs read again, a bounded part of it at a time, beside the comparison: it may wait for a job."""

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self._asked: queue.Queue[tuple[str, Sequence[Difference], bool]] = queue.Queue()
        self._asked_at: dict[str, float] = {}
        self._whole_at: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        """Why the last repair of a table failed."""
        # Nobody waits for it at the end: what was asked for is done by those who were asked.
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def are_done(self) -> bool:
        """Whether all that was asked for is done."""
        return not self._asked.unfinished_tasks

    def ask(self, name: str, differences: Iterable[Difference]) -> None:
        """Have these rows of a table read again, unless that was asked a moment ago: what is being read again is not
        ready sooner. A whole table is read a few times a day at most."""
        now = time.monotonic()
        if now - self._asked_at.get(name, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return
        may_be_whole = now - self._whole_at.get(name, -_WHOLE_SECONDS) >= _WHOLE_SECONDS
        chosen = [each for each in differences if may_be_whole or each.kind != EXTRA][:_REPAIRED_AT_ONCE]
        if chosen:
            self._asked_at[name] = now
            self._asked.put((name, chosen, may_be_whole))

    def _run(self) -> None:
        while True:
            name, chosen, may_be_whole = self._asked.get()
            try:
                if self._repair(name, chosen, may_be_whole):
                    self._whole_at[name] = time.monotonic()
                self.failed.pop(name, None)
            except BaseException as error:  # whatever it is, a comparison that never ends goes on
                self.failed[name] = _said(error)
                _tell(f"{name} could not be repaired, and is again in ten minutes: {self.failed[name]}")
            self._asked_at[name] = time.monotonic()
            self._asked.task_done()


class EndlessComparison:
    """Compares each table every ``every`` seconds. Has rows that differ read again by ``repair``, where there is one:
    as soon as they are found, and now and then where they differ still."""

    def __init__(self, every: float, kept: Kept, repair: Repair | None) -> None:
        self._every = every
        self._kept = kept
        self._repairs = _Repairs(repair) if repair is not None else None
        self._tables: list[_Table] = []

    def add(self, name: str, watch: TableWatch) -> None:
        """Compare this table, too. Raises what boto3 raises: what is known of it already is asked for."""
        former = None
        try:
            former = watched.read(self._kept.s3, self._kept.lake, name)
        except UserError as error:  # it is written anew
            _tell(str(error))
        self._tables.append(_Table(name, watch, time.time(), former))

    def run(self, *, once: bool) -> bool:
        """Compare until Ctrl-C or SIGTERM, or ``once``, until nothing is suspected any more, or the lake does not come
        as far as its source; say whether all rows were equal at the end. Raises CredentialsRefused."""
        ended = False
        try:
            with _terminable():
                rounds = [self._rounds(table, once=once) for table in self._tables]
                trials = [self._trials(table) for table in self._tables]
                for _ in _in_turn([*rounds, *trials, self._upkeep()]):
                    if once and all(map(self._is_done, self._tables)) and self._are_repaired:
                        break
            ended = True
        except KeyboardInterrupt:
            # Who ends it by hand wants it no more; a service manager may start it again.
            ended = True
            say("Ended")
        except _Terminated:
            say("Ended by SIGTERM")
        finally:
            for table in self._tables:
                self._look_after(table, ended=ended)
        return all(table.is_known and not table.watch.differences and not table.error for table in self._tables)

    @property
    def _are_repaired(self) -> bool:
        return self._repairs is None or self._repairs.are_done

    def _is_done(self, table: _Table) -> bool:
        """Whether one round has told all that it can."""
        return (
            bool(table.error)
            or table.watch.behind_seconds >= _BEHIND_SECONDS
            or (table.rounds > 0 and table.watch.is_settled and table.told == table.watch.differences)
        )

    def _rounds(self, table: _Table, *, once: bool) -> Iterator[float]:
        while True:
            began = time.monotonic()
            try:
                yield from table.watch.round()
            except CredentialsRefused:
                raise
            except Exception as error:  # whatever it is, a comparison that never ends goes on
                yield self._failed(table, error)
                continue
            table.error, table.error_since, table.errors = "", None, 0
            table.round_at = time.time()
            table.rounds += 1
            watch, seconds = table.watch, time.monotonic() - began
            table.seconds = seconds
            more = "or more " if len(watch.differences) >= MOST_DIFFERENCES else ""
            _tell(
                f"{table.name}: {watch.source_rows:,} rows compared in {seconds:,.0f} s, "
                f"{len(watch.differences):,} {more}differ, {watch.unsettled:,} could not be told"
            )
            if once:
                return
            yield max(self._every - seconds, 0)

    def _trials(self, table: _Table) -> Iterator[float]:
        while True:
            try:
                yield from table.watch.trials()
            except CredentialsRefused:
                raise
            except Exception as error:  # as above
                yield self._failed(table, error)

    def _failed(self, table: _Table, error: Exception) -> float:
        """Tell why a table could not be compared, and return the seconds until it is again."""
        said = _said(error)
        if said != table.error:
            detail = "" if isinstance(error, UserError) else f": {error}"
            _tell(f"{table.name} could not be compared, and is again soon: {said}{detail}")
        table.error = said
        table.error_since = table.error_since or time.time()
        table.errors += 1
        return min(_AFTER_ERROR_SECONDS * 2.0 ** min(table.errors - 1, 10), _MOST_AFTER_ERROR_SECONDS)

    def _upkeep(self) -> Iterator[float]:
        while True:
            for table in self._tables:
                self._look_after(table)
                if self._repairs is not None and table.watch.differences:
                    self._repairs.ask(table.name, list(table.watch.differences.values()))
            yield _POLL_SECONDS

    def _look_after(self, table: _Table, *, ended: bool | None = None) -> None:
        """Name what has begun or ceased to differ, and keep what is known, now and then and where it has changed;
        surely where ``ended`` says how the comparison ends."""
        now = dict(table.watch.differences)
        for key, difference in now.items():
            if key not in table.told or table.told[key].kind != difference.kind:
                _tell(f"{table.name} {difference.row}: {difference.kind}")
                for column, (in_source, in_lake) in difference.columns.items():
                    say(printable(f"  {column}: source {in_source} | lake {in_lake}"))
        for key, difference in table.told.items():
            if key not in now:
                _tell(f"{table.name} {difference.row}: equal again")
        has_changed = now != table.told
        table.told = now
        at = time.time()
        if has_changed or ended is not None or at - table.kept_at >= _TOLD_SECONDS:
            self._keep(table, at, ended)

    def _keep(self, table: _Table, at: float, ended: bool | None) -> None:
        known = self._known(table, at, ended=bool(ended))
        if known.behind_seconds:
            behind = known.behind_seconds
            _tell(f"{table.name}: the lake has not come as far as the source was {behind:,.0f} s ago; waiting")
        try:
            watched.write(self._kept.s3, self._kept.lake, known)
            is_due = at - table.measured_at >= _TOLD_SECONDS or ended is not None
            if self._kept.cloudwatch is not None and is_due:
                table.measured_at = at
                watched.measure(self._kept.cloudwatch, self._kept.database, known)
        except (BotoCoreError, ClientError) as error:
            _tell(f"{table.name}: what is known of it could not be kept: {error}")
        table.kept_at = at

    def _known(self, table: _Table, at: float, *, ended: bool) -> Watched:
        watch = table.watch
        kinds = watch.kinds()
        failed = self._repairs.failed.get(table.name, "") if self._repairs is not None else ""
        now = Watched(
            table=table.name,
            at=at,
            ended=ended,
            round_at=table.round_at if table.is_known else None,
            source_rows=watch.source_rows,
            lake_rows=watch.lake_rows,
            unsettled=watch.unsettled,
            missing=kinds[MISSING],
            extra=kinds[EXTRA],
            different=kinds[DIFFERENT],
            since=min((difference.since for difference in watch.differences.values()), default=None),
            behind_seconds=watch.behind_seconds,
            error=table.error or (f"not repaired: {failed}" if failed else ""),
            every=max(self._every, table.seconds),
            started_at=table.started_at,
            error_since=table.error_since,
        )
        return watched.carried(table.former, now)


def _in_turn(works: Sequence[Iterator[float]]) -> Iterator[None]:
    """Do each work's next step when the seconds have passed that it gave with its last one; gives way after each."""
    numbers = itertools.count()
    waiting = [(0.0, next(numbers), work) for work in works]
    while waiting:
        due, _, work = waiting[0]
        time.sleep(max(due - time.monotonic(), 0))
        seconds = next(work, None)
        heapq.heappop(waiting)
        if seconds is not None:
            heapq.heappush(waiting, (time.monotonic() + seconds, next(numbers), work))
        yield


class _Terminated(BaseException):
    """SIGTERM has come."""


@contextmanager
def _terminable() -> Iterator[None]:
    def end(*_: Any) -> None:
        raise _Terminated

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _said(error: BaseException) -> str:
    """What may be kept of an error: a text that is not for people may repeat a row."""
    return str(error) if isinstance(error, UserError) else type(error).__name__


def _tell(text: str) -> None:
    say(printable(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}"))

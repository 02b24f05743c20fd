"""The comparison of ``headwater verify --watch``: all tables beside each other, until somebody ends it."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands.environments import printable
from headwater.commands.postgresql import CredentialsRefused
from headwater.console import say
from headwater.errors import UserError
from headwater.operations import watched
from headwater.operations.watched import Watched
from headwater.verify.forms import Row
from headwater.verify.paced_reader import PASS_MINUTES, STATEMENT_MINUTES
from headwater.verify.watch import DIFFERENT, EXTRA, MISSING, MOST_DIFFERENCES, Difference, TableWatch

_POLL_SECONDS = 1.0
_TOLD_SECONDS = 60.0
_AFTER_ERROR_SECONDS = 10.0
_MOST_AFTER_ERROR_SECONDS = 600.0
_AGAIN_SECONDS = 600.0
_BEHIND_SECONDS = 900.0
_WHOLE_SECONDS = 6 * 3600.0
_TRIES_ONCE = 3
_ROUNDS = "rounds"
# What is not divided, and what else may be waited for.
_LONGEST_STEP_SECONDS = (PASS_MINUTES + STATEMENT_MINUTES) * 60.0

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
class _Failure:
    """Why a part of a comparison fails, how often it has, and since when."""

    said: str
    since: float
    times: int = 1


@dataclass
class _Table:
    """A table, and what is known of it beside its comparison: how many ``rounds`` were complete, when the last one was
    and how many ``seconds`` it took, why its parts fail, and what an earlier run has known (``former``). ``at_once``
    rows are repaired at a time."""

    name: str
    watch: TableWatch
    at_once: int
    started_at: float
    former: Watched | None = None
    rounds: int = 0
    round_at: float | None = None
    seconds: float = 0.0
    told: Mapping[Row, Difference] = field(default_factory=dict)
    failures: dict[str, _Failure] = field(default_factory=dict)
    kept_at: float = -math.inf

    @property
    def is_known(self) -> bool:
        """Whether all rows were compared, and what was suspected then was tried, or rows are known to differ."""
        return bool(self.watch.differences) or self.watch.has_tried_first

    @property
    def failure(self) -> _Failure | None:
        """What has failed for the longest time."""
        return min(self.failures.values(), key=lambda failure: failure.since, default=None)


class _Repairs:
    """Has what differs read again, a bounded part of it at a time, beside the comparison: it may wait for a job. No
    table is repaired twice at once."""

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self._busy: set[str] = set()
        self._asked_at: dict[tuple[str, Row], float] = {}
        self._whole_at: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        """Why the last repair of a table failed."""

    @property
    def are_done(self) -> bool:
        """Whether all that was asked for is done."""
        return not self._busy

    def have_asked(self, name: str, differences: Iterable[Row]) -> bool:
        """Whether each of these rows was asked for."""
        return all((name, key) in self._asked_at for key in differences)

    def ask(self, name: str, differences: Mapping[Row, Difference], at_once: int) -> None:
        """Have some of these rows of a table read again: those that were asked for the longest ago, and none that was a
        moment ago, because what is being read is not ready sooner. A whole table is read a few times a day at most."""
        now = time.monotonic()
        if name in self._busy:
            return
        ago = {key: now - self._asked_at.get((name, key), -math.inf) for key in differences}
        chosen = sorted((key for key in ago if ago[key] >= _AGAIN_SECONDS), key=lambda key: -ago[key])[:at_once]
        if not chosen:
            return
        may_be_whole = now - self._whole_at.get(name, -math.inf) >= _WHOLE_SECONDS
        for key in chosen:
            self._asked_at[name, key] = now
        self._busy.add(name)
        # Nobody waits for it at the end: what was asked for is done by those who were asked.
        work = (name, [differences[key] for key in chosen], may_be_whole)
        threading.Thread(target=self._run, args=work, daemon=True).start()

    def forget(self, name: str, keys: Iterable[Row]) -> None:
        """These rows differ no more."""
        for key in keys:
            self._asked_at.pop((name, key), None)

    def _run(self, name: str, chosen: Sequence[Difference], may_be_whole: bool) -> None:
        try:
            if self._repair(name, chosen, may_be_whole):
                self._whole_at[name] = time.monotonic()
            self.failed.pop(name, None)
        except BaseException as error:  # whatever it is, a comparison that never ends goes on
            self.failed[name] = _said(error)
            _tell(f"{name} could not be repaired, and is again in ten minutes: {self.failed[name]}")
        finally:
            self._busy.discard(name)


class _Pulse:
    """Says once a minute that these tables are compared, whatever statement is waited for, as long as it is entered and
    no step takes longer than any may."""

    def __init__(self, kept: Kept, tables: Sequence[str]) -> None:
        self._kept = kept
        self._tables = tables if kept.cloudwatch is not None else []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self.step()

    def __enter__(self) -> Self:
        if self._tables:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Who ends the comparison does not wait for a request.
        self._over.set()

    def step(self) -> None:
        """Note that a step is done."""
        self._stepped_at = time.monotonic()

    def _beat(self) -> None:
        while True:
            if time.monotonic() - self._stepped_at < _LONGEST_STEP_SECONDS:
                try:
                    watched.tell_that_it_runs(self._kept.cloudwatch, self._kept.database, self._tables)
                except (BotoCoreError, ClientError) as error:
                    _tell(f"that the comparison runs could not be told: {error}")
            if self._over.wait(_TOLD_SECONDS):
                return


class EndlessComparison:
    """Compares each table every ``every`` seconds. Has rows that differ read again by ``repair``, where there is one:
    as soon as they are found, and now and then where they differ still."""

    def __init__(self, every: float, kept: Kept, repair: Repair | None) -> None:
        self._every = every
        self._kept = kept
        self._repairs = _Repairs(repair) if repair is not None else None
        self._tables: list[_Table] = []

    def add(self, name: str, watch: TableWatch, at_once: int = 1_000) -> None:
        """Compare this table, too, and have ``at_once`` of its rows repaired at a time. Raises what boto3 raises: what
        is known of it already is asked for."""
        former = None
        try:
            former = watched.read(self._kept.s3, self._kept.lake, name)
        except UserError as error:  # it is written anew
            _tell(str(error))
        self._tables.append(_Table(name, watch, at_once, time.time(), former))

    def run(self, *, once: bool) -> bool:
        """Compare until Ctrl-C or SIGTERM, or ``once``, until nothing is suspected any more, or the lake does not come
        as far as its source; say whether all rows were equal at the end, and told where it was ``once``. After SIGTERM
        nothing is said. Raises CredentialsRefused."""
        ended = False
        try:
            with _terminable(), _Pulse(self._kept, [] if once else [table.name for table in self._tables]) as pulse:
                works = [self._upkeep()]
                for table in self._tables:
                    works.append(self._rounds(table, once=once))
                    works += [self._trials(table, again=again) for again in (False, True)]
                for _ in _in_turn(works):
                    pulse.step()
                    if once and all(map(self._is_done, self._tables)):
                        break
            ended = True
        except KeyboardInterrupt:
            # Who ends it by hand wants it no more; a service manager may start it again.
            ended = True
            say("Ended")
        except _Terminated:
            say("Ended by SIGTERM")
            return True
        finally:
            for table in self._tables:
                self._look_after(table, ended=ended)
        return all(
            table.is_known
            and not table.watch.differences
            and not table.failures
            and not (once and table.watch.unsettled)
            for table in self._tables
        )

    def _is_done(self, table: _Table) -> bool:
        """Whether one round has told all that it can, and had repaired what it found."""
        if any(failure.times >= _TRIES_ONCE for failure in table.failures.values()):
            return True
        if table.watch.behind_seconds >= _BEHIND_SECONDS:
            return True
        is_told = table.rounds > 0 and table.watch.is_settled and table.told == table.watch.differences
        repairs = self._repairs
        return is_told and (repairs is None or (repairs.are_done and repairs.have_asked(table.name, table.told)))

    def _rounds(self, table: _Table, *, once: bool) -> Iterator[float]:
        while True:
            began = time.monotonic()
            try:
                yield from table.watch.round()
            except CredentialsRefused:
                raise
            except Exception as error:  # whatever it is, a comparison that never ends goes on
                yield self._failed(table, _ROUNDS, error)
                continue
            table.failures.pop(_ROUNDS, None)
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

    def _trials(self, table: _Table, *, again: bool) -> Iterator[float]:
        part = "again" if again else "trials"
        while True:
            done = table.watch.trials_done
            try:
                for seconds in table.watch.trials(again=again):
                    if table.watch.trials_done > done:
                        table.failures.pop(part, None)
                    yield seconds
            except CredentialsRefused:
                raise
            except Exception as error:  # as above
                yield self._failed(table, part, error)

    def _failed(self, table: _Table, part: str, error: Exception) -> float:
        """Tell why a part of a comparison failed, and return the seconds until it is tried again."""
        said = _said(error)
        former = table.failures.get(part)
        if former is None or former.said != said:
            detail = "" if isinstance(error, UserError) else f": {error}"
            _tell(f"{table.name} could not be compared, and is again soon: {said}{detail}")
        times = 1 if former is None else former.times + 1
        table.failures[part] = _Failure(said, time.time() if former is None else former.since, times)
        return min(_AFTER_ERROR_SECONDS * 2.0 ** min(times - 1, 10), _MOST_AFTER_ERROR_SECONDS)

    def _upkeep(self) -> Iterator[float]:
        while True:
            for table in self._tables:
                try:
                    self._look_after(table)
                    if self._repairs is not None:
                        self._repairs.ask(table.name, dict(table.watch.differences), table.at_once)
                except Exception as error:  # as above
                    _tell(f"{table.name}: what is known of it could not be told: {_said(error)}")
            yield _POLL_SECONDS

    def _look_after(self, table: _Table, *, ended: bool | None = None) -> None:
        """Name what has begun or ceased to differ, and keep what is known, now and then and where it has changed;
        surely where ``ended`` says how the comparison ends."""
        former, table.told = table.told, dict(table.watch.differences)
        for key, difference in table.told.items():
            if key not in former or former[key].kind != difference.kind:
                _tell(f"{table.name} {difference.row}: {difference.kind}")
                for column, (in_source, in_lake) in difference.columns.items():
                    say(printable(f"  {column}: source {in_source} | lake {in_lake}"))
        gone = [key for key in former if key not in table.told]
        for key in gone:
            _tell(f"{table.name} {former[key].row}: equal again")
        if self._repairs is not None:
            self._repairs.forget(table.name, gone)
        at = time.monotonic()
        if former != table.told or ended is not None or at - table.kept_at >= _TOLD_SECONDS:
            self._keep(table, at, ended)

    def _keep(self, table: _Table, at: float, ended: bool | None) -> None:
        known = self._known(table, ended=bool(ended))
        is_due = at - table.kept_at >= _TOLD_SECONDS or ended is not None
        table.kept_at = at if is_due else table.kept_at
        if known.is_behind and is_due:
            behind = known.behind_seconds
            _tell(f"{table.name}: the lake has not come as far as the source was {behind:,.0f} s ago; waiting")
        try:
            watched.write(self._kept.s3, self._kept.lake, known)
            if self._kept.cloudwatch is not None and is_due:
                watched.measure(self._kept.cloudwatch, self._kept.database, known)
        except (BotoCoreError, ClientError) as error:
            _tell(f"{table.name}: what is known of it could not be kept: {error}")

    def _known(self, table: _Table, *, ended: bool) -> Watched:
        watch = table.watch
        kinds = watch.kinds()
        repair = self._repairs.failed.get(table.name, "") if self._repairs is not None else ""
        failure = table.failure
        now = Watched(
            table=table.name,
            at=time.time(),
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
            error=failure.said if failure else (f"not repaired: {repair}" if repair else ""),
            every=max(self._every, table.seconds),
            started_at=table.started_at,
            error_since=failure.since if failure else None,
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


class _Terminated(SystemExit):
    """SIGTERM has come. As at any end of a program, a statement that runs is cancelled."""


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

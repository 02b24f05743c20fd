"""The comparison of ``headwater verify --watch``, which compares all tables until somebody ends it."""

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
from headwater.verify import raised_in
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
# The longest time of a step: a pass over a table and one more statement.
_LONGEST_STEP_SECONDS = (PASS_MINUTES + STATEMENT_MINUTES) * 60.0

Repair = Callable[[str, Sequence[Difference], bool], bool]
"""Has a table's differing rows read again, and returns whether the whole table is read.

The last argument allows reading the whole table, if that is needed. Raises UserError.
"""


@dataclass(frozen=True)
class Kept:
    """The lake and the metrics that hold the comparison's results, for ``headwater status`` and the alarms."""

    s3: Any
    """boto3's client for S3."""
    lake: str
    """The address of the lake. The results lie beside its tables."""
    cloudwatch: Any = None
    """boto3's client for CloudWatch; None if the lake belongs to no environment."""
    database: str = ""
    """The environment's Glue database, which names its metrics."""


@dataclass
class _Failure:
    """A failure of one part of a comparison. The part is tried again."""

    said: str
    """The error, without values of rows."""
    since: float
    """When it failed first, in epoch seconds."""
    times: int = 1
    """How often the part has failed since then."""


@dataclass
class _Table:
    """The comparison of one table, and its progress."""

    name: str
    """The table's name."""
    watch: TableWatch
    """The table's comparison."""
    at_once: int
    """How many rows one repair reads at most."""
    started_at: float
    """When this run began, in epoch seconds."""
    former: Watched | None = None
    """The results of an earlier run."""
    rounds: int = 0
    """How many rounds are complete."""
    round_at: float | None = None
    """When the last complete round ended, in epoch seconds."""
    seconds: float = 0.0
    """How long the last complete round took."""
    told: Mapping[Row, Difference] = field(default_factory=dict)
    """The differences that were printed."""
    failures: dict[str, _Failure] = field(default_factory=dict)
    """The current failures, by part of the comparison."""
    kept_at: float = -math.inf
    """When the results were last written, in seconds of the monotonic clock."""

    @property
    def is_known(self) -> bool:
        """Whether the first round and its trials are complete, or rows are known to differ."""
        return bool(self.watch.differences) or self.watch.has_tried_first

    @property
    def failure(self) -> _Failure | None:
        """The failure that has lasted longest, if there is one."""
        return min(self.failures.values(), key=lambda failure: failure.since, default=None)


class _Repairs:
    """Has differing rows read again, in threads of its own, because a repair may wait for a job.

    A table has at most one repair at a time, and a repair has a bounded number of rows.
    """

    def __init__(self, repair: Repair) -> None:
        self._repair = repair
        self._busy: set[str] = set()
        self._asked_at: dict[tuple[str, Row], float] = {}
        self._whole_at: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        """By table, why its last repair failed."""

    @property
    def are_done(self) -> bool:
        """Whether no repair is running."""
        return not self._busy

    def have_asked(self, name: str, differences: Iterable[Row]) -> bool:
        """Whether a repair of each of these rows was started."""
        return all((name, key) in self._asked_at for key in differences)

    def ask(self, name: str, differences: Mapping[Row, Difference], at_once: int) -> None:
        """Have some of a table's differing rows read again, first those that have waited longest for a repair.

        Rows are left out if their last repair is too recent to have reached the lake. A whole table is read again a few
        times a day at most.
        """
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
        # A daemon thread: the end of the comparison does not wait for a repair, which the job or the connector finishes
        # without this process.
        work = (name, [differences[key] for key in chosen], may_be_whole)
        threading.Thread(target=self._run, args=work, daemon=True).start()

    def forget(self, name: str, keys: Iterable[Row]) -> None:
        """Forget when these rows were repaired, because they no longer differ."""
        for key in keys:
            self._asked_at.pop((name, key), None)

    def _run(self, name: str, chosen: Sequence[Difference], may_be_whole: bool) -> None:
        try:
            if self._repair(name, chosen, may_be_whole):
                self._whole_at[name] = time.monotonic()
            self.failed.pop(name, None)
        except BaseException as error:  # the comparison goes on after any error of a repair
            self.failed[name] = _said(error)
            _tell(f"{name}: the repair failed, and the rows still differ; next try in ten minutes: {self.failed[name]}")
        finally:
            self._busy.discard(name)


class _Pulse:
    """Reports to CloudWatch once a minute that the comparison of these tables runs.

    The thread reports even while a long statement runs. It stops at the end of its context, or if one step takes longer
    than the longest allowed step.
    """

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
        # The thread is not joined: the end of the comparison should not wait for a request.
        self._over.set()

    def step(self) -> None:
        """Record that a step of the comparison has ended."""
        self._stepped_at = time.monotonic()

    def _beat(self) -> None:
        while True:
            if time.monotonic() - self._stepped_at < _LONGEST_STEP_SECONDS:
                try:
                    watched.tell_that_it_runs(self._kept.cloudwatch, self._kept.database, self._tables)
                except (BotoCoreError, ClientError) as error:
                    _tell(f"CloudWatch was not told that the comparison runs, so its alarm may ring falsely: {error}")
            if self._over.wait(_TOLD_SECONDS):
                return


class EndlessComparison:
    """Compares each table every ``every`` seconds, and repairs differing rows by ``repair``, if that is given.

    A differing row is repaired as soon as it is found, and again from time to time while it differs.
    """

    def __init__(self, every: float, kept: Kept, repair: Repair | None) -> None:
        self._every = every
        self._kept = kept
        self._repairs = _Repairs(repair) if repair is not None else None
        self._tables: list[_Table] = []

    def add(self, name: str, watch: TableWatch, at_once: int = 1_000) -> None:
        """Add a table, and read the results of an earlier run. One repair reads at most ``at_once`` rows.

        Raises what boto3 raises.
        """
        former = None
        try:
            former = watched.read(self._kept.s3, self._kept.lake, name)
        except UserError as error:  # unreadable results are replaced by this run's
            _tell(str(error))
        self._tables.append(_Table(name, watch, at_once, time.time(), former))

    @property
    def failures(self) -> dict[str, str]:
        """Why tables cannot be compared now, by table."""
        return {table.name: table.failure.said for table in self._tables if table.failure is not None}

    def run(self, *, once: bool) -> bool:
        """Compare until Ctrl-C or SIGTERM, and return whether all rows were equal at the end.

        With ``once``, the comparison ends after one round and its trials. It ends earlier if the lake stays behind its
        source, or a table has failed three times. With ``once``, undecided rows count as not equal. SIGTERM always
        returns True. Raises CredentialsRefused.
        """
        ended = False
        try:
            with _terminable(), _Pulse(self._kept, [] if once else [table.name for table in self._tables]) as pulse:
                # Each table has three tasks: its rounds, the first trials of rows that differ, and further trials.
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
            # Ctrl-C ends the comparison for good. SIGTERM comes from a service manager, which may start it again.
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
        """Whether one round has printed all its results and started a repair of each row that differs."""
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
            except Exception as error:  # the comparison goes on after any error of a round
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
                f"{len(watch.differences):,} {more}differ, {watch.unsettled:,} undecided"
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
        """Print why a part of a comparison failed, and return the seconds until its next try."""
        said = _said(error)
        former = table.failures.get(part)
        if former is None or former.said != said:
            detail = "" if isinstance(error, UserError) else raised_in(error)
            _tell(f"{table.name}: the comparison failed and tries again soon: {said}{detail}")
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
                    _tell(f"{table.name}: its results could not be shown or stored: {_said(error)}")
            yield _POLL_SECONDS

    def _look_after(self, table: _Table, *, ended: bool | None = None) -> None:
        """Print which rows have begun or ceased to differ, and write the results into the lake.

        The results are written once a minute, when they have changed, and at the end. ``ended`` is None before the end.
        At the end it says whether somebody ended the comparison on purpose.
        """
        # Compare the present differences with those that were printed before.
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
            _tell(f"{table.name}: waiting, because the lake lacks changes that the source made {behind:,.0f} s ago")
        try:
            watched.write(self._kept.s3, self._kept.lake, known)
            if self._kept.cloudwatch is not None and is_due:
                watched.measure(self._kept.cloudwatch, self._kept.database, known)
        except (BotoCoreError, ClientError) as error:
            _tell(f"{table.name}: its results could not be stored, so headwater status shows older ones: {error}")

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
    """Run the steps of several tasks in turn, and yield after each step.

    A step yields the seconds until the next step of its task.
    """
    # A heap of the next steps, by the time when they are due. Numbers decide between steps of the same time.
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
    """SIGTERM has arrived. The program ends as at any exit: a running statement is cancelled."""


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
    """Return the text of a UserError, or another error's type, because its text may repeat a row's values."""
    return str(error) if isinstance(error, UserError) else type(error).__name__


def _tell(text: str) -> None:
    say(printable(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}"))

"""The comparison of ``headwater verify --watch``: all tables in turn, until somebody ends it."""

from __future__ import annotations

import datetime as dt
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.console import say
from headwater.errors import UserError
from headwater.operations import watched
from headwater.operations.watched import Watched
from headwater.verify.forms import Row
from headwater.verify.watch import DIFFERENT, EXTRA, MISSING, Difference, TableWatch

_POLL_SECONDS = 1.0
_TOLD_SECONDS = 60.0
_AFTER_ERROR_SECONDS = 10.0
_AGAIN_SECONDS = 600.0
_BEHIND_SECONDS = 900.0

Repair = Callable[[str, Sequence[Difference]], None]
"""Has rows of a table that differ read again. Raises UserError."""


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
    """A table, and what is known of it beside its comparison: how many ``rounds`` were complete, and when the last one
    was."""

    watch: TableWatch
    rounds: int = 0
    round_at: float | None = None
    told: Mapping[Row, Difference] = field(default_factory=dict)
    error: str = ""
    kept_at: float = 0.0
    measured_at: float = 0.0
    mended_at: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether all rows were compared, and what was suspected then was tried, or rows are known to differ."""
        is_tried = self.rounds > 1 or (self.rounds == 1 and self.watch.is_settled)
        return is_tried or bool(self.watch.differences)


class EndlessComparison:
    """Compares tables every ``every`` seconds. Has rows that differ read again by ``repair``, where there is one: as
    soon as they are found, and now and then where a round finds them still."""

    def __init__(self, every: float, kept: Kept, repair: Repair | None) -> None:
        self._every = every
        self._kept = kept
        self._repair = repair
        self._tables: dict[str, _Table] = {}

    def add(self, name: str, watch: TableWatch) -> None:
        """Compare this table, too."""
        self._tables[name] = _Table(watch)

    def run(self, *, once: bool) -> bool:
        """Compare until Ctrl-C or SIGTERM, or ``once``, until nothing is suspected any more, or the lake does not come
        as far as its source; say whether all rows were equal at the end."""
        former = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                began = time.monotonic()
                for name, table in self._tables.items():
                    self._round(name, table)
                if once:
                    self._await_settled()
                    break
                self.rest(max(self._every - (time.monotonic() - began), 0))
        except KeyboardInterrupt:
            say("Ended")
        finally:
            signal.signal(signal.SIGTERM, former)
            for name, table in self._tables.items():
                self._keep(name, table, ended=True)
        return all(
            table.is_known and not table.watch.differences and not table.error for table in self._tables.values()
        )

    def rest(self, seconds: float) -> None:
        """Wait, and try meanwhile what is suspected."""
        until = time.monotonic() + seconds
        while True:
            self._settle()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _POLL_SECONDS))

    def _await_settled(self) -> None:
        def waits(table: _Table) -> bool:
            return not table.watch.is_settled and not table.error and table.watch.behind_seconds < _BEHIND_SECONDS

        while any(map(waits, self._tables.values())):
            self.rest(_POLL_SECONDS)

    def _round(self, name: str, table: _Table) -> None:
        before = list(table.watch.differences)
        began = time.monotonic()
        try:
            for _ in table.watch.round():
                self._settle()
        except Exception as error:  # whatever it is, a comparison that never ends goes on
            self._failed(name, table, error)
            self.rest(_AFTER_ERROR_SECONDS)
            return
        table.error = ""
        table.round_at = time.time()
        table.rounds += 1
        watch = table.watch
        _tell(
            f"{name}: {watch.source_rows:,} rows compared in {time.monotonic() - began:,.0f} s, "
            f"{len(watch.differences):,} differ, {watch.unsettled:,} could not be told"
        )
        # A table that is being read again is not ready sooner for being asked for anew.
        if time.time() - table.mended_at >= _AGAIN_SECONDS:
            self._mend(name, table, [watch.differences[key] for key in before if key in watch.differences])

    def _settle(self) -> None:
        for name, table in self._tables.items():
            try:
                found = table.watch.settle()
            except Exception as error:  # as above
                self._failed(name, table, error)
                continue
            self._tell_of(name, table)
            self._mend(name, table, found)
            self._keep(name, table)

    def _failed(self, name: str, table: _Table, error: Exception) -> None:
        said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        if said != table.error:
            _tell(f"{name} could not be compared, and is again soon: {said}")
        table.error = said

    def _mend(self, name: str, table: _Table, found: Sequence[Difference]) -> None:
        if self._repair is None or not found:
            return
        table.mended_at = time.time()
        try:
            self._repair(name, found)
        except typer.Exit:  # Ctrl-C while it was watched
            raise KeyboardInterrupt from None
        except Exception as error:  # as above
            self._failed(name, table, error)

    def _tell_of(self, name: str, table: _Table) -> None:
        """Name what has begun or ceased to differ."""
        now = dict(table.watch.differences)
        for key, difference in now.items():
            if key not in table.told or table.told[key].kind != difference.kind:
                _tell(f"{name} {difference.row}: {difference.kind}")
                for column, (in_source, in_lake) in difference.columns.items():
                    say(f"  {column}: source {in_source} | lake {in_lake}")
        for key, difference in table.told.items():
            if key not in now:
                _tell(f"{name} {difference.row}: equal again")
        if now != table.told:
            table.kept_at = 0.0
        table.told = now

    def _keep(self, name: str, table: _Table, *, ended: bool = False) -> None:
        """Keep what is known of a table, now and then and where it has changed."""
        now = time.time()
        if now - table.kept_at < _TOLD_SECONDS and not ended:
            return
        known = _known(name, table, now, ended=ended)
        if known.behind_seconds:
            _tell(f"{name}: the lake has not come as far as the source was {known.behind_seconds:,.0f} s ago; waiting")
        try:
            watched.write(self._kept.s3, self._kept.lake, known)
            if (
                self._kept.cloudwatch is not None
                and table.is_known
                and (now - table.measured_at >= _TOLD_SECONDS or ended)
            ):
                table.measured_at = now
                watched.measure(self._kept.cloudwatch, self._kept.database, known)
        except (BotoCoreError, ClientError) as error:
            _tell(f"{name}: what is known of it could not be kept: {error}")
        table.kept_at = now


def _known(name: str, table: _Table, now: float, *, ended: bool) -> Watched:
    watch = table.watch
    kinds = watch.kinds()
    return Watched(
        name,
        now,
        ended,
        table.round_at if table.is_known else None,
        watch.source_rows,
        watch.lake_rows,
        watch.unsettled,
        kinds[MISSING],
        kinds[EXTRA],
        kinds[DIFFERENT],
        min((difference.since for difference in watch.differences.values()), default=None),
        watch.behind_seconds,
        table.error,
    )


def _tell(text: str) -> None:
    say(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}")

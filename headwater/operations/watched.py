"""The results of ``headwater verify --watch`` for a table, which it keeps in the lake and sends to CloudWatch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from headwater.console import one_line
from headwater.errors import UserError
from headwater.lake.base import metrics
from headwater.lake.base.command_lines import CommandLines
from headwater.lake.base.s3_uri import key_below, object_uri, split_uri
from headwater.operations.state import Problem

_FOLDER = "_verify"
_LONG_SECONDS = 900.0
# A round is late after the time of three usual rounds, but never within the first hour.
_ROUNDS = 3
_ROUND_SECONDS = 3600.0
# Undecided rows are a problem only beyond both limits, because a few rows are always being changed.
_MANY_ROWS = 10
_MANY_SHARE = 0.01
_ERROR_LETTERS = 500


@dataclass(frozen=True)
class Watched:
    """The results of the comparison of one table.

    Moments are in epoch seconds. Rows that differ are counted but not named, because an erasure does not reach these
    results.
    """

    table: str
    """The name of the lake table."""
    at: float
    """The moment of these results."""
    ended: bool = False
    """Whether somebody has ended the comparison on purpose, by Ctrl-C or by ``--once``. Then no alarm waits for more
    results. After a crash or SIGTERM it stays False, and after a quarter of an hour the comparison counts as missing.
    """
    round_at: float | None = None
    """When the last round over all rows was complete; None if there was none."""
    source_rows: int = 0
    """The number of rows that this round read in the source."""
    lake_rows: int = 0
    """The number of rows that this round read in the lake."""
    unsettled: int = 0
    """The number of rows of this round that could not be decided."""
    missing: int = 0
    """The number of rows that are missing in the lake now."""
    extra: int = 0
    """The number of rows in the lake that the source does not have."""
    different: int = 0
    """The number of rows whose values differ now."""
    since: float | None = None
    """The moment since when rows have differed; None if none do."""
    behind_seconds: float = 0.0
    """For how long the comparison has waited for the lake."""
    error: str = ""
    """Why the comparison fails, or "" if it does not."""
    every: float = 0.0
    """The seconds between the ends of two rounds: as ``--every`` says, or more if a round takes longer."""
    started_at: float | None = None
    """When the comparison was started first after one was ended on purpose."""
    error_since: float | None = None
    """The moment since when the comparison has failed."""
    is_former: bool = False
    """Whether the counts come from an earlier run, because this one has none yet (see ``carried``)."""

    @property
    def differences(self) -> int:
        """How many rows differ."""
        return self.missing + self.extra + self.different

    @property
    def is_known(self) -> bool:
        """Whether the results say anything about the table's rows."""
        return self.round_at is not None or self.differences > 0

    @property
    def is_behind(self) -> bool:
        """Whether the lake has been behind its source for long, so that no suspected row can be checked."""
        return self.behind_seconds > _LONG_SECONDS

    @property
    def fails(self) -> bool:
        """Whether the comparison has failed for long."""
        return bool(self.error) and self.error_since is not None and self.at - self.error_since > _LONG_SECONDS

    def counts(self) -> str:
        """The counts of rows that differ, in words."""
        kinds = {"missing": self.missing, "too many": self.extra, "different": self.different}
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)

    def overdue_seconds(self, now: float) -> float:
        """The seconds since the last complete round if these are unusually many, else 0."""
        began = [moment for moment in (self.round_at, self.started_at) if moment is not None]
        seconds = now - max(began) if began else 0.0
        return seconds if seconds > max(_ROUNDS * self.every, _ROUND_SECONDS) else 0.0


def carried(former: Watched | None, now: Watched) -> Watched:
    """Combine the results ``now`` with the ``former`` run's until the first round of this run is complete.

    So a new start hides no difference that was found before it.
    """
    if former is None or now.round_at is not None:
        return now
    counted = former if former.round_at is not None else now
    return replace(
        now,
        round_at=former.round_at,
        source_rows=counted.source_rows,
        lake_rows=counted.lake_rows,
        unsettled=max(former.unsettled, now.unsettled),
        missing=max(former.missing, now.missing),
        extra=max(former.extra, now.extra),
        different=max(former.different, now.different),
        since=_first(former.since, now.since),
        every=max(former.every, now.every),
        # Otherwise the age of a comparison that always crashes in its first round would never grow.
        started_at=now.started_at if former.ended else _first(former.started_at, now.started_at),
        is_former=former.is_known and not now.differences,
    )


def write(s3: Any, lake: str, watched: Watched) -> None:
    """Store a table's results in the lake at ``s3://bucket/prefix``. Raises the exceptions of boto3."""
    bucket, key = _place(lake, watched.table)
    kept = replace(watched, error=_bounded(watched.error))
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(asdict(kept), ensure_ascii=False).encode())


def read(s3: Any, lake: str, table: str) -> Watched | None:
    """Read a table's results; None if the table was never compared with ``--watch``.

    Fields that only another release knows are left out. Raises UserError if the file has other content, and the
    exceptions of boto3.
    """
    bucket, key = _place(lake, table)
    try:
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    try:
        known = msgspec.json.decode(body, type=Watched)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{object_uri(bucket, key)}: found {error}, expected a table's results as headwater verify --watch writes "
            "them"
        ) from None
    return replace(known, table=table, error=_bounded(known.error))


def measure(cloudwatch: Any, database: str, watched: Watched) -> None:
    """Send a table's counts to CloudWatch, for the environment of the Glue database.

    The counts are the rows that differ, and the hindrances of the comparison. Raises the exceptions of boto3.
    """
    kept_from = (watched.is_behind, watched.fails, watched.overdue_seconds(watched.at) > 0)
    hindrances = 0 if watched.ended else sum(kept_from)
    values = {metrics.HINDRANCES: hindrances}
    # An earlier run's figures are not sent again: CloudWatch counts the greatest of a minute, and the first round of
    # this run may end within the same minute.
    if watched.is_known and (watched.ended or not watched.is_former):
        values[metrics.DIFFERENCES] = watched.differences
    elif not watched.ended and not hindrances:
        # Before the first round, a 0 alone would end the alarm of a table that may still differ.
        return
    _send(cloudwatch, database, [(watched.table, name, value) for name, value in values.items()])


def tell_that_it_runs(cloudwatch: Any, database: str, tables: Iterable[str]) -> None:
    """Report to CloudWatch that the comparison of these tables runs. Raises the exceptions of boto3."""
    _send(cloudwatch, database, [(table, metrics.COMPARISONS, 1) for table in tables])


def _send(cloudwatch: Any, database: str, values: Sequence[tuple[str, str, float]]) -> None:
    """Send values of tables' metrics, a few hundred at most."""
    cloudwatch.put_metric_data(
        Namespace=metrics.NAMESPACE,
        MetricData=[
            {
                "MetricName": name,
                "Dimensions": [{"Name": metrics.DATABASE, "Value": database}, {"Name": metrics.TABLE, "Value": table}],
                "Unit": "Count",
                "Value": float(value),
            }
            for table, name, value in values
        ],
    )


def observe(s3: Any, lake: str, table: str, now: float, commands: CommandLines) -> tuple[dict[str, Any], list[Problem]]:
    """The facts of a table's comparison, each None if unknown, and its problems. Raises the exceptions of boto3."""
    try:
        known = read(s3, lake, table)
    except UserError as error:
        advice = f"{commands.verify('--watch', '--once')} compares the table and writes the file anew"
        return _facts(None), [Problem(str(error), advice, "differs")]
    return _facts(known), [] if known is None else problems(known, now, commands)


def problems(watched: Watched, now: float, commands: CommandLines) -> list[Problem]:
    """The problems of the table, and of its comparison unless somebody has ended it on purpose."""
    found = []
    if watched.differences:
        found.append(
            Problem(
                f"rows of {watched.table} differ from their source: {watched.counts()}",
                f"{commands.verify('--watch', '--once')} names them; to have them read again, "
                f"{commands.verify('--watch', '--once', '--repair')}",
                "differs",
            )
        )
    if watched.ended:
        return found
    quiet = now - watched.at
    if quiet > _LONG_SECONDS:
        found.append(
            Problem(
                f"the comparison has said nothing for {quiet:,.0f} s, so rows may differ without notice",
                "start it again on the same machine; if nobody needs it any more, "
                f"{commands.verify('--watch', '--once')} ends it",
                "differs",
            )
        )
    else:
        found += _hindrances(watched, now, commands)
    if watched.error:
        found.append(
            Problem(
                f"the comparison fails: {watched.error}",
                "remove the error's cause; the comparison tries again by itself",
                "differs",
            )
        )
    return found


def _hindrances(watched: Watched, now: float, commands: CommandLines) -> list[Problem]:
    """The reasons why a running comparison cannot decide all rows."""
    found = []
    if watched.is_behind:
        found.append(
            Problem(
                f"the lake does not have what its source had {watched.behind_seconds:,.0f} s ago; until it has, rows "
                "that seem to differ cannot be checked",
                "find the first part that is behind or stands still, and repair it; the comparison then goes on",
                "differs",
            )
        )
    if overdue := watched.overdue_seconds(now):
        found.append(
            Problem(
                f"no round over all rows has ended in the last {overdue:,.0f} s",
                "read the last lines of the comparison; if a round takes that long, start it with as long an "
                "--every, or with a larger --share or --read-units",
                "differs",
            )
        )
    if watched.unsettled > max(_MANY_ROWS, _MANY_SHARE * watched.source_rows):
        found.append(
            Problem(
                f"{watched.unsettled:,} of {watched.source_rows:,} rows could not be checked: they changed during each "
                "try, or too many seemed to differ at once",
                "wait for the next round; if these rows remain, stop the writes to them for a while and compare by "
                f"{commands.verify()}",
                "differs",
            )
        )
    return found


def _facts(known: Watched | None) -> dict[str, Any]:
    return {
        "compared_at": known and known.round_at,
        "rows_compared": known and known.source_rows,
        "rows_that_differ": known.differences if known and known.is_known else None,
        "rows_differ_since": known and known.since,
        "rows_not_told": known and known.unsettled,
        "comparison_said_at": known and known.at,
        "comparison_ended": known and known.ended,
        "comparison_started_at": known and known.started_at,
        "comparison_every_seconds": known and known.every,
        "comparison_behind_seconds": known and known.behind_seconds,
        "comparison_error": known and known.error,
    }


def _first(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _bounded(error: str) -> str:
    return one_line(error)[:_ERROR_LETTERS]


def _place(lake: str, table: str) -> tuple[str, str]:
    bucket, prefix = split_uri(lake)
    return bucket, key_below(prefix, f"{_FOLDER}/{table}.json")

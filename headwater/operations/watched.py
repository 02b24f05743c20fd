"""What the comparison that never ends knows of a table: kept in the lake for all to see, and sent to CloudWatch."""

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
# A round is late after three usual ones, and never before the hour is over.
_ROUNDS = 3
_ROUND_SECONDS = 3600.0
# Rows that change whenever they are tried are many beyond both: a few are always being changed.
_MANY_ROWS = 10
_MANY_SHARE = 0.01
_ERROR_LETTERS = 500


@dataclass(frozen=True)
class Watched:
    """A table as the comparison knows it ``at`` a moment. Moments are in epoch seconds.

    ``ended`` says that somebody has ended the comparison on purpose, by Ctrl-C or because ``--once`` was through: then
    nobody waits for more. It is not set where a service manager stops it or starts it anew, nor where it crashes: such
    a comparison is missed once it has said nothing for a quarter of an hour.

    ``round_at`` is when a round over all rows was complete for the last time, None while nothing is known;
    ``source_rows`` and ``lake_rows`` are that round's, and ``unsettled`` are those of its rows that could not be told.
    ``missing``, ``extra`` and ``different`` rows differ now, since ``since``: they are not named, because nothing here
    is forgotten. ``is_former`` says that a former comparison knew all that, and this one nothing yet (``carried``).

    ``started_at`` is when the comparison was started, the first time after one was ended on purpose. ``every`` is how
    many seconds lie between the ends of two rounds: those that were asked for, or as many as a round takes where these
    are more. ``behind_seconds`` is how long it has waited for the lake, and ``error``, since ``error_since``, why it
    does not get on."""

    table: str
    at: float
    ended: bool = False
    round_at: float | None = None
    source_rows: int = 0
    lake_rows: int = 0
    unsettled: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    since: float | None = None
    behind_seconds: float = 0.0
    error: str = ""
    every: float = 0.0
    started_at: float | None = None
    error_since: float | None = None
    is_former: bool = False

    @property
    def differences(self) -> int:
        """How many rows differ."""
        return self.missing + self.extra + self.different

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the table's rows."""
        return self.round_at is not None or self.differences > 0

    @property
    def is_behind(self) -> bool:
        """Whether the lake has not come as far as its source for long, so that what is suspected is not tried."""
        return self.behind_seconds > _LONG_SECONDS

    @property
    def fails(self) -> bool:
        """Whether it has not got on for long."""
        return bool(self.error) and self.error_since is not None and self.at - self.error_since > _LONG_SECONDS

    def counts(self) -> str:
        """The rows that differ, in words."""
        kinds = {"missing": self.missing, "too many": self.extra, "different": self.different}
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)

    def overdue_seconds(self, now: float) -> float:
        """For how long no round was complete, and 0 where that is as it may be."""
        began = [moment for moment in (self.round_at, self.started_at) if moment is not None]
        seconds = now - max(began) if began else 0.0
        return seconds if seconds > max(_ROUNDS * self.every, _ROUND_SECONDS) else 0.0


def carried(former: Watched | None, now: Watched) -> Watched:
    """What is known of a table: what its comparison knows ``now``, and until its first round is complete what the
    ``former`` one knew, too. So a start hides nothing that was found before it."""
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
        # One that crashes before each first round would be young for ever.
        started_at=now.started_at if former.ended else _first(former.started_at, now.started_at),
        is_former=former.is_known and not now.differences,
    )


def write(s3: Any, lake: str, watched: Watched) -> None:
    """Keep what is known of a table of the lake at ``s3://bucket/prefix``. Raises what boto3 raises."""
    bucket, key = _place(lake, watched.table)
    kept = replace(watched, error=_bounded(watched.error))
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(asdict(kept), ensure_ascii=False).encode())


def read(s3: Any, lake: str, table: str) -> Watched | None:
    """What is known of a table, and None where it was never compared so. What another release has kept is read as far
    as this one knows it. Raises UserError where something else lies there, and what boto3 raises."""
    bucket, key = _place(lake, table)
    try:
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    try:
        known = msgspec.json.decode(body, type=Watched)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{object_uri(bucket, key)}: found {error}, expected what headwater verify --watch keeps of a table, and "
            "writes anew"
        ) from None
    return replace(known, table=table, error=_bounded(known.error))


def measure(cloudwatch: Any, database: str, watched: Watched) -> None:
    """Send to CloudWatch, for the environment of the Glue database, how many rows of a table differ, and how many
    things keep its comparison from learning more. Raises what boto3 raises."""
    kept_from = (watched.is_behind, watched.fails, watched.overdue_seconds(watched.at) > 0)
    hindrances = 0 if watched.ended else sum(kept_from)
    values = {metrics.HINDRANCES: hindrances}
    # A former comparison has sent its own. Of a minute's figures the greatest counts, and the first round of this one
    # may be over within it.
    if watched.is_known and (watched.ended or not watched.is_former):
        values[metrics.DIFFERENCES] = watched.differences
    elif not watched.ended and not hindrances:
        # A 0 alone would end the alarm of a table of which this comparison knows nothing.
        return
    _send(cloudwatch, database, [(watched.table, name, value) for name, value in values.items()])


def tell_that_it_runs(cloudwatch: Any, database: str, tables: Iterable[str]) -> None:
    """Send to CloudWatch that the comparison of these tables runs. Raises what boto3 raises."""
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
    """The facts of a table's comparison, each None where there is none, and what is wrong. Raises what boto3 raises."""
    try:
        known = read(s3, lake, table)
    except UserError as error:
        advice = f"{commands.verify('--watch', '--once')} writes it anew"
        return _facts(None), [Problem(str(error), advice, "differs")]
    return _facts(known), [] if known is None else problems(known, now, commands)


def problems(watched: Watched, now: float, commands: CommandLines) -> list[Problem]:
    """What is wrong with the table, or with its comparison, where that was not ended on purpose."""
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
                f"the comparison has said nothing for {quiet:,.0f} s",
                "start it again where it ran; where nobody wants it any more, "
                f"{commands.verify('--watch', '--once')} ends it",
                "differs",
            )
        )
    else:
        found += _hindrances(watched, now, commands)
    if watched.error:
        found.append(
            Problem(
                f"the comparison does not get on: {watched.error}",
                "mend what it says; it tries again by itself",
                "differs",
            )
        )
    return found


def _hindrances(watched: Watched, now: float, commands: CommandLines) -> list[Problem]:
    """Why a comparison that runs knows less than it should."""
    found = []
    if watched.is_behind:
        found.append(
            Problem(
                f"the lake does not come as far as its source was {watched.behind_seconds:,.0f} s ago, and no row that "
                "is suspected can be told until it does",
                "see which part before it is behind or stands still",
                "differs",
            )
        )
    if overdue := watched.overdue_seconds(now):
        found.append(
            Problem(
                f"no round over all rows was complete for the last {overdue:,.0f} s",
                "see its last lines where it runs; where a round takes that long, start it with as long an --every, or "
                "with more of --share or --read-units",
                "differs",
            )
        )
    if watched.unsettled > max(_MANY_ROWS, _MANY_SHARE * watched.source_rows):
        found.append(
            Problem(
                f"{watched.unsettled:,} of {watched.source_rows:,} rows could not be told: they changed whenever they "
                "were tried, or were too many at once",
                "wait for the next round; where it stays so, stop what writes them for a while and compare by "
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

"""What the comparison that never ends has found of a table, which it keeps in the lake for all to see."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from headwater.lake import metrics
from headwater.lake.s3_uri import key_below, split_uri
from headwater.operations.state import Problem

_FOLDER = "_verify"
_QUIET_SECONDS = 900.0


@dataclass(frozen=True)
class Watched:
    """A table as the comparison knows it ``at`` a moment, in epoch seconds. ``ended`` where somebody has ended it.
    ``round_at`` is when a round over all rows was complete for the last time, None while nothing is known;
    ``source_rows`` and ``lake_rows`` are that round's, and ``unsettled`` are those of its rows that could not be told.
    ``missing``, ``extra`` and ``different`` rows differ now, since ``since``: they are not named, because nothing here
    is forgotten. ``behind_seconds`` is how long it has waited for the lake, and ``error`` why it does not get on."""

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

    @property
    def differences(self) -> int:
        """How many rows differ."""
        return self.missing + self.extra + self.different

    def counts(self) -> str:
        """The rows that differ, in words."""
        kinds = {"missing": self.missing, "too many": self.extra, "different": self.different}
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)


def write(s3: Any, lake: str, watched: Watched) -> None:
    """Keep what is known of a table of the lake at ``s3://bucket/prefix``. Raises what boto3 raises."""
    bucket, key = _place(lake, watched.table)
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(asdict(watched), ensure_ascii=False).encode())


def read(s3: Any, lake: str, table: str) -> Watched | None:
    """What is known of a table, and None where it was never compared so. Raises what boto3 raises."""
    bucket, key = _place(lake, table)
    try:
        return Watched(**json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
    except s3.exceptions.NoSuchKey:
        return None


def measure(cloudwatch: Any, database: str, watched: Watched) -> None:
    """Send how many rows of a table differ to CloudWatch, for the environment of the Glue database. Raises what boto3
    raises."""
    dimensions = {metrics.DATABASE: database, metrics.TABLE: watched.table}
    cloudwatch.put_metric_data(
        Namespace=metrics.NAMESPACE,
        MetricData=[
            {
                "MetricName": metrics.DIFFERENCES,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                "Unit": "Count",
                "Value": float(watched.differences),
            }
        ],
    )


def problems(watched: Watched, now: float, environment: str) -> list[Problem]:
    """What is wrong with the table, or with the comparison."""
    found = []
    if watched.differences:
        found.append(
            Problem(
                f"rows of {watched.table} differ from their source: {watched.counts()}",
                f"headwater verify {environment} --watch --once names them, and with --repair has them read again",
                "differs",
            )
        )
    quiet = now - watched.at
    if not watched.ended and quiet > _QUIET_SECONDS:
        advice = "start it again where it ran; where nobody wants it any more, start it and end it by Ctrl-C"
        found.append(Problem(f"the comparison has said nothing for {quiet:,.0f} s", advice, "differs"))
    if watched.error and not watched.ended:
        found.append(Problem(f"the comparison does not get on: {watched.error}", "see its message", "differs"))
    return found


def _place(lake: str, table: str) -> tuple[str, str]:
    bucket, prefix = split_uri(lake)
    return bucket, key_below(prefix, f"{_FOLDER}/{table}.json")

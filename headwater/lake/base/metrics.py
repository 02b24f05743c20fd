"""The writers' metrics in CloudWatch: their names, which the alarms use too, and the report that sends them."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Report = Callable[[dict[str, Any]], None]
"""Receives one event (a JSON document) at a time."""

NAMESPACE = "Headwater"
DATABASE = "Database"
"""The first dimension of every metric: the Glue database. Each environment of an account has its own."""
TABLE = "Table"
"""The second and last dimension."""

CHANGES = "Changes"
"""How many changes were committed. A writer that has nothing to do sends 0, so silence means that it does not run."""
FRESHNESS = "Freshness"
"""Seconds from the oldest change of a batch in its source to the batch's commit."""
COMMIT_SECONDS = "CommitSeconds"
"""How long a batch took to decode and to commit."""
QUARANTINED = "QuarantinedRecords"
"""How many records could not be decoded and were put aside."""
UNFIT = "UnfitValues"
"""How many conversion errors there were: values that did not fit their columns and are in ``_rest`` instead. It is sent
only if it is not 0."""
LEFT_OUT = "LeftOutAttributes"
"""How many attributes of DynamoDB's items were not stored. The contract excludes or masks a value inside them, and the
path to that value leads through a value that is not a map. It is sent only if it is not 0."""

DIFFERENCES = "Differences"
"""How many rows of a source and its lake table differ, by the last round of ``headwater verify --watch``."""
HINDRANCES = "ComparisonHindrances"
"""How many problems have held up this comparison for long. It is 0 once an operator has ended the comparison."""
COMPARISONS = "Comparisons"
"""How many such comparisons run. Each reports itself once a minute."""

_UNITS = {
    **dict.fromkeys((CHANGES, QUARANTINED, UNFIT, LEFT_OUT), "Count"),
    **dict.fromkeys((FRESHNESS, COMMIT_SECONDS), "Seconds"),
}
_VALUES_PER_DATUM = 150  # PutMetricData's limit


@dataclass
class _Pending:
    """The metrics of one table that are not sent yet."""

    sums: Counter[str] = field(default_factory=lambda: Counter({CHANGES: 0, QUARANTINED: 0}))
    """The totals of the counting metrics, by their names."""
    values: dict[str, Counter[float]] = field(default_factory=dict)
    """How often each value of the other metrics occurred, by their names."""

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, Counter())[round(value, 1)] += 1


class CloudWatchReport:
    """Makes metrics of a writer's events, and sends them to CloudWatch every ``every`` seconds.

    The thread of the first event after that time sends them. A failed request never stops the writer: its counts go
    with the next request, its values are dropped. Several threads may report at the same time.

    It uses these events, each with its ``table``, and ignores others:

    - ``commit``: ``changes``, ``unfit``, ``left_out``, ``seconds``, and two times in seconds since 1970:
      ``completed_at``, and ``oldest_source_at``, which is None if no change has a time.
    - ``quarantine``: ``records``.
    - ``idle``.
    """

    def __init__(
        self,
        cloudwatch: Any,
        database: str,
        every: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cloudwatch = cloudwatch
        self._database = database
        self._every = every
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._due = clock() + every

    def __call__(self, event: dict[str, Any]) -> None:
        """Count one event, and send the metrics if it is time to."""
        kind = event["event"]
        if kind not in ("commit", "quarantine", "idle"):
            return
        with self._lock:
            pending = self._pending.setdefault(event["table"], _Pending())
            if kind == "quarantine":
                pending.sums[QUARANTINED] += event["records"]
            elif kind == "commit":
                pending.sums[CHANGES] += event["changes"]
                for counted, name in (("unfit", UNFIT), ("left_out", LEFT_OUT)):
                    if event.get(counted):
                        pending.sums[name] += event[counted]
                pending.add(COMMIT_SECONDS, event["seconds"])
                if event["oldest_source_at"] is not None:
                    pending.add(FRESHNESS, max(event["completed_at"] - event["oldest_source_at"], 0.0))
            if self._clock() < self._due:
                return
        self.flush()

    def flush(self) -> None:
        """Send the metrics since the last request. Call this when the writer ends."""
        with self._lock:
            self._due = self._clock() + self._every
            pending, self._pending = self._pending, {}
        data = [datum for table, unsent in pending.items() for datum in self._data(table, unsent)]
        if not data:
            return
        try:
            self._cloudwatch.put_metric_data(Namespace=NAMESPACE, MetricData=data)
        except Exception as error:
            # An error of CloudWatch must not stop the writer. Missing metrics raise their own alarm.
            sys.stderr.write(f"CloudWatch refused metrics: {type(error).__name__}: {error}\n")
            with self._lock:
                for table, unsent in pending.items():
                    sums = self._pending.setdefault(table, _Pending()).sums
                    for name, value in unsent.sums.items():
                        sums[name] += value

    def _data(self, table: str, pending: _Pending) -> list[dict[str, Any]]:
        dimensions = [{"Name": DATABASE, "Value": self._database}, {"Name": TABLE, "Value": table}]
        data: list[dict[str, Any]] = [
            {"MetricName": name, "Dimensions": dimensions, "Unit": _UNITS[name], "Value": float(value)}
            for name, value in pending.sums.items()
        ]
        for name, values in pending.values.items():
            counted = sorted(values.items())
            for start in range(0, len(counted), _VALUES_PER_DATUM):
                part = counted[start : start + _VALUES_PER_DATUM]
                data.append(
                    {
                        "MetricName": name,
                        "Dimensions": dimensions,
                        "Unit": _UNITS[name],
                        "Values": [value for value, _ in part],
                        "Counts": [float(count) for _, count in part],
                    }
                )
        return data


def impatient_client(service: Literal["cloudwatch", "events", "s3"], attempts: int = 1) -> Any:
    """A client of an AWS service whose requests time out after a few seconds, since a writer waits for them."""
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=3, retries={"total_max_attempts": attempts})
    return boto3.client(service, config=config)


def to_all(*reports: Report) -> Report:
    """A report that passes each event to all of these reports, in order."""

    def report_to_all(event: dict[str, Any]) -> None:
        for report in reports:
            report(event)

    return report_to_all

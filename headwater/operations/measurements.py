"""The values of an environment's metrics in CloudWatch, read by few requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import UserError

_SECONDS = 60
_HOUR = 3600.0
# Seconds. An older value does not count as a metric's newest. CloudWatch has a minute's value some time later.
_NEWEST_SECONDS = 300.0
# GetMetricData takes at most this many metrics in one request.
_QUERIES = 500


@dataclass(frozen=True)
class Metric:
    """A metric."""

    namespace: str
    """The metric's namespace, such as ``AWS/Kafka``."""
    name: str
    """The metric's name."""
    dimensions: tuple[tuple[str, str], ...]
    """Names and values of the metric's dimensions."""
    statistic: str
    """The statistic that is read for each minute, such as ``Maximum``."""

    @classmethod
    def of(cls, namespace: str, name: str, statistic: str, **dimensions: str) -> Metric:
        """A metric. The dimensions' names are written with _ in place of a space."""
        spelled = tuple((key.replace("_", " "), value) for key, value in dimensions.items())
        return cls(namespace, name, spelled, statistic)


@dataclass(frozen=True)
class Measurements:
    """The values of an environment's metrics."""

    now: float
    """When they were read, in epoch seconds."""
    values: Mapping[Metric, Mapping[float, float]]
    """Each metric's values, by the epoch seconds at which their minutes begin. A metric that sent nothing has none."""
    unasked: str = ""
    """Why the metrics could not be read, or "" if they could."""

    def last(self, metric: Metric) -> float | None:
        """The newest value of the last five minutes; None if there is none."""
        values = self.values.get(metric, {})
        newest = max(values, default=0.0)
        return values[newest] if self.now - newest < _NEWEST_SECONDS else None

    def last_at(self, metric: Metric) -> float | None:
        """When the newest value's minute began, in epoch seconds."""
        return max(self.values.get(metric, {}), default=None)

    def most(self, metric: Metric, seconds: float) -> float | None:
        """The greatest value of the last ``seconds``; None if there is none."""
        return max(self._since(metric, seconds), default=None)

    def total(self, metric: Metric, seconds: float) -> float:
        """The sum of the values of the last ``seconds``."""
        return sum(self._since(metric, seconds))

    def _since(self, metric: Metric, seconds: float) -> list[float]:
        return [value for at, value in self.values.get(metric, {}).items() if self.now - at <= seconds]


def measured(cloudwatch: Any, metrics: Iterable[Metric], now: float, seconds: float) -> Measurements:
    """The values of metrics in the last ``seconds`` before ``now``, which is in epoch seconds.

    ``cloudwatch`` is boto3's client. Raises UserError if CloudWatch does not return a metric's values.
    """
    listed = list(dict.fromkeys(metrics))
    values: dict[Metric, dict[float, float]] = {}
    for start in range(0, len(listed), _QUERIES):
        asked = listed[start : start + _QUERIES]
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[_query(f"m{number}", metric) for number, metric in enumerate(asked)],
            StartTime=dt.datetime.fromtimestamp((now - seconds) // _SECONDS * _SECONDS, dt.UTC),
            EndTime=dt.datetime.fromtimestamp(now, dt.UTC),
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                if result["StatusCode"] not in ("Complete", "PartialData"):
                    name = asked[int(result["Id"][1:])].name
                    raise UserError(
                        f"CloudWatch: found {result['StatusCode']} for the metric {name}, expected its values"
                    )
                of = values.setdefault(asked[int(result["Id"][1:])], {})
                of.update(zip((at.timestamp() for at in result["Timestamps"]), result["Values"], strict=True))
    return Measurements(now, values)


def of_last_hour(cloudwatch: Any, metric: Metric, now: float) -> Mapping[float, float]:
    """The values of one metric in the hour before ``now``, by the epoch seconds at which each minute began.

    Raises as ``measured`` does, and the exceptions of boto3.
    """
    return measured(cloudwatch, [metric], now, _HOUR).values.get(metric, {})


def _query(id_: str, metric: Metric) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    described = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
    return {"Id": id_, "MetricStat": {"Metric": described, "Period": _SECONDS, "Stat": metric.statistic}}

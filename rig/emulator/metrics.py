"""Metrics that AWS services send by themselves, for the services that ministack mimics without metrics.

Alarms are evaluated in ``rig.local_aws.cloudwatch``: ministack ignores an alarm's dimensions, its number of periods,
and missing values.
"""

import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from ministack.services import cloudwatch, cloudwatch_logs, eventbridge, kinesis

HOOKS = (
    (cloudwatch, "TWO_WEEKS_SECONDS"),
    (cloudwatch, "_evaluate_alarm"),
    (cloudwatch, "record_metric"),
    (cloudwatch_logs, "_compile_filter_pattern"),
    (cloudwatch_logs, "_metric_filters"),
    (cloudwatch_logs, "_put_log_events"),
    (cloudwatch_logs, "_put_metric_filter"),
    (eventbridge, "_matches_pattern_view"),
    (eventbridge, "_rules"),
    (kinesis, "_get_records"),
    (kinesis, "_shard_iterators"),
)
"""The functions and attributes of ministack that this module calls or replaces."""

_TERM = re.compile(r"\?\w+")
_LITERAL = re.compile(r'"([^"]+)"')
_ARRIVAL = b'"ApproximateArrivalTimestamp":'
_SECONDS = re.compile(rb" ?([\d.]+)")
_RULE = "rule "
# No alarm reads values from further back, and each value of a metric is evaluated every minute.
_KEPT_SECONDS = 3 * 3600


def hook() -> None:
    """Send the metrics, and turn off ministack's evaluation of alarms."""
    cloudwatch.TWO_WEEKS_SECONDS = _KEPT_SECONDS
    cloudwatch._evaluate_alarm = lambda alarm: None
    cloudwatch_logs._compile_filter_pattern = _any_of_terms(cloudwatch_logs._compile_filter_pattern)
    cloudwatch_logs._put_log_events = _counting_lines(cloudwatch_logs._put_log_events)
    cloudwatch_logs._put_metric_filter = _of_a_text(cloudwatch_logs._put_metric_filter)
    eventbridge._matches_pattern_view = _counting_rules(eventbridge._matches_pattern_view)
    kinesis._get_records = _telling_age(kinesis._get_records)


def _of_a_text(put: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Refuse a metric filter that ``_counting_lines`` cannot evaluate."""

    def refusing(data: dict[str, Any]) -> Any:
        pattern = data["filterPattern"]
        if not _LITERAL.fullmatch(pattern):
            raise ValueError(f"FilterPattern: found {pattern}, expected one text in quotation marks")
        for metric in data["metricTransformations"]:
            if metric.get("dimensions") or metric["metricValue"].startswith("$"):
                raise ValueError(f"MetricTransformations: found {metric}, expected a number without dimensions")
        return put(data)

    return refusing


def _any_of_terms(compile_: Callable[[str], Callable[[str], bool]]) -> Callable[[str], Callable[[str], bool]]:
    """Make a pattern of several terms with question marks match a line that contains any of them, in the same case."""

    def compiling(pattern: str) -> Callable[[str], bool]:
        terms = pattern.split()
        if not terms or not all(_TERM.fullmatch(term) for term in terms):
            return compile_(pattern)
        return lambda message: any(term[1:] in message for term in terms)

    return compiling


def _counting_lines(put: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Send the metrics of a log group's filters."""

    def counting(data: dict[str, Any]) -> Any:
        answer = put(data)
        if answer[0] != HTTPStatus.OK:
            return answer
        lines = [event["message"] for event in data["logEvents"]]
        for (group, _), described in cloudwatch_logs._metric_filters.items():
            if group != data["logGroupName"]:
                continue
            text = _LITERAL.fullmatch(described["filterPattern"])[1]
            found = sum(1 for line in lines if text in line)
            for metric in described["metricTransformations"]:
                # The filter's value for each line that it finds; without a match, its default value once.
                values = [float(metric["metricValue"])] * found or [metric.get("defaultValue")]
                for value in values:
                    if value is not None:
                        cloudwatch.record_metric(metric["metricNamespace"], metric["metricName"], value)
        return answer

    return counting


def _counting_rules(matches: Callable[..., bool]) -> Callable[..., bool]:
    """Send how often an event has matched an EventBridge rule."""

    def counting(pattern: str, view: Any, owner: str = "rule") -> bool:
        found = matches(pattern, view, owner)
        rule = eventbridge._rules.get(owner.removeprefix(_RULE)) if found and owner.startswith(_RULE) else None
        if rule:
            cloudwatch.record_metric("AWS/Events", "TriggeredRules", 1, "Count", {"RuleName": rule["Name"]})
        return found

    return counting


def _telling_age(get: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Send the age of the last record that a stream's reader has received; a reader without records has read all."""

    def telling(data: dict[str, Any]) -> Any:
        state = kinesis._shard_iterators.get(data.get("ShardIterator"))
        answer = get(data)
        if state and answer[0] == HTTPStatus.OK:
            last = answer[2].rfind(_ARRIVAL)
            arrived = _SECONDS.match(answer[2], last + len(_ARRIVAL)) if last >= 0 else None
            age = max(time.time() - float(arrived[1]), 0) * 1000 if arrived else 0
            of = {"StreamName": state["stream"]}
            cloudwatch.record_metric("AWS/Kinesis", "GetRecords.IteratorAgeMilliseconds", age, "Milliseconds", of)
        return answer

    return telling

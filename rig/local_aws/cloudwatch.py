"""CloudWatch: the metrics that AWS services send by themselves, and alarms evaluated by CloudWatch's rules."""

from __future__ import annotations

import datetime as dt
import logging
import operator
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from headwater.errors import UserError
from rig.local_aws.account_context import AccountContext
from rig.local_aws.resources import Made, Properties, ResourceType, refuse_unread

ALARM = "AWS::CloudWatch::Alarm"
# CloudWatch reads values from before an alarm's periods; its documentation shows 5 periods for an alarm of 3.
_MORE_PERIODS = 2
_MINUTE = 60
# Long enough that the values measured at a minute's end have arrived.
_AFTER_THE_MINUTE = 1.0
# CloudWatch's limits per request.
_DATUMS = 1000
_QUERIES = 500
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
# How the values of several minutes, or of several metrics, become one.
_TOGETHER: Mapping[str, Callable[[Iterable[float]], float]] = {
    "Maximum": max,
    "Minimum": min,
    "SampleCount": sum,
    "Sum": sum,
}
_STATISTIC_OF = {"MAX": "Maximum", "MIN": "Minimum", "SUM": "Sum"}
# The API's types of an alarm's properties: a template may write numbers as texts.
_KEPT: Mapping[str, Callable[[Any], Any]] = {
    "AlarmActions": list,
    "AlarmDescription": str,
    "AlarmName": str,
    "ComparisonOperator": str,
    "DatapointsToAlarm": int,
    "Dimensions": list,
    "EvaluationPeriods": int,
    "MetricName": str,
    "Namespace": str,
    "OKActions": list,
    "Period": int,
    "Statistic": str,
    "Threshold": float,
    "TreatMissingData": str,
}
_BREACHING, _NOT_BREACHING, _IGNORE = "breaching", "notBreaching", "ignore"
_OF_METRICS = re.compile(r"(MAX|MIN|SUM)\(\[([a-zA-Z0-9_, ]+)\]\)")
_LOG = logging.getLogger(__name__)
_QUERY = re.compile(
    r'SELECT (MAX|MIN|SUM)\((\w+)\) FROM SCHEMA\("([^"]+)", ([\w, ]+)\) WHERE (\w+) = \'([^\']+)\'',
)


@dataclass(frozen=True)
class Measured:
    """A value of a metric, which an AWS service sends each minute."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Series:
    """The values of one metric: one per minute, by ``statistic``."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str


@dataclass(frozen=True)
class Selection:
    """Every metric of one name with these dimensions, and with a given value for one of the dimensions."""

    namespace: str
    name: str
    dimensions: frozenset[str]
    """The names of the dimensions."""
    where: tuple[str, str]
    """One dimension's name and value."""
    statistic: str


@dataclass(frozen=True)
class Rule:
    """The condition under which an alarm rings."""

    series: tuple[Series, ...]
    selections: tuple[Selection, ...]
    statistic: str
    """The statistic that joins the values of all series and selections into one."""
    minutes: int
    """The length of a period in minutes."""
    of_periods: int
    """How many of the most recent periods count."""
    enough: int
    """How many of these periods must be beyond the threshold."""
    comparison: str
    threshold: float
    missing: str
    """CloudWatch's TreatMissingData."""

    @property
    def range(self) -> int:
        """How many periods an evaluation reads."""
        return self.of_periods + _MORE_PERIODS

    def state(self, values: Sequence[float | None], former: str) -> str:
        """The state of the alarm after ``values``; ``former`` is the state before.

        ``values`` has one value per period of the range, the oldest first, and None for a period without a value. The
        newest values count, with the gaps between them left out. If they are too few, ``missing`` decides about the
        rest.
        """
        found = [value for value in values if value is not None][-self.of_periods :]
        beyond = _COMPARISONS[self.comparison]
        breaching = sum(1 for value in found if beyond(value, self.threshold))
        if self.missing == _BREACHING:
            breaching += self.of_periods - len(found)
        if breaching >= self.enough:
            return "ALARM"
        # The alarm keeps its state if values are missing and every value found is beyond the threshold.
        undecided = self.missing == _IGNORE and len(found) < self.of_periods and breaching == len(found)
        return former if undecided else "OK"


def rule_of(properties: Properties) -> Rule:
    """The rule of an alarm in a template. Raises UserError if the local AWS cannot evaluate it."""
    if "Metrics" in properties:
        series, selections, statistic, period = _of_math(properties["Metrics"])
    else:
        statistic, period = properties["Statistic"], properties["Period"]
        series, selections = (_series(properties, statistic),), ()
    periods = int(properties["EvaluationPeriods"])
    rule = Rule(
        series,
        selections,
        statistic,
        int(period) // _MINUTE,
        periods,
        int(properties.get("DatapointsToAlarm", periods)),
        properties["ComparisonOperator"],
        float(properties["Threshold"]),
        properties.get("TreatMissingData", "missing"),
    )
    for name, found, known in (
        ("Statistic", statistic, _TOGETHER),
        ("ComparisonOperator", rule.comparison, _COMPARISONS),
        ("TreatMissingData", rule.missing, (_BREACHING, _IGNORE, _NOT_BREACHING)),
    ):
        if found not in known:
            raise UserError(f"{ALARM}: {name}: found {found}, expected one of {', '.join(sorted(known))}")
    if int(period) % _MINUTE:
        raise UserError(f"{ALARM}: Period: found {period}, expected whole minutes")
    return rule


def _series(metric: Mapping[str, Any], statistic: str) -> Series:
    dimensions = sorted((each["Name"], each["Value"]) for each in metric.get("Dimensions", []))
    return Series(metric["Namespace"], metric["MetricName"], tuple(dimensions), statistic)


def _of_math(queries: Sequence[Properties]) -> tuple[tuple[Series, ...], tuple[Selection, ...], str, int]:
    """The series and selections of an expression, the statistic that joins them, and the period in seconds."""
    (told,) = [query for query in queries if query.get("ReturnData", True)]
    known, periods = {}, {told["Period"]} if "Period" in told else set()
    for query in queries:
        # A label has no effect on the value.
        query.get("Label")
        if "MetricStat" in query:
            of = query["MetricStat"]
            known[query["Id"]] = _series(of["Metric"], of["Stat"])
            periods.add(of["Period"])
    expression, told_id = told["Expression"], told["Id"]
    if len(periods) != 1:
        raise UserError(f"{ALARM}: {told_id}: found {len(periods)} periods, expected one for all of its metrics")
    (period,) = periods
    listed = _OF_METRICS.fullmatch(expression)
    if listed:
        statistic = _STATISTIC_OF[listed[1]]
        series = tuple(known[name.strip()] for name in listed[2].split(","))
        if {each.statistic for each in series} != {statistic}:
            raise UserError(f"{ALARM}: {told_id}: {expression} is evaluated here over the statistic {statistic} alone")
        return series, (), statistic, period
    selected = _QUERY.fullmatch(expression)
    if selected:
        function, name, namespace, dimensions, where, value = selected.groups()
        statistic = _STATISTIC_OF[function]
        schema = frozenset(each.strip() for each in dimensions.split(","))
        return (), (Selection(namespace, name, schema, (where, value), statistic),), statistic, period
    raise UserError(f"{ALARM}: {told_id}: the local AWS does not evaluate {expression!r}")


class Alarms:
    """The alarms of an account, evaluated at the end of each minute.

    They read the metrics of ``measures``, and all metrics that programs have sent to CloudWatch.
    """

    def __init__(self, context: AccountContext, measures: Sequence[Callable[[], Iterable[Measured]]]) -> None:
        self._context = context
        self._measures = measures
        self._rules: dict[str, Rule] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarms of CloudWatch", daemon=True)

    def __enter__(self) -> Alarms:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def types(self) -> dict[str, ResourceType[Any]]:
        """The resource types, by their names."""
        return {ALARM: _Alarm(self)}

    def put(self, properties: Properties) -> Made:
        """Make or change an alarm. A changed alarm keeps its state."""
        name, rule = properties["AlarmName"], rule_of(properties)
        # The emulator keeps alarms and reports their states, but it does not support metric math.
        request = {key: typed(properties[key]) for key, typed in _KEPT.items() if key in properties}
        refuse_unread(ALARM, properties)
        self._context.client("cloudwatch").put_metric_alarm(**request)
        self._rules[name] = rule
        return Made(name, {"Arn": f"arn:aws:cloudwatch:{self._context.region}:{self._context.account}:alarm:{name}"})

    def remove(self, name: str) -> None:
        """Delete an alarm."""
        self._rules.pop(name, None)
        self._context.client("cloudwatch").delete_alarms(AlarmNames=[name])

    def _run(self) -> None:
        while not self._closing.wait(_MINUTE - time.time() % _MINUTE + _AFTER_THE_MINUTE):
            try:
                self.evaluate(int(time.time()) // _MINUTE * _MINUTE)
            except Exception:
                self._tell("Alarms were not evaluated")

    def _tell(self, what: str) -> None:
        """Log the error that is being handled, unless the account is ending."""
        if not self._context.ending:
            _LOG.exception("%s; the next minute tries again", what)

    def evaluate(self, end: int) -> None:
        """Measure the services for the minute before ``end`` (epoch seconds), and set the state of each alarm."""
        rules = dict(self._rules)
        if not rules:
            return
        client = self._context.client("cloudwatch")
        self._send(client, end - 1)
        series = {name: self._series_of(client, rule) for name, rule in rules.items()}
        wanted = list(dict.fromkeys(each for of in series.values() for each in of))
        longest = max(rule.minutes * rule.range for rule in rules.values())
        values = self._values(client, wanted, end, longest)
        pages = client.get_paginator("describe_alarms").paginate()
        states = {alarm["AlarmName"]: alarm["StateValue"] for page in pages for alarm in page["MetricAlarms"]}
        # An alarm may have been deleted in the meantime.
        for name in sorted(rules.keys() & states.keys()):
            rule = rules[name]
            periods = _periods(rule, [values.get(each, {}) for each in series[name]], end)
            state = rule.state(periods, states[name])
            if state == states[name]:
                continue
            reason = f"{periods} against {rule.comparison} {rule.threshold:g}, {rule.enough} of {rule.of_periods}"
            try:
                client.set_alarm_state(AlarmName=name, StateValue=state, StateReason=reason)
            except ClientError:
                self._tell(f"The alarm {name} has not become {state}")

    def _send(self, client: Any, at: int) -> None:
        by_namespace: dict[str, list[dict[str, Any]]] = {}
        for measure in self._measures:
            # A part that does not answer sends no metrics, like an AWS service that is down.
            try:
                measured = list(measure())
            except Exception:
                self._tell("A part was not measured")
                continue
            for each in measured:
                datum = {
                    "MetricName": each.name,
                    "Dimensions": [{"Name": name, "Value": value} for name, value in each.dimensions.items()],
                    "Timestamp": dt.datetime.fromtimestamp(at, dt.UTC),
                    "Value": each.value,
                }
                by_namespace.setdefault(each.namespace, []).append(datum)
        for namespace, datums in by_namespace.items():
            for start in range(0, len(datums), _DATUMS):
                client.put_metric_data(Namespace=namespace, MetricData=datums[start : start + _DATUMS])

    def _series_of(self, client: Any, rule: Rule) -> list[Series]:
        found = list(rule.series)
        for selection in rule.selections:
            where = [{"Name": selection.where[0], "Value": selection.where[1]}]
            asked = {"Namespace": selection.namespace, "MetricName": selection.name, "Dimensions": where}
            for page in client.get_paginator("list_metrics").paginate(**asked):
                for metric in page["Metrics"]:
                    if {each["Name"] for each in metric["Dimensions"]} == selection.dimensions:
                        found.append(_series(metric, selection.statistic))
        return found

    def _values(self, client: Any, wanted: Sequence[Series], end: int, minutes: int) -> dict[Series, dict[int, float]]:
        """The values of series, by the epoch seconds at which their minutes begin."""
        values: dict[Series, dict[int, float]] = {}
        for start in range(0, len(wanted), _QUERIES):
            asked = wanted[start : start + _QUERIES]
            pages = client.get_paginator("get_metric_data").paginate(
                MetricDataQueries=[_query(f"m{number}", series) for number, series in enumerate(asked)],
                StartTime=dt.datetime.fromtimestamp(end - minutes * _MINUTE, dt.UTC),
                EndTime=dt.datetime.fromtimestamp(end, dt.UTC),
            )
            for page in pages:
                for result in page["MetricDataResults"]:
                    of = values.setdefault(asked[int(result["Id"][1:])], {})
                    seconds = (int(at.timestamp()) for at in result["Timestamps"])
                    of.update(zip(seconds, result["Values"], strict=True))
        return values


def _query(number: str, series: Series) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in series.dimensions]
    metric = {"Namespace": series.namespace, "MetricName": series.name, "Dimensions": dimensions}
    return {"Id": number, "MetricStat": {"Metric": metric, "Period": _MINUTE, "Stat": series.statistic}}


def _periods(rule: Rule, series: Sequence[Mapping[int, float]], end: int) -> list[float | None]:
    """The values of an alarm's range, the oldest first. The last period ends at ``end``."""
    together, seconds = _TOGETHER[rule.statistic], rule.minutes * _MINUTE
    periods: list[float | None] = []
    for number in range(rule.range, 0, -1):
        begin = end - number * seconds
        found = [of[at] for of in series for at in range(begin, begin + seconds, _MINUTE) if at in of]
        periods.append(together(found) if found else None)
    return periods


class _Alarm(ResourceType[Alarms]):
    kind = ALARM

    def make(self, name: str, properties: Properties) -> Made:
        return self.service.put(properties)

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        return self.service.put(properties)

    def delete(self, physical_id: str, properties: Properties) -> None:
        self.service.remove(physical_id)

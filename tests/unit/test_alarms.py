"""By which rule an alarm of the local AWS rings, and which alarms it refuses to have."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import UserError
from rig.local_aws.cloudwatch import rule_of
from rig.local_aws.resources import Properties

DESCRIBED = {
    "AlarmName": "late",
    "MetricName": "Age",
    "Namespace": "Tests",
    "Statistic": "Maximum",
    "Period": 60,
    "EvaluationPeriods": 3,
    "DatapointsToAlarm": 2,
    "Threshold": 10,
    "ComparisonOperator": "GreaterThanThreshold",
    "TreatMissingData": "notBreaching",
}
OF_MATH = {name: value for name, value in DESCRIBED.items() if name not in ("MetricName", "Namespace", "Statistic")}


# What CloudWatch's documentation says of three periods, of which so many have to be beyond the threshold (X, not 0):
# the state where missing values (-) are ignored, breaching, and not breaching.
DOCUMENTED = [
    (3, "0-X-X", "OK OK OK"),
    (3, "0----", "OK OK OK"),
    (3, "-----", "former ALARM OK"),
    (3, "0XX-X", "ALARM ALARM ALARM"),
    (3, "--X--", "former ALARM OK"),
    (2, "0-X-X", "ALARM ALARM ALARM"),
    (2, "00X0X", "ALARM ALARM ALARM"),
    (2, "0-X--", "OK ALARM OK"),
    (2, "----0", "OK ALARM OK"),
    (2, "---X-", "former ALARM OK"),
]


@pytest.mark.parametrize(("enough", "periods", "states"), DOCUMENTED)
def test_missing_values_count_as_is_documented(enough: int, periods: str, states: str) -> None:
    values = [{"0": 9.0, "X": 11.0, "-": None}[each] for each in periods]
    for missing, state in zip(("ignore", "breaching", "notBreaching"), states.split(), strict=True):
        rule = rule_of(Properties({**DESCRIBED, "DatapointsToAlarm": enough, "TreatMissingData": missing}))
        assert rule.range == len(values)
        assert rule.state(values, "former") == state


@pytest.mark.parametrize(
    ("operator", "rings"),
    [
        ("GreaterThanThreshold", [False, False, True]),
        ("GreaterThanOrEqualToThreshold", [False, True, True]),
        ("LessThanThreshold", [True, False, False]),
        ("LessThanOrEqualToThreshold", [True, True, False]),
    ],
)
def test_what_is_beyond_the_threshold_depends_on_the_operator(operator: str, rings: list[bool]) -> None:
    rule = rule_of(
        Properties({**DESCRIBED, "EvaluationPeriods": 1, "DatapointsToAlarm": 1, "ComparisonOperator": operator})
    )
    assert [rule.state([value], "OK") == "ALARM" for value in (9, 10, 11)] == rings


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"Statistic": "Average"}, "Statistic: found Average"),
        ({"ComparisonOperator": "GreaterThanUpperThreshold"}, "ComparisonOperator: found GreaterThanUpperThreshold"),
        ({"TreatMissingData": "missing"}, "TreatMissingData: found missing"),
        ({"Period": 10}, "Period: found 10, expected whole minutes"),
    ],
)
def test_a_rule_that_nothing_here_follows_is_refused(other: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        rule_of(Properties({**DESCRIBED, **other}))


@pytest.mark.parametrize("expression", ["AVG([a])", "MAX([a]) + 1", 'SELECT AVG(a) FROM "b"'])
def test_an_expression_that_nothing_here_evaluates_is_refused(expression: str) -> None:
    with pytest.raises(UserError, match="the local AWS does not evaluate"):
        rule_of(Properties({**OF_MATH, "Metrics": [{"Id": "told", "Expression": expression, "Period": 60}]}))

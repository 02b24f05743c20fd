"""A right to an action that AWS lets be given on no resource names ``*``: on an ARN it would allow nothing.

Which actions those are, cfn-lint keeps from AWS's service authorization reference,
https://docs.aws.amazon.com/service-authorization/latest/reference/.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cfnlint

from headwater.review.templates import Deployment
from tests.synth.deployed import deployment, resource, templates

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

_SERVICES = json.loads(
    (Path(cfnlint.__file__).parent / "data" / "AdditionalSpecs" / "Policies.json").read_text(encoding="utf-8")
)


def rights_without_effect(deployed: Deployment) -> list[str]:
    """The actions that take no resource and are granted on one."""
    return [
        f"{owner.place}: {action}: found {', '.join(arns)}, expected *: the action takes no resource"
        for owner in deployed.resources("AWS::IAM::Policy", "AWS::IAM::Role")
        for statement in _statements(owner.properties)
        for action in _listed(statement["Action"])
        if _takes_no_resource(action) and (arns := _listed(statement["Resource"])) != ["*"]
    ]


def _takes_no_resource(action: str) -> bool:
    service, _, name = action.partition(":")
    known = _SERVICES[service]["Actions"].get(name.lower())
    return known is not None and not known.get("Resources")


def _statements(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if {"Action", "Resource"} <= value.keys():
            yield value
        for inner in value.values():
            yield from _statements(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _statements(inner)


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_no_action_without_resources_is_granted_on_one(every_stack: "Synthesized") -> None:
    assert rights_without_effect(deployment(every_stack)) == []


def test_a_right_without_effect_is_found(dev: "Synthesized") -> None:
    changed = templates(dev)
    policy = resource(changed, "AWS::IAM::Policy", "BootstrapBrokersCustomResourcePolicy")["Properties"]
    policy["PolicyDocument"]["Statement"][0]["Resource"] = {"Fn::Sub": "arn:aws:kafka:${AWS::Region}:1:cluster/a/b"}
    (found,) = rights_without_effect(deployment(dev, changed))
    assert "kafka:GetBootstrapBrokers: found arn:aws:kafka:eu-central-1:1:cluster/a/b, expected *" in found

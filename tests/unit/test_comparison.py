"""The summary of what changes in an environment: losses, fields and stacks in few lines, and counts of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from headwater.review.comparison import Comparison, State
from headwater.review.replacements import Specification


def stack(tags: str = "a", **resources: str) -> dict[str, Any]:
    """A stack of resources, whose types are given by their names."""
    return {
        "Metadata": {"Stack": {"Tags": {"lake": tags}}},
        "Resources": {name: {"Type": type_, "Properties": {}} for name, type_ in resources.items()},
    }


def compared(before: State, after: State, acknowledged: Path = Path("none")) -> Comparison:
    return Comparison("dev", before, after, acknowledged, Specification())


def topics(count: int) -> dict[str, str]:
    return {f"Topic{number}": "AWS::MSK::Topic" for number in range(count)}


def test_losses_of_a_kind_are_one_line(tmp_path: Path) -> None:
    kept = stack(Vpc="AWS::EC2::VPC", Role="AWS::IAM::Role")
    lost = {**stack(Bucket="AWS::S3::Bucket"), "Metadata": {}}
    lost["Resources"]["Bucket"]["DeletionPolicy"] = "Retain"
    before = {"lake": lost, "network": kept, "stream": stack(**topics(5))}
    after = {"network": stack("b", Vpc="AWS::EC2::VPC"), "bi": stack(), "stream": stack()}
    agreed = tmp_path / "agreed.yaml"
    entry = {"environment": "dev", "stack": "stream", "resource": "Topic0", "reason": "unused"}
    agreed.write_text(yaml.safe_dump([entry]))
    found = compared(({"emr": {"market": "spot"}}, before), ({"emr": {"market": "on-demand"}}, after), agreed)
    assert found.summary() == [
        "dev:",
        "  resources with data that are replaced, deleted or left behind: 6",
        "    refused: lake: Bucket (AWS::S3::Bucket) would leave its stack and stay",
        "    agreed: stream: Topic0 (AWS::MSK::Topic) would be deleted",
        "    refused: stream: Topic1, Topic2, Topic3 and 1 more (AWS::MSK::Topic) would be deleted",
        "  fields with another value: 1",
        "    emr.market: spot -> on-demand",
        "  stacks: 1 new (bi), 1 gone (lake), 2 changed (network, stream)",
        "  resources: 7 gone",
        "  besides: Tags of 1 stack",
    ]


def test_a_long_list_ends_with_the_count_of_the_rest() -> None:
    fields = {f"field{number}": number for number in range(30)}
    said = compared((fields, {}), (dict.fromkeys(fields, "x"), {})).summary()
    assert len(said) <= 16
    assert "  fields with another value: 30" in said
    assert "    and 20 more" in said


def test_equal_states_have_no_difference() -> None:
    state: State = ({"a": 1}, {"lake": stack()})
    assert compared(state, state).summary() == ["dev: no difference"]

"""Every change of a template is seen, and a change that loses data needs an agreement."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.contract.model import Contract
from headwater.environment import model as environment
from headwater.lake_folder import EXAMPLE
from headwater.review import baselines, contract_baselines, replacements
from headwater.review.replacements import Specification
from tests.synth.conftest import WITH_BI
from tests.synth.example import ORDERS

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

UPDATE = "make baselines"
BI_BASELINE = EXAMPLE.reviewed / "baselines_with_bi"


@pytest.fixture(scope="module")
def specification() -> Specification:
    return Specification()


@pytest.fixture(scope="session")
def templates(every: "Synthesized") -> dict[str, dict[str, Any]]:
    """One environment's templates in the form of baselines."""
    return baselines.from_assembly(every.assembly)


def test_no_stateful_resource_is_lost_that_nobody_agreed_to_lose(
    every: "Synthesized", templates: dict[str, dict[str, Any]], specification: Specification
) -> None:
    _refuse_losses(every.environment.name, templates, specification)


def test_templates_are_as_their_baselines(every: "Synthesized", templates: dict[str, dict[str, Any]]) -> None:
    _hold(EXAMPLE.baselines / every.environment.name, templates, every.environment.document(), update=False)


def test_the_optional_stacks_are_as_their_baselines(
    contracts: list[Contract], synthesize: Callable[[str], "Synthesized"], request: pytest.FixtureRequest
) -> None:
    if not any(contract.table == ORDERS for contract in contracts):
        pytest.skip("these contracts have no orders, whose revenue the charts show")
    templates = baselines.from_assembly(synthesize(WITH_BI).assembly)
    update = bool(request.config.getoption("--update-baselines", default=False))
    _hold(BI_BASELINE, {"bi": templates["bi"]}, {}, update)


def test_contracts_are_as_their_baselines(contracts: list[Contract]) -> None:
    before, now = contract_baselines.read(EXAMPLE.contract_baselines), contract_baselines.render(contracts)
    assert contract_baselines.refused(before, contracts) == []
    assert contract_baselines.difference(before, now) == "", f"To allow this, run `{UPDATE}`"


def test_every_acknowledged_loss_is_one_that_happened(
    every: "Synthesized", templates: dict[str, dict[str, Any]]
) -> None:
    name = every.environment.name
    acknowledged = [
        entry for entry in replacements.read_acknowledged(EXAMPLE.acknowledged) if entry.environment == name
    ]
    assert replacements.stale(acknowledged, {name: templates}) == []


def test_no_environment_is_missing_or_left_over() -> None:
    names = environment.on_aws(EXAMPLE.config)
    assert sorted(path.name for path in EXAMPLE.baselines.iterdir()) == names
    assert {entry.environment for entry in replacements.read_acknowledged(EXAMPLE.acknowledged)} <= set(names)


def test_a_difference_is_told_in_the_words_of_cdk_diff(dev: "Synthesized") -> None:
    before = baselines.from_assembly(dev.assembly)
    after = copy.deepcopy(before)
    after["lake"]["Resources"]["Database"]["Properties"]["DatabaseInput"]["Name"] = "renamed"
    after["lake"]["Metadata"]["Stack"]["TerminationProtection"] = True
    del after["connect"]
    text = baselines.difference(before, after)
    assert "Stack connect is gone" in text
    assert "Stack lake changes" in text
    assert "[~] AWS::Glue::Database Database Database" in text
    assert "[+] renamed" in text
    assert "TerminationProtection" in text
    assert "Stack network" not in text


@pytest.mark.parametrize(
    ("part", "type_", "path", "value"),
    [
        ("lake", "AWS::S3::Bucket", ["BucketName"], "renamed"),
        ("lake", "AWS::Glue::Table", ["TableInput", "Name"], "renamed"),
        ("database", "AWS::RDS::DBCluster", ["DBSubnetGroupName"], "another"),
        ("database", "AWS::RDS::DBCluster", ["DBClusterIdentifier"], "renamed"),
        ("database", "AWS::SecretsManager::Secret", ["Name"], "renamed"),
        ("stream", "AWS::MSK::Cluster", ["BrokerNodeGroupInfo", "ClientSubnets"], ["subnet-1"]),
        ("stream_topics", "AWS::MSK::Topic", ["TopicName"], "renamed"),
        ("network", "AWS::EC2::VPC", ["CidrBlock"], "10.99.0.0/16"),
        ("key_value", "AWS::DynamoDB::GlobalTable", ["KeySchema"], [{"AttributeName": "x", "KeyType": "HASH"}]),
        ("key_value", "AWS::Kinesis::Stream", ["Name"], "renamed"),
    ],
)
def test_a_change_that_would_lose_data_is_refused(
    dev: "Synthesized", specification: Specification, part: str, type_: str, path: list[str], value: object
) -> None:
    before = baselines.from_assembly(dev.assembly)
    after = copy.deepcopy(before)
    stack = part.replace("_", "-")
    name = next(name for name, resource in after[stack]["Resources"].items() if resource["Type"] == type_)
    properties = after[stack]["Resources"][name]["Properties"]
    for step in path[:-1]:
        properties = properties[step]
    properties[path[-1]] = value
    lost = [str(loss) for loss in replacements.losses("dev", before, after, specification) if loss.resource == name]
    assert lost
    assert lost[0].startswith(f"dev/{stack}: {name} ({type_}) would be replaced: {'/'.join(path)} changes from ")


def _hold(folder: Path, templates: dict[str, dict[str, Any]], fields: dict[str, Any], update: bool) -> None:
    """Fail if templates or the environment's fields differ from the folder's baselines; with ``update``, write the
    baselines first."""
    if update:
        baselines.write(folder, templates, fields)
    text = baselines.difference_of_fields(baselines.read_fields(folder), fields)
    before = baselines.read(folder)
    if before != templates:
        text += baselines.difference(before, templates)
    if text:
        pytest.fail(f"{text}\n\nTo allow this, run `{UPDATE}` and review what it changes in {folder}", pytrace=False)


def _refuse_losses(name: str, templates: dict[str, dict[str, Any]], specification: Specification) -> None:
    """Fail if the templates lose a resource of the environment's baselines without an agreement."""
    losses = replacements.losses(name, baselines.read(EXAMPLE.baselines / name), templates, specification)
    refused = replacements.unacknowledged(losses, replacements.read_acknowledged(EXAMPLE.acknowledged))
    if refused:
        sentences = "\n".join(map(str, refused))
        pytest.fail(f"{sentences}\n\n{replacements.how_to_allow(refused, EXAMPLE.acknowledged)}", pytrace=False)

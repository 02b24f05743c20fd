"""A first deploy that fails can be tried again: nothing that it made stays in the way of the next one."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest

from headwater.contract.model import Contract
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from stacks.application import Application
from stacks.assets import Assets
from tests.synth.conftest import Synthesized

if TYPE_CHECKING:
    from headwater.environment.model import Environment

# How resource types spell it, each below its resource's properties.
PROTECTIONS = ("DeletionProtection", "DeletionProtectionEnabled", "TerminationProtected")
KEPT = ("stage", "prod")


@pytest.fixture(scope="module", params=KEPT)
def first(
    request: pytest.FixtureRequest, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> Synthesized:
    """An environment that keeps its data, as ``headwater deploy`` synthesizes it for stacks that are not complete."""
    settings: Environment = read_environment(request.param, EXAMPLE.config)
    app = new_app()
    parts = [field.name.replace("_", "-") for field in fields(Application)]
    app.node.set_context("unprotected", ",".join(f"headwater-{settings.name}-{part}" for part in parts))
    return Synthesized(app, settings, contracts, assets)


def protections(synthesized: Synthesized) -> Iterator[str]:
    """The stacks and resources that nobody can delete before their protection is lifted."""
    for part in synthesized.parts():
        if getattr(synthesized.stacks, part).termination_protection:
            yield part
        for name, resource in synthesized.template(part)["Resources"].items():
            if any(f'"{key}": true' in json.dumps(resource.get("Properties", {})) for key in PROTECTIONS):
                yield f"{part}/{name}"


def test_what_a_rolled_back_creation_made_goes_with_it(every_stack: Synthesized) -> None:
    """``Retain`` keeps a resource whose creation is rolled back too, and its fixed name refuses the next creation."""
    orphaned = [
        f"{part}/{name} ({resource['Type']})"
        for part in every_stack.parts()
        for name, resource in every_stack.template(part)["Resources"].items()
        if resource.get("DeletionPolicy") == "Retain"
    ]
    assert orphaned == []


def test_nothing_is_protected_before_its_stack_is_complete(first: Synthesized) -> None:
    assert list(protections(first)) == []


@pytest.mark.parametrize("name", KEPT)
def test_complete_stacks_are_protected(name: str, synthesize: Callable[[str], Synthesized]) -> None:
    synthesized = synthesize(name)
    protected = set(protections(synthesized))
    assert set(synthesized.parts()) <= protected
    guarded = synthesized.resources("AWS::RDS::DBCluster") | synthesized.resources("AWS::DynamoDB::GlobalTable")
    assert guarded.keys() <= protected


def test_only_the_named_stacks_go_unprotected(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    app = new_app()
    app.node.set_context("unprotected", "headwater-prod-database")
    prod = Synthesized(app, read_environment("prod", EXAMPLE.config), contracts, assets)
    protected = set(protections(prod))
    assert {part for part in prod.parts() if part not in protected} == {"database"}


def test_the_content_stands_in_a_stack_of_its_own(every: Synthesized) -> None:
    """Its failure rolls back no cluster."""
    fragile: tuple[str, ...] = ("Custom::HeadwaterDatabase", "AWS::Serverless::Application")
    places = {place.partition("/")[0] for type_ in fragile for place in every.resources(type_)}
    assert places == {"database_content"}
    stacks: Any = every.stacks
    assert stacks.database in stacks.database_content.dependencies
    assert stacks.database_content in stacks.connect.dependencies

"""A setting can be changed: no resource is replaced by another of the same name.

CloudFormation creates the new resource before it deletes the old one, so AWS refuses a name that both have.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aws_cdk as cdk
import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from headwater.contract.model import Contract
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.review.templates import Deployment, Resource
from stacks.assets import Assets
from tests.synth.changed_settings import changed_environment
from tests.synth.conftest import Synthesized
from tests.synth.deployed import deployment, resource, templates

# Create-only properties that end with Name and name something else, or that several resources may share.
_NO_NAMES = {
    "AWS::EC2::FlowLog": {"LogGroupName"},
    "AWS::EC2::Instance": {"KeyName"},
    "AWS::EMR::Cluster": {"Name"},
    "AWS::Glue::Table": {"DatabaseName"},
    "AWS::RDS::DBCluster": {"DBSubnetGroupName", "DatabaseName"},
    "AWS::RDS::DBInstance": {"DBName", "DBSubnetGroupName"},
}
_PLACEHOLDER = re.compile(r"\$\{([^}.]+\.[^}.]+)")


def collisions(before: Deployment, after: Deployment) -> list[str]:
    """The resources that would be replaced under the name that they have, with the properties that replace them."""
    old = {resource.key: resource for resource in before.resources()}
    kept = {
        resource.key: (old[resource.key], resource)
        for resource in after.resources()
        if resource.key in old and old[resource.key].type == resource.type
    }
    replaced: dict[str, list[str]] = {}
    while more := {
        key: causes
        for key, (was, becomes) in kept.items()
        if key not in replaced and (causes := list(_causes(was, becomes, replaced)))
    }:
        replaced |= more
    return sorted(
        f"{kept[key][0].place} ({kept[key][0].type}): found {name} twice, once with the old "
        f"{', '.join(causes)}: expected a name that changes along"
        for key, causes in replaced.items()
        if (name := _fixed_name(*kept[key])) is not None
    )


def _causes(was: Resource, becomes: Resource, replaced: Mapping[str, object]) -> Iterator[str]:
    """The create-only properties that change, or that refer to a replaced resource."""
    for path in _create_only(was.type):
        values = _value(was.properties, path), _value(becomes.properties, path)
        refers = set(_PLACEHOLDER.findall(str(values[1])))
        if values[0] != values[1] or refers & replaced.keys():
            yield path


def _fixed_name(was: Resource, becomes: Resource) -> str | None:
    """The resource's name, if it is a text that stays."""
    schema = _schema(was.type)
    read_only = {path.removeprefix("/properties/") for path in schema.get("readOnlyProperties", [])}
    identifiers = [schema.get("primaryIdentifier", []), *schema.get("additionalIdentifiers", [])]
    names = {path.removeprefix("/properties/") for identifier in identifiers for path in identifier} - read_only
    names |= {path for path in _create_only(was.type) if path.endswith("Name")}
    names -= _NO_NAMES.get(was.type, set())
    pairs = [(_value(was.properties, path), _value(becomes.properties, path)) for path in sorted(names)]
    pairs = [pair for pair in pairs if pair != (None, None)]
    if not pairs or any(one != two or not isinstance(two, str) or "${" in two for one, two in pairs):
        return None
    return " ".join(str(pair[0]) for pair in pairs)


def _schema(type_: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", type_).schema
    return schema


def _create_only(type_: str) -> list[str]:
    return [path.removeprefix("/properties/") for path in _schema(type_).get("createOnlyProperties", [])]


def _value(properties: Any, path: str) -> Any:
    for name in path.split("/"):
        properties = properties.get(name) if isinstance(properties, Mapping) else None
    return properties


@pytest.fixture(scope="module")
def changed(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Synthesized:
    """dev with every setting changed."""
    return Synthesized(new_app(), changed_environment(read_environment("dev", EXAMPLE.config)), contracts, assets)


def test_no_changed_setting_replaces_a_resource_under_its_name(dev: Synthesized, changed: Synthesized) -> None:
    assert collisions(deployment(dev), deployment(changed)) == []


def test_no_changed_setting_of_existing_sources_does_so(
    existing: Synthesized, contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    changed = Synthesized(new_app(), changed_environment(existing.environment), contracts, assets)
    assert collisions(deployment(existing), deployment(changed)) == []


def test_a_version_behind_a_fixed_name_is_found(dev: Synthesized, changed: Synthesized) -> None:
    before, after = templates(dev), templates(changed)
    for each in (before, after):
        resource(each, "AWS::MSK::Configuration", "")["Properties"]["Name"] = "headwater-dev"
    (found,) = collisions(deployment(dev, before), deployment(changed, after))
    assert found == (
        "stream:Configuration (AWS::MSK::Configuration): found headwater-dev twice, once with the old "
        "KafkaVersionsList: expected a name that changes along"
    )


def test_what_is_bound_to_a_replaced_resource_is_replaced(dev: Synthesized) -> None:
    before, after = templates(dev), templates(dev)
    for each in (before, after):
        resource(each, "AWS::EC2::SecurityGroup", "SecurityGroup", "stream")["Properties"].pop("GroupName", None)
    resource(after, "AWS::EC2::SecurityGroup", "SecurityGroup", "stream")["Properties"]["GroupDescription"] = "new"
    (found,) = collisions(deployment(dev, before), deployment(dev, after))
    assert found.startswith("stream:Cluster (AWS::MSK::Cluster): found headwater-dev twice, once with the old Broker")

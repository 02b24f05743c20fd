"""Two environments share an account and a region: no physical name is in both, and no right reaches the other."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from headwater.contract.model import Contract
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from headwater.review import policies
from headwater.review.templates import Deployment, Resource
from stacks.assets import Assets
from tests.synth.conftest import Synthesized
from tests.synth.deployed import deployment, resource, templates

_NAME = re.compile(r"(Name|Identifier|NamePrefix)$")
# Names within something that carries the environment already: the property that holds the owner.
_WITHIN = {
    "AWS::Athena::PreparedStatement": ("WorkGroup",),
    "AWS::Glue::Table": ("DatabaseName", "TableInput/DatabaseName"),
    "AWS::MSK::Topic": ("ClusterArn",),
}
# What several resources may be called, or what names something else.
_NO_NAMES = {
    ("AWS::EC2::VPCEndpoint", "ServiceName"),
    ("AWS::RDS::DBCluster", "DatabaseName"),
    ("AWS::RDS::DBInstance", "DBName"),
}

# What all environments of an account and region share.
_SHARED = (
    "arn:aws:athena:{region}:{account}:datacatalog/AwsDataCatalog",
    # Roles fetch single assets, which carry their content's hash as their name.
    "arn:aws:s3:::cdk-hnb659fds-assets-{account}-{region}/",
    # MSK Connect asks this of whoever creates a connector.
    "arn:aws:ec2:{region}:{account}:network-interface/*",
    "arn:aws:iam::{account}:role/aws-service-role/kafkaconnect.amazonaws.com/",
    "arn:aws:iam::{account}:role/aws-service-role/spot.amazonaws.com/",
    "arn:aws:glue:{region}:{account}:catalog",
    "arn:aws:glue:{region}:{account}:database/default",
    "arn:aws:ssm:{region}::parameter/aws/service/ami-amazon-linux-latest/",
)


# A cluster that EMR has forgotten has no tag to know it by.
_LOOKS_AT_CLUSTERS = {"elasticmapreduce:DescribeCluster", "elasticmapreduce:ListSteps"}


def _is_of(environment: str, resource: str) -> bool:
    """Whether an ARN names the environment, and not one whose name only begins with it."""
    return re.search(rf"headwater[-_/]{environment}($|[-_/.}}])", resource) is not None


def shared_names(first: Deployment, second: Deployment) -> list[str]:
    """The physical names that resources of both deployments have, by type."""
    names = [dict(_names(deployed)) for deployed in (first, second)]
    return sorted(f"{type_}: found {name} in both" for type_, name in names[0].keys() & names[1].keys())


def _names(deployed: Deployment) -> Iterator[tuple[tuple[str, str], Resource]]:
    for owner in deployed.resources():
        if owner.type.startswith("Custom::"):
            # What our own handlers create in AWS has the resource's name.
            paths = ["Name"] if owner.type != "Custom::HeadwaterPublication" else []
        else:
            schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", owner.type).schema
            paths = [path.removeprefix("/properties/") for path in _identifying(schema)]
        for path in paths:
            name = _value(owner.properties, path)
            if isinstance(name, str) and "${" not in name and (owner.type, path) not in _NO_NAMES:
                within = [str(_value(owner.properties, place)) for place in _WITHIN.get(owner.type, ())]
                yield (owner.type, " ".join([*within, name])), owner


def _identifying(schema: Mapping[str, Any]) -> set[str]:
    identifiers = [schema.get("primaryIdentifier", []), *schema.get("additionalIdentifiers", [])]
    paths = {path for identifier in identifiers for path in identifier} | set(schema.get("createOnlyProperties", []))
    return {path for path in paths if _NAME.search(path)}


def _value(properties: Any, path: str) -> Any:
    for name in path.split("/"):
        properties = properties.get(name) if isinstance(properties, Mapping) else None
    return properties


@pytest.fixture(scope="module")
def second(contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]) -> Synthesized:
    """dev under another name."""
    settings = msgspec.structs.replace(read_environment("dev", EXAMPLE.config), name="second")
    return Synthesized(new_app(), settings, contracts, assets)


def test_two_environments_share_no_name(dev: Synthesized, second: Synthesized) -> None:
    assert shared_names(deployment(dev), deployment(second)) == []


def test_a_name_without_the_environment_is_found(dev: Synthesized, second: Synthesized) -> None:
    first_templates, second_templates = templates(dev), templates(second)
    for each in (first_templates, second_templates):
        resource(each, "Custom::HeadwaterConnector", "Source")["Properties"]["Name"] = "headwater-postgres"
        resource(each, "AWS::MSK::Cluster", "")["Properties"]["ClusterName"] = "headwater"
    assert shared_names(deployment(dev, first_templates), deployment(second, second_templates)) == [
        "AWS::MSK::Cluster: found headwater in both",
        "Custom::HeadwaterConnector: found headwater-postgres in both",
    ]


@pytest.mark.parametrize(
    ("resource", "within"),
    [
        ("arn:aws:sns:r:a:headwater-dev", True),
        ("arn:aws:sns:r:a:headwater-dev-alarms*", True),
        ("arn:aws:glue:r:a:table/headwater_dev/*", True),
        ("arn:aws:sns:r:a:headwater-dev2-alarms", False),
        ("arn:aws:sns:r:a:headwater-dev*", False),
        ("arn:aws:sns:r:a:headwater-*", False),
    ],
)
def test_an_environment_is_not_one_whose_name_begins_alike(resource: str, within: bool) -> None:
    assert _is_of("dev", resource) is within


def test_rights_end_at_the_environment(every: Synthesized) -> None:
    deployed = deployment(every)
    shared = tuple(arn.format(region=deployed.region, account=deployed.account) for arn in _SHARED)
    environment = every.environment.name
    beyond = sorted(
        f"{role}: {resource}"
        for role, statements in policies.read(deployed).by_role.items()
        for statement in statements
        if not set(statement.actions) <= _LOOKS_AT_CLUSTERS
        for resource in statement.resources
        if resource != "*" and not resource.startswith(shared) and not _is_of(environment, resource)
        # A condition on a tag, or on a source of events, that names the environment confines a right as well.
        if not {environment, f"headwater_{environment}.writer"}
        & {str(value) for keys in statement.conditions.values() for value in keys.values()}
    )
    assert beyond == []

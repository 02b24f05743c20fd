"""Two environments in one account and region do not meet."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from headwater.deployment import policies
from tests.synth.deployed import deployment

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized

# What all environments of an account and region share.
SHARED = (
    "arn:aws:athena:{region}:{account}:datacatalog/AwsDataCatalog",
    # Roles fetch single assets, which carry their content's hash as their name.
    "arn:aws:s3:::cdk-hnb659fds-assets-{account}-{region}/",
    # MSK Connect asks this of whoever creates a connector.
    "arn:aws:ec2:{region}:{account}:network-interface/*",
    "arn:aws:iam::{account}:role/aws-service-role/kafkaconnect.amazonaws.com/",
    # The names of connectors have a test of their own.
    "arn:aws:kafkaconnect:{region}:{account}:connector",
    "arn:aws:glue:{region}:{account}:catalog",
    "arn:aws:glue:{region}:{account}:database/default",
    "arn:aws:ssm:{region}::parameter/aws/service/ami-amazon-linux-latest/",
)


def names(synthesized: "Synthesized") -> Iterator[tuple[str, ...]]:
    """The type and the fixed physical name of each resource that has one, by CloudFormation's resource schemas."""
    region = synthesized.environment.region
    for part in synthesized.parts():
        for resource in synthesized.template(part)["Resources"].values():
            if not resource["Type"].startswith("AWS::") or resource["Type"] == "AWS::CDK::Metadata":
                continue
            schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(region, resource["Type"]).schema
            identifier = [path.removeprefix("/properties/") for path in schema["primaryIdentifier"]]
            if resource["Type"] == "AWS::MSK::Topic":
                continue  # Its name is unique in its cluster.
            # Names that are unique although another value identifies the resource.
            identifier += [name for name in ("Name", "TopicName", "FunctionName") if name not in identifier]
            values = [resource.get("Properties", {}).get(name) for name in identifier]
            fixed = [value for value in values if value is not None]
            if fixed and all(isinstance(value, str) for value in fixed):
                yield (resource["Type"], *fixed)


def test_no_name_is_that_of_another_environment(synthesize: "Callable[[str], Synthesized]") -> None:
    dev, stage = (set(names(synthesize(name))) for name in ("dev", "stage"))
    assert len(dev) > 20
    assert dev & stage == set()


def test_rights_end_at_the_environment(every: "Synthesized") -> None:
    deployed = deployment(every)
    shared = tuple(arn.format(region=deployed.region, account=deployed.account) for arn in SHARED)
    environment = every.environment.name
    ours = [f"headwater{mark}{environment}" for mark in "-_/"]
    beyond = sorted(
        f"{role}: {resource}"
        for role, statements in policies.read(deployed).by_role.items()
        for statement in statements
        for resource in statement.resources
        if resource != "*" and not resource.startswith(shared) and not any(name in resource for name in ours)
        # A condition on the tag that names the environment confines a right as well.
        if environment not in (value for keys in statement.conditions.values() for value in keys.values())
    )
    assert beyond == []

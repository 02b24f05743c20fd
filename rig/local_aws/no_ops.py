"""No-op resources: CloudFormation gets an identifier for each, but none is made. ``ignored`` has the reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rig.local_aws.ignored import ANY_TYPE, NO_OP_TYPES
from rig.local_aws.resources import Made, Properties, ResourceType

Describe = Callable[[str, Properties], Made]
"""Returns the identifier and attributes of a resource, given its name and properties."""


class NoOp(ResourceType[Describe]):
    """A type whose resources have no effect here."""

    kind = ANY_TYPE

    def make(self, name: str, properties: Properties) -> Made:
        """Return an identifier for the resource."""
        properties.heed()
        return self.service(name, properties)

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Return the identifier again."""
        return self.create(physical_id, properties)


_ATTRIBUTES: dict[str, Describe] = {
    "AWS::Athena::NamedQuery": lambda name, properties: Made(name, {"NamedQueryId": name}),
    "AWS::EC2::EIP": lambda name, properties: Made(name, {"AllocationId": name, "PublicIp": "127.0.0.1"}),
    "AWS::EC2::FlowLog": lambda name, properties: Made(name, {"Id": name}),
    "AWS::EC2::Instance": lambda name, properties: Made(
        f"i-{name.removeprefix('i-')}", {"PrivateIp": "127.0.0.1", "AvailabilityZone": "local"}
    ),
    "AWS::EC2::NatGateway": lambda name, properties: Made(name, {"NatGatewayId": name}),
    "AWS::EC2::SecurityGroupEgress": lambda name, properties: Made(name, {"Id": name}),
    "AWS::EC2::SecurityGroupIngress": lambda name, properties: Made(name, {"Id": name}),
    "AWS::Glue::SecurityConfiguration": lambda name, properties: Made(properties.get("Name", name)),
    "AWS::Serverless::Application": lambda name, properties: Made(
        name, {"Outputs.RotationLambdaARN": f"arn:aws:lambda:::function:{name}"}
    ),
}


def types() -> dict[str, ResourceType[Any]]:
    """The resource types, by their names."""
    return {kind: NoOp(_ATTRIBUTES.get(kind, lambda name, properties: Made(name))) for kind in NO_OP_TYPES}

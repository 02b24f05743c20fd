"""Resources that the local AWS notes and does no more with, which ``without_effect`` gives the reasons of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rig.local_aws.resources import Made, Properties, ResourceType
from rig.local_aws.without_effect import ANY_TYPE, TYPES

MakeNote = Callable[[str, Properties], Made]
"""What CloudFormation hears of a resource, by its name and properties."""


class Noted(ResourceType[MakeNote]):
    """A type whose resources are noted."""

    kind = ANY_TYPE

    def make(self, name: str, properties: Properties) -> Made:
        """Note the resource."""
        properties.heed()
        return self.service(name, properties)

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Note what changed."""
        return self.create(physical_id, properties)


_ATTRIBUTES: dict[str, MakeNote] = {
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
    return {kind: Noted(_ATTRIBUTES.get(kind, lambda name, properties: Made(name))) for kind in TYPES}

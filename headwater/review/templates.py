"""A deployment as its templates describe it: every resource of every stack, with references resolved across stacks.

A value that only AWS knows (an id, a generated name) becomes a placeholder that names its resource. The result of
``Ref`` is ``${headwater-dev-lake.Landing}``; an attribute is ``${headwater-dev-lake.Landing.RegionalDomainName}``. ARNs
are composed as AWS composes them, with the placeholder in place of a generated name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import UserError

if TYPE_CHECKING:
    from headwater.environment.model import Environment

ACCOUNT = "123456789012"
"""The account of an environment that names none."""

# The property with a resource's name, which ``Ref`` returns and which ends its ARN. AWS generates an absent name.
_NAMES = {
    "AWS::Athena::WorkGroup": "Name",
    "AWS::DynamoDB::GlobalTable": "TableName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Glue::Database": "DatabaseInput.Name",
    "AWS::Glue::Job": "Name",
    "AWS::IAM::Role": "RoleName",
    "AWS::Kinesis::Stream": "Name",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::S3::Bucket": "BucketName",
}
# The attribute that returns a type's ARN ("Ref" if the reference itself does), and how AWS composes it: {name} is
# the resource's name, {id} its placeholder, and any other name in braces a property.
_ARNS: Mapping[str, tuple[str, str]] = {
    "AWS::DynamoDB::GlobalTable": ("Arn", "arn:aws:dynamodb:{region}:{account}:table/{name}"),
    "AWS::DynamoDB::Table": ("Arn", "arn:aws:dynamodb:{region}:{account}:table/{name}"),
    "AWS::IAM::Role": ("Arn", "arn:aws:iam::{account}:role/{name}"),
    "AWS::KMS::Key": ("Arn", "arn:aws:kms:{region}:{account}:key/{name}"),
    "AWS::Kinesis::Stream": ("Arn", "arn:aws:kinesis:{region}:{account}:stream/{name}"),
    "AWS::Lambda::Function": ("Arn", "arn:aws:lambda:{region}:{account}:function:{name}"),
    "AWS::Logs::LogGroup": ("Arn", "arn:aws:logs:{region}:{account}:log-group:{name}:*"),
    "AWS::MSK::Cluster": ("Arn", "arn:aws:kafka:{region}:{account}:cluster/{ClusterName}/{id}"),
    "AWS::RDS::DBCluster": ("DBClusterArn", "arn:aws:rds:{region}:{account}:cluster:{name}"),
    "AWS::S3::Bucket": ("Arn", "arn:aws:s3:::{name}"),
    "AWS::SNS::Topic": ("Ref", "arn:aws:sns:{region}:{account}:{name}"),
    # Secrets Manager ends the ARN with six random characters.
    "AWS::SecretsManager::Secret": ("Ref", "arn:aws:secretsmanager:{region}:{account}:secret:{Name}-XXXXXX"),
}
# Attributes that return a property of the resource.
_ATTRIBUTES = {
    ("AWS::EC2::VPC", "CidrBlock"): "CidrBlock",
    ("AWS::RDS::DBCluster", "Endpoint.Port"): "Port",
}
# The property that ``Ref`` returns if it returns neither the resource's name nor its ARN.
_REFERENCES = {"AWS::SecretsManager::SecretTargetAttachment": "SecretId"}
_HASH = re.compile(r"(?<=.)[0-9A-F]{8}$")
_SUBSTITUTED = re.compile(r"\$\{(!?)([^}]+)\}")


class Resource:
    """A resource of a stack."""

    def __init__(self, stack: str, id_: str, type_: str, resolve: Callable[[], Mapping[str, Any]]) -> None:
        self.stack = stack
        self.id = id_
        self.type = type_
        self._resolve = resolve

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        """The properties with references resolved on first use, because resources may refer to each other."""
        return self._resolve()

    @property
    def key(self) -> str:
        """Stack and logical id."""
        return f"{self.stack}.{self.id}"

    @property
    def place(self) -> str:
        """The resource's name for people: the stack's name in its environment, and the logical id without its hash."""
        return f"{self.stack.split('-', 2)[-1]}:{_HASH.sub('', self.id)}"

    @property
    def reference(self) -> str:
        """The placeholder for the value of ``Ref`` that only AWS knows."""
        return "${" + self.key + "}"


class Deployment:
    """All stacks of one environment.

    ``templates`` are given by stack name. ``region`` and ``account`` are the place of the deployment.
    """

    def __init__(self, templates: Mapping[str, Mapping[str, Any]], region: str, account: str = ACCOUNT) -> None:
        self.region = region
        self.account = account
        self._templates = templates
        self._exports = {
            str(output["Export"]["Name"]): (stack, output["Value"])
            for stack, template in templates.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }
        self._resolved: dict[tuple[str, str], Resource] = {}

    @classmethod
    def read(cls, assembly: Path, environment: str) -> Deployment:
        """Read the output of ``cdk synth``. Raises UserError if the folder does not hold the environment's stacks."""
        manifest = assembly / "manifest.json"
        advice = f"run `headwater synth --env {environment}` first"
        if not manifest.is_file():
            raise UserError(f"{manifest}: found no file, expected synthesized stacks: {advice}")
        # Read the templates of all stacks, which are in one account and region.
        templates, places = {}, set()
        for artifact in json.loads(manifest.read_text(encoding="utf-8"))["artifacts"].values():
            if artifact["type"] == "aws:cloudformation:stack":
                path = assembly / artifact["properties"]["templateFile"]
                name = str(artifact["properties"].get("stackName", path.name.removesuffix(".template.json")))
                templates[name] = json.loads(path.read_text(encoding="utf-8"))
                places.add(artifact["environment"])
        prefix = f"headwater-{environment}-"
        if not templates or not all(name.startswith(prefix) for name in templates):
            stacks = ", ".join(sorted(templates)) or "no stack"
            raise UserError(f"{manifest}: found {stacks}, expected the stacks {prefix}…: {advice}")
        (place,) = places
        account, region = place.removeprefix("aws://").split("/")
        return cls(templates, region, account if account.isdigit() else ACCOUNT)

    @classmethod
    def of_baselines(cls, templates: Mapping[str, Mapping[str, Any]], settings: Environment) -> Deployment:
        """The deployment that an environment's baselines describe."""
        whole = {f"headwater-{settings.name}-{part}": template for part, template in templates.items()}
        return cls(whole, settings.region, settings.account or ACCOUNT)

    def resources(self, *types: str) -> Iterator[Resource]:
        """The resources of these types, or all resources, in the templates' order."""
        for stack, template in self._templates.items():
            for name, raw in template["Resources"].items():
                if not types or raw["Type"] in types:
                    yield self.resource(stack, name)

    def resource(self, stack: str, name: str) -> Resource:
        """One resource. Raises UserError if the stack has none of this logical id."""
        if (stack, name) not in self._resolved:
            raw = self._templates[stack]["Resources"].get(name)
            if raw is None:
                raise UserError(f"{stack}: {name}: found a reference to nothing, expected a resource of the stack")
            resolve = partial(self.resolve, stack, raw.get("Properties", {}))
            self._resolved[stack, name] = Resource(stack, name, str(raw["Type"]), resolve)
        return self._resolved[stack, name]

    def name(self, resource: Resource) -> str:
        """The resource's name, or its placeholder if AWS generates the name."""
        value: Any = resource.properties
        for part in _NAMES.get(resource.type, "").split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else resource.reference

    def arn(self, resource: Resource) -> str:
        """The resource's ARN; its placeholder if this module does not know how AWS composes it."""
        if resource.type == "AWS::MSK::Topic":
            cluster = str(resource.properties["ClusterArn"])
            return f"{cluster.replace(':cluster/', ':topic/')}/{resource.properties['TopicName']}"
        if resource.type not in _ARNS:
            return resource.reference
        fields = {key: value for key, value in resource.properties.items() if isinstance(value, str)}
        fields |= {"region": self.region, "account": self.account}
        fields |= {"name": self.name(resource), "id": resource.reference}
        return _ARNS[resource.type][1].format(**fields)

    def resolve(self, stack: str, value: Any) -> Any:
        """A value of a stack's template with all intrinsic functions evaluated.

        Raises UserError on an unknown function.
        """
        if isinstance(value, list):
            return [self.resolve(stack, item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (function, argument) = next(iter(value.items()))
            if function == "Ref" or function.startswith("Fn::"):
                return self._evaluate(stack, function, argument)
        return {key: self.resolve(stack, item) for key, item in value.items() if item != {"Ref": "AWS::NoValue"}}

    def _evaluate(self, stack: str, function: str, argument: Any) -> Any:
        functions: Mapping[str, Callable[[str, Any], Any]] = {
            "Ref": self._reference,
            "Fn::GetAtt": self._attribute,
            "Fn::ImportValue": self._import,
            "Fn::Sub": self._substitute,
            "Fn::FindInMap": self._look_up,
        }
        if function in functions:
            return functions[function](stack, argument)
        argument = self.resolve(stack, argument)
        if function == "Fn::Join":
            return str(argument[0]).join(str(part) for part in argument[1])
        if function == "Fn::Split":
            return str(argument[1]).split(str(argument[0]))
        if function == "Fn::Select":
            return argument[1][int(argument[0])]
        if function == "Fn::Base64":
            return base64.b64encode(str(argument).encode()).decode()
        raise UserError(
            f"{stack}: found {function}, expected a function that headwater/review/templates.py evaluates: add it there"
        )

    def _reference(self, stack: str, name: str) -> str:
        pseudo = {
            "AWS::AccountId": self.account,
            "AWS::Partition": "aws",
            "AWS::Region": self.region,
            "AWS::StackName": stack,
            "AWS::URLSuffix": "amazonaws.com",
        }
        if name in pseudo:
            return pseudo[name]
        if name in self._templates[stack].get("Parameters", {}) or name.startswith("AWS::"):
            return "${" + f"{stack}.{name}" + "}"
        resource = self.resource(stack, name)
        if resource.type in _REFERENCES:
            return str(resource.properties[_REFERENCES[resource.type]])
        is_arn = _ARNS.get(resource.type, ("", ""))[0] == "Ref" or resource.type == "AWS::MSK::Topic"
        return self.arn(resource) if is_arn else self.name(resource)

    def _attribute(self, stack: str, argument: Any) -> Any:
        name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        resource = self.resource(stack, name)
        if _ARNS.get(resource.type, ("", ""))[0] == attribute:
            return self.arn(resource)
        own = _ATTRIBUTES.get((resource.type, attribute))
        if own is not None and own in resource.properties:
            return resource.properties[own]
        return "${" + f"{resource.key}.{attribute}" + "}"

    def _import(self, stack: str, argument: Any) -> Any:
        name = str(self.resolve(stack, argument))
        if name not in self._exports:
            raise UserError(f"{stack}: Fn::ImportValue: found {name}, expected an export of another stack")
        owner, value = self._exports[name]
        return self.resolve(owner, value)

    def _substitute(self, stack: str, argument: Any) -> str:
        text, own = argument if isinstance(argument, list) else (argument, {})

        def put(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return "${" + name + "}"
            if name in own:
                return str(self.resolve(stack, own[name]))
            return str(self._attribute(stack, name) if "." in name else self._reference(stack, name))

        return _SUBSTITUTED.sub(put, text)

    def _look_up(self, stack: str, argument: Any) -> Any:
        mapping, first, second = self.resolve(stack, argument)
        return self._templates[stack]["Mappings"][mapping][first][second]

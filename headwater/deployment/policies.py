"""Whether the synthesized policies give the rights that were asked for, and what they give that nobody asked for."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.deployment.rights import Principal, Right
from headwater.deployment.templates import Deployment, Resource
from headwater.errors import UserError

_WITH_POLICY = {
    "AWS::S3::BucketPolicy": ("PolicyDocument",),
    "AWS::SecretsManager::ResourcePolicy": ("ResourcePolicy",),
    "AWS::SNS::TopicPolicy": ("PolicyDocument",),
    "AWS::KMS::Key": ("KeyPolicy",),
    "AWS::EC2::VPCEndpoint": ("PolicyDocument",),
    "AWS::Kinesis::ResourcePolicy": ("ResourcePolicy",),
    "AWS::DynamoDB::Table": ("ResourcePolicy", "PolicyDocument"),
}


_NAMED = (
    "AWS::DynamoDB::GlobalTable",
    "AWS::DynamoDB::Table",
    "AWS::EMR::Cluster",
    "AWS::Glue::SecurityConfiguration",
    "AWS::IAM::Role",
    "AWS::KMS::Key",
    "AWS::Kinesis::Stream",
    "AWS::RDS::DBCluster",
)


class Answer(Enum):
    """What a policy says of a request."""

    YES = "allowed"
    NO = "not allowed"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class Statement:
    """One statement of a policy. ``owner`` is the policy's place; ``subject`` is the ARN of the one resource that the
    statement is about where its own words cannot say so."""

    owner: str
    effect: str
    actions: tuple[str, ...]
    not_actions: tuple[str, ...]
    resources: tuple[str, ...]
    not_resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Any]]
    subject: str | None = None

    def speaks_of(self, right: Right) -> bool:
        """Whether action and resource are among the statement's, its conditions aside."""
        if self.subject not in (None, right.resource):
            return False
        if self.actions and not any(_matches(one, right.action, fold=True) for one in self.actions):
            return False
        if any(_matches(one, right.action, fold=True) for one in self.not_actions):
            return False
        if self.resources and not any(_matches(one, right.resource) for one in self.resources):
            return False
        return not any(_matches(one, right.resource) for one in self.not_resources)

    def holds(self, context: Mapping[str, str]) -> Answer:
        """Whether the conditions hold for a request; unproven where they ask for what is not known of it."""
        answers = [
            _condition(operator, found, context.get(key))
            for operator, keys in self.conditions.items()
            for key, found in keys.items()
        ]
        if Answer.NO in answers:
            return Answer.NO
        return Answer.UNPROVEN if Answer.UNPROVEN in answers else Answer.YES


@dataclass(frozen=True)
class Policies:
    """All policies of a deployment: statements by role, resource policies, and AWS's own policies by role."""

    by_role: Mapping[str, Sequence[Statement]]
    of_resources: Sequence[Statement]
    managed: Mapping[str, Sequence[str]]
    roles: Mapping[str, Resource]


def read(deployment: Deployment) -> Policies:
    """Collect the policies of a deployment, by their roles' places."""
    roles = {role.place: role for role in deployment.resources("AWS::IAM::Role")}
    places = {role.reference: place for place, role in roles.items()}
    places |= {deployment.name(role): place for place, role in roles.items()}
    by_role: dict[str, list[Statement]] = {place: [] for place in roles}
    for place, role in roles.items():
        for policy in role.properties.get("Policies", []):
            by_role[place] += _statements(place, policy["PolicyDocument"])
    for policy in deployment.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for reference in policy.properties.get("Roles", []):
            if reference in places:
                by_role[places[reference]] += _statements(policy.place, policy.properties["PolicyDocument"])
    of_resources: list[Statement] = []
    for type_, path in _WITH_POLICY.items():
        for resource in deployment.resources(type_):
            document: Any = resource.properties
            for part in path:
                document = document.get(part) if isinstance(document, Mapping) else None
            if document:
                # A key's and a secret's policy say "*" for their own.
                of_resources += _statements(resource.place, document, _subject(deployment, resource))
    managed = {
        place: [str(arn).rpartition("/")[2] for arn in role.properties.get("ManagedPolicyArns", [])]
        for place, role in roles.items()
    }
    return Policies(by_role, of_resources, managed, roles)


@dataclass(frozen=True)
class Judgement:
    """What came of a principal's rights: those missing, with the reason, those that nothing proves or refutes, and the
    granted ones that nobody asked for, as action and resource."""

    principal: str
    role: str
    missing: Sequence[str]
    unproven: Sequence[str]
    unused: Sequence[tuple[str, str]]


def judge(deployment: Deployment, policies: Policies, principal: Principal) -> Judgement:
    """Hold a principal's rights against its role's policies."""
    where = f"{principal.name} ({principal.role})"
    if principal.role not in policies.by_role:
        missing = f"{where}: found no role of this place, expected one of {', '.join(sorted(policies.by_role))}"
        return Judgement(principal.name, principal.role, [missing], [], [])
    named = places(deployment)
    asked = [one for right in principal.rights for one in _expanded(deployment, right.at(named))]
    asked += sorted({implied for right in asked for implied in _implied(deployment, right)})
    own = policies.by_role[principal.role]
    lacking: list[str] = []
    unproven: list[str] = []
    for right in asked:
        answer, why = _decide(right, own, policies.of_resources, _context(deployment, right))
        if answer is Answer.NO and policies.managed[principal.role]:
            answer, why = Answer.UNPROVEN, f"may be in {', '.join(policies.managed[principal.role])}"
        if answer is Answer.NO:
            lacking.append(f"{where}: needs {right}: {why}")
        elif answer is Answer.UNPROVEN:
            unproven.append(f"{right}: {why}")
    unused = sorted(
        {
            (action, resource)
            for statement in own
            if statement.effect == "Allow"
            for action in statement.actions
            for resource in statement.resources
            if not any(_matches(action, one.action, fold=True) and _matches(resource, one.resource) for one in asked)
        }
    )
    return Judgement(principal.name, principal.role, lacking, unproven, unused)


def places(deployment: Deployment) -> dict[str, str]:
    """What the names in braces stand for in an environment: buckets by their own names, what there is one of by its
    kind, and any other resource of these types by stack and id, as in ``{connect_SourceRole}``."""
    found = {
        "region": deployment.region,
        "account": deployment.account,
        "assets": _assets(deployment),
    }
    for resource in deployment.resources(*_NAMED):
        found[resource.place.replace(":", "_")] = deployment.name(resource)
    for bucket in deployment.resources("AWS::S3::Bucket"):
        found[bucket.place.rpartition(":")[2].lower()] = deployment.name(bucket)
    for database in deployment.resources("AWS::Glue::Database"):
        found["database"] = deployment.name(database)
        found["environment"] = deployment.name(database).rpartition("_")[2]
    for cluster in deployment.resources("AWS::MSK::Cluster"):
        found["kafka"] = deployment.arn(cluster).partition(":cluster/")[2]
    return found


def _expanded(deployment: Deployment, right: Right) -> Iterator[Right]:
    """A right to ``assets-of:PLACE`` as one to each asset that the resource there names; any other as it is. Raises
    UserError where there is no such resource, or it names none."""
    kind, _, place = right.resource.partition(":")
    if kind != "assets-of":
        yield right
        return
    bucket = _assets(deployment)
    texts = [str(one.properties) for one in deployment.resources() if one.place == place]
    keys = sorted({key for text in texts for key in re.findall(rf"s3://{re.escape(bucket)}/([^\s'\",]+)", text)})
    if not keys:
        raise UserError(f"{right}: found no asset in a resource {place}, expected some")
    for key in keys:
        yield Right(right.action, f"arn:aws:s3:::{bucket}/{key}", right.context)


def _assets(deployment: Deployment) -> str:
    """The bucket of `cdk bootstrap`, in which assets lie."""
    return f"cdk-hnb659fds-assets-{deployment.account}-{deployment.region}"


def _implied(deployment: Deployment, right: Right) -> Iterator[Right]:
    """The rights to a key that come with a right to what the key encrypts."""
    service = right.action.partition(":")[0]
    key = None
    for resource in deployment.resources(
        "AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::Kinesis::Stream", "AWS::DynamoDB::Table"
    ):
        arn = deployment.arn(resource)
        if right.resource == arn or right.resource.startswith(f"{arn}/"):
            key = _key(resource)
    actions = {
        "s3:GetObject": ("Decrypt",),
        # Parts of a multipart upload are read back when they are put together.
        "s3:PutObject": ("Decrypt", "GenerateDataKey"),
        "secretsmanager:GetSecretValue": ("Decrypt",),
        "secretsmanager:PutSecretValue": ("Decrypt", "GenerateDataKey"),
        "kinesis:GetRecords": ("Decrypt",),
        "kinesis:PutRecord": ("GenerateDataKey",),
        "kinesis:PutRecords": ("GenerateDataKey",),
        "dynamodb:GetItem": ("Decrypt",),
        "dynamodb:PutItem": ("Decrypt",),
    }.get(right.action, ())
    if key is not None:
        via = (("kms:ViaService", f"{service}.{deployment.region}.amazonaws.com"),)
        yield from (Right(f"kms:{action}", key, via) for action in actions)


def _key(resource: Resource) -> str | None:
    """The ARN of the key that a resource is encrypted with, where it is one of the deployment's own."""
    properties = resource.properties
    found = properties.get("KmsKeyId") or properties.get("StreamEncryption", {}).get("KeyId")
    found = found or properties.get("SSESpecification", {}).get("KMSMasterKeyId")
    for rule in properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", []):
        found = rule["ServerSideEncryptionByDefault"].get("KMSMasterKeyID")
    return str(found) if found and str(found).startswith("arn:") else None


def _context(deployment: Deployment, right: Right) -> dict[str, str]:
    """What is known of every request of ours, and of this one."""
    known = {
        "aws:SecureTransport": "true",
        "aws:SourceAccount": deployment.account,
        "aws:PrincipalAccount": deployment.account,
        # The lowest that our clients offer.
        "s3:TlsVersion": "1.2",
    }
    return {**known, **dict(right.context)}


def _decide(
    right: Right, own: Sequence[Statement], of_resources: Sequence[Statement], context: Mapping[str, str]
) -> tuple[Answer, str]:
    doubt = ""
    for statement in [*own, *of_resources]:
        if statement.effect == "Deny" and statement.speaks_of(right):
            denied = statement.holds(context)
            if denied is Answer.YES:
                return Answer.NO, f"denied by {statement.owner}"
            if denied is Answer.UNPROVEN:
                doubt = f"{statement.owner} denies it where {_words(statement.conditions)}"
    allowing = [one for one in own if one.effect == "Allow" and one.speaks_of(right)]
    held = [one.holds(context) for one in allowing]
    if Answer.YES in held:
        if right.action.startswith("kms:") and not _left_to_roles(right, of_resources):
            return Answer.NO, "the key's own policy does not leave it to IAM"
        return (Answer.UNPROVEN, doubt) if doubt else (Answer.YES, "")
    for statement, answer in zip(allowing, held, strict=True):
        if answer is Answer.UNPROVEN:
            return Answer.UNPROVEN, f"allowed by {statement.owner} where {_words(statement.conditions)}"
    if allowing:
        return Answer.NO, f"{allowing[0].owner} allows it only where {_words(allowing[0].conditions)}"
    return Answer.NO, "no statement allows it"


def _left_to_roles(right: Right, of_resources: Sequence[Statement]) -> bool:
    """Whether a key's policy gives its account, and so IAM, the say."""
    return any(
        statement.effect == "Allow" and "kms:*" in statement.actions and not statement.conditions
        for statement in of_resources
        if statement.subject == right.resource
    )


def _subject(deployment: Deployment, resource: Resource) -> str | None:
    if resource.type == "AWS::KMS::Key":
        return deployment.arn(resource)
    found = resource.properties.get("SecretId")
    return str(found) if found is not None else None


def unjudged(policies: Policies, principals: Iterable[Principal]) -> list[str]:
    """What no evaluation here can judge: AWS's own policies, and roles whose requests no local run records."""
    known = {principal.role for principal in principals}
    found = [
        f"{place}: its right by AWS's policy {name}" for place, names in policies.managed.items() for name in names
    ]
    return sorted(
        found + [f"{place}: no local run records its requests" for place in policies.roles if place not in known]
    )


def _statements(owner: str, document: Mapping[str, Any], subject: str | None = None) -> list[Statement]:
    return [
        Statement(
            owner,
            str(one["Effect"]),
            _texts(one.get("Action")),
            _texts(one.get("NotAction")),
            _texts(one.get("Resource")),
            _texts(one.get("NotResource")),
            one.get("Condition", {}),
            subject,
        )
        for one in document["Statement"]
    ]


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(str(one) for one in value) if isinstance(value, list) else (str(value),)


def _matches(pattern: str, value: str, *, fold: bool = False) -> bool:
    """Whether IAM's pattern covers a value. A ``*`` in the value stands for any text, which only the pattern's own
    ``*`` covers."""
    if fold:
        pattern, value = pattern.lower(), value.lower()
    expression = "".join({"*": ".*", "?": "[^*]"}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(expression, value, re.DOTALL) is not None


def _condition(operator: str, wanted: Any, found: str | None) -> Answer:
    """Whether one condition holds. Operators and keys that are not known here are unproven."""
    name = operator.rpartition(":")[2].removesuffix("IfExists")
    if found is None:
        return Answer.YES if operator.endswith("IfExists") and ":" not in operator else Answer.UNPROVEN
    values = [str(one).lower() if isinstance(one, bool) else str(one) for one in _listed(wanted)]
    if name in ("StringEquals", "ArnEquals"):
        held = found in values
    elif name == "Bool":
        held = found in [one.lower() for one in values]
    elif name in ("StringLike", "ArnLike"):
        held = any(fnmatch.fnmatchcase(found.replace("*", "any"), one) for one in values)
    elif name == "NumericLessThan":
        held = any(float(found) < float(one) for one in values)
    else:
        return Answer.UNPROVEN
    return Answer.YES if held else Answer.NO


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    return " and ".join(
        f"{key} {operator} {', '.join(str(one) for one in _listed(value))}"
        for operator, keys in conditions.items()
        for key, value in keys.items()
    )

"""Checks that the synthesized policies give every needed right, and finds rights that no principal needs."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headwater.environment.source_stacks import STACKS
from headwater.errors import UserError
from headwater.review.rights import Principal, Right
from headwater.review.templates import Deployment, Resource

# Resources with a policy of their own, and the property that holds it.
_WITH_POLICY = {
    "AWS::S3::BucketPolicy": ("PolicyDocument",),
    "AWS::SecretsManager::ResourcePolicy": ("ResourcePolicy",),
    "AWS::SNS::TopicPolicy": ("PolicyDocument",),
    "AWS::KMS::Key": ("KeyPolicy",),
    "AWS::EC2::VPCEndpoint": ("PolicyDocument",),
    "AWS::Kinesis::ResourcePolicy": ("ResourcePolicy",),
    "AWS::DynamoDB::Table": ("ResourcePolicy", "PolicyDocument"),
}
# Types of resources that the ARNs of ``reviewed/rights/`` name in braces.
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
# The beginning of the places in the stack of Glue's jobs, and the name of the recorded job there.
_JOBS, _SHARED = "glue-job:", "keyvalue"
# Patterns that find a lake table, a job, or a PostgreSQL table (by its topic) in a right of ``reviewed/rights/``.
_TABLE = re.compile(
    r"(?P<before>:table/\{database\}/|[}=](?:/?lake/)(?:_forgotten/|_leases/|_requests/|_quarantine/)?|\{key-value_Stream)"
    r"(?P<name>[a-z][a-z0-9_]*)"
)
_JOB = re.compile(r"(?P<before>:job/headwater-\{environment\}-)(?P<name>key-value)")
_TOPIC = re.compile(r"(?P<before>topic/\{kafka\}/|landing/)(?P<name>headwater\.(?!capture\.)[^/ ]+)")


_Deployed = Iterable[tuple[re.Pattern[str], Iterable[str]]]
"""Patterns for one kind of names in rights, such as tables, each with the deployed names of that kind."""


class Answer(Enum):
    """Whether a policy allows a request."""

    YES = "allowed"
    NO = "not allowed"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class Statement:
    """One statement of a policy."""

    owner: str
    """The place of the policy."""
    effect: str
    """``Allow`` or ``Deny``."""
    actions: tuple[str, ...]
    """The patterns of ``Action``."""
    not_actions: tuple[str, ...]
    """The patterns of ``NotAction``."""
    resources: tuple[str, ...]
    """The patterns of ``Resource``."""
    not_resources: tuple[str, ...]
    """The patterns of ``NotResource``."""
    conditions: Mapping[str, Mapping[str, Any]]
    """The conditions, by operator and condition key."""
    subject: str | None = None
    """The ARN of the only resource that the statement is about; None if ``Resource`` names the resources."""

    def covers(self, right: Right) -> bool:
        """Whether the statement is about this action on this resource, whatever its conditions."""
        if self.subject not in (None, right.resource):
            return False
        if self.actions and not _any_action(self.actions, right.action):
            return False
        if self.resources and not _any_resource(self.resources, right.resource):
            return False
        return not _any_action(self.not_actions, right.action) and not _any_resource(self.not_resources, right.resource)

    def holds(self, context: Mapping[str, str]) -> Answer:
        """Whether the conditions hold for a request; unproven if they depend on an unknown value."""
        answers = [
            _condition(operator, expected, context.get(key))
            for operator, keys in self.conditions.items()
            for key, expected in keys.items()
        ]
        if Answer.NO in answers:
            return Answer.NO
        return Answer.UNPROVEN if Answer.UNPROVEN in answers else Answer.YES


@dataclass(frozen=True)
class Policies:
    """All policies of a deployment."""

    by_role: Mapping[str, Sequence[Statement]]
    """The statements of each role's policies."""
    of_resources: Sequence[Statement]
    """The statements of resource policies."""
    managed: Mapping[str, Sequence[str]]
    """The names of AWS's own managed policies, by role."""
    roles: Mapping[str, Resource]
    """The roles, by their place."""


def read(deployment: Deployment) -> Policies:
    """Read the policies of a deployment. A role's policies are under the role's place."""
    roles = {role.place: role for role in deployment.resources("AWS::IAM::Role")}
    places = {role.reference: place for place, role in roles.items()}
    places |= {deployment.name(role): place for place, role in roles.items()}
    by_role: dict[str, list[Statement]] = {place: [] for place in roles}
    # Collect the statements of inline policies, then of policies that name roles.
    for place, role in roles.items():
        for policy in role.properties.get("Policies", []):
            by_role[place] += _statements(place, policy["PolicyDocument"])
    for policy in deployment.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for reference in policy.properties.get("Roles", []):
            if reference in places:
                by_role[places[reference]] += _statements(policy.place, policy.properties["PolicyDocument"])
    # Collect the statements of resource policies.
    of_resources: list[Statement] = []
    for type_, path in _WITH_POLICY.items():
        for resource in deployment.resources(type_):
            document: Any = resource.properties
            for part in path:
                document = document.get(part) if isinstance(document, Mapping) else None
            if document:
                # In the policy of a key or a secret, "*" is that key or secret.
                of_resources += _statements(resource.place, document, _subject(deployment, resource))
    managed = {
        place: [str(arn).rpartition("/")[2] for arn in role.properties.get("ManagedPolicyArns", [])]
        for place, role in roles.items()
    }
    return Policies(by_role, of_resources, managed, roles)


@dataclass(frozen=True)
class Judgement:
    """A comparison of a principal's needed rights with its role's policies."""

    principal: str
    """The principal's name."""
    role: str
    """The role's place."""
    missing: Sequence[str]
    """The rights that the policies do not allow, each with the reason."""
    unproven: Sequence[str]
    """The rights that are neither proven nor refuted."""
    unused: Sequence[tuple[str, str]]
    """Granted actions and resources that no right needs."""


def needed_by(deployment: Deployment, principals: Iterable[Principal]) -> list[Principal]:
    """The principals of a deployment, with the rights that its kind of database needs.

    If the deployment has no stack of a source, then it has no principal of that source. Each table needs the rights
    that were recorded for one table. Each job needs the rights that were recorded for the job of all tables.
    """
    parts = {_part(resource.place) for resource in deployment.resources()}
    absent = {part for stacks in STACKS.values() if parts.isdisjoint(stacks) for part in stacks}
    principals = [principal for principal in principals if _part(principal.role) not in absent]
    if any(True for _ in deployment.resources("AWS::RDS::DBCluster")):
        principals = [principal.with_database("aurora") for principal in principals]
    else:
        principals = [principal.with_database("existing") for principal in principals if not principal.only_with_aurora]
    # Find the names of the deployed tables, topics and jobs, and repeat the recorded rights for each of them.
    jobs = {job: {table for table, _ in _streams(job)} for job in deployment.resources("AWS::Glue::Job")}
    of_postgresql = _lake_tables(deployment).difference(*jobs.values())
    topics = {
        name
        for name in (str(topic.properties["TopicName"]) for topic in deployment.resources("AWS::MSK::Topic"))
        if name.startswith("headwater.") and not name.startswith("headwater.capture.")
    }
    prefix = f"headwater-{places(deployment)['environment']}-"
    job_names = {str(job.properties["Name"]).removeprefix(prefix) for job in jobs}
    needed = []
    for principal in principals:
        if principal.role == f"{_JOBS}Role{_SHARED}":
            needed += [_for_all(_of_job(principal, job), ((_TABLE, tables),)) for job, tables in jobs.items()]
        else:
            needed.append(_for_all(principal, ((_TABLE, of_postgresql), (_TOPIC, topics), (_JOB, job_names))))
    return needed


def _part(place: str) -> str:
    """The stack of a place."""
    return place.partition(":")[0]


def _of_job(principal: Principal, job: Resource) -> Principal:
    """The principal of one job, made from the principal of the job of all tables."""
    name = job.place.removeprefix(f"{_JOBS}Job")

    def of(right: Right) -> Right:
        return Right.parse(str(right).replace(f"{_JOBS}Job{_SHARED}", job.place))

    return replace(
        principal,
        role=f"{_JOBS}Role{name}",
        recorded=frozenset(map(of, principal.recorded)),
        declared={of(right): reason for right, reason in principal.declared.items()},
    )


def _for_all(principal: Principal, deployed: _Deployed) -> Principal:
    recorded = {each for right in principal.recorded for each in _for_each(right, deployed)}
    declared = {each: reason for right, reason in principal.declared.items() for each in _for_each(right, deployed)}
    return replace(principal, recorded=frozenset(recorded), declared=declared)


def _for_each(right: Right, deployed: _Deployed) -> Iterator[Right]:
    """The right for each deployed name of its kind. A right about no such name stays as it is."""
    text = str(right)
    for pattern, names in deployed:
        match = pattern.search(text)
        if match is not None:
            start, end = match.span("name")
            yield from (Right.parse(f"{text[:start]}{name}{text[end:]}") for name in names)
            return
    yield right


def _lake_tables(deployment: Deployment) -> set[str]:
    """The lake's tables, without the views."""
    entries = [table.properties["TableInput"] for table in deployment.resources("AWS::Glue::Table")]
    return {str(entry["Name"]) for entry in entries if entry.get("TableType") != "VIRTUAL_VIEW"}


def _streams(job: Resource) -> Iterator[tuple[str, str]]:
    """The tables that a Glue job writes, each with the ARN of its stream."""
    for stream in str(job.properties["DefaultArguments"].get("--stream-arn", "")).split(","):
        table, _, arn = stream.partition("=")
        if arn:
            yield table, arn


def judge(deployment: Deployment, policies: Policies, principal: Principal) -> Judgement:
    """Compare a principal's rights with its role's policies."""
    where = f"{principal.name} ({principal.role})"
    if principal.role not in policies.by_role:
        missing = f"{where}: found no role of this place, expected one of {', '.join(sorted(policies.by_role))}"
        return Judgement(principal.name, principal.role, [missing], [], [])
    named = places(deployment)
    needed = [expanded for right in principal.rights for expanded in _expanded(deployment, right.at(named))]
    needed += sorted({implied for right in needed for implied in _implied(deployment, right)})
    own = policies.by_role[principal.role]
    # Decide about each needed right.
    missing_rights: list[str] = []
    unproven: list[str] = []
    for right in needed:
        answer, why = _decide(right, own, policies.of_resources, _context(deployment, right))
        if answer is Answer.NO and policies.managed[principal.role]:
            answer, why = Answer.UNPROVEN, f"may be in {', '.join(policies.managed[principal.role])}"
        if answer is Answer.NO:
            missing_rights.append(f"{where}: needs {right}: {why}")
        elif answer is Answer.UNPROVEN:
            unproven.append(f"{right}: {why}")
    # Find the granted rights that no needed right uses.
    unused = sorted(
        {
            (action, resource)
            for statement in own
            if statement.effect == "Allow"
            for action in statement.actions
            for resource in statement.resources
            if not any(
                _any_action([action], right.action) and _any_resource([resource], right.resource) for right in needed
            )
        }
    )
    return Judgement(principal.name, principal.role, missing_rights, unproven, unused)


def places(deployment: Deployment) -> dict[str, str]:
    """Return the values of an environment for the names in braces.

    The names are ``{lake}`` and the other buckets, ``{database}`` and other single resources, and the source
    connector's ``{source_secret}``. Other resources are named by stack and id, such as ``{connect_SourceRole}``.
    """
    values = {
        "region": deployment.region,
        "account": deployment.account,
        "assets": _assets(deployment),
    }
    for resource in deployment.resources(*_NAMED):
        values[resource.place.replace(":", "_")] = deployment.name(resource)
    for bucket in deployment.resources("AWS::S3::Bucket"):
        values[bucket.place.rpartition(":")[2].lower()] = deployment.name(bucket)
    for database in deployment.resources("AWS::Glue::Database"):
        values["database"] = deployment.name(database)
        values["environment"] = deployment.name(database).rpartition("_")[2]
    for cluster in deployment.resources("AWS::MSK::Cluster"):
        values["kafka"] = deployment.arn(cluster).partition(":cluster/")[2]
    for connector in deployment.resources("Custom::HeadwaterConnector"):
        password = connector.properties["Connector"]["connectorConfiguration"].get("database.password", "")
        for secret in re.findall(r"\$\{secretsmanager:([^:]+):", password):
            values["source_secret"] = secret
    for job in deployment.resources("AWS::Glue::Job"):
        for table, arn in _streams(job):
            # The deployment does not create an existing stream.
            values.setdefault(f"key-value_Stream{table}", arn.rpartition("/")[2])
    return values


def _expanded(deployment: Deployment, right: Right) -> Iterator[Right]:
    """Expand a right to ``assets-of:PLACE`` into a right to each asset that the resource at that place names.

    Any other right stays as it is. Raises UserError if no such resource names an asset.
    """
    kind, _, place = right.resource.partition(":")
    if kind != "assets-of":
        yield right
        return
    bucket = _assets(deployment)
    texts = [str(resource.properties) for resource in deployment.resources() if resource.place == place]
    keys = sorted({key for text in texts for key in re.findall(rf"s3://{re.escape(bucket)}/([^\s'\",]+)", text)})
    if not keys:
        raise UserError(f"{right}: found no asset in a resource {place}, expected some")
    for key in keys:
        yield Right(right.action, f"arn:aws:s3:::{bucket}/{key}", right.context)


def _assets(deployment: Deployment) -> str:
    """The bucket that ``cdk bootstrap`` creates for assets."""
    return f"cdk-hnb659fds-assets-{deployment.account}-{deployment.region}"


def _implied(deployment: Deployment, right: Right) -> Iterator[Right]:
    """The rights to the key that encrypts a right's resource."""
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
        # S3 reads the parts of a multipart upload back when it puts them together.
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
    """The ARN of the key that encrypts a resource, if the deployment has that key."""
    properties = resource.properties
    key = properties.get("KmsKeyId") or properties.get("StreamEncryption", {}).get("KeyId")
    key = key or properties.get("SSESpecification", {}).get("KMSMasterKeyId")
    for rule in properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", []):
        key = rule["ServerSideEncryptionByDefault"].get("KMSMasterKeyID")
    return str(key) if key and str(key).startswith("arn:") else None


def _context(deployment: Deployment, right: Right) -> dict[str, str]:
    """The condition keys with known values: the keys of all our requests, and the keys of this right."""
    known = {
        "aws:SecureTransport": "true",
        "aws:SourceAccount": deployment.account,
        "aws:PrincipalAccount": deployment.account,
        # The lowest TLS version that our clients offer.
        "s3:TlsVersion": "1.2",
    }
    return {**known, **dict(right.context)}


def _decide(
    right: Right, own: Sequence[Statement], of_resources: Sequence[Statement], context: Mapping[str, str]
) -> tuple[Answer, str]:
    # A denial that holds decides. After that, the role's own statements must allow the right.
    doubt = ""
    for statement in [*own, *of_resources]:
        if statement.effect == "Deny" and statement.covers(right):
            denied = statement.holds(context)
            if denied is Answer.YES:
                return Answer.NO, f"denied by {statement.owner}"
            if denied is Answer.UNPROVEN:
                doubt = f"{statement.owner} denies it where {_words(statement.conditions)}"
    allowing = [statement for statement in own if statement.effect == "Allow" and statement.covers(right)]
    answers = [statement.holds(context) for statement in allowing]
    if Answer.YES in answers:
        if right.action.startswith("kms:") and not _leaves_it_to_iam(right, of_resources):
            return Answer.NO, "the key's own policy does not leave it to IAM"
        return (Answer.UNPROVEN, doubt) if doubt else (Answer.YES, "")
    for statement, answer in zip(allowing, answers, strict=True):
        if answer is Answer.UNPROVEN:
            return Answer.UNPROVEN, f"allowed by {statement.owner} where {_words(statement.conditions)}"
    if allowing:
        return Answer.NO, f"{allowing[0].owner} allows it only where {_words(allowing[0].conditions)}"
    return Answer.NO, "no statement allows it"


def _leaves_it_to_iam(right: Right, of_resources: Sequence[Statement]) -> bool:
    """Whether the key's own policy allows its account everything, so that IAM's policies decide about the key."""
    return any(
        statement.effect == "Allow" and "kms:*" in statement.actions and not statement.conditions
        for statement in of_resources
        if statement.subject == right.resource
    )


def _subject(deployment: Deployment, resource: Resource) -> str | None:
    """The ARN of the key or secret that a resource policy belongs to."""
    if resource.type == "AWS::KMS::Key":
        return deployment.arn(resource)
    secret = resource.properties.get("SecretId")
    return str(secret) if secret is not None else None


def unjudged(policies: Policies, principals: Iterable[Principal]) -> list[str]:
    """The rights that cannot be judged: AWS's own policies, and roles whose requests no local run records."""
    known = {principal.role for principal in principals}
    managed = [
        f"{place}: what AWS's policy {name} allows" for place, names in policies.managed.items() for name in names
    ]
    unrecorded = [f"{place}: no local run records its requests" for place in policies.roles if place not in known]
    return sorted(managed + unrecorded)


def _statements(owner: str, document: Mapping[str, Any], subject: str | None = None) -> list[Statement]:
    return [
        Statement(
            owner,
            effect=str(statement["Effect"]),
            actions=_texts(statement.get("Action")),
            not_actions=_texts(statement.get("NotAction")),
            resources=_texts(statement.get("Resource")),
            not_resources=_texts(statement.get("NotResource")),
            conditions=statement.get("Condition", {}),
            subject=subject,
        )
        for statement in document["Statement"]
    ]


def _texts(value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(map(str, _listed(value)))


def _any_action(patterns: Iterable[str], action: str) -> bool:
    return any(_matches(pattern.lower(), action.lower()) for pattern in patterns)


def _any_resource(patterns: Iterable[str], arn: str) -> bool:
    return any(_matches(pattern, arn) for pattern in patterns)


def _matches(pattern: str, value: str) -> bool:
    """Whether IAM's pattern covers a value.

    A ``*`` in the value stands for any text, so only a ``*`` of the pattern covers it.
    """
    expression = "".join({"*": ".*", "?": "[^*]"}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(expression, value, re.DOTALL) is not None


def _condition(operator: str, expected: Any, value: str | None) -> Answer:
    """Whether a condition holds for the value of its key; unproven if the operator or the value is unknown."""
    name = operator.rpartition(":")[2].removesuffix("IfExists")
    if value is None:
        return Answer.YES if operator.endswith("IfExists") and ":" not in operator else Answer.UNPROVEN
    values = [str(item).lower() if isinstance(item, bool) else str(item) for item in _listed(expected)]
    if name in ("StringEquals", "ArnEquals"):
        holds = value in values
    elif name == "Bool":
        holds = value in [item.lower() for item in values]
    elif name in ("StringLike", "ArnLike"):
        holds = any(fnmatch.fnmatchcase(value.replace("*", "any"), pattern) for pattern in values)
    elif name == "NumericLessThan":
        holds = any(float(value) < float(limit) for limit in values)
    else:
        return Answer.UNPROVEN
    return Answer.YES if holds else Answer.NO


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    return " and ".join(
        f"{key} {operator} {', '.join(map(str, _listed(value)))}"
        for operator, keys in conditions.items()
        for key, value in keys.items()
    )

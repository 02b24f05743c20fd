"""cdk-nag's rules run in every synthesis, and each finding that stands has a reason that still holds."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

from headwater.contract.model import Contract
from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.lake_folder import EXAMPLE
from stacks import application, nag
from stacks.assets import Assets
from stacks.nag import Reason
from tests.synth.deployed import made
from tests.synth.example import example_content

if TYPE_CHECKING:
    from tests.synth.conftest import Synthesized


@dataclass(frozen=True)
class Acknowledged:
    """A rule's finding that a construct lets stand, and the reason."""

    path: str
    rule: str
    reason: str


def test_no_finding_is_unaccounted_for(every_stack: "Synthesized") -> None:
    assert violations(every_stack.assembly) == []


def test_every_acknowledgement_is_used(every_stack: "Synthesized") -> None:
    assert _acknowledged(every_stack.assembly)
    assert acknowledged_in_vain(every_stack.assembly) == []


def test_every_acknowledgement_has_a_coded_reason(every_stack: "Synthesized") -> None:
    sentences = {f"{reason.name}: {reason.value}" for reason in Reason}
    assert [
        acknowledged for acknowledged in _acknowledged(every_stack.assembly) if acknowledged.reason not in sentences
    ] == []


def test_every_coded_reason_is_used_somewhere(synthesize: Callable[[str], "Synthesized"]) -> None:
    used = {
        acknowledged.reason.partition(":")[0]
        for name in environment.on_aws(EXAMPLE.config)
        for acknowledged in _acknowledged(synthesize(name).assembly)
    }
    # Only a first deploy has the one, and tests/synth/test_first_deploy.py fails without it; only contracts with masks
    # have the other, and tests/synth/test_masks.py fails without it.
    elsewhere = {Reason.PROTECTED_ONCE_COMPLETE.name, Reason.ANOTHER_KEY_MAKES_OTHER_MASKS.name}
    assert used | elsewhere == {reason.name for reason in Reason}


def test_the_app_does_not_synthesize_with_a_finding(
    contracts: list[Contract], assets: Assets, new_app: Callable[[], cdk.App]
) -> None:
    app = new_app()
    settings = read_environment("dev", EXAMPLE.config)
    stack = made(application.build(app, settings, contracts, example_content(contracts), assets).network)
    open_group = ec2.SecurityGroup(stack, "OpenGroup", vpc=stack.vpc)
    open_group.add_ingress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(22))
    s3.Bucket(stack, "PlainBucket")
    sns.Topic(stack, "PlainTopic")
    kms.Key(stack, "StaleKey")
    role = iam.Role(stack, "MightyRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["s3:*"], resources=["*"]))
    role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name("AdministratorAccess"))
    ec2.CfnVolume(stack, "PlainVolume", availability_zone="eu-central-1a", size=8, encrypted=False)

    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    findings = {
        (violation["ruleName"], construct["constructPath"].split("/")[1])
        for report in _reports(Path(app.outdir))
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    }
    assert {(rule, construct) for rule, construct in findings if rule.startswith("AwsSolutions")} == {
        ("AwsSolutions-EC23", "OpenGroup"),
        ("AwsSolutions-EC26", "PlainVolume"),
        ("AwsSolutions-S1", "PlainBucket"),
        ("AwsSolutions-S10", "PlainBucket"),
        ("AwsSolutions-SNS3", "PlainTopic"),
        ("AwsSolutions-KMS5", "StaleKey"),
        ("AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AdministratorAccess]", "MightyRole"),
        ("AwsSolutions-IAM5[Action::s3:*]", "MightyRole"),
        ("AwsSolutions-IAM5[Resource::*]", "MightyRole"),
    }


def test_an_acknowledgement_lets_its_own_finding_through_and_a_needless_one_is_seen(
    new_app: Callable[[], cdk.App],
) -> None:
    app = new_app()
    nag.check(app)
    stack = cdk.Stack(app, "canary")
    other_stack = cdk.Stack(app, "other")
    bucket = s3.Bucket(other_stack, "Bucket", enforce_ssl=True)
    nag.acknowledge(bucket, "S1", Reason.STATELESS_HOST)
    nag.acknowledge(bucket, "S10", Reason.STATELESS_HOST)
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    own = kms.Key(stack, "Key", enable_key_rotation=True)
    arns = [bucket.arn_for_objects("a/*"), f"{own.key_arn}:*", stack.format_arn(service="kafka", resource="topic/*")]
    role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=arns))
    nag.acknowledge_wildcard(role, [*arns, bucket.bucket_arn], Reason.OBJECTS_BELOW_A_PREFIX)
    nag.acknowledge_wildcard(role, [bucket.arn_for_objects("b/*")], Reason.OBJECTS_BELOW_A_PREFIX)

    app.synth()
    unused = [
        (acknowledged.path, acknowledged.rule.partition("::")[2][:33])
        for acknowledged in acknowledged_in_vain(Path(app.outdir))
    ]
    assert unused == [
        ("canary/Role", "AwsSolutions-IAM5[Resource::other"),
        ("other/Bucket", "AwsSolutions-S10"),
    ]


def violations(assembly: Path) -> list[dict[str, Any]]:
    """The findings of cdk-nag that nobody has acknowledged."""
    return [finding for report in _reports(assembly) for finding in report["violations"]]


def _reports(assembly: Path) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = json.loads((assembly / "validation-report.json").read_text())["pluginReports"]
    return reports


def _acknowledged(assembly: Path) -> list[Acknowledged]:
    """The findings of cdk-nag that the constructs of an app let stand."""
    return [
        Acknowledged(path.removeprefix("/"), rule, reason)
        for file in sorted(assembly.glob("*.metadata.json"))
        for path, entries in json.loads(file.read_text()).items()
        for entry in entries
        if entry["type"] == "aws:cdk:acknowledged-rules"
        for rule, reason in entry["data"].items()
        if rule.startswith("AwsSolutions")
    ]


def _suppressed(assembly: Path) -> Iterator[tuple[str, str]]:
    """Place and rule of each acknowledgement that let a finding stand."""
    for report in _reports(assembly):
        for finding in report.get("suppressedViolations", ()):
            yield finding["acknowledgedAt"], finding["acknowledgedId"]


def acknowledged_in_vain(assembly: Path) -> list[Acknowledged]:
    """The acknowledgements that let no finding stand."""
    used = set(_suppressed(assembly))
    return [
        acknowledged for acknowledged in _acknowledged(assembly) if (acknowledged.path, acknowledged.rule) not in used
    ]

"""Security rules: cdk-nag's AwsSolutions runs in every synthesis. Each finding that stands is acknowledged beside the
construct that it is about, with one of the reasons below."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks
from constructs import Construct, IConstruct

_PACK = "AwsSolutions"


class Reason(enum.Enum):
    """Why a finding stands. The name is the code that reports and tests show."""

    OBJECTS_BELOW_A_PREFIX = "Objects are named when they are written: a right on them can only name their prefix"
    NAMES_BELOW_A_PREFIX = "AWS names these when it makes them: a right on them can only name their prefix"
    TABLES_OF_ONE_DATABASE = "A query engine may read every table of Headwater's own database, and of no other"
    ACTION_TAKES_NO_RESOURCE = "AWS defines no resource for these actions"
    EMR_OWN_POLICY = "AWS keeps this policy in step with EMR; it acts on what carries EMR's tag only"
    STATELESS_HOST = "Nothing is kept on this host: it is made anew when its image is, and nobody watches its metrics"
    DATA_MAY_GO = "Both settings of this environment say that its data goes with its stack"
    PROTECTED_ONCE_COMPLETE = "headwater deploy protects a stack once it stands: a protected one that failed would stay"
    ROTATES_FROM_ANOTHER_STACK = "The stack of the content rotates the secret, once the content stands"
    ANOTHER_KEY_MAKES_OTHER_MASKS = "Equal texts have equal masks as long as the key stays: it is never rotated"
    ANOTHER_KEY_FORGETS_NOBODY = "What was forgotten is known by the key of then alone: it is never rotated"
    RULE_LOOKS_ELSEWHERE = "The rule misses EncryptionConfiguration, where EMR has it; a test checks the template"
    NITRO_ENCRYPTS = "The network cards of these instance types encrypt what nodes send each other; a test checks them"
    OWN_KEY = "AWS's own key would cost less, but its policy is not ours to write"
    FUNCTIONS_LOG = "This state machine does nothing but wait: the functions that it calls log each step"
    VERSIONS_OF_ONE_FUNCTION = "CDK grants a function's versions with the function"
    NOBODY_LOGS_IN_BY_IAM = "Each role has a password in a secret, and nobody uses IAM: the way in is closed"
    NO_SSH = "No port for SSH is open: Session Manager on the bastion is the only way in"


def check(app: Construct) -> None:
    """Make the synthesis of an app fail on a finding that is not acknowledged."""
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def acknowledge(construct: IConstruct, rule: str, reason: Reason) -> None:
    """Let a finding on a construct, or on a construct below it, stand. ``rule`` is the rule's name without the pack's,
    such as ``EC29`` or ``IAM5[Action::ec2messages:*]``."""
    cdk.Validations.of(construct).acknowledge(
        cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=f"{reason.name}: {reason.value}")
    )


def acknowledge_wildcard(grantee: iam.IGrantable, arns: Iterable[str], reason: Reason) -> None:
    """Let a role's policy name each of ``arns`` that contains a ``*``."""
    # A role is its own principal, and a construct.
    role: Construct = grantee.grant_principal  # type: ignore[assignment]
    for arn in arns:
        if "*" in arn:
            acknowledge(role, f"IAM5[Resource::{_as_reported(cdk.Stack.of(role), arn)}]", reason)


def _as_reported(stack: cdk.Stack, arn: str) -> str:
    """An ARN as cdk-nag reports it in a policy of ``stack``. A reference stands in angle brackets; a reference to
    another stack's resource is the name of the export."""
    exports = {}
    for token in cdk.Tokenization.reverse_string(arn).tokens:
        if isinstance(token, cdk.Reference):
            owner = cdk.Stack.of(token.target)
            if owner.node.path != stack.node.path:
                exports[str(stack.resolve(token))] = owner.resolve(owner.export_value(token))["Fn::ImportValue"]
    return _flat(stack.resolve(arn), exports)


def _flat(value: Any, exports: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    if str(value) in exports:
        return exports[str(value)]
    ((function, argument),) = value.items()
    if function == "Fn::Join":
        separator, parts = argument
        return str(separator).join(_flat(part, exports) for part in parts)
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    return f"<{argument}>" if function == "Ref" else str(argument)

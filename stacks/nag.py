"""Security rules: cdk-nag's AwsSolutions runs in every synthesis.

Each finding that stays is acknowledged beside the construct that it is about, with one of the reasons below.
"""

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
    """Why a finding may stay. Reports and tests show the reason's name as its code."""

    OBJECTS_BELOW_A_PREFIX = "Objects are named when they are written: a policy can only name their prefix"
    NAMES_BELOW_A_PREFIX = "AWS names these when it creates them: a policy can only name their prefix"
    TABLES_OF_ONE_DATABASE = "A query engine may read every table of Headwater's own database, and of no other"
    ACTION_TAKES_NO_RESOURCE = "AWS defines no resource for these actions"
    EMR_OWN_POLICY = "AWS maintains this policy for EMR; it covers only resources with EMR's tag"
    STATELESS_HOST = "The host keeps no data: a new image replaces it, and nobody watches its metrics"
    DATA_MAY_GO = "Both settings of this environment say that its data goes with its stack"
    PROTECTED_ONCE_COMPLETE = "headwater deploy protects a stack after its creation: a failed one has to be deleted"
    ROTATES_FROM_ANOTHER_STACK = "The stack database-content rotates the secret after it has created the content"
    ANOTHER_KEY_MAKES_OTHER_MASKS = "Equal texts have equal masks only with the same key, so it is never rotated"
    ANOTHER_KEY_FORGETS_NOBODY = "Erased rows are recognized only by the key of their erasure, so it is never rotated"
    RULE_LOOKS_ELSEWHERE = "The rule does not read EMR's EncryptionConfiguration; a test checks the template"
    NITRO_ENCRYPTS = "The network cards of these instance types encrypt traffic between nodes; a test checks the types"
    OWN_KEY = "The stack cannot set the policy of AWS's own key"
    FUNCTIONS_LOG = "This state machine only waits: the functions that it calls log each step"
    VERSIONS_OF_ONE_FUNCTION = "CDK's grant of a function covers all its versions"
    NOBODY_LOGS_IN_BY_IAM = "Each role logs in with a password from a secret, so logging in by IAM stays off"
    NO_SSH = "No port for SSH is open: Session Manager on the bastion is the only way in"


def check(app: Construct) -> None:
    """Make the synthesis of an app fail on a finding that is not acknowledged."""
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def acknowledge(construct: IConstruct, rule: str, reason: Reason) -> None:
    """Acknowledge a finding on a construct and on the constructs below it.

    ``rule`` is the rule's name without the name of the pack, such as ``EC29`` or ``IAM5[Action::ec2messages:*]``.
    """
    cdk.Validations.of(construct).acknowledge(
        cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=f"{reason.name}: {reason.value}")
    )


def acknowledge_wildcard(grantee: iam.IGrantable, arns: Iterable[str], reason: Reason) -> None:
    """Acknowledge that a role's policy names each ARN in ``arns`` that contains a ``*``."""
    # A role is its own principal, and a construct.
    role: Construct = grantee.grant_principal  # type: ignore[assignment]
    for arn in arns:
        if "*" in arn:
            acknowledge(role, f"IAM5[Resource::{_as_reported(cdk.Stack.of(role), arn)}]", reason)


def _as_reported(stack: cdk.Stack, arn: str) -> str:
    """An ARN in cdk-nag's notation for a policy of ``stack``.

    A reference is in angle brackets; a reference to another stack's resource is the name of the export.
    """
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

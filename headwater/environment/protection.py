"""Tells which stacks a deployment may protect from deletion.

CDK switches on a stack's termination protection before CloudFormation creates the stack's resources. CloudFormation
refuses to delete a protected stack, and Aurora and DynamoDB refuse to delete protected clusters and tables. So if the
creation of a protected stack fails, CloudFormation can neither roll it back nor delete it. The next try then fails at
the stack's fixed names. ``headwater deploy`` therefore creates a stack without protection, and protects it once it is
complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

UNPROTECTED = "unprotected"
"""The CDK context with the names of the stacks to synthesize without protection, separated by commas."""

_COMPLETE = ("CREATE_COMPLETE", "UPDATE_", "IMPORT_")


def incomplete(there: Mapping[str, Any], stacks: Sequence[str]) -> list[str]:
    """Return the names of those ``stacks`` whose creation has never succeeded, in the same order.

    ``there`` is the result of ``described_stacks``.
    """
    return [name for name in stacks if name not in there or not there[name]["StackStatus"].startswith(_COMPLETE)]


def described_stacks(cloudformation: Any) -> dict[str, Any]:
    """Return CloudFormation's description of each stack in the account and region, by name. Raises boto3's errors."""
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    return {stack["StackName"]: stack for page in pages for stack in page["Stacks"]}

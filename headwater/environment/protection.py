"""Which stacks a deployment may protect from deletion.

CDK switches on a stack's termination protection before CloudFormation creates anything in it. CloudFormation refuses
to delete a protected stack, and Aurora and DynamoDB refuse to delete protected clusters and tables. So a protected
stack whose creation fails can neither be rolled back nor be deleted, and its fixed names refuse the next try.
``headwater deploy`` therefore creates a stack without protection, and protects it once it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

UNPROTECTED = "unprotected"
"""The context that names the stacks to synthesize without protection, separated by commas."""

_COMPLETE = ("CREATE_COMPLETE", "UPDATE_", "IMPORT_")


def incomplete(there: Mapping[str, Any], stacks: Sequence[str]) -> list[str]:
    """Return the names in ``stacks`` of stacks whose creation has never succeeded, in the order given.

    ``there`` is the result of ``described_stacks``.
    """
    return [name for name in stacks if name not in there or not there[name]["StackStatus"].startswith(_COMPLETE)]


def described_stacks(cloudformation: Any) -> dict[str, Any]:
    """Each stack of the account and region as CloudFormation describes it, by its name. Raises what boto3 raises."""
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    return {stack["StackName"]: stack for page in pages for stack in page["Stacks"]}

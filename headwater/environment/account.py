"""Checks the account of an environment, and the lake whose stacks are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.environment.model import Environment
from headwater.errors import UserError

LAKE_TAG = "lake"
"""The tag of a stack with the name of its lake."""


def refuse_another(environment: Environment, found: str) -> None:
    """Raise UserError if ``found``, the account of the credentials, is not the environment's account."""
    if environment.account is not None and found != environment.account:
        raise UserError(
            f"credentials: found the account {found}, expected {environment.account}, the account of {environment.name}"
        )


def refuse_another_lake(environment: Environment, there: Mapping[str, Any], lake: str) -> None:
    """Raise UserError if the account has stacks of this environment that another lake folder has deployed.

    ``there`` has stacks by their names, as CloudFormation describes them. Stacks of early releases lack the tag. Such a
    stack belongs to the lake that deploys it next.
    """
    for name, stack in there.items():
        tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
        if name.startswith(f"{environment.prefix}-") and tags.get(LAKE_TAG, lake) != lake:
            raise UserError(
                f"{name}: found the stack of the lake {tags[LAKE_TAG]}, expected a stack of the lake {lake}, which "
                f"headwater.yaml names. Nothing was changed. Go into the folder of {tags[LAKE_TAG]}, or give this "
                "folder's environment another name"
            )

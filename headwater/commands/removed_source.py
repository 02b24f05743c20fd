"""Deletes the stacks of a source whose last contract was removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from headwater.commands.accounts import Account
from headwater.console import say
from headwater.contract.model import of_database
from headwater.contract.reading import read_contracts
from headwater.environment.model import SOURCE_NAMES, Environment
from headwater.environment.source_stacks import WITH_DATA, left_over
from headwater.errors import UserError
from headwater.paths import CONTRACTS
from headwater.review.replacements import Specification

# CloudFormation gives a custom resource an hour.
_PATIENCE_SECONDS = 3600


def delete_stacks(environment: Environment, account: Account, source: str) -> None:
    """Delete the stacks that only ``source`` needs, one after the other, and name those that stay.

    Raises UserError where a contract of the source is left, a stack is protected, or CloudFormation does not delete it.
    """
    described = of_database(read_contracts(CONTRACTS), source)
    if described:
        raise UserError(
            f"{CONTRACTS}: found {', '.join(contract.table for contract in described)} of {SOURCE_NAMES[source]}, "
            f"expected none: remove these contracts, and run `make deploy ENV={environment.name}` first"
        )
    cloudformation = account.client("cloudformation")
    try:
        _delete(environment, source, cloudformation)
    except WaiterError as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the stack to be deleted. Its events say "
            "why. Mend that, and run this again"
        ) from None
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected it to delete the stacks: use credentials "
            f"that may, and if another stack is named, run `make deploy ENV={environment.name}` first"
        ) from None


def _delete(environment: Environment, source: str, cloudformation: Any) -> None:
    prefix = f"headwater-{environment.name}-"
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    there = {
        stack["StackName"].removeprefix(prefix): stack
        for page in pages
        for stack in page["Stacks"]
        if stack["StackName"].startswith(prefix)
    }
    left = left_over(source, there, wanted=())
    kept = [part for part in left if part in WITH_DATA and not environment.deletes_data]
    deleted = [part for part in left if part not in kept]
    _refuse_protected(
        [f"{prefix}{part}" for part in deleted if there[part].get("EnableTerminationProtection")], environment.region
    )
    poll = environment.deployment.poll_seconds
    for part in deleted:
        say(f"Deleting {prefix}{part}")
        # The id finds the stack after it is gone, too.
        stack = there[part]["StackId"]
        cloudformation.delete_stack(StackName=stack)
        cloudformation.get_waiter("stack_delete_complete").wait(
            StackName=stack, WaiterConfig={"Delay": poll, "MaxAttempts": _PATIENCE_SECONDS // poll}
        )
    specification = Specification()
    for part in kept:
        summaries = cloudformation.get_paginator("list_stack_resources").paginate(StackName=f"{prefix}{part}")
        held = [
            f"{resource['PhysicalResourceId']} ({resource['ResourceType']})"
            for page in summaries
            for resource in page["StackResourceSummaries"]
            if specification.stateful(resource["ResourceType"])
        ]
        say(f"{prefix}{part} stays, and holds {', '.join(held)}")
    if not left:
        say(f"No stack of {SOURCE_NAMES[source]} is left in {environment.name}")


def _refuse_protected(stacks: Sequence[str], region: str) -> None:
    """Raise UserError if a stack is protected from deletion, with the commands that lift the protection."""
    if stacks:
        commands = "\n".join(
            f"  aws cloudformation update-termination-protection --no-enable-termination-protection --region {region} "
            f"--stack-name {stack}"
            for stack in stacks
        )
        raise UserError(
            f"found {', '.join(stacks)} protected from deletion, expected no protection. Nothing was deleted. Lift it, "
            f"and run this again:\n{commands}"
        )

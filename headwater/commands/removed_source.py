"""Deletes the stacks of a source whose last contract was removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from headwater.commands.accounts import Account
from headwater.console import say
from headwater.contract.model import Contract, of_database
from headwater.environment.account import refuse_another, refuse_another_lake
from headwater.environment.model import SOURCE_NAMES, Environment
from headwater.environment.protection import described_stacks
from headwater.environment.source_stacks import SOURCES_OUTPUT, STACKS, divided, left_over
from headwater.errors import UserError
from headwater.review.replacements import Specification

# CloudFormation waits an hour for a custom resource.
_PATIENCE_SECONDS = 3600


def delete_stacks(
    environment: Environment, account: Account, contracts: Sequence[Contract], source: str, lake: str
) -> None:
    """Delete the stacks that only ``source`` needs, one after the other, and print the names of the stacks that stay.

    Raises UserError if the credentials are of another account, or if CloudFormation does not delete a stack. Raises it
    also if a contract or the deployed lake still needs the source, or if a stack is protected.
    """
    with _answered(environment):
        there = _stacks(environment, account, lake)
    described = of_database(contracts, source)
    if described:
        raise UserError(
            f"contracts/: found {', '.join(contract.table for contract in described)} of {SOURCE_NAMES[source]}, "
            f"expected none: remove these contracts, and run `headwater deploy --env {environment.name}` first"
        )
    _refuse_deployed(environment, there, source)
    with _answered(environment):
        _delete(environment, there, source, account.client("cloudformation"))


def refuse_left_over(environment: Environment, account: Account, contracts: Sequence[Contract], lake: str) -> None:
    """Raise UserError if a source without a contract has stacks, or the credentials are of another account.

    The app does not contain such stacks. While they import from the lake's stack, CloudFormation does not delete it.
    """
    with _answered(environment):
        there = _stacks(environment, account, lake)
    for source in STACKS:
        if of_database(contracts, source):
            continue
        deleted, _ = divided(left_over(source, there, wanted=()), environment)
        if deleted:
            prefix = f"{environment.prefix}-"
            raise UserError(
                f"found {', '.join(prefix + part for part in deleted)} of {SOURCE_NAMES[source]}, expected no such "
                "stack, because no contract of this source is left. Nothing was deleted. Delete these stacks first: "
                f"headwater destroy --env {environment.name} --source {source}"
            )


@contextmanager
def _answered(environment: Environment) -> Iterator[None]:
    """Raise UserError in place of boto3's errors."""
    try:
        yield
    except WaiterError as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the stack to be deleted. Read the reason "
            "in the stack's events, mend it, and run this command again"
        ) from None
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the deletion of the stacks: use "
            "credentials that may delete stacks. If the error names another stack, first run "
            f"`headwater deploy --env {environment.name}`"
        ) from None


def _stacks(environment: Environment, account: Account, lake: str) -> dict[str, Any]:
    """Return the environment's stacks as CloudFormation describes them, by their names without the prefix.

    Raises UserError if the credentials are of another account, or if the stacks belong to another lake.
    """
    refuse_another(environment, account.client("sts").get_caller_identity()["Account"])
    prefix = f"{environment.prefix}-"
    there = described_stacks(account.client("cloudformation"))
    refuse_another_lake(environment, there, lake)
    return {name.removeprefix(prefix): stack for name, stack in there.items() if name.startswith(prefix)}


def _refuse_deployed(environment: Environment, there: Mapping[str, Any], source: str) -> None:
    """Raise UserError if the lake was last deployed with contracts of the source.

    The source's pipeline is then alive, although this lake folder has no contract of the source.
    """
    if "lake" not in there:
        return
    outputs = {output["OutputKey"]: output["OutputValue"] for output in there["lake"].get("Outputs", ())}
    # Stacks of earlier releases do not have this output.
    deployed = outputs.get(SOURCES_OUTPUT)
    if deployed is None or source in deployed.split(","):
        raise UserError(
            f"{environment.prefix}-lake: found the output {SOURCES_OUTPUT} {deployed!r}, expected it without "
            f"{source}. Nothing was deleted. If the source's contracts were removed on purpose, run "
            f"`headwater deploy --env {environment.name}` first, then this command again"
        )


def _delete(environment: Environment, there: Mapping[str, Any], source: str, cloudformation: Any) -> None:
    prefix = f"{environment.prefix}-"
    left = left_over(source, there, wanted=())
    deleted, kept = divided(left, environment)
    _refuse_protected(
        [f"{prefix}{part}" for part in deleted if there[part].get("EnableTerminationProtection")], environment.region
    )
    # Delete one stack after the other, and wait for each.
    poll = environment.deployment.poll_seconds
    for part in deleted:
        say(f"Deleting {prefix}{part}")
        # Only the id finds a stack after its deletion.
        stack = there[part]["StackId"]
        cloudformation.delete_stack(StackName=stack)
        cloudformation.get_waiter("stack_delete_complete").wait(
            StackName=stack, WaiterConfig={"Delay": poll, "MaxAttempts": _PATIENCE_SECONDS // poll}
        )
    # Print which data the remaining stacks hold.
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
    """Raise UserError if a stack is protected from deletion. The error has the commands that lift the protection."""
    if stacks:
        commands = "\n".join(
            f"  aws cloudformation update-termination-protection --no-enable-termination-protection --region {region} "
            f"--stack-name {stack}"
            for stack in stacks
        )
        raise UserError(
            f"found {', '.join(stacks)} protected from deletion, expected no protection. Nothing was deleted. Lift the "
            f"protection by these commands, and run this command again:\n{commands}"
        )

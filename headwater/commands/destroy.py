"""``headwater destroy``: delete the stacks of an environment."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal

import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import accounts, removed_source, synthesis
from headwater.commands.accounts import Account
from headwater.commands.advice import advise
from headwater.commands.options import Environment as Name
from headwater.commands.options import Folder
from headwater.console import say
from headwater.contract.reading import read_contracts
from headwater.definitions.connectors import SLOT
from headwater.definitions.left_slot import COST, DROP_STATEMENT, parameter
from headwater.environment.model import Environment, ExistingDatabase
from headwater.environment.rules import read_environment

SLOT_LEFT = 4
"""The exit status if the stacks are gone, but a replication slot is left in an existing database."""


Source = Annotated[
    Literal["postgresql", "dynamodb"] | None,
    typer.Option(help="Delete only the stacks of this source. Remove its contracts first."),
]


def destroy(name: Name, source: Source = None, *, folder: Folder) -> None:
    """Delete the stacks of an environment by cdk destroy. The local AWS ends with its last stack.

    --source deletes the stacks that only this source needs. Before, remove the source's contracts, and deploy. If the
    environment keeps its data, stacks that hold data stay, and the last lines name them. Without --source, nothing is
    deleted as long as a source without a contract has stacks.

    In an existing database, the source connector drops its replication slot if the environment's data is deleted with
    its stacks. The slot stays if the environment keeps its data, or if dropping fails. The status is then 4, and the
    last lines say why the slot stays, what it costs, and how to drop it.
    """
    environment = read_environment(name, folder.config)
    account = accounts.of(environment, folder)
    contracts = read_contracts(folder.contracts)
    with _left_slot_told_last(environment) as left, account.deletion() as reason:
        if reason:
            left.append(f"may be left: {reason}")
        else:
            if source is None:
                removed_source.refuse_left_over(environment, account, contracts, folder.settings.name)
                synthesis.synthesize(folder, name)
                deleted = partial(account.cdk, ["destroy", "--all", "--app", str(folder.synthesized)])
            else:
                deleted = partial(
                    removed_source.delete_stacks, environment, account, contracts, source, folder.settings.name
                )
            _delete(environment, account, deleted, left)


@contextmanager
def _left_slot_told_last(environment: Environment) -> Iterator[list[str]]:
    """Print at the end of the block, even after its error, why a replication slot is left in an existing database.

    The block puts the reason into the list. Raises typer.Exit if the list has one.
    """
    left: list[str] = []
    database = environment.database
    try:
        yield left
    finally:
        if left and isinstance(database, ExistingDatabase):
            at = ["--host", database.host, "--port", str(database.port), "--database", database.name]
            say(f"The replication slot {SLOT} of {database.name} on {database.host}:{database.port} {left[0]}.")
            say(COST)
            say("Unless a later deploy goes on from this slot, drop it there, as the server's administrator:")
            say(f"  {DROP_STATEMENT}")
            advise("Or drop the slot with everything else that `headwater db capture` has made:")
            advise(f"  headwater db release {shlex.join([*at, '--user', 'postgres'])}")
    if left and isinstance(database, ExistingDatabase):
        raise typer.Exit(SLOT_LEFT)


def _delete(environment: Environment, account: Account, delete: Callable[[], None], left: list[str]) -> None:
    """Delete the stacks, and add to ``left`` why a replication slot stays.

    The source connector's custom resource has recorded the reason. Raises what ``delete`` raises.
    """
    parameters = account.client("ssm")
    try:
        delete()
    finally:
        if isinstance(environment.database, ExistingDatabase):
            left += _record(parameters, parameter(environment.name))


def _record(parameters: Any, name: str) -> list[str]:
    """Return why a slot stays, as a parameter of Systems Manager may say, and delete the parameter."""
    try:
        why = str(parameters.get_parameter(Name=name)["Parameter"]["Value"])
        parameters.delete_parameter(Name=name)
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["Error"]["Code"] == "ParameterNotFound":
            return []
        return [f"may be left: reading the parameter {name}, which would say so, failed: {error}"]
    return [f"stays: {why}"]

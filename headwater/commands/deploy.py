"""``headwater deploy``: deploy the stacks of an environment."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import accounts, synthesis
from headwater.commands.accounts import Account
from headwater.commands.options import Environment as Name
from headwater.commands.options import Folder
from headwater.console import say
from headwater.environment.account import refuse_another, refuse_another_lake
from headwater.environment.model import SOURCE_NAMES, Environment
from headwater.environment.protection import UNPROTECTED, described_stacks, incomplete
from headwater.environment.source_stacks import STACKS, divided, left_over
from headwater.errors import UserError
from headwater.review.templates import Deployment
from headwater.yaml_files import either

Stack = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Deploy only this stack, such as network, and those that it needs.", show_default="all"
    ),
]


def deploy(name: Name, stack: Stack = None, *, folder: Folder) -> None:
    """Synthesize the stacks of an environment, and deploy them by cdk deploy.

    The environment local is deployed to the local AWS, which is started for it. Stacks of another lake are refused.
    Where the environment keeps its data, a stack is created without protection from deletion, and protected by a second
    cdk deploy when all are complete: a creation that fails can then be tried again. In dev CDK asks before it widens a
    right or opens a port, elsewhere before every change. Nothing is deployed where stacks of another kind of source are
    left, such as a database's where the environment now takes one that exists. Stacks of a source without a contract
    stay as they are; the last lines name them, and the command that deletes them. Nothing is uploaded to AWS where a
    file has no origin: neither a lock nor this repository explains it (docs/reference/review.md).

    With --stack, deploy only one stack and those that it needs, such as the network before an existing database can be
    reached from it.
    """
    environment = synthesis.synthesize(folder, name)
    account = accounts.of(environment, folder)
    deployment = Deployment.read(folder.synthesized, name)
    stacks = list(dict.fromkeys(resource.stack for resource in deployment.resources()))
    chosen = ["--all"] if stack is None else [_full_name(environment, stack, stacks)]
    account.prepare(stacks)
    with suppress(BotoCoreError, ClientError):
        # If CloudFormation does not answer, CDK says so.
        there = described_stacks(account.client("cloudformation"))
        refuse_another_lake(environment, there, folder.settings.name)
    if not environment.data.retain:
        # There is nothing to protect, and it takes a while to synthesize once more.
        _deploy(account, account.approval, *chosen, "--app", str(folder.synthesized))
    else:
        unprotected = _incomplete(environment, stacks, account)
        _deploy(account, account.approval, *chosen, *_without_protection(unprotected))
        if unprotected:
            say("The stacks are complete. A second cdk deploy protects the new ones from deletion:")
            _deploy(account, "never", *chosen, *_without_protection([]))
    account.deployed()
    for line in _left_over(environment, stacks, account):
        say(line)


def _full_name(environment: Environment, part: str, stacks: Sequence[str]) -> str:
    """Return the name in CloudFormation of a stack. Raises UserError if the environment has no such stack."""
    full_name = f"{environment.prefix}-{part}"
    if full_name not in stacks:
        parts = either(sorted(name.removeprefix(f"{environment.prefix}-") for name in stacks))
        raise UserError(f"--stack: found {part}, expected a stack of {environment.name}: {parts}")
    return full_name


def _left_over(environment: Environment, stacks: Sequence[str], account: Account) -> Iterator[str]:
    """Name the stacks of each source without a contract. If CloudFormation does not answer, name none."""
    try:
        there = described_stacks(account.client("cloudformation"))
    except (BotoCoreError, ClientError):
        return
    prefix = f"{environment.prefix}-"
    wanted = [name.removeprefix(prefix) for name in stacks]
    for source in STACKS:
        left = left_over(source, [name.removeprefix(prefix) for name in there if name.startswith(prefix)], wanted)
        goes, kept = ([f"{prefix}{part}" for part in parts] for parts in divided(left, environment))
        if goes:
            yield f"No contract of {SOURCE_NAMES[source]} is left, and these stacks of it cost money: {', '.join(goes)}"
            yield f"Delete them: headwater destroy --env {environment.name} --source {source}"
        if kept:
            yield (
                f"These stacks of {SOURCE_NAMES[source]} stay, because {environment.name} keeps its data: "
                f"{', '.join(kept)} (docs/decisions/either-source-alone.md)"
            )


def _incomplete(environment: Environment, stacks: Sequence[str], account: Account) -> list[str]:
    try:
        # CDK would deploy to the environment's account all the same, by the roles of its bootstrap. In another one the
        # stacks are not, so that all would be taken for new and lose their protection.
        refuse_another(environment, account.client("sts").get_caller_identity()["Account"])
        return incomplete(account.client("cloudformation"), stacks)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the list of stacks: "
            "use credentials that may deploy"
        ) from None


def _without_protection(stacks: Sequence[str]) -> tuple[str, str]:
    """The options by which CDK synthesizes the stacks anew, these without protection."""
    return "--context", f"{UNPROTECTED}={','.join(stacks)}"


def _deploy(account: Account, approval: str, *options: str) -> None:
    account.cdk(["deploy", *options, "--require-approval", approval])

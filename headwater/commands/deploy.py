"""``headwater deploy``: deploy the stacks of an environment."""

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import accounts, synthesis
from headwater.commands.accounts import Account
from headwater.commands.advice import advise
from headwater.commands.options import Environment as Name
from headwater.commands.options import Folder
from headwater.console import say
from headwater.environment import lake_format
from headwater.environment.account import refuse_another, refuse_another_lake
from headwater.environment.model import SOURCE_NAMES, Environment
from headwater.environment.protection import UNPROTECTED, described_stacks, incomplete
from headwater.environment.source_stacks import STACKS, divided, left_over, refuse_another_kind
from headwater.errors import UserError
from headwater.review.templates import Deployment
from headwater.yaml_files import either

Stack = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Deploy only this stack, such as network, and the ones that it needs.", show_default="all"
    ),
]


def deploy(name: Name, stack: Stack = None, *, folder: Folder) -> None:
    """Synthesize the stacks of an environment, and deploy them by cdk deploy.

    The environment local is deployed to the local AWS, which this command starts. If the environment keeps its data,
    cdk deploy runs twice. The first run creates stacks without protection from deletion, so that a failed creation can
    be tried again. The second run protects the stacks when all are complete. In dev, CDK asks before it widens a right
    or opens a port. In other environments, CDK asks before every change.

    Nothing is deployed if the account has stacks of another lake, or if lake.format is lower than the deployed one.
    Nothing is deployed either if stacks of another kind of source are left, such as Aurora's beside an existing
    database. Stacks of a source without a contract stay as they are; the last lines name these stacks, and the command
    that deletes them. Nothing is uploaded to AWS if neither a lock file nor this repository explains a file's origin
    (docs/reference/review.md).

    --stack deploys one stack and the ones that it needs. Use it, for example, to make the network before the existing
    database can be reached from there.
    """
    environment = synthesis.synthesize(folder, name)
    account = accounts.of(environment, folder)
    deployment = Deployment.read(folder.synthesized, name)
    stacks = list(dict.fromkeys(resource.stack for resource in deployment.resources()))
    chosen = ["--all"] if stack is None else [_full_name(environment, stack, stacks)]
    account.prepare()
    there = _described(environment, account)
    refuse_another_lake(environment, there, folder.settings.name)
    lake_format.refuse_lower(environment, there)
    refuse_another_kind(environment, there, stacks)
    if not environment.data.retain:
        # Nothing is protected here, and a second synthesis takes a while.
        _deploy(account, account.approval, *chosen, "--app", str(folder.synthesized))
    else:
        unprotected = incomplete(there, stacks)
        _deploy(account, account.approval, *chosen, *_without_protection(unprotected))
        if unprotected:
            say("The stacks are complete. A second cdk deploy protects the new ones from deletion:")
            _deploy(account, "never", *chosen, *_without_protection([]))
    account.deployed()
    for line in _left_over(environment, there, stacks):
        advise(line)
    if stack is None:
        for line in lake_format.advice(environment):
            advise(line)


def _full_name(environment: Environment, part: str, stacks: Sequence[str]) -> str:
    """Return a stack's name in CloudFormation. Raises UserError if the environment has no such stack."""
    full_name = f"{environment.prefix}-{part}"
    if full_name not in stacks:
        parts = either(sorted(name.removeprefix(f"{environment.prefix}-") for name in stacks))
        raise UserError(f"--stack: found {part}, expected a stack of {environment.name}: {parts}")
    return full_name


def _left_over(environment: Environment, there: Collection[str], stacks: Sequence[str]) -> Iterator[str]:
    """Yield the lines that name the stacks of each source without a contract."""
    prefix = f"{environment.prefix}-"
    wanted = [name.removeprefix(prefix) for name in stacks]
    for source in STACKS:
        left = left_over(source, [name.removeprefix(prefix) for name in there if name.startswith(prefix)], wanted)
        goes, kept = ([f"{prefix}{part}" for part in parts] for parts in divided(left, environment))
        if goes:
            yield f"No contract of {SOURCE_NAMES[source]} is left, but its stacks still cost money: {', '.join(goes)}"
            yield f"Delete them: headwater destroy --env {environment.name} --source {source}"
        if kept:
            yield (
                f"These stacks of {SOURCE_NAMES[source]} stay, because {environment.name} keeps its data: "
                f"{', '.join(kept)} (docs/decisions/either-source-alone.md)"
            )


def _described(environment: Environment, account: Account) -> dict[str, Any]:
    """Return the account's stacks as CloudFormation describes them, by their names.

    Raises UserError if CloudFormation does not answer, or if the environment keeps its data and the credentials are of
    another account.
    """
    try:
        if environment.data.retain:
            # With credentials of another account, CDK would still deploy to the environment's account, by the roles of
            # its bootstrap. But this command would find no stacks, take all for new, and remove their protection.
            refuse_another(environment, account.client("sts").get_caller_identity()["Account"])
        return described_stacks(account.client("cloudformation"))
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the list of stacks: "
            "use credentials that may deploy"
        ) from None


def _without_protection(stacks: Sequence[str]) -> tuple[str, str]:
    """Return the options by which CDK synthesizes the stacks anew, and leaves ``stacks`` without protection."""
    return "--context", f"{UNPROTECTED}={','.join(stacks)}"


def _deploy(account: Account, approval: str, *options: str) -> None:
    account.cdk(["deploy", *options, "--require-approval", approval])

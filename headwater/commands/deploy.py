"""``headwater deploy``: deploy the stacks of an environment."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater import process_groups
from headwater.console import announce, say
from headwater.deployment.baselines import CDK
from headwater.deployment.environment import Environment
from headwater.deployment.environment_rules import read_environment
from headwater.deployment.protection import UNPROTECTED, incomplete, statuses_of_stacks
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.local_aws.daemon import REGION, Running, log_of, variables_of
from headwater.log_files import tail
from headwater.packaging import shipped
from headwater.paths import CONFIG, ROOT, SYNTHESIZED
from headwater.waiting import StuckError, cpu_seconds

BOOTSTRAP = "CDKToolkit"
"""The stack of CDK's own."""
AT_ONCE = ("--concurrency", "4")
"""How many stacks CDK deploys or destroys at a time in the local AWS."""
IMPATIENT = ROOT / "local_aws" / "impatient.js"
"""What is loaded into CDK's command line where it deploys to the local AWS."""
# The stacks that only one kind of a source has, and the stack of the other kind that stands in their place, if any.
_OF_A_KIND = {"database": "", "database-content": "", "key-value": "", "database-peering": "database"}
# Its waiters and rules poll every few minutes.
_PATIENCE_SECONDS = 600.0


def deploy(
    name: Annotated[str, typer.Argument(metavar="ENV", help="dev, stage, prod or local, as last synthesized.")],
) -> None:
    """Deploy the stacks of an environment by cdk deploy; those of local to the local AWS, which is started for them.

    Where the environment keeps its data, a stack is created without protection from deletion, and protected by a second
    cdk deploy when all are complete: a creation that fails can then be tried again. In dev CDK asks before it widens a
    right or opens a port, elsewhere before every change. Nothing is deployed where stacks of another kind of source are
    left, such as a database's where the environment now takes one that exists. Nothing is uploaded to AWS where a file
    has no origin: neither a lock nor this repository explains it (docs/reference/review.md).
    """
    environment = read_environment(name, CONFIG)
    running = _local_aws(environment) if environment.is_local else None
    deployment = Deployment.read(SYNTHESIZED, name)
    stacks = list(dict.fromkeys(resource.stack for resource in deployment.resources()))
    if running is None:
        _refuse_another_kind(environment, stacks)
        # What goes to the local AWS does not leave this machine.
        _refuse_unexplained(name)
    approval = "never" if running else "broadening" if name == "dev" else "any-change"
    if running and not environment.data.retain:
        # There is nothing to protect, and it takes a while to synthesize once more.
        _cdk_deploy(name, running, approval, "--app", str(SYNTHESIZED))
    else:
        unprotected = _incomplete(environment, stacks, running) if environment.data.retain else []
        _cdk_deploy(name, running, approval, *_without_protection(unprotected))
        if unprotected:
            say("All stacks are complete. A second cdk deploy protects the new ones from deletion:")
            _cdk_deploy(name, running, "never", *_without_protection([]))
    if running is not None:
        say(f"The local AWS runs on; `make destroy ENV={name}` ends it. With its variables AWS's tools find it:")
        say(f"  . {shlex.quote(os.path.relpath(variables_of()))}")


def _local_aws(environment: Environment) -> Running:
    """The local AWS, which is started where none runs, with CDK's bootstrap in it."""
    if environment.region != REGION:
        raise UserError(f"region: found {environment.region}, expected {REGION}, where the local AWS is")
    running = Running.find()
    if running is None:
        with announce("Starting the local AWS"):
            running = Running.start()
    try:
        bootstrap = running.stacks().get(BOOTSTRAP)
    except BotoCoreError as error:
        raise UserError(f"the local AWS does not answer: {error}. End it by `make destroy ENV=local`") from None
    if bootstrap != "CREATE_COMPLETE":
        place = f"aws://{environment.account}/{environment.region}"
        # Without an app named, CDK would synthesize it first, only to look at its environments.
        cdk(environment.name, ["bootstrap", "--app", str(SYNTHESIZED), place], running)
    return running


def _refuse_another_kind(environment: Environment, stacks: Sequence[str]) -> None:
    """Raise UserError where the account has stacks of the environment that another kind of its sources has made: no
    deploy would update them, and they need what this one would take away. Says nothing where CloudFormation does not
    answer, which is CDK's to tell."""
    try:
        there = statuses_of_stacks(boto3.client("cloudformation", region_name=environment.region))
    except (BotoCoreError, ClientError):
        return
    prefix = f"headwater-{environment.name}-"
    left = [
        f"{prefix}{part}"
        for part, other in _OF_A_KIND.items()
        if f"{prefix}{part}" in there.keys() - set(stacks) and (not other or f"{prefix}{other}" in stacks)
    ]
    if left:
        raise UserError(
            f"{environment.name}: found the stacks {', '.join(left)} of another database.kind or key_value.kind, "
            f"expected none: bring the former file back and `make destroy ENV={environment.name}` first, or make "
            "another environment (docs/how-to/existing-sources.md)"
        )


def _refuse_unexplained(name: str) -> None:
    """Raise UserError where a file that would reach AWS has no origin."""
    with announce("Looking for the origin of each file"):
        found = shipped.unexplained(SYNTHESIZED)
    if found:
        raise UserError("\n".join([f"{name}: nothing was deployed.", *found]))


def _incomplete(environment: Environment, stacks: Sequence[str], running: Running | None) -> list[str]:
    client = running.client if running else partial(boto3.client, region_name=environment.region)
    try:
        account = client("sts").get_caller_identity()["Account"]
        if account != environment.account:
            # CDK would deploy to the environment's account all the same, by the roles of its bootstrap. In this one the
            # stacks are not, so that all would be taken for new and lose their protection.
            raise UserError(
                f"credentials: found the account {account}, expected {environment.account}, the account of "
                f"{environment.name}"
            )
        return incomplete(client("cloudformation"), stacks)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the list of stacks: "
            "use credentials that may deploy"
        ) from None


def _without_protection(stacks: Sequence[str]) -> tuple[str, str]:
    """The options by which CDK synthesizes the stacks anew, these without protection."""
    return "--context", f"{UNPROTECTED}={','.join(stacks)}"


def _cdk_deploy(name: str, running: Running | None, approval: str, *options: str) -> None:
    at_once = AT_ONCE if running else ()
    cdk(name, ["deploy", "--all", *options, *at_once, "--require-approval", approval], running)


def cdk(name: str, arguments: Sequence[str], running: Running | None = None) -> None:
    """Run CDK's command line for an environment, against the local AWS where one is given. Raises typer.Exit with its
    status where it fails; against the local AWS UserError, with the end of that one's log, also where both stand
    still."""
    command = [CDK[0], "--no-notices", "--context", f"env={name}", *arguments]
    if running is None:
        status = subprocess.run(command, cwd=ROOT).returncode
        if status:
            raise typer.Exit(status)
        return
    try:
        # The user's own settings of AWS would lead elsewhere.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        node = f"{kept.get('NODE_OPTIONS', '')} --require {json.dumps(str(IMPATIENT))}".strip()
        variables = {**kept, **running.environment, "NODE_OPTIONS": node}
        with subprocess.Popen(command, cwd=ROOT, env=variables) as child:
            try:
                process_groups.await_end("CDK", child, _PATIENCE_SECONDS, lambda: _work(child, running))
            except BaseException:
                process_groups.kill(child)
                raise
        status = child.returncode
        failed = f"ended with {status}" if status else ""
    except StuckError as error:
        failed = f"was killed: {error}"
    if failed:
        raise UserError(f"cdk {arguments[0]} {failed}. The end of {log_of()}:\n{tail(log_of())}")


def _work(child: subprocess.Popen[bytes], running: Running) -> float:
    return cpu_seconds(child.pid) + cpu_seconds(running.pid)

"""``headwater deploy``: the stacks of an environment, protected once they are complete."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Annotated

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError

from headwater.console import announce, say
from headwater.deployment.baselines import CDK
from headwater.deployment.environment import LOCAL, Environment
from headwater.deployment.environment_rules import read_environment
from headwater.deployment.protection import UNPROTECTED, incomplete
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.local_aws.daemon import Running
from headwater.packaging import local_aws
from headwater.paths import CONFIG, ROOT, SYNTHESIZED


def deploy(
    name: Annotated[str, typer.Argument(metavar="ENV", help="dev, stage, prod or local, as last synthesized.")],
) -> None:
    """Deploy the stacks of an environment by cdk deploy; those of local to the local AWS, which is started for them.

    Where the environment keeps its data, a stack is created without protection from deletion, and protected by a second
    cdk deploy when all are complete: a creation that fails can then be tried again. In dev CDK asks before it widens a
    right or opens a port, elsewhere before every change.
    """
    environment = read_environment(name, CONFIG)
    if name == LOCAL:
        _deploy_here(environment)
        return
    deployment = Deployment.read(SYNTHESIZED, name)
    stacks = list(dict.fromkeys(resource.stack for resource in deployment.resources()))
    unprotected = _incomplete(environment, stacks) if environment.data.retain else []
    _cdk_deploy(name, "broadening" if name == "dev" else "any-change", unprotected)
    if unprotected:
        say("All stacks are complete. A second cdk deploy protects the new ones from deletion:")
        _cdk_deploy(name, "never", [])


def _incomplete(environment: Environment, stacks: Sequence[str]) -> list[str]:
    try:
        account = boto3.client("sts", region_name=environment.region).get_caller_identity()["Account"]
        if account != environment.account:
            # CDK would deploy to the environment's account all the same, by the roles of its bootstrap. In this one the
            # stacks are not, so that all would be taken for new and lose their protection.
            raise UserError(
                f"credentials: found the account {account}, expected {environment.account}, the account of "
                f"{environment.name}"
            )
        return incomplete(boto3.client("cloudformation", region_name=environment.region), stacks)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"CloudFormation in {environment.region}: found {error}, expected the list of stacks: "
            "use credentials that may deploy"
        ) from None


def _cdk_deploy(name: str, approval: str, unprotected: Sequence[str]) -> None:
    context = ["--context", f"{UNPROTECTED}={','.join(unprotected)}"]
    cdk(name, [*context, "deploy", "--all", "--require-approval", approval])


def _deploy_here(environment: Environment) -> None:
    running = Running.find()
    if running is None:
        local_aws.build(announce)
        with announce("Starting the local AWS"):
            running = Running.start()
    variables = {**os.environ, **running.environment}
    cdk(LOCAL, ["bootstrap", f"aws://{environment.account}/{environment.region}"], variables)
    cdk(LOCAL, ["deploy", "--all", "--concurrency", "4", "--require-approval", "never"], variables)
    say("The local AWS runs on. AWS's tools find it by these variables; `make destroy ENV=local` ends it.")
    for variable, value in running.environment.items():
        if variable.startswith("AWS_"):
            say(f"  export {variable}={value}")


def cdk(name: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run CDK's command line for an environment. Raises typer.Exit with its status where it fails."""
    command = [CDK[0], "--no-notices", "--context", f"env={name}", *arguments]
    status = subprocess.run(command, cwd=ROOT, env=variables).returncode
    if status:
        raise typer.Exit(status)

"""``headwater destroy``: no stack is left of an environment, and of the local AWS nothing once it has no stack."""

from typing import Annotated

import typer

from headwater.commands.deploy import cdk
from headwater.console import announce, say
from headwater.deployment.environment_rules import read_environment
from headwater.local_aws.daemon import Running
from headwater.paths import CONFIG

_BOOTSTRAP = "CDKToolkit"


def destroy(
    name: Annotated[str, typer.Argument(metavar="ENV", help="dev, stage, prod or local, as last synthesized.")],
) -> None:
    """Delete the stacks of an environment by cdk destroy; of local, end the local AWS too."""
    if not read_environment(name, CONFIG).is_local:
        cdk(name, ["destroy", "--all"])
        return
    running = Running.find()
    if running is None:
        say("There is no local AWS: it was ended before, or never started")
        return
    try:
        cdk(name, ["destroy", "--all", "--force"], running)
    finally:
        others = _others(running, name)
        if others:
            say(f"The local AWS runs on for {', '.join(others)}")
        else:
            with announce("Ending the local AWS"):
                running.stop()


def _others(running: Running, name: str) -> list[str]:
    """The stacks of other environments."""
    pages = running.client("cloudformation").get_paginator("describe_stacks").paginate()
    stacks = [stack["StackName"] for page in pages for stack in page["Stacks"]]
    return [stack for stack in stacks if stack != _BOOTSTRAP and not stack.startswith(f"headwater-{name}-")]

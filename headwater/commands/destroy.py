"""``headwater destroy``: no stack is left of an environment, and nothing of the local AWS."""

import os
from typing import Annotated

import typer

from headwater.commands.deploy import cdk
from headwater.console import announce, say
from headwater.deployment.environment import LOCAL
from headwater.local_aws.daemon import Running


def destroy(
    name: Annotated[str, typer.Argument(metavar="ENV", help="dev, stage, prod or local, as last synthesized.")],
) -> None:
    """Delete the stacks of an environment by cdk destroy; of local, end the local AWS too."""
    if name != LOCAL:
        cdk(name, ["destroy", "--all"])
        return
    running = Running.find()
    if running is None:
        say("There is no local AWS: it was ended before, or never started")
        return
    try:
        cdk(LOCAL, ["destroy", "--all", "--force"], {**os.environ, **running.environment})
    finally:
        with announce("Ending the local AWS"):
            running.stop()

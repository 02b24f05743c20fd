"""``headwater destroy``: no stack is left of an environment, and of the local AWS nothing once it has no stack."""

from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError

from headwater.commands.deploy import AT_ONCE, BOOTSTRAP, cdk
from headwater.console import announce, say
from headwater.deployment.environment_rules import read_environment
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.local_aws.daemon import Running
from headwater.paths import CONFIG, SYNTHESIZED


def destroy(
    name: Annotated[str, typer.Argument(metavar="ENV", help="dev, stage, prod or local, as last synthesized.")],
) -> None:
    """Delete the stacks of an environment by cdk destroy. The local AWS ends with its last stack."""
    if not read_environment(name, CONFIG).is_local:
        cdk(name, ["destroy", "--all"])
        return
    running = Running.find()
    if running is None:
        say("There is no local AWS: it was ended before, or never started")
        return
    try:
        _stacks(running)
    except BotoCoreError:
        say("The local AWS does not answer: it ends, with all that it has stored")
        running.stop()
        return
    cdk(name, ["destroy", *_synthesized(name), "--all", *AT_ONCE, "--force"], running)
    left = _stacks(running)
    if left:
        say(f"The local AWS runs on for {', '.join(left)}")
        return
    with announce("Ending the local AWS"):
        running.stop()


def _stacks(running: Running) -> list[str]:
    """The stacks of all environments."""
    return [name for name in running.stacks() if name != BOOTSTRAP]


def _synthesized(name: str) -> list[str]:
    """The options by which CDK takes what was synthesized last, where that is the environment's: another synthesis
    would end in the same names."""
    try:
        Deployment.read(SYNTHESIZED, name)
    except UserError:
        return []
    return ["--app", str(SYNTHESIZED)]

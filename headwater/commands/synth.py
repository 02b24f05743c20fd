"""``headwater synth``: synthesize the stacks of an environment."""

from headwater.commands import synthesis
from headwater.commands.options import Environment, Folder
from headwater.console import say


def synth(name: Environment, *, folder: Folder) -> None:
    """Synthesize the stacks of an environment into the lake folder's cdk.out/, without credentials."""
    synthesis.synthesize(folder, name)
    say(f"The stacks of {name} are in {folder.synthesized}")

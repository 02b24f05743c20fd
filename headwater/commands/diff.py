"""``headwater diff``: show what a deploy would change."""

import boto3

from headwater.commands import accounts, synthesis
from headwater.commands.options import Environment, Folder
from headwater.console import say
from headwater.review import baselines, removed_sources
from headwater.review.replacements import Specification


def diff(name: Environment, *, folder: Folder) -> None:
    """Synthesize the stacks of an environment, and compare them with the deployed ones by cdk diff.

    Without AWS credentials, compare them with the lake folder's baselines.
    """
    settings = synthesis.synthesize(folder, name)
    fields, reviewed = baselines.read_whole(folder.baselines / name)
    stacks = baselines.from_assembly(folder.synthesized)
    # cdk diff says nothing of a stack that has left the app.
    for warning in removed_sources.warnings(name, reviewed, stacks, Specification()):
        say(warning)
    account = accounts.of(settings, folder)
    if settings.is_local or boto3.Session().get_credentials() is not None:
        account.cdk(["diff", "--app", str(folder.synthesized)])
        return
    say(f"No AWS credentials: comparing {name} with {folder.baselines / name}, not with the deployed stacks\n")
    text = baselines.whole_difference((fields, reviewed), (settings.document(), stacks))
    say(text or f"{name}: no difference")

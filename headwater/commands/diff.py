"""``headwater diff``: show what a deploy would change."""

import boto3

from headwater.commands import accounts, synthesis
from headwater.commands.advice import advise
from headwater.commands.options import Environment, Folder
from headwater.console import say
from headwater.environment import model
from headwater.lake_folder import LakeFolder
from headwater.review import baselines
from headwater.review.comparison import Comparison
from headwater.review.replacements import Specification


def diff(name: Environment, *, folder: Folder) -> None:
    """Synthesize the stacks of an environment, and compare them with the deployed ones by cdk diff.

    Without AWS credentials, compare them with the lake folder's baselines: first a summary, then the whole difference.
    """
    settings = synthesis.synthesize(folder, name)
    account = accounts.of(settings, folder)
    if settings.is_local or boto3.Session().get_credentials() is not None:
        # cdk diff does not report stacks that are no longer in the app.
        for warning in comparison(folder, settings).warnings():
            advise(warning)
        account.cdk(["diff", "--app", str(folder.synthesized)])
        return
    say(f"No AWS credentials: comparing {name} with {folder.baselines / name}, not with the deployed stacks\n")
    show_difference(folder, settings)


def show_difference(folder: LakeFolder, environment: model.Environment) -> None:
    """Print how an environment's stacks, as they were synthesized last, differ from its baselines."""
    found = comparison(folder, environment)
    advise("\n".join(found.summary()))
    if difference := found.difference():
        say(f"\n{difference}")


def comparison(folder: LakeFolder, environment: model.Environment) -> Comparison:
    """Return the comparison of an environment's baselines with its stacks as they were synthesized last."""
    reviewed = baselines.read_whole(folder.baselines / environment.name)
    now = environment.document(), baselines.from_assembly(folder.synthesized)
    return Comparison(environment.name, reviewed, now, folder.acknowledged, Specification())

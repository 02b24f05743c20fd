"""Synthesizes the stacks of a lake folder's environment."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

from headwater.commands import accounts, cdk
from headwater.console import announce
from headwater.environment.model import Environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import FILE, LakeFolder
from headwater.new_folder import clones


def synthesize(folder: LakeFolder, name: str) -> Environment:
    """Build the assets, synthesize an environment's stacks into the lake folder, and return the environment.

    Needs no credentials. Raises UserError if the folder names another release, or if an asset cannot be built. Raises
    typer.Exit if CDK fails.
    """
    refuse_another_release(folder)
    environment = read_environment(name, folder.config)
    # Progress goes to standard error, because the output of some verbs goes into files.
    progress = partial(announce, aside=True)
    accounts.of(environment, folder).make_assets(progress)
    with progress(f"Synthesizing the stacks of {name}"):
        cdk.run(cdk.command(folder, name, ["synth", "--quiet"]), quiet=True)
    return environment


def refuse_another_release(folder: LakeFolder) -> None:
    """Raise UserError if a lake folder names another release than the one that runs."""
    wanted, runs = folder.settings.release, version("headwater")
    if wanted == runs:
        return
    # A clone's release is its tag, or its commit if it has no tag, even if the package's version differs.
    if wanted != clones.release()[0]:
        raise UserError(
            f"{folder.root / FILE}: release: found {wanted}, expected {runs}, the release that runs: use ./headwater, "
            "which runs the folder's release"
        )

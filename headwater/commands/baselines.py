"""``headwater baselines``: write the stacks and contracts that reviewers compare."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from headwater.commands import synthesis
from headwater.commands.advice import advise
from headwater.commands.options import Folder
from headwater.console import say
from headwater.contract.reading import read_contracts
from headwater.environment import model as environment
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.review import baselines as stack_baselines
from headwater.review import contract_baselines, replacements
from headwater.review.comparison import Comparison
from headwater.review.replacements import Specification


def baselines(
    *,
    folder: Folder,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Print the differences; with any, the status is 1.")
    ] = False,
) -> None:
    """Synthesize all environments on AWS, and write their stacks and the contracts into reviewed/ for a review.

    If the writer would refuse a contract, nothing is written. If an environment would lose a stateful resource and
    nobody has agreed to the loss, nothing is written for that environment.
    """
    differs = [_of_contracts(folder, check=check)]
    names, specification = environment.on_aws(folder.config), Specification()
    differs += [_of_environment(folder, name, specification, check=check) for name in names]
    for path in sorted(folder.baselines.glob("*/")):
        if path.name not in names:
            differs.append(True)
            say(f"{path}: found baselines of an environment that has no config/{path.name}.yaml")
            if not check:
                shutil.rmtree(path)
    if check and any(differs):
        advise("To accept these differences, run `headwater baselines`, and review the files that it changes")
        raise typer.Exit(1)
    say(f"The baselines of {', '.join(names)} are up to date")


def _of_contracts(folder: LakeFolder, *, check: bool) -> bool:
    """Return whether the contracts differ from their baselines. Write new baselines unless ``check``."""
    contracts = read_contracts(folder.contracts)
    before, now = contract_baselines.read(folder.contract_baselines), contract_baselines.render(contracts)
    refused = contract_baselines.refused(before, contracts)
    if refused:
        raise UserError("\n".join(refused))
    if text := contract_baselines.difference(before, now):
        say(text)
        if not check:
            contract_baselines.write(folder.contract_baselines, now)
    return before != now


def _of_environment(folder: LakeFolder, name: str, specification: Specification, *, check: bool) -> bool:
    """Return whether an environment's stacks differ from their baselines. Write new baselines unless ``check``."""
    fields = synthesis.synthesize(folder, name).document()
    place = folder.baselines / name
    before, after = stack_baselines.read_whole(place), (fields, stack_baselines.from_assembly(folder.synthesized))
    comparison = Comparison(name, before, after, folder.acknowledged, specification)
    if comparison.refused:
        sentences = "\n".join(map(str, comparison.refused))
        raise UserError(f"{sentences}\n\n{replacements.how_to_allow(comparison.refused, folder.acknowledged)}")
    if before == after:
        return False
    if check:
        say(f"{name}:\n{comparison.difference()}")
    else:
        stack_baselines.write(place, after[1], fields)
        say(f"wrote {place}")
    return True

"""``headwater dev review``: show what a change does to a deployment."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.advice import advise
from headwater.commands.options import Environment, Folder
from headwater.console import say
from headwater.contract.evolution import REFUSED, SAFE, Change, changes
from headwater.contract.reading import read_versions
from headwater.lake_folder import LakeFolder
from headwater.review import baselines
from headwater.review import comment as review_comment
from headwater.review.comment import Section
from headwater.review.comparison import Comparison
from headwater.review.replacements import Specification

app = typer.Typer(help="Compare the baselines of two states of a lake folder, and find resources that would be lost.")

Before = Annotated[Path, typer.Option(help="Folder of the baselines of the deployed state, from another checkout.")]


@app.command()
def diff(environment: Environment, before: Before, *, folder: Folder) -> None:
    """Print the environment's fields that differ, and the output of cdk diff for the stacks that differ."""
    say(_comparison(environment, before, folder).difference() or f"{environment}: no difference")


@app.command()
def gate(
    environment: Environment,
    before: Before,
    contracts_before: Annotated[
        Path | None, typer.Option(help="Folder of the deployed contracts; without it, contracts are not compared.")
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Name every stateful resource that would be replaced or deleted, and every unsafe change of a contract.

    If the last contract of a source goes, then also name the source's stacks and their resources that stay. The status
    is 1 if nobody agreed to a loss, or if the writer would refuse a contract.
    """
    comparison = _comparison(environment, before, folder)
    for verdict in comparison.verdicts():
        advise(verdict)
    changed = _changes(contracts_before, folder.contracts)
    for change in changed:
        advise(f"{change.verdict}: {change}")
    # An agreement to lose a table's resources includes the change of the table's contract.
    if comparison.refused or any(change.verdict == REFUSED and not change.resources for change in changed):
        raise typer.Exit(1)
    say(f"{environment}: no stateful resource is lost without an agreement")


def _comparison(environment: str, before: Path, folder: LakeFolder) -> Comparison:
    """Compare an environment's baselines in another folder with the baselines in the lake folder."""
    states = baselines.place(before, environment, "--before"), folder.baselines / environment
    old, new = map(baselines.read_whole, states)
    return Comparison(environment, old, new, folder.acknowledged, Specification())


def _changes(before: Path | None, after: Path) -> list[Change]:
    """The changes of contracts that are not safe."""
    if before is None or not before.is_dir():
        return []
    return [change for change in changes(read_versions(before), read_versions(after)) if change.verdict != SAFE]


@app.command()
def comment(
    environment: Environment,
    outputs: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder with the outputs of gate, cost and diff: gate.txt and so on."),
    ],
    run_url: Annotated[str, typer.Option(help="URL of the workflow's run, whose artifact has the full texts.")],
    *,
    folder: Folder,
) -> None:
    """Print the comment on a pull request for one environment, cut to GitHub's limit."""
    sections = [
        Section(title, file, (outputs / file).read_text("utf-8") if (outputs / file).exists() else None, unfolded)
        for title, file, unfolded in (
            ("What would be lost", "gate.txt", True),
            ("US dollars per month", "cost.txt", True),
            ("cdk diff", "diff.txt", False),
        )
    ]
    say(review_comment.render(folder.settings.name, environment, sections, run_url))

"""``headwater dev review``: show what a change does to a deployment."""

import subprocess
from pathlib import Path
from typing import Annotated

import boto3
import typer

from headwater.commands.options import Environment
from headwater.console import say
from headwater.contract.evolution import REFUSED, SAFE, Change, changes
from headwater.contract.reading import read_versions
from headwater.paths import BASELINES, CONTRACTS, ROOT, SYNTHESIZED
from headwater.review import baselines, removed_sources, replacements
from headwater.review import comment as review_comment
from headwater.review.baselines import CDK
from headwater.review.comment import Section
from headwater.review.replacements import Specification

app = typer.Typer(help="Compare the baselines of two checkouts: what differs, and what would be lost.")

Before = Annotated[Path, typer.Option(help="Folder of the baselines of what is deployed, from another checkout.")]
After = Annotated[Path, typer.Option(help="Folder of the baselines of what would be deployed.")]


@app.command()
def diff(environment: Environment, before: Before, after: After = BASELINES) -> None:
    """Print the output of cdk diff for the stacks that differ."""
    text = baselines.difference(baselines.read(before / environment), baselines.read(after / environment))
    say(text or f"{environment}: no difference")


@app.command()
def synthesized(environment: Environment) -> None:
    """Compare the stacks that were synthesized last with what is deployed, by cdk diff.

    Without AWS credentials, compare them with this checkout's baselines.
    """
    reviewed, stacks = baselines.read(BASELINES / environment), baselines.from_assembly(SYNTHESIZED)
    # cdk diff says nothing of a stack that has left the app.
    for warning in removed_sources.warnings(environment, reviewed, stacks, Specification()):
        say(warning)
    if boto3.Session().get_credentials() is not None:
        done = subprocess.run([*CDK, "--app", str(SYNTHESIZED), "diff"], cwd=ROOT)
        raise typer.Exit(done.returncode)
    say(f"No AWS credentials: comparing {environment} with {BASELINES / environment}, not with what is deployed\n")
    text = baselines.difference(reviewed, stacks)
    say(text or f"{environment}: no difference")


@app.command()
def gate(
    environment: Environment,
    before: Before,
    after: After = BASELINES,
    contracts_before: Annotated[
        Path | None, typer.Option(help="Folder of the contracts of what is deployed; without it they are not compared.")
    ] = None,
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts of what would be deployed.")] = CONTRACTS,
) -> None:
    """Name every stateful resource that would be replaced or deleted, and every change of a contract that is not safe.
    If the last contract of a source goes, then also name the source's stacks and what stays of them.
    The status is 1 where nobody agreed to a loss, and where the writer would refuse a contract."""
    old, new = baselines.read(before / environment), baselines.read(after / environment)
    specification = Specification()
    losses = replacements.losses(environment, old, new, specification)
    refused = replacements.unacknowledged(losses, replacements.read_acknowledged())
    for loss in losses:
        say(f"{'refused' if loss in refused else 'agreed'}: {loss}")
    if refused:
        say(f"\n{replacements.how_to_allow(refused)}")
    for warning in removed_sources.warnings(environment, old, new, specification):
        say(warning)
    changed = _changes(contracts_before, contracts)
    for change in changed:
        say(f"{change.verdict}: {change}")
    # Whoever agreed to lose the resources of a table agreed to that change of its contract.
    if refused or any(change.verdict == REFUSED and not change.resources for change in changed):
        raise typer.Exit(1)
    say(f"{environment}: no stateful resource is lost without an agreement")


def _changes(before: Path | None, after: Path) -> list[Change]:
    """The changes of contracts that are not safe."""
    if before is None or not before.is_dir():
        return []
    return [change for change in changes(read_versions(before), read_versions(after)) if change.verdict != SAFE]


@app.command()
def comment(
    environment: Environment,
    outputs: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Holds what gate, cost and diff printed: gate.txt and so on.")
    ],
    run_url: Annotated[str, typer.Option(help="Address of the workflow's run, whose artifact holds the whole texts.")],
) -> None:
    """Print the comment on a pull request for one environment, cut to what GitHub takes."""
    sections = [
        Section(title, file, (outputs / file).read_text("utf-8") if (outputs / file).exists() else None, unfolded)
        for title, file, unfolded in (
            ("What would be lost", "gate.txt", True),
            ("US dollars per month", "cost.txt", True),
            ("cdk diff", "diff.txt", False),
        )
    ]
    say(review_comment.render(environment, sections, run_url))

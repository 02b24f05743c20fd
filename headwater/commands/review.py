"""`headwater review`: what a change would do to what is deployed, told from the baselines of both sides."""

import subprocess
from pathlib import Path
from typing import Annotated

import boto3
import typer

from headwater.console import say
from headwater.deployment import baselines, replacements
from headwater.deployment.baselines import CDK
from headwater.deployment.replacements import ACKNOWLEDGED, Specification
from headwater.paths import BASELINES, ROOT, SYNTHESIZED

app = typer.Typer(help="Compare the baselines of two checkouts: differences, and what would be lost.")

Name = Annotated[str, typer.Argument(metavar="ENV", help="The environment.")]
Before = Annotated[Path, typer.Option(help="Folder of the baselines that are deployed: another checkout's.")]
After = Annotated[Path, typer.Option(help="Folder of the baselines that would be deployed.")]


@app.command()
def diff(environment: Name, before: Before, after: After = BASELINES) -> None:
    """Print what `cdk diff` says of the stacks that differ."""
    text = baselines.difference(baselines.read(before / environment), baselines.read(after / environment))
    say(text or f"{environment}: no difference")


@app.command()
def synthesized(environment: Name) -> None:
    """Print what `cdk diff` says of what was synthesized last: against what is deployed, or against this checkout's
    baselines where there are no AWS credentials."""
    if boto3.Session().get_credentials() is not None:
        done = subprocess.run([*CDK, "--app", str(SYNTHESIZED), "diff"], cwd=ROOT)
        raise typer.Exit(done.returncode)
    say(f"Without AWS credentials: {environment} against {BASELINES / environment}, not against what is deployed\n")
    text = baselines.difference(baselines.read(BASELINES / environment), baselines.from_assembly(SYNTHESIZED))
    say(text or f"{environment}: no difference")


@app.command()
def gate(environment: Name, before: Before, after: After = BASELINES) -> None:
    """Name every stateful resource that would be replaced or deleted; status 1 where nobody agreed to one."""
    found = replacements.losses(
        environment, baselines.read(before / environment), baselines.read(after / environment), Specification()
    )
    refused = replacements.unacknowledged(found, replacements.read_acknowledged())
    for loss in found:
        say(f"{'refused' if loss in refused else 'agreed'}: {loss}")
    if refused:
        say(f"\nWhere this is wanted, say why in {ACKNOWLEDGED}:\n{''.join(map(replacements.entry_for, refused))}")
        raise typer.Exit(1)
    say(f"{environment}: nothing is lost that nobody agreed to")

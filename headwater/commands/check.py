"""`headwater check`: hold the synthesized templates of an environment to what no ready tool checks."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.console import say
from headwater.deployment import policies, reachability, rights
from headwater.deployment.templates import Deployment
from headwater.paths import SYNTHESIZED


def check(
    environment: Annotated[str, typer.Argument(help="dev, stage or prod, as last synthesized.")],
    synthesized: Annotated[Path, typer.Option(help="The folder that `cdk synth` wrote.")] = SYNTHESIZED,
) -> None:
    """Print all allowed network flows, then every flow and every right that is missing or too much; status 1 on any."""
    deployment = Deployment.read(synthesized, environment)
    declared = reachability.declarations()
    network = reachability.Network(deployment, declared.names)
    say(reachability.table({environment: network}))
    found = reachability.findings(network, declared)
    own = policies.read(deployment)
    for principal in rights.read_principals():
        found += policies.judge(deployment, own, principal).missing
    for text in found:
        say(text)
    if found:
        raise typer.Exit(1)
    say(f"{environment}: every flow and every right that is needed is there, and no flow more")

"""``headwater check``: check an environment's network flows, rights and files."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.options import Synthesized
from headwater.console import say
from headwater.packaging import shipped
from headwater.paths import SYNTHESIZED
from headwater.review import policies, reachability, rights
from headwater.review.templates import Deployment


def check(
    environment: Synthesized,
    synthesized: Annotated[Path, typer.Option(help="The folder that `cdk synth` wrote.")] = SYNTHESIZED,
) -> None:
    """Print all open network flows, then every finding: closed and undeclared flows, missing rights, and
    uploaded files that neither a lock nor this repository explains.

    The status is 1 where there is a finding.
    """
    deployment = Deployment.read(synthesized, environment)
    declared = reachability.declarations()
    network = reachability.Network(deployment, declared.names)
    say(reachability.table({environment: network}))
    findings = reachability.findings(network, declared)
    granted = policies.read(deployment)
    for principal in policies.needed_by(deployment, rights.read_principals()):
        findings += policies.judge(deployment, granted, principal).missing
    findings += shipped.unexplained(synthesized)
    for finding in findings:
        say(finding)
    if findings:
        raise typer.Exit(1)
    say(f"{environment}: all needed flows are open, no other flow is, no right is missing, every file has an origin")

"""``headwater check``: check an environment's network flows, rights and files."""

import typer

from headwater.commands import synthesis
from headwater.commands.options import Environment, Folder
from headwater.console import say
from headwater.packaging import shipped
from headwater.review import policies, reachability, rights
from headwater.review.templates import Deployment


def check(environment: Environment, *, folder: Folder) -> None:
    """Synthesize an environment, and check its stacks.

    Print all open network flows, then every finding. A finding is a needed flow that is closed, an undeclared flow that
    is open, a missing right, or an uploaded file of unknown origin. With a finding the status is 1.
    """
    synthesis.synthesize(folder, environment)
    deployment = Deployment.read(folder.synthesized, environment)
    declared = reachability.declarations()
    network = reachability.Network(deployment, declared.names)
    say(reachability.table({environment: network}))
    findings = reachability.findings(network, declared)
    granted = policies.read(deployment)
    for principal in policies.needed_by(deployment, rights.read_principals()):
        findings += policies.judge(deployment, granted, principal).missing
    findings += shipped.unexplained(folder.synthesized, folder)
    for finding in findings:
        say(finding)
    if findings:
        raise typer.Exit(1)
    say(f"{environment}: all needed flows are open, no other flow is, no right is missing, every file has an origin")

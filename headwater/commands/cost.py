"""`headwater cost`: what an environment costs a month."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headwater.deployment import baselines
from headwater.deployment import cost as estimating
from headwater.deployment import environment as environments
from headwater.deployment.templates import Deployment
from headwater.errors import UserError
from headwater.paths import CONFIG, SYNTHESIZED


def cost(
    environment: Annotated[str, typer.Argument(help="dev, stage or prod, as last synthesized.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, which --against reads.")] = False,
    against: Annotated[Path | None, typer.Option(help="An earlier estimate's JSON: show what differs.")] = None,
    synthesized: Annotated[Path, typer.Option(help="The folder that `cdk synth` wrote.")] = SYNTHESIZED,
    reviewed: Annotated[Path | None, typer.Option("--baselines", help="Baselines to read in its place.")] = None,
) -> None:
    """Estimate the month from the templates, resource by resource; prices and assumptions: prices.yaml."""
    if reviewed is None:
        deployment = Deployment.read(synthesized, environment)
    else:
        deployment = Deployment.of_baselines(
            baselines.read(reviewed / environment), environments.load(environment, CONFIG)
        )
    estimate = estimating.estimate(deployment, environment)
    before = None if against is None else read(against, environment)
    if as_json:
        sys.stdout.write(json.dumps(estimate.document(), indent=2) + "\n")
    elif before is not None:
        _show_differences(estimate, before)
    else:
        _show(estimate)


def read(path: Path, environment: str) -> dict[str, Any]:
    """Read an earlier estimate. Raises UserError where the file is not one of this environment."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: found {error}, expected what `headwater cost {environment} --json` prints") from None
    if not isinstance(document, dict) or document.get("environment") != environment or "resources" not in document:
        raise UserError(f"{path}: found no estimate of {environment}, expected what `headwater cost --json` prints")
    found: dict[str, Any] = document
    return found


def _show(estimate: estimating.Estimate) -> None:
    table = Table(title=f"{estimate.environment} in {estimate.region}, US dollars a month", title_justify="left")
    for name in ("resource", "item", "quantity", "unit", "price", "cost"):
        # Names give way to figures where a terminal is narrow.
        words = name in ("resource", "item", "unit")
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    costs = estimate.by_resource()
    for resource, cost_ in costs.items():
        lines = [line for line in estimate.lines if line.resource == resource]
        for line in lines:
            mark = "~" if line.estimate else ""
            price, paid = f"{mark}{line.price:g}", f"{line.cost:,.2f}"
            table.add_row(line.resource, line.item, f"{line.quantity:,.2f}", line.unit, price, paid)
        if len(lines) > 1:
            table.add_row("", "together", "", "", "", f"{cost_:,.2f}", style="bold")
    table.add_section()
    table.add_row("all", "", "", "", "", f"{estimate.total:,.2f}", style="bold")
    console = Console()
    console.print(table)
    data = estimating.data()
    console.print(f"Prices of {data['date']}; ~ marks one that was not read at its source. Assumed a month:")
    for name, one in data["assumptions"].items():
        console.print(f"  {name} = {one['value']}: {one['reason']}", highlight=False)


def _show_differences(estimate: estimating.Estimate, before: dict[str, Any]) -> None:
    table = Table(title=f"{estimate.environment}, US dollars a month", title_justify="left")
    for name in ("resource", "before", "now", "difference"):
        words = name == "resource"
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for name, old, new in estimating.differences(before["resources"], estimate.by_resource()):
        table.add_row(name, f"{old:,.2f}", f"{new:,.2f}", f"{new - old:+,.2f}")
    table.add_section()
    total = float(before["total"])
    table.add_row(
        "all", f"{total:,.2f}", f"{estimate.total:,.2f}", f"{round(estimate.total, 2) - total:+,.2f}", style="bold"
    )
    Console().print(table)

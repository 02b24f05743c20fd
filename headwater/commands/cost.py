"""``headwater cost``: estimate the cost of an environment per month."""

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headwater.commands import synthesis
from headwater.commands.options import Environment, Folder
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.paths import ROOT
from headwater.review import baselines, prices
from headwater.review.cost import Estimate, assumptions, differences, estimate
from headwater.review.templates import Deployment


def cost(
    name: Environment,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, which --against reads.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Show the differences from an earlier estimate, a file with --json's output.")
    ] = None,
    reviewed: Annotated[
        Path | None, typer.Option("--baselines", help="Estimate this folder of baselines; synthesize nothing.")
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Estimate what an environment costs per month, resource by resource, from its templates.

    Prices are in headwater/review/prices.yaml, for one region. If your region is another, the first line says so.
    Assumptions are in headwater/review/cost_assumptions.yaml.
    """
    if reviewed is None:
        synthesis.synthesize(folder, name)
        deployment = Deployment.read(folder.synthesized, name)
    else:
        place = baselines.place(reviewed, name, "--baselines")
        deployment = Deployment.of_baselines(baselines.read(place), read_environment(name, folder.config))
    now = estimate(deployment, name)
    before = None if against is None else read_estimate(against, name)
    if as_json:
        sys.stdout.write(json.dumps(now.document(), indent=2) + "\n")
        return
    console = Console()
    if now.prices.region != now.region:
        console.print(f"Prices of {now.prices.region}, because there are none for {now.region}.", highlight=False)
    if before is not None:
        _show_differences(now, before, console)
    else:
        _show(now, console)


def read_estimate(path: Path, name: str) -> dict[str, Any]:
    """Read an earlier estimate of an environment. Raises UserError if the file has no estimate."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: found {error}, expected the output of `headwater cost --env {name} --json`") from None
    if not isinstance(document, dict) or document.get("environment") != name or "resources" not in document:
        raise UserError(
            f"{path}: found no estimate of {name}, expected the output of `headwater cost --env {name} --json`"
        )
    earlier: dict[str, Any] = document
    return earlier


def _show(now: Estimate, console: Console) -> None:
    table = _table(
        f"{now.environment} in {now.region}, US dollars per month",
        names=("resource", "item", "unit"),
        columns=("resource", "item", "quantity", "unit", "price", "cost"),
    )
    # One row for each item of a resource, and a sum if the resource has several items.
    for resource, resource_cost in now.by_resource().items():
        lines = [line for line in now.lines if line.resource == resource]
        for line in lines:
            mark = "~" if line.estimate else ""
            price = "unknown" if line.price is None else f"{mark}{line.price:g}"
            paid = "unknown" if line.price is None else f"{line.cost:,.2f}"
            table.add_row(line.resource, line.item, f"{line.quantity:,.2f}", line.unit, price, paid)
        if len(lines) > 1:
            table.add_row("", "together", "", "", "", f"{resource_cost:,.2f}", style="bold")
    table.add_section()
    table.add_row("all", "", "", "", "", f"{now.total:,.2f}", style="bold")
    console.print(table)
    assumed = assumptions()
    if now.prices_of:
        console.print(
            f"Prices of {now.prices.region} as of {now.prices_of}; ~ marks a price that is not checked at its source."
        )
    console.print("Assumed per month:")
    for name, assumption in assumed["assumptions"].items():
        value = assumption.get(now.environment, assumption["value"])
        console.print(f"  {name} = {value}: {assumption['reason']}", highlight=False)
    if now.unknown:
        _show_unknown(now, console)
    console.print("Not in the estimate:")
    for left_out in assumed["left_out"]:
        console.print(f"  {left_out}", highlight=False)


def _show_unknown(now: Estimate, console: Console) -> None:
    """Name the prices that the file lacks, and print the lines to add to it."""
    console.print("Not in the total, because the price is unknown:")
    for name, line in now.unknown.items():
        console.print(f"  {name}, for {line.resource}", highlight=False)
    file = prices.FILE.relative_to(ROOT)
    # A lake folder's copy of a release must stay unchanged.
    console.print("To add prices, take a clone of Headwater, and use its commit as the lake's release.")
    console.print(f"There, add a line for each price below `prices:` in {file}, in US dollars without tax:")
    for name, line in now.unknown.items():
        form = f'{{price: …, unit: {line.unit}, source: "https://…", date: "YYYY-MM"}}'
        console.print(f"  {name}: {form}", highlight=False, soft_wrap=True)


def _show_differences(now: Estimate, before: dict[str, Any], console: Console) -> None:
    table = _table(
        f"{now.environment}, US dollars per month",
        names=("resource",),
        columns=("resource", "before", "now", "difference"),
    )
    for resource, old, new in differences(before["resources"], now.by_resource()):
        table.add_row(resource, f"{old:,.2f}", f"{new:,.2f}", f"{new - old:+,.2f}")
    table.add_section()
    total = float(before["total"])
    table.add_row("all", f"{total:,.2f}", f"{now.total:,.2f}", f"{round(now.total, 2) - total:+,.2f}", style="bold")
    console.print(table)


def _table(title: str, *, names: Collection[str], columns: Sequence[str]) -> Table:
    """Return an empty table. On a narrow terminal, columns of names wrap, and columns of figures do not."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        is_name = column in names
        table.add_column(column, justify="left" if is_name else "right", no_wrap=not is_name, overflow="fold")
    return table

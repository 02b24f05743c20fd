"""`headwater bench`: measure on this machine."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headwater import assets
from headwater import bench as measuring
from headwater.commands.progress import say, step
from headwater.paths import BUILD


def bench(
    scale: Annotated[float, typer.Option(min=0.1, help="Size of the generated data; 1 is Northwind's.")] = 40,
    idle: Annotated[int, typer.Option(min=5, help="How many lone transactions freshness is measured over.")] = 40,
) -> None:
    """Measure how many landed changes a second the writer drains, and how fresh the lake is when idle."""
    assets.build(step)
    figures = measuring.run(scale, idle, step)
    table = Table(title="Measured", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in asdict(figures).items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    Console().print(table)
    say(f"Figures: {BUILD / 'bench' / 'report.json'}")

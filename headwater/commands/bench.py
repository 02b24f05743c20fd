"""``headwater bench``: measure on this machine."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headwater.console import announce, say
from headwater.demo import benchmark
from headwater.packaging import artifacts
from headwater.paths import BUILD


def bench(
    scale: Annotated[float, typer.Option(min=0.1, help="Size of the generated data; 1 is Northwind's.")] = 60,
    idle: Annotated[int, typer.Option(min=5, help="How many transactions, one per second, measure freshness.")] = 40,
) -> None:
    """Measure how fast the writer drains and decodes, and how fresh the lake is when little happens."""
    artifacts.build(announce)
    figures = benchmark.run(scale, idle, announce)
    table = Table(title="Measured", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    measured = asdict(figures)
    del measured["decoder"]
    for name, value in measured.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    decoder = Table(title="DynamoDB's changes decoded, records per second", title_justify="left")
    columns = ("orders per account", "bytes per record", "Headwater", "json.loads, TypeDeserializer", "times as fast")
    for heading in columns:
        decoder.add_column(heading, justify="right")
    for row in figures.decoder:
        speeds = (f"{row.decoder_per_second:,}", f"{row.deserializer_per_second:,}", f"{row.times_as_fast:.1f}")
        size = "all together" if row.orders is None else str(row.orders)
        decoder.add_row(size, f"{row.record_bytes:,}", *speeds)
    Console().print(table, decoder)
    say(f"Figures: {BUILD / 'bench' / 'report.json'}")

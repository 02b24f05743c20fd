"""``headwater simulate``: simulate how fresh the lake would be under a load."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headwater.benchmark import planning
from headwater.benchmark.planning import Plan, Report
from headwater.errors import UserError


class Kind(StrEnum):
    """A kind of changes whose costs are measured."""

    PAYMENT = "payment"
    ORDER = "order"


def simulate(
    rate: Annotated[float, typer.Option(min=0.01, help="Changes a second, of all tables.")] = 1000,
    tables: Annotated[int, typer.Option(min=1, help="Tables over which they are spread evenly.")] = 4,
    kind: Annotated[
        Kind, typer.Option(help="What changes: rows as the benchmark's payments (1.1 KiB), or documents (4.5 KiB).")
    ] = Kind.PAYMENT,
    buckets: Annotated[int, typer.Option(min=1, help="Buckets of each table that changes fall into.")] = 4,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each table, in these buckets.")] = 1_000_000,
    cores: Annotated[float, typer.Option(min=0.1, help="Cores that the writer's driver has for itself.")] = 4,
    flush_ms: Annotated[int, typer.Option(min=100, help="connect.flush_ms of the environment.")] = 1000,
    idle_seconds_max: Annotated[int, typer.Option(min=1, help="emr.idle_seconds_max of the environment.")] = 5,
    report: Annotated[
        Path | None, typer.Option(help="Instead, simulate what a report.json of the demo has measured.")
    ] = None,
) -> None:
    """Simulate arrival, batching and compaction of PostgreSQL's changes by measured unit costs, and print how fresh the
    lake is and how busy its writer. docs/scaling.md says how well that fits, and what it leaves out."""
    shown = Table()
    for heading in ("", "p50 s", "p95 s", "backlog", "source busy", "writer busy", "cores used"):
        shown.add_column(heading, justify="right" if heading else "left")
    if report is None:
        plan = Plan(rate, tables, kind, buckets, rows, cores, flush_ms / 1000, idle_seconds_max)
        outcome = planning.simulated(plan)
    else:
        document = _read(report)
        outcome = planning.replayed(document)
        measured = document["freshness_seconds_by_pipeline"]["relational"]
        shown.add_row("measured", f"{measured['p50']:.1f}", f"{measured['p95']:.1f}")
    shown.add_row(
        "simulated",
        _seconds(outcome.percentile(50)),
        _seconds(outcome.percentile(95)),
        f"{outcome.backlog:,}",
        f"{outcome.source_busy:.0%}",
        f"{outcome.busy:.0%}",
        f"{outcome.cores_used:.0%}",
    )
    Console().print(shown)


def _seconds(seconds: float) -> str:
    return "falls behind" if math.isinf(seconds) else f"{seconds:.1f}"


def _read(path: Path) -> Report:
    try:
        document: Report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: found {error}, expected a report.json of `headwater demo`") from None
    if not isinstance(document, dict) or not document.get("arrivals_by_pipeline") or not document.get("cores"):
        raise UserError(f"{path}: found no arrivals and cores, expected a report.json of `headwater demo`")
    return document

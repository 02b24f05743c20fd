"""What commands print of a comparison of sources and lake: counts, rows that differ, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from headwater.commands.advice import advise, as_typed
from headwater.commands.environments import printable
from headwater.console import say
from headwater.verify import TableComparison

_PAGE = "docs/runbooks/differs.md"
_UNFIT_PAGE = "docs/runbooks/unfit.md"
_KINDS = {"missing": "missing rows", "extra": "extra rows", "different": "different rows", "unfit": "unfit values"}


def comparison_table(tables: Sequence[TableComparison]) -> Table:
    """The counts of a comparison as a table for the terminal."""
    grid = Table(Column("table", overflow="fold"), title="Source and lake", title_justify="left")
    for heading in ("source rows", "lake rows", "missing", "extra", "different", "unfit values"):
        grid.add_column(heading, justify="right")
    for table in tables:
        differences = (table.missing, table.extra, table.different, table.unfit)
        cells = [f"[bold red]{count:,}[/]" if count else "0" for count in differences]
        grid.add_row(table.name, f"{table.source_rows:,}", f"{table.lake_rows:,}", *cells)
    return grid


def options_of(environment: str) -> str:
    """The options with which a next step finds an environment, or "" for the options that the person has typed."""
    return f" --env {environment}" if environment else ""


def print_comparison(tables: Sequence[TableComparison], options: str | None) -> None:
    """Print the counts of all tables, the first rows that differ, and the next step for each kind of difference.

    ``options`` are as in ``next_steps``.
    """
    if not tables:
        return
    Console().print(comparison_table(tables))
    for table in tables:
        for example in table.examples:
            key = ", ".join(f"{name} = {value}" for name, value in example.key.items())
            say(printable(f"{table.name} {key}: {example.kind}"))
            for name, (in_source, in_lake) in example.columns.items():
                say(printable(f"  {name}: source {in_source} | lake {in_lake}"))
        for kind, step in next_steps(table, options).items():
            advise(f"{table.name}: {_KINDS[kind]} ({getattr(table, kind):,}): {step}")


def next_steps(table: TableComparison, options: str | None) -> dict[str, str]:
    """What to do about each kind of difference that a table has, by the kind.

    ``options`` are those that a command of the next step takes (see ``options_of``). They are None if sources and
    writers end with the command that compares.
    """
    if options is None:
        reread = whole = (
            f"if the source was written meanwhile, stop writing and run the command again. Else see {_PAGE}"
        )
    else:
        later = "wait until changes on their way have arrived, and compare again. If they remain,"
        given = "" if options else ", with the options that reach source and lake,"
        repair = f"`headwater verify{options} --table {table.name} --repair`{given} reads these rows again"
        resync = f"`headwater resync {table.name}{options}`{given} reads the table again, and so deletes these rows"
        reread, whole = f"{later} {repair}: see {_PAGE}", f"{later} {resync}: see {_PAGE}"
    unfit = f"the column cannot hold them: see {_UNFIT_PAGE}"
    steps = {"missing": reread, "extra": whole, "different": reread, "unfit": unfit}
    return {kind: step for kind, step in steps.items() if getattr(table, kind)}


def comparison_document(
    tables: Sequence[TableComparison], reasons: Mapping[str, str], options: str | None
) -> dict[str, Any]:
    """Return a comparison as JSON.

    ``reasons`` say why the tables of these names were not compared; ``options`` are as in ``next_steps``.
    """
    documents = []
    for table in tables:
        document = asdict(table)
        # The keys serve a repair.
        del document["keys"]
        steps = {kind: as_typed(step) for kind, step in next_steps(table, options).items()}
        documents.append({**document, "next_steps": steps})
    return {"tables": documents, "not_compared": {name: as_typed(reason) for name, reason in reasons.items()}}

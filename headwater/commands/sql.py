"""``headwater sql``: query the lake in Athena's SQL, without Athena."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headwater.commands import sources
from headwater.commands.lakes import lake_at
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.paths import CONTRACTS
from headwater.queries import Answer, LakeQueries

_SHOWN = 200


def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT in Athena's SQL, or EXECUTE STATEMENT USING …; - reads it from standard input; without it, "
            "what there is to ask."
        ),
    ] = "",
    lake: Annotated[str, typer.Option(help="Where the lake's tables lie: s3://bucket/prefix, or a folder.")] = "",
    contracts: Annotated[Path, typer.Option(help="Folder of the contracts.")] = CONTRACTS,
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: sources.Region = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows, as JSON.")] = False,
) -> None:
    """Ask the lake's tables, views and prepared statements in Athena's SQL, on this machine.

    DuckDB runs the query on what is in the files now. It lacks some of Athena's functions, and where Athena ends with
    an error, such as at a division by zero, it may go on. Tables that the query names are read whole. A query reaches
    no file, no address and no extension.
    """
    with LakeQueries(read_contracts(contracts), lake_at(lake, endpoint, region)) as queries:
        if not query:
            sys.stdout.write("\n".join([*queries.names, *(f"EXECUTE {name}" for name in queries.statements)]) + "\n")
            return
        if not lake:
            raise UserError("--lake: found none, expected s3://bucket/prefix, or a folder")
        answer = queries.answer(sys.stdin.read() if query == "-" else query)
        for table in sorted(queries.without_rows):
            Console(stderr=True).print(f"{table} has no rows below {lake}, or was never written there", style="yellow")
    if as_json and len(set(answer.columns)) < len(answer.columns):
        raise UserError(f"--json: found {', '.join(answer.columns)}, expected columns of different names")
    if as_json:
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        sys.stdout.write(json.dumps(rows, indent=1, default=str) + "\n")
    else:
        _show(answer)


def _show(answer: Answer) -> None:
    console = Console()
    grid = Table(*answer.columns)
    for row in answer.rows[:_SHOWN]:
        grid.add_row(*("" if value is None else str(value) for value in row))
    console.print(grid, markup=False)
    more = len(answer.rows) - _SHOWN
    console.print(f"{len(answer.rows):,} rows" + (f", {_SHOWN} shown: --json prints all" if more > 0 else ""))

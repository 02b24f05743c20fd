"""``headwater sql``: query the lake in Athena's SQL, without Athena."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwater.commands import lakes, sources
from headwater.commands.options import Folder
from headwater.commands.writer_requests import ENVIRONMENT
from headwater.console import one_line, say
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.queries import Answer, LakeQueries
from headwater.verify import Lake

_SHOWN = 200
_WIDEST = 1_000_000


def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT in Athena's SQL, or EXECUTE STATEMENT USING …; - reads the query from standard input. "
            "Without a query, the command lists what can be queried."
        ),
    ] = "",
    environment: Annotated[str, ENVIRONMENT] = "",
    lake: Annotated[
        str, typer.Option(help="Without --env: the folder of the lake's tables, as s3://bucket/prefix or a local path.")
    ] = "",
    *,
    folder: Folder,
    endpoint: Annotated[str, typer.Option(help="Address of an S3 API that is not AWS's.")] = "",
    region: sources.Region = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows, as JSON.")] = False,
) -> None:
    """Query the lake's tables, views and prepared statements in Athena's SQL, on this machine.

    DuckDB runs the query on the current files. It lacks some of Athena's functions. DuckDB may go on after an error
    that ends a query in Athena, such as a division by zero. Each table in the query is read whole. A query cannot read
    other files or addresses, nor load extensions.
    """
    contracts = read_contracts(folder.contracts)
    if not query:
        with LakeQueries(contracts, Lake("", {})) as queries:
            sys.stdout.write("\n".join([*queries.names, *(f"EXECUTE {name}" for name in queries.statements)]) + "\n")
        return
    place = lakes.of_option(environment, folder, lake, endpoint, region)
    with LakeQueries(contracts, place.lake()) as queries:
        answer = queries.answer(sys.stdin.read() if query == "-" else query)
        for table in sorted(queries.without_rows):
            Console(stderr=True).print(f"{table} has no rows in {place.uri}, or was never written", style="yellow")
    if as_json and len(set(answer.columns)) < len(answer.columns):
        raise UserError(f"--json: found {', '.join(answer.columns)}, expected columns of different names")
    if as_json:
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        sys.stdout.write(json.dumps(rows, indent=1, default=str) + "\n")
    else:
        _show(answer)


def _show(answer: Answer) -> None:
    console = Console()
    rows = [["" if value is None else str(value) for value in row] for row in answer.rows[:_SHOWN]]
    grid = Table(*map(escape, answer.columns))
    for row in rows:
        grid.add_row(*map(escape, row))
    unbounded = console.options.update(width=_WIDEST)
    if console.measure(grid, options=unbounded).maximum > console.width:
        # The table is too wide for the terminal, so print one line for each value.
        for number, row in enumerate(rows, 1):
            say(f"row {number}")
            for column, value in zip(answer.columns, row, strict=True):
                say(f"  {column}: {one_line(value)}")
    else:
        console.print(grid)
    more = len(answer.rows) - _SHOWN
    say(f"{len(answer.rows):,} rows" + (f", {_SHOWN} shown: --json prints all" if more > 0 else ""))

"""``headwater db load``: load the order database, from CSV files or with generated rows."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from headwater.commands import db
from headwater.console import say
from headwater.errors import UserError
from rig.samples import orders
from rig.samples.loading import load_folder
from rig.samples.orders import OUTBOX

_PROGRESS_SECONDS = 2.0


def load(
    host: db.Host = "localhost",
    port: db.Port = 5432,
    user: db.User = "postgres",
    name: db.Name = "northwind",
    data: Annotated[Path | None, typer.Option(help="A folder of CSV files, one per table.")] = None,
    scale: Annotated[float | None, typer.Option(help="Generate data instead; scale 1 has 830 orders.")] = None,
    seed: Annotated[int, typer.Option(help="Each seed generates different data.")] = 1,
    replace: Annotated[bool, typer.Option("--replace", help="Delete all rows first.")] = False,
) -> None:
    """Load all tables in one transaction, from CSV files (--data) or with generated rows (--scale)."""
    if (data is None) == (scale is None):
        given = "neither" if data is None else "both"
        raise UserError(f"Found {given} of --data DIR and --scale N, expected one of them.")
    with (
        db.connect(host, port, user, name) as connection,
        tempfile.TemporaryDirectory(prefix="headwater-") as scratch,
    ):
        folder = Path(scratch) if data is None else data
        if scale is not None:
            say(f"Generating data of scale {scale:g} …")
            orders.generate(scale, seed, folder)
        started = time.monotonic()
        counts = load_folder(connection, folder, _RowsPrinter(), replace=replace)
    say(f"Loaded {sum(counts.values()):,} rows in {time.monotonic() - started:.1f} s")


class _RowsPrinter:
    """Prints a table's rows when they are loaded, and at most every two seconds until then."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def __call__(self, table: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._printed >= _PROGRESS_SECONDS or table == OUTBOX:
            say(f"{table:<22}{done:>12,} of {total:,} rows")
            self._printed = now

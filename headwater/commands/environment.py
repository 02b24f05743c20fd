"""``headwater environment``: show an environment with its defaults."""

import json
import sys
from typing import Annotated

import typer

from headwater.commands.options import Environment, Folder
from headwater.console import say
from headwater.environment.defaults import leaves, words
from headwater.environment.rules import read_with_origins

app = typer.Typer(help="Show an environment with its defaults.")


@app.callback()
def _environment() -> None:
    """Show an environment with its defaults."""


@app.command()
def show(
    name: Environment,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object with an entry for each field.")] = False,
    *,
    folder: Folder,
) -> None:
    """Print every field with its value and the value's origin: the file, the size, or a default with its reason."""
    environment, origins = read_with_origins(name, folder.config)
    found = {field: (value, origins[field]) for field, value in leaves(environment.document())}
    if as_json:
        document = {
            field: {"value": value, "from": origin.source, "reason": origin.reason or None}
            for field, (value, origin) in found.items()
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    left, middle = max(map(len, found)), max(len(words(value)) for value, _ in found.values())
    for field, (value, origin) in found.items():
        source = f"{origin.source}: {origin.reason}" if origin.reason else origin.source
        say(f"{field:<{left}}  {words(value):<{middle}}  {source}")

"""The `headwater` command."""

import importlib
import sys

import typer
from rich.console import Console
from rich.markup import escape

from headwater.errors import UserError

# A module of headwater.commands each: with an `app` of several verbs, or a function of its own name.
GROUPS = ("demo", "verify", "backfill", "db", "bench", "assets", "jars", "review", "cost", "check", "reference")

app = typer.Typer(
    name="headwater",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def headwater() -> None:
    """Keep an Apache Hudi lake in step with operational databases."""


def compose(arguments: list[str]) -> typer.Typer:
    """Add the group that the arguments ask for, or all: the others need not be loaded, and some are slow to."""
    for name in [argument for argument in arguments[:1] if argument in GROUPS] or GROUPS:
        module = importlib.import_module(f"headwater.commands.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def main() -> None:
    """Run the command line; a `UserError` is printed as it is and ends with status 2, Ctrl-C with 130."""
    try:
        compose(sys.argv[1:])()
    except UserError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]Error:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

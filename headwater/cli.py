"""The ``headwater`` command."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from headwater import commands
from headwater.errors import UserError

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
    """Add the verb that the arguments ask for, or all where they ask for none: some verbs are slow to load."""
    return commands.add(app, [argument for argument in arguments[:1] if argument in commands.VERBS] or commands.VERBS)


def main() -> None:
    """Run the command line. A UserError is printed without a traceback and ends with status 2; Ctrl-C ends with 130."""
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

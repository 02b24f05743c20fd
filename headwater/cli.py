"""The ``headwater`` command."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from headwater import commands
from headwater.errors import UserError

app = typer.Typer(
    name="headwater",
    cls=commands.Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help, because importing Rich's Markdown takes longer than the rest of the start.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
commands.add_all(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"headwater {version('headwater')}\n")
        raise typer.Exit


@app.callback()
def headwater(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keep an Apache Hudi lake in step with operational databases."""


def main() -> None:
    """Run the command line.

    A UserError is printed without a traceback and ends with status 2. Ctrl-C ends with status 130.
    """
    try:
        app()
    except UserError as error:
        # Imported here, because the import takes a while and most runs do not need it.
        from headwater.commands.advice import as_typed

        said = escape(as_typed(str(error)))
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]Error:[/] {said}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

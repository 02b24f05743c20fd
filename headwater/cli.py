"""The `headwater` command."""

import importlib
import importlib.util
import sys

import typer
from rich.console import Console
from rich.markup import escape

from headwater.errors import UserError

GROUPS = ("db", "verify", "demo", "jars", "assets", "bench")

app = typer.Typer(
    name="headwater",
    help="Keep an Apache Hudi lake in step with operational databases.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def compose() -> typer.Typer:
    """Add each group's commands: a module has an `app` (several verbs) or a function of its own name (one verb)."""
    for name in GROUPS:
        qualified = f"headwater.commands.{name}"
        if importlib.util.find_spec(qualified) is None:
            continue
        module = importlib.import_module(qualified)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def main() -> None:
    """Run the command line; a `UserError` is printed as it is and ends with status 2, Ctrl-C with 130."""
    try:
        compose()()
    except UserError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]Error:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

"""The verbs of the ``headwater`` command, a module per verb: with an ``app`` of several, or a function of its name.

A verb's module is imported when the verb is used. The list of verbs shows the first line of each module, its docstring.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

VERBS = (
    "demo",
    "replicate",
    "status",
    "logs",
    "verify",
    "sql",
    "backfill",
    "contract",
    "quarantine",
    "fill",
    "forget",
    "expire",
    "resync",
    "db",
    "bench",
    "assets",
    "jars",
    "sbom",
    "review",
    "cost",
    "check",
    "deploy",
    "destroy",
    "epoch",
    "reference",
)


class _Unloaded(TyperCommand):
    """A verb whose module is imported when somebody uses the verb, or asks for its help."""

    name: str

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(self.name).make_context(info_name, args, parent, **extra)


def add_all(app: typer.Typer) -> None:
    """Add every verb to a command. No verb's module is imported."""
    for verb in VERBS:
        app.command(verb, cls=_Unloaded, help=_summary(verb))(lambda: None)


def load(verb: str) -> Any:
    """Import a verb's module and return the verb as a TyperCommand, or as a TyperGroup of several."""
    module = importlib.import_module(f"headwater.commands.{verb}")
    app = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=verb)
    else:
        app.command(verb)(getattr(module, verb))
    return get_group(app).commands[verb]


def _summary(verb: str) -> str:
    """What a verb does, in a sentence: the docstring in its module's first line, without the verb."""
    with Path(__file__).with_name(f"{verb}.py").open(encoding="utf-8") as module:
        docstring: str = ast.literal_eval(module.readline())
    sentence = docstring.partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]

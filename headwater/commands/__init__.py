"""The verbs of the ``headwater`` command, one module for each verb.

A module has a function named like its verb, or, if the verb has several parts, a Typer ``app``. The module is imported
when somebody uses the verb. The list of verbs shows the docstring in the module's first line. Other packages add verbs
by entry points.
"""

import ast
import importlib
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer import TyperException
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from headwater.errors import UserError

ENTRY_POINTS = "headwater.verbs"
"""The group of the entry points that add verbs. An entry point's name is the verb, and its value the verb's module.

An entry point named ``VERB.PART`` adds a part to a verb that has several parts.
"""
_OWN = (
    "init",
    "upgrade",
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
    "sbom",
    "cost",
    "check",
    "synth",
    "diff",
    "baselines",
    "bootstrap",
    "deploy",
    "destroy",
    "epoch",
    "environment",
)


class _Unloaded(TyperCommand):
    """A verb whose module is imported when somebody runs the verb or reads its help."""

    name: str

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(self.name).make_context(info_name, args, parent, **extra)


class Verbs(TyperGroup):
    """The command with all its verbs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that the arguments name. Raises UserError for an option that only an earlier release has."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            if getattr(error, "option_name", None) == "--contracts":
                raise UserError(
                    "--contracts: found an option of release 0.2, expected --folder DIR, the lake folder: its "
                    "contracts are in DIR/contracts"
                ) from None
            raise


def verbs() -> tuple[str, ...]:
    """Return the names of all verbs, first this package's, then other packages'."""
    return (*_OWN, *sorted(name for name in _added() if "." not in name and name not in _OWN))


def add_all(app: typer.Typer) -> None:
    """Add every verb to a command, without importing the verbs' modules."""
    for verb in verbs():
        app.command(verb, cls=_Unloaded, help=_summary(verb))(lambda: None)


def load(verb: str) -> Any:
    """Import a verb's module and return the verb: a TyperCommand, or a TyperGroup if it has several parts.

    Raises UserError unless exactly one module provides the verb and can be imported.
    """
    modules = _modules(verb)
    if len(modules) != 1:
        found = " and in ".join(modules) or "no package"
        raise UserError(f"headwater {verb}: found the verb in {found}, expected one")
    loaded = _loaded(verb, modules[0])
    for name, (module, *_) in sorted(_added().items()):
        of, _, part = name.partition(".")
        if part and of == verb:
            # If this part cannot be imported, the verb's other parts still work.
            with suppress(UserError):
                loaded.add_command(_loaded(part, module))
    return loaded


def module_of(verb: str) -> str:
    """Return the name of a verb's module."""
    return _modules(verb)[0]


def _modules(verb: str) -> list[str]:
    return [*([f"headwater.commands.{verb}"] if verb in _OWN else []), *_added().get(verb, ())]


@cache
def _added() -> dict[str, tuple[str, ...]]:
    """Return the modules that other packages provide, by the names of their entry points."""
    added: dict[str, tuple[str, ...]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        added[point.name] = (*added.get(point.name, ()), point.value)
    return added


def _loaded(name: str, module_name: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if module_name.startswith("headwater."):
            raise
        raise UserError(f"headwater {name}: found {error}, expected the package of {module_name}") from error
    app = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        app.command(name)(getattr(module, name))
    return get_group(app).commands[name]


def _summary(verb: str) -> str:
    """Return a sentence that says what a verb does: the docstring of its module, without the verb."""
    try:
        found = find_spec(module_of(verb))
    except ImportError:
        found = None
    if found is None or found.origin is None:
        return f"Not there: {module_of(verb)} is missing."
    with Path(found.origin).open(encoding="utf-8") as module:
        docstring: str = ast.literal_eval(module.readline())
    sentence = docstring.partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]

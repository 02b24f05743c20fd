"""The verbs of the ``headwater`` command, a module per verb: with an ``app`` of several, or a function of its name.

A verb's module is imported when the verb is used. The list of verbs shows the first line of each module, its docstring.
Other packages add verbs by entry points.
"""

import ast
import importlib
import shlex
from collections.abc import Sequence
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
from headwater.paths import CONFIG

ENTRY_POINTS = "headwater.verbs"
"""The group of the entry points that add verbs. Each has the name of a verb and its module.

``VERB.PART`` names a part of a verb that has several.
"""
_OWN = (
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
    "deploy",
    "destroy",
    "epoch",
)


_MOVED = ("assets", "bench", "jars", "reference", "review")
"""Verbs that release 0.1 had, and that are parts of ``dev`` now. For one release their error shows the present form."""


class _Unloaded(TyperCommand):
    """A verb whose module is imported when somebody uses the verb, or asks for its help."""

    name: str

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(self.name).make_context(info_name, args, parent, **extra)


class Verbs(TyperGroup):
    """The command with all its verbs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep all arguments, which the verbs' contexts inherit."""
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that the arguments name. Raises UserError if they are right but for a positional environment."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            _refuse_positional_environment(getattr(error, "ctx", None))
            raise


def _refuse_positional_environment(verb: Any) -> None:
    """Raise UserError with the verb's present form if its arguments have the form of release 0.1; for one release.

    They have it if the verb understands them once ``--env`` stands before the name of an environment.
    """
    if verb is None:
        return
    names = _names(verb)
    found = _with_option(verb.command, verb.obj[len(names) :], verb)
    if found is not None:
        environment, now = found
        raise UserError(
            f"headwater {' '.join(names)}: found the environment {environment} as an argument, expected "
            f"`{shlex.join(['headwater', *names, *now])}`"
        )


def _with_option(command: Any, given: Sequence[str], verb: Any) -> tuple[str, list[str]] | None:
    """Return the environment that stands among a verb's arguments, and the arguments with ``--env`` before it.

    None if the verb would not understand them, or has no such option.
    """
    has_option = any("--env" in option.opts for option in command.params)
    if not has_option or any(argument.partition("=")[0] == "--env" for argument in given):
        return None
    # Only a command line with a mistake needs this import.
    from headwater.environment.model import names

    environments = names(CONFIG)
    for place, argument in enumerate(given):
        now = [*given[:place], "--env", *given[place:]]
        if argument in environments and _understands(command, now, verb):
            return argument, now
    return None


def _names(context: Any) -> list[str]:
    """The words that name a verb, such as ``dev review gate``."""
    return [] if context.parent is None else [*_names(context.parent), context.info_name]


def _understands(command: Any, arguments: Sequence[str], verb: Any) -> bool:
    """Whether a command can be called with these arguments in the place of a verb. It is not run."""
    try:
        command.make_context(verb.info_name, list(arguments), parent=verb.parent)
    except (TyperException, typer.Exit):
        return False
    return True


class _Moved(TyperCommand):
    """A verb that has another name now."""

    name: str

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        part, given, names = load("dev").commands[self.name], list(args), [self.name]
        if given and given[0] in getattr(part, "commands", {}):
            part = part.commands[given[0]]
            names.append(given.pop(0))
        context = typer.Context(part, parent=parent, info_name=names[-1])
        _, given = _with_option(part, given, context) or ("", given)
        now = shlex.join(["headwater", "dev", *names, *given])
        raise UserError(f"headwater {self.name}: found the verb's former name, expected `{now}`")


def verbs() -> tuple[str, ...]:
    """Return the names of all verbs: those of this package, then those of others."""
    return (*_OWN, *sorted(name for name in _added() if "." not in name and name not in _OWN))


def add_all(app: typer.Typer) -> None:
    """Add every verb to a command. No verb's module is imported."""
    for verb in verbs():
        app.command(verb, cls=_Unloaded, help=_summary(verb))(lambda: None)
    for verb in _MOVED:
        app.command(verb, cls=_Moved, hidden=True)(lambda: None)


def load(verb: str) -> Any:
    """Import a verb's module and return the verb as a TyperCommand, or as a TyperGroup of several.

    Raises UserError unless exactly one module is the verb's, and can be imported.
    """
    modules = _modules(verb)
    if len(modules) != 1:
        found = " and in ".join(modules) or "no package"
        raise UserError(f"headwater {verb}: found the verb in {found}, expected one")
    loaded = _loaded(verb, modules[0])
    for name, (module, *_) in sorted(_added().items()):
        of, _, part = name.partition(".")
        if part and of == verb:
            # The other parts work without it.
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
    """The modules that other packages give, by the names of their entry points."""
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
    """What a verb does, in a sentence: the docstring in its module's first line, without the verb."""
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

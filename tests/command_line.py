"""Parses command lines without running their verbs."""

from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from headwater.cli import app


def understood(*words: str) -> dict[str, Any]:
    """Return a verb's parameters by their names. Raises TyperException if the verb refuses the words."""
    context: Any = get_command(app).make_context("headwater", list(words))
    while isinstance(context.command, TyperGroup):
        name, verb, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert verb is not None
        context = verb.make_context(name, rest, parent=context)
    found: dict[str, Any] = context.params
    return found

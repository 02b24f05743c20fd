"""The verbs of the ``headwater`` command, a module per verb: with an ``app`` of several, or a function of its name."""

import importlib
from collections.abc import Iterable

import typer

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
    "simulate",
    "assets",
    "jars",
    "sbom",
    "review",
    "cost",
    "prices",
    "check",
    "deploy",
    "destroy",
    "epoch",
    "reference",
)


def add(app: typer.Typer, verbs: Iterable[str] = VERBS) -> typer.Typer:
    """Add verbs to a command, which load only now, and return the command."""
    for verb in verbs:
        module = importlib.import_module(f"headwater.commands.{verb}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            app.command(verb)(getattr(module, verb))
    return app

"""Warns of a source's stacks that stay deployed after the source's last contract is removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.environment.model import SOURCE_NAMES
from headwater.environment.source_stacks import STACKS, WITH_DATA, left_over
from headwater.review.baselines import Templates
from headwater.review.replacements import Specification, stays


def warnings(environment: str, before: Templates, after: Templates, specification: Specification) -> Iterator[str]:
    """Yield warnings for stacks that leave the app with the last contract of a source.

    A warning names the command that deletes the stacks, and the resources that stay.
    """
    for source in STACKS:
        gone = left_over(source, before, after)
        if not gone:
            continue
        kept = [part for part in gone if part in WITH_DATA and any(_kept(before[part]))]
        deleted = [part for part in gone if part not in kept]
        yield (
            f"warning: {environment}: no contract of {SOURCE_NAMES[source]} is left, so its stacks leave the app: "
            f"{', '.join(gone)}. `headwater deploy --env {environment}` does not delete them. Run after it "
            f"`headwater destroy --env {environment} --source {source}`, which deletes "
            f"{', '.join(deleted) if kept else 'all of them'}"
        )
        for part in gone:
            held = [name for name in _kept(before[part]) if specification.stateful(_type(before[part], name))]
            named = ", ".join(f"{name} ({_type(before[part], name)})" for name in held)
            if part in kept:
                yield f"warning: {environment}/{part}: the stack stays, since it keeps data: {named}"
            elif held:
                yield f"warning: {environment}/{part}: the stack is deleted, but these resources stay: {named}"


def _kept(template: Mapping[str, Any]) -> Iterator[str]:
    """The resources that stay, or whose snapshot stays, when their stack is deleted."""
    return (name for name, resource in template["Resources"].items() if stays(resource))


def _type(template: Mapping[str, Any], name: str) -> str:
    return str(template["Resources"][name]["Type"])

"""Two states of an environment: the losses if the second replaces the first, a summary, and the whole difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.review import baselines, removed_sources, replacements
from headwater.review.baselines import Templates
from headwater.review.replacements import Loss, Specification

State = tuple[Mapping[str, Any], Templates]
"""An environment's fields and its stacks, as ``baselines.read_whole`` returns them."""
_MOST_LINES = 10
"""A summary has at most this many losses, and as many fields. So two environments fit on one screen."""
_MOST_NAMES = 3
_NO_FIELDS = "its baselines have no fields to compare"


@dataclass(frozen=True)
class Comparison:
    """Two states of an environment."""

    environment: str
    """The environment's name."""
    before: State
    """The state now."""
    after: State
    """The new state."""
    acknowledged: Path
    """The file of the losses that somebody agreed to."""
    specification: Specification
    """CloudFormation's specification, which decides about replacements."""

    @cached_property
    def losses(self) -> list[Loss]:
        """The stateful resources that are replaced, deleted, or left behind by their stack."""
        return replacements.losses(self.environment, self.before[1], self.after[1], self.specification)

    @cached_property
    def refused(self) -> list[Loss]:
        """The losses to which no entry of ``acknowledged`` agrees."""
        return replacements.unacknowledged(self.losses, replacements.read_acknowledged(self.acknowledged))

    def warnings(self) -> list[str]:
        """Say which stacks leave the app with the last contract of a source."""
        return list(removed_sources.warnings(self.environment, self.before[1], self.after[1], self.specification))

    def verdicts(self) -> Iterator[str]:
        """Yield a sentence for each loss, then how to agree to the refused ones, then the warnings."""
        for loss in self.losses:
            yield f"{self._verdict(loss)}: {loss}"
        if self.refused:
            yield f"\n{replacements.how_to_allow(self.refused, self.acknowledged)}"
        yield from self.warnings()

    def difference(self) -> str:
        """Return all changes of the fields and of the stacks, as ``cdk diff`` shows them; empty if there are none."""
        if self._lacks_fields:
            return f"{_NO_FIELDS}\n\n{baselines.difference(self.before[1], self.after[1])}"
        return baselines.whole_difference(self.before, self.after)

    def summary(self) -> list[str]:
        """Return a short summary: losses, changed fields and stacks, and counts of all other changes."""
        if self.before == self.after:
            return [f"{self.environment}: no difference"]
        lines = [*self._of_losses(), *self._of_fields(), *self._of_stacks(), *self.warnings()]
        return [f"{self.environment}:", *(f"  {line}" for line in lines)]

    @property
    def _lacks_fields(self) -> bool:
        """Whether the first state is from baselines of release 0.2.0 or before."""
        return bool(self.before[1] and self.after[0]) and not self.before[0]

    def _verdict(self, loss: Loss) -> str:
        return "refused" if loss in self.refused else "agreed"

    def _of_losses(self) -> Iterator[str]:
        groups: dict[tuple[str, ...], dict[str, None]] = {}
        for loss in self.losses:
            groups.setdefault((self._verdict(loss), loss.stack, loss.type, loss.fate()), {})[loss.resource] = None
        if not groups:
            yield "resources with data that are replaced, deleted or left behind: none"
            return
        lost = len({(loss.stack, loss.resource) for loss in self.losses})
        yield f"resources with data that are replaced, deleted or left behind: {lost}"
        lines = [
            f"{verdict}: {stack}: {_named(list(names))} ({type_}) {fate}"
            for (verdict, stack, type_, fate), names in groups.items()
        ]
        yield from _first(lines)

    def _of_fields(self) -> Iterator[str]:
        if self._lacks_fields:
            yield _NO_FIELDS
        elif lines := baselines.changed_fields(self.before[0], self.after[0]):
            yield f"fields with another value: {len(lines)}"
            yield from _first(lines)

    def _of_stacks(self) -> Iterator[str]:
        before, after = self.before[1], self.after[1]
        changed = [part for part in sorted(before.keys() & after.keys()) if before[part] != after[part]]
        parts = {
            "new": sorted(after.keys() - before.keys()),
            "gone": sorted(before.keys() - after.keys()),
            "changed": changed,
        }
        said = [f"{len(names)} {word} ({', '.join(names)})" for word, names in parts.items() if names]
        yield f"stacks: {', '.join(said) or 'none changes'}"
        resources = Counter(_resource_changes(before, after))
        if resources:
            yield f"resources: {', '.join(f'{count} {word}' for word, count in sorted(resources.items()))}"
        others = Counter(other for part in changed for other in _other_changes(before[part], after[part]))
        if others:
            yield f"besides: {', '.join(f'{name} of {_counted(count)}' for name, count in sorted(others.items()))}"


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _counted(stacks: int) -> str:
    return f"{stacks} stack{'' if stacks == 1 else 's'}"


def _first(lines: Sequence[str]) -> Iterator[str]:
    rest = len(lines) - _MOST_LINES
    yield from (f"  {line}" for line in lines[:_MOST_LINES])
    if rest > 0:
        yield f"  and {rest} more"


def _resource_changes(before: Templates, after: Templates) -> Iterator[str]:
    """Yield ``new``, ``gone`` or ``changed`` for each resource that differs."""
    for part in before.keys() | after.keys():
        old, new = (templates.get(part, {}).get("Resources", {}) for templates in (before, after))
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name):
                yield "new" if name not in old else "gone" if name not in new else "changed"


def _other_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The parts of a template that differ, resources aside: its sections, and the stack's own settings."""
    old, new = ({**template, **template.get("Metadata", {}).get("Stack", {})} for template in (before, after))
    names = (old.keys() | new.keys()) - {"Resources", "Metadata"}
    return [name for name in names if old.get(name) != new.get(name)]

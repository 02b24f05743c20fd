"""Resources of CloudFormation, as the local AWS makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.errors import UserError
from headwater.local_aws.without_effect import ANY_TYPE, PROPERTIES


@dataclass(frozen=True)
class Made:
    """A resource as CloudFormation knows it: what ``Ref`` gives, and what ``Fn::GetAtt`` does."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Properties(Mapping[str, Any]):
    """The properties that a template gives a resource. Those that are never read are told."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unread(self) -> set[str]:
        """The names of those that were not looked at."""
        return self._values.keys() - self._read


class ResourceType(Protocol):
    """How resources of one type are made. NotAnswered leaves one to the emulator; errors of any other kind fail the
    deployment with their message."""

    def create(self, name: str, properties: Properties) -> Made:
        """Make a resource. ``name`` is its stack's and its own in the template, unique in the account."""

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Give a resource other properties. Another ``physical_id`` replaces it."""

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Remove a resource."""


def changed(kind: str, former: Properties, properties: Properties) -> list[str]:
    """The properties that differ and have an effect."""
    names = {name for name in {*former, *properties} if former.get(name) != properties.get(name)}
    return sorted(names - PROPERTIES[ANY_TYPE].keys() - PROPERTIES.get(kind, {}).keys())


def refuse_unread(kind: str, properties: Properties) -> None:
    """Raise UserError where a template sets what nothing here heeds, and ``without_effect`` does not name."""
    refuse(kind, properties.unread())


def refuse(kind: str, names: Iterable[str]) -> None:
    """Raise UserError where ``without_effect`` does not name one of these properties of a type."""
    left = sorted(set(names) - PROPERTIES[ANY_TYPE].keys() - PROPERTIES.get(kind, {}).keys())
    if left:
        raise UserError(f"{kind}: {', '.join(left)} would have no effect here: heed it, or name it an exception")

"""CloudFormation resources, as the local AWS makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headwater.errors import UserError
from rig.emulator.watched import Watched
from rig.local_aws.ignored import ANY_TYPE, IGNORED_PROPERTIES


@dataclass(frozen=True)
class Made:
    """A resource as CloudFormation knows it."""

    physical_id: str
    """The value of ``Ref``."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The values of ``Fn::GetAtt``."""


class Properties(Watched):
    """The properties of a resource in a template, including nested ones.

    ``unread`` returns the names of the properties that nothing has read. Iterating over all properties reads each.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__({name: _watched(value) for name, value in values.items()})

    def heed(self) -> None:
        """Mark all properties as read."""
        for value in self.values():
            for inner in _within(value):
                inner.heed()
        self.seen.update(dict.keys(self))

    def unread(self) -> set[str]:
        """The names of the unread properties: ``Outer.Inner`` for a property within another, or in a list of it."""
        names = dict.keys(self) - self.seen
        for name in dict.keys(self) & self.seen:
            for inner in _within(dict.__getitem__(self, name)):
                names |= {f"{name}.{left}" for left in inner.unread()}
        return names


def _watched(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Properties(value)
    return [_watched(each) for each in value] if isinstance(value, list) else value


def _within(value: Any) -> list[Properties]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Properties)]


Service = TypeVar("Service")


class ResourceType(ABC, Generic[Service]):
    """How a ``service`` of an account makes the resources of one type.

    NotAnswered leaves a resource to the emulator. Errors of any other kind fail the deployment with their message.
    """

    kind: str
    """The CloudFormation name of the type."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def create(self, name: str, properties: Properties) -> Made:
        """Make a resource, as ``make`` does.

        Raises UserError if the resource has a property that nothing here reads.
        """
        made = self.make(name, properties)
        refuse_unread(self.kind, properties)
        return made

    @abstractmethod
    def make(self, name: str, properties: Properties) -> Made:
        """Make a resource. ``name`` joins the stack's name and the resource's, and is unique in the account."""

    def update(self, physical_id: str, former: Properties, properties: Properties) -> Made:
        """Change a resource's properties; another ``physical_id`` replaces it.

        Unless a type overrides this, it refuses a property that differs and has an effect.
        """
        refused = changed(self.kind, former, properties)
        if refused:
            raise UserError(
                f"{self.kind}: {', '.join(refused)} cannot be changed here: destroy the environment, then deploy it"
            )
        return Made(physical_id)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete a resource. Unless a type overrides this, nothing is left to delete."""


def changed(kind: str, former: Mapping[str, Any], properties: Mapping[str, Any]) -> list[str]:
    """The properties that differ and have an effect; ``Outer.Inner`` for a property within another."""
    return [name for name in sorted(set(_differing(former, properties))) if not _excepted(kind, name)]


def _differing(former: Mapping[str, Any], properties: Mapping[str, Any]) -> Iterator[str]:
    for name in {*former, *properties}:
        was, now = former.get(name), properties.get(name)
        if was == now:
            continue
        inside, inside_now = _within(was), _within(now)
        if inside and len(inside) == len(inside_now):
            for one, other in zip(inside, inside_now, strict=True):
                yield from (f"{name}.{inner}" for inner in _differing(one, other))
        else:
            yield name


def refuse_unread(kind: str, properties: Properties) -> None:
    """Raise UserError if a resource has a property that nothing has read and that ``ignored`` does not name."""
    refuse(kind, properties.unread())


def refuse(kind: str, names: Iterable[str]) -> None:
    """Raise UserError if ``ignored`` does not name each of these properties of a type."""
    left = sorted(name for name in set(names) if not _excepted(kind, name))
    if left:
        raise UserError(
            f"{kind}: {', '.join(left)} would have no effect here: read them in the type's handler, or name them in "
            "rig/local_aws/ignored.py"
        )


def _excepted(kind: str, name: str) -> bool:
    """Whether ``ignored`` names a property, or a property around it."""
    exceptions = IGNORED_PROPERTIES[ANY_TYPE].keys() | IGNORED_PROPERTIES.get(kind, {}).keys()
    parts = name.split(".")
    return any(".".join(parts[:end]) in exceptions for end in range(1, len(parts) + 1))

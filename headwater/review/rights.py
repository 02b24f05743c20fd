"""The rights that each principal needs, as ``reviewed/rights/`` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from headwater.errors import UserError
from headwater.paths import RIGHTS
from headwater.yaml_files import convert, read_yaml, yaml_paths


@dataclass(frozen=True, order=True)
class Right:
    """A right: an action on a resource."""

    action: str
    """The IAM action, such as ``s3:GetObject``."""
    resource: str
    """The resource's ARN. Names in braces stand for values that differ between environments."""
    context: tuple[tuple[str, str], ...] = ()
    """The condition keys of the request, with their values."""

    def __str__(self) -> str:
        return " ".join([self.action, self.resource, *(f"{key}={value}" for key, value in self.context)])

    @classmethod
    def parse(cls, text: str) -> Right:
        """Parse the text that ``str`` returns: action, resource and ``key=value`` pairs between blanks."""
        action, resource, *context = text.split(" ")
        pairs = [part.partition("=") for part in context]
        return cls(action, resource, tuple((key, value) for key, _, value in pairs))

    def at(self, places: Mapping[str, str]) -> Right:
        """This right with an environment's values in place of the names in braces.

        ``places`` has the value of each name. Raises UserError on an unknown name.
        """

        def put(text: str) -> str:
            try:
                return text.format_map(places)
            except KeyError as error:
                raise UserError(
                    f"{self}: found {error.args[0]!r} in braces, expected one of {', '.join(places)}"
                ) from None

        return Right(self.action, put(self.resource), tuple((key, put(value)) for key, value in self.context))


@dataclass(frozen=True)
class Principal:
    """A role and the rights that it needs."""

    name: str
    """The principal's name."""
    role: str
    """The role's place."""
    recorded: frozenset[Right]
    """The rights that a local run has used."""
    declared: Mapping[Right, str]
    """The rights that only parts of AWS use, each with its reason."""
    of_aurora: frozenset[Right] = frozenset()
    """The rights that only a deployment with a database of its own needs."""
    of_existing: frozenset[Right] = frozenset()
    """The rights that only a deployment beside an existing database needs."""
    only_with_aurora: bool = False
    """Whether only a deployment with a database of its own has the role."""

    @property
    def rights(self) -> list[Right]:
        """Recorded and declared rights, in order."""
        return sorted(self.recorded | set(self.declared))

    def with_database(self, kind: Literal["aurora", "existing"]) -> Principal:
        """This principal for a deployment with that kind of database."""
        others = self.of_existing if kind == "aurora" else self.of_aurora
        kept = {right: reason for right, reason in self.declared.items() if right not in others}
        return replace(self, recorded=self.recorded - others, declared=kept)


class _Declared(msgspec.Struct, forbid_unknown_fields=True):
    right: str
    reason: str
    only_with: Literal["aurora", "existing"] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    recorded: list[str]
    declared: list[_Declared]
    only_with: Literal["aurora"] | None = None


def read_principals(folder: Path = RIGHTS) -> list[Principal]:
    """Read the principals of a folder, one per file. Raises UserError naming file, field, found and expected."""
    principals = []
    for path in yaml_paths(folder):
        file = convert(read_yaml(path), _File, str(path))
        recorded = frozenset(Right.parse(text) for text in file.recorded)
        declared = {Right.parse(entry.right): entry.reason for entry in file.declared}
        of_aurora, of_existing = (
            frozenset(Right.parse(entry.right) for entry in file.declared if entry.only_with == kind)
            for kind in ("aurora", "existing")
        )
        name, whole = path.stem.replace("_", " "), file.only_with is not None
        principals.append(
            Principal(name, file.role, recorded, declared, of_aurora, of_existing, only_with_aurora=whole)
        )
    return principals

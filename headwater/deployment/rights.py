"""Rights: what each principal needs to be allowed, as ``reviewed/rights/`` holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import UserError
from headwater.paths import RIGHTS
from headwater.yaml_files import load_yaml


@dataclass(frozen=True, order=True)
class Right:
    """An action on a resource, whose ARN holds names in braces for what differs between environments, with what
    policies may ask of the request."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.action, self.resource, *(f"{key}={value}" for key, value in self.context)])

    @classmethod
    def parse(cls, text: str) -> Right:
        """Read what ``str`` wrote."""
        action, resource, *context = text.split(" ")
        pairs = [part.partition("=") for part in context]
        return cls(action, resource, tuple((key, value) for key, _, value in pairs))

    def at(self, places: Mapping[str, str]) -> Right:
        """The same with an environment's names in place of the braces. Raises UserError on an unknown name."""

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
    """Who asked for what. ``role`` is its role's place; ``declared`` are the rights of parts that run on AWS only, with
    the reason of each."""

    name: str
    role: str
    recorded: frozenset[Right]
    declared: Mapping[Right, str]

    @property
    def rights(self) -> list[Right]:
        """All of them, in order."""
        return sorted(self.recorded | set(self.declared))


def read_principals(folder: Path = RIGHTS) -> list[Principal]:
    """Read the principals of a folder, one a file. Raises UserError."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        document = load_yaml(path.read_text(encoding="utf-8"), str(path))
        if set(document) != {"role", "recorded", "declared"}:
            raise UserError(f"{path}: found {', '.join(document)}, expected role, recorded, declared")
        found.append(
            Principal(
                path.stem.replace("_", " "),
                document["role"],
                frozenset(Right.parse(text) for text in document["recorded"]),
                {Right.parse(one["right"]): one["reason"] for one in document["declared"]},
            )
        )
    return found

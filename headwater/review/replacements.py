"""Finds data that a change would lose: the stateful resources that it would replace or delete.

CloudFormation's specification says which types are stateful, and which properties replace a resource when they change.
It comes with the pinned CDK command line; ``cdk diff`` uses the same file.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import yaml

from headwater.environment.source_stacks import SHARED, STACKS
from headwater.errors import UserError
from headwater.paths import ROOT, SETUP
from headwater.review.baselines import Templates
from headwater.yaml_files import convert, read_yaml, refusal

SPECIFICATION = ROOT / "node_modules" / "aws-cdk" / "db.json.gz"
EVERY = "*"
"""Stands for all stateful resources of a stack that is gone."""
_STACKS = sorted({*SHARED, *chain.from_iterable(STACKS.values())})
# Stateful types that the specification does not mark, each with its loss.
_ALSO_STATEFUL = {
    "AWS::EC2::Subnet": "brokers and database are bound to their subnets",
    "AWS::EC2::VPC": "everything in it",
    "AWS::Glue::Database": "its tables",
    "AWS::Glue::Table": "its partitions, which only the writer knows",
    "AWS::MSK::Cluster": "its topics",
    "AWS::MSK::Topic": "its records, and the positions of its readers",
}


class Cause(NamedTuple):
    """A changed property that replaces its resource."""

    property: str
    """The property's path, such as ``TableInput/Name``."""
    before: Any
    """The property's value now."""
    after: Any
    """The property's new value."""
    certain: bool
    """Whether the change surely replaces the resource. If not, CloudFormation decides only during the deployment."""


@dataclass(frozen=True)
class Loss:
    """A reason why a stateful resource would be lost."""

    environment: str
    """The environment's name."""
    stack: str
    """The stack's name within the environment."""
    resource: str
    """The logical id."""
    type: str
    """CloudFormation's type of the resource."""
    property: str | None
    """The property whose change replaces the resource; None if the resource itself is gone. If another resource's
    replacement takes this one with it, the text starts with that resource and a dot."""
    before: Any
    """The property's value now."""
    after: Any
    """The property's new value."""
    certain: bool = True
    """Whether the change surely replaces the resource, rather than only under some conditions."""
    hint: str = ""
    """A text at the end of the sentence that a reviewer reads."""
    stays: bool = False
    """Whether CloudFormation keeps the resource, or a snapshot of it, when it leaves its stack."""
    with_stack: bool = False
    """Whether the whole stack is gone."""

    def __str__(self) -> str:
        """The sentence that a reviewer reads."""
        name = f"{self.environment}/{self.stack}: {self.resource} ({self.type})"
        change = (
            ""
            if self.property is None
            else f": {self.property} changes from {_short(self.before)} to {_short(self.after)}"
        )
        return f"{name} {self.fate()}{change}{self.hint}"

    def fate(self) -> str:
        """The fate of the resource, in words."""
        if self.property is None:
            return "would leave its stack and stay" if self.stays else "would be deleted"
        return f"{'would' if self.certain else 'might'} be replaced"


_Text = Annotated[str, msgspec.Meta(pattern=r"\S", extra={"expected": "a text"})]


class Acknowledgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A loss that somebody has agreed to."""

    environment: _Text
    """The environment's name."""
    stack: _Text
    """The stack's name within the environment."""
    resource: _Text
    """The resource's logical id. ``*`` stands for all resources of a stack that is gone."""
    reason: _Text
    """Why the loss is accepted."""
    property: str | None = None
    """The property whose change replaces the resource; None if the resource is deleted."""
    becomes: Any = None
    """The property's new value."""

    def covers(self, loss: Loss) -> bool:
        """Whether somebody has agreed to this loss."""
        if self.resource == EVERY:
            return loss.with_stack and (self.environment, self.stack) == (loss.environment, loss.stack)
        agreed = (self.environment, self.stack, self.resource, self.property, self.becomes)
        return agreed == (loss.environment, loss.stack, loss.resource, loss.property, loss.after)

    def holds(self, templates: Templates) -> bool:
        """Whether the templates of its environment are as agreed. They may be in the baselines already."""
        if self.resource == EVERY:
            return self.stack not in templates
        resources = templates.get(self.stack, {}).get("Resources", {})
        if self.property is None or self.resource not in resources:
            return self.property is None and self.resource not in resources
        owner, _, path = self.property.rpartition(".")
        value: Any = resources.get(owner or self.resource, {}).get("Properties", {})
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        return bool(value == self.becomes)


class Specification:
    """CloudFormation's resource types, and which changes replace a resource."""

    def __init__(self, path: Path = SPECIFICATION) -> None:
        if not path.is_file():
            raise UserError(f"{path}: found no file, expected the specification in aws-cdk: run `{SETUP}`")
        with gzip.open(path) as file:
            schema = json.load(file)["schema"]
        self._resources = {entity["cloudFormationType"]: entity for entity in schema["resource"]["entities"]}
        self._types = {entity["$id"]: entity for entity in schema["typeDefinition"]["entities"]}

    def stateful(self, type_: str) -> bool:
        """Whether a resource of this type holds data that cannot be created again."""
        return type_ in _ALSO_STATEFUL or bool(self._resources.get(type_, {}).get("isStateful"))

    def causes(self, type_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Cause]:
        """The changes between two sets of properties that replace a resource of this type."""
        properties = self._resources.get(type_, {}).get("properties", {})
        yield from self._changes(properties, before, after, "", "")

    def _changes(
        self,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        path: str,
        inherited: str,
    ) -> Iterator[Cause]:
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            definition = properties.get(name, {})
            mark = definition.get("causesReplacement") or inherited
            inner = self._inner(definition.get("type", {}))
            if inner and _is_group(old) and _is_group(new):
                # A mark inside the group decides; without one, the group's own mark does.
                passed = "" if self._marks_something(inner) else mark
                yield from self._changes(inner, old or {}, new or {}, f"{path}{name}/", passed)
            elif mark in ("yes", "maybe"):
                yield Cause(f"{path}{name}", old, new, mark == "yes")

    def _inner(self, type_: Mapping[str, Any]) -> Mapping[str, Any]:
        if type_.get("type") == "ref":
            properties: Mapping[str, Any] = self._types[type_["reference"]["$ref"]]["properties"]
            return properties
        if type_.get("type") == "union":
            return next((inner for member in type_["types"] if (inner := self._inner(member))), {})
        return {}

    def _marks_something(self, properties: Mapping[str, Any], seen: frozenset[int] = frozenset()) -> bool:
        if id(properties) in seen:
            return False
        deeper = seen | {id(properties)}
        return any(
            definition.get("causesReplacement") or self._marks_something(self._inner(definition["type"]), deeper)
            for definition in properties.values()
        )


def losses(environment: str, before: Templates, after: Templates, specification: Specification) -> list[Loss]:
    """The stateful resources of an environment that are lost if ``after`` is deployed over ``before``."""
    lost = []
    for stack, template in sorted(before.items()):
        old = template["Resources"]
        new = after.get(stack, {}).get("Resources", {})
        kept = [name for name in old if name in new and new[name]["Type"] == old[name]["Type"]]
        causes = {name: list(specification.causes(old[name]["Type"], *_properties(old, new, name))) for name in kept}
        for name in sorted(old):
            type_ = old[name]["Type"]
            if not specification.stateful(type_):
                continue
            # The resource is gone, or has another type.
            if name not in causes:
                lost.append(
                    Loss(
                        environment,
                        stack,
                        name,
                        type_,
                        None,
                        None,
                        None,
                        hint=_moved_to(name, old, new),
                        stays=stays(old[name]),
                        with_stack=stack not in after,
                    )
                )
                continue
            lost += [Loss(environment, stack, name, type_, *cause) for cause in causes[name]]
            # A replaced resource has a new name, which replaces the resources that are bound to the old one.
            for owner in _bound_to(name, new, specification):
                lost += [
                    Loss(environment, stack, name, type_, *cause._replace(property=f"{owner}.{cause.property}"))
                    for cause in causes.get(owner, ())
                ]
    return lost


def stays(resource: Mapping[str, Any]) -> bool:
    """Whether a resource, or a snapshot of it, stays when it leaves its stack."""
    return str(resource.get("DeletionPolicy", "")).startswith(("Retain", "Snapshot"))


def _properties(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return old[name].get("Properties", {}), new[name].get("Properties", {})


def _bound_to(name: str, resources: Mapping[str, Any], specification: Specification) -> list[str]:
    """Return the resources whose replacement also replaces this one.

    This resource refers to them in a property whose change replaces it. It may also refer to resources that refer to
    them in this way.
    """
    owners: list[str] = []
    waiting = [name]
    while waiting:
        resource = resources[waiting.pop()]
        properties = resource.get("Properties", {})
        marked = _mark_references(properties, resources.keys())
        for cause in specification.causes(resource["Type"], properties, marked):
            new = [owner for owner in _marked(cause.after) if owner != name and owner not in owners]
            owners += new
            waiting += new
    return owners


_MARK = "refers to"


def _mark_references(value: Any, names: Collection[str]) -> Any:
    """The value with a mark in place of each reference to one of these resources."""
    if isinstance(value, Mapping):
        target = value.get("Ref") or (value.get("Fn::GetAtt") or [None])[0]
        if target in names:
            return {_MARK: target}
        return {key: _mark_references(item, names) for key, item in value.items()}
    return [_mark_references(item, names) for item in value] if isinstance(value, list) else value


def _marked(value: Any) -> list[str]:
    """The resources whose marks are in a value."""
    if isinstance(value, Mapping):
        return [value[_MARK]] if _MARK in value else [name for item in value.values() for name in _marked(item)]
    return [name for item in value for name in _marked(item)] if isinstance(value, list) else []


def _moved_to(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A hint if a new resource equals a deleted one but for its logical id."""
    gone = old[name]
    twins = [
        new_name
        for new_name, resource in new.items()
        if new_name not in old
        and resource["Type"] == gone["Type"]
        and resource.get("Properties") == gone.get("Properties")
    ]
    return (
        f": {twins[0]} equals it, but a resource whose logical id changes is deleted and created anew" if twins else ""
    )


def read_acknowledged(path: Path) -> list[Acknowledgement]:
    """Read the acknowledged losses; none if there is no file.

    Raises UserError naming file, entry, found and expected.
    """
    document = (read_yaml(path) or []) if path.exists() else []
    if not isinstance(document, list):
        raise refusal(str(path), "content", document, "a list of entries")
    entries = []
    for number, each in enumerate(document, 1):
        entry = convert(each, Acknowledgement, f"{path}: entry {number}")
        # A misspelt stack would look like a stack that is gone, because the templates lack both.
        if entry.resource == EVERY and entry.stack not in _STACKS:
            raise refusal(f"{path}: entry {number}", "stack", entry.stack, f"one of {', '.join(_STACKS)}")
        entries.append(entry)
    return entries


def entry_for(loss: Loss) -> str:
    """The entry that acknowledges a loss, with ``…`` for its reason.

    All losses of a stack that is gone share one entry.
    """
    resource = EVERY if loss.with_stack else loss.resource
    entry: dict[str, Any] = {"environment": loss.environment, "stack": loss.stack, "resource": resource}
    if loss.property is not None:
        entry |= {"property": loss.property, "becomes": loss.after}
    return yaml.safe_dump([{**entry, "reason": "…"}], sort_keys=False, allow_unicode=True)


def how_to_allow(losses: Sequence[Loss], path: Path) -> str:
    """Return the advice on refused losses that are meant: the entries to add to the file of acknowledgements."""
    entries = "".join(dict.fromkeys(map(entry_for, losses)))
    return f"To allow this, add to {path}, each with its reason:\n{entries}"


def unacknowledged(losses: Sequence[Loss], acknowledged: Sequence[Acknowledgement]) -> list[Loss]:
    """The losses that no entry acknowledges."""
    return [loss for loss in losses if not any(entry.covers(loss) for entry in acknowledged)]


def stale(acknowledged: Sequence[Acknowledgement], templates: Mapping[str, Templates]) -> list[Acknowledgement]:
    """The entries that no longer fit the ``templates``, which are given by environment.

    An entry still fits after the baselines have taken in the change that it accepts.
    """
    return [entry for entry in acknowledged if not entry.holds(templates.get(entry.environment, {}))]


def _is_group(value: Any) -> bool:
    """Whether a value is a group of properties, which may be absent, and not an intrinsic function."""
    return value is None or (
        isinstance(value, Mapping) and not any(key == "Ref" or key.startswith("Fn::") for key in value)
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "nothing" if value is None else text if len(text) <= 120 else text[:119] + "…"

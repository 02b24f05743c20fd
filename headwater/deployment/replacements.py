"""The gate before a lost resource: what a change would replace or delete of all that cannot be made again.

What is stateful, and which property replaces a resource when it changes, is read from the specification of
CloudFormation that the pinned CDK command line brings along and ``cdk diff`` goes by.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from headwater.deployment.baselines import Templates
from headwater.errors import UserError
from headwater.paths import REVIEWED, ROOT
from headwater.yaml_files import load_yaml

SPECIFICATION = ROOT / "node_modules" / "aws-cdk" / "db.json.gz"
ACKNOWLEDGED = REVIEWED / "acknowledged_replacements.yaml"
# What the specification does not count among the stateful, and what goes with each.
_ALSO_STATEFUL = {
    "AWS::EC2::Subnet": "brokers and database are bound to their subnets",
    "AWS::EC2::VPC": "everything in it",
    "AWS::Glue::Database": "its tables",
    "AWS::Glue::Table": "its partitions, which only the writer knows",
    "AWS::MSK::Cluster": "its topics",
    "AWS::MSK::Topic": "its records, and the position of who reads it",
}


@dataclass(frozen=True)
class Loss:
    """One reason for which a stateful resource would go. ``property`` is a path such as ``TableInput/Name``, with the
    resource and a dot before it where that other resource takes this one with it, and None where the resource itself
    is gone; ``certain`` is false where CloudFormation decides when it runs."""

    environment: str
    stack: str
    resource: str
    type: str
    property: str | None
    before: Any
    after: Any
    certain: bool = True
    hint: str = ""

    def __str__(self) -> str:
        """The sentence that a reviewer reads."""
        name = f"{self.environment}/{self.stack}: {self.resource} ({self.type})"
        if self.property is None:
            return f"{name} would be deleted{self.hint}"
        verb = "would" if self.certain else "might"
        return (
            f"{name} {verb} be replaced: {self.property} changes from {_short(self.before)} to {_short(self.after)}"
            f"{self.hint}"
        )


@dataclass(frozen=True)
class Acknowledgement:
    """A loss that was agreed on: this resource, by this property becoming this value (or by its deletion, where
    ``property`` is None), and no other."""

    environment: str
    stack: str
    resource: str
    reason: str
    property: str | None = None
    becomes: Any = None

    def covers(self, loss: Loss) -> bool:
        """Whether this is the loss that was agreed on."""
        mine = (self.environment, self.stack, self.resource, self.property, self.becomes)
        return mine == (loss.environment, loss.stack, loss.resource, loss.property, loss.after)

    def holds(self, templates: Templates) -> bool:
        """Whether the templates of its environment are as agreed, before or after they are the baseline."""
        resources = templates.get(self.stack, {}).get("Resources", {})
        if self.property is None or self.resource not in resources:
            return self.property is None and self.resource not in resources
        other, _, path = self.property.rpartition(".")
        found: Any = resources.get(other or self.resource, {}).get("Properties", {})
        for name in path.split("/"):
            found = found.get(name) if isinstance(found, Mapping) else None
        return bool(found == self.becomes)


class Specification:
    """CloudFormation's resources and what replaces them."""

    def __init__(self, path: Path = SPECIFICATION) -> None:
        if not path.is_file():
            raise UserError(f"{path}: found no file, expected the specification in aws-cdk: run `make setup`")
        with gzip.open(path) as file:
            schema = json.load(file)["schema"]
        self._resources = {one["cloudFormationType"]: one for one in schema["resource"]["entities"]}
        self._types = {one["$id"]: one for one in schema["typeDefinition"]["entities"]}

    def stateful(self, type_: str) -> bool:
        """Whether a resource of this type holds what cannot be made again."""
        return type_ in _ALSO_STATEFUL or bool(self._resources.get(type_, {}).get("isStateful"))

    def causes(
        self, type_: str, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any, Any, bool]]:
        """The changes of properties that replace a resource: path, both values, whether it is certain."""
        properties = self._resources.get(type_, {}).get("properties", {})
        yield from self._changes(properties, before, after, "", "")

    def _changes(
        self,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        path: str,
        inherited: str,
    ) -> Iterator[tuple[str, Any, Any, bool]]:
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            definition = properties.get(name, {})
            mark = definition.get("causesReplacement") or inherited
            inner = self._inner(definition.get("type", {}))
            if inner and _is_group(old) and _is_group(new):
                # Where something within is marked, that decides; else what is around it.
                passed = "" if self._marks_something(inner) else mark
                yield from self._changes(inner, old or {}, new or {}, f"{path}{name}/", passed)
            elif mark in ("yes", "maybe"):
                yield f"{path}{name}", old, new, mark == "yes"

    def _inner(self, type_: Mapping[str, Any]) -> Mapping[str, Any]:
        if type_.get("type") == "ref":
            properties: Mapping[str, Any] = self._types[type_["reference"]["$ref"]]["properties"]
            return properties
        if type_.get("type") == "union":
            return next((inner for one in type_["types"] if (inner := self._inner(one))), {})
        return {}

    def _marks_something(self, properties: Mapping[str, Any], seen: frozenset[int] = frozenset()) -> bool:
        if id(properties) in seen:
            return False
        deeper = seen | {id(properties)}
        return any(
            one.get("causesReplacement") or self._marks_something(self._inner(one["type"]), deeper)
            for one in properties.values()
        )


def losses(environment: str, before: Templates, after: Templates, specification: Specification) -> list[Loss]:
    """What would go of an environment's stateful resources if ``after`` were deployed over ``before``."""
    found = []
    for stack, template in sorted(before.items()):
        old = template["Resources"]
        new = after.get(stack, {}).get("Resources", {})
        kept = [name for name in old if name in new and new[name]["Type"] == old[name]["Type"]]
        causes = {name: list(specification.causes(old[name]["Type"], *_properties(old, new, name))) for name in kept}
        for name in sorted(old):
            type_ = old[name]["Type"]
            if not specification.stateful(type_):
                continue
            if name not in causes:
                found.append(Loss(environment, stack, name, type_, None, None, None, hint=_moved_to(name, old, new)))
                continue
            found += [Loss(environment, stack, name, type_, *cause) for cause in causes[name]]
            # A replaced resource has a new name, so that what is named after it may be replaced in turn.
            for other in _named_after(name, new, specification):
                found += [
                    Loss(environment, stack, name, type_, f"{other}.{path}", *values)
                    for path, *values in causes.get(other, ())
                ]
    return found


def _properties(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return old[name].get("Properties", {}), new[name].get("Properties", {})


def _named_after(name: str, resources: Mapping[str, Any], specification: Specification) -> list[str]:
    """The resources whose replacement replaces this one: those to which its properties refer that cannot change, and
    those to which these refer in the same way."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        resource = resources[waiting.pop()]
        properties = resource.get("Properties", {})
        marked = _mark_references(properties, resources.keys())
        for _, _, value, _ in specification.causes(resource["Type"], properties, marked):
            new = [other for other in _marked(value) if other != name and other not in found]
            found += new
            waiting += new
    return found


_MARK = "refers to"


def _mark_references(value: Any, names: Collection[str]) -> Any:
    """A value in which each reference to one of these resources is changed into a mark."""
    if isinstance(value, Mapping):
        target = value.get("Ref") or (value.get("Fn::GetAtt") or [None])[0]
        return {_MARK: target} if target in names else {key: _mark_references(one, names) for key, one in value.items()}
    return [_mark_references(one, names) for one in value] if isinstance(value, list) else value


def _marked(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [value[_MARK]] if _MARK in value else [name for one in value.values() for name in _marked(one)]
    return [name for one in value for name in _marked(one)] if isinstance(value, list) else []


def _moved_to(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A word about the new resource that looks like a deleted one under another logical id."""
    gone = old[name]
    twins = [
        other
        for other, one in new.items()
        if other not in old and one["Type"] == gone["Type"] and one.get("Properties") == gone.get("Properties")
    ]
    return f": {twins[0]} is like it, but a moved logical id deletes one and makes the other" if twins else ""


def read_acknowledged(path: Path = ACKNOWLEDGED) -> list[Acknowledgement]:
    """Read the losses that were agreed on. Raises UserError naming file, entry, found and expected."""
    document = load_yaml(path.read_text(encoding="utf-8"), str(path)) or []
    if not isinstance(document, list):
        raise UserError(f"{path}: found {document!r}, expected a list of entries")
    known = [field.name for field in fields(Acknowledgement)]
    entries = []
    for number, entry in enumerate(document, 1):
        where = f"{path}: entry {number}"
        if not isinstance(entry, Mapping) or not entry.keys() <= set(known):
            raise UserError(f"{where}: found {entry!r}, expected a mapping of {', '.join(known)}")
        for name in ("environment", "stack", "resource", "reason"):
            if not isinstance(entry.get(name), str) or not entry[name].strip():
                raise UserError(f"{where}: {name}: found {entry.get(name)!r}, expected a text")
        entries.append(Acknowledgement(**entry))
    return entries


def entry_for(loss: Loss) -> str:
    """The entry that would acknowledge a loss, but for its reason."""
    entry: dict[str, Any] = {"environment": loss.environment, "stack": loss.stack, "resource": loss.resource}
    if loss.property is not None:
        entry |= {"property": loss.property, "becomes": loss.after}
    return yaml.safe_dump([{**entry, "reason": "…"}], sort_keys=False, allow_unicode=True)


def unacknowledged(found: Sequence[Loss], acknowledged: Sequence[Acknowledgement]) -> list[Loss]:
    """The losses that nobody agreed on."""
    return [loss for loss in found if not any(entry.covers(loss) for entry in acknowledged)]


def stale(acknowledged: Sequence[Acknowledgement], templates: Mapping[str, Templates]) -> list[Acknowledgement]:
    """The entries that speak of something that is not so, or no more; templates by environment. An entry stays good
    when the baselines have caught up with what it agreed on."""
    return [entry for entry in acknowledged if not entry.holds(templates.get(entry.environment, {}))]


def _is_group(value: Any) -> bool:
    """Whether a value is a group of properties, which may be absent, and not an intrinsic function."""
    return value is None or (
        isinstance(value, Mapping) and not any(key == "Ref" or key.startswith("Fn::") for key in value)
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "nothing" if value is None else text if len(text) <= 120 else text[:119] + "…"

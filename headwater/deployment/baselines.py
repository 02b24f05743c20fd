"""Baselines: every stack's template in a form that a person can review, ``reviewed/baselines/<environment>/``.

A baseline is the template as CDK wrote it, but for the hashes of assets, in whose place stand the assets' names, and
for what CDK's stacks all have. A stack's protection, its tags and the stacks it waits for are not in a template and
stand in its metadata. Every value keeps its place and its order, but for the resources of a policy's statement.

YAML's tags shorten what would hide a change in noise: ``!Ref``, ``!GetAtt``, ``!Sub`` and ``!ImportValue`` as
CloudFormation has them, ``!Join "a-${B}"`` for an ``Fn::Join`` without a separator, ``!Base64`` for a text that the
template holds encoded, and ``!View`` for the definition of an Athena view.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from headwater.errors import UserError
from headwater.paths import ROOT

CDK = (str(ROOT / "node_modules" / ".bin" / "cdk"), "--no-notices", "--no-color")
# A template in long form, masked, by the stack's name within its environment.
Templates = Mapping[str, Mapping[str, Any]]

_STACK = re.compile(r"headwater-(?P<environment>[^-]+)-(?P<part>.+)")
_TEMPLATE_KEYS = ("Description", "Metadata", "Parameters", "Resources")
_RESOURCE_KEYS = ("Type", "Condition", "Metadata", "Properties", "DependsOn", "UpdateReplacePolicy", "DeletionPolicy")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_VIEW = re.compile(r"/\* Presto View: (\S+) \*/")
# Shorter runs of these characters are more likely words than encoded text.
_ENCODED = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def from_assembly(assembly: Path) -> dict[str, dict[str, Any]]:
    """Read the stacks that CDK synthesized into a folder, masked and by name within their environment."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    stacks = {name: one for name, one in artifacts.items() if one["type"] == "aws:cloudformation:stack"}
    templates = {}
    for name, artifact in stacks.items():
        assets = json.loads((assembly / f"{name}.assets.json").read_text())["files"]
        text = (assembly / artifact["properties"]["templateFile"]).read_text()
        for digest, asset in assets.items():
            if not _DIGEST.fullmatch(digest):
                text = text.replace(digest, f"<{digest.partition('-')[0]}>")  # a file under its own name
                continue
            label = f"<{asset['displayName'].rpartition('/')[2]}>" if "displayName" in asset else "<asset>"
            # What is named by content carries the digest's beginning.
            text = text.replace(digest, label).replace(digest[:12], label)
        # A digest of several assets says that one of them changed.
        template = json.loads(_DIGEST.sub("<digest>", text))
        _drop_what_all_have(template)
        _sort_granted(template["Resources"])
        template["Metadata"] = {
            **template.get("Metadata", {}),
            "Stack": {
                "TerminationProtection": artifact["properties"].get("terminationProtection", False),
                "Tags": artifact["properties"].get("tags", {}),
                "DependsOn": sorted(_part(one) for one in artifact.get("dependencies", ()) if one in stacks),
            },
        }
        templates[_part(name)] = template
    return templates


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Read one environment's baselines. No folder is no stack."""
    return {path.stem: parse(path.read_text(encoding="utf-8"), path) for path in sorted(folder.glob("*.yaml"))}


def write(folder: Path, templates: Templates) -> None:
    """Write one environment's baselines, and remove those of stacks gone."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.yaml"):
        if path.stem not in templates:
            path.unlink()
    for part, template in templates.items():
        unfinished = folder / f"{part}.part"
        unfinished.write_text(render(template), encoding="utf-8")
        unfinished.replace(folder / f"{part}.yaml")


def render(template: Mapping[str, Any]) -> str:
    """A template as reviewable YAML."""
    dumper: Any = _Dumper
    text: str = yaml.dump(_tagged(template), Dumper=dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def parse(text: str, path: Path) -> dict[str, Any]:
    """A baseline's template in long form: what ``render`` was given. Raises UserError naming the file."""
    try:
        template = yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader with the tags above)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not a baseline: {error}; run `make baselines`") from None
    if not isinstance(template, dict):
        raise UserError(f"{path}: found {template!r}, expected a template; run `make baselines`")
    return template


def difference(before: Templates, after: Templates) -> str:
    """What changed, in the words of ``cdk diff``; empty where nothing did."""
    texts = []
    for part in sorted(before.keys() | after.keys()):
        if before.get(part) != after.get(part):
            news = "is new" if part not in before else "is gone" if part not in after else "changes"
            texts.append(f"Stack {part} {news}\n{_cdk_diff(before.get(part, {}), after.get(part, {}))}\n")
    return "\n".join(texts)


def _cdk_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Run ``cdk diff --template`` on two templates: it needs neither credentials nor the app."""
    manifest = {
        # The oldest form of an assembly that has what is needed here; every later CDK reads it.
        "version": "36.0.0",
        "artifacts": {
            "stack": {
                "type": "aws:cloudformation:stack",
                "environment": "aws://unknown-account/unknown-region",
                "properties": {"templateFile": "after.json"},
            }
        },
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in (("manifest", manifest), ("before", before), ("after", after)):
            (folder / f"{file}.json").write_text(json.dumps(content))
        run = subprocess.run(
            [*CDK, "--ci", "--app", name, "diff", "stack", "--template", "before.json"],
            cwd=folder,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
    if run.returncode != 0:
        raise RuntimeError(f"cdk diff ended with {run.returncode}: {run.stdout}{run.stderr}")
    # With --ci everything goes to standard output, as it does by itself where the environment has CI.
    lines = [line for line in run.stdout.splitlines() if line != "Stack stack" and "Number of stacks" not in line]
    return "\n".join(lines).strip("\n")


def _part(stack: str) -> str:
    found = _STACK.fullmatch(stack)
    return found["part"] if found else stack


def _drop_what_all_have(template: dict[str, Any]) -> None:
    """Remove CDK's check of the bootstrap version."""
    for section, name in (("Parameters", "BootstrapVersion"), ("Rules", "CheckBootstrapVersion")):
        template.get(section, {}).pop(name, None)
        if not template.get(section, True):
            del template[section]
    for resource in template["Resources"].values():
        metadata = resource.get("Metadata", {})
        for key in [key for key in metadata if key.startswith("aws:asset:")]:
            del metadata[key]


def _sort_granted(value: Any) -> None:
    """Put the resources of each statement of a policy in the order of what is shown: CDK's is that of hashes."""
    if isinstance(value, list):
        for item in value:
            _sort_granted(item)
    elif isinstance(value, dict):
        if "Action" in value and isinstance(value.get("Resource"), list):
            value["Resource"].sort(key=lambda resource: json.dumps(resource, sort_keys=True))
        for item in value.values():
            _sort_granted(item)


class _Tagged:
    """A value that YAML writes with a tag."""

    def __init__(self, tag: str, value: Any) -> None:
        self.tag = tag
        self.value = value


def _tagged(value: Any) -> Any:
    """A template's value with everything that has a short form in it, and mappings in a stable order."""
    if isinstance(value, str):
        return _decoded(value)
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        short = _short(*next(iter(value.items())))
        if short is not None:
            return short
    first = _TEMPLATE_KEYS if "Resources" in value else _RESOURCE_KEYS if "Type" in value else ()
    names = [name for name in first if name in value] + sorted(name for name in value if name not in first)
    return {name: _tagged(value[name]) for name in names}


def _short(function: str, argument: Any) -> _Tagged | None:
    """An intrinsic function in its short form, where it has one."""
    if function == "Ref":
        return _Tagged("!Ref", argument)
    if function == "Fn::GetAtt":
        return _Tagged("!GetAtt", ".".join(argument))
    if function in ("Fn::ImportValue", "Fn::Sub") and isinstance(argument, str):
        return _Tagged(f"!{function.removeprefix('Fn::')}", argument)
    if function == "Fn::Join" and argument[0] == "" and isinstance(argument[1], list):
        parts = [_placeholder(part) for part in argument[1]]
        if None not in parts:
            return _Tagged("!Join", "".join(part for part in parts if part is not None))
    return None


def _placeholder(part: Any) -> str | None:
    """A part of a joined text; None for what cannot stand in one."""
    if isinstance(part, str):
        return part.replace("${", "${!")
    ((function, argument),) = part.items()
    if function == "Ref":
        return f"${{{argument}}}"
    if function == "Fn::GetAtt":
        return f"${{{'.'.join(argument)}}}"
    if function == "Fn::ImportValue" and isinstance(argument, str):
        return f"${{import {argument}}}"
    return None


def _long_join(text: str) -> dict[str, Any]:
    """Undo the ``!Join`` of ``_short``."""
    parts: list[Any] = []
    for literal, name in re.findall(r"((?:[^$]|\$(?!\{)|\$\{!)+)|\$\{([^}]+)\}", text):
        if literal:
            parts.append(literal.replace("${!", "${"))
        elif name.startswith("import "):
            parts.append({"Fn::ImportValue": name.removeprefix("import ")})
        else:
            parts.append(_long_get_att(name) if "." in name else {"Ref": name})
    return {"Fn::Join": ["", parts]}


def _long_get_att(text: str) -> dict[str, Any]:
    resource, _, attribute = text.partition(".")
    return {"Fn::GetAtt": [resource, attribute]}


def _decoded(text: str) -> str | _Tagged:
    """A text that holds Base64, decoded where that can be read and undone."""
    view = _VIEW.fullmatch(text)
    if view:
        decoded = _base64_text(view[1])
        if decoded is not None and json.dumps(json.loads(decoded)) == decoded:
            return _Tagged("!View", json.loads(decoded))
    elif _ENCODED.fullmatch(text):
        decoded = _base64_text(text)
        if decoded is not None:
            return _Tagged("!Base64", decoded)
    return text


def _base64_text(encoded: str) -> str | None:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    readable = all(character.isprintable() or character in "\n\t" for character in text)
    return text if readable and _encode(text) == encoded else None


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class _Dumper(yaml.SafeDumper):
    """Writes lists below their key, long texts as blocks, and no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dump_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _dump_tagged(dumper: yaml.SafeDumper, tagged: _Tagged) -> yaml.Node:
    if isinstance(tagged.value, str):
        return dumper.represent_scalar(tagged.tag, tagged.value, style="|" if "\n" in tagged.value else None)
    return dumper.represent_mapping(tagged.tag, tagged.value)


_Dumper.add_representer(str, _dump_text)
_Dumper.add_representer(_Tagged, _dump_tagged)


class _Loader(yaml.CSafeLoader):
    """Reads the tags that the dumper writes."""


def _constructor(make: Callable[[Any], Any]) -> Callable[[_Loader, yaml.Node], Any]:
    def construct(loader: _Loader, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return make(loader.construct_scalar(node))
        if isinstance(node, yaml.MappingNode):
            return make(loader.construct_mapping(node, deep=True))
        raise yaml.YAMLError(f"{node.start_mark}: found a list, expected a text or a mapping")

    return construct


for _tag, _make in {
    "!Ref": lambda name: {"Ref": name},
    "!GetAtt": _long_get_att,
    "!ImportValue": lambda name: {"Fn::ImportValue": name},
    "!Sub": lambda text: {"Fn::Sub": text},
    "!Join": _long_join,
    "!Base64": _encode,
    "!View": lambda definition: f"/* Presto View: {_encode(json.dumps(definition))} */",
}.items():
    _Loader.add_constructor(_tag, _constructor(_make))

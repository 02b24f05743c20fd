"""Baselines: each stack's template in a form that people can review, in ``reviewed/baselines/<environment>/``.

A baseline is the template as CDK wrote it, with three differences. The names of assets replace their hashes. The check
of the bootstrap version is left out. The resources of a policy's statement are sorted; every other list keeps its
order. The metadata adds facts that a template lacks: the stack's termination protection, its tags, and the stacks that
must be deployed before. Beside the templates, ``environment.yaml`` has every field of the environment with its value,
be it the file's or a default.

YAML tags keep noise from hiding a change. ``!Ref``, ``!GetAtt``, ``!Sub`` and ``!ImportValue`` are CloudFormation's.
``!Join "a-${B}"`` is an ``Fn::Join`` without a separator. ``!Base64`` is a text that the template holds encoded, and
``!View`` the definition of an Athena view.
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

from headwater.environment.defaults import leaves, words
from headwater.errors import UserError
from headwater.paths import ROOT

CDK = (str(ROOT / "node_modules" / ".bin" / "cdk"), "--no-notices", "--no-color")
Templates = Mapping[str, Mapping[str, Any]]
"""Templates in long form, by the stack's name within its environment. Names of assets replace their hashes."""

_ENVIRONMENT = "environment"
"""The name of the file with the environment's fields. No stack has this name."""
_OF_EACH = (f"{_ENVIRONMENT}.yaml", "lake.yaml")
"""Files in the baselines of each environment. Release 0.1.0 writes no ``environment.yaml``."""
_STACK = re.compile(r"headwater-(?P<environment>[^-]+)-(?P<part>.+)")
_TEMPLATE_KEYS = ("Description", "Metadata", "Parameters", "Resources")
_RESOURCE_KEYS = ("Type", "Condition", "Metadata", "Properties", "DependsOn", "UpdateReplacePolicy", "DeletionPolicy")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_VIEW = re.compile(r"/\* Presto View: (\S+) \*/")
# A shorter sequence of these characters is more likely a word than encoded text.
_ENCODED = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def search_path() -> str:
    """Return the PATH with which CDK's command line finds the Node beside this Python."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def from_assembly(assembly: Path) -> dict[str, dict[str, Any]]:
    """Read the stacks that CDK synthesized into a folder, in the form of baselines."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    stacks = {name: artifact for name, artifact in artifacts.items() if artifact["type"] == "aws:cloudformation:stack"}
    templates = {}
    for name, artifact in stacks.items():
        assets = json.loads((assembly / f"{name}.assets.json").read_text())["files"]
        text = (assembly / artifact["properties"]["templateFile"]).read_text()
        for digest, asset in assets.items():
            if not _DIGEST.fullmatch(digest):
                text = text.replace(digest, f"<{digest.partition('-')[0]}>")  # a file under its own name
                continue
            label = f"<{asset['displayName'].rpartition('/')[2]}>" if "displayName" in asset else "<asset>"
            # Names that are made from content contain the first characters of the digest.
            text = text.replace(digest, label).replace(digest[:12], label)
        # A digest over several assets differs whenever one of them does.
        template = json.loads(_DIGEST.sub("<digest>", text))
        _drop_what_all_have(template)
        _sort_granted(template["Resources"])
        template["Metadata"] = {
            **template.get("Metadata", {}),
            "Stack": {
                "TerminationProtection": artifact["properties"].get("terminationProtection", False),
                "Tags": artifact["properties"].get("tags", {}),
                "DependsOn": sorted(_part(name) for name in artifact.get("dependencies", ()) if name in stacks),
            },
        }
        templates[_part(name)] = template
    return templates


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Read one environment's baselines of stacks; none if there is no folder."""
    paths = [path for path in sorted(folder.glob("*.yaml")) if path.stem != _ENVIRONMENT]
    return {path.stem: parse(path.read_text(encoding="utf-8"), path) for path in paths}


def place(folder: Path, environment: str, option: str) -> Path:
    """Return the folder of an environment's baselines in a folder of baselines, which ``option`` names.

    A new environment has none there. Raises UserError if the folder holds no baselines: the comparison would treat
    every stack as new.
    """
    there = list(folder.iterdir()) if folder.is_dir() else None
    if there is None or (there and not any((each / name).is_file() for each in there for name in _OF_EACH)):
        raise UserError(
            f"{option}: found {folder}, expected a folder of baselines, which has a folder for each environment: in a "
            "lake folder it is reviewed/baselines"
        )
    return folder / environment


def read_fields(folder: Path) -> dict[str, Any]:
    """Read the fields of one environment, with their values in its baselines; none if there is no such file."""
    path = folder / f"{_ENVIRONMENT}.yaml"
    return parse(path.read_text(encoding="utf-8"), path) if path.exists() else {}


def write(folder: Path, templates: Templates, fields: Mapping[str, Any]) -> None:
    """Write one environment's baselines, and remove the baselines of stacks that are gone.

    ``fields`` is ``Environment.document``; it is empty for a folder of only some stacks.
    """
    texts = {part: render(template) for part, template in templates.items()}
    if fields:
        texts[_ENVIRONMENT] = yaml.dump(fields, Dumper=_Dumper, sort_keys=False, width=120)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.yaml"):
        if path.stem not in texts:
            path.unlink()
    for name, text in texts.items():
        unfinished = folder / f"{name}.part"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(folder / f"{name}.yaml")


def render(template: Mapping[str, Any]) -> str:
    """A template as reviewable YAML."""
    dumper: Any = _Dumper
    text: str = yaml.dump(_tagged(template), Dumper=dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def parse(text: str, path: Path) -> dict[str, Any]:
    """Parse a baseline into the template that ``render`` was given. Raises UserError naming the file."""
    try:
        template = yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader with the tags above)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not a baseline: {error}; run `headwater baselines`") from None
    if not isinstance(template, dict):
        raise UserError(f"{path}: found {template!r}, expected a template; run `headwater baselines`")
    return template


def difference(before: Templates, after: Templates) -> str:
    """The changes between two sets of stacks, as ``cdk diff`` shows them; empty if there are none."""
    texts = []
    for part in sorted(before.keys() | after.keys()):
        if before.get(part) != after.get(part):
            change = "is new" if part not in before else "is gone" if part not in after else "changes"
            texts.append(f"Stack {part} {change}\n{_cdk_diff(before.get(part, {}), after.get(part, {}))}\n")
    return "\n".join(texts)


def whole_difference(before: tuple[Mapping[str, Any], Templates], after: tuple[Mapping[str, Any], Templates]) -> str:
    """The changes between two states of an environment, each given as fields and stacks; empty if there are none."""
    return "\n".join(filter(None, (difference_of_fields(before[0], after[0]), difference(before[1], after[1]))))


def read_whole(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read one environment's fields and stacks from its baselines."""
    return read_fields(folder), read(folder)


def difference_of_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """A line for each field of an environment that has another value; empty if none has."""
    lines = changed_fields(before, after)
    return "\n".join(["The environment changes", *lines, ""]) if lines else ""


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each field of an environment that has another value."""
    old, new = ({field: words(value) for field, value in leaves(fields)} for fields in (before, after))
    return [
        f"{field}: {old.get(field, 'nothing')} -> {new.get(field, 'nothing')}"
        for field in {**old, **new}
        if old.get(field) != new.get(field)
    ]


def _cdk_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Run ``cdk diff --template`` on two templates, which needs neither credentials nor the app."""
    manifest = {
        # The oldest version of an assembly with the needed fields. Every later CDK reads it.
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
            env={**os.environ, "PATH": search_path()},
            capture_output=True,
            text=True,
        )
    if run.returncode != 0:
        raise UserError(f"cdk diff ended with {run.returncode}: {run.stdout}{run.stderr}")
    # With --ci, CDK writes everything to standard output. It does so by itself if CI is set.
    lines = [line for line in run.stdout.splitlines() if line != "Stack stack" and "Number of stacks" not in line]
    return "\n".join(lines).strip("\n")


def _part(stack: str) -> str:
    match = _STACK.fullmatch(stack)
    return match["part"] if match else stack


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
    """Sort the resources of each policy statement by the text in the baseline, because CDK sorts them by hashes."""
    if isinstance(value, list):
        for item in value:
            _sort_granted(item)
    elif isinstance(value, dict):
        if "Action" in value and isinstance(value.get("Resource"), list):
            value["Resource"].sort(key=lambda resource: json.dumps(resource, sort_keys=True))
        for item in value.values():
            _sort_granted(item)


class _Tagged:
    """A value that YAML shows with a tag."""

    def __init__(self, tag: str, value: Any) -> None:
        self.tag = tag
        self.value = value


def _tagged(value: Any) -> Any:
    """A template's value with short forms where possible, and with mappings in a stable order."""
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
    """The short form of an intrinsic function; None if it has none."""
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
    """A part of an ``Fn::Join`` as a text with placeholders; None if no such text exists."""
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
    """A text. It is decoded if it is Base64 of readable text, and encoding that text gives the same Base64."""
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

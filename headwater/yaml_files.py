"""Reads YAML that people write: environments, contracts, lists. An error names file, field, found and expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from headwater.errors import UserError

END = r"$(?!\n)"
"""Ends a pattern for ``Meta``: Python's $ alone would also match before a line break at the end."""
DIFFERENT = {"uniqueItems": True}
"""Tells editors that a list's entries differ, as ``Meta(extra_json_schema=…)``; msgspec does not check it."""
_Kind = TypeVar("_Kind")
_EMPTY = "tag:yaml.org,2002:null"


def yaml_paths(folder: Path) -> list[Path]:
    """The ``.yaml`` files of a folder, sorted. Raises UserError for a ``.yml`` file, which would not be read."""
    for path in sorted(folder.glob("*")):
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            raise UserError(f"{path}: found the ending {path.suffix}, expected .yaml: rename the file")
    return sorted(folder.glob("*.yaml"))


def read_yaml(path: Path) -> Any:
    """Read the one document of a file. Raises UserError if the file cannot be read or is not YAML."""
    return load_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return a file's text, with the line ends that it has. Raises UserError if it cannot be read as UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: found {error.object[error.start]:#04x} at byte {error.start}, expected UTF-8"
        ) from None


def load_yaml(text: str, where: str) -> Any:
    """Read one YAML document; ``where`` is its file.

    Raises UserError if it is not YAML, or if YAML would silently misread it. It would for a field that is written twice
    (the last would count), and for a type with a comma and without quotes.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
    except _Misread as error:
        raise UserError(f"{where}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-01
        raise UserError(f"{where}: not YAML: {error}") from None


def set_value(text: str, path: Sequence[str], value: str, *, behind: str = "") -> str:
    """The text of a YAML document of mappings with this plain value of the field at ``path``, and all else, comments
    included, as it was. A field or a mapping that is not there is added, behind the field ``behind`` or as the last one
    of its mapping. Raises KeyError if another kind of value stands in the way."""
    node: Any = yaml.compose(text, Loader=_Loader)
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise KeyError(path[depth - 1])
        inner = {key.value: value for key, value in node.value}
        if name not in inner:
            return _added(text, node, path[depth:], value, inner.get(behind, node))
        node = inner[name]
    if not isinstance(node, yaml.ScalarNode):
        raise KeyError(path[-1])
    return text[: node.start_mark.index] + value + text[node.end_mark.index :]


def _added(text: str, mapping: yaml.MappingNode, path: Sequence[str], value: str, last: yaml.Node) -> str:
    """Return the text with a new field behind ``last``.

    - ``path``: the names that lead from ``mapping`` to the field.
    - ``last``: a value of ``mapping``, or ``mapping`` itself.
    """
    if mapping.flow_style:
        end = text.rindex("}", 0, mapping.end_mark.index)
        field = "".join(f"{name}: {{" for name in path[:-1]) + f"{path[-1]}: {value}" + "}" * (len(path) - 1)
        return f"{text[:end]}{', ' if mapping.value else ''}{field}{text[end:]}"
    end = _end_of_lines(text, last)
    margin = mapping.start_mark.column
    lines = [f"{' ' * (margin + 2 * depth)}{name}:" for depth, name in enumerate(path)]
    before = text[:end] if text[:end].endswith("\n") else f"{text[:end]}\n"
    return before + "\n".join(lines) + f" {value}\n" + text[end:]


def _end_of_lines(text: str, node: yaml.Node) -> int:
    """Where the line behind a value begins."""
    # A block's own end is where the next one begins: behind blank lines and comments.
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return text.find("\n", len(text[: node.end_mark.index].rstrip())) + 1 or len(text)


def remove_value(text: str, path: Sequence[str]) -> str:
    """The text of a YAML document of mappings without the field at ``path``, and all else as it was.

    The field's comments go with it: in its own lines, and in the lines directly above it. Lines above the first field
    of the document stay. A mapping of this field alone goes as a whole. Raises KeyError
    if there is no such field.
    """
    root: Any = yaml.compose(text, Loader=_Loader)
    node, mapping, at = root, root, 0
    for name in path:
        names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        if name not in names:
            raise KeyError(name)
        if len(names) > 1:
            mapping, at = node, names.index(name)
        node = node.value[names.index(name)][1]
    key, value = mapping.value[at]
    if mapping.flow_style:
        is_last = at + 1 == len(mapping.value)
        start = mapping.value[at - 1][1].end_mark.index if at and is_last else key.start_mark.index
        end = value.end_mark.index if is_last else mapping.value[at + 1][0].start_mark.index
        return text[:start] + text[end:]
    margin = " " * key.start_mark.column
    start, end = key.start_mark.index - len(margin), _end_of_lines(text, value)
    while (mapping is not root or at) and (above := re.search(rf"(?<![^\n]){margin}#[^\n]*\n\Z", text[:start])):
        start = above.start()
    while below := re.match(rf"{margin}[ \t]+#[^\n]*(\n|\Z)", text[end:]):
        end += below.end()
    return text[:start] + text[end:]


class _Misread(yaml.YAMLError):
    """YAML that means something else than its author probably meant."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Misread(f"line {_line(key)}: found a field named by a list or a mapping, expected a text")
        _refuse_split_value(node)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.value in lines:
                raise _Misread(
                    f"{key.value}: found in line {lines[key.value]} and in line {_line(key)}, expected it once"
                )
            lines[key.value] = _line(key)
        return super().construct_mapping(node, deep)


def _refuse_split_value(node: yaml.MappingNode) -> None:
    """Refuse ``{type: decimal(12,4)}``, which YAML reads as the two fields ``type: decimal(12`` and ``4)``."""
    if not node.flow_style:
        return
    for number, (key, value) in enumerate(node.value):
        if not isinstance(value, yaml.ScalarNode) or value.style is not None:
            continue
        written = value.value
        for part, rest in node.value[number + 1 :]:
            if not _is_open(written) or not isinstance(rest, yaml.ScalarNode):
                break
            written += f",{part.value}" if rest.tag == _EMPTY else f",{part.value}:{rest.value}"
        if written != value.value and not _is_open(written):
            names = [text.value for field, text in node.value if field.value == "name" and text.id == "scalar"]
            field = ".".join([*names[:1], key.value])
            raise _Misread(
                f'line {_line(key)}: {field}: found {written} without quotes, expected {key.value}: "{written}": '
                "between braces YAML ends a text without quotes at its comma"
            )


def _is_open(text: str) -> bool:
    return text.count("(") + text.count("<") > text.count(")") + text.count(">")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def refusal(where: str, field: str, found: object, expected: str, note: str = "") -> UserError:
    """The error about one field, ``found`` as Python writes it, with a note about it."""
    return UserError(f"{where}: {field}: found {found!r}{note}, expected {expected}")


def either(values: Iterable[object]) -> str:
    """``a, b or c``."""
    *first, last = map(str, values)
    return f"{', '.join(first)} or {last}" if first else last


def convert(document: object, kind: type[_Kind], where: str) -> _Kind:
    """Make the msgspec Struct ``kind`` of a document; ``where`` is its file.

    A field may be a Struct, one of several Structs with tags, a dict, a list or tuple, a Literal, str, int, float or
    bool. It may also be one of these or None.

    Raises UserError naming the first field that does not fit. The error takes the expected values from the field's type
    and limits. A field with a pattern or a limited length says it itself:
    ``Meta(pattern=…, extra={"expected": "12 digits in quotes"})``. ``expected_if_missing`` is for files that lack it.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, kind, where) from None


def _explained(message: str, document: object, kind: type, where: str) -> UserError:
    """What msgspec's message, such as ``Expected `int`, got `str` - at `$.emr.core_nodes```, says of the document."""
    problem, _, place = message.rpartition(" - at `") if " - at `" in message else (message, "", "$`")
    steps = [int(index) if index else name for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place)]
    value: Any = document
    node = inspect.type_info(kind)
    for step in steps:
        node = _type_below(node, step, value)
        value = value[step]
    if problem.startswith("Object missing required field"):
        name = _quoted(problem)
        missing = _type_below(node, name, value)
        expected = _noted(missing, "expected_if_missing") or _expected(missing, None)
        return UserError(f"{where}: {_dotted([*steps, name])}: found nothing, expected {expected}")
    unknown = _unknown_field(problem, place, value)
    if unknown is not None:
        # A mapping without fields of its own takes every text.
        known = _fields(_meant(node, value))
        nearest = difflib.get_close_matches(unknown, known, n=1)
        expected = " or another of ".join([*nearest, ", ".join(name for name in known if name not in nearest)])
        return UserError(
            f"{where}: {_dotted([*steps, unknown])}: found an unknown field, expected {expected or 'a text in quotes'}"
        )
    wrong_type = ", got `" in problem
    return refusal(where, _dotted(steps), value, _expected(node, value) if wrong_type else _limits(node))


def _unknown_field(problem: str, place: str, value: Any) -> str | None:
    """The field of ``value`` that its Struct does not have, or None if the problem is another."""
    if place.startswith("key` in `"):  # YAML makes a number or true of the field's name
        return next(str(key) for key in value if not isinstance(key, str))
    return _quoted(problem) if problem.startswith("Object contains unknown field") else None


def _quoted(problem: str) -> str:
    return problem.partition("`")[2].rpartition("`")[0]


def _dotted(steps: Sequence[str | int]) -> str:
    """``columns[1].type``, or ``content`` for the whole document."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".") or "content"


def _kinds(node: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have, without their metadata."""
    if isinstance(node, inspect.Metadata):
        yield from _kinds(node.type)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _kinds(member)
    else:
        yield node


def _meant(node: inspect.Type, value: Any) -> inspect.Type:
    """The type that a value's tag chooses among several Structs; the type as it is if there is no such choice."""
    for kind in _kinds(node):
        if isinstance(kind, inspect.StructType) and _has_tag(value, kind):
            return kind
    return node


def _has_tag(value: Any, kind: inspect.StructType) -> bool:
    return kind.tag_field is not None and isinstance(value, Mapping) and value.get(kind.tag_field) == kind.tag


def _tags(node: inspect.Type) -> dict[str, list[Any]]:
    """The tags of the Structs that a value may be, by the field that holds them."""
    tags: dict[str, list[Any]] = {}
    for kind in _kinds(node):
        if isinstance(kind, inspect.StructType) and kind.tag_field:
            tags.setdefault(kind.tag_field, []).append(kind.tag)
    return tags


def _type_below(node: inspect.Type, step: str | int, value: Any) -> inspect.Type:
    """The type of a field or an entry of ``value``, which has the type ``node``."""
    if isinstance(step, str) and step in _tags(node):
        return inspect.LiteralType(tuple(_tags(node)[step]))
    for kind in _kinds(_meant(node, value)):
        if isinstance(kind, inspect.StructType) and isinstance(step, str):
            return next(field.type for field in kind.fields if field.encode_name == step)
        if isinstance(kind, (inspect.ListType, inspect.VarTupleType)) and isinstance(step, int):
            return kind.item_type
    raise LookupError(step)


def _fields(node: inspect.Type) -> list[str]:
    """The names of the fields of the Structs that a value may be, a field with a tag first."""
    structs = [kind for kind in _kinds(node) if isinstance(kind, inspect.StructType)]
    return [*_tags(node), *(field.encode_name for struct in structs for field in struct.fields)]


def _expected(node: inspect.Type, value: object) -> str:
    """Which values a type takes, in words; ``value`` is what stands there instead."""
    if isinstance(node, inspect.Metadata):
        return _noted(node, "expected") or _expected(node.type, value)
    if isinstance(node, inspect.UnionType):
        members = [_expected(member, value) for member in node.types if not isinstance(member, inspect.NoneType)]
        return " or ".join(members) + (", or null" if inspect.NoneType() in node.types else "")
    if isinstance(node, inspect.StructType):
        return f"a mapping with {', '.join(_fields(node))}"
    if isinstance(node, inspect.DictType):
        return "a mapping"
    if isinstance(node, inspect.LiteralType):
        return either(node.values)
    if isinstance(node, (inspect.ListType, inspect.VarTupleType)):
        return "a list of mappings" if _fields(node.item_type) else "a list of texts"
    if isinstance(node, inspect.BoolType):
        return "true or false"
    if isinstance(node, inspect.StrType):
        # Without quotes YAML makes a number, a date or true of it.
        return "a text" if value is None or isinstance(value, (str, list, Mapping)) else "a text in quotes"
    words = {inspect.IntType: "a whole number", inspect.FloatType: "a number"}[type(node)]
    return ", ".join(filter(None, (words, _limits(node))))


def _limits(node: inspect.Type) -> str:
    """The limits of a value that has the right type."""
    if isinstance(node, inspect.Metadata):
        return _noted(node, "expected") or _limits(node.type)
    if isinstance(node, inspect.UnionType):
        return " or ".join(filter(None, map(_limits, node.types))) + (
            ", or null" if inspect.NoneType() in node.types else ""
        )
    if isinstance(node, inspect.LiteralType):
        return either(node.values)
    if isinstance(node, (inspect.IntType, inspect.FloatType)):
        steps = f"in steps of {node.multiple_of:g}" if node.multiple_of is not None else ""
        return ", ".join(filter(None, (_range(node.ge, node.le), steps)))
    return ""


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return "" if most is None else f"at most {most:g}"
    return f"{least} or more" if most is None else f"{least}" if least == most else f"{least} to {most}"


def _noted(node: inspect.Type, name: str) -> str | None:
    """What a field says itself, as ``Meta(extra=…)``."""
    return (node.extra or {}).get(name) if isinstance(node, inspect.Metadata) else None

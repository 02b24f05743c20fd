"""Reads YAML that people write. An error names the file, the field, the value found and the values expected."""

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
"""The end of a pattern for ``Meta``. Python's $ alone also matches before a line break at the end."""
DIFFERENT = {"uniqueItems": True}
"""``Meta(extra_json_schema=…)`` of a list whose entries differ. Editors check this; msgspec does not."""
_Kind = TypeVar("_Kind")
_EMPTY = "tag:yaml.org,2002:null"


def yaml_paths(folder: Path) -> list[Path]:
    """Return the ``.yaml`` files of a folder, sorted. Raises UserError if it has a ``.yml`` file."""
    for path in sorted(folder.glob("*")):
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            raise UserError(f"{path}: found the ending {path.suffix}, expected .yaml: rename the file")
    return sorted(folder.glob("*.yaml"))


def read_yaml(path: Path) -> Any:
    """Read a file with one YAML document. Raises UserError if the file cannot be read or is not YAML."""
    return load_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return a file's text with its line ends unchanged. Raises UserError if it cannot be read as UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: found {error.object[error.start]:#04x} at byte {error.start}, expected UTF-8"
        ) from None


def load_yaml(text: str, where: str) -> Any:
    """Read one YAML document of the file ``where``.

    Raises UserError if it is not YAML, or if YAML would silently misread it. YAML misreads a field that is written
    twice (the last one counts), and a type with a comma and without quotes.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
    except _Misread as error:
        raise UserError(f"{where}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-01
        raise UserError(f"{where}: not YAML: {error}") from None


def set_value(text: str, path: Sequence[str], value: str, *, behind: str = "") -> str:
    """Return the text of a YAML document after setting the field at ``path`` to a plain value.

    All other text stays, comments included. A missing field or mapping is added after the field ``behind``, or at the
    end of its mapping. Raises KeyError if a value on the path is not a mapping, or the field's value is not plain.
    """
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
    """Return the text with a new field after ``last``.

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
    """Return the index at which the line after a value begins."""
    # PyYAML ends a block where the next one begins, after blank lines and comments. So take the block's last value.
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return text.find("\n", len(text[: node.end_mark.index].rstrip())) + 1 or len(text)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return the text of a YAML document without the field at ``path``. All other text stays.

    Comments in the field's own lines and in the lines directly above it go with the field. Lines above the first field
    of the document stay. If the field is the only one of its mapping, the mapping goes too. Raises KeyError if there is
    no such field.
    """
    root: Any = yaml.compose(text, Loader=_Loader)
    # Find the outermost mapping that has other fields, too: its entry on the path is removed.
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
    # Take the comments above the field, and the deeper indented comments below it.
    margin = " " * key.start_mark.column
    start, end = key.start_mark.index - len(margin), _end_of_lines(text, value)
    while (mapping is not root or at) and (above := re.search(rf"(?<![^\n]){margin}#[^\n]*\n\Z", text[:start])):
        start = above.start()
    while below := re.match(rf"{margin}[ \t]+#[^\n]*(\n|\Z)", text[end:]):
        end += below.end()
    return text[:start] + text[end:]


class _Misread(yaml.YAMLError):
    """The YAML probably does not mean what its author meant."""


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
    # Join each value with the pieces after it, until all its parentheses are closed.
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
                "between braces, a comma ends a text without quotes"
            )


def _is_open(text: str) -> bool:
    return text.count("(") + text.count("<") > text.count(")") + text.count(">")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def refusal(where: str, field: str, found: object, expected: str, note: str = "") -> UserError:
    """Return the error about one field. It shows ``found`` as Python writes it, and then the note."""
    return UserError(f"{where}: {field}: found {found!r}{note}, expected {expected}")


def either(values: Iterable[object]) -> str:
    """Return the values in words, as in ``a, b or c``."""
    *first, last = map(str, values)
    return f"{', '.join(first)} or {last}" if first else last


def convert(document: object, kind: type[_Kind], where: str) -> _Kind:
    """Convert a document of the file ``where`` into the msgspec Struct ``kind``.

    A field may be a Struct, one of several Structs with tags, a dict, a list or tuple, a Literal, str, int, float or
    bool. It may also be one of these or None.

    Raises UserError, which names the first field that does not fit. The error takes the expected values from the
    field's type and limits. A field with a pattern or a limited length declares them:
    ``Meta(pattern=…, extra={"expected": "12 digits in quotes"})``. If the document lacks the field, the error shows
    ``expected_if_missing`` of ``extra`` instead, if that is declared.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, kind, where) from None


def _explained(message: str, document: object, kind: type, where: str) -> UserError:
    """Return the UserError for msgspec's message, such as ``Expected `int`, got `str` - at `$.emr.core_nodes```."""
    # Follow the path in the message to the value that does not fit, and to its type.
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
        # A mapping without declared fields takes every text as a name.
        known = _fields(_meant(node, value))
        nearest = difflib.get_close_matches(unknown, known, n=1)
        expected = " or another of ".join([*nearest, ", ".join(name for name in known if name not in nearest)])
        return UserError(
            f"{where}: {_dotted([*steps, unknown])}: found an unknown field, expected {expected or 'a text in quotes'}"
        )
    wrong_type = ", got `" in problem
    return refusal(where, _dotted(steps), value, _expected(node, value) if wrong_type else _limits(node))


def _unknown_field(problem: str, place: str, value: Any) -> str | None:
    """Return the field of ``value`` that its Struct does not have; None if the problem is another."""
    if place.startswith("key` in `"):  # YAML has read the field's name as a number, or as true
        return next(str(key) for key in value if not isinstance(key, str))
    return _quoted(problem) if problem.startswith("Object contains unknown field") else None


def _quoted(problem: str) -> str:
    return problem.partition("`")[2].rpartition("`")[0]


def _dotted(steps: Sequence[str | int]) -> str:
    """Return a path as ``columns[1].type``, or ``content`` for the whole document."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".") or "content"


def _kinds(node: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types that a value may have, without their metadata."""
    if isinstance(node, inspect.Metadata):
        yield from _kinds(node.type)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _kinds(member)
    else:
        yield node


def _meant(node: inspect.Type, value: Any) -> inspect.Type:
    """Return the Struct that a value's tag chooses; the type itself if there is no such choice."""
    for kind in _kinds(node):
        if isinstance(kind, inspect.StructType) and _has_tag(value, kind):
            return kind
    return node


def _has_tag(value: Any, kind: inspect.StructType) -> bool:
    return kind.tag_field is not None and isinstance(value, Mapping) and value.get(kind.tag_field) == kind.tag


def _tags(node: inspect.Type) -> dict[str, list[Any]]:
    """Return the tags of the Structs that a value may be, by the field that holds the tag."""
    tags: dict[str, list[Any]] = {}
    for kind in _kinds(node):
        if isinstance(kind, inspect.StructType) and kind.tag_field:
            tags.setdefault(kind.tag_field, []).append(kind.tag)
    return tags


def _type_below(node: inspect.Type, step: str | int, value: Any) -> inspect.Type:
    """Return the type of a field or an entry of ``value``, whose own type is ``node``."""
    if isinstance(step, str) and step in _tags(node):
        return inspect.LiteralType(tuple(_tags(node)[step]))
    for kind in _kinds(_meant(node, value)):
        if isinstance(kind, inspect.StructType) and isinstance(step, str):
            return next(field.type for field in kind.fields if field.encode_name == step)
        if isinstance(kind, (inspect.ListType, inspect.VarTupleType)) and isinstance(step, int):
            return kind.item_type
    raise LookupError(step)


def _fields(node: inspect.Type) -> list[str]:
    """Return the field names of the Structs that a value may be, the field with the tag first."""
    structs = [kind for kind in _kinds(node) if isinstance(kind, inspect.StructType)]
    return [*_tags(node), *(field.encode_name for struct in structs for field in struct.fields)]


def _expected(node: inspect.Type, value: object) -> str:
    """Return in words which values a type takes. ``value`` is the one that was found instead."""
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
        # Without quotes YAML reads some texts as a number, a date or true.
        return "a text" if value is None or isinstance(value, (str, list, Mapping)) else "a text in quotes"
    words = {inspect.IntType: "a whole number", inspect.FloatType: "a number"}[type(node)]
    return ", ".join(filter(None, (words, _limits(node))))


def _limits(node: inspect.Type) -> str:
    """Return in words the limits of a value that has the right type."""
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
    """Return an entry that a field declares in ``Meta(extra=…)``; None if it declares no such entry."""
    return (node.extra or {}).get(name) if isinstance(node, inspect.Metadata) else None

"""The defaults of an environment's fields, each with its reason.

A default is declared beside its field in ``environment.model``. If a file lacks a section, the section gets the
defaults of its fields, unless the section's own default is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

Size = Literal["small", "medium", "large"]
SIZES: tuple[str, ...] = get_args(Size)
Document = Mapping[str, Any]
"""An environment's file as YAML reads it. Its values may be of any type."""


@dataclass(frozen=True)
class Default:
    """The default of a field."""

    value: Callable[[Document], Any]
    """Returns the value for a document in which all earlier fields have their values."""
    words: str
    """The value in words, for documentation."""
    reason: str
    """The reason for the value, as a sentence without a full stop."""
    by_size: bool = False
    """Whether the environment's size decides."""


@dataclass(frozen=True)
class DefaultKind:
    """The default kind of a section that has several kinds."""

    kind: str
    """The value of the section's field ``kind``."""
    reason: str
    """The reason for the kind, as a sentence without a full stop."""


class Origin(NamedTuple):
    """The origin of a field's value."""

    source: str
    """``file``, ``size small`` (or another size) or ``default``."""
    reason: str = ""
    """The reason for a default; "" for a value of the file."""

    @property
    def note(self) -> str:
        """The words that an error adds for a default; "" for a value of the file."""
        return {"file": "", "default": " (its default)"}.get(self.source, f" (its default for {self.source})")


class Field(NamedTuple):
    """A field of a mapping in an environment's file."""

    description: str
    """The meaning, in sentences."""
    default: Default | None
    """The field's default; None if it has none."""
    default_kind: DefaultKind | None
    """The section's default kind; None if the field is not a section with several kinds."""
    structs: tuple[type[Struct], ...]
    """The Structs for the mapping in this field, or for each mapping in its list. There is one for each kind."""
    is_list: bool
    """Whether the value is a list."""

    @property
    def is_mandatory(self) -> bool:
        """Whether the file must have the field, or a part of the field."""
        if self.default is not None:
            return False
        if not self.structs or self.is_list:
            return True
        return any(field.is_mandatory for field in fields(self.struct_of({})).values())

    def struct_of(self, value: Document) -> type[Struct]:
        """Return the Struct for a mapping in this field, by the mapping's kind or the default kind."""
        default = self.default_kind.kind if self.default_kind is not None else None
        for struct in self.structs:
            config = struct.__struct_config__
            if config.tag is not None and config.tag == value.get(str(config.tag_field), default):
                return struct
        return self.structs[0]


def always(value: Any, reason: str) -> Default:
    """Return a default that is the same for every environment."""
    return Default(lambda _: value, words(value), reason)


def by_size(small: Any, medium: Any, large: Any, reason: str) -> Default:
    """Return a default that depends on the environment's size."""
    values = dict(zip(SIZES, (small, medium, large), strict=True))
    sizes: dict[str, list[str]] = {}
    for size, value in values.items():
        sizes.setdefault(words(value), []).append(size)
    text = ", ".join(f"{value} for {' and '.join(same)}" for value, same in sizes.items())
    return Default(lambda document: values[_size(document)], text, reason, by_size=True)


def derived(value: Callable[[Document], Any], text: str, reason: str) -> Default:
    """Return a default that depends on earlier fields."""
    return Default(value, text, reason)


def value_at(document: Document, path: str) -> Any:
    """Return the value at a dotted path in a document; None if the document has no such path."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def leaves(document: Document, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each field whose value is not a mapping."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def words(value: Any) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(words, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {words(inner)}' for name, inner in value.items())}}}"
    return json.dumps(value) if value is None or isinstance(value, bool) else f"{value}"


def complete(document: Any, struct: type[Struct], **known: Any) -> tuple[Any, dict[str, Origin]]:
    """Return a document with defaults for all missing fields, and the origin of each value by its dotted path.

    The document's own values stay unchanged, right or wrong. Defaults may use the values in ``known``.
    """
    whole: dict[str, Any] = {**known}
    origins: dict[str, Origin] = {}
    if not isinstance(document, Mapping):
        return document, origins
    _fill(whole, document, struct, whole, origins, "")
    return whole, origins


def _fill(
    target: dict[str, Any],
    document: Document,
    struct: type[Struct],
    whole: Document,
    origins: dict[str, Origin],
    above: str,
) -> None:
    """Fill ``target``, a mapping in ``whole``, from the document's mapping at the same path."""
    for name, field in fields(struct).items():
        # Take the value of the file, else the default, else an empty section, whose fields get their defaults below.
        if name in document:
            value, origin = document[name], Origin("file")
        elif field.default is not None:
            value = field.default.value(whole)
            origin = Origin(f"size {_size(whole)}" if field.default.by_size else "default", field.default.reason)
        elif field.structs and not field.is_list:
            value, origin = {}, Origin("default")
        else:
            continue
        target[name], origins[f"{above}{name}"] = value, origin
        # Fill the mapping in a section, and each mapping in a list.
        if isinstance(value, Mapping) and field.structs:
            target[name] = section = {}
            inner = field.struct_of(value)
            if field.default_kind is not None:
                tag = str(inner.__struct_config__.tag_field)
                section[tag] = value.get(tag, field.default_kind.kind)
                said = Origin("file") if tag in value else Origin("default", field.default_kind.reason)
                origins[f"{above}{name}.{tag}"] = said
            _fill(section, value, inner, whole, origins, f"{above}{name}.")
        elif isinstance(value, list) and field.structs:
            target[name] = [complete(entry, field.structs[0])[0] for entry in value]
    # Keep unknown fields, which ``convert`` refuses afterwards.
    target.update({name: value for name, value in document.items() if name not in target})


@cache
def fields(struct: type[Struct]) -> dict[str, Field]:
    """Return the fields of a Struct by name, in their order."""
    return {name: _field(hint) for name, hint in get_type_hints(struct, include_extras=True).items()}


def _field(hint: Any) -> Field:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    said = [note.description for note in notes if isinstance(note, Meta) and note.description]
    default = next((note for note in reversed(notes) if isinstance(note, Default)), None)
    default_kind = next((note for note in notes if isinstance(note, DefaultKind)), None)
    types = list(_types(hint))
    structs = tuple(found for found in types if isinstance(found, type) and issubclass(found, Struct))
    return Field(said[-1] if said else structs[0].__doc__ or "", default, default_kind, structs, tuple in types)


def _types(hint: Any) -> Iterator[Any]:
    """Yield the classes in a type, such as A and B for ``A | B``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from _types(arguments[0])
    elif origin is not Literal and arguments:
        yield origin
        for argument in arguments:
            yield from _types(argument)
    else:
        yield hint


def _size(document: Document) -> str:
    """Return the environment's size; small if the file has no known size."""
    return next((size for size in SIZES if size == document.get("size")), SIZES[0])

"""``docs/reference/python-api.md``: the modules that other programs may import, from their docstrings."""

import re
from collections.abc import Iterable, Iterator

import griffe

from headwater.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "python-api.md"
# The modules that read contracts, render files from them, and compare a lake with its sources. All others may change
# with any commit.
MODULES = (
    "headwater.contract.reading",
    "headwater.contract.model",
    "headwater.contract.types",
    "headwater.definitions.connectors",
    "headwater.definitions.glue_table",
    "headwater.definitions.published_view",
    "headwater.verify",
)

_INTRODUCTION = """# The Python API
What other programs may import, from the docstrings. Everything else in the package may change with any commit.
`make reference` writes this page.
"""


def page(modules: Iterable[str] = MODULES) -> str:
    """Return the page. The modules are parsed, not imported."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    package = loader.load("headwater")
    loader.resolve_aliases()
    return "\n".join([_INTRODUCTION, *(_module(package[name.partition(".")[2]]) for name in modules)])


def _module(module: griffe.Object | griffe.Alias) -> str:
    entries = (_class(entry) if isinstance(entry, griffe.Class) else _function(entry) for entry in _public(module))
    return _paragraphs(f"## `{module.path}`", _prose(module), *entries) + "\n"


def _public(module: griffe.Object | griffe.Alias) -> Iterator[griffe.Class | griffe.Function]:
    """The classes and functions in a module's ``__all__``; without it, all that the module defines."""
    for name, member in module.members.items():
        if name in module.exports if module.exports is not None else not (member.is_alias or name.startswith("_")):
            target = member.final_target if isinstance(member, griffe.Alias) else member
            if isinstance(target, griffe.Class | griffe.Function):
                yield target


def _class(documented: griffe.Class) -> str:
    members = {name: member for name, member in documented.members.items() if not name.startswith("_")}
    fields = [
        f"    {name}: {field.annotation}" + (f" = {field.value}" if field.value is not None else "")
        for name, field in members.items()
        if isinstance(field, griffe.Attribute) and "property" not in field.labels and field.annotation is not None
    ]
    methods = [
        f"- `{_signature(method)}`: {' '.join(_prose(method).split())}".removesuffix(": ")
        for method in members.values()
        if isinstance(method, griffe.Function) or (isinstance(method, griffe.Attribute) and "property" in method.labels)
    ]
    constructor = documented.members.get("__init__")
    if isinstance(constructor, griffe.Function) and "dataclass" not in documented.labels:
        code = _signature(constructor).replace("__init__", documented.name, 1).removesuffix(" -> None")
    else:
        bases = f"({', '.join(map(str, documented.bases))})" if documented.bases else ""
        code = "\n".join([f"class {documented.name}{bases}:", *(fields or ["    ..."])])
    return _paragraphs(f"### `{documented.name}`", _code(code), _prose(documented), "\n".join(methods))


def _function(documented: griffe.Function) -> str:
    return _paragraphs(f"### `{documented.name}`", _code(_signature(documented)), _prose(documented))


def _signature(callable_: griffe.Function | griffe.Attribute) -> str:
    if isinstance(callable_, griffe.Attribute):
        return f"{callable_.name}: {callable_.annotation}"
    return re.sub(r"\((self|cls)(, )?", "(", str(callable_.signature()), count=1)


def _prose(documented: griffe.Object | griffe.Alias) -> str:
    """A docstring as Markdown: code in double backticks gets single backticks."""
    text = documented.docstring.value if documented.docstring is not None else ""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)

"""``docs/promises.md``: each promise, the test that guards it, the suite that runs the test, and one mutation.

A mutation is a change of the product's code that the test must catch.

The list is ``reviewed/promises.yaml``. ``make promises`` applies each mutation and runs its test.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from headwater.paths import PROMISES, ROOT
from headwater.yaml_files import END, convert, read_yaml

LIST = PROMISES
PAGE = ROOT / "docs" / "promises.md"
UNIT, TEST, DRILLS = SUITES = ("unit", "test", "drills")
"""The make targets that run the tests of promises, from the quickest to the slowest."""

_INTRODUCTION = """# Promises and their tests
This page lists each promise of [What you get](features.md) and of [What happens when something
fails](reliability.md), with the test that guards it. The suite is the quickest target of make that runs the test.
`make test` runs all of `make unit`, and this page's tests in tests/lake and tests/local. `make test-full` runs all
tests but the drills.

The mutation is a change of one line of the product's code that the test must catch. `make promises` applies each
mutation to a copy of the checkout and runs the promise's test there. It fails if the test passes, and if the test
fails without the mutation too. A workflow runs it every night. `make promises NAMES="truncate kills"` checks the
promises of these names, and `make promises SUITE=unit` those that `make unit` guards.

`make reference` writes this page from `reviewed/promises.yaml`.
"""


class Promise(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A promise, its test and its mutation."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^[a-z0-9-]+{END}", extra={"expected": "words joined by hyphens"})]
    """The promise's name, in ``make promises`` and in the rows of docs/reliability.md."""
    promise: str
    """The promise in one sentence."""
    test: str
    """``tests/…/test_file.py::test_name``, or ``connect/…/Test.java::method``."""
    file: str
    """The file that the mutation changes, relative to the checkout."""
    old: Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "a text of the file"})]
    """A text that occurs once in the file: the line to change, with its neighbours if it would not be unique."""
    new: str
    """The text that replaces it: the same with one line changed or removed."""
    features: list[str] = []
    """The phrases of docs/features.md that make this promise."""
    also: list[str] = []
    """Other tests that guard the promise. They need not fail under the mutation."""

    @property
    def change(self) -> tuple[list[str], list[str]]:
        """The lines that the mutation removes, and the lines that it adds."""
        before, after = ([line.strip() for line in text.splitlines()] for text in (self.old, self.new))
        lines = list(difflib.ndiff(before, after))
        old, new = ([line[2:] for line in lines if line.startswith(sign)] for sign in "-+")
        return old, new

    @property
    def suite(self) -> str:
        """The quickest of ``SUITES`` that runs the test, by its markers and its folder."""
        marks = _marks(self.test)
        if "drill" in marks:
            return DRILLS
        return UNIT if self.test.startswith("tests/unit/") else TEST


class Promises(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of ``reviewed/promises.yaml``."""

    promises: list[Promise]


def read(path: Path = LIST) -> Promises:
    """Read the list. Raises UserError, which names the wrong field, if the file has another structure."""
    return convert(read_yaml(path), Promises, str(path))


def page(promises: Promises) -> str:
    """Return the page for a list."""
    rows = "".join(
        f"| `{each.name}` | {_cell(each.promise)} | {_tests(each)} | `make {each.suite}` | {_mutation(each)} |\n"
        for each in promises.promises
    )
    return _INTRODUCTION + "\n| name | promise | test | suite | mutation |\n|---|---|---|---|---|\n" + rows


def functions(file: Path) -> Iterator[tuple[ast.FunctionDef, list[ast.expr]]]:
    """Yield a test file's functions, each with its decorators: the file's ``pytestmark``, its class's and its own."""
    module = _parsed(file.read_text("utf-8"))
    common: list[ast.expr] = []
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            common += node.value.elts if isinstance(node.value, ast.List) else [node.value]
    for node in module.body:
        inner, outer = (node.body, node.decorator_list) if isinstance(node, ast.ClassDef) else ([node], [])
        for function in inner:
            if isinstance(function, ast.FunctionDef):
                yield function, [*common, *outer, *function.decorator_list]


@functools.cache
def _parsed(text: str) -> ast.Module:
    """A file's syntax tree. Several promises have their test in one file."""
    return ast.parse(text)


def _marks(test: str) -> set[str]:
    """The names of a test's pytest markers, without the markers of single parameters."""
    path, _, name = test.partition("::")
    if not path.endswith(".py"):
        return set()
    wanted = name.partition("[")[0].rpartition("::")[2]
    marks = [mark for function, marks in functions(ROOT / path) if function.name == wanted for mark in marks]
    return {name for mark in marks for name in re.findall(r"^pytest\.mark\.(\w+)", ast.unparse(mark))}


def _tests(promise: Promise) -> str:
    also = ", ".join(f"`{test}`" for test in promise.also)
    return f"`{promise.test}`{also and ', also '}{also}"


def _mutation(promise: Promise) -> str:
    old, new = (" ".join(lines) for lines in promise.change)
    return f"`{promise.file}`: " + (f"{_code(old)} → {_code(new)}" if new else f"without {_code(old)}")


def _code(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

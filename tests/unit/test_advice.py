"""Advice can be followed from the folder in which a person reads it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import cli
from headwater.commands import verbs
from headwater.commands.advice import as_typed
from headwater.lake_folder import LakeFolder
from headwater.paths import ROOT
from tests.lake_folders import lake_folder

PRODUCT = ("headwater", "rig", "stacks")
# These make pages about the checkout.
PAGES = ("headwater/review/reference_pages.py", "rig/documentation/")
COMMAND = re.compile(rf"\bheadwater ({'|'.join(verbs())})\b")


@pytest.fixture
def folder(tmp_path: Path) -> LakeFolder:
    """A lake folder with its script."""
    made = lake_folder(tmp_path / "lake")
    made.queries.mkdir()
    (made.root / "headwater").touch()
    return made


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("run `headwater deploy --env dev` first", "run `{}headwater deploy --env dev` first"),
        ("first headwater db create, then headwater deploy", "first {}headwater db create, then {}headwater deploy"),
        ("the slot headwater of rental, ./headwater status", "the slot headwater of rental, ./headwater status"),
        ("see docs/how-to/operate.md", f"see {ROOT}/docs/how-to/operate.md"),
        (f"see {ROOT}/docs/how-to/operate.md", f"see {ROOT}/docs/how-to/operate.md"),
    ],
)
def test_a_command_is_named_as_it_is_typed(
    said: str, typed: str, folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, start in ((folder.root, "./"), (folder.queries, "../")):
        monkeypatch.chdir(place)
        assert as_typed(said) == typed.replace("{}", start)
    for place in (ROOT, folder.root.parent):
        monkeypatch.chdir(place)
        assert as_typed(said) == said


def test_an_error_below_a_lake_folder_names_its_script(
    folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.root)
    monkeypatch.setattr(sys, "argv", ["headwater", "status", "--env", "local"])
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with pytest.raises(SystemExit):
        cli.main()
    assert "found no running local AWS, expected one: run `./headwater deploy --env local`" in capsys.readouterr().err


def test_no_message_names_a_target_of_make() -> None:
    declared = re.search(r"^\.PHONY:((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared is not None
    target = re.compile(rf"\bmake ({'|'.join(declared[1].replace(chr(92), '').split())})\b")
    assert [place for place, text in messages() if target.search(text)] == []


def test_what_is_printed_names_commands_as_they_are_typed() -> None:
    found = []
    for path, tree in modules():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and name(call) in ("say", "print"):
                inside = {node for typed in ast.walk(call) if name(typed) == "as_typed" for node in ast.walk(typed)}
                found += [
                    f"{path}:{node.lineno}"
                    for node in ast.walk(call)
                    if node not in inside and isinstance(node, ast.Constant) and COMMAND.search(str(node.value))
                ]
    assert found == []


def name(node: ast.AST) -> str:
    """The name of a called function."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The modules that a lake folder can run."""
    for path in sorted(path for part in PRODUCT for path in (ROOT / part).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if not place.startswith(PAGES):
            yield place, ast.parse(path.read_text(encoding="utf-8"))


def messages() -> Iterator[tuple[str, str]]:
    """The texts of the modules but for their documentation, with their places."""
    for path, tree in modules():
        documentation = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
                yield f"{path}:{node.lineno}", node.value

"""A lake folder is found as git finds its repository, and what a command writes for it goes into it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, FILE, LakeFolder
from headwater.paths import ROOT
from tests.lake_folders import lake_folder


def test_a_folder_is_found_from_a_folder_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LakeFolder.make(tmp_path / "lake", "shop")
    within = made.contracts / "of" / "sales"
    within.mkdir(parents=True)
    monkeypatch.chdir(within)
    assert LakeFolder.find() == made
    assert made.settings.name == "shop"


def test_the_inner_one_of_two_folders_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = LakeFolder.make(tmp_path / "outer", "outer")
    inner = LakeFolder.make(outer.root / "inner", "inner")
    monkeypatch.chdir(inner.root)
    assert LakeFolder.find() == inner


def test_a_named_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LakeFolder.make(tmp_path / "lake", "shop")
    monkeypatch.chdir(tmp_path)
    assert LakeFolder.find("lake") == made
    # git takes no folder above one that is named, either.
    with pytest.raises(UserError, match=rf"--folder: found no {FILE} in .*contracts, expected a lake folder"):
        LakeFolder.find("lake/contracts")


def test_outside_of_a_lake_folder_the_command_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"found no {FILE} in {tmp_path} or above it, .* or name it by --folder DIR"):
        CliRunner().invoke(app, ["contract", "check"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: Shop\nrelease: 1\n", "headwater.yaml: name: "),
        ("name: shop\n", "headwater.yaml: "),
        ("name: shop\nrelease: 0.3.0\nreleas: 0.3.0\n", "releas"),
    ],
)
def test_a_wrong_field_of_the_folder_is_named(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError) as refused:
        str(LakeFolder(tmp_path).settings)
    assert told in str(refused.value)


def test_the_checkout_is_the_lake_folder_of_the_example() -> None:
    assert LakeFolder(ROOT) == EXAMPLE
    assert EXAMPLE.settings.name == "example"


def test_each_verb_reads_the_contracts_of_the_folder_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    (contracts / "accounts.yaml").write_text((EXAMPLE.contracts / "accounts.yaml").read_text())
    monkeypatch.chdir(lake_folder(tmp_path / "lake", contracts).root)
    checked = CliRunner().invoke(app, ["contract", "check"], catch_exceptions=False)
    assert "valid contracts: 1, " in checked.stdout


def test_the_example_wants_the_release_that_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert EXAMPLE.settings.release == project["version"]

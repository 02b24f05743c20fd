from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE
from headwater.yaml_files import set_value
from tests.lake_folders import lake_folder


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLE.config, folder)
    monkeypatch.chdir(lake_folder(tmp_path / "lake", config=folder).root)
    return folder


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["epoch", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize(("source", "section"), [("postgresql", "connect"), ("dynamodb", "glue")])
def test_one_number_of_the_environments_file_is_raised(config: Path, source: str, section: str) -> None:
    before = (config / "dev.yaml").read_text()
    assert f"config/dev.yaml: {section}.epoch is now 2, and was 1\n" in run("--env", "dev", source)
    run("--env", "dev", source)
    after = (config / "dev.yaml").read_text()
    # The shipped file leaves the section out.
    assert after == f"{before}{section}:\n  epoch: 3\n"
    assert getattr(read_environment("dev", config), section).epoch == 3


def test_the_highest_epoch_is_not_raised(config: Path) -> None:
    path = config / "dev.yaml"
    path.write_text(set_value(path.read_text(), ("connect", "epoch"), "9999"))
    with pytest.raises(UserError, match=r"connect\.epoch: found 9999, the highest possible epoch"):
        run("--env", "dev", "postgresql")

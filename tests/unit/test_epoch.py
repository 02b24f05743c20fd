from __future__ import annotations

import difflib
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli import app
from headwater.commands import epoch
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.paths import CONFIG


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config"
    shutil.copytree(CONFIG, folder)
    monkeypatch.setattr(epoch, "CONFIG", folder)
    return folder


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["epoch", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize(("source", "section"), [("postgresql", "connect"), ("dynamodb", "glue")])
def test_one_number_of_the_environments_file_is_raised(config: Path, source: str, section: str) -> None:
    before = (config / "dev.yaml").read_text()
    assert f"config/dev.yaml: {section}.epoch is 2, and was 1\n" in run("--env", "dev", source)
    run("--env", "dev", source)
    after = (config / "dev.yaml").read_text()
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert changed == ["-   epoch: 1", "+   epoch: 3"]
    assert getattr(read_environment("dev", config), section).epoch == 3


def test_the_highest_epoch_is_not_raised(config: Path) -> None:
    path = config / "dev.yaml"
    path.write_text(path.read_text().replace("  epoch: 1", "  epoch: 9999", 1))
    with pytest.raises(UserError, match=r"connect\.epoch: found 9999, the highest there is"):
        run("--env", "dev", "postgresql")

"""``make`` refuses an environment that is not there before it sets up anything, also in a fresh clone."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.lake_folder import EXAMPLE
from headwater.paths import ROOT

USER_ERROR = 2
# Each target whose recipe names the environment.
TARGETS = re.findall(
    r"^([a-z]+):.*\n(?:\t.*\n)*?\t.*\$\((?:CDK|ENV)\).*\n", (ROOT / "Makefile").read_text(), re.MULTILINE
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of a fresh clone that ``make`` reads before it sets up anything."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in (EXAMPLE.config, ROOT / "tools"):
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in a clone, as one does in a terminal."""
    command = ["make", "--no-print-directory", "-C", str(clone), *arguments]
    environment = {**os.environ, "MAKEFLAGS": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", TARGETS)
def test_an_environment_that_is_not_there_sets_up_nothing(target: str, clone: Path) -> None:
    before = sorted(clone.rglob("*"))
    done = make(clone, "--jobs", target, "ENV=nope")
    assert (done.returncode, done.stdout) == (USER_ERROR, "")
    expected = " ".join(sorted(path.stem for path in EXAMPLE.config.glob("*.yaml")))
    assert f'ENV: found "nope", expected one of: {expected} (a file in config/, without .yaml)' in done.stderr
    assert f"make {target} ENV=dev" in done.stderr
    assert sorted(clone.rglob("*")) == before


@pytest.mark.parametrize("name", ["", "dev local", "../config/dev", "dev.yaml", "d%", "dev;touch made", "'", '"'])
def test_no_other_text_passes_for_an_environment(name: str, clone: Path) -> None:
    done = make(clone, "deploy", f"ENV={name}")
    assert (done.returncode, done.stdout) == (USER_ERROR, "")
    assert f'ENV: found "{name}", expected one of: ' in done.stderr


def test_an_environment_of_ones_own_is_taken(clone: Path) -> None:
    (clone / "config" / "mine.yaml").touch()
    planned = make(clone, "--dry-run", "diff", "ENV=mine")
    assert planned.returncode == 0, planned.stderr
    assert "headwater diff --env mine" in planned.stdout


def test_a_target_without_an_environment_does_not_look_at_it(clone: Path) -> None:
    assert make(clone, "help", "ENV=nope").returncode == 0


def test_the_targets_that_name_an_environment_are_known() -> None:
    assert {"synth", "check", "cost", "diff", "deploy", "destroy"} <= set(TARGETS)

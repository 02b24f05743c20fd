"""What the emulator of AWS runs in is made once, and again after an interruption."""

from __future__ import annotations

import shutil
import venv
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from rig.local_aws import emulator_packages


class Packages:
    """Takes the place of pip and npm: records the commands, and interrupts one halfway."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.interrupted = ""

    def run(self, command: Sequence[str], folder: Path, log: Path) -> None:
        name = "npm" if command[0] == "npm" else "pip"
        self.ran.append(name)
        packages = folder / "node_modules" if name == "npm" else folder
        packages.mkdir(exist_ok=True)
        (packages / "half").touch()
        if name == self.interrupted:
            raise KeyboardInterrupt
        (packages / "half").rename(packages / f"whole-{len(self.ran)}")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    (tmp_path / "local_aws").mkdir()
    for name in ("requirements.txt", "package.json", "package-lock.json"):
        (tmp_path / "local_aws" / name).write_text("first")
    packages = Packages()
    monkeypatch.setattr(emulator_packages, "SOURCES", tmp_path / "local_aws")
    monkeypatch.setattr(emulator_packages, "_run", packages.run)
    monkeypatch.setattr(venv, "create", lambda folder, **options: folder.mkdir(parents=True, exist_ok=True))
    return packages


def build(folder: Path) -> None:
    emulator_packages.build(lambda text: nullcontext(), folder / "build")


def test_both_are_made_once_and_again_where_one_is_gone(packages: Packages, tmp_path: Path) -> None:
    build(tmp_path)
    build(tmp_path)
    assert sorted(packages.ran) == ["npm", "pip"]
    for name in ("venv", "node_modules"):
        shutil.rmtree(tmp_path / "build" / "local_aws" / name)
    build(tmp_path)
    assert sorted(packages.ran) == ["npm", "npm", "pip", "pip"]


@pytest.mark.parametrize(("interrupted", "lock"), [("pip", "requirements.txt"), ("npm", "package-lock.json")])
def test_what_was_interrupted_is_made_again(packages: Packages, tmp_path: Path, interrupted: str, lock: str) -> None:
    build(tmp_path)
    whole = sorted((tmp_path / "build" / "local_aws").rglob("whole-*"))
    (tmp_path / "local_aws" / lock).write_text("another")
    packages.interrupted = interrupted
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path)
    assert sorted((tmp_path / "build").rglob("whole-*")) == whole
    assert list((tmp_path / "build").rglob("half")) == []
    packages.interrupted = ""
    build(tmp_path)
    assert packages.ran[2:] == [interrupted, interrupted]
    assert len(set(whole) - {*(tmp_path / "build" / "local_aws").rglob("whole-*")}) == 1

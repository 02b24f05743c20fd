"""Assets depend on content alone."""

import os
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from headwater.errors import UserError
from headwater.packaging import artifacts, wheels


def test_a_zip_of_the_same_files_has_the_same_bytes_whatever_their_times(tmp_path: Path) -> None:
    file = tmp_path / "plugin" / "a.jar"
    file.parent.mkdir()
    file.write_bytes(b"content")
    artifacts.zip_files(tmp_path / "first.zip", tmp_path, [file])
    os.utime(file, (1, 1))
    file.chmod(0o600)
    artifacts.zip_files(tmp_path / "second.zip", tmp_path, [file])
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "first.zip").namelist() == ["plugin/a.jar"]


def test_the_wheel_is_the_one_that_requirements_txt_locks() -> None:
    lines = wheels.locked(["msgspec"])
    first, *hashes = lines.removesuffix("\n").split("\n")
    assert first == f"msgspec=={metadata.version('msgspec')} \\"
    assert len(hashes) > 1
    assert [line for line in hashes if "--hash=sha256:" not in line] == []


def test_a_lock_without_the_wheel_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("msgspec==0.22.0\n")
    with pytest.raises(UserError, match=r"requirements\.txt: found no msgspec, expected its version and hashes"):
        wheels.locked(["msgspec"], lock)

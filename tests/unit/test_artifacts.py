"""Assets depend on content alone."""

import os
import zipfile
from pathlib import Path

from headwater.packaging import artifacts
from headwater.paths import CONTRACTS


def test_a_zip_of_the_same_files_has_the_same_bytes_whatever_their_times(tmp_path: Path) -> None:
    file = tmp_path / "plugin" / "a.jar"
    file.parent.mkdir()
    file.write_bytes(b"content")
    artifacts.zip_files(tmp_path / "one.zip", tmp_path, [file])
    os.utime(file, (1, 1))
    file.chmod(0o600)
    artifacts.zip_files(tmp_path / "two.zip", tmp_path, [file])
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "one.zip").namelist() == ["plugin/a.jar"]


def test_every_contract_is_rendered_and_none_that_is_gone_stays(tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "gone.json").write_text("{}")
    artifacts.render_contracts(folder)
    assert {path.stem for path in folder.glob("*.json")} == {path.stem for path in CONTRACTS.glob("*.yaml")}

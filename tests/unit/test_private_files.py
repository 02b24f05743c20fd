"""Only its owner can read the files of a run, even if an earlier version left them open."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from headwater import private_files, process_groups
from headwater.folder_lock import claimed_empty
from headwater.waiting import wait_until
from rig.local.processes import Process, Program

WRITES = "import os, pathlib; pathlib.Path('file').touch(); os.mkdir('folder')"
STAYS = "import time; time.sleep(60)"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_has_its_folder_for_itself(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "demo"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with claimed_empty(folder, "the demo"):
        assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_files.make_private(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_file_is_replaced_whole_whatever_a_kill_left(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("former")
    (tmp_path / ".key.part").write_text("ha")
    before = path.stat().st_ino
    private_files.write(path, "whole")
    assert (path.read_text(), mode(path)) == ("whole", 0o600)
    # Not the former file, emptied and written again.
    assert path.stat().st_ino != before
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    for name in ("key", ".key.part"):
        (tmp_path / name).symlink_to(elsewhere)
    private_files.write(tmp_path / "key", "ours")
    assert elsewhere.read_text() == "theirs"
    assert (tmp_path / "key").read_text() == "ours"
    assert not (tmp_path / "key").is_symlink()


def test_a_log_is_its_owners_alone_from_the_start(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "part.log"
    with private_files.append(log):
        assert mode(log) == 0o600
    log.chmod(0o644)
    with private_files.append(log) as file:
        file.write(b"again")
    assert (mode(log), log.read_text()) == (0o600, "again")


def test_what_a_program_of_a_run_writes_is_its_owners_alone(tmp_path: Path) -> None:
    both = {"process": [tmp_path / "process"], "group": [tmp_path / "group"]}
    for (folder,) in both.values():
        folder.mkdir()
    # A program that ends before it is known to be ready has failed.
    stays = [sys.executable, "-c", f"{WRITES}; {STAYS}"]
    with Process(Program("it", stays, tmp_path / "log", cwd=tmp_path / "process")):
        wait_until("what it writes", (tmp_path / "process" / "folder").exists)
    process_groups.run("it", [sys.executable, "-c", WRITES], tmp_path / "other.log", cwd=tmp_path / "group")
    for (folder,) in both.values():
        assert [mode(folder / name) for name in ("file", "folder")] == [0o600, 0o700]
    assert [mode(tmp_path / name) for name in ("log", "other.log")] == [0o600, 0o600]

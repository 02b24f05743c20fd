"""Spark's programs start without an archive of their classes too, and it is made anew when Java or a jar changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater import process_groups
from headwater.packaging import class_archive
from headwater.waiting import StuckError, wait_until
from tests.unit.test_processes import alive


@contextmanager
def quiet(text: str) -> Iterator[None]:
    """Announce nothing."""
    yield


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build folder with the jars alone that an archive hangs on."""
    home = tmp_path / "spark"
    for path in (home / "jars" / "spark.jar", tmp_path / "jars" / "aws.jar", tmp_path / "jars" / "hudi-bundle.jar"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"jar")
    monkeypatch.setattr(class_archive, "spark_home", lambda: home)
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The archives that were made, in the place of Spark's run."""
    archives: list[Path] = []

    def use(archive: Path, log: Path, build: Path) -> None:
        archive.write_bytes(b"classes")
        archives.append(archive)

    monkeypatch.setattr(class_archive, "_use", use)
    return archives


def test_what_every_program_has_is_spark_and_what_it_needs_for_s3(build: Path) -> None:
    assert [path.name for path in class_archive.class_path(build)] == ["aws.jar", "spark.jar"]


def test_an_archive_is_made_once(build: Path, made: list[Path]) -> None:
    assert class_archive.flags(build) == []
    class_archive.make(quiet, build)
    class_archive.make(quiet, build)
    (archive,) = made
    assert class_archive.flags(build) == [f"-XX:SharedArchiveFile={archive}"]


def test_an_archive_is_made_anew_for_another_jar_and_when_it_is_gone(build: Path, made: list[Path]) -> None:
    class_archive.make(quiet, build)
    os.utime(build / "jars" / "aws.jar", (1, 1))
    class_archive.make(quiet, build)
    made[0].unlink()
    class_archive.make(quiet, build)
    assert len(made) == 3


# Starts a process in another group, as PySpark does, and does not end.
_OTHER_GROUP = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
_ENDLESS = f"""
echo $$ >>{{pids}}
'{sys.executable}' -c '{_OTHER_GROUP}' >>{{pids}} &
sleep 600
"""


@dataclass(frozen=True)
class Submit:
    """A spark-submit in the place of Spark's. It writes half an archive, then does what ``then`` says in sh."""

    program: Path
    pids: Path

    def then(self, script: str) -> None:
        half = r"for word; do case $word in *AtExit=*) word=${word#*AtExit=}; echo half >${word%% *};; esac; done"
        self.program.write_text(
            f"#!/bin/sh\necho begun >>{self.pids}\n{half}\n{script.replace('{pids}', str(self.pids))}\n"
        )

    def begun(self) -> list[str]:
        return self.pids.read_text().split() if self.pids.exists() else []


@pytest.fixture
def submit(build: Path) -> Submit:
    program = class_archive.spark_home() / "bin" / "spark-submit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return Submit(program, build / "pids")


@pytest.fixture
def too_late(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program stands still once it has started all that it starts."""

    def late(name: str, *_: Any, **__: object) -> None:
        wait_until("both processes", lambda: len(submit.begun()) == 3)
        raise StuckError(f"waited in vain for {name} to end")

    monkeypatch.setattr(process_groups, "await_end", late)
    submit.then(_ENDLESS)


def left(build: Path) -> list[str]:
    return [path.name for path in (build / "class_archive").iterdir()]


def test_one_that_takes_too_long_costs_a_line_and_leaves_nothing(
    build: Path, submit: Submit, too_late: None, capsys: pytest.CaptureFixture[str]
) -> None:
    class_archive.make(quiet, build)
    (line,) = capsys.readouterr().out.splitlines()
    assert "waited in vain for the program that uses the classes to end. It was killed" in line
    _, *pids = submit.begun()
    assert [pid for pid in map(int, pids) if alive(pid)] == []
    assert (left(build), class_archive.flags(build)) == ([], [])


def test_a_time_limit_ends_the_command_neither_now_nor_later(
    build: Path, submit: Submit, too_late: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        class_archive.make(quiet, build)
    assert submit.begun().count("begun") == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_was_tried_in_vain_is_tried_again_for_another_jar(build: Path, submit: Submit) -> None:
    submit.then("exit 1")
    class_archive.make(quiet, build)
    os.utime(build / "jars" / "aws.jar", (1, 1))
    submit.then("exit 0")
    class_archive.make(quiet, build)
    assert submit.begun() == ["begun", "begun"]
    assert left(build) == ["spark.jsa"]


@pytest.mark.parametrize("ends", ["exit 1", "kill -9 $$"])
def test_half_an_archive_does_not_stay(
    build: Path, submit: Submit, ends: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit.then(ends)
    class_archive.make(quiet, build)
    (line,) = capsys.readouterr().out.splitlines()
    assert str(build / "logs" / "class-archive.log") in line
    assert left(build) == []


def test_without_a_program_to_start_the_programs_do_without(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_archive.make(quiet, build)
    (line,) = capsys.readouterr().out.splitlines()
    assert "bin/spark-submit" in line
    assert class_archive.flags(build) == []


def test_ctrl_c_ends_the_command_and_leaves_no_process(
    build: Path, submit: Submit, too_late: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = process_groups.await_end

    def pressed(name: str, child: subprocess.Popen[bytes], patience: float, **_: object) -> None:
        try:
            late(name, child, patience)
        except StuckError:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(process_groups, "await_end", pressed)
    with pytest.raises(KeyboardInterrupt):
        class_archive.make(quiet, build)
    assert [pid for pid in map(int, submit.begun()[1:]) if alive(pid)] == []
    assert left(build) == []
    # It was not tried in vain.
    monkeypatch.undo()
    assert not (build / "stamps").exists()

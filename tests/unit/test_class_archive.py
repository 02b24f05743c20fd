"""Spark's programs start without an archive of their classes too, and it is made anew when Java or a jar changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.packaging import class_archive


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


def test_without_an_archive_the_programs_do_without(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(archive: Path, log: Path, build: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("no such option\n")

    monkeypatch.setattr(class_archive, "_use", use)
    class_archive.make(quiet, build)
    assert class_archive.flags(build) == []
    assert "no such option" in "".join(capsys.readouterr())

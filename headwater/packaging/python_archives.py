"""The Python of the EMR writer: for each platform an archive with boto3, msgspec, their dependencies, and a launcher.

The launcher ``bin/python`` starts the machine's Python 3.11 with these packages before the machine's own. EMR's nodes
and the local step run it, both on the driver and on the workers.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from headwater.console import Announce
from headwater.packaging import stamps, wheels
from headwater.packaging.unfinished import take_place, unfinished
from headwater.paths import BUILD

# boto3, msgspec, and the dependencies of boto3. pip refuses the list if a package is missing.
PACKAGES = ("boto3", "botocore", "jmespath", "msgspec", "python-dateutil", "s3transfer", "six", "urllib3")
LAUNCHER = "bin/python"
LAUNCHER_TEXT = f"""#!/bin/sh
# Runs Python {wheels.PYTHON} with the packages of this archive before all others.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
exec python{wheels.PYTHON} "$@"
"""


def path(platform: str, build: Path = BUILD) -> Path:
    """The path of a platform's archive."""
    return build / "python" / f"python-{platform}.tar.gz"


def build_archives(announce: Announce, build: Path = BUILD) -> None:
    """Fetch the wheels of each platform, and make its archive from them.

    This happens only if the lock, the launcher or the result has changed. Raises UserError if pip fails.
    """
    requirements = wheels.locked(PACKAGES)
    for platform in wheels.PLATFORMS:
        fetched, archive = wheels.folder(platform, build), path(platform, build)
        inputs = requirements + " ".join(wheels.tags(platform))
        stamp = build / "stamps" / f"wheels-{platform}"
        if not stamps.is_current(stamp, inputs, [fetched]):
            with (
                announce(f"Fetching the wheels of EMR and Glue for {platform}"),
                unfinished(f"wheels-{platform}", build) as temporary,
            ):
                wheels.download(requirements, platform, temporary / platform)
                take_place(temporary / platform, fetched)
            stamps.write(stamp, inputs, [fetched])
        inputs += LAUNCHER_TEXT
        stamp = build / "stamps" / f"python-{platform}"
        if not stamps.is_current(stamp, inputs, [archive]):
            with announce(f"Packing the Python packages of the EMR writer for {platform}"):
                _make(archive, fetched)
            stamps.write(stamp, inputs, [archive])


def unpack(platform: str, build: Path = BUILD) -> Path:
    """Unpack a platform's archive beside it, as EMR's nodes do, and return the launcher.

    An up-to-date folder stays as it is. Several processes may call this function at once.
    """
    archive = path(platform, build)
    folder, stamp = archive.parent / platform, build / "stamps" / f"python-{platform}-unpacked"
    inputs = (build / "stamps" / f"python-{platform}").read_text()
    with unfinished(f"python-{platform}", build) as temporary:
        if not (folder.is_dir() and stamps.is_current(stamp, inputs)):
            with tarfile.open(archive) as packed:
                packed.extractall(temporary / platform, filter="data")
            stamp.unlink(missing_ok=True)
            take_place(temporary / platform, folder)
            stamps.write(stamp, inputs)
    return folder / LAUNCHER


def _make(archive: Path, fetched: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    # Without times and in a fixed order, the same wheels give the same bytes.
    with (
        part.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as target,
    ):
        for name, content in sorted([(LAUNCHER, LAUNCHER_TEXT.encode()), *_modules(fetched)]):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if name == LAUNCHER else 0o644
            target.addfile(entry, io.BytesIO(content))
    part.replace(archive)


def _modules(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of all wheels, as pip installs them. Scripts are left out, because no node runs them."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                if not name.endswith("/") and ".data/" not in name:
                    yield f"site-packages/{name}", packed.read(name)

"""Wheels for the machines of EMR and Glue, in the versions and with the hashes of ``requirements.txt``."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import UserError
from headwater.paths import BUILD, ROOT

REQUIREMENTS = ROOT / "requirements.txt"
AARCH64, X86_64 = "aarch64", "x86_64"
PLATFORMS = (AARCH64, X86_64)
# The Python of EMR's writer and Glue's jobs. headwater/environment/allow_lists.yaml allows only releases that have it.
PYTHON = "3.11"


def folder(platform: str, build: Path = BUILD) -> Path:
    """The folder with the wheels of a platform."""
    return build / "wheels" / platform


def locked(names: Sequence[str], requirements: Path = REQUIREMENTS) -> str:
    """The lines of these packages in the lock: name, version, and one hash per file of that version.

    Raises UserError if the lock lacks a package.
    """
    text, lines = requirements.read_text(), []
    for name in names:
        found = re.search(rf"^{name}==(\S+).*(?:\n +--hash=.*)+\n", text, re.MULTILINE)
        if found is None:
            raise UserError(f"{requirements}: found no {name}, expected its version and hashes: restore it")
        lines.append(found[0])
    return "".join(lines)


def tags(platform: str) -> list[str]:
    """pip's options for Python 3.11 on Linux, on a processor of this platform (``AARCH64`` or ``X86_64``)."""
    return ["--implementation", "cp", "--python-version", PYTHON, "--platform", f"manylinux2014_{platform}"]


def download(requirements: str, platform: str, folder: Path) -> None:
    """Fetch the wheels of locked lines into a folder. Raises UserError if pip fails.

    pip fails if a file differs from the lock, if a package needs one outside the lines, or if the platform has no
    wheel.
    """
    folder.mkdir(parents=True)
    listed = folder / "requirements.txt"
    listed.write_text(requirements)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    command += ["--require-hashes", "--only-binary", ":all:", *tags(platform), "--dest", str(folder)]
    run = subprocess.run([*command, "--requirement", str(listed)], capture_output=True, text=True)
    if run.returncode != 0:
        names = ", ".join(re.findall(r"^[\w.-]+==\S+", requirements, re.MULTILINE))
        raise UserError(f"pip could not fetch {names} for {platform}: {run.stderr.strip()}")

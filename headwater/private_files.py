"""Private folders and files for a run's rows and secrets: only their owner can read them."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

UMASK = 0o077
"""The umask of a run's programs: only their owner can read the files that they create, wherever these are."""
_FOLDER, _FILE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter, or close an existing one to others. Its parents stay open."""
    folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    folder.chmod(_FOLDER)


def write(path: Path, text: str) -> None:
    """Write a file that only its owner can read.

    An existing file is replaced in one step, whatever its mode was. A killed process leaves no half file.
    """
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    # The file has its mode from the start. O_EXCL refuses a link that somebody has put there.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write variables into a private file for a shell's ``. FILE``, so that no secret is on a command line."""
    write(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))


def append(path: Path) -> BinaryIO:
    """Open a file, such as a log, for appending, and make it readable for its owner only.

    Creates the file's folder if it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE)
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "ab")

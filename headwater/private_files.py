"""Folders and files of a run, which hold rows and secrets: nobody enters or reads them but their owner."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

UMASK = 0o077
"""The umask of a run's programs: what they create, also outside the run's folder, is their owner's alone."""
_FOLDER, _FILE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Create a folder that its owner alone enters, with its parents as usual. An open one that exists is closed."""
    folder.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    folder.chmod(_FOLDER)


def append(path: Path) -> BinaryIO:
    """Open a private file, such as a log, to append to it, also one that others could read. Creates the folder that it
    is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.fdopen(_opened(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def write(path: Path, text: str) -> None:
    """Write a private file, also over one that others could read."""
    # Path.open takes no opener.
    with open(path, "w", opener=_opened, encoding="utf-8") as file:
        file.write(text)


def _opened(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, _FILE)
    # The mode above is that of a new file.
    os.fchmod(descriptor, _FILE)
    return descriptor


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write variables to a private file that a shell reads by ``. FILE``, so that no secret is on a command line."""
    write(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))

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


def write(path: Path, text: str) -> None:
    """Write a file that its owner alone reads. Replaces one that exists, whatever its mode was, in one step: a kill
    leaves no half file."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    # With its mode from the start, and never through a link that somebody has put there.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write variables to a private file that a shell reads by ``. FILE``, so that no secret is on a command line."""
    write(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))


def append(path: Path) -> BinaryIO:
    """Open a file, such as a log, to append to it; its owner alone reads it, also if it existed before. Creates the
    folder that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE)
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "ab")

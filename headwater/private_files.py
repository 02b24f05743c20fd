"""Folders and files of a run, which hold rows and secrets: nobody enters or reads them but their owner."""

import os
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
    """Open a file, such as a log, to append to it; its owner alone reads it, also if it existed before. Creates the
    folder that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE)
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "ab")

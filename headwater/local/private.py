"""Files and folders that other users of this machine can neither read nor write."""

import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Replaces one that is there, whatever its mode was."""
    path.unlink(missing_ok=True)
    # With its mode from the start, and never through a link that somebody has put there.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def close_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, or close one that is there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)

"""The files that git knows of."""

import subprocess
from pathlib import Path

from headwater.errors import UserError


def listed(root: Path, *options: str) -> list[Path]:
    """Return the files of a clone that ``git ls-files`` lists with these options. Raises UserError if git fails."""
    try:
        names = subprocess.check_output(
            ["git", "ls-files", *options, "-z"], cwd=root, text=True, stderr=subprocess.PIPE
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        raise UserError(f"{root}: git does not list its files, expected a clone by git: {said}") from None
    # A file that was removed is listed until the next commit.
    return [path for name in names.split("\0") if (path := root / name).is_file()]

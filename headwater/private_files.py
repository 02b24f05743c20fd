"""Files that nobody but their owner may read."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file of mode 0600, also over one that others could read."""
    # Path.open takes no opener.
    with open(path, "w", opener=_opened, encoding="utf-8") as file:
        file.write(text)


def _opened(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    # The mode above is that of a new file.
    os.fchmod(descriptor, 0o600)
    return descriptor


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write variables to a private file that a shell reads by ``. FILE``, so that no secret is on a command line."""
    write(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))

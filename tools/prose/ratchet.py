"""The stored number of findings that each file may have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from headwater.errors import UserError

_HEADER = """\
# How many findings `make lint` allows in each file's prose; none in a file that is not here. A number may only fall:
# `.venv/bin/python -m tools.prose --update` writes the lower ones. After a merge, and when a file has moved, --anew in
# the place of --update writes all, for review. tools/prose/rules.py has the rules.
"""


class Ratchet:
    """A file with the greatest number of findings of each file, by the file's path."""

    def __init__(self, path: Path) -> None:
        """Read the numbers; none if there is no file. Raises UserError if a path has no number above 0."""
        self._path = path
        self._numbers = _read(path) if path.exists() else {}

    def risen(self, found: Mapping[str, int]) -> dict[str, int]:
        """The files with too many findings, each with the number that it may have."""
        return {file: self._numbers.get(file, 0) for file in sorted(found) if found[file] > self._numbers.get(file, 0)}

    def fallen(self, found: Mapping[str, int]) -> dict[str, int]:
        """The files with fewer findings than stored, each with the stored number."""
        return {file: most for file, most in self._numbers.items() if found.get(file, 0) < most}

    def lower(self, found: Mapping[str, int]) -> None:
        """Write the numbers that have fallen. The other numbers stay."""
        self.write({file: min(most, found.get(file, 0)) for file, most in self._numbers.items()})

    def write(self, found: Mapping[str, int]) -> None:
        """Write these numbers in place of the former ones."""
        self._numbers = {file: count for file, count in sorted(found.items()) if count}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(_HEADER + "".join(f'"{file}" = {count}\n' for file, count in self._numbers.items()))


def _read(path: Path) -> dict[str, int]:
    try:
        numbers = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UserError(f'{path}: found no TOML ({error}), expected a line such as "README.md" = 3') from None
    for file, count in numbers.items():
        if not isinstance(count, int) or count < 1:
            raise UserError(f"{path}: {file}: found {count!r}, expected a number of findings, at least 1")
    return numbers

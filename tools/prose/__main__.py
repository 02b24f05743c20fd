"""Check the prose of the clone in the working directory: pages, docstrings, doc comments and messages.

Each file may have as many findings as ``reviewed/prose.toml`` says. A number in that file that is too high is an error
too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater import git_files
from headwater.errors import UserError
from tools.prose import rules, texts
from tools.prose.ratchet import Ratchet
from tools.prose.rules import Finding

COMMAND = ".venv/bin/python -m tools.prose"
NUMBERS = "reviewed/prose.toml"
CLEAN, FOUND, USER_ERROR = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """Check the prose, or update the stored numbers. Returns the exit status."""
    options = _options(arguments)
    root = Path.cwd()
    try:
        if options.files:
            return _list(_findings(root, map(Path.resolve, options.files)))
        found = _findings(root, git_files.listed(root, "--cached", "--others", "--exclude-standard"))
        counts = {file: len(findings) for file, findings in found.items()}
        ratchet = Ratchet(root / NUMBERS)
        if options.update:
            ratchet.lower(counts)
        if options.anew:
            ratchet.write(counts)
        return _compare(ratchet, found, counts)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return USER_ERROR


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.prose", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="list every finding of these files")
    writing = parser.add_mutually_exclusive_group()
    writing.add_argument("--update", action="store_true", help=f"write the numbers that have fallen to {NUMBERS}")
    writing.add_argument("--anew", action="store_true", help=f"write all numbers to {NUMBERS}, also those that rose")
    return parser.parse_args(arguments)


def _findings(root: Path, paths: Iterable[Path]) -> dict[str, list[Finding]]:
    """The findings of files, by their paths from the root. Raises UserError if a file cannot be read."""
    found = {}
    for path in paths:
        file = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        try:
            found[file] = rules.findings(file, texts.of_file(path))
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: found no text that can be checked: {error}") from None
    return found


def _list(found: dict[str, list[Finding]]) -> int:
    for findings in found.values():
        _say(*findings)
    return FOUND if any(found.values()) else CLEAN


def _compare(ratchet: Ratchet, found: dict[str, list[Finding]], counts: dict[str, int]) -> int:
    """Compare the findings with the stored numbers, and print the differences. Returns the exit status."""
    risen, fallen = ratchet.risen(counts), ratchet.fallen(counts)
    for file, most in risen.items():
        _say(*found[file], f"{file}: findings: found {counts[file]}, at most {most}: rewrite the new sentences")
    for file, most in fallen.items():
        _say(f"{file}: findings: found {counts.get(file, 0)}, expected {most}")
    if fallen:
        _say(f"{NUMBERS}: found numbers that have fallen, expected the new ones: run {COMMAND} --update")
    return FOUND if risen or fallen else CLEAN


def _say(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``headwater upgrade``: convert your files, and show what a release changes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from headwater.commands import diff, synthesis
from headwater.commands.advice import advise
from headwater.commands.options import Folder
from headwater.console import announce, say
from headwater.conversion.lake_files import converted, left_to_do, of_first_release
from headwater.environment import model as environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.new_folder import WRAPPER, of_release
from headwater.paths import ROOT
from headwater.yaml_files import yaml_paths

_DIFFERENCE = "upgrade.txt"
"""The file in the lake folder's build/ that gets the whole difference."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
"""The name of a release's folder in the cache of ``./headwater``."""


def upgrade(*, folder: Folder) -> None:
    """Convert your files to the release that runs, and show its changes in each environment on AWS.

    The script and the schemas, which belong to the release, are written anew.

    In a lake folder, change `release` in headwater.yaml, and run ./headwater upgrade. It fetches, verifies and records
    the release, and then runs that release's own upgrade. It compares the new stacks with reviewed/baselines. It prints
    a summary for each environment, and writes the whole difference into a file that the last line names. If a file
    cannot be converted, nothing is written. A second run changes nothing.
    """
    if folder.root == EXAMPLE.root:
        raise UserError(f"--folder: found {folder.root}, Headwater's own clone, expected a lake folder")
    synthesis.refuse_another_release(folder)
    first = of_first_release(folder)
    files = {**converted(folder), **of_release(folder.root)}
    # Print this before anything is written. After an interruption, a second run would find converted environments.
    for line in left_to_do(first):
        advise(line)
    written = _write(files)
    (folder.root / WRAPPER).chmod(0o755)
    for path in written:
        say(f"Wrote {path.relative_to(folder.root)}")
    if not written:
        say("All files fit this release already")
    for line in _of_former_releases():
        say(line)
    _show_changes(folder)


def _write(files: Mapping[Path, str]) -> list[Path]:
    """Write the files whose text differs, each in one step, and return their paths.

    Nothing is written if one of the files cannot be read.
    """
    changed = [path for path, text in files.items() if _differs(path, text)]
    for path in changed:
        # Replace the file that a link leads to, not the link. A shell that runs the old script keeps its open file.
        place = path.resolve()
        unfinished = place.with_name(f".{place.name}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(files[path].encode())
            if place.exists():
                shutil.copymode(place, unfinished)
            unfinished.replace(place)
        except OSError as error:
            raise UserError(f"{path}: found {error.strerror}, expected a file that can be written") from None
    return changed


def _differs(path: Path, text: str) -> bool:
    """Return whether a file is missing, or has another text. Raises UserError if it cannot be read."""
    try:
        return not path.exists() or path.read_bytes() != text.encode()
    except OSError as error:
        raise UserError(f"{path}: found {error.strerror}, expected a file that can be read") from None


def _show_changes(folder: LakeFolder) -> None:
    """Print how the stacks of each environment on AWS differ from its baselines.

    A file gets the whole difference.
    """
    if not yaml_paths(folder.contracts):
        return
    summaries, whole = [], []
    for name in environment.on_aws(folder.config):
        if not (folder.baselines / name).is_dir():
            summaries.append(f"{name}: reviewed/baselines has no baselines of {name}, so nothing was compared")
            continue
        found = diff.comparison(folder, synthesis.synthesize(folder, name))
        with announce(f"Comparing {name} with reviewed/baselines/{name}", aside=True):
            whole.append("\n".join((f"{name}:", *found.verdicts(), found.difference())))
        summaries += found.summary()
    say("Changes since you wrote reviewed/baselines, including your own edits:")
    for line in summaries:
        advise(line)
    advise("With AWS credentials, `headwater diff --env ENV` compares with the deployed stacks, not with baselines")
    advise("Next: run `headwater baselines`, review its changes in reviewed/, commit, and deploy dev first")
    if whole:
        path = folder.build / _DIFFERENCE
        _write({path: "\n".join(whole)})
        say(f"The whole difference: {os.path.relpath(path)}")


def _of_former_releases() -> Iterator[str]:
    """Yield lines that name the other releases in the cache, if the running release is in a cache."""
    if not _COMMIT.fullmatch(ROOT.name):
        return
    others = [path for path in sorted(ROOT.parent.iterdir()) if _COMMIT.fullmatch(path.name) and path != ROOT]
    if others:
        yield "Other releases take some 3 GB each. Delete each one that no lake folder and no running local AWS uses:"
        yield from (f"  {path}" for path in others)

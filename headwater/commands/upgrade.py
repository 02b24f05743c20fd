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
"""The file in the folder's build/ with the whole difference."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
"""The name of a release's folder in the cache of ``./headwater``."""


def upgrade(*, folder: Folder) -> None:
    """Convert your files to the release that runs, and show what it changes in each environment on AWS.

    The files of the folder that belong to the release are written anew.

    In a lake folder, change `release` in headwater.yaml, and run ./headwater upgrade: it fetches, verifies and records
    the release, and then runs the release's own upgrade. It shows the changes against reviewed/baselines: a summary for
    each environment, and a file with the whole difference, which the last line names. If a file cannot be converted,
    nothing is written. A second run changes nothing.
    """
    if folder.root == EXAMPLE.root:
        raise UserError(f"--folder: found {folder.root}, Headwater's own clone, expected a lake folder")
    synthesis.refuse_another_release(folder)
    first = of_first_release(folder)
    files = {**converted(folder), **of_release(folder.root)}
    # Before anything is written: a second run after an interrupted one finds converted environments.
    for line in left_to_do(first):
        advise(line)
    written = _write(files)
    (folder.root / WRAPPER).chmod(0o755)
    for path in written:
        say(f"Wrote {path.relative_to(folder.root)}")
    if not written:
        say("All files have the form of this release")
    for line in _of_former_releases():
        say(line)
    _show_changes(folder)


def _write(files: Mapping[Path, str]) -> list[Path]:
    """Write the files whose text is another, each in one step, and return their paths.

    Nothing is written if one of them cannot be read.
    """
    changed = [path for path, text in files.items() if _differs(path, text)]
    for path in changed:
        # Another folder's file stays a link. The shell that runs the old script goes on reading the old one.
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
    """Whether a file is missing, or has another text."""
    try:
        return not path.exists() or path.read_bytes() != text.encode()
    except OSError as error:
        raise UserError(f"{path}: found {error.strerror}, expected a file that can be read") from None


def _show_changes(folder: LakeFolder) -> None:
    """Sum up for each environment on AWS how its stacks differ from its baselines, and write the whole difference into
    a file."""
    if not yaml_paths(folder.contracts):
        return
    summaries, whole = [], []
    for name in environment.on_aws(folder.config):
        if not (folder.baselines / name).is_dir():
            summaries.append(f"{name}: reviewed/baselines has none of it, so there is nothing to compare with")
            continue
        found = diff.comparison(folder, synthesis.synthesize(folder, name))
        with announce(f"Comparing {name} with reviewed/baselines/{name}", aside=True):
            whole.append("\n".join((f"{name}:", *found.verdicts(), found.difference())))
        summaries += found.summary()
    say("What changes since you wrote reviewed/baselines, your own edits included:")
    for line in summaries:
        advise(line)
    advise("With AWS credentials, `headwater diff --env ENV` compares with the deployed stacks, not with baselines")
    advise("Next: `headwater baselines`, review what it changes in reviewed/, commit, and deploy dev first")
    if whole:
        path = folder.build / _DIFFERENCE
        _write({path: "\n".join(whole)})
        say(f"The whole difference: {os.path.relpath(path)}")


def _of_former_releases() -> Iterator[str]:
    """Say which other releases are set up beside the one that runs, if this one is in a cache."""
    if not _COMMIT.fullmatch(ROOT.name):
        return
    others = [path for path in sorted(ROOT.parent.iterdir()) if _COMMIT.fullmatch(path.name) and path != ROOT]
    if others:
        yield "Other releases take some 3 GB each. Delete those that no lake folder needs, and no local AWS runs from:"
        yield from (f"  {path}" for path in others)

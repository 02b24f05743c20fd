"""What git says of the clone of Headwater that runs, and of the user's repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from headwater.errors import UserError
from headwater.paths import ROOT

# A release's tag. The script of a lake folder takes no other.
_TAG = re.compile(r"v[0-9][0-9a-z.]*")
_USER_OF_HTTP = re.compile(r"(?<=^http://)[^/@]*@|(?<=^https://)[^/@]*@")


def release(clone: Path = ROOT) -> tuple[str, str | None]:
    """Return the release that a clone of Headwater has checked out, and its commit.

    A commit without a release's tag is a release of its own, and the second value None. Raises UserError if the
    folder is no clone by git.
    """
    if _git(clone, "rev-parse", "--show-toplevel") != str(clone.resolve()):
        raise UserError(f"{clone}: found no clone by git, expected one, whose commit names the release")
    commit = _git(clone, "rev-parse", "--verify", "HEAD")
    if not commit:
        raise UserError(f"{clone}: found no commit, expected one, which names the release")
    tags = _git(clone, "tag", "--points-at", "HEAD").split()
    releases = [tag.removeprefix("v") for tag in tags if _TAG.fullmatch(tag)]
    return (releases[-1], commit) if releases else (commit, None)


def address(clone: Path = ROOT) -> str:
    """Return the git address that a clone of Headwater comes from; its own path where it comes from none.

    A password in the address is left out.
    """
    origin = _git(clone, "remote", "get-url", "origin")
    if not origin:
        return str(clone)
    beside = clone / origin
    return str(beside.resolve()) if beside.exists() else _USER_OF_HTTP.sub("", origin)


def repository_of(folder: Path) -> Path | None:
    """Return the root of the git repository that a folder is in, or would be in; None if there is none."""
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    root = _git(there, "rev-parse", "--show-toplevel")
    return Path(root) if root else None


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; "" if it fails. Raises UserError if there is no git."""
    # Inside a hook of git these variables name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, env=variables, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("git: found none, expected it, as the README says") from None
    return done.stdout.strip() if done.returncode == 0 else ""

"""Asks git about the clone of Headwater that runs, and about the user's repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from headwater.errors import UserError
from headwater.paths import ROOT

# The tags of releases. The script of a lake folder accepts only these.
_TAG = re.compile(r"v[0-9][0-9a-z.]*")
_USER_OF_HTTP = re.compile(r"(?<=^http://)[^/@]*@|(?<=^https://)[^/@]*@")


def release(clone: Path = ROOT) -> tuple[str, str | None]:
    """Return the release that a clone of Headwater has checked out, and its commit.

    If the commit has no release's tag, the commit itself is the release, and the second value is None. Raises UserError
    if the folder is not a git clone.
    """
    if _git(clone, "rev-parse", "--show-toplevel") != str(clone.resolve()):
        raise UserError(f"{clone}: found no git clone, expected one: its commit decides the release")
    commit = _git(clone, "rev-parse", "--verify", "HEAD")
    if not commit:
        raise UserError(f"{clone}: found no commit, expected one: it decides the release")
    tags = _git(clone, "tag", "--points-at", "HEAD").split()
    releases = [tag.removeprefix("v") for tag in tags if _TAG.fullmatch(tag)]
    return (releases[-1], commit) if releases else (commit, None)


def address(clone: Path = ROOT) -> str:
    """Return the git address of a clone's origin, without a password; the clone's path if it has no origin."""
    origin = _git(clone, "remote", "get-url", "origin")
    if not origin:
        return str(clone)
    beside = clone / origin
    return str(beside.resolve()) if beside.exists() else _USER_OF_HTTP.sub("", origin)


def repository_of(folder: Path) -> Path | None:
    """Return the root of the git repository around a folder, which need not exist yet; None without a repository."""
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    root = _git(there, "rev-parse", "--show-toplevel")
    return Path(root) if root else None


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command; "" if it fails. Raises UserError if git is not installed."""
    # In a git hook, variables of git's name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, env=variables, capture_output=True, text=True)
    except FileNotFoundError:
        raise UserError("git: found none on the PATH, expected git: install it, as the README says") from None
    return done.stdout.strip() if done.returncode == 0 else ""

"""Runs CDK's command line for the stacks of a lake folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import typer

from headwater.lake_folder import LakeFolder
from headwater.paths import ROOT
from headwater.review.baselines import CDK, search_path


def command(folder: LakeFolder, environment: str, arguments: Sequence[str]) -> list[str]:
    """Return a CDK command line for an environment. Its synthesized stacks go into the lake folder."""
    context = ["--context", f"env={environment}", "--context", f"folder={folder.root}"]
    return [CDK[0], "--no-notices", *context, "--output", str(folder.synthesized), *arguments]


def run(arguments: Sequence[str], *, quiet: bool = False) -> None:
    """Run a CDK command line at the terminal. Raises typer.Exit if it fails.

    With ``quiet``, the command's standard error is printed if it fails. If it succeeds, only its warnings are printed.
    """
    stderr = subprocess.PIPE if quiet else None
    done = subprocess.run(arguments, cwd=ROOT, env={**os.environ, "PATH": search_path()}, stderr=stderr, text=True)
    if quiet:
        said = done.stderr.splitlines(keepends=True)
        sys.stderr.writelines(said if done.returncode else [line for line in said if line.startswith("[Warning at ")])
    if done.returncode:
        raise typer.Exit(done.returncode)

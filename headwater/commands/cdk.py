"""CDK's command line, for the stacks of a lake folder."""

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
    """Return the command line of CDK's for an environment. What it synthesizes goes into the lake folder."""
    context = ["--context", f"env={environment}", "--context", f"folder={folder.root}"]
    return [CDK[0], "--no-notices", *context, "--output", str(folder.synthesized), *arguments]


def run_quietly(arguments: Sequence[str]) -> None:
    """Run a command line of CDK's, and print what it says if it fails, otherwise its warnings. Raises typer.Exit."""
    done = subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, "PATH": search_path()}, stderr=subprocess.PIPE, text=True
    )
    said = done.stderr.splitlines(keepends=True)
    sys.stderr.writelines(said if done.returncode else [line for line in said if line.startswith("[Warning at ")])
    if done.returncode:
        raise typer.Exit(done.returncode)


def run(arguments: Sequence[str]) -> None:
    """Run a command line of CDK's at the terminal. Raises typer.Exit if it fails."""
    status = subprocess.run(arguments, cwd=ROOT, env={**os.environ, "PATH": search_path()}).returncode
    if status:
        raise typer.Exit(status)

"""Builds a folder aside, and moves it into its place under ``build/`` once it is complete."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.folder_lock import claim


@contextmanager
def unfinished(name: str, build: Path) -> Iterator[Path]:
    """An empty folder for what one process at a time makes. Afterwards it is gone, and so is what a killed run left."""
    folder = build / "unfinished" / name
    with claim(folder, "another run", wait=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: a program that a killed run has left may still write to the former one.
        with tempfile.TemporaryDirectory(dir=folder) as own:
            yield Path(own)
        shutil.rmtree(folder, ignore_errors=True)


def take_place(made: Path, place: Path) -> None:
    """Move a folder that is made to its place, where it replaces the former one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)

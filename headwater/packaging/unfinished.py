"""Builds a folder aside, and moves it to its place under ``build/`` once it is complete."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.folder_lock import claim


@contextmanager
def unfinished(name: str, build: Path) -> Iterator[Path]:
    """An empty folder in which one process at a time builds.

    At the end it is deleted, together with the folders of killed runs.
    """
    folder = build / "unfinished" / name
    with claim(folder, "another run", wait=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        # Each run uses a new name: a program of a killed run may still write to the former folder.
        with tempfile.TemporaryDirectory(dir=folder) as own:
            yield Path(own)
        shutil.rmtree(folder, ignore_errors=True)


def take_place(made: Path, place: Path) -> None:
    """Move a built folder to its place, where it replaces the former one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)

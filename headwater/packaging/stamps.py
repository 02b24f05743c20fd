"""What a file under ``build/`` was made from, so that it is made anew only when that has changed."""

from pathlib import Path


def is_current(stamp: Path, inputs: str) -> bool:
    """Whether the stamp says that its result was made from these inputs."""
    return stamp.exists() and stamp.read_text() == inputs


def write(stamp: Path, inputs: str) -> None:
    """Note what a result was made from."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(inputs)

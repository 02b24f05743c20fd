"""Stamps record the inputs of a file under ``build/``. It is made again only if the inputs or the file have changed."""

from collections.abc import Iterable
from pathlib import Path

from headwater.packaging.jars import sha256


def is_current(stamp: Path, inputs: str, results: Iterable[Path] = ()) -> bool:
    """Whether the stamp says that these results, with their present bytes, were made from these inputs."""
    return stamp.exists() and stamp.read_text() == _text(inputs, results)


def write(stamp: Path, inputs: str, results: Iterable[Path] = ()) -> None:
    """Record the inputs from which results (files or folders) were made."""
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(_text(inputs, results))


def _text(inputs: str, results: Iterable[Path]) -> str:
    files = [file for result in results for file in (sorted(result.rglob("*")) if result.is_dir() else [result])]
    digests = [f"{sha256(file)}  {file.name}\n" for file in files if file.is_file()]
    return f"{inputs}\n{''.join(digests)}" if digests else inputs

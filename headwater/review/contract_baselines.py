"""Baselines of contracts, in ``reviewed/contracts/``.

They show the parts of a contract that no template has: the path of a value in its source, the key, and the buckets. The
writer reads these parts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.contract import evolution
from headwater.contract.model import Contract, from_json


def render(contracts: Sequence[Contract]) -> dict[str, str]:
    """The text of each contract's baseline, by the file's name."""
    return {
        f"{contract.table}.json": json.dumps(json.loads(contract.to_json()), indent=1) + "\n" for contract in contracts
    }


def read(folder: Path) -> dict[str, str]:
    """The baselines of a folder by their names; none if there is no folder."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))}


def write(folder: Path, rendered: Mapping[str, str]) -> None:
    """Write baselines, and remove the baseline of each contract that is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in read(folder).keys() - rendered.keys():
        (folder / name).unlink()
    for name, text in rendered.items():
        (folder / name).write_text(text, encoding="utf-8")


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A unified diff of two sets of baselines; empty if they are equal."""
    return "\n".join(
        line
        for name in sorted(before.keys() | after.keys())
        for line in difflib.unified_diff(
            before.get(name, "").splitlines(), after.get(name, "").splitlines(), name, name, lineterm=""
        )
    )


def refused(before: Mapping[str, str], contracts: Sequence[Contract]) -> list[str]:
    """The changes that the writer would refuse.

    A contract that is gone is not among them: the baselines of the stacks show the loss of its resources.
    """
    known = [from_json(text, name) for name, text in before.items()]
    changes = evolution.changes(known, contracts)
    return [str(change) for change in changes if change.verdict == evolution.REFUSED and not change.resources]

"""Converts lake files of a former release to the form of this release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.contract.model import DYNAMODB
from headwater.contract.reading import parse_contract, read_contracts
from headwater.conversion.environment_files import convert_environment, is_former, is_of_first_release
from headwater.lake_folder import LakeFolder
from headwater.yaml_files import read_text, read_yaml, set_value, yaml_paths

_EXPIRY = "expires_at"
"""Release 0.1.0 used a column of this name as the expiry time of a DynamoDB table's items."""


def converted(folder: LakeFolder) -> dict[Path, str]:
    """Return the contracts and environments of a folder in the form of this release, by their paths.

    Contracts are first, because the form of the environments decides how they are converted. So an interrupted upgrade
    can be run again. Raises UserError for the first file that this release refuses.
    """
    files = {path: convert_environment(read_text(path), path.stem, str(path)) for path in yaml_paths(folder.config)}
    if contracts := yaml_paths(folder.contracts):
        read_contracts(folder.contracts)
    first = bool(of_first_release(folder))
    return {**{path: _contract(read_text(path), str(path), first=first) for path in contracts}, **files}


def of_former_releases(folder: LakeFolder) -> list[str]:
    """Return the names of the environments whose files have the form of release 0.1.0 or 0.2.0."""
    return [path.stem for path in yaml_paths(folder.config) if is_former(read_yaml(path))]


def of_first_release(folder: LakeFolder) -> list[str]:
    """Return the names of the environments whose files have the form of release 0.1.0."""
    return [path.stem for path in yaml_paths(folder.config) if is_of_first_release(read_yaml(path))]


def left_to_do(names: list[str]) -> Iterator[str]:
    """Yield the steps that an operator must do for environments of release 0.1.0; none if there are none."""
    if names:
        yield (
            f"{', '.join(names)}: connect.epoch and glue.epoch are raised: Kafka's topics are new, so all rows of "
            "PostgreSQL are read again, and release 0.1.0 gave DynamoDB's rows another order"
        )
        yield "Steps that you do yourself after 0.1.0: docs/how-to/upgrade.md#from-010"


def _contract(text: str, where: str, *, first: bool) -> str:
    """A contract with the expiry column that release 0.1.0 used for its table."""
    contract = parse_contract(text, where)
    source = contract.source
    if not first or source.database != DYNAMODB or source.time_to_live is not None:
        return text
    attribute = next((column.path[0] for column in contract.columns if column.name == _EXPIRY), None)
    return text if attribute is None else set_value(text, ("source", "time_to_live"), attribute)

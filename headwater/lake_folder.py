"""A lake folder: the files that a user of Headwater writes, and the files that Headwater builds from these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Self

from msgspec import Meta, Struct
from msgspec.structs import asdict

from headwater.errors import UserError
from headwater.paths import ROOT
from headwater.yaml_files import END, convert, read_yaml

FILE = "headwater.yaml"
"""The file that makes a folder a lake folder."""


class LakeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of ``headwater.yaml``."""

    name: Annotated[
        str,
        Meta(
            pattern=rf"^[a-z][a-z0-9-]*{END}",
            extra={"expected": "lower-case letters, digits and hyphens, a letter first"},
        ),
    ]
    """The lake's name."""
    release: Annotated[
        str, Meta(pattern=rf"^[0-9a-z.]+{END}", extra={"expected": "a release such as 0.3.0, or a commit"})
    ]
    """The release of Headwater that runs the lake: the tag's name without its v, or a commit of 40 digits."""
    repository: (
        Annotated[
            str,
            Meta(
                pattern=rf"^[^\s\"'\\#-]([^\"'\\#\n]*[^\s\"'\\#])?{END}",
                extra={"expected": "a git address without quotes, backslashes and #"},
            ),
        ]
        | None
    ) = None
    """The git address of Headwater, which ``./headwater`` needs. The checkout of Headwater has none."""
    commit: (
        Annotated[str, Meta(pattern=rf"^[0-9a-f]{{40}}{END}", extra={"expected": "40 digits out of 0-9 and a-f"})]
        | None
    ) = None
    """The release's commit, which ``./headwater`` verifies. None in the checkout, and if ``release`` is a commit."""
    commit_of: (
        Annotated[str, Meta(pattern=rf"^[0-9a-z.]+{END}", extra={"expected": "the release that `commit` belongs to"})]
        | None
    ) = None
    """The release of ``commit``. ``./headwater upgrade`` keeps ``commit`` while this equals ``release``."""

    def text(self) -> str:
        """Return the content of ``headwater.yaml``: a line per field, as ``./headwater`` reads it."""
        values: dict[str, str | None] = asdict(self)
        return "".join(f"{field}: {_plain(value)}\n" for field, value in values.items() if value is not None)


def _plain(value: str) -> str:
    """Return a value as YAML, in quotes if YAML would misread the bare text."""
    return value if re.fullmatch(r"[\w/][\w@:/.+-]*", value) and not value.endswith(":") else f'"{value}"'


@dataclass(frozen=True)
class LakeFolder:
    """The paths in a lake folder. The checkout of Headwater is the example's lake folder."""

    root: Path
    """The folder that has ``headwater.yaml``."""

    @classmethod
    def find(cls, given: str = "") -> Self:
        """Return the lake folder ``given``, or the one that the current folder is in. Raises UserError."""
        start = Path(given).resolve()
        candidates = [start] if given else [start, *start.parents]
        for folder in candidates:
            if (folder / FILE).is_file():
                return cls(folder)
        where = f"--folder: found no {FILE} in {start}" if given else f"found no {FILE} in {start} or above it"
        raise UserError(f"{where}, expected a lake folder: go into one, or name it by --folder DIR")

    @classmethod
    def make(cls, root: Path, name: str) -> Self:
        """Make a lake folder without contracts, for the release that runs."""
        folder = cls(root)
        for part in (folder.contracts, folder.config):
            part.mkdir(parents=True)
        (root / FILE).write_text(LakeSettings(name=name, release=version("headwater")).text(), encoding="utf-8")
        return folder

    @cached_property
    def settings(self) -> LakeSettings:
        """The fields of ``headwater.yaml``. Raises UserError."""
        path = self.root / FILE
        return convert(read_yaml(path), LakeSettings, str(path))

    @property
    def contracts(self) -> Path:
        """The folder of the contracts, a file per table."""
        return self.root / "contracts"

    @property
    def config(self) -> Path:
        """The folder of the environments, a file for each."""
        return self.root / "config"

    @property
    def database(self) -> Path:
        """The folder of the SQL files for the database that a deployment makes."""
        return self.root / "database"

    @property
    def queries(self) -> Path:
        """The folder of the saved queries and the charts."""
        return self.root / "queries"

    @property
    def reviewed(self) -> Path:
        """The folder of the files that reviewers read and agree to."""
        return self.root / "reviewed"

    @property
    def baselines(self) -> Path:
        """The folder of the baselines, a folder per environment."""
        return self.reviewed / "baselines"

    @property
    def contract_baselines(self) -> Path:
        """The folder of the baselines of the contracts, a file per table."""
        return self.reviewed / "contracts"

    @property
    def acknowledged(self) -> Path:
        """The file of the losses that somebody agreed to."""
        return self.reviewed / "acknowledged_replacements.yaml"

    @property
    def build(self) -> Path:
        """The folder of the files that Headwater builds for this lake. Git ignores it."""
        return self.root / "build"

    @property
    def run(self) -> Path:
        """The folder for the files of runs on this machine."""
        return self.build / "run"

    @property
    def synthesized(self) -> Path:
        """The folder of the stacks that were synthesized last."""
        return self.root / "cdk.out"


EXAMPLE = LakeFolder(ROOT)
"""The example: the checkout of Headwater."""

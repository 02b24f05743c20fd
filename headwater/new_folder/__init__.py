"""What a new lake folder holds beside the user's contracts: each file, and where it lies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, FILE, LakeFolder, LakeSettings
from headwater.paths import SCHEMAS

WRAPPER = "headwater"
"""The script in a lake folder that runs the release of Headwater that the folder wants."""
OF_EXAMPLE = ("contracts", "config", "database", "queries")
"""The folders of the example that a lake folder may begin with; those that are there."""
_TEMPLATES = Path(__file__).parent
_IGNORED = "/build/\n/cdk.out/\n"
_ENVIRONMENTS = ("dev", "local")
_PLAIN_PATH = re.compile(r"[\w./ -]+")


@dataclass(frozen=True)
class NewFolder:
    """A lake folder that is to be made."""

    folder: LakeFolder
    settings: LakeSettings
    repository: Path
    """The root of the user's git repository that the folder is in; the folder itself where there is none."""

    def files(self, commands: Sequence[str]) -> dict[Path, str]:
        """Return the files that every lake folder has, with their texts. Its README shows these ``commands``.

        Raises UserError if the folder's name cannot be in a workflow.
        """
        root = self.folder.root
        return {
            root / FILE: self.settings.text(),
            root / ".gitignore": _IGNORED,
            root / "README.md": self._filled("README.md", {"COMMANDS": "\n".join(commands)}),
            self.workflow: self._workflow_text(),
            **of_release(root),
        }

    @property
    def workflow(self) -> Path:
        """The workflow of GitHub Actions, which GitHub reads in a repository's root alone."""
        return self.repository / ".github" / "workflows" / f"headwater-{self.settings.name}.yaml"

    def _workflow_text(self) -> str:
        below = self.folder.root.relative_to(self.repository).as_posix()
        if not _PLAIN_PATH.fullmatch(below):
            raise UserError(
                f"FOLDER: found {below!r} in the repository {self.repository}, expected a path of letters, digits, "
                "spaces and the signs . _ - alone, which the workflow can name"
            )
        paths = "**" if below == "." else f"{below}/**"
        return self._filled("workflow.yaml", {"FOLDER": below, "PATHS": paths})

    def _filled(self, template: str, more: Mapping[str, str]) -> str:
        text = (_TEMPLATES / template).read_text(encoding="utf-8")
        values = {
            "NAME": self.settings.name,
            "REPOSITORY": self.settings.repository or "",
            "WORKFLOW": self.workflow.name,
            "WORKFLOW_PATH": os.path.relpath(self.workflow, self.folder.root),
            **more,
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        return text


def of_release(root: Path) -> dict[Path, str]:
    """Return the files of a lake folder that belong to the release it wants, and change with it."""
    wrapper = {root / WRAPPER: (_TEMPLATES / "headwater.sh").read_text(encoding="utf-8")}
    schemas = {root / SCHEMAS.name / path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")}
    return {**wrapper, **schemas}


def environments(root: Path) -> dict[Path, str]:
    """Return the files in ``config/`` of a lake folder that is not made from the example."""
    files = {name: (_TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8") for name in _ENVIRONMENTS}
    return {LakeFolder(root).config / f"{name}.yaml": text for name, text in files.items()}


def of_example(root: Path) -> dict[Path, str]:
    """Return the files of the example that a lake folder may begin with."""
    sources = [EXAMPLE.root / folder for folder in OF_EXAMPLE]
    files = [path for source in sources for path in sorted(source.rglob("*")) if path.is_file()]
    return {root / path.relative_to(EXAMPLE.root): path.read_text(encoding="utf-8") for path in files}

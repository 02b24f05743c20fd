"""The files of a new lake folder beside the user's contracts, and their paths."""

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
"""The script in a lake folder that runs the release named in ``headwater.yaml``."""
OF_EXAMPLE = ("contracts", "config", "database", "queries")
"""The example's folders that ``init --example`` copies, if they exist."""
_TEMPLATES = Path(__file__).parent
_IGNORED = "/build/\n/cdk.out/\n"
_ENVIRONMENTS = ("dev", "local")
_PLAIN_PATH = re.compile(r"[\w./ -]+")


@dataclass(frozen=True)
class NewFolder:
    """A lake folder that ``headwater init`` is about to make."""

    folder: LakeFolder
    """The paths in the folder."""
    settings: LakeSettings
    """The content of its ``headwater.yaml``."""
    repository: Path
    """The root of the user's git repository around the folder; the folder itself if there is no repository."""

    def files(self, commands: Sequence[str]) -> dict[Path, str]:
        """Return the files that every lake folder has, with their texts. The README shows these ``commands``.

        Raises UserError if the workflow cannot name the folder's path.
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
        """The workflow of GitHub Actions. GitHub reads workflows only in a repository's root."""
        return self.repository / ".github" / "workflows" / f"headwater-{self.settings.name}.yaml"

    def _workflow_text(self) -> str:
        below = self.folder.root.relative_to(self.repository).as_posix()
        if not _PLAIN_PATH.fullmatch(below):
            raise UserError(
                f"FOLDER: found {below!r} in the repository {self.repository}, expected a path that the workflow can "
                "name: only letters, digits, spaces, and the signs . _ -"
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
    """Return the files of a lake folder that change with the release: the script and the schemas."""
    wrapper = {root / WRAPPER: (_TEMPLATES / "headwater.sh").read_text(encoding="utf-8")}
    schemas = {root / SCHEMAS.name / path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")}
    return {**wrapper, **schemas}


def environments(root: Path) -> dict[Path, str]:
    """Return the files in ``config/`` of a lake folder that does not begin with the example's files."""
    files = {name: (_TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8") for name in _ENVIRONMENTS}
    return {LakeFolder(root).config / f"{name}.yaml": text for name, text in files.items()}


def of_example(root: Path) -> dict[Path, str]:
    """Return the example's files that ``init --example`` copies."""
    sources = [EXAMPLE.root / folder for folder in OF_EXAMPLE]
    files = [path for source in sources for path in sorted(source.rglob("*")) if path.is_file()]
    return {root / path.relative_to(EXAMPLE.root): path.read_text(encoding="utf-8") for path in files}

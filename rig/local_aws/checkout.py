"""A copy of this checkout, to deploy changed files from it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from headwater import git_files
from headwater.errors import UserError
from headwater.paths import BUILD, ROOT
from headwater.yaml_files import set_value

_LOCAL_AWS = Path("build") / "local_aws"
# The assets that depend on contracts or code: each copy has its own. The copies share the rest of build/.
_WRITTEN = {
    "contracts",
    "custom_resources.zip",
    "database",
    "headwater.zip",
    "lake_jvm",
    "plugins",
    "python",
    "stamps",
    "wheels",
}
# What programs of a checkout write: a copy begins without it.
_ITS_OWN = {".assets.lock", "demo", "junit", "logs", "promises", "run", "unfinished", _LOCAL_AWS.name}


class Checkout:
    """A copy of this checkout below ``folder``, whose files may be changed.

    The copy has its own local AWS, or shares that of the checkout that it is ``beside``. It begins with this checkout's
    assets. Without ``assets``, it lacks the assets that are built from a checkout's code.
    """

    def __init__(self, folder: Path, *, beside: Checkout | None = None, assets: bool = True) -> None:
        self.folder = folder.resolve()
        self.account = self.folder / _LOCAL_AWS / "account"
        # The files that git tracks, and new files that git does not ignore.
        for file in git_files.listed(ROOT, "--cached", "--others", "--exclude-standard"):
            copy = self.folder / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        for name in (".venv", "node_modules"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "build").mkdir()
        for part in BUILD.glob("*"):
            place = self.folder / "build" / part.name
            if part.name not in _WRITTEN:
                if part.name not in _ITS_OWN:
                    place.symlink_to(part)
            elif not assets:
                continue
            elif part.is_dir():
                shutil.copytree(part, place, symlinks=True)
            else:
                shutil.copyfile(part, place)
        if beside is not None:
            (self.folder / _LOCAL_AWS).symlink_to(beside.folder / _LOCAL_AWS)
            return
        (self.folder / _LOCAL_AWS).mkdir()
        for part in (ROOT / _LOCAL_AWS).glob("*"):
            # An account has its own lock, too.
            if not part.name.lstrip(".").startswith(self.account.name):
                (self.folder / _LOCAL_AWS / part.name).symlink_to(part)

    def change(self, file: str, old: str, new: str) -> None:
        """Replace a text that occurs exactly once in a file. Raises UserError if it occurs more or less often."""
        path = self.folder / file
        text = path.read_text()
        if text.count(old) != 1:
            raise UserError(f"{file}: found {old!r} {text.count(old)} times, expected it once")
        path.write_text(text.replace(old, new))

    def set_field(self, field: str, value: str, environment: str = "local") -> None:
        """Set a field, named ``part.field``, of an environment's file."""
        path = self.folder / "config" / f"{environment}.yaml"
        path.write_text(set_value(path.read_text("utf-8"), field.split("."), value), "utf-8")

    def append(self, file: str, text: str) -> None:
        """Append text to a file."""
        with (self.folder / file).open("a") as end:
            end.write(text)

    def headwater(self, *arguments: str) -> list[str]:
        """The arguments that run a ``headwater`` command in the copy."""
        return [sys.executable, "-m", "headwater.cli", *arguments]

    def cdk(self, environment: str, *arguments: str) -> list[str]:
        """The arguments that run a ``cdk`` command for an environment."""
        cdk = self.folder / "node_modules" / ".bin" / "cdk"
        return [str(cdk), "--no-notices", "--context", f"env={environment}", *arguments]

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment variables of these commands: this process's without its AWS settings, then ``variables``.

        This Python is first on the path, as with ``make``.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**kept, **(variables or {}), "PATH": path}

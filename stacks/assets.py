"""The files under build/ and in the tree that are deployed as they are."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from headwater.assets import MOMENT
from headwater.errors import UserError

HUDI_JAR = "hudi-spark3.5-bundle_2.12-1.1.1.jar"


@dataclass(frozen=True)
class Assets:
    """Finds assets. ``build`` is what ``make assets`` fills, ``root`` the checkout. Every lookup raises UserError
    where the file is absent."""

    root: Path
    build: Path

    def hudi_jar(self) -> Path:
        """The Hudi bundle that runs on a laptop as well."""
        return _present(self.build / "jars" / HUDI_JAR)

    def package(self) -> Path:
        """``headwater.zip``, the PySpark package."""
        return _present(self.build / "headwater.zip")

    def writer_script(self) -> Path:
        """The EMR step's entry script."""
        return _present(self.root / "emr_steps" / "write_hudi.py")

    def contract(self, table: str) -> Path:
        """A contract as the writer reads it."""
        return _present(self.build / "contracts" / f"{table}.json")

    def connect_plugin(self) -> Path:
        """All plugins in one zip, each in its own folder: MSK Connect takes one plugin a connector, and the source
        needs Debezium and the config provider both. The zip's bytes depend on the plugins' bytes alone."""
        parts = [
            _present(self.build / "plugins" / f"{name}.zip") for name in ("debezium-postgres", "headwater-connect")
        ]
        whole = self.build / "plugins" / "headwater-msk-connect.zip"
        unfinished = whole.with_suffix(".part")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as target:
            for part in parts:
                with zipfile.ZipFile(part) as source:
                    for name in sorted(source.namelist()):
                        entry = zipfile.ZipInfo(name, MOMENT)
                        entry.external_attr = 0o644 << 16
                        target.writestr(entry, source.read(name))
        unfinished.replace(whole)
        return whole


def _present(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: found no file, expected an asset of the deployment: run `make assets`")
    return path

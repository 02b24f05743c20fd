"""The files that a deployment uploads. The product ships most of them; synthesis writes the others."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets

from headwater.contract.model import Contract
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.packaging import artifacts, jars, python_archives, wheels
from headwater.packaging.artifacts import MOMENT, zip_files
from stacks.base import grant


@dataclass(frozen=True)
class Assets:
    """Finds and writes assets. Every method raises UserError if its file is missing."""

    root: Path
    """The product's checkout."""
    build: Path
    """The folder of the product's files. ``make assets`` fills it."""
    lake: LakeFolder
    """The lake folder, into which synthesis writes."""

    def hudi_jar(self) -> Path:
        """The Hudi bundle, the same one as on a laptop."""
        return _present(self.build / "jars" / jars.HUDI)

    def writer_jar(self) -> Path:
        """The writer's own classes."""
        return _present(artifacts.lake_jar(self.build))

    def package(self) -> Path:
        """``headwater.zip``, the PySpark package."""
        return _present(self.build / "headwater.zip")

    def wheel(self) -> Path:
        """The wheel that the package needs on Glue."""
        folder = wheels.folder(wheels.X86_64, self.build)
        return _present(next(folder.glob("msgspec-*.whl"), folder / "msgspec.whl"))

    def python(self, platform: str) -> Path:
        """The Python packages of EMR's nodes with their launcher, for ``aarch64`` or ``x86_64``."""
        return _present(python_archives.path(platform, self.build))

    def bootstrap_script(self) -> Path:
        """The script that unpacks these packages on a node."""
        return _present(self.root / "emr_bootstrap" / "unpack_python.sh")

    def writer_script(self) -> Path:
        """The EMR step's entry script."""
        return _present(self.root / "emr_steps" / "write_hudi.py")

    def glue_script(self) -> Path:
        """The Glue job's entry script."""
        return _present(self.root / "glue_scripts" / "write_hudi.py")

    def contract(self, contract: Contract) -> Path:
        """A contract in the writer's format: JSON, because the cluster has no YAML parser."""
        return self._written(f"contracts/{contract.table}.json", contract.to_json())

    def custom_resources(self) -> Path:
        """The Lambda functions of all custom resources, as a zip whose bytes depend only on their sources."""
        target = self.lake.build / "custom_resources.zip"
        target.parent.mkdir(parents=True, exist_ok=True)
        zip_files(target, self.root, sorted((self.root / "custom_resources").glob("*.py")))
        return target

    def statements(self, name: str, document: Mapping[str, object]) -> Path:
        """The SQL statements that the database's bootstrap runs, as JSON."""
        return self._written(f"database/{name}.json", json.dumps(document, indent=1))

    def connect_plugin(self) -> Path:
        """One zip with all plugins, each in its own folder.

        MSK Connect takes one plugin per connector, and the source connector needs both Debezium and the config
        provider. The zip's bytes depend only on the plugins' bytes.
        """
        parts = [_present(self.build / f"{plugin}.zip") for plugin in jars.PLUGINS.values()]
        whole = self.lake.build / "plugins" / "headwater-msk-connect.zip"
        whole.parent.mkdir(parents=True, exist_ok=True)
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

    def _written(self, name: str, text: str) -> Path:
        target = self.lake.build / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target


@dataclass(frozen=True)
class NamedFile:
    """A file that keeps its own name in the asset bucket, instead of a hash of its content.

    pip reads a wheel's version and platform from its name. The name has to change with the content, as the name of a
    released wheel does.
    """

    uri: str
    arn: str

    @staticmethod
    def publish(stack: cdk.Stack, path: Path) -> NamedFile:
        """Make ``cdk deploy`` upload the file with the stack's assets."""
        place = stack.synthesizer.add_file_asset(
            source_hash=path.stem, file_name=str(path.resolve()), packaging=cdk.FileAssetPackaging.FILE
        )
        name = f"{place.bucket_name}/{place.object_key}"
        return NamedFile(place.s3_object_url, stack.format_arn(service="s3", region="", account="", resource=name))

    def grant_fetch(self, grantee: iam.IGrantable) -> None:
        """Let a principal fetch the file."""
        grant(grantee, ["s3:GetObject"], [self.arn])


def grant_fetch(grantee: iam.IGrantable, files: Iterable[s3_assets.Asset]) -> None:
    """Let a principal fetch these files. CDK's own grant would cover its whole bucket."""
    for arn in fetch_arns(files):
        grant(grantee, ["s3:GetObject"], [arn])


def fetch_arns(files: Iterable[s3_assets.Asset]) -> list[str]:
    """The ARNs of these files in the asset bucket."""
    return [file.bucket.arn_for_objects(file.s3_object_key) for file in files]


def _present(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: found no file, expected an asset to upload: run `headwater dev assets`")
    return path

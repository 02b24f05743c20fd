"""What each part of a deployment is given is, byte for byte, what its counterpart on this machine runs."""

import hashlib
import json
import platform
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from headwater import contract, environment
from headwater.contract import DYNAMODB, POSTGRESQL, of_database
from headwater.local import spark
from headwater.paths import BUILD, CONTRACTS, ROOT
from stacks import application
from stacks.assets import Assets


@dataclass
class Deployed:
    """dev's templates by the names of its stacks, and the files that ``cdk deploy`` uploads, by their keys in S3."""

    templates: dict[str, dict[str, Any]]
    files: dict[str, Path]

    def properties(self, stack: str, type_: str) -> list[dict[str, Any]]:
        """The properties of a stack's resources of a type."""
        resources = self.templates[f"headwater-dev-{stack}"]["Resources"].values()
        return [one["Properties"] for one in resources if one["Type"] == type_]

    def given(self, value: object) -> Path:
        """The one uploaded file that a value of a template names."""
        (path,) = [path for key, path in self.files.items() if key in json.dumps(value)]
        return path


@pytest.fixture(scope="module")
def deployed(new_app: Callable[[], cdk.App]) -> Deployed:
    """What ``cdk deploy`` would make of dev and of what ``make assets`` has built."""
    app = new_app()
    app.node.set_context("aws:cdk:disable-asset-staging", True)
    contracts = contract.load_all(CONTRACTS)
    application.build(app, environment.load("dev", ROOT / "config"), contracts, Assets(ROOT, BUILD))
    assembly = Path(app.synth().directory)
    files = {
        destination["objectKey"]: assembly / file["source"]["path"]
        for manifest in assembly.glob("*.assets.json")
        for file in json.loads(manifest.read_text())["files"].values()
        for destination in file["destinations"].values()
    }
    suffix = ".template.json"
    templates = {path.name.removesuffix(suffix): json.loads(path.read_text()) for path in assembly.glob(f"*{suffix}")}
    return Deployed(templates, {key: path for key, path in files.items() if path.is_file()})


def test_the_step_is_given_the_files_of_the_local_writer(deployed: Deployed) -> None:
    (step,) = deployed.properties("emr", "Custom::HeadwaterStep")
    arguments = step["Args"]
    after = {name: at + 1 for at, name in enumerate(arguments) if name in ("--jars", "--py-files")}
    assert _same(deployed.given(arguments[after["--jars"]]), _hudi())
    assert _same(deployed.given(arguments[after["--py-files"]]), BUILD / "headwater.zip")
    assert _same(deployed.given(arguments[after["--py-files"] + 1]), ROOT / "emr_steps" / "write_hudi.py")
    shipped = [arguments[at + 1] for at, name in enumerate(arguments) if name == "--contract"]
    written = of_database(contract.load_all(CONTRACTS), POSTGRESQL)
    assert [deployed.given(one).read_text() for one in shipped] == [one.to_json() for one in written]


def test_each_glue_job_is_given_the_files_of_the_local_job(deployed: Deployed) -> None:
    written = of_database(contract.load_all(CONTRACTS), DYNAMODB)
    jobs = {job["Name"]: job for job in deployed.properties("glue-job", "AWS::Glue::Job")}
    assert sorted(jobs) == sorted(f"headwater-dev-{one.table}" for one in written)
    for one in written:
        job = jobs[f"headwater-dev-{one.table}"]
        arguments = job["DefaultArguments"]
        script = deployed.given(job["Command"]["ScriptLocation"])
        assert _same(script, ROOT / "glue_scripts" / "write_hudi.py")
        assert _same(deployed.given(arguments["--extra-jars"]), _hudi())
        assert _same(deployed.given(arguments["--extra-py-files"]), BUILD / "headwater.zip")
        assert deployed.given(arguments["--contract"]).read_text() == one.to_json()


def test_the_package_is_the_checkouts() -> None:
    with zipfile.ZipFile(BUILD / "headwater.zip") as package:
        found = {name: package.read(name) for name in package.namelist()}
    assert {"headwater/lake/writer.py", "headwater/lake/dynamodb.py", "headwater/contract.py"} <= found.keys()
    assert found == {name: (ROOT / name).read_bytes() for name in found}


def test_msk_connect_is_given_the_jars_of_the_local_worker(deployed: Deployed) -> None:
    (plugin,) = deployed.properties("connect", "AWS::KafkaConnect::CustomPlugin")
    plugins = BUILD / "plugins"
    with zipfile.ZipFile(deployed.given(plugin["Location"])) as whole:
        found = {name: _digest(whole.read(name)) for name in whole.namelist()}
    assert found == {
        str(path.relative_to(plugins)): _digest(path.read_bytes())
        for folder in plugins.iterdir()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_glue_installs_the_release_of_msgspec_that_is_installed_here(deployed: Deployed) -> None:
    jobs = deployed.properties("glue-job", "AWS::Glue::Job")
    (wheel,) = {deployed.given(job["DefaultArguments"]["--additional-python-modules"]) for job in jobs}
    assert wheel.name.startswith(f"msgspec-{metadata.version('msgspec')}-cp311-")
    if (sys.version_info[:2], sys.platform, platform.machine()) != ((3, 11), "linux", "x86_64"):
        pytest.skip("another Python or processor has a build of its own")
    here = metadata.distribution("msgspec")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.startswith("msgspec/") and not name.endswith("/")]
        assert any(name.endswith(".so") for name in modules)
        assert all(archive.read(name) == Path(str(here.locate_file(name))).read_bytes() for name in modules)


def _hudi() -> Path:
    """The bundle on the local writers' class path."""
    (jar,) = [path for path in spark.driver_jars() if path.name.startswith("hudi-")]
    return jar


def _same(one: Path, other: Path) -> bool:
    return _digest(one.read_bytes()) == _digest(other.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

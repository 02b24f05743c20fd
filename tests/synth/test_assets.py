"""What is deployed is, byte for byte, what runs on this machine."""

import hashlib
import json
import platform
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import aws_cdk as cdk
import pytest

from headwater import contract, environment
from headwater.local import spark
from headwater.paths import BUILD, CONTRACTS, ROOT
from stacks import application
from stacks.assets import Assets


@pytest.fixture(scope="module")
def deployed(new_app: Callable[[], cdk.App]) -> dict[str, Path]:
    """The files that ``cdk deploy`` uploads for dev, by their SHA-256, out of what ``make assets`` has built."""
    app = new_app()
    app.node.set_context("aws:cdk:disable-asset-staging", True)
    contracts = contract.load_all(CONTRACTS)
    application.build(app, environment.load("dev", ROOT / "config"), contracts, Assets(ROOT, BUILD))
    assembly = Path(app.synth().directory)
    sources = {
        assembly / file["source"]["path"]
        for manifest in assembly.glob("*.assets.json")
        for file in json.loads(manifest.read_text())["files"].values()
    }
    return {_digest(path.read_bytes()): path for path in sources if path.is_file()}


def test_scripts_package_and_hudi_are_those_of_the_local_run(deployed: dict[str, Path]) -> None:
    (hudi,) = [path for path in spark.driver_jars() if path.name.startswith("hudi-")]
    scripts = [ROOT / folder / "write_hudi.py" for folder in ("emr_steps", "glue_scripts")]
    for path in (*scripts, BUILD / "headwater.zip", hudi):
        assert _digest(path.read_bytes()) in deployed, path


def test_the_package_is_the_checkouts(deployed: dict[str, Path]) -> None:
    with zipfile.ZipFile(deployed[_digest((BUILD / "headwater.zip").read_bytes())]) as package:
        found = {name: package.read(name) for name in package.namelist()}
    assert {"headwater/lake/writer.py", "headwater/lake/dynamodb.py", "headwater/contract.py"} <= found.keys()
    assert found == {name: (ROOT / name).read_bytes() for name in found}


def test_contracts_are_those_that_the_local_writers_are_given(deployed: dict[str, Path]) -> None:
    for one in contract.load_all(CONTRACTS):
        assert _digest(one.to_json().encode()) in deployed, one.table


def test_msk_connect_gets_the_jars_of_the_local_worker(deployed: dict[str, Path]) -> None:
    (plugin,) = [path for path in deployed.values() if path.name == "headwater-msk-connect.zip"]
    plugins = BUILD / "plugins"
    with zipfile.ZipFile(plugin) as whole:
        found = {name: _digest(whole.read(name)) for name in whole.namelist()}
    assert found == {
        str(path.relative_to(plugins)): _digest(path.read_bytes())
        for folder in plugins.iterdir()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_glue_installs_the_release_of_msgspec_that_is_installed_here(deployed: dict[str, Path]) -> None:
    (wheel,) = [path for path in deployed.values() if path.suffix == ".whl"]
    assert wheel.name.startswith(f"msgspec-{metadata.version('msgspec')}-cp311-")
    if (sys.version_info[:2], sys.platform, platform.machine()) != ((3, 11), "linux", "x86_64"):
        pytest.skip("another Python or processor has a build of its own")
    here = metadata.distribution("msgspec")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.startswith("msgspec/") and not name.endswith("/")]
        assert any(name.endswith(".so") for name in modules)
        assert all(archive.read(name) == Path(str(here.locate_file(name))).read_bytes() for name in modules)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""Each part of a deployment is given, byte for byte, what its counterpart on this machine runs."""

import hashlib
import platform
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import aws_cdk as cdk
import pytest

from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.deployment.environment_rules import read_environment
from headwater.local import spark
from headwater.packaging import class_archive, python_archives, wheels
from headwater.paths import BUILD, CONFIG, ROOT
from stacks.assets import Assets
from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def deployed(new_app: Callable[[], cdk.App], contracts: list[Contract]) -> Synthesized:
    """dev, of what ``make assets`` has built."""
    app = new_app()
    app.node.set_context("aws:cdk:disable-asset-staging", True)
    return Synthesized(app, read_environment("dev", CONFIG), contracts, Assets(ROOT, BUILD))


def test_the_step_is_given_the_files_of_the_local_writer(deployed: Synthesized) -> None:
    step = deployed.only("Custom::HeadwaterStep")
    arguments = step["Args"]
    after = {name: at + 1 for at, name in enumerate(arguments) if name in ("--jars", "--py-files")}
    assert _digests(deployed.assets(arguments[after["--jars"]])) == _digests(_jars())
    assert _same(deployed.asset(arguments[after["--py-files"]]), BUILD / "headwater.zip")
    assert _same(deployed.asset(arguments[after["--py-files"] + 1]), ROOT / "emr_steps" / "write_hudi.py")
    shipped = [arguments[at + 1] for at, name in enumerate(arguments) if name == "--contract"]
    written = of_database(deployed.contracts, POSTGRESQL)
    assert [deployed.asset(asset).read_text() for asset in shipped] == [contract.to_json() for contract in written]


def test_the_nodes_are_given_the_python_packages_of_the_local_step(deployed: Synthesized) -> None:
    (action,) = deployed.only("AWS::EMR::Cluster")["BootstrapActions"]
    archive = deployed.asset(action["ScriptBootstrapAction"]["Args"][0])
    assert _same(archive, python_archives.path(wheels.AARCH64))
    if (sys.platform, platform.machine()) != ("linux", wheels.X86_64):
        pytest.skip("the archives differ in msgspec's native part alone, which is another here")
    # The other platform's archive, which the local step runs here, has the same Python files.
    with tarfile.open(archive) as nodes, tarfile.open(python_archives.path(wheels.X86_64)) as local:
        assert _python_files(nodes) == _python_files(local)
    launcher = Path(spark.shipped_python()["PYSPARK_PYTHON"])
    assert launcher == python_archives.unpack(wheels.X86_64)


def test_the_glue_job_is_given_the_files_of_the_local_job(deployed: Synthesized) -> None:
    job = deployed.only("AWS::Glue::Job")
    arguments = job["DefaultArguments"]
    script = deployed.asset(job["Command"]["ScriptLocation"])
    assert _same(script, ROOT / "glue_scripts" / "write_hudi.py")
    assert _digests(deployed.assets(arguments["--extra-jars"])) == _digests(_jars())
    assert _same(deployed.asset(arguments["--extra-py-files"]), BUILD / "headwater.zip")
    (contract,) = of_database(deployed.contracts, DYNAMODB)
    assert deployed.asset(arguments["--contract"]).read_text() == contract.to_json()


def test_the_package_is_the_checkouts() -> None:
    with zipfile.ZipFile(BUILD / "headwater.zip") as package:
        packaged = {name: package.read(name) for name in package.namelist()}
    assert {
        "headwater/lake/writer.py",
        "headwater/lake/dynamodb_decoder.py",
        "headwater/contract/model.py",
    } <= packaged.keys()
    assert packaged == {name: (ROOT / name).read_bytes() for name in packaged}


def test_msk_connect_is_given_the_jars_of_the_local_worker(deployed: Synthesized) -> None:
    plugin = deployed.only("AWS::KafkaConnect::CustomPlugin")
    plugins = BUILD / "plugins"
    with zipfile.ZipFile(deployed.asset(plugin["Location"])) as whole:
        deployed_jars = {name: _digest(whole.read(name)) for name in whole.namelist()}
    assert deployed_jars == {
        str(path.relative_to(plugins)): _digest(path.read_bytes())
        for folder in plugins.iterdir()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_glue_installs_the_release_of_msgspec_that_is_installed_here(deployed: Synthesized) -> None:
    jobs = [job["Properties"]["DefaultArguments"] for job in deployed.resources("AWS::Glue::Job").values()]
    (wheel,) = {deployed.asset(arguments["--additional-python-modules"]) for arguments in jobs}
    assert wheel.name.startswith(f"msgspec-{metadata.version('msgspec')}-cp311-")
    if (sys.version_info[:2], sys.platform, platform.machine()) != ((3, 11), "linux", "x86_64"):
        pytest.skip("another Python or processor has a build of its own")
    here = metadata.distribution("msgspec")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.startswith("msgspec/") and not name.endswith("/")]
        assert any(name.endswith(".so") for name in modules)
        assert all(archive.read(name) == Path(str(here.locate_file(name))).read_bytes() for name in modules)


def _python_files(archive: tarfile.TarFile) -> dict[str, str]:
    return {
        entry.name: _digest(packed.read())
        for entry in archive
        if entry.name.endswith((".py", "/python", ".json.gz")) and (packed := archive.extractfile(entry)) is not None
    }


def _jars() -> list[Path]:
    """What is on the local writers' class path besides what Spark and the place bring."""
    brought = {path.name for path in class_archive.class_path()}
    return [path for path in spark.driver_jars() if path.name not in brought]


def _digests(files: Iterable[Path]) -> list[str]:
    return [_digest(path.read_bytes()) for path in files]


def _same(left: Path, right: Path) -> bool:
    return _digest(left.read_bytes()) == _digest(right.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

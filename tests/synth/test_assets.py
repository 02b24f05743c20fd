"""Each part of a deployment is given, byte for byte, what its counterpart on this machine runs."""

import functools
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from packageurl import PackageURL
from typer.testing import CliRunner

from headwater import cli
from headwater.contract.model import DYNAMODB, POSTGRESQL, Contract, of_database
from headwater.contract.reading import read_contract, read_contracts
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import EXAMPLE, LakeFolder
from headwater.packaging import artifacts, class_archive, jars, python_archives, shipped, wheels
from headwater.paths import BUILD, ROOT
from rig.local import spark
from stacks.assets import Assets
from tests.lake_folders import lake_folder
from tests.synth.conftest import Synthesized


@pytest.fixture(scope="module")
def deployed(
    new_app: Callable[[], cdk.App], contracts: list[Contract], tmp_path_factory: pytest.TempPathFactory
) -> Synthesized:
    """dev, of what ``make assets`` has built."""
    app = new_app()
    app.node.set_context("aws:cdk:disable-asset-staging", True)
    return Synthesized(
        app,
        read_environment("dev", EXAMPLE.config),
        contracts,
        Assets(ROOT, BUILD, lake_folder(tmp_path_factory.mktemp("lake"))),
    )


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
        "headwater/lake/table/writer.py",
        "headwater/lake/decoding/dynamodb_decoder.py",
        "headwater/contract/model.py",
    } <= packaged.keys()
    assert packaged == {name: (ROOT / name).read_bytes() for name in packaged}
    assert {name.partition("/")[0] for name in packaged} == {"headwater"}


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


@pytest.fixture(scope="module")
def known() -> dict[str, shipped.Origin]:
    return shipped.origins(EXAMPLE.contracts)


@pytest.fixture
def known_once(known: dict[str, shipped.Origin], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads no more than once what may ship, which takes seconds."""
    monkeypatch.setattr(shipped, "origins", lambda *_: known)


def test_every_file_that_reaches_aws_has_a_locked_hash_or_a_source(
    deployed: Synthesized, known: dict[str, shipped.Origin]
) -> None:
    found = shipped.trace(deployed.assembly, known)
    assert [name for name, origin in found if origin is None] == []
    # What is listed for the SBOM is what ships, no more and no less.
    assert {origin for _, origin in found if isinstance(origin, shipped.Release)} == set(shipped.releases())
    assert {origin.partition("/")[0] for _, origin in found if isinstance(origin, str)} == {
        *("NOTICE", "connect", "contracts", "custom_resources", "emr_bootstrap", "emr_steps", "glue_scripts"),
        *("headwater", "lake_jvm", "stacks"),
    }


def test_the_sbom_has_the_address_and_the_hash_of_all_that_ships(tmp_path: Path) -> None:
    output = tmp_path / "sbom.cdx.json"
    result = CliRunner().invoke(cli.app, ["sbom", "--output", str(output)])
    assert result.exit_code == 0, result.output
    listed = json.loads(output.read_text())["components"]
    found = {component["purl"]: [entry["content"] for entry in component["hashes"]] for component in listed}
    assert len(found) == len(listed)
    [hudi] = [component for component in listed if component["name"].startswith("hudi-spark")]
    within = [part["purl"] for part in hudi["components"]]
    assert "pkg:maven/org.apache.hudi/hudi-common@1.1.1" in within
    assert hudi["purl"] not in within
    of_pypi = {purl: found.pop(purl) for purl in [*found] if purl.startswith("pkg:pypi/")}
    shipped_jars = re.findall(
        r"^(\w{64})  (?:plugins/\S+|jars/hudi-spark\S+)  (\S+):(\S+):(\S+)$", jars.LOCK.read_text(), re.MULTILINE
    )
    assert found == {f"pkg:maven/{group}/{name}@{version}": [digest] for digest, group, name, version in shipped_jars}
    assert found["pkg:maven/com.fasterxml.jackson.core/jackson-core@2.18.8"] == [
        "ab865e39f01403598748b090a3bf528616e701913a71afc37a227daa0fabb4ae"
    ]
    # msgspec has native code, so a wheel per platform.
    assert sorted(PackageURL.from_string(purl).name for purl in of_pypi) == sorted(
        [*python_archives.PACKAGES, "msgspec", "aws-cdk-lib"]
    )
    locked = wheels.REQUIREMENTS.read_text()
    for purl, [digest] in of_pypi.items():
        address = PackageURL.from_string(purl)
        [lines] = re.findall(rf"^{address.name}=={address.version}(?: .*)?(?:\n +--hash=.*)+", locked, re.MULTILINE)
        assert f"sha256:{digest}" in lines
    # The lock has the source archive's hash too.
    assert of_pypi["pkg:pypi/aws-cdk-lib@2.275.0?file_name=aws_cdk_lib-2.275.0-py3-none-any.whl"] == [
        "223e5b8c67bee9802d714493b380251a2e8ce55c8c477e5d44ca2c85f3b322ee"
    ]


def test_no_environment_uploads_a_file_without_an_origin(
    every_stack: Synthesized, known: dict[str, shipped.Origin]
) -> None:
    # Their assets are placeholders, except for what CDK and the app add.
    files = [*every_stack.build.rglob("*.*"), *every_stack.lake.build.rglob("*.*")]
    placeholders = {_digest(path.read_bytes()): "a placeholder" for path in files}
    found = shipped.trace(every_stack.assembly, {**known, **placeholders})
    assert [name for name, origin in found if origin is None] == []
    assert shipped.strange_code(every_stack.assembly) == []


def test_a_file_without_a_locked_hash_or_a_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "evil.sh").write_text("evil")
    (tmp_path / "asset.1234").mkdir()
    (tmp_path / "asset.1234" / "evil.js").write_text("evil")
    with zipfile.ZipFile(tmp_path / "plugin.zip", "w") as plugin:
        plugin.write(ROOT / "NOTICE", "NOTICE")
        plugin.writestr("lib/evil.jar", "evil")
    with tarfile.open(tmp_path / "python.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "evil.sh", "site-packages/evil.py")
    _assembly(tmp_path, "evil.sh", "asset.1234", "plugin.zip", "python.tar.gz")
    manifest = tmp_path / "stack.assets.json"
    images = {"1234": {"source": {"directory": "asset.1234"}}}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "dockerImages": images}))
    named = [
        sentence.partition(" would be uploaded, but no lock has")[0]
        for sentence in shipped.unexplained(tmp_path, EXAMPLE)
    ]
    assert named == [
        "stack.assets.json: container image 1234",
        "stack.assets.json: evil.sh",
        "stack.assets.json: asset.1234/evil.js",
        "stack.assets.json: plugin.zip/lib/evil.jar",
        "stack.assets.json: python.tar.gz/site-packages/evil.py",
    ]


def test_files_of_a_stack_that_has_left_the_app_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "evil.sh").write_text("evil")
    _assembly(tmp_path, "evil.sh")
    (tmp_path / "stack.assets.json").rename(tmp_path / "gone.assets.json")
    _assembly(tmp_path)
    assert shipped.unexplained(tmp_path, EXAMPLE) == []


@pytest.mark.usefixtures("known_once")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("contents", [("evil", "known"), ("known", "evil"), ("known", "known")])
def test_an_archive_with_two_files_of_one_name_is_refused(contents: tuple[str, str], tmp_path: Path) -> None:
    notice = (ROOT / "NOTICE").read_text()
    with zipfile.ZipFile(tmp_path / "plugin.zip", "w") as plugin:
        for content in contents:
            plugin.writestr("NOTICE", notice if content == "known" else content)
    _assembly(tmp_path, "plugin.zip")
    with pytest.raises(UserError, match=r"plugin\.zip: found two files NOTICE, expected one"):
        shipped.unexplained(tmp_path, EXAMPLE)


@pytest.mark.usefixtures("known_once")
def test_bytes_before_the_first_file_of_a_zip_are_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as plugin:
        plugin.write(ROOT / "NOTICE", "NOTICE")
    (tmp_path / "plugin.zip").write_bytes(b"evil" + packed.getvalue())
    _assembly(tmp_path, "plugin.zip")
    with pytest.raises(UserError, match=r"plugin\.zip: found 4 bytes before the first file, expected none"):
        shipped.unexplained(tmp_path, EXAMPLE)


@pytest.mark.usefixtures("known_once")
@pytest.mark.parametrize(
    ("code", "explained"),
    [
        ({"S3Bucket": "assets-${AWS::AccountId}", "S3Key": "NOTICE"}, True),
        ({"S3Bucket": {"Fn::Sub": "assets-${AWS::AccountId}"}, "S3Key": "NOTICE"}, True),
        ({"S3Bucket": "assets-${AWS::AccountId}", "S3Key": "evil.zip"}, False),
        ({"S3Bucket": "evil", "S3Key": "NOTICE"}, False),
        ({"ZipFile": "evil"}, False),
        ({"ImageUri": "evil"}, False),
    ],
)
@pytest.mark.parametrize(("kind", "field"), [("Function", "Code"), ("LayerVersion", "Content")])
def test_code_that_cdk_does_not_upload_is_named(
    kind: str, field: str, code: dict[str, Any], explained: bool, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "NOTICE", tmp_path)
    resource = {"Type": f"AWS::Lambda::{kind}", "Properties": {field: code}}
    (tmp_path / "stack.template.json").write_text(json.dumps({"Resources": {"Evil": resource}}))
    _assembly(tmp_path, "NOTICE", template="stack.template.json")
    found = shipped.unexplained(tmp_path, EXAMPLE)
    assert [sentence.partition(": found the code {")[0] for sentence in found] == (
        [] if explained else ["stack.template.json: Evil"]
    )


@pytest.mark.parametrize("clone", [True, False])
def test_in_a_clone_only_what_git_tracks_is_a_source(
    clone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "custom_resources"
    folder.mkdir()
    for name in ("tracked", "untracked", "ignored"):
        (folder / f"{name}.py").write_text(name)
    (tmp_path / ".gitignore").write_text("ignored.py")
    if clone:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
        subprocess.run(["git", "add", "custom_resources/tracked.py"], cwd=tmp_path, check=True)
    monkeypatch.setattr(shipped, "ROOT", tmp_path)
    _assembly(tmp_path, "custom_resources")
    prefix = "stack.assets.json: custom_resources/"
    named = [
        sentence.partition(" would")[0].removeprefix(prefix) for sentence in shipped.unexplained(tmp_path, EXAMPLE)
    ]
    assert named == (["ignored.py", "untracked.py"] if clone else [])


@pytest.mark.usefixtures("known_once")
@pytest.mark.parametrize("clone", [True, False])
def test_sql_that_git_does_not_track_is_named(clone: bool, tmp_path: Path) -> None:
    folder = lake_folder(tmp_path / "lake")
    for place, name in (
        (folder.database, "1_a"),
        (folder.database, "2_b"),
        (folder.queries, "a"),
        (folder.queries, "b"),
    ):
        place.mkdir(exist_ok=True)
        (place / f"{name}.sql").write_text("SELECT 1")
    if clone:
        subprocess.run(["git", "init", "--quiet"], cwd=folder.root, check=True)
        subprocess.run(["git", "add", "database/1_a.sql", "queries/a.sql"], cwd=folder.root, check=True)
    # An environment with a database of its own lacks these statements.
    for files, expected in ((["1_a.sql", "2_b.sql"], ["database/2_b.sql", "queries/b.sql"]), ([], ["queries/b.sql"])):
        (tmp_path / "content.json").write_text(json.dumps({"files": [{"name": name} for name in files]}))
        _assembly(tmp_path, "content.json", display="Statements")
        found = shipped.unexplained(tmp_path, folder)
        assert [sentence.partition(" would be deployed, but git does not track it")[0] for sentence in found] == (
            expected if clone else []
        )


@pytest.mark.parametrize("clone", [True, False])
def test_contracts_that_git_does_not_track_are_named_once(clone: bool, tmp_path: Path) -> None:
    folder = LakeFolder(tmp_path / "lake")
    contracts = shutil.copytree(EXAMPLE.contracts, folder.contracts)
    for contract in read_contracts(contracts):
        # Not the example's, which the checkout's git tracks.
        path = contracts / f"{contract.table}.yaml"
        path.write_text(path.read_text().replace(contract.description, "Of my own."))
        (tmp_path / f"{contract.table}.json").write_text(read_contract(path).to_json())
    if clone:
        subprocess.run(["git", "init", "--quiet"], cwd=folder.root, check=True)
        subprocess.run(["git", "add", "contracts/accounts.yaml"], cwd=folder.root, check=True)
    _assembly(tmp_path, "accounts.json", "orders.json", "products.json")
    sentences = shipped.unexplained(tmp_path, folder)
    assert [sentence.partition(": found")[0] for sentence in sentences] == (
        ["contracts/orders.yaml, contracts/products.yaml"] if clone else []
    )
    for sentence in sentences:
        subprocess.run(sentence.rpartition(": ")[2].split(), check=True, cwd=folder.root)
        assert shipped.unexplained(tmp_path, folder) == []


def test_a_jar_whose_line_the_lock_has_lost_is_named(
    deployed: Synthesized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(re.sub(r".*/httpclient-.*\n", "", jars.LOCK.read_text()))
    monkeypatch.setattr(jars, "locked", functools.partial(jars.locked, lock=lock))
    (sentence,) = shipped.unexplained(deployed.assembly, EXAMPLE)
    assert "headwater-connect/httpclient-4.5.13.jar would be uploaded" in sentence


def test_a_changed_byte_of_what_is_built_here_is_found(tmp_path: Path, known: dict[str, shipped.Origin]) -> None:
    build = _copy(tmp_path)
    assert artifacts.connect_is_current(build)
    assert artifacts.lake_jvm_is_current(build)
    own = [artifacts.lake_jar(build), *artifacts.connect_jars(build)]
    assert {_digest(jar.read_bytes()) for jar in own} <= known.keys()
    for jar in own:
        content = bytearray(jar.read_bytes())
        content[len(content) // 2] ^= 1
        _replace(jar, bytes(content))
    assert {_digest(jar.read_bytes()) for jar in own}.isdisjoint(shipped.origins(EXAMPLE.contracts, build))
    assert not artifacts.connect_is_current(build)
    assert not artifacts.lake_jvm_is_current(build)


def test_a_wheel_that_is_not_as_locked_is_named_with_both_hashes(tmp_path: Path) -> None:
    build = _copy(tmp_path)
    (wheel,) = wheels.folder(wheels.X86_64, build).glob("msgspec-*.whl")
    _replace(wheel, b"another wheel")
    with pytest.raises(UserError, match=r"msgspec-.*: found the SHA-256 [0-9a-f]{64}, expected one of requirem"):
        shipped.releases(build)


def test_no_plugin_with_an_altered_jar_is_zipped(tmp_path: Path) -> None:
    build = _copy(tmp_path)
    zips = [build / f"{folder}.zip" for folder in jars.PLUGINS.values()]
    for zipped in zips:
        zipped.unlink()
    artifacts.pack_plugins(build)
    for zipped in zips:
        zipped.unlink()
    _replace(build / "plugins" / "headwater-connect" / "httpclient-4.5.13.jar", b"another client")
    with pytest.raises(UserError, match=r"httpclient-.*\.jar was altered"):
        artifacts.pack_plugins(build)
    assert [zipped for zipped in zips if zipped.exists()] == []


def _assembly(folder: Path, *names: str, template: str = "", display: str = "") -> None:
    """Make a folder one that CDK synthesized. Its stack has this template, uploads these files, and calls each by the
    name ``display``."""
    files = {
        name: {
            **({"displayName": display} if display else {}),
            "source": {"path": name},
            "destinations": {"here": {"bucketName": "assets-${AWS::AccountId}", "objectKey": name}},
        }
        for name in names
    }
    stack = {"type": "aws:cloudformation:stack", "properties": {"templateFile": template}}
    artifacts = {"assets": {"type": "cdk:asset-manifest", "properties": {"file": "stack.assets.json"}}}
    (folder / "manifest.json").write_text(
        json.dumps({"artifacts": {**artifacts, "stack": stack} if template else artifacts})
    )
    (folder / "stack.assets.json").write_text(json.dumps({"files": files}))


def _copy(folder: Path) -> Path:
    """A copy of the built files that ship, whose files may be replaced, not written into."""
    for name in ("jars", "lake_jvm", "plugins", "stamps", "wheels"):
        shutil.copytree(BUILD / name, folder / name, copy_function=os.link)
    for plugin in jars.PLUGINS.values():
        _replace(folder / plugin / jars.OWN / "NOTICE", b"")
    return folder


def _replace(file: Path, content: bytes) -> None:
    file.unlink()
    file.write_bytes(content)


def _python_files(archive: tarfile.TarFile) -> dict[str, str]:
    return {
        entry.name: _digest(packed.read())
        for entry in archive
        if entry.name.endswith((".py", "/python", ".json.gz")) and (packed := archive.extractfile(entry)) is not None
    }


def _jars() -> list[Path]:
    """The jars on the local writers' class path, without the ones of Spark and of the machine's place."""
    brought = {path.name for path in class_archive.class_path()}
    return [path for path in spark.driver_jars() if path.name not in brought]


def _digests(files: Iterable[Path]) -> list[str]:
    return [_digest(path.read_bytes()) for path in files]


def _same(left: Path, right: Path) -> bool:
    return _digest(left.read_bytes()) == _digest(right.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

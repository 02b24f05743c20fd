"""The files that go to S3, made under ``build/``: plugin zips, the PySpark package, the Python packages that it needs
on EMR and Glue, and the rendered contracts."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from headwater.console import Announce
from headwater.contract.reading import read_contracts
from headwater.errors import UserError
from headwater.folder_lock import claim
from headwater.packaging import class_archive, jars, jdk, python_archives, stamps, wheels
from headwater.paths import BUILD, CONTRACTS, ROOT

# The part of the package that EMR and Glue get. It needs PySpark, boto3 and msgspec.
LAKE_PACKAGE = (
    "__init__.py",
    "errors.py",
    "contract/__init__.py",
    "contract/evolution.py",
    "contract/masks.py",
    "contract/model.py",
    "contract/transforms.py",
    "contract/types.py",
    "lake/**/*.py",
)
CONNECT = ROOT / "connect"
LAKE_JVM = ROOT / "lake_jvm" / "src" / "main" / "java"
# Decodes DynamoDB's changes. The platform is that of Glue 5's workers.
WHEEL = "msgspec"
WHEEL_PLATFORM = wheels.X86_64
# The earliest moment that ZIP knows. With a fixed moment the same content gives the same bytes.
MOMENT = (1980, 1, 1, 0, 0, 0)


def build(announce: Announce, build: Path = BUILD) -> None:
    """Make all assets under ``build``, each only when its inputs have changed. Raises UserError where Maven or pip
    fails, or a jar differs from its lock."""
    with claim(build / "assets", "another run", wait=True):
        jars.fetch(announce, build)
        class_archive.make(announce, build)
        fetch_wheel(announce, build)
        python_archives.build_archives(announce, build)
        build_connect(announce, build)
        build_lake_jvm(announce, build)
        for plugin in sorted(path for path in (build / "plugins").iterdir() if path.is_dir()):
            zip_files(build / "plugins" / f"{plugin.name}.zip", plugin.parent, sorted(plugin.rglob("*")))
        package = ROOT / "headwater"
        zip_files(build / "headwater.zip", ROOT, sorted(path for glob in LAKE_PACKAGE for path in package.glob(glob)))
        render_contracts(build / "contracts")


def build_connect(announce: Announce, build: Path = BUILD) -> None:
    """Build the Maven module ``connect/`` into ``build/plugins/headwater-connect``, and the source connector into a
    folder of its own inside Debezium's plugin, beside the locked jars. Its tests are left to ``make test``."""
    plugin = build / "plugins" / "headwater-connect"
    source = build / "plugins" / "debezium-postgres" / "headwater"
    stamp = build / "stamps" / "connect"
    sources = (path for part in ("main", "assembly") for path in sorted((CONNECT / "src" / part).rglob("*")))
    inputs = tree_digest([CONNECT / "pom.xml", *sources])
    if plugin.is_dir() and source.is_dir() and stamps.is_current(stamp, inputs):
        return
    with announce("Building the connectors and the config provider (connect/)"):
        jars.maven(["-f", str(CONNECT / "pom.xml"), "package", "-DskipTests"], build / "logs" / "maven-connect.log")
        shutil.rmtree(plugin, ignore_errors=True)
        shutil.copytree(CONNECT / "target" / plugin.name, plugin)
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        (jar,) = (CONNECT / "target").glob("headwater-connect-*-debezium.jar")
        shutil.copyfile(jar, source / jar.name)
    stamps.write(stamp, inputs)


def build_lake_jvm(announce: Announce, build: Path = BUILD) -> None:
    """Compile ``lake_jvm/`` into a jar under ``build/lake_jvm``, against the jars that it runs with here.
    Raises UserError with what the compiler says."""
    jar = build / "lake_jvm" / "headwater-lake.jar"
    stamp = build / "stamps" / "lake-jvm"
    sources = sorted(LAKE_JVM.rglob("*.java"))
    class_path = [*class_archive.class_path(build), *jars.class_path("spark", build)]
    inputs = tree_digest(sources) + "".join(path.name for path in class_path)
    if jar.exists() and stamps.is_current(stamp, inputs):
        return
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (
        announce("Compiling the part of the writers that runs in the JVM (lake_jvm/)"),
        tempfile.TemporaryDirectory() as classes,
    ):
        command = [jdk.java("javac"), "--release", "17", "-proc:none", "-d", classes]
        command += ["-cp", os.pathsep.join(map(str, class_path)), *map(str, sources)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{LAKE_JVM} does not compile:\n{done.stderr}")
        zip_files(jar, Path(classes), sorted(Path(classes).rglob("*.class")))
    stamps.write(stamp, inputs)


def fetch_wheel(announce: Announce, build: Path = BUILD) -> None:
    """Fetch the wheel that Glue installs into ``build/wheels``, in the version and with a hash of the lock."""
    folder = build / "wheels"
    stamp = build / "stamps" / "wheel"
    requirements = wheels.locked([WHEEL])
    inputs = requirements + " ".join(wheels.tags(WHEEL_PLATFORM))
    if any(folder.glob("*.whl")) and stamps.is_current(stamp, inputs):
        return
    shutil.rmtree(folder, ignore_errors=True)
    with announce(f"Fetching {WHEEL} for Glue"):
        wheels.download(requirements, WHEEL_PLATFORM, folder)
    stamps.write(stamp, inputs)


def render_contracts(folder: Path, contracts: Path = CONTRACTS) -> None:
    """Write each contract as JSON, which needs no YAML parser on the cluster, and remove files of former contracts."""
    folder.mkdir(parents=True, exist_ok=True)
    rendered = {f"{contract.table}.json": contract.to_json() for contract in read_contracts(contracts)}
    for name, text in rendered.items():
        (folder / name).write_text(text)
    for former in {path.name for path in folder.iterdir()} - rendered.keys():
        (folder / former).unlink()


def zip_files(target: Path, root: Path, files: Iterable[Path]) -> None:
    """Write a zip of files under their paths below ``root``. Its bytes depend on these paths and the content alone."""
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in files:
            if path.is_file():
                entry = zipfile.ZipInfo(str(path.relative_to(root)), MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
    part.replace(target)


def tree_digest(files: Iterable[Path]) -> str:
    """One SHA-256 over the names and contents of files; folders among them do not count."""
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0{jars.sha256(path)}\n".encode())
    return digest.hexdigest()
